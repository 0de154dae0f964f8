"""Values that were typed, checked against the annotation of the argument that takes them.

A text is not a boolean and 1.5 is not a count: whatever stands in the composed settings has the
type that the constructor's signature says, or is refused by a sentence before anything is done.
"""

from __future__ import annotations

import builtins
import inspect
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin, is_typeddict

from cfaug.errors import UserError
from cfaug.run.arguments import nearest

YES_AND_NO = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
"""YAML 1.1's booleans; Hydra's grammar reads ``no`` as a text."""


@dataclass(frozen=True)
class Keys:
    """Says with ``Annotated`` what keys a mapping has.

    Attributes:
        required: must be there and not be null.
        kinds: the annotation of each key whose value is of another type than the rest.
    """

    required: tuple[str, ...]
    kinds: tuple[tuple[str, Any], ...] = ()


Node = Annotated[Mapping[str, Any], Keys(("_target_",))]
"""The settings of an object, whose class or function ``_target_`` names."""

RunPaths = Annotated[
    Mapping[str, str],
    Keys(("runs", "shards", "cache"), (("image_roots", Sequence[str] | None),)),
]
"""Where runs, shards and what is remembered of them lie; others are for ``${paths.NAME}``."""

Given = Mapping[str, str]
"""Settings as they were typed, by their dotted key."""


class _Unresolved:
    """Stands for a name of ``if TYPE_CHECKING``: a class, and so no type of a value from YAML."""

    def __class_getitem__(cls, _: Any) -> type[_Unresolved]:
        return cls


class _Names(dict[str, Any]):
    """The names of a module; one that only a type checker sees is unresolved."""

    def __missing__(self, name: str) -> Any:
        if name.startswith("__"):  # what a debugger looks for
            raise KeyError(name)
        return getattr(builtins, name, _Unresolved)


def annotation_of(target: Callable[..., Any], name: str) -> Any:
    """Return the resolved annotation of one argument of a function or class.

    What it names under ``if TYPE_CHECKING`` counts as some class; without one it is ``Any``.
    """
    written, module = _written_annotation(target, name)
    written = getattr(written, "__forward_arg__", written)
    if not isinstance(written, str):
        return written
    # As typing.get_type_hints does, which gives up all arguments for one unknown name.
    return eval(written, {"__builtins__": {}}, _Names(vars(sys.modules[module])))


def _written_annotation(target: Callable[..., Any], name: str) -> tuple[Any, str]:
    if isinstance(target, type):
        for base in target.__mro__:  # a dataclass's field is written where it is declared
            if name in vars(base).get("__annotations__", {}):
                return vars(base)["__annotations__"][name], base.__module__
    found = inspect.signature(target).parameters.get(name)
    if found is None or found.annotation is inspect.Parameter.empty:
        return Any, target.__module__
    maker: Any = vars(target).get("__init__", target) if isinstance(target, type) else target
    return found.annotation, getattr(maker, "__module__", target.__module__)


def fit_value(value: Any, annotation: Any, key: str, given: Given) -> Any:
    """Return a value as its annotation wants it.

    A text such as ``no`` becomes a boolean where one is wanted, a number the text that was typed
    where a text is, and one text a list of it where there may be several. Nothing else changes: a
    whole number stays one where any number will do.

    Args:
        value: as it was composed: of YAML's types.
        annotation: resolved, as ``annotation_of`` returns it.
        key: the setting's dotted name.
        given: the settings that were typed.

    Raises:
        UserError: naming the setting, the value and what it may be.
    """
    choices = _alternatives(annotation)
    for choice in choices:
        if _is(value, choice):
            return _inside(value, choice, key, given)
    for choice in choices:
        if choice is bool and isinstance(value, str) and value.lower() in YES_AND_NO:
            return YES_AND_NO[value.lower()]
        if _takes_text(choice) and isinstance(value, bool | int | float):
            text = given.get(key, _write_value(value))
            if choice is str or text in get_args(choice):
                return text
        if isinstance(value, str) and _takes_texts(choice):
            return [value]
    raise UserError(_refusal(value, choices, key))


def _alternatives(annotation: Any) -> list[Any]:
    """Return what is joined by ``|``."""
    if get_origin(annotation) in {Union, types.UnionType}:
        return [one for part in get_args(annotation) for one in _alternatives(part)]
    return [annotation]


def _takes_text(choice: Any) -> bool:
    return choice is str or (
        get_origin(choice) is Literal and all(isinstance(one, str) for one in get_args(choice))
    )


def _takes_texts(choice: Any) -> bool:
    kinds = get_args(choice)
    return _is_sequence(_base(choice)) and kinds in {(str,), (str, ...)}


def _base(choice: Any) -> Any:
    """Return the class behind ``Annotated[...]`` and ``[...]``."""
    while get_origin(choice) is Annotated:
        choice = get_args(choice)[0]
    return get_origin(choice) or choice


def _is(value: Any, choice: Any) -> bool:
    """Say whether a value of YAML's types is one of a choice, but for what it holds."""
    base = _base(choice)
    if base in {Any, object}:
        return True
    if base in {None, types.NoneType} or value is None:
        return value is None and (base in {None, types.NoneType} or _is_object(base))
    if base is Literal:
        return any(type(value) is type(one) and value == one for one in get_args(choice))
    if isinstance(value, bool) or base is bool:
        return isinstance(value, bool) and base is bool
    if base is float:
        return isinstance(value, int | float)
    if base in {int, str}:
        return isinstance(value, base)
    if isinstance(value, Mapping):
        return is_typeddict(base) or (base is not tuple and not _is_sequence(base))
    return isinstance(value, list | tuple) and _is_sequence(base)


def _is_object(base: Any) -> bool:
    """Say whether an annotation wants what is made of a node; one that is not made may be null."""
    plain = base in {Any, object, types.NoneType, bool, int, float, str, Mapping, dict}
    data = plain or is_typeddict(base) or _is_sequence(base)
    return isinstance(base, type) and not data


def _is_sequence(base: Any) -> bool:
    return isinstance(base, type) and issubclass(base, Sequence)


def _inside(value: Any, choice: Any, key: str, given: Given) -> Any:
    """Return a value whose kind is right with what it holds fitted as well."""
    base = _base(choice)
    if isinstance(value, Mapping):
        return _mapping(value, choice, key, given)
    if not isinstance(value, list | tuple) or base in {Any, object}:
        return value
    kinds = get_args(choice) or (Any,)
    if base is tuple and kinds[-1] is not Ellipsis:
        if len(kinds) != len(value):
            raise UserError(_refusal(value, [choice], key))
    else:
        kinds = (kinds[0],) * len(value)
    pairs = enumerate(zip(value, kinds, strict=True))
    return [fit_value(one, kind, f"{key}[{number}]", given) for number, (one, kind) in pairs]


def _mapping(value: Mapping[str, Any], choice: Any, key: str, given: Given) -> Mapping[str, Any]:
    base = _base(choice)
    if is_typeddict(base):
        kinds = {name: annotation_of(base, name) for name in base.__annotations__}
        refuse_unknown(value, list(kinds), f"{key}.")
        required: Sequence[str] = sorted(base.__required_keys__)
    else:
        required, special = _marks(choice)
        kinds = {**dict.fromkeys(value, _kind_of_values(choice)), **special}
        for name in required:
            if name in value and value[name] is None:
                raise UserError(f"{key}.{name}=null should be a text")
    missing = [name for name in required if name not in value]
    if "_target_" in missing:
        raise UserError(_refusal(value, [choice], key))
    if missing:
        raise UserError(f"{key}.{missing[0]} is missing")
    return {
        name: fit_value(one, kinds[name], f"{key}.{name}", given) for name, one in value.items()
    }


def _marks(choice: Any) -> tuple[Sequence[str], Mapping[str, Any]]:
    """Return which keys a mapping must have, and the annotations that single ones have."""
    if get_origin(choice) is Annotated:
        for mark in get_args(choice)[1:]:
            if isinstance(mark, Keys):
                return mark.required, dict(mark.kinds)
    return ("_target_",) if _is_object(_base(choice)) else (), {}


def _kind_of_values(choice: Any) -> Any:
    """Return the annotation of a mapping's values."""
    while get_origin(choice) is Annotated:
        choice = get_args(choice)[0]
    kinds = get_args(choice)
    return kinds[1] if len(kinds) == 2 else Any


def refuse_unknown(node: Mapping[str, Any], taken: Sequence[str], path: str) -> None:
    """Refuse a key that nothing takes.

    Raises:
        UserError: naming the nearest and all that are taken.
    """
    for key in node:
        if key in taken:
            continue
        near = nearest(str(key), taken)
        hint = f"did you mean {path}{near}? " if near else ""
        raise UserError(
            f"nothing takes {path}{key}: {hint}Keys here: "
            + ", ".join(path + name for name in taken)
        )


def _refusal(value: Any, choices: Sequence[Any], key: str) -> str:
    named = [str(one) for choice in choices if _base(choice) is Literal for one in get_args(choice)]
    if named:
        named += ["null"] if types.NoneType in choices else []
        return f"{key}={_write_value(value)}: choose from {', '.join(named)}"
    wanted = dict.fromkeys(_describe_type(choice) for choice in choices)
    return f"{key}={_write_value(value)} should be {' or '.join(wanted)}"


def _describe_type(choice: Any) -> str:
    base = _base(choice)
    simple = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}
    if base in simple:
        return simple[base]
    if base in {None, types.NoneType}:
        return "null"
    if _is_sequence(base):
        kinds = [kind for kind in get_args(choice) if kind is not Ellipsis]
        plain = f" of {_several(kinds[0])}" if kinds and _several(kinds[0]) else ""
        if base is tuple and Ellipsis not in get_args(choice):
            return f"a list of {len(kinds)}{plain.removeprefix(' of')}"
        return f"a list{plain}"
    return "settings of its own, one by one (key.name=value)"


def _several(kind: Any) -> str:
    return {int: "whole numbers", float: "numbers", str: "texts"}.get(kind, "")


def _write_value(value: Any) -> str:
    """Write a value as it is typed.

    >>> [_write_value(value) for value in (None, True, 1.5, "no", ["a", None])]
    ['null', 'true', '1.5', 'no', '[a,null]']
    """
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, list | tuple):
        return f"[{','.join(map(_write_value, value))}]"
    if isinstance(value, Mapping):
        return f"{{{','.join(f'{name}:{_write_value(one)}' for name, one in value.items())}}}"
    return str(value)
