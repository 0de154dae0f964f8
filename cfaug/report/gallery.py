"""``gallery.html``: browse counterfactual sets in one file that opens anywhere, offline.

Pictures are small copies inside the page; the page's script draws one screenful at a time, so
thousands of sets filter at once. Nothing in a caption is ever read as markup: the script sets text.
"""

from __future__ import annotations

import base64
import hashlib
import heapq
import io
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup, escape
from numpy.typing import NDArray
from PIL import Image

from cfaug.core.errors import UserError
from cfaug.core.pixels import decode_image
from cfaug.core.types import CounterfactualSet, Member
from cfaug.core.words import caption_changes
from cfaug.report.page import GRID, render, script_data, small_picture, write_page

THUMBNAIL = 192
"""Longest side of a picture: 2,000 pairs at 192 px make a page of about 30 MB."""
DRAW = ("p", "cfg")
"""Numbers of a member's ``extra`` to filter and sort by, besides the set's scores."""
MEMBERS = 100
"""Members of a set that are shown: SocialCounterfactuals has up to 84."""
LOW_RANGE = 0.6
"""Contrast is stretched initially if the middle 98 % of the values span less than this."""


@dataclass(frozen=True)
class Contrast:
    """The range of the pictures' luminance, in [0, 1]: 1st and 99th percentile."""

    low: float
    high: float

    @property
    def on(self) -> bool:
        """Whether the contrast is low enough to be stretched initially."""
        return self.high - self.low < LOW_RANGE

    @property
    def filter(self) -> str:
        """Return the CSS that maps low to 0 and high to 1.

        CSS has contrast(c): c x + (1 - c) / 2, and brightness(b): b x. Brightness comes first, so
        that nothing is clipped in between.
        """
        slope = 1 / max(self.high - self.low, 1 / 64)
        contrast = 1 + 2 * self.low * slope
        return f"brightness({slope / contrast:.4f}) contrast({contrast:.4f})"


def write_gallery(
    sets: Iterable[CounterfactualSet], file: Path, *, title: str, limit: int | None = 2000
) -> Path:
    """Write the page and return its path; the same sets give the same bytes.

    Args:
        sets: the sets to show, read one at a time; at most ``limit`` are held in memory.
        file: destination; its folder is created if missing.
        limit: most sets to show. If there are more, a random sample that depends only on the keys
            is shown, in their order; ``None`` shows all.
    """
    chosen, count = _sample(sets, limit)
    if not chosen:
        raise UserError(f"there is no set to show in {file}")
    page = _GalleryData()
    shown = [page.entry(one) for one in chosen]
    html = render(
        "gallery.html",
        title=title,
        subtitle=_subtitle(len(chosen), count),
        contrast=contrast(picture for one in chosen for picture in one.pictures.values()),
        data=script_data(
            {"fields": page.fields, "kinds": page.kinds, "classes": page.classes, "sets": shown}
        ),
    )
    return write_page(file, html)


@dataclass(frozen=True)
class ShownPicture:
    """A small copy of an image for the script, and its histogram of luminance."""

    about: Mapping[str, Any]
    luminance: NDArray[np.int64]


@dataclass(frozen=True)
class _Chosen:
    """A set without its images, and the small pictures made from them."""

    one: CounterfactualSet
    pictures: Mapping[str, ShownPicture]


def _sample(sets: Iterable[CounterfactualSet], limit: int | None) -> tuple[list[_Chosen], int]:
    """Return the sets with the smallest hashes of their keys, in order, and how many there were."""
    if limit is not None and limit < 1:
        raise UserError(f"a gallery of {limit} sets cannot be shown; ask for 1 or more")
    heap: list[tuple[int, int, _Chosen]] = []
    count = 0
    for count, one in enumerate(sets, 1):
        place = (-_shuffle_key(one.key), -count)
        if limit is None or len(heap) < limit:
            heapq.heappush(heap, (*place, _without_images(one)))
        elif place > heap[0][:2]:
            heapq.heapreplace(heap, (*place, _without_images(one)))
    return [chosen for _, _, chosen in sorted(heap, key=lambda place: -place[1])], count


def _without_images(counterfactual: CounterfactualSet) -> _Chosen:
    names = {member.image_name: None for member in counterfactual.members[:MEMBERS]}
    pictures = {name: _picture(counterfactual, name) for name in names}
    return _Chosen(
        replace(counterfactual, images=dict.fromkeys(counterfactual.images, b"")), pictures
    )


def _picture(counterfactual: CounterfactualSet, name: str) -> ShownPicture:
    return show_picture(
        counterfactual.images[name], f"set {counterfactual.key}, image {name}", THUMBNAIL
    )


def show_picture(encoded: bytes, what: str, side: int) -> ShownPicture:
    """Return a small copy of an image.

    Args:
        encoded: encoded bytes of the image.
        what: name of the image in error messages.
        side: longest side of the copy, in pixels.
    """
    image = decode_image(encoded, what)
    about = small_picture(image, side)
    return ShownPicture(about, np.array(image.convert("L").histogram(), np.int64))


def contrast(pictures: Iterable[ShownPicture]) -> Contrast:
    """Return the common range of all pictures, so that they stay comparable when stretched."""
    total = sum((picture.luminance for picture in pictures), np.zeros(256, np.int64))
    shares = np.cumsum(total) / max(1, total.sum())
    low, high = (int(np.searchsorted(shares, share)) for share in (0.01, 0.99))
    return Contrast(low / 255, high / 255)


def _shuffle_key(key: str) -> int:
    """Return a number in [0, 2**32) that gives sets a random but fixed order."""
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=4).digest(), "big")


def _subtitle(shown: int, count: int) -> str:
    if shown == count:
        return f"{count:,} sets"
    return f"{shown:,} of {count:,} sets, drawn at random"


class _GalleryData:
    """Turns sets into data for the script, and numbers the names they share."""

    def __init__(self) -> None:
        self.fields: list[str] = []
        self.kinds: list[str] = []
        self.classes: list[str] = []

    def entry(self, chosen: _Chosen) -> dict[str, Any]:
        """Return a set: k key, r shuffle key, n numbers by field, l classes, m members, ...

        s is the seed, x the number of members left out.
        """
        one = chosen.one
        members = one.members[:MEMBERS]
        pictures = [chosen.pictures[member.image_name].about for member in members]
        return {
            "k": one.key,
            "r": _shuffle_key(one.key),
            "n": self._numbers(one),
            "s": next((str(m.extra["seed"]) for m in members if "seed" in m.extra), ""),
            "m": [self._member(one, i) | dict(picture) for i, picture in enumerate(pictures)],
            "x": len(one.members) - len(members),
            "l": sorted({_place(self.classes, m.label) for m in members if m.label is not None}),
        }

    def _member(self, counterfactual: CounterfactualSet, i: int) -> dict[str, Any]:
        """Return c caption in pieces, e the edit in words, t the kind's number."""
        edit = counterfactual.members[i].edit
        text = f"{edit.before} → {edit.after}" if edit and (edit.before or edit.after) else ""
        kind = -1 if edit is None else _place(self.kinds, edit.kind)
        return {"c": mark_changes(counterfactual.members, i), "e": text, "t": kind}

    def _numbers(self, counterfactual: CounterfactualSet) -> list[float | None]:
        found: dict[str, Any] = {}
        for member in reversed(counterfactual.members):
            found |= {name: member.extra[name] for name in DRAW if name in member.extra}
        numbers: list[float | None] = [None] * len(self.fields)
        for name, value in (dict(counterfactual.scores) | found).items():
            if isinstance(value, int | float) and math.isfinite(value):
                place = _place(self.fields, name)
                numbers += [None] * (place + 1 - len(numbers))
                numbers[place] = float(f"{value:.6g}")
        return numbers


def _place(names: list[str], name: str) -> int:
    if name not in names:
        names.append(name)
    return names.index(name)


# Counterfactual sets for people: members side by side, with changes marked.

SAMPLE_PIXELS = 320
"""Longest side of an embedded picture: a page of 512 px pairs would be tens of megabytes."""
CHANGED = 24
"""A pixel has changed if a channel differs by more than this (of 255): above JPEG's noise."""
SAMPLE_MEMBERS = 4
"""Most members of a set that are shown; a sentence says how many more there are."""


@dataclass(frozen=True)
class Shown:
    """One member, ready for the page. ``share`` is the part of the pixels that changed."""

    picture: str
    caption: Markup
    edit: str
    label: str | None
    outline: Markup | None
    share: str


@dataclass(frozen=True)
class Sample:
    """One set, ready for the page."""

    key: str
    members: tuple[Shown, ...]
    left_out: int
    pixelated: bool


def show(example: CounterfactualSet) -> Sample:
    """Prepare a set for the page; the other members are compared with the first."""
    members = example.members[:SAMPLE_MEMBERS]
    pictures = [
        decode_image(example.images[m.image_name], f"set {example.key}, image {m.image_name}")
        for m in members
    ]
    first = pictures[0]
    shown = []
    for i, (member, picture) in enumerate(zip(members, pictures, strict=True)):
        # The first is compared with the second, so that both sides of an edit are marked.
        other = (1 if len(members) > 1 else 0) if i == 0 else 0
        edited = _is_edit(member, members[other], members[0])
        mask = changed_pixels(pictures[other], picture) if edited else None
        shown.append(
            Shown(
                picture=_data_uri(picture),
                caption=_with_marks(mark_changes(members, i) if edited else [member.text]),
                edit=_edit_text(member),
                label=member.label,
                outline=None if mask is None or not mask.any() else outline(mask),
                share=_share(mask, picture, first) if edited and i else "",
            )
        )  # fmt: skip
    return Sample(
        example.key, tuple(shown), len(example.members) - len(members), max(first.size) <= GRID
    )


def _is_edit(member: Member, other: Member, first: Member) -> bool:
    """Captions of one photo are not edits of each other; members with their own image are."""
    if member is other:
        return False
    return bool(member.edit or other.edit) or (
        member.image_name != other.image_name and first.edit is None
    )


def _edit_text(member: Member) -> str:
    edit = member.edit
    return "" if edit is None else f"{edit.kind}: {edit.before} → {edit.after}"


def _share(mask: NDArray[np.bool_] | None, picture: Image.Image, first: Image.Image) -> str:
    if mask is None:
        return f"sizes differ: {first.width}x{first.height}, {picture.width}x{picture.height}"
    return f"{100 * mask.mean():.0f} % of the pixels changed"


def _with_marks(pieces: Sequence[str]) -> Markup:
    """Join pieces into one text, marking those at odd places.

    >>> _with_marks(["a red ", "<ball>", ""])
    Markup('a red <mark>&lt;ball&gt;</mark>')
    """
    return Markup("").join(
        Markup("<mark>{}</mark>").format(piece) if i % 2 else escape(piece)
        for i, piece in enumerate(pieces)
    )


def changed_pixels(first: Image.Image, second: Image.Image) -> NDArray[np.bool_] | None:
    """Return where two RGB images differ, bool (height, width); ``None`` if their sizes do."""
    if first.size != second.size:
        return None
    a, b = (np.asarray(picture, dtype=np.int16) for picture in (first, second))
    return np.asarray(np.abs(a - b).max(axis=-1) > CHANGED)


def outline(mask: NDArray[np.bool_]) -> Markup:
    """Return the border of a mask as an SVG overlay for the picture.

    Drawn twice, dark under bright, so that it is visible on any picture.
    """
    cells = _coarse(mask)
    height, width = cells.shape
    edges = " ".join([*_edges(cells, "h"), *_edges(cells.T, "v")])
    return Markup(
        '<svg class="outline" viewBox="0 0 {} {}" preserveAspectRatio="none" aria-hidden="true">'
        '<path class="under" d="{d}"/><path class="over" d="{d}"/></svg>'
    ).format(width, height, d=edges)


def _coarse(mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
    height, width = mask.shape
    factor = -(-max(height, width) // GRID)
    rows, columns = (np.arange(0, n, factor) for n in (height, width))
    return np.logical_or.reduceat(np.logical_or.reduceat(mask, rows, axis=0), columns, axis=1)


def _edges(cells: NDArray[np.bool_], direction: str) -> list[str]:
    """Return a path for every run of border between rows; transposed cells give columns."""
    padded = np.pad(cells, ((1, 1), (0, 0)))
    border = padded[1:] != padded[:-1]
    paths = []
    for y, line in enumerate(border):
        ends = np.flatnonzero(np.diff(np.pad(line.astype(np.int8), 1)))
        for start, end in zip(ends[::2].tolist(), ends[1::2].tolist(), strict=True):
            at = f"{start} {y}" if direction == "h" else f"{y} {start}"
            paths.append(f"M{at}{direction}{end - start}")
    return paths


def _data_uri(picture: Image.Image) -> str:
    small = picture.copy()
    small.thumbnail((SAMPLE_PIXELS, SAMPLE_PIXELS))
    # A drawing of a few pixels must stay exact; a photograph should stay small.
    kind = "PNG" if max(small.size) <= GRID else "JPEG"
    file = io.BytesIO()
    small.save(file, kind, quality=88) if kind == "JPEG" else small.save(file, kind)
    return f"data:image/{kind.lower()};base64,{base64.b64encode(file.getvalue()).decode()}"


def show_all(examples: Sequence[CounterfactualSet]) -> list[Sample]:
    """Prepare several sets, in order."""
    return [show(example) for example in examples]


# Mark the words of a caption that an edit changed.

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
