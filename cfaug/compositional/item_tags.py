"""A source's tags of test items: their category, and further tags to report by."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from cfaug.core.errors import UserError
from cfaug.core.messages import say
from cfaug.core.types import CLUSTER, ITEM
from cfaug.data.sources.compositional.item import CATEGORY

if TYPE_CHECKING:
    from cfaug.data.index import Index


Tags = Mapping[str, Sequence[tuple[str, ...]]]
"""{tag: the values of each item}: usually one value, () if the source gives none."""


def read_tags(benchmark: str, index: Index, first: np.ndarray, names: Sequence[str]) -> Tags:
    """Return the category of items, where there is one, and further tags.

    A tag is an extra column of an item's first member: a text, or a list of texts.

    Args:
        benchmark: the benchmark's name, for messages.
        index: the source.
        first: the row of the first member of each item, int64 (items,).
        names: names of further tags, each an extra column of the source.

    Raises:
        UserError: if the source has no such tag, or a value is neither a text nor a number.
    """
    wanted = dict.fromkeys([*([CATEGORY] if CATEGORY in index.extra_names else []), *names])
    found = {name: read_tag(benchmark, index, first, name) for name in wanted}
    without = sum(not own for own in found.get(CATEGORY, []))
    if without:
        say(f"{benchmark}: {without} of {len(first)} items have no category, and count in none")
    return found


def check_tags(tags: Collection[str], metrics: Collection[str], *beginnings: str) -> None:
    """Refuse tags with the name of another column of the items or another part of a test.

    Args:
        tags: names of the tags.
        metrics: names of the benchmark's metrics.
        beginnings: prefixes of the names of the benchmark's other columns, such as ``text``.

    Raises:
        UserError: naming the tag.
    """
    for name in tags:
        if name in (ITEM, CLUSTER, "group", "image", *metrics) or name.startswith(beginnings):
            raise UserError(
                f"benchmark.tags: {name!r} is a name that the benchmark uses itself: rename the "
                "column of the source"
            )


def read_tag(benchmark: str, index: Index, rows: np.ndarray, name: str) -> list[tuple[str, ...]]:
    """Return the values of one tag at some rows.

    Args:
        benchmark: the benchmark's name, for messages.
        index: the source.
        rows: rows of the source, integers (rows,).
        name: the tag, an extra column of the source.

    Raises:
        UserError: if the source has no such tag, or a value is neither a text nor a number.
    """
    column = index.extra_values(name, rows)
    return [
        _read_values(value, f"{benchmark}: {name} of {index.key(int(row))}")
        for value, row in zip(column, rows, strict=True)
    ]


def only(values: Sequence[tuple[str, ...]]) -> list[str | None]:
    """Return a column of items: several values joined by commas, ``None`` for no value.

    >>> only([("add",), (), ("hard", "visual")])
    ['add', None, 'hard, visual']
    """
    return [", ".join(own) if own else None for own in values]


def parts_by(tags: Tags) -> Iterator[tuple[dict[str, str], np.ndarray]]:
    """Yield an outcome's ``by`` and a mask of its items, bool (items,), for every value of a tag.

    >>> [(by, own.tolist()) for by, own in parts_by({"tag": [("a",), ("b", "a")]})]
    [({'tag': 'a'}, [True, True]), ({'tag': 'b'}, [False, True])]
    """
    for name, values in tags.items():
        for value in sorted({one for own in values for one in own}):
            yield {name: value}, np.array([value in own for own in values])


def _read_values(value: object, where: str) -> tuple[str, ...]:
    given = value if isinstance(value, list) else [value]
    if not all(one is None or isinstance(one, str | int | float) for one in given):
        raise UserError(f"{where} should be a text or a list of texts, not {value!r:.100}")
    texts = (str(one).strip() for one in given if one is not None)
    return tuple(dict.fromkeys(text for text in texts if text))
