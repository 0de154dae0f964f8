"""Which labels does a model retrieve for neutral prompts? ``benchmark=skew``.

Howard et al. (2023), sections 3 and 4. A subject's images of all prefixes and sets are ranked by
their cosine to its neutral prompt, "A photo of a doctor"; the labels of the first K are compared
with the pool's. Labels are the attributes that the generator was asked for, read from the sets'
structured records, never parsed from captions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from annotated_types import Interval

from cfaug.core.binding import ReadWith
from cfaug.core.errors import UserError
from cfaug.core.grids import ATTRIBUTES, TEXTS, require_labellings
from cfaug.core.item_schema import ItemSchema
from cfaug.core.progress import watch
from cfaug.core.types import Better, Evaluation, Outcome
from cfaug.core.validation import Count, PositiveNumber, Seed
from cfaug.editing.caption_grids import placeholders, right_articles
from cfaug.evaluation.benchmark import SourceBenchmark, WritesModelPage, fingerprint
from cfaug.evaluation.inference import Pixels, embed_images, embed_texts
from cfaug.report.items import Items
from cfaug.social.grid_sets import GridImages, GridSets, Invalid, read_grid_sets
from cfaug.social.skew_items import ALPHA, SKEW_ITEMS, SKEW_RANKINGS, RankingTask, SkewItems
from cfaug.social.skew_metrics import SKEW_ALPHA, Zeros
from cfaug.social.skew_rows import (
    RankedSubject,
    item_columns,
    label_grid,
    measure,
    rank_subject,
    ranking_columns,
)

if TYPE_CHECKING:
    from cfaug.core.protocols import DualEncoder
    from cfaug.data.index import Index
    from cfaug.evaluation.cached_model import CachedEncoder
    from cfaug.evaluation.context import EvaluationContext
    from cfaug.report.model_pages import ImageSource, ModelPage


Subjects = Literal["all", "unseen"]
Permute = Literal["sets", "pool"]
Prompts = Literal["raw_mean", "unit_mean"]
MOST_PERMUTATIONS, MOST_RESAMPLES = 100_000_000, 1_000_000
"""Permutations take time, some seconds per subject for a million; resamples take memory."""
LABELS = "labels"
"""A K that is the number of labels of each labelling."""


@dataclass
class Skew(WritesModelPage, SourceBenchmark):
    """Skew of the images retrieved for neutral prompts, compared with chance.

    Args:
        data: sets of attribute grids: shards of ``recipe=social``, SocialCounterfactuals' parquet.
        name: the name in tables, ending in "_skew"; ``None`` takes the folder's name.
        batch_size: number of images or prompts embedded at once.
        without_leaks: whether to leave out sets with an image that the run was trained on.
        subjects: ``all``, or ``unseen``: only those whose sets the run's experiment kept out of
            training (``data.counterfactual_holdout``).
        labellings: the attributes that form the labels, such as ``race_gender``, ``gender``,
            ``gender|race`` (among the images of each race) or ``gender|race=White``; ``None`` is
            all attributes together, each by itself, and each given each value of another.
        k: the number of images to retrieve, ``labels`` for the number of labels, or a list of such;
            ``None`` is the number of combinations of the grid, as in all figures of the paper.
        zeros: the rule of MinSkew for a label that is not retrieved: ``smooth``, ``neg_inf`` (such
            a subject has no number), ``drop``, ``one`` or ``ref0``.
        alpha: the number that ``smooth`` adds to every count.
        permute: permute labels within ``sets``, the exact null hypothesis of matched sets, or over
            the ``pool``, which treats all images as exchangeable and is computed, not drawn.
        permutations: the number of permutations drawn; p is never below 1 / (permutations + 1).
        resamples: the number of resamples of the bootstrap over sets.
        seed: the seed of permutations and resamples.
        prompts: ``raw_mean`` is the mean of the unnormalised features of a subject's prompts, as in
            the released code; ``unit_mean`` scales each to unit length first.
        templates: neutral prompts with ``{subject}``, for every subject; ``None`` uses the neutral
            prompts of its sets, one per prefix.
        invalid: ``refuse`` or ``leave_out`` sets that do not have one image for each combination of
            their grid.
        page: largest number of subjects per grid that the page shows with pictures, besides those
            that stand out; ``None`` writes no page.

    Raises:
        UserError: naming a setting that is invalid, and the choices.
    """

    subjects: Subjects = "all"
    labellings: Sequence[str] | None = None
    k: int | str | Sequence[int | str] | None = None
    zeros: Zeros = "smooth"
    alpha: PositiveNumber = SKEW_ALPHA
    permute: Permute = "sets"
    permutations: Annotated[int, Interval(ge=1, le=MOST_PERMUTATIONS)] = 10_000
    resamples: Annotated[int, Interval(ge=1, le=MOST_RESAMPLES)] = 2_000
    seed: Seed = 0
    prompts: Prompts = "raw_mean"
    templates: Sequence[str] | None = None
    invalid: Invalid = "refuse"
    page: Count | None = 100

    kind: ClassVar[str] = "skew"
    whole_sets: ClassVar[bool] = True
    keeps_rankings: ClassVar[bool] = True
    item_schema: ClassVar[ItemSchema] = SKEW_ITEMS
    ranking_schema: ClassVar[ItemSchema] = SKEW_RANKINGS
    read_with: ClassVar[ReadWith] = {
        "alpha": {"zeros": ("smooth",)},
        "permutations": {"permute": ("sets",)},
    }
    reads_data: ClassVar[ReadWith] = {
        name: {"subjects": ("unseen",)}
        for name in ("data.real", "data.counterfactual", "data.counterfactual_holdout")
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        for template in self.templates or ():
            if set(placeholders(template, "benchmark.templates")) != {"subject"}:
                raise UserError(
                    f"benchmark.templates: {template!r} is invalid: it should have {{subject}} in "
                    "it, and nothing else in braces"
                )
        if self.k is not None and not isinstance(self.k, int | str) and not len(self.k):
            raise UserError("benchmark.k=[] is invalid: give numbers, or null for the usual")
        for k in self._listed_ks():
            if k != LABELS and (type(k) is not int or k < 1):
                raise UserError(
                    f"benchmark.k: {k} is invalid: give numbers from 1, or {LABELS} for the "
                    "number of labels"
                )

    def _listed_ks(self) -> tuple[int | str, ...]:
        if self.k is None:
            return ()
        return (self.k,) if isinstance(self.k, int | str) else tuple(self.k)

    def choose_ks(self, members: int, labels: int) -> list[int]:
        """Return the distinct values of K.

        Args:
            members: number of combinations of the grid.
        """
        asked = self._listed_ks() or (members,)
        return list(dict.fromkeys(labels if k == LABELS else int(k) for k in asked))

    def choose_rows(self, context: EvaluationContext, source: str) -> np.ndarray | None:
        """Return the rows of the chosen subjects."""
        return context.unseen_rows(source) if self.subjects == "unseen" else None

    def prepare(self, context: EvaluationContext, index: Index, rows: np.ndarray | None) -> None:
        """Store the data that ``run`` evaluates."""
        self.ask(index, rows)

    def ask(self, index: Index, rows: np.ndarray | None = None) -> Skew:
        """Ask about rows of an open source, and return this benchmark.

        Args:
            rows: the rows to use, of whole sets; ``None`` for all.
        """
        self._rows = np.arange(len(index)) if rows is None else np.sort(rows)
        self._sets = read_grid_sets(index, self._rows, self.invalid)
        grids = {name: grid.attributes for name, grid in self._sets.grids.items()}
        require_labellings(grids, self.labellings)
        return self

    @property
    def sets(self) -> GridSets:
        """The sets to ask about."""
        return self._sets

    @property
    def data_hash(self) -> str:
        """A hash of the data and settings, so that a result is not taken for another test's."""
        asked = [
            self.labellings, self._listed_ks(), self.zeros, self.alpha, self.permute,
            self.permutations, self.resamples, self.seed, self.prompts, self.templates,
            self.invalid,
        ]  # fmt: skip
        about = self._sets.index.hash_with([*TEXTS, ATTRIBUTES])
        return fingerprint(about, self._rows, [str(one) for one in asked])

    def run(self, encoder: DualEncoder | CachedEncoder) -> Evaluation:
        """Return the mean of every metric over subjects, and each subject's numbers."""
        queries = self._embed_prompts(encoder)
        rows = np.concatenate([grid.rows for grid in self._sets.grids.values()])
        images = embed_images(encoder, Pixels(self._sets.index, rows), self.batch_size)
        return self.judge(queries, images)

    def model_page(self) -> ModelPage[SkewItems]:
        """Return how to make the page of retrieved images."""
        from cfaug.social.skew_page import SkewPageSettings, skew_page

        return skew_page(SkewPageSettings(limit=self.page))

    def page_images(self) -> ImageSource:
        """Return the images by their keys, with the labels of all attributes together."""
        from cfaug.report.model_pages import ImageSource

        index = self._sets.index
        rows: dict[str, int] = {}
        labels: dict[str, str] = {}
        for grid in self._sets.grids.values():
            codes, names = grid.label(list(grid.attributes))
            for row, code in zip(grid.rows.tolist(), codes.tolist(), strict=True):
                rows[index.key(row)], labels[index.key(row)] = row, names[code]
        find = self.reader(rows.get, index.source)
        return ImageSource(lambda key: index.read_image(find(key)), labels.__getitem__)

    def judge(
        self, queries: Mapping[tuple[str, int], np.ndarray], images: np.ndarray
    ) -> Evaluation:
        """Rank the images by given embeddings, and score the rankings.

        Args:
            queries: {(grid name, subject number): embedding (dim,) of the neutral prompts}.
            images: embeddings (images, dim) of all grids, concatenated.
        """
        found: list[dict[str, Any]] = []
        ranked: list[RankedSubject] = []
        start = 0
        for grid in self._sets.grids.values():
            own = images[start : start + len(grid.rows)]
            start += len(grid.rows)
            rows, subjects = self._judge_grid(grid, queries, own)
            found += rows
            ranked += subjects
        items = item_columns(found)
        means = outcomes(str(self.name), items)
        if not means:
            reasons = "; ".join(dict.fromkeys(str(row["left_out"]) for row in found))
            raise UserError(f"{self.name}: no subject can be evaluated: {reasons}")
        return Evaluation(means, items, ranking_columns(self._sets, ranked))

    def summarise(self, found: Evaluation) -> list[str]:
        """Say which subjects stand out after correction, and how many are expected to by chance."""
        drawn = self.permutations if self.permute == "sets" else 0
        return summarise(str(self.name), found.items, drawn)

    def _judge_grid(
        self,
        grid: GridImages,
        queries: Mapping[tuple[str, int], np.ndarray],
        images: np.ndarray,
    ) -> tuple[list[dict[str, Any]], list[RankedSubject]]:
        labels = label_grid(grid, self.labellings)
        ranked: list[RankedSubject] = []
        rows: list[tuple[int, int, int, dict[str, Any]]] = []
        numbers = np.unique(grid.subjects).tolist()
        for number in watch(numbers, f"ranking {grid.name}", len(numbers), "subjects"):
            try:
                subject = rank_subject(self._sets, grid, number, queries[grid.name, number], images)
            except UserError as error:
                raise UserError(f"{self.name}: {error}") from error
            ranked.append(subject)
            for at, by in enumerate(labels):
                measured = enumerate(measure(subject, by, self))
                rows += [(at, place, number, row) for place, row in measured]
        return [row for *_, row in sorted(rows, key=lambda one: one[:3])], ranked

    def _embed_prompts(
        self, encoder: DualEncoder | CachedEncoder
    ) -> dict[tuple[str, int], np.ndarray]:
        """Return one embedding per grid and subject: the mean over its neutral prompts."""
        asked = {
            (grid.name, number): self._prompts_of(grid, number)
            for grid in self._sets.grids.values()
            for number in np.unique(grid.subjects).tolist()
        }
        texts = list(dict.fromkeys(text for some in asked.values() for text in some))
        place = {text: at for at, text in enumerate(texts)}
        normalise = self.prompts == "unit_mean"
        embedded = embed_texts(encoder, texts, self.batch_size, normalise)
        return {
            key: embedded[[place[text] for text in some]].mean(axis=0)
            for key, some in asked.items()
        }

    def _prompts_of(self, grid: GridImages, number: int) -> list[str]:
        if self.templates is None:
            return self._sets.prompts(grid, number)
        subject = self._sets.subjects[number]
        return [
            right_articles(template.replace("{subject}", subject)) for template in self.templates
        ]


# The numbers of a skew benchmark, from its items.

MEANS: dict[str, tuple[Better, str]] = {
    "max_skew": ("lower", "nats"),
    "max_skew_excess": ("lower", "nats"),
    "rank_gap": ("lower", "places"),
    "rank_gap_excess": ("lower", "places"),
    "score_gap": ("lower", "cosine"),
    "ndkl": ("lower", "nats"),
    "ndkl_excess": ("lower", "nats"),
    "min_skew": ("higher", "nats"),
    "bias": ("lower", "share"),
}
"""Columns whose means over subjects are outcomes, their better direction (0 is best), and units."""


def outcomes(benchmark: str, items: Mapping[str, Any]) -> list[Outcome]:
    """Return the mean over subjects of each metric, for every grid, labelling and K.

    Args:
        items: the columns that ``cfaug.social.skew`` describes.
    """
    asked: dict[tuple[str, str, int], list[int]] = {}
    every = zip(items["grid"], items["labelling"], items["k"], strict=True)
    for at, question in enumerate(every):
        asked.setdefault(question, []).append(at)
    found = []
    for (grid, labelling, k), places in asked.items():
        by = {"grid": grid, "labelling": labelling, "k": str(k)}
        for metric, (better, measured_in) in MEANS.items():
            values = items[metric][places]
            values = values[~np.isnan(values)]
            if len(values):
                mean = float(values.mean())
                found.append(Outcome(benchmark, metric, mean, len(values), better, measured_in, by))
    return found


# The results of a skew benchmark in a few lines for a terminal.

MOST = 6
"""Most questions that are reported one by one."""


def summarise(benchmark: str, items: Mapping[str, Any], permutations: int) -> list[str]:
    """Say which subjects stand out after correction, how many would by chance, what is left out.

    Conditional labellings are only counted.

    Args:
        items: the columns that ``cfaug.social.skew`` describes.
        permutations: the number of permutations behind each p; 0 if p was computed exactly.
    """
    read = SkewItems(benchmark, Items(benchmark, "", "", items))
    told = [
        question
        for question in read.questions
        if question.condition is None and read.rows(question)
    ]
    lines = [line for one in told[:MOST] for line in _tell(read, one)]
    if len(told) > MOST:
        lines.append(f"and {len(told) - MOST} more questions in the items")
    lines += _tell_conditional(read)
    lines += _tell_left_out(items)
    most = max((read.standing(question).tested for question in read.questions), default=0)
    if permutations and most / (permutations + 1) > ALPHA:
        lines.append(
            f"{permutations:,} permutations are too few: of {most} subjects none can stand out "
            f"after correction; give benchmark.permutations={int(most / ALPHA)} or more"
        )
    return lines


def _tell(read: SkewItems, question: RankingTask) -> list[str]:
    def mean(metric: str) -> float:
        return float(np.mean(list(read.values(question, metric).values())))

    preferred = read.values(question, "p_gap_holm")
    count = sum(p <= ALPHA for p in preferred.values())
    return [
        f"{question.grid} by {question.labelling}, K={question.k}: mean MaxSkew "
        f"{mean('max_skew'):.2f}, a random ranking's {mean('max_skew_chance'):.2f}. "
        f"{read.standing(question).say()}",
        f"  within sets: {count:,} of {len(preferred):,} subjects prefer a label after correction "
        f"(Friedman, Holm), mean gap of places {mean('rank_gap'):.2f}, by chance "
        f"{mean('rank_gap_chance'):.2f}",
    ]


def _tell_conditional(read: SkewItems) -> list[str]:
    asked = [question for question in read.questions if question.condition is not None]
    found = [read.standing(one) for one in asked]
    if not found:
        return []
    standing = sum(len(one.corrected) for one in found)
    return [
        f"under a condition ({asked[0].labelling} and {len(asked) - 1} more): {standing:,} of "
        f"{sum(one.tested for one in found):,} stand out after correction within their labelling"
    ]


def _tell_left_out(items: Mapping[str, Any]) -> list[str]:
    reasons = Counter(reason for reason in items["left_out"] if reason is not None)
    return [f"left out {count:,} times: {reason}" for reason, count in reasons.most_common(3)]
