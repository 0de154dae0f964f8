"""Composed settings in the types of the signatures and annotations that receive them."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Literal, get_args, is_typeddict

from cfaug.core.annotations import (
    NOT_TYPED,
    VARIADIC,
    Keys,
    alternatives_of,
    annotation_of,
    argument_annotation,
    base_of,
    choices_of,
    is_sequence,
    marks_of,
    plain_of,
    signature_of,
)
from cfaug.core.errors import UserError
from cfaug.core.known_names import refuse_unknown
from cfaug.core.targets import OF_NODES, Inner, map_nodes
from cfaug.core.validation import accepts, explain_refusal, refuse_repeated, write_value

YES_AND_NO = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
"""YAML 1.1's booleans; Hydra's grammar reads ``no`` as a text."""
Config = dict[str, Any]
Given = Mapping[str, str]
"""{dotted key: its value as typed}."""


def lists_of_numbers(command: Callable[..., Any]) -> frozenset[str]:
    """Return the settings of a command that may be lists of numbers."""
    return frozenset(
        name
        for name in signature_of(command)
        for choice in alternatives_of(annotation_of(command, name))
        if is_sequence(base_of(choice))
        and base_of((*get_args(plain_of(choice)), Any)[0]) in {int, float}
    )


def bind(
    tree: Mapping[str, Any],
    command: Callable[..., Any],
    given: Given | None = None,
    options: Callable[[str], Sequence[str]] = lambda group: (),
) -> dict[str, Any]:
    """Check every node against the signature that will receive it, and return it in those types.

    Args:
        command: the function that receives the top-level settings.
        given: {dotted key: typed value} of the settings on the command line.
        options: a function that returns the choices of a group; empty for anything else.
    """

    def bind_node(kind: Any, node: Mapping[str, Any], key: str, inner: Inner) -> dict[str, Any]:
        return inner(_bind_node(node, kind, f"{key}.", given or {}))

    return {
        key: map_nodes(value, argument_annotation(command, key), key, bind_node)
        for key, value in _bind_node(tree, command, "", given or {}, options).items()
    }


def _bind_node(
    node: Mapping[str, Any],
    target: Callable[..., Any],
    path: str,
    given: Given,
    options: Callable[[str], Sequence[str]] = lambda group: (),
) -> dict[str, Any]:
    taken = signature_of(target)
    package = str(getattr(target, "__module__", "")).partition(".")[0]
    arguments = {key: value for key, value in node.items() if key not in OF_NODES}
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in taken.values()):
        if package != "lightning":
            return dict(node)
        # What it hands on, to a class unknown here, is not checked: slips of its own names are.
        taken = {key: value for key, value in taken.items() if value.kind not in VARIADIC}
        passed = [key for key in arguments if not get_close_matches(key, taken, 1, 0.8)]
        arguments = {key: value for key, value in arguments.items() if key not in passed}
    names = [name for name in taken if path or name not in NOT_TYPED]
    refuse_unknown(arguments, names, path, target)
    for name in names:
        required = taken[name].default is inspect.Parameter.empty and not node.get("_partial_")
        if required and name not in arguments:
            hint = ", ".join(options(path + name))
            raise UserError(f"{path}{name} is missing" + (f": choose from {hint}" if hint else ""))
    if path and package not in {"cfaug", "lightning"}:  # others may annotate a class in any way
        return dict(node)
    return {
        key: value
        if key not in arguments
        else fit_value(value, annotation_of(target, key), path + key, given)
        for key, value in node.items()
    }


def fit_value(value: Any, annotation: Any, key: str, given: Given) -> Any:
    """Return a value in the type of its annotation.

    A text such as ``no`` becomes a boolean if one is expected, a number becomes the typed text if a
    text is expected, and a single text becomes a list if a list of texts is. Nothing else changes:
    an integer stays an integer if any number is accepted.

    Args:
        value: the composed value, of one of YAML's types.
        annotation: the resolved annotation that ``annotation_of`` returns.
        key: the setting's dotted name.
    """
    choices = alternatives_of(annotation)
    if isinstance(value, Mapping) and "_target_" not in value:  # rather a mapping than an object
        choices = sorted(choices, key=lambda choice: _is_object(base_of(choice)))
    for choice in choices:
        if _is(value, choice):
            return _inside(value, choice, key, given)
    for choice in choices:
        base = base_of(choice)
        if choice is bool and isinstance(value, str) and value.lower() in YES_AND_NO:
            return YES_AND_NO[value.lower()]
        names_texts = base is Literal and all(isinstance(name, str) for name in choices_of(choice))
        if (base is str or names_texts) and isinstance(value, bool | int | float):
            text = given.get(key, write_value(value))
            if accepts(text, choice):
                return text
        items = (*get_args(plain_of(choice)), None)[0]
        if isinstance(value, str) and is_sequence(base) and base_of(items) is str:
            return fit_value([value], choice, key, given)
    raise UserError(explain_refusal(value, annotation, key))


def _is(value: Any, choice: Any) -> bool:
    """Say whether a value of YAML's types has a choice's type, apart from its content."""
    base = base_of(choice)
    if base in {Any, object}:
        return True
    if base in {None, types.NoneType, bool, int, float, str, Literal}:
        return accepts(value, choice)
    if value is None:
        return _is_object(base)
    if isinstance(value, Mapping):
        return is_typeddict(base) or not is_sequence(base)
    return isinstance(value, list | tuple) and is_sequence(base)


def _is_object(base: Any) -> bool:
    """Say whether an annotation expects an object made from a node, or null in its place."""
    data = base in {Any, object, Mapping, dict} or is_typeddict(base) or is_sequence(base)
    return isinstance(base, type) and not data


def _inside(value: Any, choice: Any, key: str, given: Given) -> Any:
    """Return a value of the right kind with its content fitted as well."""
    base = base_of(choice)
    if isinstance(value, Mapping):
        return _mapping(value, choice, key, given)
    if not isinstance(value, list | tuple) or base in {Any, object}:
        return value
    kinds = get_args(plain_of(choice)) or (Any,)
    if base is tuple and kinds[-1] is not Ellipsis:
        if len(kinds) != len(value):
            raise UserError(explain_refusal(value, choice, key))
    else:
        kinds = (kinds[0],) * len(value)
    refuse_repeated(value, choice, key)
    pairs = enumerate(zip(value, kinds, strict=True))
    return [fit_value(item, kind, f"{key}[{number}]", given) for number, (item, kind) in pairs]


def _mapping(value: Mapping[str, Any], choice: Any, key: str, given: Given) -> Mapping[str, Any]:
    base = base_of(choice)
    if is_typeddict(base):
        kinds = {name: annotation_of(base, name) for name in base.__annotations__}
        refuse_unknown(value, list(kinds), f"{key}.")
        required: Sequence[str] = sorted(base.__required_keys__)
    else:
        usual = Keys(("_target_",) if _is_object(base) else ())
        keys = next((mark for mark in marks_of(choice) if isinstance(mark, Keys)), usual)
        pair = get_args(plain_of(choice))  # the annotations of a mapping's keys and of its values
        kinds = dict.fromkeys(value, pair[1] if len(pair) == 2 else Any) | dict(keys.kinds)
        required = keys.required
        for name in required:
            if name in value and value[name] is None:
                raise UserError(f"{key}.{name}=null should be a text")
    missing = [name for name in required if name not in value]
    if "_target_" in missing:
        raise UserError(
            f"{key}={write_value(value)} lacks _target_, the class that takes these settings, such "
            "as _target_: PACKAGE.MODULE.CLASS"
        )
    if missing:
        raise UserError(f"{key}.{missing[0]} is missing")
    return {
        name: fit_value(item, kinds[name], f"{key}.{name}", given) for name, item in value.items()
    }
