"""Models side by side: answers, comparisons over subjects and sets, gaps within sets."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np

from cfaug.papers.social.skew_items import ALPHA, RankingTask, SignificantSubjects, SkewItems
from cfaug.papers.social.skew_rankings import SkewRankings, compare_over_sets, read_rankings
from cfaug.report.arm_results import Runs
from cfaug.report.document import BarPlot, Column, Document, Entry, Part, make_part
from cfaug.report.item_tests import ItemTest, compare_items
from cfaug.report.items import RANKINGS, Items
from cfaug.report.page import DASH, Measure, p_text
from cfaug.report.paper_tables import ModelsTable
from cfaug.stats.cluster_tests import MeanDifference, cluster_mean
from cfaug.stats.significance import holm
from cfaug.stats.skew_tests import ChanceSkew

# Models side by side on one question, each against the first, over subjects and sets.

RANK_GAP = "rank_gap"
NOTES = (
    "MaxSkew in nats (natural logarithm); log 2 = 0.69: a label twice as often as its share. By "
    "chance: the mean of random rankings of the same pools. Beyond chance: MaxSkew minus that "
    "mean, subject by subject, with the 95 % interval over subjects. Subjects stand "
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
    "interval over subjects. p is two-sided, Holm over "
    "all comparisons of this document. Both models rank the same images, so chance cancels. A "
    "model with other images or another K than the first has no change."
)
SETS_NOTE = (
    "Subjects and sets drawn: subjects are drawn with replacement and, within each, its sets, the "
    "same for both models. So the comparison depends neither on the choice of subjects nor on that "
    "of sets. The interval is too wide on purpose: the variation of sets counts twice (in "
    "simulations, 98 to 99 % of such intervals contain the true change). With few subjects the "
    "interval and p are those of flipped signs of subjects."
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

    def mean(self, metric: str) -> float:
        """Return the mean over subjects."""
        return float(np.mean(list(self.values(metric).values())))

    @property
    def p(self) -> float:
        """The two-sided p of ``test``, uncorrected."""
        return math.nan if self.test is None else self.test.p_two_sided

    @property
    def p_over_sets(self) -> float:
        """The p of ``over_sets``, uncorrected."""
        return math.nan if self.over_sets is None else self.over_sets.p

    @cached_property
    def skews(self) -> np.ndarray:
        """MaxSkew of each subject."""
        return np.array(list(self.values("max_skew").values()))

    @cached_property
    def standing(self) -> list[SignificantSubjects]:
        """Which subjects stand out, for each checkpoint."""
        return self.model.standing(self.question, self.subject_type)

    def describe(self) -> str:
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
        Column[Compared]("smallest", lambda row: _nats(row.skews.min(), len(row.skews)), skew),
        Column[Compared]("largest", lambda row: _nats(row.skews.max(), len(row.skews)), skew),
    ]
    return [
        Column("subjects", lambda row: Entry(f"{len(row.skews):,}")),
        Column("mean", lambda row: _nats(row.skews.mean(), len(row.skews)), skew),
        *(ends if extremes else ()),
        Column(
            "by chance",
            lambda row: _nats(row.mean("max_skew_chance"), len(row.values("max_skew_chance"))),
            chance,
        ),
        Column("beyond chance", _beyond_chance, chance),
        Column(
            "Holm", lambda row: _count([len(subjects.corrected) for subjects in row.standing]), out
        ),
        Column(
            "p <= 0.05",
            lambda row: _count([subjects.uncorrected for subjects in row.standing]),
            out,
        ),
        Column(
            "by chance",
            lambda row: Entry(f"{np.mean([subjects.by_chance for subjects in row.standing]):.1f}"),
            out,
        ),
        *(PAIRED_COLUMNS if paired else ()),
    ]


def gap_columns(paired: bool) -> list[Column[Compared]]:
    """Return the columns of places within sets, with the comparison if ``paired``."""
    group = "places within sets"
    return [
        Column("subjects", lambda row: Entry(f"{len(row.values(RANK_GAP)):,}")),
        Column(
            "largest gap",
            lambda row: Entry(
                f"{row.mean(RANK_GAP):.3f}", numbers={"n": float(len(row.values(RANK_GAP)))}
            ),
            group,
        ),
        Column("by chance", lambda row: Entry(f"{row.mean('rank_gap_chance'):.3f}"), group),
        Column("Holm", _significant_gaps, "subjects that stand out"),
        *(PAIRED_COLUMNS if paired else ()),
    ]


def _nats(value: float, n: int) -> Entry:
    return Entry(f"{value + 0.0:.2f}", numbers={"value": float(value), "n": float(n)})


def _beyond_chance(row: Compared) -> Entry:
    excess = row.values("max_skew_excess")
    change = mean_over_subjects(excess)
    return _change(change.mean, (change.low, change.high), len(excess))


def _significant_gaps(row: Compared) -> Entry:
    corrected = [
        checkpoint.values(row.question, "p_gap_holm", row.subject_type)
        for checkpoint in row.model.checkpoints
    ]
    return _count([sum(p <= ALPHA for p in p_values.values()) for p_values in corrected])


def _count(counts: Sequence[int]) -> Entry:
    mean = sum(counts) / len(counts)
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


def _paired_change(row: Compared) -> Entry:
    if row.test is None:
        return Entry(DASH)
    return _change(row.test.arm - row.test.baseline, row.test.interval(NATS), row.test.items)


def _joint_interval(row: Compared) -> Entry:
    joint = row.over_sets
    if joint is None or math.isnan(joint.p):
        return Entry(DASH)
    return Entry(
        f"[{signed(joint.low)}, {signed(joint.high)}]",
        numbers={"low": joint.low, "high": joint.high, "n": float(joint.clusters)},
    )


def _corrected(p: float) -> Entry:
    return Entry(p_text(p), bold=p <= ALPHA)


AGAINST, DRAWN = "against the first model", "subjects and sets drawn"
PAIRED_COLUMNS = (
    Column("change", _paired_change, AGAINST),
    Column[Compared]("p", lambda row: Entry(p_text(row.p)), AGAINST),
    Column[Compared]("Holm", lambda row: _corrected(row.p_holm), AGAINST),
    Column("95 %", _joint_interval, DRAWN),
    Column[Compared]("p", lambda row: Entry(p_text(row.p_over_sets)), DRAWN),
    Column[Compared]("Holm", lambda row: _corrected(row.over_sets_holm), DRAWN),
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
    rows = []
    for question, subject_type in questions:
        by = question.by() | ({} if subject_type is None else {"subject_type": subject_type})
        for model in models:
            if not model.values(question, metric, subject_type):
                continue
            test = over_sets = None
            first = models[0]
            if model is not first and model.data_hashes == first.data_hashes:
                test = compare_items(model.items, first.items, metric, NATS, by)
            if test is not None and model.ranked and first.ranked:
                over_sets = compare_over_sets(
                    model.ranked, first.ranked, question, metric, subject_type
                )
            rows.append(Compared(model, question, subject_type, test, over_sets=over_sets))
    corrected = (holm([row.p for row in rows]), holm([row.p_over_sets for row in rows]))
    every = zip(rows, *(p.tolist() for p in corrected), strict=True)
    return [replace(row, p_holm=p, over_sets_holm=joint) for row, p, joint in every]


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
        f"No rankings of {', '.join(model.name for model in lacking)} were saved, so sets are not "
        f"drawn for them. Run the same evaluate.py command again to write them ({RANKINGS}/ in "
        f"{folder}); saved embeddings are reused.",
    ]


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
        pairs = [(checkpoint, read_rankings(checkpoint)) for checkpoint in self.checkpoints]
        kept = [(checkpoint, rankings) for checkpoint, rankings in pairs if rankings is not None]
        return kept if len(kept) == len(pairs) else None

    @property
    def data_hashes(self) -> frozenset[str]:
        """Hashes of its checkpoints' test data."""
        return frozenset(checkpoint.items.data for checkpoint in self.checkpoints)

    def choose(self, grid: str, labelling: str, k: int | None) -> RankingTask | None:
        """Return the question of a labelling, as ``SkewItems.choose`` does."""
        return self.checkpoints[0].choose(grid, labelling, k)

    def values(
        self, question: RankingTask, metric: str = "max_skew", subject_type: str | None = None
    ) -> dict[str, float]:
        """Return the mean over checkpoints by subject, for the subjects of all checkpoints."""
        by_checkpoint = [
            checkpoint.values(question, metric, subject_type) for checkpoint in self.checkpoints
        ]
        shared = [
            name
            for name in by_checkpoint[0]
            if all(name in by_subject for by_subject in by_checkpoint)
        ]
        return {
            name: sum(by_subject[name] for by_subject in by_checkpoint) / len(by_checkpoint)
            for name in shared
        }

    def gaps(self, question: RankingTask, subject_type: str | None) -> dict[str, dict[str, float]]:
        """Return the mean over checkpoints of ranks within sets, by label and subject."""
        by_checkpoint = [checkpoint.gaps(question, subject_type) for checkpoint in self.checkpoints]
        return {
            label: {
                name: sum(gaps[label][name] for gaps in by_checkpoint) / len(by_checkpoint)
                for name in by_subject
                if all(name in gaps.get(label, {}) for gaps in by_checkpoint)
            }
            for label, by_subject in by_checkpoint[0].items()
        }

    def standing(
        self, question: RankingTask, subject_type: str | None
    ) -> list[SignificantSubjects]:
        """Return which subjects stand out, for each checkpoint."""
        return [checkpoint.standing(question, subject_type) for checkpoint in self.checkpoints]

    def chance(self, question: RankingTask, subject_type: str | None) -> list[ChanceSkew]:
        """Return the distribution for a random ranking, for each subject."""
        return self.checkpoints[0].chance(question, subject_type)


def mean_over_subjects(values: dict[str, float]) -> MeanDifference:
    """Return the mean of values by subject and its interval over subjects."""
    return cluster_mean(list(values.values()), list(values))


@dataclass(frozen=True, kw_only=True)
class SkewTable(ModelsTable):
    """A table of the answers to ``benchmark=skew``; arguments as for ``ModelsTable``."""

    benchmark: str = "skew"
    commands: Sequence[str] = COMMANDS
    """the commands that make what it needs"""

    def read(self, runs: Runs) -> list[ModelAnswers]:
        """Return the answers of each model."""
        return [
            ModelAnswers(name, [answers for _, answers in pairs])
            for name, pairs in self.answers(runs, SkewItems).items()
        ]


# Which labels are ranked higher than the rest of their set? Comparisons within matched sets.
#
# Images of a set share everything but the label, so a label's rank among them, set by set, is a
# paired comparison, which counts of the first K images discard.

NOTE = (
    "Place: a label's place among the images of its own set, from 1 (best) to 0 (last), minus 1/2. "
    "Values are means over sets, then over subjects, with the 95 % interval over "
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
        """Return a table and bars for each labelling."""
        models = self.read(runs)
        # One question per labelling, as ranks within sets do not depend on K.
        questions: dict[tuple[str, str], RankingTask] = {}
        for model in models:
            for question in model.checkpoints[0].questions:
                wanted = (
                    question.condition is None
                    if self.labellings is None
                    else question.labelling in self.labellings
                )
                if wanted and self.grid in (None, question.grid):
                    questions.setdefault((question.grid, question.labelling), question)
        by_question = {
            question: {
                (model.name, label): mean_over_subjects(by_subject)
                for model in models
                for label, by_subject in model.gaps(question, self.subject_type).items()
                if by_subject
            }
            for question in questions.values()
        }
        by_question = {question: gaps for question, gaps in by_question.items() if gaps}
        self.require(by_question, "places of labels within sets")
        p = {(task, *key): gap.p for task, gaps in by_question.items() for key, gap in gaps.items()}
        corrected = dict(zip(p, holm(list(p.values())).tolist(), strict=True)) if p else {}
        names = [model.name for model in models]
        laid_out = [
            _lay_out_gaps(task, gaps, names, corrected) for task, gaps in by_question.items()
        ]
        parts, bars = zip(*laid_out, strict=True) if laid_out else ((), ())
        return self.document(*parts, bars=bars, notes=[NOTE] if parts else [])


def _lay_out_gaps(
    question: RankingTask,
    gaps: Mapping[tuple[str, str], MeanDifference],
    names: Sequence[str],
    corrected: Mapping[tuple[RankingTask, str, str], float],
) -> tuple[Part, BarPlot]:
    """Return a row and a group of bars for each label, with a column and a bar for each model."""

    def cell(name: str, label: str) -> Entry:
        if (name, label) not in gaps:
            return Entry(DASH)
        gap = gaps[name, label]
        low, mean, high = (f"{round(end, 3) + 0.0:+.3f}" for end in (gap.low, gap.mean, gap.high))
        return Entry(
            mean,
            bold=corrected[question, name, label] <= ALPHA,
            small="" if np.isnan(gap.low) else f"[{low}, {high}]",
            numbers={"value": gap.mean, "n": float(gap.clusters)},
        )

    labels = list(dict.fromkeys(label for _, label in gaps))
    part = make_part(
        f"Ours: {question.grid}, {question.labelling}: place within the set",
        (question.labelling,),
        [Column(name, partial(cell, name)) for name in names],
        [((label,), label) for label in labels],
    )
    groups: dict[str, list[tuple[str, float | None, float | None, float | None]]] = {}
    for label in labels:
        groups[label] = []
        for name in names:
            gap = gaps.get((name, label))
            if gap is None or np.isnan(gap.low):
                groups[label].append((name, None if gap is None else gap.mean, None, None))
            else:
                groups[label].append((name, gap.mean, gap.low, gap.high))
    title = f"{question.grid}, {question.labelling}"
    axis = "place within the set, above the middle"
    return part, BarPlot(title, axis, groups, tuple(names), unit="places")
