"""What annotations of settings say: their marks, alternatives, classes and choices."""

from __future__ import annotations

import builtins
import inspect
import sys
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin, is_typeddict

from annotated_types import GroupedMetadata


@dataclass(frozen=True)
class OneOf:
    """The allowed texts of a setting, as in ``Annotated[str, OneOf(names)]``.

    Attributes:
        names: the allowed texts, in the order in which messages list them.
    """

    names: tuple[str, ...]

    def __init__(self, names: Iterable[str]) -> None:
        object.__setattr__(self, "names", tuple(names))


@dataclass(frozen=True)
class Means:
    """The meaning of one alternative of a setting, as in ``Annotated[None, Means("all cores")]``.

    Attributes:
        words: the meaning, perhaps with an example, that refusals put in brackets.
    """

    words: str


@dataclass(frozen=True)
class MayRepeat:
    """The mark of a list whose texts may be equal, as in ``Annotated[Sequence[str], MayRepeat()]``.

    Any other list of texts names choices, files or parts, of which each is taken once.
    """


class Aside:
    """A mark around a whole annotation that says nothing of the values."""


class NoResult(Aside):
    """The mark of a setting of place, speed or frequency, which never changes a result."""


NO_RESULT = NoResult()


@dataclass(frozen=True)
class Keys:
    """The keys of a mapping, for ``Annotated``.

    Attributes:
        required: keys that must be present and not null.
        kinds: (key, annotation) of each key whose value has another type than the rest.
    """

    required: tuple[str, ...]
    kinds: tuple[tuple[str, Any], ...] = ()


def alternatives_of(annotation: Any) -> list[Any]:
    """Return the alternatives that ``|`` joins."""
    if get_origin(annotation) in {Union, types.UnionType}:
        return [
            alternative for part in get_args(annotation) for alternative in alternatives_of(part)
        ]
    return [annotation]


@cache
def base_of(annotation: Any) -> Any:
    """Return the class behind ``Annotated[...]`` and ``[...]``."""
    plain = plain_of(annotation)
    return get_origin(plain) or plain


def plain_of(annotation: Any) -> Any:
    """Return an annotation without ``Annotated``."""
    while get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    return annotation


@cache
def is_sequence(base: Any) -> bool:
    """Say whether a class is a sequence other than text."""
    return isinstance(base, type) and issubclass(base, Sequence) and not issubclass(base, str)


def choices_of(annotation: Any) -> tuple[Any, ...]:
    """Return the values that an annotation lists; empty if it lists none."""
    for mark in marks_of(annotation):
        if isinstance(mark, OneOf):
            return mark.names
    plain = plain_of(annotation)
    return get_args(plain) if get_origin(plain) is Literal else ()


def marks_of(annotation: Any) -> list[Any]:
    """Return the metadata of ``Annotated``; both bounds of a range are marks of their own."""
    metadata: list[Any] = []
    while get_origin(annotation) is Annotated:
        annotation, *marks = get_args(annotation)
        for mark in marks:
            metadata += mark if isinstance(mark, GroupedMetadata) else [mark]
    return metadata


VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
NOT_TYPED = ("overrides",)
"""Arguments of a command that are not settings."""


@cache
def signature_of(target: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of a class or function; one written in C may take any settings."""
    try:
        return inspect.signature(target).parameters
    except ValueError:
        return {"settings": inspect.Parameter("settings", inspect.Parameter.VAR_KEYWORD)}


def default_of(target: Callable[..., Any], name: str) -> Any:
    """Return the default of an argument; ``None`` if it has none, or if there is no such one."""
    parameter = signature_of(target).get(name)
    default = inspect.Parameter.empty if parameter is None else parameter.default
    return None if default is inspect.Parameter.empty else default


PLAIN = (bool, int, float, str, types.NoneType)


@cache
def plain_defaults(target: Callable[..., Any]) -> Mapping[str, Any]:
    """Return {setting: its default} of a dataclass, of those that YAML can write."""
    if not is_dataclass(target):
        return {}
    # Classes are named before they are checked: of others only what makes empty values is called.
    ours = target.__module__.startswith("cfaug.")
    made = {
        field.name: field.default if field.default_factory is MISSING else field.default_factory()
        for field in fields(target)
        if field.init and field.name not in NOT_TYPED
        and (ours or field.default_factory in (MISSING, dict, list, tuple))
    }  # fmt: skip
    return {name: _as_written(value) for name, value in made.items() if _is_plain(value)}


def _is_plain(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and _is_plain(item) for key, item in value.items())
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return isinstance(value, PLAIN) and "${" not in str(value)


def _as_written(value: Any) -> Any:
    """Return a plain value as YAML reads it: with lists in the place of tuples."""
    if isinstance(value, Mapping):
        return {key: _as_written(item) for key, item in value.items()}
    return [_as_written(item) for item in value] if isinstance(value, list | tuple) else value


class Unresolved:
    """A stand-in for a name under ``if TYPE_CHECKING``, a class that no value from YAML has."""

    def __class_getitem__(cls, _: Any) -> type[Unresolved]:
        return cls


class _Names(dict[str, Any]):
    """The names of a module; names that only a type checker sees are unresolved."""

    def __missing__(self, name: str) -> Any:
        if name.startswith("__"):  # a debugger looks for these
            raise KeyError(name)
        return getattr(builtins, name, Unresolved)


@cache
def annotation_of(target: Callable[..., Any], name: str) -> Any:
    """Return the resolved annotation of one argument of a function or class, without asides.

    A name under ``if TYPE_CHECKING`` counts as some class; a missing annotation is ``Any``.
    """
    whole = _resolve(target, name)
    if get_origin(whole) is not Annotated:
        return whole
    kind, *marks = get_args(whole)
    kept = [mark for mark in marks if not isinstance(mark, Aside)]
    return Annotated[(kind, *kept)] if kept else kind


def argument_annotation(target: Callable[..., Any], name: str) -> Any:
    """Return the annotation of an argument of any class, ``Any`` if it cannot be told."""
    try:
        return annotation_of(target, name)
    except Exception:  # others may annotate in any way
        return Any


def item_annotation(annotation: Any, value: Any, item: Any) -> Any:
    """Return the annotation of an item of a list (by its number) or of a mapping (by its key)."""
    for choice in alternatives_of(annotation):
        base, kinds = base_of(choice), get_args(plain_of(choice))
        if isinstance(value, Mapping):
            if is_typeddict(base):
                return argument_annotation(base, item)
            if isinstance(base, type) and issubclass(base, Mapping) and len(kinds) == 2:
                return kinds[1]
        elif is_sequence(base) and kinds:
            fixed = base is tuple and kinds[-1] is not Ellipsis
            return kinds[item] if fixed and item < len(kinds) else kinds[0]
    return Any


def asides_of(target: Callable[..., Any], name: str) -> list[Aside]:
    """Return what the annotation of an argument says besides its values."""
    try:
        whole = _resolve(target, name)
    except Exception:  # others may annotate in any way
        return []
    marks = get_args(whole)[1:] if get_origin(whole) is Annotated else ()
    return [mark for mark in marks if isinstance(mark, Aside)]


@cache
def without_result(target: Callable[..., Any]) -> frozenset[str]:
    """Return the settings of a class that never change a result, such as its device."""
    marked = {name: asides_of(target, name) for name in signature_of(target)}
    return frozenset(
        name for name, asides in marked.items() if any(isinstance(a, NoResult) for a in asides)
    )


def _resolve(target: Callable[..., Any], name: str) -> Any:
    written, module = _written_annotation(target, name)
    written = getattr(written, "__forward_arg__", written)
    if not isinstance(written, str):
        return written
    # Like typing.get_type_hints, which fails for all arguments if one name is unknown.
    return eval(written, {"__builtins__": {}}, _Names(vars(sys.modules[module])))


def _written_annotation(target: Callable[..., Any], name: str) -> tuple[Any, str]:
    if isinstance(target, type):
        for base in target.__mro__:  # a dataclass's field is written where it is declared
            if name in vars(base).get("__annotations__", {}):
                return vars(base)["__annotations__"][name], base.__module__
    parameter = inspect.signature(target).parameters.get(name)
    if parameter is None or parameter.annotation is inspect.Parameter.empty:
        return Any, target.__module__
    maker: Any = vars(target).get("__init__", target) if isinstance(target, type) else target
    return parameter.annotation, getattr(maker, "__module__", target.__module__)
