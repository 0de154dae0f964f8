"""XMAI on ShapeScapes, by an oracle: are insertions true, and what causes a drop?

In the paper, models answer worse after a text was changed. If the changed text is no longer true of
its photo, the model is right to do so. The scenes of ShapeScapes are known, so every inserted word
and every text can be judged. The answers to texts that stayed true are reported separately, beside
those of a reader who knows all scenes: a true attribute makes a text more specific, so that reader
finds the photo more easily, not less.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Annotated

import numpy as np

from cfaug.data.shards.shards import read_sets
from cfaug.evaluation.text_pairs.entailment_items import EntailmentItems
from cfaug.evaluation.text_pairs.text_pair_items import (
    InsertionItems,
    TextPairItems,
    compare_changes,
)
from cfaug.papers.xmai.ablation_tables import (
    effect_curves,
    effects_part,
    interval_entry,
    measure_effects,
    texts_part,
    words_true,
)
from cfaug.papers.xmai.answer_tables import Checkpoints, PairTable, value_entry
from cfaug.papers.xmai.entailment_tables import change_part
from cfaug.report.arm_results import Runs
from cfaug.report.document import BarPlot, Column, Curve, Document, Entry, Part, make_part
from cfaug.report.page import DASH, p_text
from cfaug.report.paper_tables import read_answers
from cfaug.settings.read_if import GIVEN, ReadIf
from cfaug.stats.cluster_tests import MeanDifference, cluster_mean
from cfaug.worlds.shapescapes.detector import inserted_claims, read_scene, text_truth
from cfaug.worlds.shapescapes.settings import Factors

MRR = ("mrr_original", "mrr")


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
    entailers: Annotated[
        Mapping[str, str | Sequence[str]] | None, ReadIf({"entailment": GIVEN})
    ] = None
    tradeoff: str | None = None
    weights: Annotated[Mapping[str, str], ReadIf({"tradeoff": GIVEN})] = field(default_factory=dict)
    errors: str | None = None
    error_rate: Annotated[str, ReadIf({"errors": GIVEN})] = (
        "recipe.annotators.detections.error_rate"
    )

    def build(self, runs: Runs) -> Document:
        """Return the parts and figures.

        Raises:
            MissingError: if no model has answers, unless ``partial``.
        """
        by_model = self.read(runs, InsertionItems)
        self.require(by_model, f"answers to benchmark.name={self.benchmark}")
        if not by_model:
            return self.document()
        checkpoints = next(iter(by_model.values()))
        first, methods = checkpoints[0], self.named(checkpoints)
        parts = [texts_part(first, methods)]
        bars = []
        for model, of_model in by_model.items():
            named = self.named(of_model)
            parts.append(change_part(f"Ours: {model}, MRR among all photos", of_model, named, MRR))
            compared = {printed: against_reader(of_model, name) for printed, name in named.items()}
            parts.append(reader_part(f"Ours: {model} and a perfect reader", compared))
            bars.append(_bars(model, of_model, named, compared))
        if self.entailment is not None:
            answers = read_answers(runs.root, self.entailment, self.entailers, EntailmentItems)
            columns = ("accuracy_original", "accuracy")
            for model, of_model in _checkpoints(answers).items():
                title = f"Ours: {model}, accuracy on ShapeScapes-VE"
                parts.append(change_part(title, of_model, self.named(of_model), columns))
        curves: list[Curve] = []
        sweeps = (
            (self.tradeoff, self.weights, "Weights of the scores"),
            (self.errors, {"error rate": self.error_rate}, "Errors of the detector"),
        )
        for benchmark, keys, title in sweeps:
            if benchmark is None:
                continue
            swept = _checkpoints(read_answers(runs.root, benchmark, self.models, InsertionItems))
            for model, of_model in swept.items():
                effects = measure_effects(of_model, keys)
                if not effects:
                    continue
                parts.append(effects_part(f"Ours: {title}, {model}", list(keys), effects))
                curves += effect_curves(f"{title}, {model}", list(keys), effects)
                if benchmark == self.errors:
                    parts.append(_by_words(model, of_model, effects[0].all_texts.method))
        true = {name: words_true(first, method) for name, method in methods.items()}
        phrases = [
            f"{name} {100 * share.mean:.0f} %" for name, share in true.items() if share is not None
        ]
        answer = (
            f"Inserted words that are true of the photo, mean over texts: {', '.join(phrases)}."
        )
        return self.document(*parts, bars=bars, curves=curves, answer=answer)


def _checkpoints(
    answers: Mapping[str, Sequence[tuple[Path, TextPairItems]]],
) -> dict[str, Checkpoints]:
    return {name: [items for _, items in pairs] for name, pairs in answers.items()}


def _by_words(model: str, checkpoints: Checkpoints, method: str) -> Part:
    """Return the comparison with the reader by the number of inserted attributes."""
    first = checkpoints[0]
    before, after = first.texts("text_before"), first.texts("text")
    rows = first.rows(method, kept_only=True).tolist()
    counts = sorted({count_inserted(before[row], after[row]) for row in rows} - {0})
    compared = {f"{count} inserted": against_reader(checkpoints, method, count) for count in counts}
    title = f"Ours: {model} and a perfect reader, the detector of fewest errors"
    return reader_part(title, compared)


def _bars(
    model: str,
    checkpoints: Checkpoints,
    methods: Mapping[str, str],
    compared: Mapping[str, ReaderComparison | None],
) -> BarPlot:
    """Return the change of MRR by method: over all texts, over true ones, and the reader's."""
    legend = ("all texts", "texts that stayed true", "these texts, a perfect reader")
    tests = [
        {
            effect.method: effect.test.mean
            for effect in compare_changes(checkpoints, *MRR, kept_only=kept)
        }
        for kept in (False, True)
    ]
    groups: dict[str, list[tuple[str, float | None, float | None, float | None]]] = {}
    for printed, method in methods.items():
        bars = groups[printed] = []
        for name, means in zip(legend, tests, strict=False):
            mean = means.get(method)
            if mean is None:
                bars.append((name, None, None, None))
            else:
                ends = (None, None) if math.isnan(mean.low) else (-mean.high, -mean.low)
                bars.append((name, -mean.mean, *ends))
        reader = compared[printed]
        change = None if reader is None else reader.reader[1] - reader.reader[0]
        bars.append((legend[2], change, None, None))
    return BarPlot(
        f"{model}: effect of changed texts on retrieval",
        "change of MRR", groups, legend,
        note="Lines: 95 % over photos.", unit="fraction",
    )  # fmt: skip


# Models compared with a perfect reader: the part of a drop that is their own fault.

READER_NOTE = (
    "Texts that stayed true, MRR among all photos. The reader knows every scene and ranks the "
    "photos of which a text is true first, in any order. With m such photos, the expected "
    "reciprocal rank is (1 + 1/2 + ... + 1/m) / m. A loss beyond the reader's change is the "
    "model's own fault; interval and p are of that difference, over photos."
)


@dataclass(frozen=True)
class ReaderComparison:
    """A model and a reader who knows all scenes, on texts that stayed true.

    Attributes:
        model: mean reciprocal rank of the model before and after the change.
        reader: mean reciprocal rank of the reader before and after.
        change: the reader's change minus the model's, by photo; above 0, the model loses more.
    """

    model: tuple[float, float]
    reader: tuple[float, float]
    change: MeanDifference


def against_reader(
    checkpoints: Checkpoints, method: str, inserted: int | None = None
) -> ReaderComparison | None:
    """Compare a model's ranks with those of a reader who knows all scenes.

    Args:
        checkpoints: answers of one model, averaged by text.
        method: the method of the texts; only those that stayed true are used.
        inserted: number of inserted words that claim something (articles do not) in the texts to
            use; ``None`` uses all.

    Returns:
        The comparison; ``None`` if there is no such text.
    """
    first = checkpoints[0]
    scenes: dict[str, Factors] = {}
    for source in first.sources(method):
        scenes |= {
            photo_set.key: read_scene(
                photo_set.members[0].extra, f"{source}, set {photo_set.key!r}"
            )[0]
            for photo_set in read_sets(Path(source))
        }
    keys, before, after = (first.texts(name) for name in ("key", "text_before", "text"))
    clusters = first.clusters
    photos = {clusters.get(key, key): scene for key, scene in scenes.items()}
    reader = reciprocal_ranks(list(photos.values()))
    values = list[tuple[float, ...]]()
    drawn = list[str]()
    for row in first.rows(method, kept_only=True).tolist():
        if inserted is not None and count_inserted(before[row], after[row]) != inserted:
            continue
        key = keys[row]
        seen = reader(before[row], scenes[key]), reader(after[row], scenes[key])
        if seen[0] is not None and seen[1] is not None:
            model = (
                float(np.mean([checkpoint.by_key(name, method)[key] for checkpoint in checkpoints]))
                for name in MRR
            )
            values.append((*model, seen[0], seen[1]))
            drawn.append(clusters[key])
    if not values:
        return None
    model_before, model_after, reader_before, reader_after = np.array(values, np.float64).T
    lost = (reader_after - reader_before) - (model_after - model_before)
    change = cluster_mean(lost, drawn)
    means = np.mean(values, axis=0).tolist()
    return ReaderComparison((means[0], means[1]), (means[2], means[3]), change)


def count_inserted(before: str, after: str) -> int:
    """Return the number of words that claim something in a text but not in its original.

    >>> count_inserted("a ball on the grass", "an orange ball on the green grass")
    2
    """
    return len(inserted_claims(before, after))


def reciprocal_ranks(photos: Sequence[Factors]) -> Callable[[str, Factors], float | None]:
    """Return a function that gives a perfect reader's expected reciprocal rank for a text.

    >>> red, blue = Factors("ball", "red", "beach"), Factors("ball", "blue", "beach")
    >>> rank = reciprocal_ranks([red, blue])
    >>> rank("a ball", red), rank("a red ball", red), rank("a red ball", blue)
    (0.75, 1.0, None)

    Args:
        photos: all photos, including the text's own.
    """

    @cache
    def expect(text: str) -> tuple[int, float]:
        count = sum(text_truth(text, photo) is True for photo in photos)
        return count, math.fsum(1 / rank for rank in range(1, count + 1)) / max(count, 1)

    def rank(text: str, factors: Factors) -> float | None:
        return expect(text)[1] if text_truth(text, factors) is True else None

    return rank


def reader_part(title: str, compared: Mapping[str, ReaderComparison | None]) -> Part:
    """Return the ranks of a model and of the reader, as a part.

    Args:
        compared: {printed name of the method: comparison}; ``None`` without a text that stayed
            true.
    """
    rows = [((printed,), comparison) for printed, comparison in compared.items()]
    return make_part(title, ("Method",), READER_COLUMNS, rows, [READER_NOTE])


def _compared(
    name: str, cell: Callable[[ReaderComparison], Entry], group: str = ""
) -> Column[ReaderComparison | None]:
    return Column(
        name, lambda comparison: Entry(DASH) if comparison is None else cell(comparison), group
    )


LOST = "lost beyond the reader"
READER_COLUMNS: tuple[Column[ReaderComparison | None], ...] = (
    _compared("texts", lambda comparison: Entry(f"{comparison.change.items:,}")),
    _compared("before", lambda comparison: value_entry(comparison.model[0]), "model"),
    _compared("after", lambda comparison: value_entry(comparison.model[1]), "model"),
    _compared("before", lambda comparison: value_entry(comparison.reader[0]), "reader"),
    _compared("after", lambda comparison: value_entry(comparison.reader[1]), "reader"),
    _compared("MRR", lambda comparison: interval_entry(comparison.change, sign=True), LOST),
    _compared("p", lambda comparison: Entry(p_text(comparison.change.p)), LOST),
)
