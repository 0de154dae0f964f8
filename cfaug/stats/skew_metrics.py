"""Skew@K and related metrics: labels among the K best images against their shares of the pool.

Geyik et al. (2019), "Fairness-aware ranking in search & recommendation systems"; the intersectional
bias paper (Howard et al., 2023), section 3. Logarithms are natural, as in both. A ranking is given
by the labels of its images, the best first, as numbers from 0; the desired share of a label is its
share of the pool, or any other given share. Values expected by chance are in ``skew_tests``.

A label that is not among the K has a skew of minus infinity. MaxSkew is not affected; for the
smallest and the mean skew a rule is needed, see ``Zeros``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np

from cfaug.core.rng import derive
from cfaug.stats.ranking import finite

Zeros = Literal["smooth", "neg_inf", "drop", "ref0", "one"]
"""Rules for a label that is not among the K images.

* ``smooth``: alpha is added to every label's count, so that the skew is finite;
* ``neg_inf``: minus infinity, as Skew@K is defined;
* ``drop``: it is left out, only labels that are present count;
* ``ref0``: 0, as if it had its desired share, as in the paper's released code. That is wrong in
  direction: a missing label has the smallest possible skew;
* ``one``: one image, so that its share is 1/K (VisoGender, Hall et al., 2023, and its code): in a
  pool that is not balanced, a rare label that is missing may then even have the largest skew.
"""
SKEW_ALPHA = 0.5
"""The number that ``smooth`` adds to every count: half an image (Jeffreys)."""


def rank_images(scores_N: Any, ids: Sequence[str]) -> np.ndarray:
    """Return the indices of images in order of their scores, the best first, int64 (images,).

    Equal scores are ordered by a hash of the image's id: a fixed order that has nothing to do with
    labels, files or the order in which images were read.

    Args:
        scores_N: score of each image, larger is better, float (images,).

    Raises:
        ValueError: if a score is NaN or infinite, naming its image, or lengths differ.

    >>> rank_images([0.1, 0.3, 0.2], ["a", "b", "c"]).tolist()
    [1, 2, 0]
    """
    scores = np.asarray(scores_N)
    if scores.shape != (len(ids),):
        raise ValueError(f"{scores.shape} scores and {len(ids)} ids: lengths must be equal")
    wrong = np.flatnonzero(~np.isfinite(scores))
    if len(wrong):
        raise ValueError(
            f"{len(wrong)} scores are NaN or infinite, such as that of {ids[int(wrong[0])]}"
        )
    order = np.argsort(-scores, kind="stable")
    ordered = scores[order]
    equal = ordered[1:] == ordered[:-1]
    if not equal.any():
        return order
    tied = np.flatnonzero(np.r_[equal, False] | np.r_[False, equal])
    codes = np.zeros(len(ids), np.uint64)
    codes[order[tied]] = [derive(0, "rank", ids[at]) for at in order[tied].tolist()]
    ranking: np.ndarray = np.lexsort((codes, -scores))
    return ranking


def count_top(labels_N: np.ndarray, labels: int, ks: Sequence[int]) -> np.ndarray:
    """Return how often each label is among the first k, int64 (len(ks), labels).

    Args:
        labels_N: index of each image's label, the best image first, integers (images,).
        ks: cut-offs from 1 to the number of images, in any order.

    Raises:
        ValueError: if a k or a label is out of range.

    >>> count_top(np.array([0, 1, 0, 2]), 3, [1, 3]).tolist()
    [[1, 0, 0], [2, 1, 0]]
    """
    for k in ks:
        if not 1 <= k <= len(labels_N):
            raise ValueError(f"k={k} should be 1 to {len(labels_N)}, the number of images")
    if len(labels_N) and not 0 <= labels_N.min() <= labels_N.max() < labels:
        raise ValueError(f"a label is outside 0 to {labels - 1}")
    counts = np.empty((len(ks), labels), np.int64)
    counted, done = np.zeros(labels, np.int64), 0
    for at in np.argsort(ks, kind="stable").tolist():
        counted = counted + np.bincount(labels_N[done : ks[at]], minlength=labels)
        counts[at], done = counted, ks[at]
    return counts


def relative_share(counts_KA: Any, desired_A: Any) -> np.ndarray:
    """Return the share of each label over its desired share, float64 like the counts; 1 is fair.

    Equal ratios of whole counts are equal to the last bit, so that maxima can be compared.

    Args:
        counts_KA: number of the K images with each label, (..., labels); K is their sum.
        desired_A: desired shares, or the counts of the pool, (labels,) or as ``counts_KA``. 0 means
            that a label is not in the pool; its ratio is 0.

    Raises:
        ValueError: if all counts are 0, a value is negative, or a label with a desired share of 0
        occurs.
    """
    counts, desired = np.asarray(counts_KA, np.float64), np.asarray(desired_A, np.float64)
    k = counts.sum(axis=-1, keepdims=True)
    whole = desired.sum(axis=-1, keepdims=True)
    if not (counts >= 0).all() or not (desired >= 0).all() or not (k > 0).all():
        raise ValueError("counts and shares should be 0 or more, and not all counts 0")
    absent = desired == 0
    if absent.any() and (counts * absent).any():
        raise ValueError("a label of the images has no desired share")
    return counts * whole / (k * np.where(absent, 1.0, desired))


def skew(
    counts_KA: Any, desired_A: Any, zeros: Zeros = "neg_inf", alpha: float = SKEW_ALPHA
) -> np.ndarray:
    """Return Skew@K of every label: the log of its share over its desired share (equation 1).

    Args:
        counts_KA: number of the K images with each label, (..., labels).
        desired_A: desired shares above 0, or the counts of the pool, (labels,).
        zeros: rule for a missing label, see ``Zeros``; ``drop`` gives ``nan``.
        alpha: number that ``smooth`` adds to every count, above 0.

    Raises:
        ValueError: if ``zeros`` is unknown, alpha is not above 0, a share is 0, or counts are
            invalid.

    >>> skew([3, 1, 0], [1, 1, 2]).round(3).tolist()
    [1.099, 0.0, -inf]
    >>> skew([3, 1, 0], [1, 1, 2], "ref0").round(3).tolist()
    [1.099, 0.0, 0.0]
    """
    if zeros not in get_args(Zeros):
        raise ValueError(f"zeros={zeros!r}: choose from {', '.join(get_args(Zeros))}")
    if not np.all(np.asarray(desired_A) > 0):
        raise ValueError("every label should have a desired share above 0: leave out the others")
    counts = np.asarray(counts_KA, np.float64)
    if zeros == "smooth":
        if not alpha > 0:
            raise ValueError(f"alpha={alpha} should be above 0")
        return np.log(relative_share(counts + alpha, desired_A))
    with np.errstate(divide="ignore"):
        skews: np.ndarray = np.log(relative_share(counts, desired_A))
    if zeros == "neg_inf":
        return skews
    if zeros == "one":
        desired = np.asarray(desired_A, np.float64)
        share = desired / desired.sum(axis=-1, keepdims=True)
        rare = np.log(1 / (counts.sum(axis=-1, keepdims=True) * share))
        return np.where(counts == 0, rare, skews)
    return np.where(counts == 0, math.nan if zeros == "drop" else 0.0, skews)


def max_skew(counts_KA: Any, desired_A: Any) -> np.ndarray:
    """Return MaxSkew@K: the largest skew of any label (equation 2), float64 (...).

    It is never below 0, and 0 only where every label has its desired share. With K images and as
    many labels of equal share it is the log of the largest count.

    Args:
        counts_KA: number of the K images with each label, (..., labels).
        desired_A: desired shares, or the counts of the pool, see ``relative_share``.

    >>> max_skew([[1, 1, 1], [2, 1, 0]], [5, 5, 5]).round(3).tolist()
    [0.0, 0.693]
    """
    largest: np.ndarray = np.log(relative_share(counts_KA, desired_A).max(axis=-1))
    return largest


def min_skew(
    counts_KA: Any, desired_A: Any, zeros: Zeros = "smooth", alpha: float = SKEW_ALPHA
) -> np.ndarray:
    """Return MinSkew@K: the smallest skew of any label, float64 (...).

    Args:
        counts_KA: number of the K images with each label, (..., labels).
        desired_A: desired shares above 0, or the counts of the pool, (labels,).

    >>> [round(float(min_skew([2, 1, 0], [1, 1, 1], z)), 3) for z in get_args(Zeros)]
    [-1.099, -inf, 0.0, 0.0, 0.0]
    """
    smallest: np.ndarray = np.nanmin(skew(counts_KA, desired_A, zeros, alpha), axis=-1)
    return smallest


def ndkl(labels_N: np.ndarray, desired_A: Any, at: int | None = None) -> float:
    """Return NDKL: how far every prefix of a ranking is from the desired shares, 0 or more.

    Geyik et al. (2019), section 3: the Kullback-Leibler divergence of the labels of the first i
    images from the desired ones, averaged over i with weights 1 / log2(i + 1).

    Args:
        labels_N: index of each image's label, the best image first, integers (images,).
        desired_A: desired shares above 0, or the counts of the pool, (labels,).
        at: length of the longest prefix; ``None`` is the whole ranking, as in the paper that
            defines it.

    Raises:
        ValueError: if there is no image, ``at`` or a label is out of range, or a share is 0.

    >>> round(ndkl(np.array([0, 1]), [1, 1]), 4)  # ln 2 at the first image, 0 at the second
    0.425
    """
    labels = np.asarray(labels_N)
    if not len(labels) or not 1 <= (len(labels) if at is None else at) <= len(labels):
        raise ValueError(f"at={at} should be 1 to {len(labels)}, the number of images")
    labels = labels[:at]
    desired = finite(np.asarray(desired_A, np.float64), "desired shares")
    if not (desired > 0).all():
        raise ValueError("every label should have a desired share above 0: leave out the others")
    desired = desired / desired.sum()
    if not 0 <= labels.min() <= labels.max() < len(desired):
        raise ValueError(f"a label is outside 0 to {len(desired) - 1}")
    length = np.arange(1, len(labels) + 1)
    divergence = np.zeros(len(labels))
    for label, share in enumerate(desired.tolist()):
        observed = np.cumsum(labels == label) / length
        divergence += observed * np.log(np.where(observed > 0, observed, share) / share)
    return float((divergence * discount(len(labels))).sum())


def discount(length: int) -> np.ndarray:
    """Return NDKL's weights of the prefixes up to a length; they sum to one, float64 (length,)."""
    weights = 1 / np.log2(np.arange(1, length + 1) + 1)
    normalised: np.ndarray = weights / weights.sum()
    return normalised


def bias(counts_KA: Any, first: int = 0, second: int = 1) -> np.ndarray:
    """Return Bias@K of two labels, such as men and women: (first - second) / (first + second).

    From -1, only the second, to 1, only the first. It is signed: its mean over subjects may be 0
    though every subject is biased.

    Args:
        counts_KA: number of the K images with each label, (..., labels).

    Returns:
        float64 (...), ``nan`` where neither occurs.

    >>> bias([[3, 1], [0, 2]]).tolist()
    [0.5, -1.0]
    """
    counts = np.asarray(counts_KA, np.float64)
    both = counts[..., first] + counts[..., second]
    difference = counts[..., first] - counts[..., second]
    return np.where(both > 0, difference / np.maximum(both, 1e-300), math.nan)
