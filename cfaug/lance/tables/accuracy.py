"""Table 2 of LANCE: accuracy on photos, reconstructions and edits, and paired tests."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cfaug.core.types import ORIGINAL, RECONSTRUCTION
from cfaug.lance.stress_drops import EDITED_PHOTOS, Drop, compare_drops
from cfaug.lance.stress_items import StressItems
from cfaug.lance.tables.answers import StressTable
from cfaug.report.arm_results import Runs
from cfaug.report.document import Document, Entry, Part
from cfaug.report.numbers import DASH, p_text, percent, points
from cfaug.report.published import published
from cfaug.stats.significance import summarise

HITS = ("acc1", "acc5")
HEADERS = ("acc@1", "acc@5")

UNPAIRED = (
    "Small: the change against Original by the paper's equation 3, over the photos that have an "
    "edit; sets differ in size. ± is over checkpoints."
)
PAIRED = (
    "Each image is compared with its own photo, which counts once per image. Interval: bootstrap "
    "over photos. p: a permutation that flips whole photos (two-sided), corrected by Holm over the "
    "sets of a checkpoint. McNemar's exact test treats edits of one photo as independent."
)


@dataclass(frozen=True, kw_only=True)
class AccuracyTable(StressTable):
    """A row per set, two columns per model.

    Args:
        sets: {printed name: set of the items}, in order.
        types: {printed name: the paper's name of that kind of set}.
        optional: printed names of sets that are left out if no model has answers about them.
    """

    sets: Mapping[str, str]
    types: Mapping[str, str]
    optional: Sequence[str] = ()

    def build(self, runs: Runs) -> Document:
        """Return the paper's numbers, and ours in the paper's layout and paired.

        Raises:
            MissingError: if no model has answers, unless ``partial``.
            UserError: if items cannot be read.
        """
        found = self.read(runs)
        self.require(found, "answers to a stress test")
        answers = {name: [one for _, one in own] for name, own in found.items()}
        ours = (self._unpaired(answers), self._paired(answers)) if answers else ()
        return self.document(self._theirs(), *ours)

    def _theirs(self) -> Part:
        found = published(self.name)
        rows = []
        for row in found["rows"]:
            cells = [
                Entry(f"{value:.2f}", small="" if change is None else f"{change:+.1f}",
                      numbers={"value": value / 100, "n": found["sizes"][row["set"]]})
                for value, change in zip(row["values"], row["change"], strict=True)
            ]  # fmt: skip
            rows.append(((row["set"], row["type"]), tuple(cells)))
        return Part(
            title=self.paper,
            labels=("Test Set", "Type"),
            groups=tuple((model, len(HITS)) for model in found["models"]),
            columns=HEADERS * len(found["models"]),
            rows=tuple(rows),
            notes=(found["note"],),
            ours=False,
        )

    def _unpaired(self, answers: Mapping[str, Sequence[StressItems]]) -> Part:
        rows = []
        for printed, part in self.sets.items():
            asked = any(part in one.sets for own in answers.values() for one in own)
            if not asked and printed in self.optional:
                continue
            cells = [_accuracy(own, part, hit) for own in answers.values() for hit in HITS]
            rows.append(((printed, self.types.get(printed, "")), tuple(cells)))
        return Part(
            title="Ours",
            labels=("Test Set", "Type"),
            groups=tuple((model, len(HITS)) for model in answers),
            columns=HEADERS * len(answers),
            rows=tuple(rows),
            notes=(UNPAIRED,),
        )

    def _paired(self, answers: Mapping[str, Sequence[StressItems]]) -> Part:
        printed = {part: name for name, part in self.sets.items()}
        rows = []
        for model, own in answers.items():
            for number, one in enumerate(own, 1):
                name = model if len(own) == 1 else f"{model}, {number}"
                for drop in compare_drops(one.items):
                    labels = (name, printed.get(drop.name, drop.name))
                    rows.append((labels, _drop_cells(drop)))
        return Part(
            title="Ours, each image with its own photo",
            labels=("Model", "Test Set"),
            groups=(("", 2), ("acc@1, %", 2), ("change, points", 2), ("p", 3)),
            columns=("images", "photos", "photos", "images", "paired", "beyond reconstruction",
                     "McNemar", "permutation", "Holm"),
            rows=tuple(rows),
            notes=(PAIRED,),
        )  # fmt: skip


def _rows(one: StressItems, part: str) -> np.ndarray:
    """Return the rows of a set; for photos, only those with an edit."""
    rows = one.rows(part) if part in one.sets else np.zeros(0, np.int64)
    if part not in (ORIGINAL, RECONSTRUCTION):
        return rows
    photos = np.array(one.texts("photos"))[rows]
    kept: np.ndarray = rows[photos == EDITED_PHOTOS]
    return kept


def _accuracy(own: Sequence[StressItems], part: str, hit: str) -> Entry:
    """Return the mean over checkpoints, and its change against the photos."""
    means, changes, images = [], [], 0
    for one in own:
        rows = _rows(one, part)
        if hit not in one.items.columns or not len(rows):
            continue
        hits = one.items.metric(hit)
        means.append(float(hits[rows].mean()))
        changes.append(means[-1] - float(hits[_rows(one, ORIGINAL)].mean()))
        images = len(rows)
    if not means:
        return Entry(DASH)
    found = summarise(means)
    numbers = {"value": found.mean, "n": float(images)}
    numbers |= {} if math.isnan(found.sd) else {"sd": found.sd}
    return Entry(
        percent(found.mean),
        sub="" if math.isnan(found.sd) else percent(found.sd, 1),
        small="" if part == ORIGINAL else points(sum(changes) / len(changes)),
        numbers=numbers,
    )


def _drop_cells(drop: Drop) -> tuple[Entry, ...]:
    mean = drop.paired.mean
    between = "" if math.isnan(mean.low) else f"[{_change(mean.high)}, {_change(mean.low)}]"
    return (
        Entry(f"{drop.images:,}"),
        Entry(f"{mean.clusters:,}"),
        Entry(percent(drop.paired.before)),
        Entry(percent(drop.paired.after)),
        Entry(_change(mean.mean), small=between, numbers={"value": -mean.mean, "n": drop.images}),
        Entry(_change(drop.net)),
        Entry(p_text(drop.paired.p_sign)),
        Entry(p_text(drop.p)),
        Entry(p_text(drop.p_holm)),
    )


def _change(drop: float) -> str:
    return points(0.0 - drop)  # 0.0 for no drop, not -0.0
