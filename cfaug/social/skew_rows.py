"""The items of a skew benchmark: one row per grid, labelling, K and subject.

No model is needed here: a subject is given by its images in order of rank.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from cfaug.core.errors import UserError
from cfaug.core.grids import ATTRIBUTES, GRID, SUBJECT, SUBJECT_TYPE, Labelling, find_labellings
from cfaug.core.item_schema import to_json
from cfaug.core.rng import generator
from cfaug.core.types import CLUSTER, ITEM, ColumnValues
from cfaug.social.grid_sets import GridImages, GridSets
from cfaug.social.skew_items import SKEW_ITEMS
from cfaug.social.skew_metrics import (
    bias,
    max_skew,
    min_skew,
    ndkl,
    rank_images,
    skew,
)
from cfaug.social.skew_tests import (
    DRAWS,
    PermutationTest,
    RankedPool,
    bootstrap_max_skew,
    chance_ndkl,
    chance_skew,
    draw_sets,
    permutation_test,
)
from cfaug.social.within_set_gap import LabelGaps, chance_range, friedman, label_gaps, rank_within
from cfaug.stats.ranking import Candidates, first_equal, unit
from cfaug.stats.significance import holm

if TYPE_CHECKING:
    from cfaug.social.skew import Skew

TOP_SHOWN = 100
"""The most of the first K images that a row names."""
INTERVAL = 0.95


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
    """

    grid: str
    members: int
    subject: str
    subject_type: str
    places: np.ndarray
    sets: np.ndarray
    scores: np.ndarray
    names: Sequence[str]


@dataclass(frozen=True)
class GridLabels:
    """One labelling of a grid's images.

    Attributes:
        labelling: the attributes that form the labels.
        codes: number of each image's label, int64 (images of the grid,).
        chosen: whether each image is part of this labelling, bool (images of the grid,).
    """

    labelling: Labelling
    codes: np.ndarray
    labels: Sequence[str]
    chosen: np.ndarray


def measure(subject: RankedSubject, by: GridLabels, how: Skew) -> list[dict[str, Any]]:
    """Return a row for each K.

    Args:
        subject: the subject's images in order of rank.
        by: the labels of the grid's images.
    """
    own = by.chosen[subject.places]
    places = subject.places[own]
    codes = by.codes[places]
    there = np.unique(codes)
    about = {
        "cluster": subject.subject,
        "subject": subject.subject,
        "subject_type": subject.subject_type,
        "grid": subject.grid,
        "labelling": by.labelling.name,
        "n_pool": len(places),
        "n_sets": len(np.unique(subject.sets[own])),
        "n_labels": len(there),
        "labels": to_json([by.labels[code] for code in there.tolist()]),
    }
    pool = _Pool(subject, by, how, own, np.searchsorted(there, codes)) if len(there) > 1 else None
    rows = []
    for k in how.choose_ks(subject.members, len(by.labels)):
        name = f"{subject.grid}/{by.labelling.name}/{subject.subject}@{k}"
        reason = _reason(len(places), len(there), k)
        found = pool.measure(k) if reason is None and pool is not None else {}
        rows.append({"item": name, **about, "k": k, **found, "left_out": reason})
    return rows


def _reason(images: int, labels: int, k: int) -> str | None:
    """Say why a subject cannot be evaluated; ``None`` if it can."""
    if images < 2:
        return "no image" if not images else "one image: there is nothing to rank"
    if labels < 2:
        return "one label: there is nothing to compare"
    return f"k={k} is more than the pool of {images} images" if k > images else None


class _Pool:
    """The images of a subject that have a label, and all that does not depend on K."""

    def __init__(
        self,
        subject: RankedSubject,
        by: GridLabels,
        how: Skew,
        own: np.ndarray,
        labels: np.ndarray,
    ) -> None:
        self.subject, self.by, self.how = subject, by, how
        sets = np.unique(subject.sets[own], return_inverse=True)[1].reshape(-1)
        self.ranked = RankedPool(labels, sets)
        self.places = subject.places[own]
        self.names = [name for name, kept in zip(subject.names, own, strict=True) if kept]
        scores = subject.scores[own]
        self.gaps = label_gaps(scores, labels, sets, INTERVAL)
        places = rank_within(scores, sets)
        self.rank_gaps = label_gaps(places, labels, sets, INTERVAL)
        self.p_gap = friedman(places, labels, sets)
        self.chance_gap = chance_range(places, labels, sets)
        key = (how.seed, subject.grid, subject.subject)
        self.drawn = _draw_sets(key, int(sets.max()) + 1, how.resamples)

    def measure(self, k: int) -> dict[str, Any]:
        """Return the columns of one K."""
        ranked, how = self.ranked, self.how
        top, pool = ranked.top(k), ranked.pool
        value = float(max_skew(top, pool))
        chance = chance_skew(pool.tolist(), k)
        test = self._test(k, value)
        [(low, high)] = bootstrap_max_skew(ranked, [k], self.drawn, INTERVAL)
        signed = float(bias(top)) if len(top) == 2 else math.nan
        divergence = ndkl(ranked.labels, pool)
        usual = chance_ndkl(pool.tolist())
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
            "ndkl": divergence,
            "ndkl_chance": usual,
            "ndkl_excess": divergence - usual,
            "bias": abs(signed),
            "signed_bias": signed,
            "score_gap": self.gaps.range,
            "rank_gap": self.rank_gaps.range,
            "rank_gap_chance": self.chance_gap,
            "rank_gap_excess": self.rank_gaps.range - self.chance_gap,
            "p_gap": self.p_gap,
            "top_counts": to_json(top.tolist()),
            "pool_counts": to_json(pool.tolist()),
            "skews": to_json(skew(top, pool, how.zeros, how.alpha).tolist()),
            **_lists("gaps", self.gaps),
            **_lists("rank_gaps", self.rank_gaps),
            "top": to_json(self.names[: min(k, TOP_SHOWN)]),
        }

    def _test(self, k: int, value: float) -> PermutationTest:
        how = self.how
        if how.permute == "pool":
            chance = chance_skew(self.ranked.pool.tolist(), k)
            return PermutationTest(
                p=chance.tail(value) if chance.exact else max(chance.tail(value), 1 / DRAWS),
                expected=chance.mean,
                high=chance.quantile(INTERVAL),
                level=chance.level(1 - INTERVAL),
                permutations=0,
            )
        names = (self.subject.grid, self.by.labelling.name, self.subject.subject, k)
        stream = generator(how.seed, "skew", *names)
        return permutation_test(self.ranked, k, stream, how.permutations)


@lru_cache(maxsize=1)
def _draw_sets(key: tuple[int, str, str], sets: int, resamples: int) -> np.ndarray:
    """Return the resamples of a subject's sets: the same, whatever the labels and K."""
    seed, *names = key
    return draw_sets(sets, resamples, generator(seed, "skew_sets", *names))


def _lists(name: str, gaps: LabelGaps) -> dict[str, str]:
    """Return a column for each part of the gaps, by label."""
    stem = name.removesuffix("s")
    return {
        name: to_json(gaps.mean.tolist()),
        f"{stem}_low": to_json(gaps.low.tolist()),
        f"{stem}_high": to_json(gaps.high.tolist()),
        f"{stem}_p": to_json(gaps.p.tolist()),
    }


NUMBERS = SKEW_ITEMS.names("number")
"""Columns of numbers, null where a row has none."""
LISTS = tuple(name for name in SKEW_ITEMS.names("JSON") if name != "labels")
"""Columns of JSON lists, empty where a row has none."""
CORRECTED = {"p_holm": "p_permutation", "p_gap_holm": "p_gap"}
"""{column of p corrected over subjects: the column that it corrects}."""


def item_columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return rows as columns, p corrected over the subjects of each grid, labelling and K.

    Args:
        rows: the rows that ``measure`` returns.
    """
    columns: dict[str, Any] = {}
    for name in (column.name for column in SKEW_ITEMS.columns):
        if name in NUMBERS:
            columns[name] = np.array([row.get(name, math.nan) for row in rows], np.float64)
        else:
            columns[name] = [row.get(name, "[]") if name in LISTS else row[name] for row in rows]
    asked: dict[tuple[Any, ...], list[int]] = {}
    for at, row in enumerate(rows):
        asked.setdefault((row["grid"], row["labelling"], row["k"]), []).append(at)
    for corrected, name in CORRECTED.items():
        for places in asked.values():
            columns[corrected][places] = holm(columns[name][places])
    return columns


# The images of a subject in order of their cosine to its neutral prompt, and their labels.


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
    names = [sets.index.key(int(row)) for row in grid.rows[places]]
    own = images[places]
    try:
        direction = unit(query, f"the prompts of {sets.subjects[number]!r}")
        scores = Candidates(unit(own, "images"), first_equal(own)).score(direction[None])[0]
        order = rank_images(scores, names)
    except ValueError as error:
        wrong = places[~np.isfinite(own).all(axis=1) | ~own.any(axis=1)].tolist()
        such = [f", such as {sets.index.image_name(int(grid.rows[at]))}" for at in wrong[:1]]
        raise UserError(f"{error}{''.join(such)}; images cannot be ranked by it") from error
    return RankedSubject(
        grid=grid.name,
        members=int(np.prod([len(some) for some in grid.attributes.values()])),
        subject=sets.subjects[number],
        subject_type=sets.subject_types[number],
        places=places[order],
        sets=grid.sets[places][order],
        scores=scores[order],
        names=[names[at] for at in order.tolist()],
    )


def label_grid(grid: GridImages, asked: Sequence[str] | None) -> list[GridLabels]:
    """Return every requested labelling of a grid's images.

    Args:
        asked: the labellings, such as ``gender|race``, as for ``find_labellings``; ``None`` for the
            usual ones.
    """
    names = list(grid.attributes)
    found = []
    for labelling in find_labellings(grid.attributes, asked):
        codes, labels = grid.label(labelling.attributes)
        chosen = np.ones(len(grid.rows), bool)
        for name, value in labelling.given.items():
            chosen &= grid.values[:, names.index(name)] == grid.attributes[name].index(value)
        found.append(GridLabels(labelling, codes, labels, chosen))
    return found


def ranking_columns(sets: GridSets, ranked: Sequence[RankedSubject]) -> dict[str, ColumnValues]:
    """Return the rankings of a skew benchmark, one row per image; see ``cfaug.social.skew``.

    Args:
        sets: the sets that the ranked images belong to.
        ranked: the ranked images of every subject of every grid.
    """
    said: dict[str, list[list[str]]] = {name: [] for name in (ITEM, CLUSTER, ATTRIBUTES)}
    for subject in ranked:
        grid = sets.grids[subject.grid]
        said[ITEM].append(list(subject.names))
        said[CLUSTER].append([sets.set_names[number] for number in subject.sets.tolist()])
        kinds, place = np.unique(grid.values[subject.places], axis=0, return_inverse=True)
        texts = [_attributes(grid, kind) for kind in kinds.tolist()]
        said[ATTRIBUTES].append([texts[at] for at in place.reshape(-1).tolist()])
    of_subject = {
        GRID: [subject.grid for subject in ranked],
        SUBJECT: [subject.subject for subject in ranked],
        SUBJECT_TYPE: [subject.subject_type for subject in ranked],
    }
    sizes = [len(subject.places) for subject in ranked]
    return {
        **{name: list(chain(*texts)) for name, texts in said.items()},
        **{name: np.repeat(np.array(texts, object), sizes) for name, texts in of_subject.items()},
        "place": np.concatenate([np.arange(size) for size in sizes]),
        "score": np.concatenate([subject.scores for subject in ranked]).astype(np.float64),
    }


def _attributes(grid: GridImages, numbers: Sequence[int]) -> str:
    """Return the values of an image's attributes by name, as JSON."""
    every = zip(grid.attributes.items(), numbers, strict=True)
    return json.dumps({name: some[number] for (name, some), number in every}, ensure_ascii=False)
