"""XMAI on ShapeScapes, by an oracle: are insertions true, and what causes a drop?

In the paper, models answer worse after a text was changed. If the changed text is no longer true of
its photo, the model is right to do so. The scenes of ShapeScapes are known, so every inserted word
and every text can be judged. The answers to texts that stayed true are reported separately, beside
those of a reader who knows all scenes: a true attribute makes a text more specific, so that reader
finds the photo more easily, not less.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from cfaug.core.read_with import GIVEN, ReadWith
from cfaug.report.arm_results import Runs
from cfaug.report.document import BarPlot, Curve, Document, Part
from cfaug.report.paper_answers import read_answers
from cfaug.shapescapes.oracles.xmai_reader import (
    ReaderComparison,
    against_reader,
    count_inserted,
    reader_part,
)
from cfaug.xmai.entailment_items import EntailmentItems
from cfaug.xmai.tables.answers import Checkpoints, PairTable
from cfaug.xmai.tables.drops import change_part
from cfaug.xmai.tables.effects import effect_curves, effects_part, measure_effects
from cfaug.xmai.tables.truth import texts_part
from cfaug.xmai.text_pair_items import InsertionItems, TextPairItems
from cfaug.xmai.text_pair_tests import PairedTest, compare_changes


@dataclass(frozen=True, kw_only=True)
class OracleTable(PairTable):
    """Truth of texts by method, drops of models, weights of the scores, errors of the detector.

    Other arguments as for ``PairTable``; the part of a benchmark without answers is left out.

    Args:
        entailment: benchmark of the answers to hypotheses.
        entailers: {printed name: checkpoints} of the models that answered them, as for ``models``.
        tradeoff: benchmark of the answers to sets made with several weights.
        weights: {name: key of the folders' ``run.json``}; the first is the axis, and each value of
            the second has a line.
        errors: benchmark of the answers to sets made with a detector that makes errors.
        error_rate: key of the folders' ``run.json``.
    """

    entailment: str | None = None
    entailers: Mapping[str, str | Sequence[str]] | None = None
    tradeoff: str | None = None
    weights: Mapping[str, str] = field(default_factory=dict)
    errors: str | None = None
    error_rate: str = "recipe.annotators.detections.error_rate"

    read_with: ClassVar[ReadWith] = {
        "entailers": {"entailment": GIVEN},
        "weights": {"tradeoff": GIVEN},
        "error_rate": {"errors": GIVEN},
    }

    def build(self, runs: Runs) -> Document:
        """Return the parts and figures.

        Raises:
            MissingError: if no model has answers, unless ``partial``.
            UserError: if items, sets or records cannot be read.
        """
        found = self.read(runs, InsertionItems)
        self.require(found, f"answers to benchmark.name={self.benchmark}")
        if not found:
            return self.document()
        first = next(iter(found.values()))
        parts = [texts_part(first[0], self.named(first))]
        bars = []
        for model, own in found.items():
            named = self.named(own)
            title = f"Ours: {model}, MRR among all photos"
            parts.append(change_part(title, own, named, ("mrr_original", "mrr")))
            compared = {printed: against_reader(own, name) for printed, name in named.items()}
            parts.append(reader_part(f"Ours: {model} and a perfect reader", compared))
            bars.append(_bars(model, own, named, compared))
        parts += self._entailment(runs)
        more, curves = self._sweeps(runs)
        return self.document(*parts, *more, bars=bars, curves=curves)

    def _entailment(self, runs: Runs) -> list[Part]:
        if self.entailment is None:
            return []
        found = read_answers(runs.root, self.entailment, self.entailers, EntailmentItems)
        columns = ("accuracy_original", "accuracy")
        return [
            change_part(f"Ours: {model}, accuracy on ShapeScapes-VE", own, self.named(own), columns)
            for model, own in _checkpoints(found).items()
        ]

    def _sweeps(self, runs: Runs) -> tuple[list[Part], list[Curve]]:
        parts: list[Part] = []
        curves: list[Curve] = []
        asked = (
            (self.tradeoff, self.weights, "Weights of the scores"),
            (self.errors, {"error rate": self.error_rate}, "Errors of the detector"),
        )
        for benchmark, keys, title in asked:
            if benchmark is None:
                continue
            found = _checkpoints(read_answers(runs.root, benchmark, self.models, InsertionItems))
            for model, own in found.items():
                effects = measure_effects(own, keys)
                if effects:
                    parts.append(effects_part(f"Ours: {title}, {model}", list(keys), effects))
                    curves += effect_curves(f"{title}, {model}", list(keys), effects)
                if effects and benchmark == self.errors:
                    parts.append(_by_words(model, own, effects[0].all_texts.method))
        return parts, curves


def _checkpoints(
    found: Mapping[str, Sequence[tuple[Path, TextPairItems]]],
) -> dict[str, Checkpoints]:
    return {name: [one for _, one in own] for name, own in found.items()}


def _by_words(model: str, checkpoints: Checkpoints, method: str) -> Part:
    """Return the comparison with the reader by the number of inserted attributes."""
    first = checkpoints[0]
    before, after = first.texts("text_before"), first.texts("text")
    rows = first.rows(method, kept_only=True).tolist()
    counts = sorted({count_inserted(before[row], after[row]) for row in rows} - {0})
    compared = {f"{count} inserted": against_reader(checkpoints, method, count) for count in counts}
    return reader_part(
        f"Ours: {model} and a perfect reader, the detector of fewest errors", compared
    )


def _bars(
    model: str,
    checkpoints: Checkpoints,
    methods: Mapping[str, str],
    compared: Mapping[str, ReaderComparison | None],
) -> BarPlot:
    """Return the change of MRR by method: over all texts, over true ones, and the reader's."""
    columns = ("mrr_original", "mrr")
    every = {one.method: one for one in compare_changes(checkpoints, *columns)}
    kept = {one.method: one for one in compare_changes(checkpoints, *columns, kept_only=True)}
    legend = ("all texts", "texts that stayed true", "these texts, a perfect reader")
    groups: dict[str, list[tuple[str, float | None, float | None, float | None]]] = {}
    for printed, method in methods.items():
        reader = compared[printed]
        bars = [_bar(legend[0], every.get(method)), _bar(legend[1], kept.get(method))]
        change = None if reader is None else reader.reader[1] - reader.reader[0]
        groups[printed] = [*bars, (legend[2], change, None, None)]
    return BarPlot(
        f"{model}: effect of changed texts on retrieval",
        "change of MRR", groups, legend,
        note="Lines: 95 % of a bootstrap of photos.", unit="fraction",
    )  # fmt: skip


def _bar(
    name: str, found: PairedTest | None
) -> tuple[str, float | None, float | None, float | None]:
    if found is None:
        return name, None, None, None
    mean = found.test.mean
    ends = (None, None) if math.isnan(mean.low) else (-mean.high, -mean.low)
    return (name, -mean.mean, *ends)
