"""Repair on ShapeScapes, by an oracle: is what was planted found, mended, and nothing else?"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from cfaug.core.annotations import OneOf
from cfaug.core.errors import UserError
from cfaug.core.files import visible_files
from cfaug.core.rng import generator
from cfaug.core.validation import Count, check_fields
from cfaug.evaluation.failures import ModelFailure, read_failures
from cfaug.papers.repair.repair_table import count_made
from cfaug.report.arm_results import Runs
from cfaug.report.document import Column, Curve, Document, Entry, Part, make_part, text_column
from cfaug.report.page import DASH, percent
from cfaug.report.paper_tables import PaperTable
from cfaug.stats.effects import fit_saturation, wilson_interval
from cfaug.worlds.shapescapes.settings import SHORTCUTS, SUBJECTS

KINDS = {"background": "background", "colour": "adjective", "domain": "domain"}
"""The kind of edit that changes a factor."""


@dataclass(frozen=True)
class RepairedWorld:
    """A model in a world with planted shortcuts: what was found, made and mended.

    Attributes:
        shortcut: a value of ``data.world.shortcut``.
        failures: the file of its failures.
        arms: {printed name: ``experiment/arm``}; empty if nothing was to be mended.
        made: the shards that were made; ``None`` if nothing was to be made.
    """

    shortcut: Annotated[str, OneOf(SHORTCUTS)]
    failures: str
    arms: Mapping[str, str] = field(default_factory=dict)
    made: str | None = None

    def __post_init__(self) -> None:
        check_fields(self, "table.worlds")

    @property
    def planted(self) -> frozenset[str]:
        """The kinds of edits that change a planted factor."""
        return frozenset(KINDS[name] for name in SHORTCUTS[self.shortcut])

    def recall(self, failures: Sequence[ModelFailure]) -> float | None:
        """Return the share of classes and planted kinds with a failure; ``None`` without any."""
        wanted = {(subject, kind) for subject in SUBJECTS for kind in self.planted}
        right = {
            (subject, failure.kind)
            for failure in failures
            for subject in failure.labels or SUBJECTS
        }
        return len(wanted & right) / len(wanted) if wanted else None

    def precision(self, failures: Sequence[ModelFailure]) -> float | None:
        """Return the share of failures whose kind was planted; ``None`` without failures."""
        right = sum(failure.kind in self.planted for failure in failures)
        return right / len(failures) if failures else None


@dataclass(frozen=True, kw_only=True)
class RepairOracleTable(PaperTable):
    """Worlds with none, one and two planted shortcuts; null worlds; and the dose of edits.

    Args:
        worlds: {printed name: settings of ``RepairedWorld``}.
        null_worlds: the files of failures in worlds without any shortcut, a pattern.
        benchmark: the benchmark of TEST, a ``benchmark=repair``.
        dose: {number of edits: ``experiment/arm``}, 0 for the arm without any.
    """

    worlds: Mapping[str, Mapping[str, Any]]
    null_worlds: str
    benchmark: str
    dose: Mapping[Count, str]

    def __post_init__(self) -> None:
        check_fields(self, "table")

    def build(self, runs: Runs) -> Document:
        """Return a part of the worlds, one of the null worlds, and the figure of the dose.

        Raises:
            MissingError: if failures or runs are missing, unless ``partial``.
        """
        worlds = {name: RepairedWorld(**about) for name, about in self.worlds.items()}
        tested = [arm for world in worlds.values() for arm in world.arms.values()]
        lacking = [w.failures for w in worlds.values() if not Path(w.failures).exists()]
        lacking += [
            f"{self.benchmark} of {arm}"
            for arm in (*tested, *self.dose.values())
            if not self._values(runs, arm, "excess")
        ]
        null = visible_files(Path().glob(self.null_worlds))
        lacking += [] if null else [self.null_worlds]
        self.require(not lacking, *lacking)
        there = {n: w for n, w in worlds.items() if Path(w.failures).exists()}
        parts = [self._worlds(runs, there)] if there else []
        counts = [len(read_failures(file)) for file in null]
        answer = ""
        if null:
            parts.append(null_part(counts))
        # How much less is left than without any edits, by dose and seed.
        values = {dose: self._values(runs, arm, "excess") for dose, arm in self.dose.items()}
        usual = values.pop(0, {})
        shared = set(usual).intersection(*values.values()) if values else set()
        responses = {
            float(dose): {seed: usual[seed] - of[seed] for seed in sorted(shared)}
            for dose, of in values.items()
            if shared
        }
        curves = []
        if len(responses) > 1:
            curve, answer = dose_curve(responses)
            curves.append(curve)
        return self.document(*parts, curves=curves, answer=answer)

    def _values(self, runs: Runs, arm: str, metric: str) -> dict[int, float]:
        return runs.arm(arm).values((self.benchmark, metric))

    def _worlds(self, runs: Runs, worlds: Mapping[str, RepairedWorld]) -> Part:
        names = list(dict.fromkeys(arm for world in worlds.values() for arm in world.arms))
        failures = {name: read_failures(world.failures) for name, world in worlds.items()}

        def share(value: float | None) -> str:
            return DASH if value is None else f"{percent(value, 0)}%"

        def mean(metric: str, arm: str, name: str) -> Entry:
            arms = worlds[name].arms
            values = self._values(runs, arms[arm], metric) if arm in arms else {}
            if not values:
                return Entry(DASH)
            value = float(np.mean([*values.values()]))
            text = f"{value:.1f}" if metric == "collateral" else f"{percent(value, 1)}%"
            return Entry(text, numbers={"value": value, "n": float(len(values))})

        columns: list[Column] = [
            text_column("failures", lambda name: str(len(failures[name]))),
            text_column("recall", lambda name: share(worlds[name].recall(failures[name]))),
            text_column("precision", lambda name: share(worlds[name].precision(failures[name]))),
            text_column("images made", lambda name: f"{count_made(worlds[name].made):,}"),
        ]
        groups = {
            "excess": "What is left", "repair_rate": "Repair rate", "collateral": "New failures",
        }  # fmt: skip
        columns += [
            Column(arm, partial(mean, metric, arm), group)
            for metric, group in groups.items()
            for arm in names
        ]
        return make_part(
            "Worlds with planted shortcuts",
            ("Model and planted shortcuts",),
            columns,
            [((name,), name) for name in worlds],
            (
                "Recall: of classes and planted factors, those with a failure. Precision: of "
                "failures, those of a planted factor. Means over seeds on TEST.",
            ),
        )


def null_part(counts: Sequence[int]) -> Part:
    """Return in how many worlds without a shortcut something was found, and so would be made.

    Args:
        counts: the number of failures that were found in each world.
    """
    false = sum(count > 0 for count in counts)
    low, high = wilson_interval(false, len(counts))
    cells = {
        "worlds with a false failure": f"{false} of {len(counts)}",
        "95 % (Wilson)": f"{percent(low, 0)}% to {percent(high, 0)}%",
        "failures": str(sum(counts)),
    }
    columns = [text_column(name, itemgetter(name)) for name in cells]
    note = "Where nothing is found, nothing is made: recipe=repair refuses an empty file."
    rows = [((str(len(counts)),), cells)]
    return make_part("Worlds without a shortcut", ("Worlds",), columns, rows, (note,))


def dose_curve(responses: Mapping[float, Mapping[int, float]]) -> tuple[Curve, str]:
    """Return the figure of the dose, and a sentence of advice on it."""
    if any(dose < 0 for dose in responses):
        raise UserError("table.dose: a number of edits is 0 or more")
    fit = fit_saturation(responses, generator(0, "repair-dose"))
    low, high = fit.limit_interval
    near, far = fit.half_interval
    largest = max(responses)
    seen = float(np.mean([*responses[largest].values()]))
    budget = fit.half * math.log2(10)
    answer = (
        "The oracle's targeted edits lower what is left of the declared failures by up to "
        f"{100 * fit.limit:.1f} points (95 % {100 * low:.1f} to {100 * high:.1f}); half of it "
        f"takes {fit.half:.0f} edits ({near:.0f} to {far:.0f}), and nine tenths {budget:.0f}."
        if fit.bounded
        else f"{largest:.0f} of the oracle's targeted edits lower what is left of the declared "
        f"failures by {100 * seen:.1f} points, and no saturation is seen: the larger the budget, "
        "the better, as far as this was tried."
    )
    measured = {dose: dict(of) for dose, of in responses.items()}
    fitted = {dose: {0: fit.at(dose)} for dose in np.linspace(0, largest, 9).tolist()}
    curve = Curve(
        "Dose of targeted edits", "edits among 640 examples", "less is left by",
        {"measured": measured, "fitted saturation": fitted}, answer,
    )  # fmt: skip
    return curve, answer
