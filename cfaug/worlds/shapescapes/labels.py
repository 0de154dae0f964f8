"""Labels of the embedded world: a perfect annotator, and classification by any factor.

The world's pairs are exact, so that no caption is wrong, but a subject can be hard to see. The
oracle knows the pixels that show it: the images whose subject stands out least, by colour and area,
count as showing neither caption. Their share is that of the images that annotators did not match
to their caption (26.82 %, COCO-CFs, section 5.1), so that the share of validated images equals that
of COCO-Counterfactuals, by a criterion that an annotator would use.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from cfaug.core.atomic_files import write_file
from cfaug.core.errors import UserError
from cfaug.core.types import Member
from cfaug.data.mixture.records import decimal, half_up
from cfaug.data.shards.shards import read_sets
from cfaug.evaluation.classification import ZeroShot
from cfaug.evaluation.records import Classes
from cfaug.worlds.shapescapes.drawing import render, scene_of
from cfaug.worlds.shapescapes.parts import ensure
from cfaug.worlds.shapescapes.settings import (
    CHOICES,
    COLOURS,
    PLACES,
    PROMPTS,
    SUBJECTS,
    WorldSettings,
)

if TYPE_CHECKING:
    from cfaug.data.index import Index
    from cfaug.evaluation.context import EvaluationContext


UNMATCHED = 0.2682
"""Share of images that annotators did not match to their caption (COCO-CFs, section 5.1)."""


def ensure_labels(world: WorldSettings, part: str, root: Path) -> Path:
    """Return the label file of a part of pairs, writing it first if it does not exist.

    Each line has ``key``, ``member``, ``label`` (original, counterfactual or neither) and
    ``visibility``, in the form that ``cfaug.data.mixture.pool`` reads.

    Args:
        part: a part whose sets are pairs, such as "counterfactual".
    """
    folder = ensure(world, part, root)
    file = folder.parent / f"{part}-labels.jsonl"
    if file.exists():
        return file
    shown = []
    for pair in read_sets(folder):
        if len(pair.members) != 2:
            raise UserError(f"{folder}: its sets are not pairs, so there is no caption to choose")
        shown += [(pair.key, i, visibility(member, world)) for i, member in enumerate(pair.members)]
    unmatched = half_up(decimal(UNMATCHED) * len(shown))
    order = np.argsort([seen for *_, seen in shown], kind="stable")
    hidden = set(order[:unmatched].tolist())
    lines = []
    for index, (key, member, seen) in enumerate(shown):
        label = "neither" if index in hidden else ("original", "counterfactual")[member]
        row = {"key": key, "member": member, "label": label, "visibility": round(seen, 3)}
        lines.append(json.dumps(row) + "\n")
    try:
        # Another process that writes at the same time writes the same bytes.
        write_file(file, "".join(lines).encode())
    except OSError as error:
        raise UserError(f"cannot write labels to {file}: {error.strerror}") from error
    return file


def visibility(member: Member, world: WorldSettings) -> float:
    """Return the visibility of the subject: its colour distance to the background times its area.

    The distance is between the mean colours (0 to 255) of the pixels that show only the subject and
    of the pixels that it does not touch; the area is the share of the picture that it covers.
    """
    drawn = render(scene_of(member.extra), world.image_size, world.drawing_style())
    if not drawn.solid.any() or drawn.touched.all():
        return 0.0
    pixels = drawn.pixels.astype(np.float64)
    apart = pixels[drawn.solid].mean(axis=0) - pixels[~drawn.touched].mean(axis=0)
    return float(np.linalg.norm(apart) * drawn.solid.mean())


# Classification of the embedded world's scenes by any of their factors.

Factor = Literal["subject", "colour", "background"]


@dataclass
class WorldClassification(ZeroShot):
    """Zero-shot classification of a test whose captions name every factor.

    Subjects are prompted with the world's own templates; colours and backgrounds with a template
    for each subject, so that no subject is favoured.

    Args:
        data: ``shapescapes:PART``, a test, or ``shapescapes:PART@STYLE``.
        name: the name in tables, ending in "_classification".
        without_leaks: unused, as the world's tests are drawn separately from its training scenes.
        restrict: whether a classifier chooses only among the values, not among all of its classes.
        factor: the factor to predict: ``subject``, ``colour`` or ``background``.
        among: the values to choose from; images with other values are left out. ``None`` uses all.
    """

    factor: Factor = "subject"
    among: Sequence[str] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.factor not in CHOICES:
            raise UserError(f"{self.name}: factor={self.factor}: choose from {', '.join(CHOICES)}")
        unknown = set(self.among or ()) - set(CHOICES[self.factor])
        if unknown:
            raise UserError(
                f"{self.name}: among={sorted(unknown)}: choose from "
                f"{', '.join(CHOICES[self.factor])}"
            )

    def prepare(self, context: EvaluationContext, index: Index, rows: np.ndarray | None) -> None:
        if self.factor == "subject":
            terms, templates = {subject: subject for subject in SUBJECTS}, PROMPTS
            shown = [index.label(row) for row in range(len(index))]
        else:
            if self.factor == "background":
                terms, templates = dict(PLACES), tuple(f"a {subject} {{c}}" for subject in SUBJECTS)
            else:
                terms = {c: f"{'an' if c[0] in 'aeiou' else 'a'} {c}" for c in COLOURS}
                templates = tuple(f"{{c}} {subject}" for subject in SUBJECTS)
            # The captions of the tests name one value.
            texts = (index.text(row) for row in range(len(index)))
            shown = [
                next((v for v, words in terms.items() if words in text), None) for text in texts
            ]
        values = list(terms) if self.among is None else list(self.among)
        chosen = range(len(index)) if rows is None else rows.tolist()
        kept = np.array([row for row in chosen if shown[row] in values])
        self.use(index, Classes(values, [terms[value] for value in values], templates), kept, shown)
