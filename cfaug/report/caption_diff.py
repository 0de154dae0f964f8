"""Mark the words of a caption that an edit changed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from cfaug.core.caption_difference import caption_changes
from cfaug.core.types import Member

Span = tuple[int, int]


def mark_changes(members: Sequence[Member], i: int) -> list[str]:
    """Return a caption in pieces, with the changed words at odd positions.

    The words are those of the edit where the caption differs from the unedited one; if the caption
    lacks them, all differences are marked. In the unedited caption, the words that any edit
    replaced are marked. Captions of one image are not edits of each other.

    >>> from cfaug.core.types import Edit
    >>> cat = Member("a cat and a cat", "0", "s")
    >>> dog = Member("a cat and a dog", "1", "s", Edit("noun", "cat", "dog"))
    >>> mark_changes((cat, dog), 0), mark_changes((cat, dog), 1)
    (['a cat and a ', 'cat', ''], ['a cat and a ', 'dog', ''])
    """
    text, base = members[i].text, members[0]
    others = members[1:] if i == 0 else members[:1]
    spans: set[Span] = set()
    for other in others:
        edited = other if i == 0 else members[i]
        if edited.edit is None and edited.image_name == base.image_name:
            continue
        words = None
        if edited.edit is not None:
            words = (edited.edit.before if i == 0 else edited.edit.after).strip()
        spans.update(_changed(text, other.text, words))
    pieces, end = [], 0
    for start, stop in _merge(spans):
        pieces += [text[end:start], text[start:stop]]
        end = stop
    return [*pieces, text[end:]]


def _changed(text: str, other: str, words: str | None) -> list[Span]:
    differs = [c.after for c in caption_changes(other, text) if c.after[0] < c.after[1]]
    if words:
        found = [m.span() for m in re.finditer(_as_words(words), text, re.IGNORECASE)]
        at_edit = [s for s in found if any(s[0] < d[1] and d[0] < s[1] for d in differs)]
        if at_edit or found:
            return at_edit or found[:1]
    return differs


def _as_words(words: str) -> str:
    left, right = (r"\b" if re.match(r"\w", end) else "" for end in (words[0], words[-1]))
    return left + r"\s+".join(map(re.escape, words.split())) + right


def _merge(spans: Iterable[Span]) -> list[Span]:
    """Return spans in order, touching ones merged.

    >>> _merge([(4, 6), (0, 3), (5, 9)])
    [(0, 3), (4, 9)]
    """
    found: list[Span] = []
    for start, stop in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(stop, found[-1][1]))
        else:
            found.append((start, stop))
    return found
