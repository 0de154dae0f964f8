"""Find mistakes in a set of an attribute grid."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import product
from math import prod


def find_mistake(
    members: Sequence[Mapping[str, str]], values: Mapping[str, Sequence[str]]
) -> str | None:
    """Say why a set does not have one member per combination of its grid; ``None`` if it does.

    Args:
        members: each member's attributes, {name: value}.
        values: the grid's attributes, {name: its values}.
    """
    for member in members:
        if set(member) != set(values):
            there, wanted = ", ".join(member), ", ".join(values)
            return f"a member has the attributes {there}; its grid has {wanted}"
    found = Counter(tuple(member[name] for name in values) for member in members)
    known = [set(some) for some in values.values()]
    for one, count in found.items():
        if any(value not in some for value, some in zip(one, known, strict=True)):
            return f"{' '.join(one)!r} is outside its grid"
        if count > 1:
            return f"{' '.join(one)!r} is duplicated: it has {count} images"
    every = prod(map(len, values.values()))
    if len(found) == every:
        return None
    # For a grid of millions of combinations, stop after the first missing one.
    such = " ".join(next(one for one in product(*values.values()) if one not in found))
    return f"incomplete: {every - len(found):,} of {every:,} missing, such as {such!r}"
