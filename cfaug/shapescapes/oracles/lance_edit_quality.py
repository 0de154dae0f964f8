"""Quality of edited photos, by an oracle: did the right factor change, and nothing else?

A judge, trained on drawn scenes, predicts what a picture shows; the oracle redraws the scene for
the edited caption, so it is known where the picture may change.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cfaug.core.errors import UserError
from cfaug.core.pixels import decode_image
from cfaug.core.types import CounterfactualSet, Member
from cfaug.core.weights import resolve
from cfaug.data.shards.shards import read_sets
from cfaug.report.arm_results import Runs
from cfaug.report.document import Document, Entry, Part
from cfaug.report.numbers import DASH, percent
from cfaug.report.paper_tables import PaperTable
from cfaug.shapescapes.oracle import psnr_outside, redraw_edited
from cfaug.shapescapes.oracle_edit import edit_scene
from cfaug.shapescapes.oracles.lance_discovery import FACTORS, changed_factor
from cfaug.shapescapes.scene import scene_of
from cfaug.shapescapes.styles import STYLES
from cfaug.shapescapes.vocabulary import Factors
from cfaug.shapescapes.zoo.factor_classifier import Judge, load_judge

SHARES = ("changed", "label", "rest", "all")


@dataclass(frozen=True)
class EditedPicture:
    """A picture of a joined set, and the factors that it should show.

    Attributes:
        kind: the kind of the edit; ``original`` for the photo itself.
        factor: the factor that should change; ``None`` for a photo and its reconstruction.
        wanted: the factors that the picture should show.
        pixels: the picture, uint8 (size, size, 3).
        psnr: PSNR to the photo in dB, outside the region that the edit may change; ``nan`` if it
            may change everything.
    """

    kind: str
    factor: str | None
    wanted: Factors
    pixels: NDArray[np.uint8]
    psnr: float


@dataclass(frozen=True)
class EditQuality:
    """Quality of the pictures of one kind.

    Attributes:
        kind: the kind of the edit.
        n: number of pictures.
        changed: share of pictures in which the judge sees the wanted value of the factor; ``nan``
            if no factor should change.
        label: share of pictures in which the judge sees the photo's subject.
        rest: share of pictures in which it sees the photo's value of every other factor.
        all: share of pictures in which it sees all of these.
        psnr: mean PSNR in dB over pictures with a finite one; ``nan`` without any.
    """

    kind: str
    n: int
    changed: float
    label: float
    rest: float
    all: float
    psnr: float


def measure_edits(pictures: Iterable[EditedPicture], judge: Judge) -> list[EditQuality]:
    """Return the quality of edits by kind, in alphabetical order."""
    ordered = sorted(pictures, key=lambda one: one.kind)
    return [_measure(kind, list(own), judge) for kind, own in groupby(ordered, lambda o: o.kind)]


def _measure(kind: str, own: Sequence[EditedPicture], judge: Judge) -> EditQuality:
    seen = judge.factors(np.stack([one.pixels.transpose(2, 0, 1) for one in own]))
    right = np.array(
        [
            [getattr(saw, name) == getattr(one.wanted, name) for name in FACTORS]
            for saw, one in zip(seen, own, strict=True)
        ]
    )
    factor = [one.factor for one in own]
    told = [(row, FACTORS.index(name)) for row, name in enumerate(factor) if name is not None]
    asked = np.zeros_like(right)
    for row, column in told:
        asked[row, column] = True
    others = ~asked
    others[:, FACTORS.index("subject")] = False
    finite = [one.psnr for one in own if np.isfinite(one.psnr)]
    return EditQuality(
        kind=kind,
        n=len(own),
        changed=float(np.mean([right[place] for place in told])) if told else float("nan"),
        label=float(right[:, FACTORS.index("subject")].mean()),
        rest=float((right | ~others).all(axis=1).mean()),
        all=float(right.all(axis=1).mean()),
        psnr=float(np.mean(finite)) if finite else float("nan"),
    )


def read_pictures(folder: Path, style: str) -> Iterator[EditedPicture]:
    """Yield the photos, reconstructions and edits of joined sets of the embedded world.

    Edits whose captions are not sentences of the world, or change no factor, are left out.

    Args:
        folder: the folder of the shards.
        style: the style of the world, in which the oracle draws.

    Raises:
        UserError: if a set is not of the embedded world.
    """
    for one in read_sets(folder):
        photo, *others = one.members
        try:
            scene = scene_of(photo.extra)
        except (KeyError, ValueError) as error:
            raise UserError(f"{folder}: set {one.key!r} is not a scene of the world") from error
        first = _pixels(one, photo)
        yield EditedPicture("original", None, scene.factors, first, float("nan"))
        for member in others:
            pixels = _pixels(one, member)
            kind = "" if member.edit is None else member.edit.kind
            if member.text == photo.text:
                nothing = np.zeros(first.shape[:2], np.bool_)
                psnr = psnr_outside(pixels, first, nothing)
                yield EditedPicture(kind, None, scene.factors, pixels, psnr)
                continue
            after, factor = edit_scene(scene, photo.text, member.text), None
            if after is not None:
                factor = changed_factor(photo.text, member.text)
            if after is None or factor not in FACTORS:
                continue
            size = first.shape[0]
            _, mask = redraw_edited(scene, after, size=size, style=STYLES[style])
            psnr = psnr_outside(pixels, first, mask)
            yield EditedPicture(kind, factor, after.factors, pixels, psnr)


def _pixels(one: CounterfactualSet, member: Member) -> NDArray[np.uint8]:
    return np.asarray(decode_image(one.images[member.image_name], f"set {one.key!r}"))


@dataclass(frozen=True, kw_only=True)
class EditQualityTable(PaperTable):
    """Shares of edited photos that show what their captions say and keep everything else.

    Args:
        folders: {printed name: folder of shards}.
        judge: the model that predicts what a picture shows.
        style: the style of the world.
    """

    folders: Mapping[str, str]
    judge: str = "zoo:judge-domains"
    style: str = "clear"

    def build(self, runs: Runs) -> Document:
        """Return a part with a row for each folder and kind of edit.

        Raises:
            MissingError: if a folder is missing, unless ``partial``.
        """
        there = {
            name: Path(f) for name, f in self.folders.items() if (Path(f) / "card.json").is_file()
        }
        lacking = [folder for name, folder in self.folders.items() if name not in there]
        self.require(not lacking, *lacking)
        judge = load_judge(resolve(self.judge))
        rows = [
            ((name, one.kind), _entries(one))
            for name, folder in there.items()
            for one in measure_edits(read_pictures(folder, self.style), judge)
        ]
        part = Part(
            title="Ours: pictures as a judge sees them",
            labels=("Images", "Kind"),
            groups=(),
            columns=("n", "Factor changed", "Label kept", "Rest kept", "All three", "PSNR (dB)"),
            rows=tuple(rows),
            notes=(
                "PSNR: outside the region that the edit may change, by the oracle's masks; "
                "everywhere for a reconstruction. A dash: the edit may change everything. The "
                "judge errs too: the originals show how often.",
            ),
        )
        return self.document(*((part,) if rows else ()))


def _entries(one: EditQuality) -> tuple[Entry, ...]:
    shares = tuple(
        Entry(DASH) if np.isnan(value := getattr(one, name))
        else Entry(percent(value, 1), numbers={"value": value, "n": float(one.n)})
        for name in SHARES
    )  # fmt: skip
    psnr = (
        Entry(DASH) if np.isnan(one.psnr) else Entry(f"{one.psnr:.1f}", numbers={"value": one.psnr})
    )
    return (Entry(str(one.n)), *shares, psnr)
