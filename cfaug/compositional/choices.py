"""Items of one image and several captions, some of which are true: read from a source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cfaug.core.errors import UserError
from cfaug.core.messages import say
from cfaug.data.index import Index
from cfaug.stats.caption_choice import ABSENT, FALSE, TRUE

LABELS = {"true": TRUE, "false": FALSE}
"""A member's labels, and their meaning for its caption."""

NAMED = 3
"""Items that a message names."""


@dataclass(frozen=True)
class Choices:
    """Items, in the order of the source.

    Attributes:
        first: the row of each item's first member, which shows the item's image, int64 (items,).
        texts: the captions of each item.
        truth: ``TRUE``, ``FALSE`` or ``ABSENT``, int8 (items, captions).
    """

    first: np.ndarray
    texts: Sequence[tuple[str, ...]]
    truth: np.ndarray


def read_choices(benchmark: str, index: Index, rows: np.ndarray | None) -> Choices:
    """Return the items of a source: its sets, whose members are labelled "true" or "false".

    An item with a false caption equal to a true one has no answer: it is left out with a message.

    Args:
        benchmark: the benchmark's name, for messages.
        index: the source.
        rows: the rows to use, of whole sets; ``None`` for all.

    Raises:
        UserError: if a set has several images, a label is invalid, a set lacks a true or a false
            caption, or no item is left.
    """
    chosen = np.arange(len(index)) if rows is None else np.sort(rows)
    starts = np.flatnonzero(np.diff(np.asarray(index.sets)[chosen], prepend=-1))
    items = [_read_item(benchmark, index, own) for own in np.split(chosen, starts[1:])]
    kept = [(row, own) for row, own in items if not _has_no_answer(own)]
    if len(kept) < len(items):
        unclear = [index.key(row) for row, own in items if _has_no_answer(own)]
        more = ", ..." if len(unclear) > NAMED else ""
        say(
            f"{benchmark}: {len(unclear)} of {len(items)} items are left out because a true and a "
            f"false caption are equal: {', '.join(unclear[:NAMED])}{more}"
        )
    if not kept:
        raise UserError(f"{benchmark}: {index.source} has no item to ask about")
    texts = [tuple(text for text, _ in own) for _, own in kept]
    truth = np.full((len(kept), max(map(len, texts))), ABSENT, np.int8)
    for item, (_, own) in enumerate(kept):
        truth[item, : len(own)] = [value for _, value in own]
    return Choices(np.array([row for row, _ in kept]), texts, truth)


def _read_item(benchmark: str, index: Index, rows: np.ndarray) -> tuple[int, list[tuple[str, int]]]:
    first = int(rows[0])
    where = f"{benchmark}: {index.key(first)} of {index.source}"
    if len(np.unique(np.asarray(index.images)[rows])) > 1:
        raise UserError(
            f"{where} has several images: benchmark=choice asks which caption fits one image, and "
            "benchmark=pairs asks about two images with two captions"
        )
    found = []
    for row in rows.tolist():
        label = index.label(row)
        if label not in LABELS:
            raise UserError(
                f"{where} has a caption with the label {label!r}: it should be 'true' or 'false'"
            )
        found.append((index.text(row), LABELS[label]))
    for name, value in LABELS.items():
        if value not in (own for _, own in found):
            raise UserError(f"{where} has no caption with the label {name!r}")
    return first, found


def _has_no_answer(item: Sequence[tuple[str, int]]) -> bool:
    true, false = ({text for text, own in item if own == value} for value in (TRUE, FALSE))
    return not true.isdisjoint(false)
