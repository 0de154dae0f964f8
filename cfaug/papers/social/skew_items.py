"""The images a model retrieved for neutral prompts, read from the files of ``benchmark=skew``.

No model is needed here: figures, tables and pages are made from items and rankings alone.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from cfaug.core.errors import UserError
from cfaug.core.item_schema import ItemColumn, ItemSchema
from cfaug.core.safety.json_text import load_json
from cfaug.core.types import ITEM
from cfaug.report.items import ModelItems
from cfaug.report.plots import Band
from cfaug.stats.skew_tests import (
    ChanceSkew,
    chance_skew,
)

SKEW_ITEMS = ItemSchema(
    "a grid, labelling, K and subject",
    (
        ItemColumn("item", "``<grid>/<labelling>/<subject>@<K>``", "text", always=True),
        ItemColumn("cluster", "the subject", "text", always=True),
        ItemColumn("subject", "the subject", "text", always=True),
        ItemColumn(
            "subject_type", "the kind of the subject, such as occupation", "text", always=True
        ),
        ItemColumn("grid", "the grid of its images", "text", always=True),
        ItemColumn(
            "labelling",
            "the labels: ``race_gender``, ``gender``, ``gender|race=White``",
            "text",
            always=True,
        ),
        ItemColumn("k", "the number of images retrieved, K", "whole number", always=True),
        ItemColumn("n_pool", "images in the pool", "whole number", always=True),
        ItemColumn("n_sets", "sets in the pool", "whole number", always=True),
        ItemColumn("n_labels", "labels", "whole number", always=True),
        ItemColumn("max_skew", "MaxSkew@K, nats", always=True),
        ItemColumn(
            "max_skew_chance",
            "its exact expected value for a random ranking of that pool",
            always=True,
        ),
        ItemColumn("max_skew_chance_high", "its 95 % quantile for a random ranking"),
        ItemColumn("max_skew_excess", "the difference from chance", always=True),
        ItemColumn("max_skew_null", "its mean over permutations of labels"),
        ItemColumn(
            "p_permutation",
            "p of ``max_skew``: labels permuted within sets, or over the pool (exact)",
            always=True,
        ),
        ItemColumn("p_holm", "``p_permutation`` corrected over the subjects", always=True),
        ItemColumn(
            "p_level", "probability of a ``p_permutation`` of at most 0.05 by chance", always=True
        ),
        ItemColumn(
            "max_skew_low", "low end of the percentile interval over sets drawn with replacement"
        ),
        ItemColumn("max_skew_high", "its high end"),
        ItemColumn("min_skew", "MinSkew@K by the setting ``zeros``, nats"),
        ItemColumn("n_absent", "labels of which no image is retrieved"),
        ItemColumn("ndkl", "NDKL of the whole ranking"),
        ItemColumn("ndkl_chance", "its expected value for a random ranking"),
        ItemColumn("ndkl_excess", "the difference"),
        ItemColumn("bias", "for two labels: |first - second| / both"),
        ItemColumn("signed_bias", "the same with its sign"),
        ItemColumn("score_gap", "largest minus smallest of ``gaps``"),
        ItemColumn("rank_gap", "largest minus smallest of ``rank_gaps``"),
        ItemColumn("rank_gap_chance", "its expected value if labels do not matter"),
        ItemColumn("rank_gap_excess", "the difference"),
        ItemColumn("p_gap", "p of Friedman's test that labels do not matter within sets"),
        ItemColumn("p_gap_holm", "``p_gap`` corrected over the subjects"),
        ItemColumn("labels", "the labels, in the order of all lists", "JSON", always=True),
        ItemColumn("top_counts", "images of each label among the K", "JSON", always=True),
        ItemColumn("pool_counts", "images of each label in the pool", "JSON", always=True),
        ItemColumn("skews", "Skew@K of each label", "JSON"),
        ItemColumn(
            "gaps", "how far each label's cosine is above its set's mean, paired over sets", "JSON"
        ),
        ItemColumn("gap_low", "low ends of their intervals (Student's)", "JSON"),
        ItemColumn("gap_high", "high ends", "JSON"),
        ItemColumn("gap_p", "their p", "JSON"),
        ItemColumn(
            "rank_gaps",
            "how far each label's rank in its set (1 best, 0 last) is above 1/2",
            "JSON",
        ),
        ItemColumn("rank_gap_low", "low ends of their intervals", "JSON"),
        ItemColumn("rank_gap_high", "high ends", "JSON"),
        ItemColumn("rank_gap_p", "their p", "JSON"),
        ItemColumn("top", "keys of the first images, at most 100", "JSON"),
        ItemColumn(
            "left_out",
            "why the subject has no numbers, such as a pool smaller than K; else null",
            "text",
            always=True,
        ),
    ),
)

ALPHA = 0.05
"""Level of the tests of subjects."""
MIDDLE = 0.9
"""Share of random rankings within a band of chance."""


@dataclass(frozen=True)
class RankingTask:
    """The question about every subject.

    Attributes:
        grid: name of the grid with the ranked images.
        labelling: attributes that are the labels: ``race``, ``race_gender``, or
            ``gender|race=White`` among the images of one race.
    """

    grid: str
    labelling: str
    k: int

    @property
    def attributes(self) -> str:
        """The attributes that are the labels, without the condition."""
        return self.labelling.partition("|")[0]

    @property
    def condition(self) -> tuple[str, str] | None:
        """The attribute and value that the images have in common; ``None`` for all images."""
        name, equals, value = self.labelling.partition("|")[2].partition("=")
        return (name, value) if equals else None

    def by(self) -> dict[str, str]:
        """Return the column values that identify it among the items."""
        return {"grid": self.grid, "labelling": self.labelling, "k": str(self.k)}


@dataclass(frozen=True)
class Retrieved:
    """The images retrieved for one subject."""

    labels: tuple[str, ...]
    top: tuple[int, ...]
    pool: tuple[int, ...]

    @property
    def most(self) -> str:
        """The label with the largest share relative to its share of the pool."""
        ratios = [t / p if p else 0.0 for t, p in zip(self.top, self.pool, strict=True)]
        return self.labels[int(np.argmax(ratios))]

    def share(self, label: str) -> float:
        """Return a label's share of the K images; ``nan`` if no image has it."""
        if label not in self.labels:
            return math.nan
        return self.top[self.labels.index(label)] / sum(self.top)

    def band(self, label: str) -> Band:
        """Return the share of a label expected by chance: the middle 90 % and its mean."""
        from scipy.stats import hypergeom

        count, n, k = self.pool[self.labels.index(label)], sum(self.pool), sum(self.top)
        tail = (1 - MIDDLE) / 2
        low, high = (float(hypergeom.ppf(level, n, count, k)) for level in (tail, 1 - tail))
        return low / k, count / n, high / k


@dataclass(frozen=True)
class SignificantSubjects:
    """Subjects whose MaxSkew is above chance.

    Attributes:
        corrected: names of subjects with p at most 0.05 after Holm's correction over subjects, the
            most skewed first.
        uncorrected: number of subjects with p at most 0.05 without correction.
        by_chance: expected number of these if no subject were skewed.
    """

    tested: int
    corrected: tuple[str, ...]
    uncorrected: int
    by_chance: float

    def say(self) -> str:
        """Return a sentence on how many subjects are above chance."""
        count, named = len(self.corrected), ", ".join(self.corrected[:8])
        more = f" and {count - 8:,} more" if count > 8 else ""
        sentence = (
            f"{count:,} of {self.tested:,} subjects stand out after correction (Holm, p <= 0.05"
        )
        sentence += f"): {named}{more}. " if count else "). "
        return (
            f"{sentence}By chance, at least one would in at most 5 of 100 such tests. Without "
            f"correction, {self.uncorrected:,} have p <= 0.05; {self.by_chance:.1f} are expected "
            "by chance."
        )


class SkewItems(ModelItems):
    """The images that one model retrieved."""

    schema = SKEW_ITEMS
    BENCHMARK = "skew"

    @cached_property
    def _metrics(self) -> dict[str, np.ndarray]:
        return {}  # each is converted once, for pages ask for it of every question

    @cached_property
    def _k(self) -> list[int]:
        return self.items.metric("k").astype(int).tolist()

    @cached_property
    def _places(self) -> dict[RankingTask, list[int]]:
        places: dict[RankingTask, list[int]] = {}
        for row, task in enumerate(
            zip(self.texts("grid"), self.texts("labelling"), self._k, strict=True)
        ):
            places.setdefault(RankingTask(*task), []).append(row)
        return places

    @cached_property
    def _kept(self) -> dict[RankingTask, list[int]]:
        reasons = self.texts("left_out")
        return {
            question: [row for row in rows if not reasons[row]]
            for question, rows in self._places.items()
        }

    @property
    def questions(self) -> tuple[RankingTask, ...]:
        """The questions, in the order of the items."""
        return tuple(self._places)

    def intersectional(self, grid: str) -> str:
        """Return the labelling by the most attributes of a grid, which has the most labels."""
        sizes = self.items.metric("n_labels")
        most = {
            question.labelling: float(np.max(sizes[rows]))
            for question, rows in self._places.items()
            if question.grid == grid and question.condition is None
        }
        return max(most, key=lambda name: (most[name], len(name))) if most else ""

    def choose(self, grid: str, labelling: str, k: int | None = None) -> RankingTask | None:
        """Return the question with a labelling; ``None`` if there is none.

        Args:
            k: number of retrieved images; if it was not measured or is ``None``, the number of
                labels, or else the smallest K that was measured.
        """
        questions = [
            question
            for question in self.questions
            if (question.grid, question.labelling) == (grid, labelling)
        ]
        if not questions:
            return None
        labels = int(np.nanmax(self.items.metric("n_labels")[self._places[questions[0]]]))
        order = [*([k] if k is not None else []), labels, min(question.k for question in questions)]
        return next(question for wanted in order for question in questions if question.k == wanted)

    def places(self, question: RankingTask) -> list[int]:
        """Return every row of a question, including those that were left out."""
        return self._places.get(question, [])

    def rows(self, question: RankingTask, subject_type: str | None = None) -> list[int]:
        """Return the rows of a question, without those that were left out."""
        types = self.texts("subject_type")
        return [row for row in self._kept.get(question, []) if subject_type in (None, types[row])]

    def values(
        self, question: RankingTask, metric: str = "max_skew", subject_type: str | None = None
    ) -> dict[str, float]:
        """Return the values of a column by subject, without missing ones."""
        if metric not in self._metrics:
            self._metrics[metric] = self.items.metric(metric)
        column, subjects = self._metrics[metric], self.texts("subject")
        rows = self.rows(question, subject_type)
        return {subjects[row]: float(column[row]) for row in rows if not math.isnan(column[row])}

    def retrieved(self, row: int) -> Retrieved:
        """Return the images retrieved in a row."""
        try:
            labels = tuple(map(str, self.parse("labels", row)))
            top, pool = (
                tuple(map(int, self.parse(name, row))) for name in ("top_counts", "pool_counts")
            )
            if not len(labels) == len(top) == len(pool) == len(set(labels)):
                raise ValueError("lists of different lengths, or a label twice")
            if sum(top) != self._k[row] or any(map(operator.gt, top, pool)):
                raise ValueError("counts that do not add up")
            if min(top) < 0:
                raise ValueError("a count below 0")
        except (ValueError, TypeError) as error:
            raise UserError(
                f"the items of {self.items.benchmark}: labels or counts of "
                f"{self.texts(ITEM)[row]!r} are invalid ({error}); {self.renew}"
            ) from error
        return Retrieved(labels, top, pool)

    def gaps(
        self, question: RankingTask, subject_type: str | None = None
    ) -> dict[str, dict[str, float]]:
        """Return {label: {subject: its mean rank within sets, above 1/2}}, without missing ones."""
        if "rank_gaps" not in self.items.columns:
            raise UserError(f"the items of {self.items.benchmark} lack 'rank_gaps'; {self.renew}")
        subjects = self.texts("subject")
        gaps: dict[str, dict[str, float]] = {}
        for row in self.rows(question, subject_type):
            values = read_list(self.texts("rank_gaps")[row])
            for label, value in zip(self.retrieved(row).labels, values, strict=False):
                by_subject = gaps.setdefault(label, {})
                if isinstance(value, int | float):
                    by_subject[subjects[row]] = float(value)
        return gaps

    def standing(
        self, question: RankingTask, subject_type: str | None = None
    ) -> SignificantSubjects:
        """Return which subjects stand out, and how many are expected to by chance."""
        corrected = self.values(question, "p_holm", subject_type)
        excess = self.values(question, "max_skew_excess", subject_type)
        names = [name for name, p in corrected.items() if p <= ALPHA]
        p = self.values(question, "p_permutation", subject_type)
        alarms = self.values(question, "p_level", subject_type)
        return SignificantSubjects(
            tested=len(p),
            corrected=tuple(sorted(names, key=lambda name: -excess.get(name, 0.0))),
            uncorrected=sum(p_value <= ALPHA for p_value in p.values()),
            by_chance=sum(alarms.values()),
        )

    def chance(self, question: RankingTask, subject_type: str | None = None) -> list[ChanceSkew]:
        """Return the distribution of MaxSkew@K of a random ranking for each subject."""
        skews = []
        for row in self.rows(question, subject_type):
            pool = [count for count in self.retrieved(row).pool if count]
            skews.append(chance_skew(pool, question.k))
        return skews


def chance_band(chance: Sequence[ChanceSkew]) -> Band:
    """Return the middle 90 % of MaxSkew of random rankings over all subjects, and their mean."""
    values = np.concatenate([skew.values for skew in chance])
    p = np.concatenate([skew.p for skew in chance]) / len(chance)
    order = np.argsort(values)
    whole = ChanceSkew(values[order], p[order], exact=all(skew.exact for skew in chance))
    tail = (1 - MIDDLE) / 2
    return whole.quantile(tail), whole.mean, whole.quantile(1 - tail)


def chance_of_mean(chance: Sequence[ChanceSkew]) -> Band:
    """Return the middle 90 % of the mean over subjects of random rankings, and its mean.

    Subjects are independent, so the mean of many is close to normal.
    """
    from scipy.special import ndtri

    mean = sum(skew.mean for skew in chance) / len(chance)
    variance = sum(float((skew.values - skew.mean) ** 2 @ skew.p) for skew in chance)
    reach = float(ndtri((1 + MIDDLE) / 2)) * math.sqrt(variance) / len(chance)
    return mean - reach, mean, mean + reach


def read_list(text: str) -> list[Any]:
    """Return a list from a column of JSON; empty without text or for anything else."""
    try:
        values = load_json(text) if text else []
    except ValueError:
        return []
    return values if isinstance(values, list) else []
