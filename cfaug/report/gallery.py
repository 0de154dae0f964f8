"""``gallery.html``, and the common base of pages about models' answers: one file each, offline.

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
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar
from urllib.parse import quote

import numpy as np
from markupsafe import Markup, escape
from numpy.typing import NDArray
from PIL import Image

from cfaug.core.errors import UserError, say
from cfaug.core.pixels import decode_image
from cfaug.core.types import ITEM, CounterfactualSet, Member
from cfaug.data.captions import caption_changes
from cfaug.report.items import ModelItems, read_items
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
    sets: Iterable[CounterfactualSet],
    file: Path,
    *,
    title: str,
    limit: int | None = 2000,
    kind: str = "",
) -> Path:
    """Write the page and return its path; the same sets give the same bytes.

    Args:
        sets: the sets to show, read one at a time; at most ``limit`` are held in memory.
        limit: most sets to show. If there are more, a random sample that depends only on the keys
            is shown, in their order; ``None`` shows all.
        kind: the name of what the page is, as for ``write_page``.
    """
    if limit is not None and limit < 1:
        raise UserError(f"a gallery of {limit} sets cannot be shown; ask for 1 or more")
    # The sets with the smallest hashes of their keys, without their images, with the small pictures
    # made from them.
    heap: list[tuple[int, int, tuple[CounterfactualSet, dict[str, ShownPicture]]]] = []
    count = 0
    for count, counterfactual in enumerate(sets, 1):
        rank = (-_shuffle_key(counterfactual.key), -count)
        full = limit is not None and len(heap) == limit
        if full and rank <= heap[0][:2]:
            continue
        names = dict.fromkeys(member.image_name for member in counterfactual.members[:MEMBERS])
        pictures = {
            name: show_picture(
                counterfactual.images[name], f"set {counterfactual.key}, image {name}", THUMBNAIL
            )
            for name in names
        }
        bare = replace(counterfactual, images=dict.fromkeys(counterfactual.images, b""))
        if full:
            heapq.heapreplace(heap, (*rank, (bare, pictures)))
        else:
            heapq.heappush(heap, (*rank, (bare, pictures)))
    chosen = [entry for _, _, entry in sorted(heap, key=lambda ranked: -ranked[1])]
    if not chosen:
        raise UserError(f"there is no set to show in {file}")
    shown = f"{len(chosen):,} of {count:,} sets, drawn at random"
    places: Mapping[str, dict[str, int]] = {"fields": {}, "kinds": {}, "classes": {}}
    entries = [_entry(counterfactual, pictures, **places) for counterfactual, pictures in chosen]
    html = render(
        "gallery.html",
        title=title,
        subtitle=f"{count:,} sets" if len(chosen) == count else shown,
        contrast=contrast(picture for _, pictures in chosen for picture in pictures.values()),
        data=script_data(
            {name: [*numbers] for name, numbers in places.items()} | {"sets": entries}
        ),
    )
    return write_page(file, html, kind)


@dataclass(frozen=True)
class ShownPicture:
    """A small copy of an image for the script, and its histogram of luminance."""

    about: Mapping[str, Any]
    luminance: NDArray[np.int64]


def show_picture(encoded: bytes, subject: str, side: int) -> ShownPicture:
    """Return a small copy of an image.

    Args:
        side: longest side of the copy, in pixels.
    """
    image = decode_image(encoded, subject)
    about = small_picture(image, side)
    return ShownPicture(about, _histogram(image))


def _histogram(image: Image.Image) -> NDArray[np.int64]:
    return np.array(image.convert("L").histogram(), np.int64)


def contrast(pictures: Iterable[ShownPicture | Shown]) -> Contrast:
    """Return the common range of all pictures, so that they stay comparable when stretched."""
    total = sum((picture.luminance for picture in pictures), np.zeros(256, np.int64))
    if not total.any():
        return Contrast(0, 1)
    shares = np.cumsum(total) / total.sum()
    low, high = (int(np.searchsorted(shares, share)) for share in (0.01, 0.99))
    return Contrast(low / 255, high / 255)


def _shuffle_key(key: str) -> int:
    """Return a number in [0, 2**32) that gives sets a random but fixed order."""
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=4).digest(), "big")


def _entry(
    counterfactual: CounterfactualSet,
    pictures: Mapping[str, ShownPicture],
    fields: dict[str, int],
    kinds: dict[str, int],
    classes: dict[str, int],
) -> dict[str, Any]:
    """Return a set: k key, r shuffle key, n numbers by field, s seed, l classes, x left out.

    x counts members; m are its members: c caption in pieces, e the edit in words, t the kind's
    number. New names of numbers, kinds and classes are added, with their place.
    """
    members = counterfactual.members[:MEMBERS]
    entries = []
    for i, member in enumerate(members):
        edit = member.edit
        text = f"{edit.before} → {edit.after}" if edit and (edit.before or edit.after) else ""
        kind = -1 if edit is None else kinds.setdefault(edit.kind, len(kinds))
        about = {"c": mark_changes(counterfactual.members, i), "e": text, "t": kind}
        entries.append(about | dict(pictures[member.image_name].about))
    values: dict[str, Any] = dict(counterfactual.scores)
    for member in reversed(counterfactual.members):
        values |= {name: member.extra[name] for name in DRAW if name in member.extra}
    numbers: dict[int, float] = {}
    for name, value in values.items():
        if isinstance(value, int | float) and math.isfinite(value):
            numbers[fields.setdefault(name, len(fields))] = float(f"{value:.6g}")
    labels = {classes.setdefault(m.label, len(classes)) for m in members if m.label is not None}
    return {
        "k": counterfactual.key,
        "r": _shuffle_key(counterfactual.key),
        "n": [numbers.get(field) for field in range(len(fields))],
        "s": next((str(m.extra["seed"]) for m in members if "seed" in m.extra), ""),
        "m": entries,
        "x": len(counterfactual.members) - len(members),
        "l": sorted(labels),
    }


# Counterfactual sets for people: members side by side, with changes marked.

SAMPLE_PIXELS = 320
"""Longest side of an embedded picture: a page of 512 px pairs would be tens of megabytes."""
CHANGED = 24
"""A pixel has changed if a channel differs by more than this (of 255): above JPEG's noise."""
SAMPLE_MEMBERS = 4
"""Most members of a set that are shown; a sentence says how many more there are."""


@dataclass(frozen=True)
class Shown:
    """One member, ready for the page.

    Attributes:
        share: the part of the pixels that changed, in words.
        luminance: the histogram of its picture's luminance.
    """

    picture: str
    caption: Markup
    edit: str
    label: str | None
    outline: Markup | None
    share: str
    luminance: NDArray[np.int64]


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
        # Captions of one photo are not edits of each other; members with their own image are.
        beside = members[other]
        edited = member is not beside and bool(
            member.edit
            or beside.edit
            or (member.image_name != beside.image_name and members[0].edit is None)
        )
        mask = changed_pixels(pictures[other], picture) if edited else None
        share = ""
        if edited and i:
            share = f"sizes differ: {first.width}x{first.height}, {picture.width}x{picture.height}"
            if mask is not None:
                share = f"{100 * mask.mean():.0f} % of the pixels changed"
        small = picture.copy()
        small.thumbnail((SAMPLE_PIXELS, SAMPLE_PIXELS))
        # A drawing of a few pixels must stay exact; a photograph should stay small.
        kind = "PNG" if max(small.size) <= GRID else "JPEG"
        file = io.BytesIO()
        small.save(file, kind, quality=88) if kind == "JPEG" else small.save(file, kind)
        code = base64.b64encode(file.getvalue()).decode()
        edit = member.edit
        shown.append(
            Shown(
                picture=f"data:image/{kind.lower()};base64,{code}",
                caption=_with_marks(mark_changes(members, i) if edited else [member.text]),
                edit="" if edit is None else f"{edit.kind}: {edit.before} → {edit.after}",
                label=member.label,
                outline=None if mask is None or not mask.any() else outline(mask),
                share=share,
                luminance=_histogram(picture),
            )
        )
    return Sample(
        example.key, tuple(shown), len(example.members) - len(members), max(first.size) <= GRID
    )


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
    factor = -(-max(mask.shape) // GRID)
    rows, columns = (np.arange(0, n, factor) for n in mask.shape)
    cells = np.logical_or.reduceat(np.logical_or.reduceat(mask, rows, axis=0), columns, axis=1)
    height, width = cells.shape
    edges = " ".join([*_edges(cells, "h"), *_edges(cells.T, "v")])
    return Markup(
        '<svg class="outline" viewBox="0 0 {} {}" preserveAspectRatio="none" aria-hidden="true">'
        '<path class="under" d="{d}"/><path class="over" d="{d}"/></svg>'
    ).format(width, height, d=edges)


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
        differs = [c.after for c in caption_changes(other.text, text) if c.after[0] < c.after[1]]
        words = ""
        if edited.edit is not None:
            words = (edited.edit.before if i == 0 else edited.edit.after).strip()
        if words:
            left, right = (r"\b" if re.match(r"\w", end) else "" for end in (words[0], words[-1]))
            pattern = left + r"\s+".join(map(re.escape, words.split())) + right
            matches = [m.span() for m in re.finditer(pattern, text, re.IGNORECASE)]
            at_edit = [s for s in matches if any(s[0] < d[1] and d[0] < s[1] for d in differs)]
            differs = at_edit or matches[:1] or differs
        spans.update(differs)
    pieces, end = [], 0
    for start, stop in _merge(spans):
        pieces += [text[end:start], text[start:stop]]
        end = stop
    return [*pieces, text[end:]]


def _merge(spans: Iterable[Span]) -> list[Span]:
    """Return spans in order, touching ones merged.

    >>> _merge([(4, 6), (0, 3), (5, 9)])
    [(0, 3), (4, 9)]
    """
    merged: list[Span] = []
    for start, stop in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(stop, merged[-1][1]))
        else:
            merged.append((start, stop))
    return merged


ReadImage = Callable[[str], bytes]
"""A function that returns an encoded image by its name."""

Own = TypeVar("Own", bound=ModelItems)

MODELS = 8
"""Most runs of an experiment that a page shows side by side."""


@dataclass(frozen=True)
class ImageSource:
    """The source of a page's images.

    Attributes:
        describe: function that returns its caption by its name; ``None`` for no captions.
    """

    read: ReadImage
    describe: Callable[[str], str] | None = None

    def once(self) -> ImageSource:
        """Return a source of the same images that reads each image only once, for several pages."""
        return ImageSource(cache(self.read), self.describe)


class PageContent(Protocol):
    """The content of a page before its pictures are read."""

    @property
    def verdicts(self) -> Sequence[str]:
        """Return the sentences at the top of the page; the first is its heading."""

    @property
    def subtitle(self) -> str:
        """Return how many of the items are shown."""

    @property
    def images(self) -> Mapping[str, str]:
        """Return {digest or name: name} of the images, in the order of their numbers."""

    def content(self) -> dict[str, Any]:
        """Return the script's data without the pictures; afterwards ``images`` is complete."""


def page_file(benchmark: str) -> str:
    """Return the file name of a benchmark's page beside a run's results.

    >>> page_file("sets/social_skew")
    'sets%2Fsocial_skew.html'
    """
    return f"{quote(benchmark, safe='')}.html"


@dataclass(frozen=True)
class ModelPage(Generic[Own]):
    """The definition of the page of a benchmark's answers, for one model or several.

    Attributes:
        template: file name of the template, which extends ``models.html``.
        what: word for items, in the plural.
        side: longest side of the pictures, in pixels.
        most: most models on one page; with more runs in an experiment no common page is written, as
            a sweep would rewrite it after each of them. ``None`` for any number.
        remedy: advice in the error about models with different items.
    """

    template: str
    kind: type[Own]
    what: str
    make: Callable[[Sequence[Own]], PageContent]
    side: int
    most: int | None = MODELS
    remedy: str = "evaluate both with the same benchmark.data and settings"

    def write(self, answers: Sequence[Own], file: Path, images: ImageSource, *, title: str) -> Path:
        """Write the page and return its path; equal answers give equal bytes."""
        require_same_items(answers, self.what, self.remedy)
        page = self.make(answers)
        content = page.content()

        def small(name: str) -> ShownPicture:
            return show_picture(images.read(name), name, self.side)

        # Pillow releases the interpreter's lock while it decodes, shrinks and encodes.
        with ThreadPoolExecutor() as pool:
            pictures = list(pool.map(small, page.images.values()))
        shown = [dict(picture.about) for picture in pictures]
        if images.describe is not None:
            for about, name in zip(shown, page.images.values(), strict=True):
                about["t"] = images.describe(name)
        text = render(
            self.template,
            title=title,
            verdicts=list(page.verdicts),
            subtitle=page.subtitle,
            contrast=contrast(pictures),
            data=script_data({**content, "pictures": shown}),
        )
        return write_page(file, text)

    def write_for_run(
        self, folder: Path, model: str, benchmark: str, images: ImageSource, name: str | None = None
    ) -> Path:
        """Write the page of one model beside its results, and one of all above their folders.

        "All" are the models of its experiment with the same items, if there are several; runs that
        cannot be read are left out.

        Args:
            folder: folder of the run, with its ``items``; its page is written there, and returned.
            images: source of the pictures; each is read once.
            name: file name of the pages; ``None`` is the benchmark's, see ``page_file``.
        """
        current = read_own(folder, model, benchmark, self.kind)
        once, name = images.once(), name or page_file(benchmark)
        page = self.write([current], folder / name, once, title=f"{model}, {benchmark}")
        together = folder.parent.parent / name
        runs = sorted(folder.parent.parent.glob("*/seed=*"))
        if self.most is not None and len(runs) > self.most:
            return page
        others: dict[str, Own] = {}
        for other in runs:
            if other.resolve() == folder.resolve():
                continue
            try:
                items = read_items(other, benchmark)
                if items is not None and items.data == current.items.data:
                    arm = other.parent.name
                    arm = f"{arm}, {other.name}" if arm in (model, *others) else arm
                    others[arm] = self.kind(arm, items)
            except UserError as error:
                say(f"left out of {together}: {error}")
        if others:
            answers = sorted([current, *others.values()], key=lambda answer: answer.model)
            self.write(answers, together, once, title=benchmark)
        return page


def read_own(folder: Path, model: str, benchmark: str, kind: type[Own]) -> Own:
    """Return the answers of a run's model, from the ``items`` in its folder."""
    items = read_items(folder, benchmark)
    if items is None:
        raise UserError(
            f"{folder} has no items of {benchmark}: run evaluate.py benchmark={kind.BENCHMARK}"
        )
    return kind(model, items)


def require_same_items(answers: Sequence[ModelItems], noun: str, remedy: str) -> None:
    """Refuse a page of models with different items, without models, or with equal names."""
    if not answers:
        raise UserError("a page of no model's answers cannot be written")
    names = [answer.model for answer in answers]
    if len(set(names)) < len(names):
        raise UserError(f"models have duplicated names: {', '.join(names)}")
    first = answers[0]
    for answer in answers[1:]:
        if answer.texts(ITEM) != first.texts(ITEM):
            raise UserError(
                f"{first.model} and {answer.model} answered different {noun} and cannot share a "
                f"page: {remedy}"
            )
