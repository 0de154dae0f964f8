"""Groups of edits, how far each of them moves a model, and the factors that a model relies on.

As in LANCE (Prabhu et al., 2023, section 4.2).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np

from cfaug.stats.cluster_tests import cluster_mean
from cfaug.stats.ranking import as_array, finite, unit
from cfaug.stats.significance import holm, require_finite, sign_flip

# Groups of edits: clusters by how the words changed, or equal words (LANCE, 4.2).
#
# Groups do not depend on a classifier; ``group_effects`` measures how far their edits move one.

Feature = Literal["abs_diff", "signed_diff"]
CLUSTERS = 5
"""Default number of clusters (LANCE, Table 6)."""
STARTS = 10
"""Number of K-Means runs; the one with the smallest distances is kept."""


@dataclass(frozen=True)
class Grouping:
    """A partition of edits into groups.

    Attributes:
        groups: number of each edit's group, int64 (edits,); numbered by their first edit.
        names: row of the edit that names each group, int64 (groups,).
    """

    groups: np.ndarray
    names: np.ndarray


def difference_features(before_ND: Any, after_ND: Any, feature: Feature = "abs_diff") -> np.ndarray:
    """Return how the features of texts differ after an edit, float64 (edits, dim).

    LANCE, section 4.2, takes the "L1 distance between CLIP features for the original and edited
    words", that is ``abs_diff``: it does not know in which direction a text was changed.
    ``signed_diff``, which the released code takes, does.

    Args:
        before_ND: embeddings of the original texts, (edits, dim); they are brought to unit length.
        after_ND: embeddings of the edited texts, (edits, dim), treated in the same way.
        feature: kind of difference: ``signed_diff``, after minus before, or ``abs_diff``, its
            absolute value.

    Raises:
        ValueError: if the shapes differ, an embedding is zero or not finite, or the feature is
            unknown.

    >>> difference_features([[2.0, 0.0]], [[0.0, 3.0]], "signed_diff").tolist()
    [[-1.0, 1.0]]
    """
    if feature not in get_args(Feature):
        raise ValueError(f"feature={feature!r}: choose from {', '.join(get_args(Feature))}")
    before, after = (as_array(features).astype(np.float64) for features in (before_ND, after_ND))
    if before.ndim != 2 or before.shape != after.shape:
        raise ValueError(f"embeddings {before.shape} and {after.shape} should be edits x dim")
    difference: np.ndarray = unit(after, "embeddings") - unit(before, "embeddings")
    return np.abs(difference) if feature == "abs_diff" else difference


def cluster_edits(feature_ND: Any, clusters: int = CLUSTERS, seed: int = 0) -> Grouping:
    """Group edits by K-Means; a group is named by the edit nearest to its centre.

    The result depends only on the features and the seed, not on the number of threads.

    Args:
        feature_ND: features of each edit, (edits, dim), such as ``difference_features`` returns.
        clusters: largest number of groups; there are never more groups than different edits.

    Raises:
        ValueError: if the features are not a table of finite values, or ``clusters`` is below 1.

    >>> cluster_edits([[0.0], [9.0], [0.2], [0.0]], clusters=2)
    Grouping(groups=array([0, 1, 0, 0]), names=array([0, 1]))
    """
    features = finite(as_array(feature_ND).astype(np.float64), "features")
    if features.ndim != 2 or clusters < 1:
        raise ValueError(f"features {features.shape} should be edits x dim, clusters={clusters} >0")
    if not len(features):
        return Grouping(np.zeros(0, np.int64), np.zeros(0, np.int64))
    from sklearn.cluster import KMeans
    from threadpoolctl import threadpool_limits

    different = len(np.unique(features, axis=0))
    with threadpool_limits(1):  # sums of several threads differ in their last bits
        fitted = KMeans(min(clusters, different), n_init=STARTS, random_state=seed).fit(features)
    groups = _renumber(fitted.labels_.tolist())
    distances = np.square(features - fitted.cluster_centers_[fitted.labels_]).sum(axis=1)
    names = [
        int(rows[np.argmin(distances[rows])])
        for group in range(groups.max() + 1)
        for rows in [np.flatnonzero(groups == group)]
    ]
    return Grouping(groups, np.array(names, np.int64))


def group_equal(words: Sequence[Hashable]) -> Grouping:
    """Group edits that are equal, such as pairs of a kind and the new words: no encoder is needed.

    Args:
        words: the key of each edit; edits with equal keys form a group.

    >>> group_equal([("domain", "sketch"), ("background", "snow"), ("domain", "sketch")])
    Grouping(groups=array([0, 1, 0]), names=array([0, 1]))
    """
    groups = _renumber(words)
    return Grouping(groups, np.unique(groups, return_index=True)[1].astype(np.int64))


def group_within(classes: Sequence[Hashable], groupings: Sequence[Grouping]) -> Grouping:
    """Combine groupings that were made class by class.

    Args:
        classes: class of every edit, any hashable value.
        groupings: one grouping per class, in the order of the classes' first edits; each groups the
            edits of its class, in their order.

    Raises:
        ValueError: if a grouping does not have as many edits as its class.

    >>> apart = [group_equal(["x", "y"]), group_equal(["x"])]
    >>> group_within(["dog", "cat", "dog"], apart)
    Grouping(groups=array([0, 2, 1]), names=array([0, 2, 1]))
    """
    numbers = _renumber(classes)
    groups = np.full(len(numbers), -1, np.int64)
    names: list[int] = []
    for number, grouping in enumerate(groupings):
        rows = np.flatnonzero(numbers == number)
        if len(rows) != len(grouping.groups):
            raise ValueError(f"class {number} has {len(rows)} edits, not {len(grouping.groups)}")
        groups[rows] = grouping.groups + len(names)
        names += rows[grouping.names].tolist()
    if (groups < 0).any():
        raise ValueError(f"{len(groupings)} groupings are fewer than the classes")
    return Grouping(groups, np.array(names, np.int64))


def _renumber(values: Sequence[Hashable]) -> np.ndarray:
    """Return numbers from 0, in the order in which values first occur."""
    seen: dict[Hashable, int] = {}
    return np.array([seen.setdefault(value, len(seen)) for value in values], np.int64)


# How far groups of edits move a classifier: Figure 3 and the class insights of LANCE.
#
# ``delta`` of an edit is how far the probability of the true class moves when the photo is edited:
# the paper takes the absolute value (section 4.1), a drop keeps its sign. Even a reconstruction
# without an edit moves it a little, so what an edit adds is measured against its own photo's
# reconstruction.
#
# The tests are those of ``item_tests`` and ``significance``, which compare them with scipy's.


@dataclass(frozen=True)
class GroupEffect:
    """How far the edits of one group move a classifier.

    Attributes:
        group: key that the edits share, any hashable value.
        rows: rows of the edits, those that move it farthest first, int64 (edits,).
        mean: mean of the edits' ``delta``.
        low: lower end of the 95 % interval of the mean, over photos (``cluster_mean``); ``nan``
            with one photo.
        excess: mean of ``delta`` minus the ``delta`` of the photo's reconstruction, over the edits
            that have one; ``nan`` if none has.
        p: one-sided p of an excess above zero, from a sign-flip permutation over photos, exact up
            to 16 of them; never below 2 ** -photos.
        p_holm: ``p``, corrected over all groups that were measured together.
    """

    group: Any
    rows: np.ndarray
    photos: int
    mean: float
    low: float
    high: float
    excess: float
    p: float
    p_holm: float = math.nan

    def __len__(self) -> int:
        return len(self.rows)


def group_effects(
    delta: Sequence[float] | np.ndarray,
    control: Sequence[float] | np.ndarray,
    photos: Sequence[Any] | np.ndarray,
    groups: Sequence[Hashable] | np.ndarray,
    *,
    seed: int = 0,
) -> list[GroupEffect]:
    """Measure groups of edits, the one with the largest mean first; ties keep their order.

    Under the null hypothesis an edit moves the classifier as much as its photo's reconstruction
    does. The two are then exchangeable, and the permutation exchanges them photo by photo, with the
    mean over a photo's edits. A bootstrap would call any effect on which a few photos agree
    significant.

    Args:
        delta: change of the true class's probability by each edit, (edits,); see the head of this
            module for its sign.
        control: the same change by the reconstruction of each edit's photo, (edits,); ``nan`` for
            an edit without a reconstruction.
        photos: the photo that each edit was made from, any comparable values, (edits,).

    Raises:
        ValueError: if lengths differ, there are no edits, or a delta is not finite.

    >>> first, second = group_effects(
    ...     [0.1, 0.5, 0.7, 0.6], [0.1, 0.1, 0.1, 0.1], [*"abcd"], ["hue", "snow", "snow", "snow"])
    >>> first.group, round(first.mean, 3), round(first.excess, 3), first.p, first.p_holm
    ('snow', 0.6, 0.5, 0.125, 0.25)
    >>> first.rows.tolist(), second.p
    ([2, 3, 1], 1.0)
    """
    values, usual = require_finite(delta), np.asarray(control, np.float64)
    names = np.unique(np.asarray(photos), return_inverse=True)[1].reshape(-1)
    if not len(values) == len(usual) == len(names) == len(groups):
        raise ValueError(
            f"{len(values)} deltas, {len(usual)} controls, {len(names)} photos and {len(groups)} "
            "groups: lengths must be equal"
        )
    if np.isinf(usual).any():
        raise ValueError("a control is infinite")
    rows_of: dict[Hashable, list[int]] = {}
    for row, group in enumerate(groups.tolist() if isinstance(groups, np.ndarray) else groups):
        rows_of.setdefault(group, []).append(row)
    effects = []
    for group, numbers in rows_of.items():
        rows = np.array(numbers, np.int64)
        over_photos = cluster_mean(values[rows], names[rows])
        excess = values[rows] - usual[rows]
        there = ~np.isnan(excess)
        mean_excess, p = math.nan, math.nan
        if there.any():
            mean_excess = float(excess[there].mean())
            _, inverse, counts = np.unique(
                names[rows][there], return_inverse=True, return_counts=True
            )
            by_photo = np.bincount(inverse.reshape(-1), excess[there]) / counts
            p = sign_flip(by_photo, "greater", seed=seed)
        effects.append(
            GroupEffect(
                group=group,
                rows=rows[np.argsort(-values[rows], kind="stable")],
                photos=over_photos.clusters,
                mean=over_photos.mean,
                low=over_photos.low,
                high=over_photos.high,
                excess=mean_excess,
                p=p,
            )
        )
    corrected = holm([effect.p for effect in effects]).tolist()
    effects = [replace(effect, p_holm=p) for effect, p in zip(effects, corrected, strict=True)]
    return sorted(effects, key=lambda effect: -effect.mean)


# Compare the factors and slices found to make a classifier fail with the planted ones.

TOP_MEMBERS = 10
"""Number of a slice's members that count."""
MINIMUM = 0.1
"""Smallest excess of a factor that counts: a smaller one may be real but has no practical use. On
scenes held out from the training of ShapeScapes' classifiers the oracle's edits of the planted
factor move the probability of the true class by 0.7 to 0.8, those of others by 0.04 to 0.07, up or
down."""


def discover_factors(
    effects: Sequence[GroupEffect], *, minimum: float = MINIMUM, alpha: float = 0.05
) -> list[Hashable]:
    """Return the factors that a classifier relies on, the one it relies on most first.

    A classifier relies on a factor if its edits move the classifier by at least ``minimum`` more
    than a reconstruction does, significantly after correction.

    Args:
        effects: effect of the edits of each factor, measured together by ``group_effects``.
        minimum: smallest excess that counts, in probability; a smaller one may be real but has no
            practical use.
        alpha: largest corrected p that counts as significant.
    """
    selected = [effect for effect in effects if effect.p_holm <= alpha and effect.excess >= minimum]
    return [effect.group for effect in sorted(selected, key=lambda effect: -effect.excess)]


@dataclass(frozen=True)
class SliceRetrieval:
    """How well discovered factors match the planted ones, summed over all classifiers."""

    right: int
    found: int
    planted: int

    @property
    def precision(self) -> float:
        """Share of the found factors that were planted; ``nan`` if nothing was found."""
        return self.right / self.found if self.found else math.nan

    @property
    def recall(self) -> float:
        """Share of the planted factors that were found; ``nan`` if nothing was planted."""
        return self.right / self.planted if self.planted else math.nan


def compare_factors(
    discovered: Sequence[Collection[Hashable]], planted: Sequence[Collection[Hashable]]
) -> SliceRetrieval:
    """Count found and planted factors over classifiers.

    Factors found for a classifier without a planted one count in ``found`` as well, so that false
    alarms cost precision.

    Args:
        discovered: the factors found for each classifier, for example only the first of
            ``discover_factors``.

    Raises:
        ValueError: if the two differ in the number of classifiers.

    >>> got = compare_factors([{"style"}, {"colour"}, {"colour"}, set()],
    ...                       [{"style"}, {"style"}, set(), {"style"}])
    >>> got.right, got.found, got.planted, round(got.precision, 3), round(got.recall, 3)
    (1, 3, 3, 0.333, 0.333)
    """
    pairs = [(set(factors), set(true)) for factors, true in zip(discovered, planted, strict=True)]
    return SliceRetrieval(
        right=sum(len(factors & true) for factors, true in pairs),
        found=sum(len(factors) for factors, _ in pairs),
        planted=sum(len(true) for _, true in pairs),
    )


def precision_at(members: Sequence[int], planted: Collection[int], k: int = TOP_MEMBERS) -> float:
    """Return the share of a slice's first ``k`` members that belong to a planted slice.

    The divisor is ``k`` for a slice of fewer members as well: a group of one cannot reach 1.

    Args:
        members: rows of a discovered slice, in descending order of membership.

    Raises:
        ValueError: if ``k`` is below 1, or a member is duplicated.

    >>> precision_at([4, 2, 9], {2, 4, 5}, k=4)
    0.5
    """
    if k < 1:
        raise ValueError(f"k={k} must be 1 or more")
    if len(set(members)) < len(members):
        raise ValueError("the members of a slice are duplicated")
    true = set(planted)
    return sum(row in true for row in list(members)[:k]) / k


def shrink_means(samples: Sequence[Sequence[float] | np.ndarray]) -> np.ndarray:
    """Return the mean of each group, shrunk towards the mean of all: empirical Bayes.

    The largest of many measured means is overestimated. Groups are taken as draws of one normal
    distribution, and the values of a group as normal around its mean, with one variance:

    ``shrunk_i = m + t / (t + s / n_i) (mean_i - m)``

    ``s`` is the variance within groups and ``t`` that between them, both by the method of moments
    of the unbalanced one-way layout (Searle, Casella and McCulloch, 1992, chapter 3), and ``m`` the
    mean of the groups weighted by ``1 / (t + s / n_i)``; the estimator is that of Morris (1983,
    "Parametric empirical Bayes inference"). Nothing is shrunk with a single group, or if no group
    has two values.

    Args:
        samples: the independent values of each group, such as one for each photo; none is empty.

    Raises:
        ValueError: if a group is empty or a value is not finite.

    >>> shrink_means([[0.8, 0.6], [0.1, 0.1], [0.0, 0.2]]).round(3).tolist()
    [0.678, 0.111, 0.111]
    """
    values = [require_finite(sample) for sample in samples]
    if not values:
        return np.zeros(0)
    sizes = np.array([len(sample) for sample in values])
    means = np.array([sample.mean() for sample in values])
    groups, total = len(sizes), sizes.sum()
    if groups < 2 or total == groups:
        return means
    squares = sum(
        float(np.square(sample - mean).sum()) for sample, mean in zip(values, means, strict=True)
    )
    within = squares / (total - groups)
    grand = (sizes * means).sum() / total
    between = float((sizes * np.square(means - grand)).sum()) / (groups - 1)
    usual = (total - np.square(sizes).sum() / total) / (groups - 1)
    spread = max(0.0, (between - within) / usual)
    variance = spread + within / sizes
    if not variance.all():  # all values are equal
        return means
    centre = (means / variance).sum() / (1 / variance).sum()
    shrunk: np.ndarray = centre + spread / variance * (means - centre)
    return shrunk
