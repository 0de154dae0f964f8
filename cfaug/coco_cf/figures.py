"""Figures 2 and 3 of COCO-Counterfactuals: effects of shared attention, and matching gaps."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from cfaug.coco_cf.tables import PLACES, Place
from cfaug.core.errors import UserError
from cfaug.report.arm_results import MissingError, Runs
from cfaug.report.document import Column, Document, DocumentImage, Entry, GapPlot, Part, make_part
from cfaug.report.matching_gap import ORDER, READABLE, read_gaps, shifts
from cfaug.report.page import DASH, p_text, percent
from cfaug.stats.matching import summary

DIGITS = 5
"""Significant digits of the gaps saved for the plot."""


@dataclass(frozen=True)
class GapFigure:
    """Matching gaps of several models, their pairs pooled over seeds (Figure 3, section 4.2.2).

    Args:
        name: the name of the output files.
        title: the title above the figure.
        models: {printed name: {"world": ``experiment/arm``, "folders": ``experiment/arm``}}.
        benchmarks: {"world": benchmark, "folders": benchmark}.
        commands: the commands that make the scores.
        notes: notes printed below everything.
        partial: whether to leave out models without scores.
    """

    name: str
    title: str
    models: Mapping[str, Mapping[Place, str]]
    benchmarks: Mapping[Place, str]
    commands: Sequence[str]
    notes: Sequence[str] = ()
    partial: bool = False

    def build(self, runs: Runs) -> Document:
        """Return a table of the gaps and a plot per model, for every place with scores.

        Raises:
            MissingError: if a model has no scores, unless ``partial``.
        """
        parts, plots, missing = [], [], []
        for place in PLACES:
            found = {
                model: self._gaps(runs, arms[place], self.benchmarks[place])
                for model, arms in self.models.items()
            }
            if not any(gaps for _, gaps in found.values()):
                continue
            missing += [
                f"{self.benchmarks[place]} of {self.models[model][place]}"
                for model, (_, gaps) in found.items()
                if not gaps
            ]
            asked = {model: one for model, one in found.items() if one[1]}
            parts.append(_gap_part(asked, self.benchmarks[place]))
            plots += [_plot(model, *one, self.benchmarks[place]) for model, one in asked.items()]
        if (missing or not parts) and not self.partial:
            every = [f"matching scores of {arms[PLACES[0]]}" for arms in self.models.values()]
            raise MissingError(self.name, missing or every, self.commands)
        return Document(self.name, self.title, tuple(parts), tuple(self.notes), gaps=tuple(plots))

    def _gaps(self, runs: Runs, arm: str, benchmark: str) -> tuple[str, dict[str, np.ndarray]]:
        """Return the unit of the scores and the gaps of all seeds together."""
        found = [read_gaps(folder).get(benchmark) for folder in runs.folders(arm)]
        known = [one for one in found if one is not None]
        if not known:
            return "", {}
        names = [name for name in ORDER if any(name in one.gaps for one in known)]
        return known[0].kind, {
            name: np.concatenate([one.gaps.get(name, np.full(len(one), np.nan)) for one in known])
            for name in names
        }


def _gap_part(asked: Mapping[str, tuple[str, dict[str, np.ndarray]]], benchmark: str) -> Part:
    columns = [
        Column(header, partial(cell, name), f"{name} ({READABLE[name]})")
        for name in ORDER
        for header, cell in (("mean", _mean_gap), ("below 0", _below_zero))
    ]
    columns += [Column(way, partial(_shift, way), "p of the shift") for way in ("IR", "TR")]
    return make_part(
        f"Ours: {benchmark}",
        ("Model", "Score"),
        columns,
        [((model, kind), gaps) for model, (kind, gaps) in asked.items()],
        (
            "Gap: score of the right pair minus that of the wrong one, in the model's own unit; ± "
            "is over pairs. p: one-sided Wilcoxon test that an anchor's counterfactual gap is "
            "below its random gap.",
        ),
    )


Gaps = Mapping[str, np.ndarray]


def _known(name: str, gaps: Gaps) -> np.ndarray:
    known: np.ndarray = gaps[name][np.isfinite(gaps[name])] if name in gaps else np.empty(0)
    return known


def _mean_gap(name: str, gaps: Gaps) -> Entry:
    known = _known(name, gaps)
    if not len(known):
        return Entry(DASH)
    one = summary(known)
    spread = {} if math.isnan(one.sd) else {"sd": one.sd}
    numbers = {"value": one.mean, "n": float(one.n), **spread}
    return Entry(f"{one.mean:.3g}", f"{one.sd:.2g}" if spread else "", numbers=numbers)


def _below_zero(name: str, gaps: Gaps) -> Entry:
    known = _known(name, gaps)
    if not len(known):
        return Entry(DASH)
    one = summary(known)
    numbers = {"value": one.below_zero, "n": float(one.n)}
    return Entry(f"{percent(one.below_zero, 1)}%", numbers=numbers)


def _shift(way: str, gaps: Gaps) -> Entry:
    found = shifts(gaps).get(way)
    if found is None:
        return Entry(DASH)
    return Entry(p_text(found.p), numbers={"value": found.p, "n": float(found.n)})


def _plot(model: str, kind: str, gaps: Mapping[str, np.ndarray], benchmark: str) -> GapPlot:
    kept = {
        name: [float(f"{v:.{DIGITS}g}") for v in values[np.isfinite(values)]]
        for name, values in gaps.items()
    }
    return GapPlot(f"{model}, {benchmark}", kind, kept)


@dataclass(frozen=True)
class SharingFigure:
    """Pairs drawn with and without shared attention (Figure 2), from ``benchmarks/sharing.py``.

    Args:
        name: the name of the output files.
        title: the title above the figure.
        commands: the commands that make ``sharing.json`` and ``sharing.png``.
        folder: the folder below ``paths.runs`` that contains these files.
        notes: notes printed below everything.
        partial: whether to print nothing if these files are missing.
    """

    name: str
    title: str
    commands: Sequence[str]
    folder: str = "sharing"
    notes: Sequence[str] = ()
    partial: bool = False

    def build(self, runs: Runs) -> Document:
        """Return the table and the picture.

        Raises:
            MissingError: if the files are missing, unless ``partial``.
        """
        rows, picture = (runs.root / self.folder / f"sharing.{kind}" for kind in ("json", "png"))
        lacks = [str(file) for file in (rows, picture) if not file.exists()]
        if lacks and not self.partial:
            raise MissingError(self.name, lacks, self.commands)
        return Document(
            self.name,
            self.title,
            () if lacks else (_sharing_part(rows),),
            tuple(self.notes),
            pictures=() if lacks else (_read_picture(picture),),
        )


MEASURED = {
    "target": "target subject right", "every": "all of both right", "direction": "CLIP direction",
    "outside": "difference outside (0-255)",
}  # fmt: skip


def _sharing_part(file: Path) -> Part:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        rows = [
            ((str(row["name"]),), {key: float(row[key]) for key in MEASURED})
            for row in found["arms"]
        ]
        pairs = int(found["pairs"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{file} is not what benchmarks/sharing.py writes: {error}") from error
    title = f"Ours: {pairs} pairs of the embedded world ShapeScapes, drawn by {found['model']}"
    columns = [Column(name, partial(_measured, key)) for key, name in MEASURED.items()]
    return make_part(title, ("",), columns, rows)


def _measured(key: str, row: Mapping[str, float]) -> Entry:
    return Entry(f"{row[key]:.3f}", numbers={"value": row[key]})


def _read_picture(file: Path) -> DocumentImage:
    content = file.read_bytes()
    if not content.startswith(b"\x89PNG\r\n\x1a\n"):
        raise UserError(f"{file} is not a PNG; make it again with benchmarks/sharing.py")
    return DocumentImage(
        "Rows: source, then targets with the same noise and attention shared for a share p of the "
        "steps, then independent noise.",
        base64.b64encode(content).decode(),
    )
