"""Items, page and table of ``benchmark=edit_quality``.

The page shows photos and edits in the order of their trade-off; ``cfaug table edit_quality`` has
what editors keep, their success, and the gain from their sets.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import numpy as np

from cfaug.core.item_schema import ItemColumn, ItemSchema
from cfaug.core.types import CLUSTER, ITEM, RECONSTRUCTION, Edit, Member
from cfaug.report.arm_results import Runs, require_one_test
from cfaug.report.document import Column, Document, Entry, Part, Tradeoff, make_part, text_column
from cfaug.report.gallery import ModelPage, mark_changes
from cfaug.report.items import ModelItems
from cfaug.report.page import DASH, FRACTION, PERCENT, Measure, p_text, short, span_text
from cfaug.report.paper_tables import ModelsTable
from cfaug.stats.cluster_tests import MeanDifference, cluster_mean
from cfaug.stats.effects import t_interval
from cfaug.stats.significance import holm, paired_t, summarise

EDITED = "edited"
"""The name of a single editor."""
MEASURES: Mapping[str, Measure] = {
    "psnr": Measure("dB"),
    "ssim": Measure("SSIM"),
    "feature_distance": Measure("1 - cosine", "lower"),
    "success": Measure(FRACTION),
    "direction": Measure("cosine"),
    "text_similarity": Measure("cosine"),
    "rest_kept": Measure(FRACTION),
}
"""The numbers of an edit, with their units and directions."""
EDIT_ITEMS = ItemSchema(
    "an edit of a photo",
    (
        ItemColumn("item", "``<set>/<folder>/<key>_<member>``", "text", always=True),
        ItemColumn("cluster", "the photo", "text", always=True),
        ItemColumn("set", "the editor: a name of ``data``, or ``edited``", "text", always=True),
        ItemColumn("folder", "the number of its folder: the seed", "whole number", always=True),
        ItemColumn("photo", "the name of the photo, as ``item``", "text", always=True),
        ItemColumn(
            "kind",
            "the kind of the edit; ``reconstruction`` if the caption did not change",
            "text",
            always=True,
        ),
        ItemColumn("before", "the words that the edit replaces", "text"),
        ItemColumn("after", "the words that replace them", "text"),
        ItemColumn("text_before", "the caption of the photo", "text", always=True),
        ItemColumn("text", "the edited caption", "text", always=True),
        ItemColumn("masked", "the share of pixels that the edit may change"),
        ItemColumn(
            "psnr",
            "PSNR to the photo outside the mask, dB, at most 100 (equal); null without an outside",
            always=True,
        ),
        ItemColumn(
            "ssim",
            "SSIM of all windows around unmasked pixels, by their unmasked pixels",
            always=True,
        ),
        ItemColumn(
            "feature_distance",
            "1 - cosine of the model's features of the photo, and of the photo with everything "
            "outside the mask taken from the edit",
            always=True,
        ),
        ItemColumn(
            "success",
            "1 if the judge sees the edit, 0 if not, 0.5 for a tie; null for a reconstruction",
            always=True,
        ),
        ItemColumn(
            "direction",
            "cosine of the change of the picture and of the change of the caption, in the model's "
            "features; null where one of them did not change",
            always=True,
        ),
        ItemColumn("text_similarity", "cosine of the edit and the edited caption", always=True),
        ItemColumn("rest_kept", "1 if the oracle's judge sees everything else as in the photo"),
    ),
)
"""The items of ``benchmark=edit_quality``."""


@dataclass(frozen=True)
class EditedItems(ModelItems):
    """The edits of photos by some editors, with a model's similarities."""

    schema: ClassVar[ItemSchema] = EDIT_ITEMS
    BENCHMARK: ClassVar[str] = "edit_quality"

    @property
    def sets(self) -> list[str]:
        """The editors, in order."""
        return list(dict.fromkeys(self.texts("set")))

    def rows(self, name: str, kind: str | None = None) -> np.ndarray:
        """Return the rows of an editor, int64: of one kind, or all but reconstructions."""
        sets, kinds = np.array(self.texts("set")), np.array(self.texts("kind"))
        wanted = kinds != RECONSTRUCTION if kind is None else kinds == kind
        return np.flatnonzero((sets == name) & wanted)

    def kinds(self, name: str) -> list[str]:
        """Return the kinds of an editor's edits, in alphabetical order."""
        every = zip(self.texts("set"), self.texts("kind"), strict=True)
        return sorted({kind for editor, kind in every if editor == name})

    def estimate(self, metric: str, rows: np.ndarray) -> MeanDifference | None:
        """Return a mean with its 95 % interval over photos; ``None`` without values.

        All edits of a photo, of all folders, are one cluster.
        """
        if metric not in self.items.columns:
            return None
        values = self.items.metric(metric)[rows]
        known = ~np.isnan(values)
        if not known.any():
            return None
        photos = np.array(self.texts(CLUSTER))[rows]
        bounds = (0.0, 1.0) if MEASURES[metric].is_fraction else (-math.inf, math.inf)
        return cluster_mean(values[known], photos[known], bounds=bounds)

    def by_folder(self, metric: str, name: str) -> dict[int, float]:
        """Return the mean of a metric of each folder of an editor, by its number."""
        rows = self.rows(name)
        folders = np.asarray(self.items.columns["folder"])[rows]
        values = self.items.metric(metric)[rows]
        return {
            int(number): float(np.nanmean(values[folders == number]))
            for number in np.unique(folders)
            if not np.isnan(values[folders == number]).all()
        }


def estimate_text(measure: Measure, estimate: MeanDifference | None, missing: str) -> str:
    """Return a mean with its interval, as printed."""
    if estimate is None:
        return missing
    text = measure.text(estimate.mean, 1)
    if math.isnan(estimate.low):
        return text
    return f"{text} [{measure.text(estimate.low, 1)}, {measure.text(estimate.high, 1)}]"


def verdicts(answers: EditedItems) -> list[str]:
    """Say in a sentence for each editor what it keeps, and how often its edits succeed."""
    lines = []
    for name in answers.sets:
        rows = answers.rows(name)
        kept, success = (answers.estimate(metric, rows) for metric in ("psnr", "success"))
        psnr = estimate_text(MEASURES["psnr"], kept, "unknown")
        share = estimate_text(MEASURES["success"], success, "unknown")
        photos = len(set(np.array(answers.texts(CLUSTER))[rows].tolist()))
        lines.append(
            f"{name}: {len(rows):,} edits of {photos:,} photos, {psnr} dB outside the edit, "
            f"{share} % succeed"
        )
    return lines


SIDE = 192


def editor_page(limit: int) -> ModelPage[EditedItems]:
    """Return the definition of the page.

    Args:
        limit: most edits that are shown, spread evenly from the best trade-off to the worst.
    """
    return ModelPage(
        "edit_quality.html", EditedItems, "edits",
        lambda answers: _EditorPageData(answers, trade_off(answers[0]), limit), SIDE,
    )  # fmt: skip


def trade_off(answers: EditedItems) -> np.ndarray:
    """Return the place of each edit between the worst and the best, in [0, 1]: float64 (items,).

    The mean of two ranks among all edits, of kept content (PSNR) and of success (``direction``);
    ``nan`` for reconstructions, and for edits that lack one of them.
    """
    from scipy.stats import rankdata

    psnr, direction = (answers.items.metric(name) for name in ("psnr", "direction"))
    places = np.full(len(answers), np.nan)
    known = ~np.isnan(psnr) & ~np.isnan(direction)
    known &= np.array(answers.texts("kind")) != RECONSTRUCTION
    ranks = [rankdata(values[known]) for values in (psnr, direction)]
    places[known] = (np.mean(ranks, axis=0) - 1) / max(1, known.sum() - 1)
    return places


@dataclass
class _EditorPageData:
    answers: Sequence[EditedItems]
    places: np.ndarray
    limit: int
    images: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.first = self.answers[0]
        order = np.argsort(-self.places, kind="stable")
        order = order[: int((~np.isnan(self.places)).sum())]
        spread = np.linspace(0, len(order) - 1, min(self.limit, len(order))).round().astype(int)
        self._rows: list[int] = order[spread].tolist()

    @property
    def verdicts(self) -> list[str]:
        several = len(self.answers) > 1
        return [
            f"{answers.model}: {line}" if several else line
            for answers in self.answers
            for line in verdicts(answers)
        ]

    @property
    def subtitle(self) -> str:
        return f"{len(self._rows):,} of {len(self.first):,} pictures shown"

    def content(self) -> dict[str, Any]:
        """Return everything but the pictures: the script explains its letters."""
        tables = []  # one for each model: t title, h headers, r rows of texts
        for answers in self.answers:
            measures = {n: m for n, m in MEASURES.items() if n in answers.items.columns}
            headers = [measure.header(name.replace("_", " ")) for name, measure in measures.items()]
            rows = []
            for name in answers.sets:
                for kind in (None, *answers.kinds(name)):
                    some = answers.rows(name, kind)
                    values = [
                        estimate_text(measure, answers.estimate(metric, some), DASH)
                        for metric, measure in measures.items()
                    ]
                    rows.append([name, kind or "all edits", f"{len(some):,}", *values])
            heads = ["Editor", "Kind", "n", *headers]
            tables.append([{"t": "Means by editor", "h": heads, "r": rows}])
        # An edit: i item, s set, k kind, p pictures, t captions, o trade-off, m numbers of each
        # model: PSNR, direction, feature distance, success.
        first, edits = self.first, []
        for row in self._rows:
            kind, before, after = (first.texts(name)[row] for name in ("kind", "before", "after"))
            members = (
                Member(first.texts("text_before")[row], "0", ""),
                Member(first.texts("text")[row], "1", "", Edit(kind, before, after)),
            )
            pictures = [first.texts(name)[row] for name in ("photo", ITEM)]
            for name in pictures:
                self.images.setdefault(name, name)
            places = {name: at for at, name in enumerate(self.images)}
            edits.append({
                "i": pictures[1], "s": first.texts("set")[row], "k": kind,
                "p": [places[name] for name in pictures], "o": short(self.places[row]),
                "t": [mark_changes(members, 0), mark_changes(members, 1)],
                "m": [
                    [short(answers.items.metric(name)[row])
                     for name in ("psnr", "direction", "feature_distance", "success")]
                    for answers in self.answers
                ],
            })  # fmt: skip
        return {
            "models": [answers.model for answers in self.answers],
            "sets": first.sets,
            "kinds": sorted({first.texts("kind")[row] for row in self._rows}),
            "tables": tables,
            "edits": edits,
        }


KEPT, SUCCESS = "psnr", "success"


@dataclass(frozen=True)
class EditorGain:
    """What one editor keeps, and what training on its sets gains.

    Attributes:
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
        parts = [self._quality(judge, items) for judge, items in judges.items()]
        first = next(iter(judges.values()))
        success = {
            name: [("", first.by_folder(KEPT, name), first.by_folder(SUCCESS, name))]
            for name in first.sets
        }
        over = "seeds of the editor"
        tradeoffs = [_plot("Kept content against success", "success (%)", success, over)]
        # What training on the sets of each editor gains.
        known = {name: arm for name, arm in self.arms.items() if name in first.sets}
        arms = {arm: runs.arm(arm) for arm in [self.baseline, *known.values()]}
        require_one_test(self.name, arms.items(), {self.gain[0]})
        cell = (self.gain[0], self.gain[1])
        values = {arm: results.values(cell) for arm, results in arms.items()}
        lacking = [f"{' '.join(cell)} of {arm}" for arm, seeds in values.items() if not seeds]
        self.require(not (known and lacking), *lacking)
        gains, answer = list[EditorGain](), ""
        for name, arm in known.items():
            shared = sorted(values[arm].keys() & values[self.baseline].keys())
            if shared:
                of_seed = {seed: values[arm][seed] - values[self.baseline][seed] for seed in shared}
                kept = first.estimate(KEPT, first.rows(name))
                kept_mean = math.nan if kept is None else kept.mean
                gains.append(EditorGain(name, kept_mean, values[arm], of_seed))
        if gains:
            parts.append(self._gain_part(gains))
            gained = {g.name: [("", dict.fromkeys(g.gains, g.kept), g.gains)] for g in gains}
            title = f"gain of {self.gain[0]} (points)"
            over = "seeds of the training"
            tradeoffs.append(_plot("Kept content against gain", title, gained, over))
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
            "(seeds of the editor). Small: 95 % interval over photos. "
            "Reconstructions count only in their own row."
        )
        return make_part(f"Judged by {judge}", ("Editor", "Edits"), columns, rows, [note])

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
