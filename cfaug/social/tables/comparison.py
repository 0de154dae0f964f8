"""Models side by side on one question, each against the first, over subjects and sets."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from cfaug.report.document import Entry
from cfaug.report.item_tests import ItemTest, compare_items
from cfaug.report.items import RANKINGS
from cfaug.report.numbers import DASH, p_text
from cfaug.social.skew_items import ALPHA, RankingTask
from cfaug.social.skew_rankings import compare_over_sets
from cfaug.social.tables.answers import NATS, ModelAnswers, mean_over_subjects
from cfaug.stats.item_tests import MeanDifference
from cfaug.stats.significance import holm

GROUPS = (("", 1), ("MaxSkew@K", 3), ("chance", 2), ("subjects that stand out", 3))
COLUMNS = ("subjects", "mean", "smallest", "largest", "by chance", "beyond chance", "Holm",
           "p <= 0.05", "by chance")  # fmt: skip
EXTREMES = ("smallest", "largest")
GAP_GROUPS = (("", 1), ("places within sets", 2), ("subjects that stand out", 1))
GAP_COLUMNS = ("subjects", "largest gap", "by chance", "Holm")
RANK_GAP = "rank_gap"
PAIRED_GROUPS = (("against the first model", 3), ("subjects and sets drawn", 3))
JOINT_COLUMNS = ("95 %", "p", "Holm")
PAIRED_COLUMNS = ("change", "p", "Holm", *JOINT_COLUMNS)

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
        model: the answers of the model.
        question: the question.
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

    def cells(self, paired: bool, extremes: bool = True) -> tuple[Entry, ...]:
        """Return the cells of a row.

        Args:
            paired: whether to add the cells of ``PAIRED_COLUMNS`` after those of ``COLUMNS``.
            extremes: whether to include the cells of ``EXTREMES``.
        """
        values = self.model.values(self.question, "max_skew", self.subject_type)
        excess = self.model.values(self.question, "max_skew_excess", self.subject_type)
        chance = self.model.values(self.question, "max_skew_chance", self.subject_type)
        own = np.array(list(values.values()))
        beyond = mean_over_subjects(excess, self.model.name, *map(str, self.question.by().values()))
        standing = self.model.standing(self.question, self.subject_type)
        ends = (float(own.min()), float(own.max())) if extremes else ()
        found = (
            Entry(f"{len(values):,}"),
            _nats(float(own.mean()), len(own)),
            *(_nats(end, len(own)) for end in ends),
            _nats(float(np.mean(list(chance.values()))), len(chance)),
            _change(beyond.mean, (beyond.low, beyond.high), len(excess)),
            _count([len(one.corrected) for one in standing]),
            _count([one.uncorrected for one in standing]),
            Entry(f"{np.mean([one.by_chance for one in standing]):.1f}"),
        )  # fmt: skip
        return (*found, *self.paired()) if paired else found

    def gap_cells(self, paired: bool) -> tuple[Entry, ...]:
        """Return the cells of ``GAP_COLUMNS`` and, if ``paired``, of ``PAIRED_COLUMNS``."""
        gaps = self.model.values(self.question, RANK_GAP, self.subject_type)
        chance = self.model.values(self.question, "rank_gap_chance", self.subject_type)
        corrected = [
            one.values(self.question, "p_gap_holm", self.subject_type)
            for one in self.model.checkpoints
        ]
        found = (
            Entry(f"{len(gaps):,}"),
            Entry(f"{np.mean(list(gaps.values())):.3f}", numbers={"n": float(len(gaps))}),
            Entry(f"{np.mean(list(chance.values())):.3f}"),
            _count([sum(p <= ALPHA for p in own.values()) for own in corrected]),
        )
        return (*found, *self.paired()) if paired else found

    def paired(self) -> tuple[Entry, ...]:
        """Return the cells of ``PAIRED_COLUMNS``: the test against the first model."""
        if self.test is None:
            return (Entry(DASH),) * len(PAIRED_COLUMNS)
        change = self.test.arm - self.test.baseline
        found = (
            _change(change, self.test.interval(NATS), self.test.items),
            Entry(p_text(self.test.p_two_sided)),
            Entry(p_text(self.p_holm), bold=self.p_holm <= ALPHA),
        )
        joint = self.over_sets
        if joint is None or math.isnan(joint.p):
            return (*found, *(Entry(DASH),) * len(JOINT_COLUMNS))
        return (
            *found,
            Entry(
                f"[{signed(joint.low)}, {signed(joint.high)}]",
                numbers={"low": joint.low, "high": joint.high, "n": float(joint.clusters)},
            ),
            Entry(p_text(joint.p)),
            Entry(p_text(self.over_sets_holm), bold=self.over_sets_holm <= ALPHA),
        )

    def says(self) -> str:
        """Return a sentence on the subjects that stand out, and their expected number by chance."""
        standing = self.model.standing(self.question, self.subject_type)
        if len(standing) > 1:
            counts = ", ".join(f"{len(one.corrected):,}" for one in standing)
            return f"{self.model.name}: {counts} subjects stand out, checkpoint by checkpoint."
        return f"{self.model.name}: {standing[0].say()}"


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
    """Return notes on ``PAIRED_COLUMNS``; empty for a single model.

    Models evaluated before rankings were saved are named, with the command to run.

    Args:
        models: the models to compare.
    """
    if len(models) < 2:
        return []
    lacking = [one for one in models if one.ranked is None]
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


def _nats(value: float, n: int) -> Entry:
    return Entry(f"{value + 0.0:.2f}", numbers={"value": value, "n": float(n)})


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
