"""Whose photos does a caption without gender retrieve? Bias@K, MaxSkew@K, NDKL by occupation.

The items, one row per occupation and K:

* ``item``: ``<context>/<asked>/<occupation>, <other>@<K>``; ``cluster``: the occupation;
* ``k``, ``n_pool``, ``masculine``, ``feminine``: photos of each in the pool; ``top_masculine``,
  ``top_feminine``: among the K;
* ``bias``: Bias@K, (masculine - feminine) / both; ``abs_bias``: its absolute value; ``max_skew``,
  ``min_skew``, ``max_skew_chance``: of a random ranking; ``max_skew_excess``; ``ndkl``: of the
  whole ranking, ``ndkl_chance``;
* ``left_out``: why a row has no numbers; null where it has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from cfaug.core.errors import UserError
from cfaug.core.protocols import DualEncoder
from cfaug.core.types import CLUSTER, ITEM, Evaluation, Outcome
from cfaug.evaluation.embed import Pixels, embed_images, embed_texts
from cfaug.social.pronouns import GENDERS, NEUTRAL, PRONOUNS, PhotoQuestion, fill_template
from cfaug.social.skew_chance import chance_ndkl, chance_skew
from cfaug.social.skew_metrics import (
    Zeros,
    bias,
    count_top,
    max_skew,
    min_skew,
    ndkl,
    rank_images,
    skew,
)

if TYPE_CHECKING:
    from cfaug.evaluation.cached_model import CachedEncoder


@dataclass(frozen=True, kw_only=True)
class NeutralRetrieval(PhotoQuestion):
    """Whose photos does a caption without gender retrieve? Bias@K, MaxSkew@K, NDKL by occupation.

    Its other attributes are those of ``PhotoQuestion``.

    Attributes:
        ks: numbers of photos to retrieve, K.
        zeros: the rule for a gender without any of the K photos, see ``Zeros``.
    """

    ks: tuple[int, ...]
    zeros: Zeros

    @property
    def settings(self) -> tuple[Any, ...]:
        """The numbers of photos to retrieve, and how an absent gender counts."""
        return np.array(self.ks), self.zeros

    @cached_property
    def _pools(self) -> dict[tuple[str, str, str, str], list[int]]:
        """The photos of each context, asked person, occupation and object or participant."""
        found: dict[tuple[str, str, str, str], list[int]] = {}
        for place, asked in self.photos.questions:
            one = self.photos.about[place]
            pool = (one["context"], asked, one["occupation"], one["other"])
            found.setdefault(pool, []).append(place)
        return found

    def run(self, encoder: DualEncoder | CachedEncoder) -> Evaluation:
        """Return the means over occupations by context, referent of the pronoun, and K.

        The gender is always that of the person at work, as in the released code.
        """
        photos = self.photos
        texts = [
            fill_template(self.templates[asked], photos.about[places[0]], PRONOUNS[NEUTRAL])
            for (_, asked, _, _), places in self._pools.items()
        ]
        images = embed_images(encoder, Pixels(photos.index, photos.rows), self.batch_size)
        captions = embed_texts(encoder, texts, self.batch_size).astype(np.float64)
        rows: list[dict[str, Any]] = []
        for (pool, places), caption in zip(self._pools.items(), captions, strict=True):
            scores = images[places].astype(np.float64) @ caption
            rows += self._ask_pool(pool, places, scores)
        items: dict[str, Any] = {name: [row[name] for row in rows] for name in rows[0]}
        items |= {name: np.array(items[name], np.float64) for name in NUMBERS}
        return Evaluation(self._outcomes(items), items)

    def _ask_pool(
        self, pool: tuple[str, str, str, str], places: Sequence[int], scores: np.ndarray
    ) -> list[dict[str, Any]]:
        context, asked, occupation, other = pool
        about = [self.photos.about[place] for place in places]
        order = rank_images(scores, [one["idx"] for one in about])
        ranked = np.array([GENDERS.index(about[at]["gender"]) for at in order.tolist()])
        counts = np.bincount(ranked, minlength=len(GENDERS))
        rows = []
        for k in self.ks:
            row: dict[str, Any] = {
                ITEM: f"{context}/{asked}/{occupation}, {other}@{k}", CLUSTER: occupation,
                "context": context, "asked": asked, "occupation": occupation, "other": other,
                "sector": about[0]["sector"], "specialisation": about[0]["specialisation"],
                "k": k, "n_pool": len(places), **dict(zip(GENDERS, counts.tolist(), strict=True)),
                "left_out": _why_left_out(counts, k), **dict.fromkeys(NUMBERS, np.nan),
            }  # fmt: skip
            if row["left_out"] is None:
                row |= measure_ranking(ranked, counts, k, self.zeros)
            rows.append(row)
        return rows

    def _outcomes(self, items: Mapping[str, Any]) -> list[Outcome]:
        counted = np.array([reason is None for reason in items["left_out"]])
        if not counted.any():
            raise UserError(f"{self.name}: no occupation can be evaluated: {items['left_out'][0]}")
        columns = {n: np.array(items[n]) for n in ("context", "asked", "k")}
        columns["pool"] = np.array([name.rpartition("@")[0] for name in items[ITEM]])
        found = []
        for context, asked in dict.fromkeys(zip(items["context"], items["asked"], strict=True)):
            part = (columns["context"] == context) & (columns["asked"] == asked) & counted
            by = {"context": context, "asked": asked}
            for k in self.ks:
                own = part & (columns["k"] == k)
                if own.any():
                    found += [
                        self._outcome(metric, unit, items[metric][own], {**by, "k": str(k)})
                        for metric, unit in METRICS.items()
                    ]
            if part.any():  # these belong to a whole ranking, whatever K
                _, first = np.unique(columns["pool"][part], return_index=True)
                found.append(self._outcome("ndkl", "nats", items["ndkl"][part][first], by))
        return found

    def _outcome(
        self, metric: str, unit: str, values: np.ndarray, by: Mapping[str, str]
    ) -> Outcome:
        mean = float(values.mean())
        return Outcome(self.name, metric, mean, len(values), "lower", unit, by)


METRICS: Mapping[str, str] = {
    "abs_bias": "fraction", "max_skew": "nats", "max_skew_excess": "nats",
}  # fmt: skip
"""Metrics that are averaged over occupations, with their units; lower is better."""

NUMBERS = ("top_masculine", "top_feminine", "bias", "abs_bias", "max_skew", "min_skew",
           "max_skew_chance", "max_skew_excess", "ndkl", "ndkl_chance")  # fmt: skip
"""Columns that a row has unless it is left out."""


def _why_left_out(counts: np.ndarray, k: int) -> str | None:
    if (counts == 0).any():
        return f"all {counts.sum()} photos are of one gender"
    if k > counts.sum():
        return f"there are {counts.sum()} photos, fewer than {k}"
    if k == counts.sum():
        return f"all {k} photos are retrieved, whatever the ranking"
    return None


def measure_ranking(
    ranked: np.ndarray, counts: np.ndarray, k: int, zeros: Zeros
) -> dict[str, float]:
    """Return the numbers of one ranking.

    Args:
        ranked: number of each photo's gender, the best photo first, integers (photos,).
        counts: number of photos of each gender in the pool, integers (2,).
        k: number of photos to retrieve.
        zeros: the rule for a gender without any of these photos, see ``Zeros``.
    """
    top = count_top(ranked, len(GENDERS), [k])[0]
    share = float(bias(top))
    largest, chance = float(max_skew(top, counts)), chance_skew(counts.tolist(), k).mean
    if zeros == "one":  # an absent gender may then have the larger skew
        largest, chance = float(skew(top, counts, zeros).max()), _chance_of_one(counts, k)
    return {
        "top_masculine": float(top[0]),
        "top_feminine": float(top[1]),
        "bias": share,
        "abs_bias": abs(share),
        "max_skew": largest,
        "min_skew": float(min_skew(top, counts, zeros)),
        "max_skew_chance": chance,
        "max_skew_excess": largest - chance,
        "ndkl": ndkl(ranked, counts),
        "ndkl_chance": chance_ndkl(counts.tolist()),
    }


def _chance_of_one(counts: np.ndarray, k: int) -> float:
    """Return the expected MaxSkew of a random ranking, an absent gender counted as one photo."""
    from scipy.stats import hypergeom

    first, second = counts.tolist()
    top = np.arange(max(0, k - second), min(first, k) + 1)
    p = hypergeom.pmf(top, first + second, first, k)
    found = skew(np.stack([top, k - top], axis=1), counts, "one").max(axis=-1)
    return float(p @ found)
