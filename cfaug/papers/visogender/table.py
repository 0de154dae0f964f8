"""The results of VisoGender (Hall et al., 2023): pronoun resolution and neutral retrieval."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from cfaug.report.arm_results import Runs
from cfaug.report.document import Column, Document, Entry, make_part
from cfaug.report.items import Items
from cfaug.report.page import DASH, percent, points
from cfaug.report.paper_tables import ModelsTable, read_answers
from cfaug.stats.significance import summarise

PARTS: Mapping[str, Mapping[str, str]] = {
    "Single person": {"context": "OO", "asked": "occupation"},
    "Two people": {"context": "OP", "asked": "occupation"},
    "Same gender": {"context": "OP", "asked": "occupation", "pair": "same"},
    "Different gender": {"context": "OP", "asked": "occupation", "pair": "different"},
}
"""Columns and values of the items for the four parts of the released benchmark."""

RESOLVED = (
    "RA: mean of the accuracies for his and for her, per cent; chance is half. Gap: the accuracy "
    "for his minus that for her, in points. Small: both accuracies."
)
RETRIEVED = (
    "Mean over occupations, ± standard deviation over them. Bias@K: above 0, photos perceived as "
    "masculine are ranked first more often. Small: the value of a random ranking."
)


@dataclass(frozen=True, kw_only=True)
class VisoGenderTable(ModelsTable):
    """A row per model: resolution accuracy and its gap, and bias of retrieval.

    Args:
        retrieval: the benchmark of the retrieval items, or the end of its name.
        context: the retrieval to show: ``OP`` as in the released benchmark, or ``OO``.
        referent: the referent of the caption's pronoun, ``occupation`` or ``participant``.
    """

    benchmark: str = "visogender_resolution"
    retrieval: str = "visogender_retrieval"
    context: str = "OP"
    referent: str = "occupation"

    def build(self, runs: Runs) -> Document:
        """Return the parts of both questions."""
        resolved = self.answers(runs, lambda _, items: items)
        retrieved = read_answers(runs.root, self.retrieval, self.models, lambda _, items: items)
        self.require(resolved or retrieved, "answers of a model to VisoGender")
        parts = []
        if resolved:
            columns = []
            for group, wanted in PARTS.items():
                columns.append(Column("RA", partial(_accuracy, wanted), group))
                columns.append(Column("gap", partial(_gap, wanted), group))
            rows = [((model,), [items for _, items in pairs]) for model, pairs in resolved.items()]
            parts.append(make_part("Pronoun resolution", ("Model",), columns, rows, [RESOLVED]))
        # Models with the same K are in one table.
        rows_of: dict[tuple[int, ...], list[tuple[tuple[str], list[Items]]]] = {}
        for model, pairs in retrieved.items():
            answers = [items for _, items in pairs]
            ks = tuple(sorted({int(k) for items in answers for k in items.columns["k"]}))
            rows_of.setdefault(ks, []).append(((model,), answers))
        wanted = {"context": self.context, "asked": self.referent}
        metrics = (("Bias", "bias", ""), ("MaxSkew", "max_skew", "max_skew_chance"))
        title = f"Neutral retrieval ({self.context}, {self.referent})"
        for ks, rows in rows_of.items():
            # Means over occupations, each first over checkpoints.
            columns = [
                Column(f"{name}@{k}", partial(_mean, {**wanted, "k": str(k)}, metric, chance))
                for name, metric, chance in metrics
                for k in ks
            ]
            columns.append(Column("NDKL", partial(_mean, wanted, "ndkl", "ndkl_chance")))
            parts.append(make_part(title, ("Model",), columns, rows, [RETRIEVED]))
        return self.document(*parts)


def _select(items: Items, wanted: Mapping[str, str]) -> np.ndarray:
    rows = [np.asarray(items.columns[name]).astype(str) == v for name, v in wanted.items()]
    kept: np.ndarray = np.all(rows, axis=0)
    return kept


def _by_gender(wanted: Mapping[str, str], answers: Sequence[Items]) -> list[tuple[float, float]]:
    """Return the accuracies for his and for her of each answer with photos of both."""
    pairs = []
    for items in answers:
        hits = items.metric("resolution_accuracy")
        his, her = (
            hits[_select(items, {**wanted, "gender": g})] for g in ("masculine", "feminine")
        )
        if len(his) and len(her):
            pairs.append((float(his.mean()), float(her.mean())))
    return pairs


def _accuracy(wanted: Mapping[str, str], answers: Sequence[Items]) -> Entry:
    pairs = _by_gender(wanted, answers)
    if not pairs:
        return Entry(DASH)
    means = summarise([sum(pair) / 2 for pair in pairs])
    return _entry(means.mean, means.sd, lambda value: percent(value, 1))


def _gap(wanted: Mapping[str, str], answers: Sequence[Items]) -> Entry:
    pairs = _by_gender(wanted, answers)
    if not pairs:
        return Entry(DASH)
    his, her = (float(np.mean(accuracies)) for accuracies in zip(*pairs, strict=True))
    gaps = summarise([first - second for first, second in pairs])
    small = f"{percent(his, 1)} / {percent(her, 1)}"
    return replace(_entry(gaps.mean, gaps.sd, points), small=small)


def _mean(wanted: Mapping[str, str], metric: str, chance: str, answers: Sequence[Items]) -> Entry:
    """Return the mean over occupations with their standard deviation; checkpoints averaged."""
    by_pool: dict[str, list[float]] = {}
    expected: list[float] = []
    for items in answers:
        rows = _select(items, wanted) & ~np.isnan(items.metric(metric))
        pools = (str(name).rpartition("@")[0] for name in np.asarray(items.columns["item"])[rows])
        values = dict(zip(pools, items.metric(metric)[rows].tolist(), strict=True))
        for pool, value in values.items():
            by_pool.setdefault(pool, []).append(value)
        if chance:
            expected += items.metric(chance)[rows].tolist()
    if not by_pool:
        return Entry(DASH)
    summary = summarise([float(np.mean(values)) for values in by_pool.values()])
    entry = _entry(summary.mean, summary.sd, lambda value: f"{value:.2f}")
    numbers = {**entry.numbers, "n": float(len(by_pool))}
    small = f"chance {np.mean(expected):.2f}" if expected else ""
    return replace(entry, small=small, numbers=numbers)


def _entry(mean: float, sd: float, show: Callable[[float], str]) -> Entry:
    if np.isnan(sd):
        return Entry(show(mean), numbers={"value": mean})
    return Entry(show(mean), show(sd).lstrip("+"), numbers={"value": mean, "sd": sd})
