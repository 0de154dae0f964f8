"""Count the items of a compositional test, and compare with the number in the released files."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from cfaug.data.sources.compositional.counts import RELEASED
from cfaug.data.sources.compositional.item import CATEGORY

if TYPE_CHECKING:
    from cfaug.data.index import Index


def count_items(index: Index) -> Counter[str]:
    """Return the number of items in each category; "" for items without one."""
    if CATEGORY not in index.extra_names:
        return Counter({"": int(index.sets[-1]) + 1})
    of_first = index.extra(CATEGORY).to_pylist()
    sets = index.sets.tolist()
    firsts = [row for row, one in enumerate(sets) if row == 0 or sets[row - 1] != one]
    return Counter(of_first[row] or "" for row in firsts)


def describe_count(index: Index) -> str:
    """Say in a sentence how many items a source has, and the released number.

    Args:
        index: the index of a compositional test.

    Returns:
        The sentence; "" if the released number is unknown, or equal and without a remark.
    """
    known = RELEASED.get(index.kind)
    if known is None:
        return ""
    found = count_items(index)
    total = sum(found.values())
    form = index.reading.form if index.reading is not None else index.kind
    if total == known.items and not known.remark:
        return ""
    said = f"{form}: {total:,} items"
    if total != known.items:
        said += f", where the released files have {known.items:,}"
        differing = [
            f"{name} {found[name]:,} for {count:,}"
            for name, count in known.by_category.items()
            if found[name] != count and set(found) != {""}
        ]
        said += f" ({', '.join(differing)})" if differing else ""
    return f"{said}; {known.remark}" if known.remark else said
