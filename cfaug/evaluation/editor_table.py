"""``table=edit_quality``: what editors keep, their success, and the gain from their sets."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from cfaug.evaluation.editor_items import MEASURES, EditedItems
from cfaug.report.arm_results import Runs, require_one_test
from cfaug.report.document import Column, Document, Entry, Part, Tradeoff, make_part, text_column
from cfaug.report.page import DASH, PERCENT, Measure, p_text, span_text
from cfaug.report.paper_tables import ModelsTable
from cfaug.stats.effects import t_interval
from cfaug.stats.significance import holm, paired_t, summarise

KEPT, SUCCESS = "psnr", "success"


@dataclass(frozen=True)
class EditorGain:
    """What one editor keeps, and what training on its sets gains.

    Attributes:
        name: the editor.
        kept: its mean PSNR outside the edits, in dB.
        values: the accuracy of its arm by training seed, a fraction.
        gains: the difference to the baseline's accuracy of the same seed.
    """

    name: str
    kept: float
    values: Mapping[int, float]
    gains: Mapping[int, float]

    @property
    def gain(self) -> float:
        """The mean gain over seeds."""
        return float(np.mean([*self.gains.values()]))


@dataclass(frozen=True, kw_only=True)
class EditorsTable(ModelsTable):
    """A row per editor and kind of edit; other arguments as for ``ModelsTable``.

    Args:
        arms: {editor: arm that was trained on its sets, ``experiment/arm``}; empty for none.
        baseline: the arm to which gains are relative.
        gain: benchmark and metric of the gain, a fraction in which higher is better.
        compared: editors of ``arms`` among which the one that keeps most is compared with the one
            that keeps least; ``None`` compares all.
    """

    benchmark: str = "edit_quality"
    arms: Mapping[str, str]
    baseline: str
    gain: Sequence[str]
    compared: Sequence[str] | None = None

    def build(self, runs: Runs) -> Document:
        """Return a part for every judge, and one of gains, with a figure for both.

        Raises:
            MissingError: if there are no edits, or an arm was not evaluated, unless ``partial``.
        """
        judges = {
            model if len(checkpoints) == 1 else f"{model}, {folder.name}": items
            for model, checkpoints in self.answers(runs, EditedItems).items()
            for folder, items in checkpoints
        }
        self.require(judges, "edits measured by benchmark=edit_quality")
        if not judges:
            return self.document()
        first = next(iter(judges.values()))
        tradeoffs = [self._success_plot(first)]
        parts = [self._quality(judge, items) for judge, items in judges.items()]
        gains, answer = self._gains(runs, first), ""
        if gains:
            parts.append(self._gain_part(gains))
            tradeoffs.append(self._gain_plot(gains))
            answer = compare_extremes([g for g in gains if g.name in (self.compared or self.arms)])
        return self.document(*parts, tradeoffs=tradeoffs, answer=answer)

    def _quality(self, judge: str, items: EditedItems) -> Part:
        def cell(metric: str, row: tuple[str, str | None]) -> Entry:
            measure, estimate = MEASURES[metric], items.estimate(metric, items.rows(*row))
            if estimate is None:
                return Entry(DASH)
            by_folder = items.by_folder(metric, row[0]) if row[1] is None else {}
            spread = summarise([*by_folder.values()]).sd if len(by_folder) > 1 else math.nan
            numbers = {"value": estimate.mean, "n": float(estimate.items)}
            numbers |= {} if math.isnan(spread) else {"sd": spread}
            ends = (measure.text(end, 1) for end in (estimate.low, estimate.high))
            between = "" if math.isnan(estimate.low) else f"[{', '.join(ends)}]"
            sub = "" if math.isnan(spread) else measure.spread(spread)
            return Entry(measure.text(estimate.mean, 1), sub, small=between, numbers=numbers)

        rows: list[tuple[tuple[str, ...], tuple[str, str | None]]] = []
        for name in items.sets:
            kinds: list[str | None] = [None, *items.kinds(name)]
            rows += [((name, kind or "all edits"), (name, kind)) for kind in kinds]
        columns = [
            text_column("n", lambda row: f"{len(items.rows(*row)):,}"),
            *(
                Column(measure.header(metric.replace("_", " ")), partial(cell, metric))
                for metric, measure in MEASURES.items()
                if metric in items.items.columns
            ),
        ]
        note = (
            "PSNR, SSIM and feature distance: outside the mask of the edit. ±: over folders "
            "(seeds of the editor). Small: 95 % interval of a bootstrap over photos. "
            "Reconstructions count only in their own row."
        )
        return make_part(f"Judged by {judge}", ("Editor", "Edits"), columns, rows, [note])

    def _gains(self, runs: Runs, items: EditedItems) -> list[EditorGain]:
        known = {name: arm for name, arm in self.arms.items() if name in items.sets}
        arms = {arm: runs.arm(arm) for arm in [self.baseline, *known.values()]}
        require_one_test(self.name, arms.items(), {self.gain[0]})
        cell = (self.gain[0], self.gain[1])
        values = {arm: results.values(cell) for arm, results in arms.items()}
        lacking = [f"{' '.join(cell)} of {arm}" for arm, seeds in values.items() if not seeds]
        self.require(not (known and lacking), *lacking)
        gains = []
        for name, arm in known.items():
            shared = sorted(values[arm].keys() & values[self.baseline].keys())
            if shared:
                of_seed = {seed: values[arm][seed] - values[self.baseline][seed] for seed in shared}
                kept = items.estimate(KEPT, items.rows(name))
                kept_mean = math.nan if kept is None else kept.mean
                gains.append(EditorGain(name, kept_mean, values[arm], of_seed))
        return gains

    def _gain_part(self, gains: Sequence[EditorGain]) -> Part:
        p = dict(
            zip(
                [gain.name for gain in gains],
                holm([paired_t([*gain.gains.values()], "two-sided") for gain in gains]),
                strict=True,
            )
        )

        def accuracy(gain: EditorGain) -> Entry:
            summary = summarise([*gain.values.values()])
            numbers = {"value": summary.mean, "n": float(summary.n)}
            return Entry(PERCENT.text(summary.mean, 1), PERCENT.spread(summary.sd), numbers=numbers)

        def change(gain: EditorGain) -> Entry:
            low, high = t_interval([*gain.gains.values()])
            ends = f"[{PERCENT.difference(low)}, {PERCENT.difference(high)}]"
            between = "" if math.isnan(low) else ends
            numbers = {"value": gain.gain, "n": float(len(gain.gains))}
            return Entry(PERCENT.difference(gain.gain), small=between, numbers=numbers)

        columns = [
            text_column("PSNR (dB)", lambda gain: MEASURES[KEPT].text(gain.kept)),
            Column("accuracy, %", accuracy),
            Column("gain, points", change),
            text_column("p (Holm)", lambda gain: p_text(float(p[gain.name]))),
        ]
        seeds = max(len(gain.gains) for gain in gains)
        return make_part(
            f"Training on the sets of each editor: {self.gain[0]}",
            ("Editor",),
            columns,
            [((gain.name,), gain) for gain in gains],
            (
                f"Gain: against {self.baseline} of the same seed ({seeds} seeds), with Student's "
                "95 % interval; p: paired t-test, two-sided, Holm over editors.",
            ),
        )

    def _success_plot(self, items: EditedItems) -> Tradeoff:
        series = {
            name: [("", items.by_folder(KEPT, name), items.by_folder(SUCCESS, name))]
            for name in items.sets
        }
        return _plot("Kept content against success", "success (%)", series, "seeds of the editor")

    def _gain_plot(self, gains: Sequence[EditorGain]) -> Tradeoff:
        series = {
            gain.name: [("", dict.fromkeys(gain.gains, gain.kept), gain.gains)] for gain in gains
        }
        title = f"gain of {self.gain[0]} (points)"
        return _plot("Kept content against gain", title, series, "seeds of the training")


Series = Mapping[str, Sequence[tuple[str, Mapping[int, float], Mapping[int, float]]]]


def _plot(title: str, y_title: str, series: Series, over: str) -> Tradeoff:
    note = f"Whiskers: 95 % intervals over {over} (Student)."
    return Tradeoff(title, "PSNR outside the edit (dB)", y_title, series, note, ("dB", "fraction"))


def compare_extremes(gains: Sequence[EditorGain]) -> str:
    """Say whether the editor that keeps most gains more than the one that keeps least.

    The difference is paired over training seeds (Student's t, two-sided). Kendall's tau between
    kept content and gain over all editors is beside it; with few editors it says little.
    """
    known = [gain for gain in gains if not math.isnan(gain.kept)]
    if len(known) < 2:
        return ""
    from scipy.stats import kendalltau

    ordered = sorted(known, key=lambda gain: gain.kept)
    least, most = ordered[0], ordered[-1]
    shared = sorted(least.gains.keys() & most.gains.keys())
    differences = [most.gains[seed] - least.gains[seed] for seed in shared]
    low, high = t_interval(differences)
    tau = float(kendalltau([g.kept for g in known], [g.gain for g in known]).statistic)
    points = Measure()
    return (
        f"{most.name}, which keeps most ({most.kept:.1f} dB), gains "
        f"{points.amount(most.gain)}, and {least.name}, which keeps least ({least.kept:.1f} dB), "
        f"{points.amount(least.gain)}: the difference is "
        f"{points.amount(float(np.mean(differences)))} "
        f"({span_text(points.difference, low, high)}, p = "
        f"{p_text(paired_t(differences, 'two-sided'))}, {len(shared)} seeds). Kendall's tau of "
        f"kept content and gain over {len(known)} editors: {tau:.2f}."
    )
