"""``near_duplicates-NAME.jsonl`` and ``.html``: pairs of training and test images, and pictures."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cfaug.core.outputs import remove_output, write_output
from cfaug.core.types import CounterfactualSet, Member
from cfaug.data.mixture.near_duplicates import NearDuplicates, NearPair

if TYPE_CHECKING:
    from cfaug.data.index import Index

TRAINING = "training"
"""The name of the list of what a training left out, reported or refused; others are a test's."""
KIND = "near-duplicates"
SHOWN = 200
"""Most pairs that the page shows: 400 pictures make a page of 6 MB."""


def near_files(folder: Path, name: str) -> tuple[Path, Path]:
    """Return the list and the page of a benchmark, or of ``TRAINING``, in the folder of a run."""
    stem = f"near_duplicates-{name}"
    return folder / f"{stem}.jsonl", folder / f"{stem}.html"


def write_near(folder: Path, name: str, near: NearDuplicates | None) -> list[Path]:
    """Write the pairs, nearest first, and a page of their pictures; return both files.

    Args:
        name: the benchmark, or ``TRAINING``.
        near: the pairs; without any, earlier files are removed.
    """
    from cfaug.report.gallery import write_gallery

    files = table, page = near_files(folder, name)
    if near is None or not near.pairs:
        for file in files:
            remove_output(file, KIND)
        return []
    pairs = sorted(near.pairs, key=lambda pair: pair.distance)
    lines = [
        json.dumps(
            {
                "test": _name(*pair.tested),
                "training": _name(*pair.trained),
                "distance": pair.distance,
                "left_out": near.left_out,
            },
            ensure_ascii=False,
        )
        for pair in pairs
    ]
    write_output(table, "".join(f"{line}\n" for line in lines).encode(), KIND)
    shown = pairs
    if len(pairs) > SHOWN:  # of every distance
        shown = [pairs[at] for at in np.linspace(0, len(pairs) - 1, SHOWN).round().astype(int)]
    some = f"; {len(shown):,} of {len(pairs):,} pairs are shown" if len(shown) < len(pairs) else ""
    write_gallery(_as_sets(shown), page, title=f"{name}: {near}{some}", limit=None, kind=KIND)
    return list(files)


def _name(index: Index, row: int) -> str:
    """Return the file and the key of an image, without this machine's folders."""
    return f"{Path(index.file_name(row)).name} ({index.key(row)})"


def _as_sets(pairs: Sequence[NearPair]) -> Iterator[CounterfactualSet]:
    """Yield each pair as the two members of a set, which the gallery shows side by side."""
    for number, pair in enumerate(pairs):
        sides = {"test": pair.tested, "training": pair.trained}
        members = tuple(
            Member(f"{side}: {index.text(row)}", side, index.key(row))
            for side, (index, row) in sides.items()
        )
        images = {side: index.read_image(row) for side, (index, row) in sides.items()}
        key = f"pair-{number:03}"
        yield CounterfactualSet(key, key, members, images, {"bits that differ": pair.distance})
