"""Which labels does a model retrieve for neutral prompts? ``benchmark=skew``.

Howard et al. (2023), sections 3 and 4. A subject's images of all prefixes and sets are ranked by
their cosine to its neutral prompt, "A photo of a doctor"; the labels of the first K are compared
with the pool's. Labels are the attributes in the prompts of the generator, read from the sets'
structured records, never parsed from captions. The items have one row per grid, labelling, K and
subject.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from annotated_types import Interval

from cfaug.core.errors import UserError
from cfaug.core.item_schema import ItemSchema, to_json
from cfaug.core.progress import watch
from cfaug.core.rng import generator
from cfaug.core.types import CLUSTER, ITEM, Better, ColumnValues, Evaluation, Outcome
from cfaug.core.validation import Count, PositiveNumber, Seed
from cfaug.data.grids import (
    ATTRIBUTES,
    GRID,
    SUBJECT,
    SUBJECT_TYPE,
    TEXTS,
    Labelling,
    find_labellings,
    require_labellings,
)
from cfaug.editing.caption_grids import placeholders, right_articles
from cfaug.evaluation.benchmark import SourceBenchmark, WritesModelPage, fingerprint
from cfaug.evaluation.inference import Pixels, embed_images, embed_texts
from cfaug.papers.social.grid_sets import GridImages, GridSets, Invalid, read_grid_sets
from cfaug.papers.social.skew_items import ALPHA, SKEW_ITEMS, RankingTask, SkewItems
from cfaug.papers.social.skew_rankings import SKEW_RANKINGS
from cfaug.papers.social.within_set_gap import chance_range, friedman, label_gaps, rank_within
from cfaug.report.items import Items
from cfaug.settings.read_if import Condition, ReadIf
from cfaug.stats.ranking import Candidates, first_equal, unit
from cfaug.stats.significance import holm
from cfaug.stats.skew_metrics import (
    SKEW_ALPHA,
    Zeros,
    bias,
    max_skew,
    min_skew,
    ndkl,
    rank_images,
    skew,
)
from cfaug.stats.skew_tests import (
    DRAWS,
    PermutationTest,
    RankedPool,
    bootstrap_max_skew,
    chance_ndkl,
    chance_skew,
    draw_sets,
    permutation_test,
)

if TYPE_CHECKING:
    from cfaug.core.protocols import DualEncoder
    from cfaug.data.index import Index
    from cfaug.evaluation.cached_model import CachedEncoder
    from cfaug.evaluation.context import EvaluationContext
    from cfaug.report.gallery import ImageSource, ModelPage

MOST_PERMUTATIONS, MOST_RESAMPLES = 100_000_000, 1_000_000
"""Permutations take time, some seconds per subject for a million; resamples take memory."""
LABELS = "labels"
"""A K that is the number of labels of each labelling."""
INTERVAL = 0.95
TOP_SHOWN = 100
"""The most of the first K images that a row names."""
MOST_SAID = 6
"""Most questions that are reported one by one in the terminal."""
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


@dataclass
class Skew(WritesModelPage, SourceBenchmark):
    """Skew of the images retrieved for neutral prompts, compared with chance.

    Args:
        data: sets of attribute grids: shards of ``recipe=social``, SocialCounterfactuals' or
            Cultural Counterfactuals' parquet.
        name: the name in tables, ending in "_skew"; ``None`` takes the folder's name.
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
    """

    subjects: Literal["all", "unseen"] = "all"
    labellings: Sequence[str] | None = None
    k: int | str | Sequence[int | str] | None = None
    zeros: Zeros = "smooth"
    alpha: Annotated[PositiveNumber, ReadIf({"zeros": ("smooth",)})] = SKEW_ALPHA
    permute: Literal["sets", "pool"] = "sets"
    permutations: Annotated[
        int, Interval(ge=1, le=MOST_PERMUTATIONS), ReadIf({"permute": ("sets",)})
    ] = 10_000
    resamples: Annotated[int, Interval(ge=1, le=MOST_RESAMPLES)] = 2_000
    seed: Seed = 0
    prompts: Literal["raw_mean", "unit_mean"] = "raw_mean"
    templates: Sequence[str] | None = None
    invalid: Invalid = "refuse"
    page: Count | None = 100

    kind: ClassVar[str] = "skew"
    whole_sets: ClassVar[bool] = True
    keeps_rankings: ClassVar[bool] = True
    item_schema: ClassVar[ItemSchema] = SKEW_ITEMS
    ranking_schema: ClassVar[ItemSchema] = SKEW_RANKINGS
    reads_data: ClassVar[Mapping[str, Condition]] = {
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
        ks = self._listed_ks() or (members,)
        return list(dict.fromkeys(labels if k == LABELS else int(k) for k in ks))

    def choose_rows(self, context: EvaluationContext, source: str) -> np.ndarray | None:
        return context.unseen_rows(source) if self.subjects == "unseen" else None

    def prepare(self, context: EvaluationContext, index: Index, rows: np.ndarray | None) -> None:
        self.use(index, rows)

    def use(self, index: Index, rows: np.ndarray | None = None) -> Skew:
        """Use rows of an open source, and return this benchmark.

        Args:
            rows: the rows to use, of whole sets; ``None`` for all.
        """
        self._rows = np.arange(len(index)) if rows is None else np.sort(rows)
        self.sets = read_grid_sets(index, self._rows, self.invalid)
        grids = {name: grid.attributes for name, grid in self.sets.grids.items()}
        require_labellings(grids, self.labellings)
        return self

    @property
    def data_hash(self) -> str:
        settings = [
            self.labellings, self._listed_ks(), self.zeros, self.alpha, self.permute,
            self.permutations, self.resamples, self.seed, self.prompts, self.templates,
            self.invalid,
        ]  # fmt: skip
        about = self.sets.index.hash_with([*TEXTS, ATTRIBUTES])
        return fingerprint(about, self._rows, [str(setting) for setting in settings])

    def run(self, encoder: DualEncoder | CachedEncoder) -> Evaluation:
        """Return the mean of every metric over subjects, and each subject's numbers."""
        queries = self._embed_prompts(encoder)
        rows = np.concatenate([grid.rows for grid in self.sets.grids.values()])
        images = embed_images(encoder, Pixels(self.sets.index, rows), self.batch_size)
        return self.judge(queries, images)

    def _embed_prompts(
        self, encoder: DualEncoder | CachedEncoder
    ) -> dict[tuple[str, int], np.ndarray]:
        """Return one embedding per grid and subject: the mean over its neutral prompts."""
        prompts_of: dict[tuple[str, int], list[str]] = {}
        for grid in self.sets.grids.values():
            for number in np.unique(grid.subjects).tolist():
                subject = self.sets.subjects[number]
                prompts_of[grid.name, number] = (
                    self.sets.prompts(grid, number)
                    if self.templates is None
                    else [right_articles(t.replace("{subject}", subject)) for t in self.templates]
                )
        texts = list(dict.fromkeys(chain(*prompts_of.values())))
        row_of = {text: at for at, text in enumerate(texts)}
        embedded = embed_texts(encoder, texts, self.batch_size, self.prompts == "unit_mean")
        return {
            key: embedded[[row_of[text] for text in prompts]].mean(axis=0)
            for key, prompts in prompts_of.items()
        }

    def judge(
        self, queries: Mapping[tuple[str, int], np.ndarray], images: np.ndarray
    ) -> Evaluation:
        """Rank the images by given embeddings, and score the rankings.

        Args:
            queries: {(grid name, subject number): embedding (dim,) of the neutral prompts}.
            images: embeddings (images, dim) of all grids, concatenated.
        """
        rows: list[dict[str, Any]] = []
        ranked: list[RankedSubject] = []
        start = 0
        for grid in self.sets.grids.values():
            embedded = images[start : start + len(grid.rows)]
            start += len(grid.rows)
            labels = [
                (labelling.name, *label_images(grid, labelling))
                for labelling in find_labellings(grid.attributes, self.labellings)
            ]
            measured: list[list[list[dict[str, Any]]]] = [[] for _ in labels]
            numbers = np.unique(grid.subjects).tolist()
            for number in watch(numbers, f"ranking {grid.name}", len(numbers), "subjects"):
                query = queries[grid.name, number]
                try:
                    subject = rank_subject(self.sets, grid, number, query, embedded)
                except UserError as error:
                    raise UserError(f"{self.name}: {error}") from error
                ranked.append(subject)
                for (labelling, codes, names), subjects in zip(labels, measured, strict=True):
                    subjects.append(measure(subject, labelling, codes, names, self))
            # The items go through the labellings, the Ks, and then the subjects.
            rows += chain(
                *(same_k for subjects in measured for same_k in zip(*subjects, strict=True))
            )
        items = item_columns(rows)
        means = outcomes(str(self.name), items)
        if not means:
            reasons = "; ".join(dict.fromkeys(str(row["left_out"]) for row in rows))
            raise UserError(f"{self.name}: no subject can be evaluated: {reasons}")
        return Evaluation(means, items, ranking_columns(self.sets, ranked))

    def summarise(self, evaluation: Evaluation) -> list[str]:
        """Say which subjects stand out after correction, and what is left out.

        Conditional labellings are only counted.
        """
        name, items = str(self.name), evaluation.items
        read = SkewItems(name, Items(name, "", "", items))

        def mean(question: RankingTask, metric: str) -> float:
            return float(np.mean(list(read.values(question, metric).values())))

        answered = [
            question
            for question in read.questions
            if question.condition is None and read.rows(question)
        ]
        lines = []
        for question in answered[:MOST_SAID]:
            preferred = read.values(question, "p_gap_holm")
            count = sum(p <= ALPHA for p in preferred.values())
            lines += [
                f"{question.grid} by {question.labelling}, K={question.k}: mean MaxSkew "
                f"{mean(question, 'max_skew'):.2f}, a random ranking's "
                f"{mean(question, 'max_skew_chance'):.2f}. {read.standing(question).say()}",
                f"  within sets: {count:,} of {len(preferred):,} subjects prefer a label after "
                f"correction (Friedman, Holm), mean gap of places "
                f"{mean(question, 'rank_gap'):.2f}, by chance "
                f"{mean(question, 'rank_gap_chance'):.2f}",
            ]
        if len(answered) > MOST_SAID:
            lines.append(f"and {len(answered) - MOST_SAID} more questions in the items")
        conditional = [question for question in read.questions if question.condition is not None]
        if conditional:
            tests = [read.standing(question) for question in conditional]
            lines.append(
                f"under a condition ({conditional[0].labelling} and {len(conditional) - 1} more): "
                f"{sum(len(test.corrected) for test in tests):,} of "
                f"{sum(test.tested for test in tests):,} stand out after correction within their "
                "labelling"
            )
        reasons = Counter(reason for reason in items["left_out"] if reason is not None)
        lines += [f"left out {n:,} times: {reason}" for reason, n in reasons.most_common(3)]
        most = max((read.standing(question).tested for question in read.questions), default=0)
        if self.permute == "sets" and most / (self.permutations + 1) > ALPHA:
            lines.append(
                f"{self.permutations:,} permutations are too few: of {most} subjects none can "
                f"stand out after correction; give benchmark.permutations={int(most / ALPHA)} or "
                "more"
            )
        return lines

    def model_page(self) -> ModelPage[SkewItems]:
        """Return how to make the page of retrieved images."""
        from cfaug.papers.social.skew_page import SkewPageSettings, skew_page

        return skew_page(SkewPageSettings(limit=self.page))

    def page_images(self) -> ImageSource:
        """Return the images by their keys, with the labels of all attributes together."""
        from cfaug.report.gallery import ImageSource

        index = self.sets.index
        rows: dict[str, int] = {}
        labels: dict[str, str] = {}
        for grid in self.sets.grids.values():
            codes, names = grid.label(list(grid.attributes))
            for key, row, code in zip(
                index.keys(grid.rows), grid.rows.tolist(), codes.tolist(), strict=True
            ):
                rows[key], labels[key] = row, names[code]
        find = self.reader(rows.get, index.source)
        return ImageSource(lambda key: index.read_image(find(key)), labels.__getitem__)


@dataclass(frozen=True)
class RankedSubject:
    """The images of one subject in one grid, the best first.

    Attributes:
        members: number of combinations of the grid.
        subject: the subject in lower case.
        subject_type: the type of the subject, such as ``occupation``.
        places: position of each image among the grid's images, int64 (images,).
        sets: number of each image's set, int64 (images,).
        scores: cosine to the neutral prompt, (images,), descending.
        names: key of each image.
    """

    grid: str
    members: int
    subject: str
    subject_type: str
    places: np.ndarray
    sets: np.ndarray
    scores: np.ndarray
    names: Sequence[str]


def rank_subject(
    sets: GridSets, grid: GridImages, number: int, query: np.ndarray, images: np.ndarray
) -> RankedSubject:
    """Rank a subject's images; equal embeddings tie, ordered by a hash of the image's key.

    Args:
        number: the subject's position in ``sets.subjects``.
        query: embedding (dim,) of the subject's neutral prompts.
        images: embeddings (images, dim) of all images of the grid.
    """
    places = np.flatnonzero(grid.subjects == number)
    names = sets.index.keys(grid.rows[places])
    vectors = images[places]
    try:
        direction = unit(query, f"the prompts of {sets.subjects[number]!r}")
        scores = Candidates(unit(vectors, "images"), first_equal(vectors)).score(direction[None])[0]
        order = rank_images(scores, names)
    except ValueError as error:
        wrong = places[~np.isfinite(vectors).all(axis=1) | ~vectors.any(axis=1)].tolist()
        such = [f", such as {sets.index.image_name(int(grid.rows[at]))}" for at in wrong[:1]]
        raise UserError(f"{error}{''.join(such)}; images cannot be ranked by it") from error
    return RankedSubject(
        grid=grid.name,
        members=math.prod(map(len, grid.attributes.values())),
        subject=sets.subjects[number],
        subject_type=sets.subject_types[number],
        places=places[order],
        sets=grid.sets[places][order],
        scores=scores[order],
        names=[names[at] for at in order.tolist()],
    )


def label_images(grid: GridImages, labelling: Labelling) -> tuple[np.ndarray, list[str]]:
    """Return the number of each image's label, -1 outside the labelling's condition, and labels."""
    codes, labels = grid.label(labelling.attributes)
    for name, value in labelling.given.items():
        values = grid.values[:, list(grid.attributes).index(name)]
        codes = np.where(values == grid.attributes[name].index(value), codes, -1)
    return codes, labels


def measure(
    subject: RankedSubject, labelling: str, codes: np.ndarray, labels: Sequence[str], how: Skew
) -> list[dict[str, Any]]:
    """Return a row for each K.

    Args:
        subject: the subject's images in order of rank.
        codes: number of the label of each image of the grid, int64 (images of the grid,); -1 for an
            image that the labelling does not cover.
        labels: all labels of the labelling, of which the subject's images may lack some.
    """
    covered = codes[subject.places] >= 0
    present, pool_labels = np.unique(codes[subject.places[covered]], return_inverse=True)
    sets = np.unique(subject.sets[covered], return_inverse=True)[1]
    names = [name for name, kept in zip(subject.names, covered, strict=True) if kept]
    about = {
        "cluster": subject.subject,
        "subject": subject.subject,
        "subject_type": subject.subject_type,
        "grid": subject.grid,
        "labelling": labelling,
        "n_pool": len(names),
        "n_sets": int(sets.max(initial=-1)) + 1,
        "n_labels": len(present),
        "labels": to_json([labels[code] for code in present.tolist()]),
        "left_out": None,
    }
    if len(names) < 2:
        alone = "one image: there is nothing to rank"
        about["left_out"] = alone if names else "no image"
    elif len(present) < 2:
        about["left_out"] = "one label: there is nothing to compare"
    else:
        pool = RankedPool(pool_labels, sets)
        of_pool = _measure_pool(pool, subject.scores[covered])
        key = (how.seed, subject.grid, subject.subject)
        drawn = _draw_sets(*key, sets=int(sets.max()) + 1, resamples=how.resamples)
    rows = []
    for k in how.choose_ks(subject.members, len(labels)):
        name = f"{subject.grid}/{labelling}/{subject.subject}@{k}"
        row = {"item": name, **about, "k": k}
        if about["left_out"] is None and k > len(names):
            row["left_out"] = f"k={k} is more than the pool of {len(names)} images"
        elif about["left_out"] is None:
            stream = generator(how.seed, "skew", subject.grid, labelling, subject.subject, k)
            row |= of_pool | _measure_top(pool, k, how, drawn, stream)
            row["top"] = to_json(names[: min(k, TOP_SHOWN)])
        rows.append(row)
    return rows


@lru_cache(maxsize=1)
def _draw_sets(seed: int, grid: str, subject: str, *, sets: int, resamples: int) -> np.ndarray:
    """Return the resamples of a subject's sets: the same, whatever the labels and K."""
    return draw_sets(sets, resamples, generator(seed, "skew_sets", grid, subject))


def _measure_pool(pool: RankedPool, scores: np.ndarray) -> dict[str, Any]:
    places = rank_within(scores, pool.sets)
    score_gaps, rank_gaps = (
        label_gaps(values, pool.labels, pool.sets, INTERVAL) for values in (scores, places)
    )
    by_chance = chance_range(places, pool.labels, pool.sets)
    divergence, usual = ndkl(pool.labels, pool.pool), chance_ndkl(pool.pool.tolist())
    row: dict[str, Any] = {
        "ndkl": divergence,
        "ndkl_chance": usual,
        "ndkl_excess": divergence - usual,
        "score_gap": score_gaps.range,
        "rank_gap": rank_gaps.range,
        "rank_gap_chance": by_chance,
        "rank_gap_excess": rank_gaps.range - by_chance,
        "p_gap": friedman(places, pool.labels, pool.sets),
        "pool_counts": to_json(pool.pool.tolist()),
    }
    for stem, gaps in (("gap", score_gaps), ("rank_gap", rank_gaps)):
        row[f"{stem}s"] = to_json(gaps.mean.tolist())
        for part in ("low", "high", "p"):
            row[f"{stem}_{part}"] = to_json(getattr(gaps, part).tolist())
    return row


def _measure_top(
    ranked: RankedPool, k: int, how: Skew, drawn_BS: np.ndarray, stream: np.random.Generator
) -> dict[str, Any]:
    top, pool = ranked.top(k), ranked.pool
    value = float(max_skew(top, pool))
    chance = chance_skew(pool.tolist(), k)
    if how.permute == "pool":
        test = PermutationTest(
            p=chance.tail(value) if chance.exact else max(chance.tail(value), 1 / DRAWS),
            expected=chance.mean,
            high=chance.quantile(INTERVAL),
            level=chance.level(1 - INTERVAL),
            permutations=0,
        )
    else:
        test = permutation_test(ranked, k, stream, how.permutations)
    [(low, high)] = bootstrap_max_skew(ranked, [k], drawn_BS, INTERVAL)
    signed = float(bias(top)) if len(top) == 2 else math.nan
    smallest = float(min_skew(top, pool, how.zeros, how.alpha))
    return {
        "max_skew": value,
        "max_skew_chance": chance.mean,
        "max_skew_chance_high": chance.quantile(INTERVAL),
        "max_skew_excess": value - chance.mean,
        "max_skew_null": test.expected,
        "p_permutation": test.p,
        "p_level": test.level,
        "max_skew_low": low,
        "max_skew_high": high,
        "min_skew": smallest if math.isfinite(smallest) else math.nan,
        "n_absent": int((top == 0).sum()),
        "bias": abs(signed),
        "signed_bias": signed,
        "top_counts": to_json(top.tolist()),
        "skews": to_json(skew(top, pool, how.zeros, how.alpha).tolist()),
    }


def _group_rows(
    grids: Sequence[str], labellings: Sequence[str], ks: Sequence[int]
) -> dict[tuple[str, str, int], list[int]]:
    """Return the rows of each grid, labelling and K, over whose subjects means and Holm go."""
    rows_of: dict[tuple[str, str, int], list[int]] = {}
    for row, question in enumerate(zip(grids, labellings, ks, strict=True)):
        rows_of.setdefault(question, []).append(row)
    return rows_of


def item_columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return rows as columns, p corrected over the subjects of each grid, labelling and K.

    Args:
        rows: the rows that ``measure`` returns; the numbers that one lacks are null, its lists
            empty.
    """
    numbers, lists = SKEW_ITEMS.names("number"), {*SKEW_ITEMS.names("JSON")} - {"labels"}
    columns: dict[str, Any] = {}
    for name in (column.name for column in SKEW_ITEMS.columns):
        if name in numbers:
            columns[name] = np.array([row.get(name, math.nan) for row in rows], np.float64)
        else:
            columns[name] = [row.get(name, "[]") if name in lists else row[name] for row in rows]
    for same in _group_rows(columns["grid"], columns["labelling"], columns["k"]).values():
        for corrected, name in (("p_holm", "p_permutation"), ("p_gap_holm", "p_gap")):
            columns[corrected][same] = holm(columns[name][same])
    return columns


def outcomes(benchmark: str, items: Mapping[str, Any]) -> list[Outcome]:
    """Return the mean over subjects of each metric, for every grid, labelling and K."""
    measured = []
    groups = _group_rows(items["grid"], items["labelling"], items["k"])
    for (grid, labelling, k), same in groups.items():
        by = {"grid": grid, "labelling": labelling, "k": str(k)}
        for metric, (better, unit_of) in MEANS.items():
            values = items[metric][same]
            values = values[~np.isnan(values)]
            if len(values):
                mean = float(values.mean())
                measured.append(Outcome(benchmark, metric, mean, len(values), better, unit_of, by))
    return measured


def ranking_columns(sets: GridSets, ranked: Sequence[RankedSubject]) -> dict[str, ColumnValues]:
    """Return the rankings of every subject of every grid, one row per image."""
    texts: list[list[str]] = []
    for subject in ranked:
        grid = sets.grids[subject.grid]
        kinds, kind = np.unique(grid.values[subject.places], axis=0, return_inverse=True)
        encoded = []
        for numbers in kinds.tolist():
            every = zip(grid.attributes.items(), numbers, strict=True)
            shown = {name: values[number] for (name, values), number in every}
            encoded.append(json.dumps(shown, ensure_ascii=False))
        texts.append([encoded[at] for at in kind.reshape(-1).tolist()])

    def repeat(name: str) -> np.ndarray:
        values = np.array([getattr(subject, name) for subject in ranked], object)
        return np.repeat(values, [len(subject.places) for subject in ranked])

    return {
        ITEM: list(chain(*(subject.names for subject in ranked))),
        CLUSTER: [
            sets.set_names[set_number] for subject in ranked for set_number in subject.sets.tolist()
        ],
        ATTRIBUTES: list(chain(*texts)),
        GRID: repeat("grid"),
        SUBJECT: repeat("subject"),
        SUBJECT_TYPE: repeat("subject_type"),
        "place": np.concatenate([np.arange(len(subject.places)) for subject in ranked]),
        "score": np.concatenate([subject.scores for subject in ranked]).astype(np.float64),
    }
