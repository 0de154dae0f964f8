"""``gallery.html``: browse counterfactual sets in one file that opens anywhere, offline.

Pictures are small copies inside the page; the page's script draws one screenful at a time, so
thousands of sets filter at once. Nothing in a caption is ever read as markup: the script sets text.
"""

from __future__ import annotations

import hashlib
import heapq
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfaug.core.errors import UserError
from cfaug.core.pixels import decode_image
from cfaug.core.types import CounterfactualSet
from cfaug.report.caption_diff import mark_changes
from cfaug.report.page import render, script_data, small_picture, write_page

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
        title: title of the page.
        limit: most sets to show. If there are more, a random sample that depends only on the keys
            is shown, in their order; ``None`` shows all.

    Raises:
        UserError: naming the set and image, if an image cannot be decoded; if there is no set, or
            the limit is below 1.
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


def _without_images(one: CounterfactualSet) -> _Chosen:
    names = {member.image_name: None for member in one.members[:MEMBERS]}
    pictures = {name: _picture(one, name) for name in names}
    return _Chosen(replace(one, images=dict.fromkeys(one.images, b"")), pictures)


def _picture(one: CounterfactualSet, name: str) -> ShownPicture:
    return show_picture(one.images[name], f"set {one.key}, image {name}", THUMBNAIL)


def show_picture(encoded: bytes, what: str, side: int) -> ShownPicture:
    """Return a small copy of an image.

    Args:
        encoded: encoded bytes of the image.
        what: name of the image in error messages.
        side: longest side of the copy, in pixels.

    Raises:
        UserError: if the image cannot be decoded.
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

    def _member(self, one: CounterfactualSet, i: int) -> dict[str, Any]:
        """Return c caption in pieces, e the edit in words, t the kind's number."""
        edit = one.members[i].edit
        text = f"{edit.before} → {edit.after}" if edit and (edit.before or edit.after) else ""
        kind = -1 if edit is None else _place(self.kinds, edit.kind)
        return {"c": mark_changes(one.members, i), "e": text, "t": kind}

    def _numbers(self, one: CounterfactualSet) -> list[float | None]:
        found: dict[str, Any] = {}
        for member in reversed(one.members):
            found |= {name: member.extra[name] for name in DRAW if name in member.extra}
        numbers: list[float | None] = [None] * len(self.fields)
        for name, value in (dict(one.scores) | found).items():
            if isinstance(value, int | float) and math.isfinite(value):
                place = _place(self.fields, name)
                numbers += [None] * (place + 1 - len(numbers))
                numbers[place] = float(f"{value:.6g}")
        return numbers


def _place(names: list[str], name: str) -> int:
    if name not in names:
        names.append(name)
    return names.index(name)
