"""Settings that a class reads only beside others, as the class itself declares.

A class names them in ``read_with``::

    read_with: ClassVar[ReadWith] = {
        "order_seed": {"option_order": ("shuffled",)},
        "max_new_tokens": {"protocol": ("write",)},
    }

``cfaug.run.unread`` refuses such a setting on the command line where nothing reads it, and
``--help`` lists the conditions.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cfaug.validation import write_value

GIVEN = "given"
"""The condition that a setting has any value but null, false, 0 and an empty text or list."""

Condition = Mapping[str, Sequence[Any] | str]
"""{setting of the same class: its values, or ``GIVEN``}; all have to hold."""

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
    return {name: [one] if isinstance(one, Mapping) else one for name, one in every.items()}


def find_unread(
    target: Callable[..., Any], node: Mapping[str, Any]
) -> dict[str, Sequence[Condition]]:
    """Return {setting that the class does not read: the conditions of which one has to hold}.

    Args:
        target: the class.
        node: its settings; those that are missing have their defaults.

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
        name: one.default
        for name, one in inspect.signature(target).parameters.items()
        if one.default is not inspect.Parameter.empty
    }
    values = {**usual, **node}
    return {
        name: conditions
        for name, conditions in declared.items()
        if not any(holds(one, values) for one in conditions)
    }


def holds(condition: Condition, values: Mapping[str, Any]) -> bool:
    """Say whether a condition holds for the settings of a class; missing ones count as null.

    >>> holds({"kinds": ("synonym",)}, {"kinds": ["frame", "synonym"]})  # of a list one value
    True
    """
    return all(
        bool(values.get(name)) if wanted == GIVEN else _has(values.get(name), wanted)
        for name, wanted in condition.items()
    )


def _has(value: Any, wanted: Sequence[Any]) -> bool:
    if isinstance(value, list | tuple):
        return any(one in wanted for one in value)
    return value in wanted


def describe_conditions(conditions: Sequence[Condition], prefix: str = "") -> str:
    """Return conditions as they are typed.

    Args:
        conditions: the conditions, of which one has to hold.
        prefix: the node of the settings, with its dot.

    >>> describe_conditions([{"protocol": ("write",), "rationale": GIVEN}], "benchmark.")
    'benchmark.protocol=write and benchmark.rationale=...'
    """
    if not conditions:
        return "no setting of this part"
    return ", or ".join(
        " and ".join(_describe(prefix + name, wanted) for name, wanted in one.items())
        for one in conditions
    )


def _describe(name: str, wanted: Sequence[Any] | str) -> str:
    if wanted == GIVEN:
        return f"{name}=..."
    return " or ".join(f"{name}={write_value(value)}" for value in wanted)
