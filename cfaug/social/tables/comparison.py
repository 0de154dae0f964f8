"""Models side by side: answers, comparisons over subjects and sets, gaps within sets."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np

from cfaug.core.rng import generator
from cfaug.report.arm_results import Runs
from cfaug.report.document import BarPlot, Column, Document, Entry, Part, make_part
from cfaug.report.item_tests import ItemTest, compare_items
from cfaug.report.items import RANKINGS, Items
from cfaug.report.page import DASH, Measure, p_text
from cfaug.report.paper_tables import ModelsTable
from cfaug.social.skew_items import (
    ALPHA,
    RankingTask,
    SignificantSubjects,
    SkewItems,
    SkewRankings,
    compare_over_sets,
    read_rankings,
)
from cfaug.social.skew_tests import ChanceSkew
from cfaug.stats.item_tests import MeanDifference, cluster_bootstrap
from cfaug.stats.significance import holm

# Models side by side on one question, each against the first, over subjects and sets.

RANK_GAP = "rank_gap"
NOTES = (
    "MaxSkew in nats (natural logarithm); log 2 = 0.69: a label twice as often as its share. By "
    "chance: the mean of random rankings of the same pools. Beyond chance: MaxSkew minus that "
    "mean, subject by subject, with the 95 % interval of a bootstrap over subjects. Subjects stand "
    "out by a permutation of labels, Holm over subjects. By chance (last): the number expected to "
    "have p <= 0.05.",
)
GAP_NOTE = (
    "Largest gap: the largest difference between two labels' mean places within their sets (first "
    "1, last 0), averaged over subjects. By chance: its expectation where labels do not matter. "
    "Subjects stand out by Friedman's test of that, Holm over subjects. The change is paired: both "
    "models rank the same sets."
)
SUBJECTS_NOTE = (
    "Change: the model's mean minus the first model's, paired over subjects, with the 95 % "
    "interval of a bootstrap over subjects (too narrow below about 20). p is two-sided, Holm over "
    "all comparisons of this document. Both models rank the same images, so chance cancels. A "
    "model with other images or another K than the first has no change."
)
SETS_NOTE = (
    "Subjects and sets drawn: subjects are drawn with replacement and, within each, its sets, the "
    "same for both models. So the comparison depends neither on the choice of subjects nor on that "
    "of sets. The interval is too wide on purpose: the variation of sets counts twice (in "
    "simulations, 98 to 99 % of such intervals contain the true change)."
)


@dataclass(frozen=True)
class Compared:
    """One model's answers to one question, compared with the first model's.

    Attributes:
        subject_type: the type of the subjects; ``None`` for all.
        test: the test against the first model; ``None`` for the first model itself, or if the two
            have different test data.
        p_holm: p of ``test``, corrected over all comparisons made together.
        over_sets: the comparison with subjects and sets drawn; ``None`` if a model has no rankings.
        over_sets_holm: p of ``over_sets``, corrected likewise.
    """

    model: ModelAnswers
    question: RankingTask
    subject_type: str | None
    test: ItemTest | None
    p_holm: float = math.nan
    over_sets: MeanDifference | None = None
    over_sets_holm: float = math.nan

    def values(self, metric: str) -> dict[str, float]:
        """Return the mean over checkpoints by subject."""
        return self.model.values(self.question, metric, self.subject_type)

    @cached_property
    def skews(self) -> np.ndarray:
        """MaxSkew of each subject."""
        return np.array(list(self.values("max_skew").values()))

    @cached_property
    def standing(self) -> list[SignificantSubjects]:
        """Which subjects stand out, for each checkpoint."""
        return self.model.standing(self.question, self.subject_type)

    def says(self) -> str:
        """Return a sentence on the subjects that stand out, and their expected number by chance."""
        if len(self.standing) > 1:
            counts = ", ".join(f"{len(subjects.corrected):,}" for subjects in self.standing)
            return f"{self.model.name}: {counts} subjects stand out, checkpoint by checkpoint."
        return f"{self.model.name}: {self.standing[0].say()}"


def skew_columns(paired: bool, extremes: bool = True) -> list[Column[Compared]]:
    """Return the columns of MaxSkew and of the subjects that stand out.

    Args:
        paired: whether the comparison with the first model follows.
        extremes: whether the smallest and the largest skew of a subject are shown.
    """
    skew, chance, out = "MaxSkew@K", "chance", "subjects that stand out"
    ends = [
        Column[Compared]("smallest", lambda one: _nats(one.skews.min(), one.skews), skew),
        Column[Compared]("largest", lambda one: _nats(one.skews.max(), one.skews), skew),
    ]
    return [
        Column("subjects", lambda one: Entry(f"{len(one.skews):,}")),
        Column("mean", lambda one: _nats(one.skews.mean(), one.skews), skew),
        *(ends if extremes else ()),
        Column("by chance", lambda one: _mean_nats(one.values("max_skew_chance")), chance),
        Column("beyond chance", _beyond_chance, chance),
        Column("Holm", lambda one: _count([len(own.corrected) for own in one.standing]), out),
        Column("p <= 0.05", lambda one: _count([own.uncorrected for own in one.standing]), out),
        Column("by chance", lambda one: _mean_by_chance(one.standing), out),
        *(PAIRED_COLUMNS if paired else ()),
    ]


def gap_columns(paired: bool) -> list[Column[Compared]]:
    """Return the columns of places within sets, with the comparison if ``paired``."""
    group = "places within sets"
    return [
        Column("subjects", lambda one: Entry(f"{len(one.values(RANK_GAP)):,}")),
        Column("largest gap", _largest_gap, group),
        Column("by chance", lambda one: _mean_places(one.values("rank_gap_chance")), group),
        Column("Holm", _significant_gaps, "subjects that stand out"),
        *(PAIRED_COLUMNS if paired else ()),
    ]


def _beyond_chance(comparison: Compared) -> Entry:
    excess = comparison.values("max_skew_excess")
    difference = mean_over_subjects(
        excess, comparison.model.name, *map(str, comparison.question.by().values())
    )
    return _change(difference.mean, (difference.low, difference.high), len(excess))


def _largest_gap(comparison: Compared) -> Entry:
    gaps = comparison.values(RANK_GAP)
    return Entry(_mean_places(gaps).text, numbers={"n": float(len(gaps))})


def _significant_gaps(comparison: Compared) -> Entry:
    corrected = [
        own.values(comparison.question, "p_gap_holm", comparison.subject_type)
        for own in comparison.model.checkpoints
    ]
    return _count([sum(p <= ALPHA for p in own.values()) for own in corrected])


def _paired_change(comparison: Compared) -> Entry:
    if comparison.test is None:
        return Entry(DASH)
    change = comparison.test.arm - comparison.test.baseline
    return _change(change, comparison.test.interval(NATS), comparison.test.items)


def _joint_interval(comparison: Compared) -> Entry:
    joint = comparison.over_sets
    if joint is None or math.isnan(joint.p):
        return Entry(DASH)
    return Entry(
        f"[{signed(joint.low)}, {signed(joint.high)}]",
        numbers={"low": joint.low, "high": joint.high, "n": float(joint.clusters)},
    )


def _against(comparison: Compared) -> Entry:
    return Entry(DASH if comparison.test is None else p_text(comparison.test.p_two_sided))


def _against_holm(comparison: Compared) -> Entry:
    if comparison.test is None:
        return Entry(DASH)
    return Entry(p_text(comparison.p_holm), bold=comparison.p_holm <= ALPHA)


def _joint(comparison: Compared) -> Entry:
    if comparison.over_sets is None or math.isnan(comparison.over_sets.p):
        return Entry(DASH)
    return Entry(p_text(comparison.over_sets.p))


def _joint_holm(comparison: Compared) -> Entry:
    if comparison.over_sets is None or math.isnan(comparison.over_sets.p):
        return Entry(DASH)
    return Entry(p_text(comparison.over_sets_holm), bold=comparison.over_sets_holm <= ALPHA)


AGAINST, DRAWN = "against the first model", "subjects and sets drawn"
PAIRED_COLUMNS = (
    Column("change", _paired_change, AGAINST),
    Column("p", _against, AGAINST),
    Column("Holm", _against_holm, AGAINST),
    Column("95 %", _joint_interval, DRAWN),
    Column("p", _joint, DRAWN),
    Column("Holm", _joint_holm, DRAWN),
)
"""The comparison with the first model; a dash for the first itself."""


def compare_models(
    models: Sequence[ModelAnswers],
    questions: Sequence[tuple[RankingTask, str | None]],
    metric: str = "max_skew",
) -> list[Compared]:
    """Compare each model with the first on each question, with Holm over all comparisons.

    Args:
        models: the models; each is compared with the first.
        questions: pairs of a question and the type of its subjects, ``None`` for all.
        metric: the column of the items to compare; lower is better.

    Returns:
        One comparison per question and model with answers; empty if no subject counts.
    """
    found = []
    for question, subject_type in questions:
        for model in models:
            if not model.values(question, metric, subject_type):
                continue
            test = _test(model, models[0], question, subject_type, metric)
            ours, theirs = model.ranked, models[0].ranked
            over_sets = None
            if test is not None and ours is not None and theirs is not None:
                over_sets = compare_over_sets(ours, theirs, question, metric, subject_type)
            found.append(Compared(model, question, subject_type, test, over_sets=over_sets))
    p = [math.nan if one.test is None else one.test.p_two_sided for one in found]
    joint = [math.nan if one.over_sets is None else one.over_sets.p for one in found]
    every = zip(found, holm(p).tolist(), holm(joint).tolist(), strict=True)
    return [replace(one, p_holm=own, over_sets_holm=other) for one, own, other in every]


def explain_comparison(models: Sequence[ModelAnswers]) -> list[str]:
    """Return notes on the comparison; empty for a single model.

    Models evaluated before rankings were saved are named, with the command to run.
    """
    if len(models) < 2:
        return []
    lacking = [model for model in models if model.ranked is None]
    if not lacking:
        return [SUBJECTS_NOTE, SETS_NOTE]
    folder = lacking[0].checkpoints[0].items.folder
    return [
        SUBJECTS_NOTE,
        SETS_NOTE,
        f"No rankings of {', '.join(one.name for one in lacking)} were saved, so sets are not "
        f"drawn for them. Run the same evaluate.py command again to write them ({RANKINGS}/ in "
        f"{folder}); saved embeddings are reused.",
    ]


def _test(
    model: ModelAnswers,
    first: ModelAnswers,
    question: RankingTask,
    subject_type: str | None,
    metric: str,
) -> ItemTest | None:
    if model is first or model.asked != first.asked:
        return None
    by = question.by() | ({} if subject_type is None else {"subject_type": subject_type})
    return compare_items(model.items, first.items, metric, NATS, by)


def _nats(value: float, over: Sized) -> Entry:
    return Entry(f"{value + 0.0:.2f}", numbers={"value": float(value), "n": float(len(over))})


def _mean_nats(by_subject: Mapping[str, float]) -> Entry:
    return _nats(float(np.mean(list(by_subject.values()))), by_subject)


def _mean_places(by_subject: Mapping[str, float]) -> Entry:
    return Entry(f"{np.mean(list(by_subject.values())):.3f}")


def _mean_by_chance(standing: Sequence[SignificantSubjects]) -> Entry:
    return Entry(f"{np.mean([own.by_chance for own in standing]):.1f}")


def _count(found: Sequence[int]) -> Entry:
    mean = sum(found) / len(found)
    return Entry(f"{mean:,.0f}" if mean == int(mean) else f"{mean:,.1f}", numbers={"value": mean})


def _change(value: float, interval: tuple[float, float], n: int) -> Entry:
    low, high = interval
    small = "" if math.isnan(low) else f"[{signed(low)}, {signed(high)}]"
    return Entry(signed(value), small=small, numbers={"value": value, "n": float(n)})


def signed(value: float) -> str:
    """Return a difference of skews as printed.

    >>> signed(0.234), signed(-0.001)
    ('+0.23', '+0.00')
    """
    return f"{round(value, 2) + 0.0:+.2f}"


# Models' retrieval for neutral prompts, for the paper's figures and our tables.

COMMANDS = (
    "python generate.py recipe=social data.grid=race_gender paths.shards=shards/social",
    "python evaluate.py benchmark=skew benchmark.data=shards/social model=open_clip",
)
NATS = Measure("nats", "lower")
"""The measure of skews: natural logarithms of ratios."""


@dataclass(frozen=True)
class ModelAnswers:
    """One model's retrieval; values are means over its checkpoints.

    Attributes:
        checkpoints: the answers of the model's checkpoints, at least one.
    """

    name: str
    checkpoints: Sequence[SkewItems]

    @property
    def items(self) -> list[Items]:
        """The items of each checkpoint."""
        return [checkpoint.items for checkpoint in self.checkpoints]

    @cached_property
    def ranked(self) -> list[tuple[SkewItems, SkewRankings]] | None:
        """The checkpoints with their rankings; ``None`` if one has no saved rankings."""
        found = [(checkpoint, read_rankings(checkpoint)) for checkpoint in self.checkpoints]
        kept = [(one, rankings) for one, rankings in found if rankings is not None]
        return kept if len(kept) == len(found) else None

    @property
    def asked(self) -> frozenset[str]:
        """Hashes of its checkpoints' test data."""
        return frozenset(checkpoint.items.data for checkpoint in self.checkpoints)

    def choose(self, grid: str, labelling: str, k: int | None) -> RankingTask | None:
        """Return the question of a labelling, as ``SkewItems.choose`` does."""
        return self.checkpoints[0].choose(grid, labelling, k)

    def values(
        self, question: RankingTask, metric: str = "max_skew", subject_type: str | None = None
    ) -> dict[str, float]:
        """Return the mean over checkpoints by subject, for the subjects of all checkpoints."""
        found = [
            checkpoint.values(question, metric, subject_type) for checkpoint in self.checkpoints
        ]
        shared = [name for name in found[0] if all(name in own for own in found)]
        return {name: sum(own[name] for own in found) / len(found) for name in shared}

    def gaps(self, question: RankingTask, subject_type: str | None) -> dict[str, dict[str, float]]:
        """Return the mean over checkpoints of ranks within sets, by label and subject."""
        found = [checkpoint.gaps(question, subject_type) for checkpoint in self.checkpoints]
        return {
            label: {
                name: sum(one[label][name] for one in found) / len(found)
                for name in own
                if all(name in one.get(label, {}) for one in found)
            }
            for label, own in found[0].items()
        }

    def standing(
        self, question: RankingTask, subject_type: str | None
    ) -> list[SignificantSubjects]:
        """Return which subjects stand out, for each checkpoint."""
        return [checkpoint.standing(question, subject_type) for checkpoint in self.checkpoints]

    def chance(self, question: RankingTask, subject_type: str | None) -> list[ChanceSkew]:
        """Return the distribution for a random ranking, for each subject."""
        return self.checkpoints[0].chance(question, subject_type)


def mean_over_subjects(values: dict[str, float], *about: str) -> MeanDifference:
    """Return the mean of values by subject and its interval: a bootstrap over subjects.

    Args:
        about: a description of the values, which is the key of the draws.
    """
    rng = generator(0, "social_bias", *about)
    return cluster_bootstrap(np.array(list(values.values())), list(values), rng)


@dataclass(frozen=True, kw_only=True)
class SkewTable(ModelsTable):
    """A table of the answers to ``benchmark=skew``; arguments as for ``ModelsTable``."""

    benchmark: str = "skew"
    commands: Sequence[str] = COMMANDS

    def read(self, runs: Runs) -> list[ModelAnswers]:
        """Return the answers of each model."""
        return [
            ModelAnswers(name, [answers for _, answers in own])
            for name, own in self.answers(runs, SkewItems).items()
        ]


# Which labels are ranked higher than the rest of their set? Comparisons within matched sets.
#
# Images of a set share everything but the label, so a label's rank among them, set by set, is a
# paired comparison, which counts of the first K images discard.

NOTE = (
    "Place: a label's place among the images of its own set, from 1 (best) to 0 (last), minus 1/2. "
    "Values are means over sets, then over subjects, with the 95 % interval of a bootstrap over "
    "subjects. Above 0, the label is ranked higher than the same image with other labels. Bold: "
    "different from 0 (two-sided p, Holm over all labels and models of this document, p <= 0.05)."
)


@dataclass(frozen=True, kw_only=True)
class GapsFigure(SkewTable):
    """A row per label, a column per model, for each labelling of all images.

    Args:
        grid: the grid of the images; ``None`` for every grid with answers.
        subject_type: the type of the subjects; ``None`` for all together.
        labellings: the labellings to show; ``None`` for all without a condition.
    """

    grid: str | None = None
    subject_type: str | None = None
    labellings: Sequence[str] | None = None

    def build(self, runs: Runs) -> Document:
        """Return a table and bars for each labelling.

        Raises:
            MissingError: if no model has answers, unless ``partial``.
        """
        models = self.read(runs)
        found = {
            question: {
                (model.name, label): mean_over_subjects(own, "gaps", model.name, label)
                for model in models
                for label, own in model.gaps(question, self.subject_type).items()
                if own
            }
            for question in self._asked(models)
        }
        found = {question: own for question, own in found.items() if own}
        self.require(found, "places of labels within sets")
        p = {(asked, *key): one.p for asked, own in found.items() for key, one in own.items()}
        corrected = dict(zip(p, holm(list(p.values())).tolist(), strict=True)) if p else {}
        names = [model.name for model in models]
        parts = [self._part(question, own, names, corrected) for question, own in found.items()]
        bars = [self._bars(question, own, names) for question, own in found.items()]
        return self.document(*parts, bars=bars, notes=[NOTE] if parts else [])

    def _asked(self, models: Sequence[ModelAnswers]) -> list[RankingTask]:
        """Return one question per labelling, as ranks within sets do not depend on K."""
        found: dict[tuple[str, str], RankingTask] = {}
        for model in models:
            for question in model.checkpoints[0].questions:
                wanted = (
                    question.condition is None
                    if self.labellings is None
                    else question.labelling in self.labellings
                )
                if wanted and self.grid in (None, question.grid):
                    found.setdefault((question.grid, question.labelling), question)
        return list(found.values())

    def _part(
        self,
        question: RankingTask,
        own: Mapping[tuple[str, str], MeanDifference],
        names: Sequence[str],
        corrected: Mapping[tuple[RankingTask, str, str], float],
    ) -> Part:
        def cell(name: str, label: str) -> Entry:
            one = own.get((name, label))
            p = corrected.get((question, name, label), math.nan)
            return Entry(DASH) if one is None else _cell(one, p)

        return make_part(
            f"Ours: {question.grid}, {question.labelling}: place within the set",
            (question.labelling,),
            [Column(name, partial(cell, name)) for name in names],
            [((label,), label) for label in dict.fromkeys(label for _, label in own)],
        )

    def _bars(
        self,
        question: RankingTask,
        own: Mapping[tuple[str, str], MeanDifference],
        names: Sequence[str],
    ) -> BarPlot:
        groups: dict[str, list[tuple[str, float | None, float | None, float | None]]] = {}
        for label in dict.fromkeys(label for _, label in own):
            groups[label] = []
            for name in names:
                one = own.get((name, label))
                ends = (None, None, None) if one is None else _ends(one)
                groups[label].append((name, *ends))
        title = f"{question.grid}, {question.labelling}"
        return BarPlot(title, "place within the set, above the middle", groups, tuple(names),
                       unit="places")  # fmt: skip


def _ends(difference: MeanDifference) -> tuple[float, float | None, float | None]:
    return (
        (difference.mean, None, None)
        if np.isnan(difference.low)
        else (difference.mean, difference.low, difference.high)
    )


def _cell(difference: MeanDifference, p: float) -> Entry:
    between = (
        ""
        if np.isnan(difference.low)
        else f"[{_signed(difference.low)}, {_signed(difference.high)}]"
    )
    return Entry(_signed(difference.mean), bold=p <= ALPHA, small=between,
                 numbers={"value": difference.mean, "n": float(difference.clusters)})  # fmt: skip


def _signed(value: float) -> str:
    return f"{round(value, 3) + 0.0:+.3f}"
