"""Counterfactual sets for people: members side by side, with changes marked."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup, escape
from numpy.typing import NDArray
from PIL import Image

from cfaug.core.pixels import decode_image
from cfaug.core.types import CounterfactualSet, Member
from cfaug.report.caption_diff import mark_changes
from cfaug.report.page import GRID

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
    """Prepare a set for the page; the other members are compared with the first.

    Raises:
        UserError: naming the set and image, if an image cannot be decoded.
    """
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
