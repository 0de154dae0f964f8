"""Which words of a caption an edit changed."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator

from cfaug.types import Member

TOKENS = re.compile(r"\w+|[^\w\s]")

Span = tuple[int, int]


def marked(members: tuple[Member, ...], i: int) -> list[str]:
    """Return a caption in pieces, changed words at the odd places.

    The words are those of the edit, where they stand at what differs from the unedited caption; if
    the caption does not have them, whatever differs. In the unedited caption, what any edit
    replaced is marked. Captions of one image are not edits of each other.

    >>> from cfaug.types import Edit
    >>> cat = Member("a cat and a cat", "0", "s")
    >>> dog = Member("a cat and a dog", "1", "s", Edit("noun", "cat", "dog"))
    >>> marked((cat, dog), 0), marked((cat, dog), 1)
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
    for start, stop in _joined(spans):
        pieces += [text[end:start], text[start:stop]]
        end = stop
    return [*pieces, text[end:]]


def _changed(text: str, other: str, words: str | None) -> list[Span]:
    differs = list(_differences(text, other))
    if words:
        found = [m.span() for m in re.finditer(_as_words(words), text, re.IGNORECASE)]
        at_edit = [s for s in found if any(s[0] < d[1] and d[0] < s[1] for d in differs)]
        if at_edit or found:
            return at_edit or found[:1]
    return differs


def _as_words(words: str) -> str:
    left, right = (r"\b" if re.match(r"\w", end) else "" for end in (words[0], words[-1]))
    return left + r"\s+".join(map(re.escape, words.split())) + right


def _differences(text: str, other: str) -> Iterator[Span]:
    tokens = list(TOKENS.finditer(text))
    a, b = [m.group().lower() for m in TOKENS.finditer(other)], [m.group().lower() for m in tokens]
    for kind, _, _, start, end in difflib.SequenceMatcher(None, a, b, autojunk=False).get_opcodes():
        if kind != "equal" and start < end:
            yield tokens[start].start(), tokens[end - 1].end()


def _joined(spans: Iterable[Span]) -> list[Span]:
    """Return spans in order, those that touch as one.

    >>> _joined([(4, 6), (0, 3), (5, 9)])
    [(0, 3), (4, 9)]
    """
    found: list[Span] = []
    for start, stop in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(stop, found[-1][1]))
        else:
            found.append((start, stop))
    return found
