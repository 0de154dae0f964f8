"""A perfect annotator's choice between the two captions, for every image of a part of pairs.

The world's pairs are exact, so that no caption is wrong, but a subject can be hard to see. The
oracle knows the pixels that show it: the images whose subject stands out least, by colour and area,
count as showing neither caption. Their share is that of the images that annotators did not match
to their caption (26.82 %, COCO-CFs, section 5.1), so that the share of validated images equals that
of COCO-Counterfactuals, by a criterion that an annotator would use.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from cfaug.core.errors import UserError
from cfaug.core.files import write_file
from cfaug.core.types import Member
from cfaug.data.mixture.records import decimal, half_up
from cfaug.data.shards.shards import read_sets
from cfaug.shapescapes.parts import ensure
from cfaug.shapescapes.scene import render, scene_of
from cfaug.shapescapes.settings import WorldSettings

UNMATCHED = 0.2682
"""Share of images that annotators did not match to their caption (COCO-CFs, section 5.1)."""


def ensure_labels(world: WorldSettings, part: str, root: Path) -> Path:
    """Return the label file of a part of pairs, writing it first if it does not exist.

    Each line has ``key``, ``member``, ``label`` (original, counterfactual or neither) and
    ``visibility``, in the form that ``cfaug.data.mixture.eligibility`` reads.

    Args:
        part: a part whose sets are pairs, such as "counterfactual".
        root: the folder of all shards (``paths.shards``).
    """
    folder = ensure(world, part, root)
    file = folder.parent / f"{part}-labels.jsonl"
    if not file.exists():
        lines = [json.dumps(label) for label in oracle_labels(world, folder)]
        try:
            # Another process that writes at the same time writes the same bytes.
            write_file(file, ("\n".join(lines) + "\n").encode())
        except OSError as error:
            raise UserError(f"cannot write labels to {file}: {error.strerror}") from error
    return file


def oracle_labels(world: WorldSettings, folder: Path) -> Iterator[dict[str, object]]:
    """Yield the label of every image of a part's shards, in order."""
    shown = []
    for one in read_sets(folder):
        if len(one.members) != 2:
            raise UserError(f"{folder}: its sets are not pairs, so there is no caption to choose")
        shown += [(one.key, i, visibility(member, world)) for i, member in enumerate(one.members)]
    seen = np.array([found for _, _, found in shown])
    unmatched = half_up(decimal(UNMATCHED) * len(shown))
    hidden = set(np.argsort(seen, kind="stable")[:unmatched].tolist())
    for place, (key, member, found) in enumerate(shown):
        label = "neither" if place in hidden else ("original", "counterfactual")[member]
        yield {"key": key, "member": member, "label": label, "visibility": round(found, 3)}


def visibility(member: Member, world: WorldSettings) -> float:
    """Return the visibility of the subject: its colour distance to the background times its area.

    The distance is between the mean colours (0 to 255) of the pixels that show only the subject and
    of the pixels that it does not touch; the area is the share of the picture that it covers.
    """
    drawn = render(scene_of(member.extra), world.image_size, world.look())
    if not drawn.solid.any() or drawn.touched.all():
        return 0.0
    pixels = drawn.pixels.astype(np.float64)
    apart = pixels[drawn.solid].mean(axis=0) - pixels[~drawn.touched].mean(axis=0)
    return float(np.linalg.norm(apart) * drawn.solid.mean())
