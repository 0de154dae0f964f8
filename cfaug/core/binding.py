"""Check composed settings against the signatures that receive them, and against what reads them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, get_args

from cfaug.core.annotations import alternatives_of, annotation_of, base_of, is_sequence, plain_of
from cfaug.core.errors import UserError
from cfaug.core.fitting import Given, fit_value
from cfaug.core.known_names import refuse_unknown
from cfaug.core.targets import (
    OF_NODES,
    TARGET,
    argument_annotation,
    item_annotation,
    locate_class,
)
from cfaug.core.validation import write_value
from cfaug.core.worlds import is_questions, is_world

VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
NOT_TYPED = ("overrides",)
"""Arguments of a command that are not settings."""


def signature_of(target: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of a class or function; one written in C may take any settings."""
    try:
        return inspect.signature(target).parameters
    except ValueError:
        return {"settings": inspect.Parameter("settings", inspect.Parameter.VAR_KEYWORD)}


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
    node = _bind_node(tree, command, "", given or {}, options)
    return {
        key: _bind_targets(value, key, given or {}, argument_annotation(command, key))
        for key, value in node.items()
    }


def _bind_targets(
    value: Any, path: str, given: Given, annotation: Any, owner: type | None = None
) -> Any:
    """Return a value in which every node with a target fits the target's signature.

    Args:
        annotation: the annotation of what takes the value.
        owner: the class that takes it.
    """
    if isinstance(value, list):
        return [
            _bind_targets(
                child, f"{path}[{i}]", given, item_annotation(annotation, value, i), owner
            )
            for i, child in enumerate(value)
        ]
    if not isinstance(value, Mapping):
        return value
    node: Mapping[str, Any] = value
    if TARGET not in node:
        return {
            key: _bind_targets(
                child, f"{path}.{key}", given, item_annotation(annotation, node, key), owner
            )
            for key, child in node.items()
        }
    named = locate_class(node, annotation, path, owner)
    node = _bind_node(node, named, f"{path}.", given)
    return {
        key: _bind_targets(child, f"{path}.{key}", given, argument_annotation(named, key), named)
        for key, child in node.items()
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
    refuse_unknown(arguments, names, path)
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


Config = dict[str, Any]


# Settings that a class reads only beside others, as the class itself declares.
#
# A class names them in ``read_with``::
#
#     read_with: ClassVar[ReadWith] = {
#         "order_seed": {"option_order": ("shuffled",)},
#         "max_new_tokens": {"protocol": ("write",)},
#     }
#
# A condition may also be about what is evaluated, which is not a setting of the class: ``MODEL``,
# ``TRAINED``, ``WORLD`` and ``LEARNT``. Where that is not known yet, such a condition holds.
#
# ``cfaug.run.unread`` refuses such a setting on the command line where nothing reads it, and
# ``--help`` lists the conditions.

GIVEN = "given"
"""The condition that a setting has any value but null, false, 0 and an empty text or list."""
FOLDER = "FOLDER"
"""The condition that a setting names data other than a part of the embedded world."""
MODEL, TRAINED, WORLD, LEARNT = "@model", "@trained", "@world", "@learnt"
"""Conditions about what is evaluated: the name of the protocol by which the model is used, whether
it is a finished run, whether its data are in the embedded world, and whether it learnt from
``captions``, ``hypotheses`` or ``questions``."""
Condition = Mapping[str, Sequence[Any] | str]
"""{setting of the same class: its values, or ``GIVEN`` or ``FOLDER``}; all have to hold."""
ReadWith = Mapping[str, Condition | Sequence[Condition]]
"""{setting: the condition under which it is read, or several of which one has to hold}.

A class that never reads a setting, such as an inherited one, or ``part.setting`` of one of its
parts, declares it with no condition: ``[]``."""


def declared_by(target: Callable[..., Any]) -> dict[str, Sequence[Condition]]:
    """Return {setting: the conditions of which one has to hold} of a class and its bases."""
    bases = reversed(target.__mro__) if isinstance(target, type) else ()
    every: dict[str, Any] = {}
    for base in bases:
        every |= vars(base).get("read_with", {})
    return {
        name: [conditions] if isinstance(conditions, Mapping) else conditions
        for name, conditions in every.items()
    }


def find_unread(
    target: Callable[..., Any], node: Mapping[str, Any], tested: Mapping[str, Any] | None = None
) -> dict[str, Sequence[Condition]]:
    """Return {setting that the class does not read: the conditions of which one has to hold}.

    Args:
        node: its settings; those that are missing have their defaults.
        tested: {``MODEL``, ``TRAINED``, ...: what is known of the model to evaluate}.

    >>> class Questions:
    ...     read_with = {"seed": {"order": ("shuffled", "reversed")}}
    ...     def __init__(self, order="given", seed=0): pass
    >>> find_unread(Questions, {"seed": 3})
    {'seed': [{'order': ('shuffled', 'reversed')}]}
    >>> find_unread(Questions, {"seed": 3, "order": "shuffled"})
    {}
    """
    declared = declared_by(target)
    if not declared:
        return {}
    usual = {
        name: parameter.default
        for name, parameter in signature_of(target).items()
        if parameter.default is not inspect.Parameter.empty
    }
    values = {**usual, **node, **(tested or {})}
    return {
        name: conditions
        for name, conditions in declared.items()
        if not any(holds(condition, values) for condition in conditions)
    }


def holds(condition: Condition, values: Mapping[str, Any]) -> bool:
    """Say whether a condition holds for the settings of a class; missing ones count as null.

    >>> holds({"kinds": ("synonym",)}, {"kinds": ["frame", "synonym"]})  # of a list one value
    True
    """
    return all(_fits(name, wanted, values) for name, wanted in condition.items())


def _fits(name: str, wanted: Sequence[Any] | str, values: Mapping[str, Any]) -> bool:
    if name.startswith("@") and name not in values:
        return True
    value = values.get(name)
    if wanted == GIVEN:
        return bool(value)
    if wanted == FOLDER:
        return _names_folder(value)
    if isinstance(value, list | tuple):
        return any(item in wanted for item in value)
    return value in wanted


def _names_folder(value: Any) -> bool:
    if isinstance(value, str):
        return not (is_world(value) or is_questions(value))
    inside = value.values() if isinstance(value, Mapping) else value or ()
    return any(_names_folder(item) for item in inside)


def describe_conditions(conditions: Sequence[Condition], prefix: str = "") -> str:
    """Return conditions as they are typed.

    Args:
        prefix: the node of the settings, with its dot.

    >>> describe_conditions([{"protocol": ("write",), "rationale": GIVEN}], "benchmark.")
    'benchmark.protocol=write and benchmark.rationale=...'
    >>> describe_conditions([{"data": FOLDER, TRAINED: (True,)}, {MODEL: ("Answerer",)}])
    'data=FOLDER and finished runs (name=..., arm=..., runs=...), or a model that provides Answerer'
    """
    if not conditions:
        return "no setting of this part"
    return ", or ".join(
        " and ".join(_describe(name, wanted, prefix) for name, wanted in condition.items())
        for condition in conditions
    )


def _describe(name: str, wanted: Sequence[Any] | str, prefix: str) -> str:
    if name == MODEL:
        return f"a model that provides {' or '.join(wanted)}"
    if name in _TESTED:
        return " or ".join(_TESTED[name][value] for value in wanted)
    if wanted in (GIVEN, FOLDER):
        return f"{prefix}{name}={'...' if wanted == GIVEN else FOLDER}"
    return " or ".join(f"{prefix}{name}={write_value(value)}" for value in wanted)


_TESTED: Mapping[str, Mapping[Any, str]] = {
    TRAINED: {True: "finished runs (name=..., arm=..., runs=...)"},
    WORLD: {
        True: "data in the embedded world (data=shapescapes)",
        False: "data outside the embedded world (data=folder)",
    },
    LEARNT: {
        "captions": "runs that learnt from captions",
        "hypotheses": "runs that learnt from labelled hypotheses",
        "questions": "runs that learnt from questions",
        "labels": "runs that learnt the classes of images",
    },
}
