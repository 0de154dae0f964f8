"""The rank of the right answer among the candidates, and recall@k from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from cfaug.stats.significance import summarise, wilcoxon

# The rank of the right answer among the candidates, and what a tie is worth.
#
# A query is right at k if ANY of its positives is among the k best candidates. Only two counts
# matter: wrong candidates that score strictly more than the best positive, and wrong candidates
# that score exactly the same. The tie policy says what the second count costs:
#
# * ``"mean"`` (default): the average over every order of the tied candidates, a fraction of a hit;
# * ``"min"``: optimistic, the positive comes first; a collapsed model would score 100 %;
# * ``"max"``: pessimistic, the positive comes last; two equal images make both a miss at 1.
#
# CLIP_benchmark uses ``torch.topk``, which breaks ties by an unspecified order of indices: its
# number lies between ``"min"`` and ``"max"``, and equals all three where there are no ties.
#
# scikit-learn's ``top_k_accuracy_score`` and torchmetrics' ``RetrievalHitRate`` sort, so that a tie
# goes to whichever index their sort puts first; neither has a policy for ties.

Ties = Literal["min", "mean", "max"]
SCORES_AT_ONCE = 2**24
"""Scores held in memory at a time: 64 MB in float32, whatever the number of candidates."""


def as_array(values: Any) -> np.ndarray:
    """Return a NumPy array from an array, a list or a torch tensor on any device, of any dtype.

    Half precision is widened to float32: NumPy has no bfloat16, and float16 makes ties.
    """
    if hasattr(values, "detach"):
        values = values.detach().cpu()
        narrow = values.is_floating_point() and values.itemsize < 4
        values = (values.float() if narrow else values).numpy()
    array = np.asarray(values)
    return array.astype(np.float32) if array.dtype == np.float16 else array


def finite(values: np.ndarray, name: str) -> np.ndarray:
    """Return ``values`` if they are finite: NaN compares false with everything and would win.

    Args:
        name: name of the values in the error message, in the plural.

    Raises:
        ValueError: naming ``name``, if a value is NaN or infinite.
    """
    if not np.isfinite(values).all():
        raise ValueError(f"{name} hold NaN or infinite values: the model has diverged")
    return values


def unit(embeddings: np.ndarray, name: str) -> np.ndarray:
    """Return embeddings divided by their Euclidean length along the last axis.

    Args:
        embeddings: vectors along the last axis, (..., dim).
        name: name of the embeddings in the error message, in the plural.

    Raises:
        ValueError: naming ``name``, if an embedding is zero or not finite.
    """
    length = np.linalg.norm(finite(embeddings, name), axis=-1, keepdims=True)
    if (length == 0).any():
        raise ValueError(f"{name} hold a zero vector, which has no direction")
    return embeddings / length


def first_equal(rows_ND: np.ndarray) -> np.ndarray:
    """Return the index of the first row equal to each row, int64 (rows,).

    >>> first_equal(np.array([[1.0, 2.0], [3.0, 4.0], [1.0, 2.0]])).tolist()
    [0, 1, 0]
    """
    seen: dict[int, int] = {}
    first = np.array([seen.setdefault(hash(row.tobytes()), i) for i, row in enumerate(rows_ND)])
    later = np.flatnonzero(first != np.arange(len(first)))
    alike = (rows_ND[later] == rows_ND[first[later]]).all(axis=1)
    first[later[~alike]] = later[~alike]  # a hash collision
    return first.astype(np.int64)


class Candidates:
    """Candidates for retrieval; equal candidates get equal scores and so tie on every processor.

    The last digits of a matrix product depend on the position of a row in the kernel's blocks; a
    copy of a candidate may score slightly higher or lower than the candidate itself. So the score
    of the first of equal candidates is copied to the others.

    Args:
        unit_GD: embeddings of unit length, float (candidates, dim).
        first_G: index of the first candidate equal to each one, int64 (candidates,), from
            ``first_equal``.
    """

    def __init__(self, unit_GD: np.ndarray, first_G: np.ndarray) -> None:
        self._unit = unit_GD
        self._copies = np.flatnonzero(first_G != np.arange(len(first_G)))
        self._originals = first_G[self._copies]

    def score(self, query_QD: np.ndarray) -> np.ndarray:
        """Return the cosines of queries of unit length, (queries, candidates)."""
        scores: np.ndarray = query_QD @ self._unit.T
        if len(self._copies):
            scores[:, self._copies] = scores[:, self._originals]
        return scores


@dataclass(frozen=True)
class QueryRanks:
    """Counts for each query, integer arrays (queries,).

    ``above``: wrong candidates that beat the best positive; ``tied``: wrong candidates that equal
    it; ``best``: positives that share that best score (at least one).
    """

    above: np.ndarray
    tied: np.ndarray
    best: np.ndarray

    def hits(self, k: int, ties: Ties = "mean") -> np.ndarray:
        """Return for each query its share of a hit at k, float64 (queries,) in [0, 1].

        Args:
            k: number of best candidates that count; above the number of candidates, every query is
                a hit.

        Raises:
            ValueError: if ``k`` or ``ties`` is invalid.
        """
        if k < 1:
            raise ValueError(f"k should be at least 1, not {k}")
        if ties == "min":
            return (self.above < k).astype(np.float64)
        if ties == "max":
            return (self.above + self.tied < k).astype(np.float64)
        if ties != "mean":
            raise ValueError(f"ties={ties!r} is not one of {', '.join(get_args(Ties))}")
        # Hypergeometric: the j-th place after ``above`` is given to one of (tied - j) wrong ones
        # among (tied + best - j), and a query misses if no best positive gets one.
        places = np.clip(k - self.above, 0, self.tied + self.best)
        missed = np.ones(len(self.above))
        for j in range(int(places.max(initial=0))):
            wrong = np.maximum(self.tied - j, 0)
            left = np.maximum(self.tied + self.best - j, 1)
            missed *= np.where(j < places, wrong / left, 1.0)
        return 1.0 - missed

    def reciprocal_ranks(self, ties: Ties = "mean") -> np.ndarray:
        """Return 1 / rank of each query's first positive, float64 (queries,) in (0, 1].

        Args:
            ties: policy for ties: ``mean`` is the average over every order of the tied candidates,
                ``min`` and ``max`` count the positive first and last.

        Raises:
            ValueError: if ``ties`` is invalid.

        >>> ranks = QueryRanks(above=np.array([1]), tied=np.array([2]), best=np.array([1]))
        >>> ranks.reciprocal_ranks("min").tolist(), ranks.reciprocal_ranks("max").tolist()
        ([0.5], [0.25])
        >>> float(ranks.reciprocal_ranks()[0])  # the mean of 1/2, 1/3 and 1/4
        0.3611111111111111
        """
        if ties == "min":
            return 1.0 / (self.above + 1)
        if ties == "max":
            return 1.0 / (self.above + self.tied + 1)
        if ties != "mean":
            raise ValueError(f"ties={ties!r} is not one of {', '.join(get_args(Ties))}")
        reciprocal = np.zeros(len(self.above))
        missed = np.ones(len(self.above))  # no positive among the first j tied places
        for j in range(int(self.tied.max(initial=0)) + 1):
            wrong, left = np.maximum(self.tied - j, 0), np.maximum(self.tied + self.best - j, 1)
            next_missed = missed * wrong / left
            reciprocal += (missed - next_missed) / (self.above + j + 1)
            missed = next_missed
        return reciprocal


def standing(scores_QG: np.ndarray, group_Q: np.ndarray, group_G: np.ndarray) -> QueryRanks:
    """Find the rank of each query's best positive.

    Args:
        scores_QG: score of each query and candidate, (queries, candidates); larger is better.
        group_Q: group of each query, integers (queries,).
        group_G: group of each candidate, integers (candidates,); equal groups are positives.

    Raises:
        ValueError: if a score is not finite or a query has no positive.

    >>> s = standing(np.array([[0.1, 0.9, 0.9]]), np.array([7]), np.array([3, 7, 4]))
    >>> s.above.tolist(), s.tied.tolist(), s.best.tolist()
    ([0], [1], [1])
    >>> s.hits(1, "mean").tolist()
    [0.5]
    """
    if scores_QG.size:
        finite(np.array([scores_QG.min(), scores_QG.max()]), "scores")
    order = np.argsort(group_G, kind="stable")
    start, stop = (np.searchsorted(group_G[order], group_Q, side) for side in ("left", "right"))
    count = stop - start
    if not count.all():
        orphan = int(np.flatnonzero(count == 0)[0])
        raise ValueError(f"query {orphan} has no right answer among the candidates")
    first = np.cumsum(count) - count
    within = np.arange(count.sum()) - np.repeat(first - start, count)
    positives = scores_QG[np.repeat(np.arange(len(group_Q)), count), order[within]]
    target = np.maximum.reduceat(positives, first)
    best = np.add.reduceat(positives == np.repeat(target, count), first, dtype=np.int64)
    above, equal = np.empty((2, len(target)), np.int64)
    # Row by row: a row stays in a core's cache; counting along an axis takes three times as long.
    for query, (scores, wanted) in enumerate(zip(scores_QG, target, strict=True)):
        above[query] = np.count_nonzero(scores > wanted)
        equal[query] = np.count_nonzero(scores == wanted)
    # No positive is above the best one, so every other candidate above or equal to it is wrong.
    return QueryRanks(above=above, tied=equal - best, best=best)


def all_tied(image_of_text_T: np.ndarray) -> dict[str, QueryRanks]:
    """Return the standings in both directions of a model that tells nothing apart.

    Its recalls are chance: the mean over every order of the candidates.

    Args:
        image_of_text_T: index of each caption's image, integers (texts,).

    >>> {way: ranks.hits(1).tolist() for way, ranks in all_tied(np.array([0, 0, 1, 1])).items()}
    {'image_to_text': [0.5, 0.5], 'text_to_image': [0.5, 0.5, 0.5, 0.5]}
    """
    captions = np.bincount(image_of_text_T)
    texts, images = len(image_of_text_T), len(captions)
    return {
        "image_to_text": QueryRanks(np.zeros(images, np.int64), texts - captions, captions),
        "text_to_image": QueryRanks(
            np.zeros(texts, np.int64), np.full(texts, images - 1), np.ones(texts, np.int64)
        ),
    }


def join(parts: list[QueryRanks]) -> QueryRanks:
    """Concatenate the standings of consecutive queries."""
    return QueryRanks(
        above=np.concatenate([part.above for part in parts]),
        tied=np.concatenate([part.tied for part in parts]),
        best=np.concatenate([part.best for part in parts]),
    )


# Recall@k between texts and images, for any number of captions per image.
#
# Text to image: a caption is right if its image is among the k best. Image to text: an image is
# right if ANY of its captions is (the CLIP papers' recall, 0 or 1 for each query, not recall over
# positives). The COCO-Counterfactuals paper calls image to text "text retrieval". Ties: see
# ``ranking``.

KS = (1, 5, 10)


def standings(text_TD: Any, image_ID: Any, image_of_text: Any) -> dict[str, QueryRanks]:
    """Return the ranks of the right answers, ``{"image_to_text": ..., "text_to_image": ...}``.

    Args:
        text_TD: text embeddings, (texts, dim).
        image_ID: image embeddings, (images, dim).
        image_of_text: index of each text's image, integers (texts,).

    Raises:
        ValueError: if shapes disagree, an embedding is zero or an image has no caption.
    """
    text_TD, image_ID = as_array(text_TD), as_array(image_ID)
    images = _checked(image_of_text, len(text_TD), len(image_ID))
    texts, text_first = unit(text_TD, "text embeddings"), first_equal(text_TD)
    all_images, image_first = unit(image_ID, "image embeddings"), first_equal(image_ID)
    among_texts, among_images = Candidates(texts, text_first), Candidates(all_images, image_first)
    image = np.arange(len(all_images))
    return {
        "image_to_text": _chunked(lambda rows: among_texts.score(all_images[rows]), image, images),
        "text_to_image": _chunked(lambda rows: among_images.score(texts[rows]), images, image),
    }


def text_standing(text_TD: Any, image_ID: Any, image_of_text: Any) -> QueryRanks:
    """Return the rank of each text's image among all images: ``standings`` in one direction.

    Args:
        text_TD: text embeddings, (texts, dim).
        image_ID: image embeddings, (images, dim).
        image_of_text: index of each text's image, integers (texts,).

    Raises:
        ValueError: under the same conditions as in ``standings``.
    """
    text_TD, image_ID = as_array(text_TD), as_array(image_ID)
    images = _checked(image_of_text, len(text_TD), len(image_ID))
    texts = unit(text_TD, "text embeddings")
    among = Candidates(unit(image_ID, "image embeddings"), first_equal(image_ID))
    return _chunked(lambda rows: among.score(texts[rows]), images, np.arange(len(image_ID)))


def hits_at(
    ranks: Mapping[str, QueryRanks], ks: Sequence[int] = KS, ties: Ties = "mean"
) -> dict[str, np.ndarray]:
    """Return each query's share of a hit, ``{"image_to_text_R@1": float64 (queries,), ...}``.

    Args:
        ranks: ranks of the right answers, from ``standings``.
        ks: cut-offs k of the recalls ``R@k``.
        ties: policy for equal scores, see ``ranking``.
    """
    return {
        f"{way}_R@{k}": query_ranks.hits(k, ties) for way, query_ranks in ranks.items() for k in ks
    }


def _checked(image_of_text: Any, n_texts: int, n_images: int) -> np.ndarray:
    images = as_array(image_of_text)
    if images.shape != (n_texts,):
        raise ValueError(f"image_of_text has shape {images.shape}; there are {n_texts} texts")
    missing = np.setdiff1d(np.arange(n_images), images)
    if len(missing) or not n_texts:
        raise ValueError(f"{len(missing)} of {n_images} images have no caption: {missing[:5]}")
    if images.min() < 0 or images.max() >= n_images:
        raise ValueError(f"image_of_text names images outside 0..{n_images - 1}")
    return images


def _chunked(
    rows: Callable[[slice], np.ndarray], group_Q: np.ndarray, group_G: np.ndarray
) -> QueryRanks:
    size = max(1, SCORES_AT_ONCE // len(group_G))
    chunks = [slice(start, start + size) for start in range(0, len(group_Q), size)]
    return join([standing(rows(chunk), group_Q[chunk], group_G) for chunk in chunks])


# Matching gaps: how much higher the right image-text pair scores than its alternative.
#
# COCO-Counterfactuals, section 4.2.2. G scores an image with a text, larger is more alike. For an
# original pair (C_o, I_o), another real pair (C_r, I_r) with I_r != I_o, the image I_o^s
# synthesised for C_o, and the counterfactual pair (C_c, I_c^s)::
#
#    IR_r = G(C_r, I_r)   - G(C_r, I_o)      IR_c = G(C_c, I_c^s) - G(C_c, I_o^s)
#    TR_r = G(C_r, I_r)   - G(C_o, I_r)      TR_c = G(C_c, I_c^s) - G(C_o, I_c^s)
#
# Above zero the right pair wins. The units are those of G: gaps of two models are not comparable.

RANDOM, COUNTERFACTUAL = ("IR_r", "TR_r"), ("IR_c", "TR_c")
GAPS = (*RANDOM, *COUNTERFACTUAL)

SCORES: Mapping[str, tuple[str, str, str]] = {
    "r": ("G(C_r,I_r)", "G(C_r,I_o)", "G(C_o,I_r)"),
    "c": ("G(C_c,I_c)", "G(C_c,I_o)", "G(C_o,I_c)"),
}
"""The scores behind the gaps of random (r) and counterfactual (c) pairs: the right pair, the right
text with the wrong image, the wrong text with the right image."""


def gaps(scores: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the gaps of the kinds of pair that have scores.

    Args:
        scores: scores of the pairs, float (pairs,), under the names in ``SCORES``: all three of
            "c", of "r" or of both.

    Returns:
        {gap: float64 (pairs,)}, in the order of ``GAPS``.

    Raises:
        ValueError: if a score is not finite.

    >>> gap_by_name = gaps({"G(C_c,I_c)": [3.0], "G(C_c,I_o)": [1.0], "G(C_o,I_c)": [4.0]})
    >>> {name: gap.tolist() for name, gap in gap_by_name.items()}
    {'IR_c': [2.0], 'TR_c': [-1.0]}
    """
    differences = {}
    for kind, (right, other_image, other_text) in SCORES.items():
        if right in scores:
            right_N, image_N, text_N = (
                np.asarray(scores[name], np.float64) for name in (right, other_image, other_text)
            )
            differences[f"IR_{kind}"] = right_N - image_N
            differences[f"TR_{kind}"] = right_N - text_N
    for name, gap in differences.items():
        if not np.isfinite(gap).all():
            raise ValueError(f"{name}: a score is NaN or infinite: the model has diverged")
    return differences


def gaps_where_scored(scores: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the gaps of all pairs, ``nan`` where the right pair was not scored.

    Args:
        scores: scores of the pairs, float (pairs,), under the names in ``SCORES``; ``nan`` for a
            pair without a score, such as one without a photograph.

    Raises:
        ValueError: if only some scores of a pair are finite.

    >>> scores = {"G(C_c,I_c)": [3.0, np.nan], "G(C_c,I_o)": [1.0, 0.0], "G(C_o,I_c)": [4.0, 0.0]}
    >>> gaps_where_scored({name: np.array(row) for name, row in scores.items()})["IR_c"].tolist()
    [2.0, nan]
    """
    whole: dict[str, np.ndarray] = {}
    for names in SCORES.values():
        if names[0] not in scores:
            continue
        there = ~np.isnan(scores[names[0]])
        for name, gap in gaps({n: scores[n][there] for n in names}).items():
            whole[name] = np.full(len(there), np.nan)
            whole[name][there] = gap
    return whole


@dataclass(frozen=True)
class GapSummary:
    """One gap over all pairs: mean, standard deviation, and how often either pair wins."""

    mean: float
    sd: float
    above_zero: float
    below_zero: float
    n: int


def summary(gap_N: np.ndarray) -> GapSummary:
    """Summarise one gap; a tie is neither above nor below zero.

    Args:
        gap_N: gap of each pair, finite, (pairs,).

    >>> summary(np.array([1.0, -1.0, 0.0, 4.0]))
    GapSummary(mean=1.0, sd=2.160246899469287, above_zero=0.5, below_zero=0.25, n=4)
    """
    whole = summarise(gap_N)
    return GapSummary(
        whole.mean, whole.sd, float((gap_N > 0).mean()), float((gap_N < 0).mean()), whole.n
    )


@dataclass(frozen=True)
class Shift:
    """How much smaller a counterfactual gap is than the random gap of the same anchor.

    ``mean`` is of random minus counterfactual, ``smaller`` the share of anchors whose
    counterfactual gap is the smaller one, ``p`` of Wilcoxon's signed-rank test, one-sided.
    """

    mean: float
    smaller: float
    p: float
    n: int


def shift(random_N: np.ndarray, counterfactual_N: np.ndarray) -> Shift:
    """Compare two gaps anchor by anchor; ``nan`` in the random gap marks an anchor without one.

    Args:
        random_N: random gap of each anchor, (anchors,).
        counterfactual_N: counterfactual gap of each anchor, (anchors,).

    Raises:
        ValueError: if no anchor has both.

    >>> shift(np.array([2.0, 3.0, np.nan]), np.array([1.0, 1.0, 5.0]))
    Shift(mean=1.5, smaller=1.0, p=0.25, n=2)
    """
    both = np.isfinite(random_N) & np.isfinite(counterfactual_N)
    difference = random_N[both] - counterfactual_N[both]
    return Shift(
        float(difference.mean()) if len(difference) else np.nan,
        float((difference > 0).mean()) if len(difference) else np.nan,
        wilcoxon(difference),
        len(difference),
    )
