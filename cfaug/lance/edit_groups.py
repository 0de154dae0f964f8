"""Groups of edits: clusters by how the words changed, or equal words (LANCE, 4.2).

Groups do not depend on a classifier; ``group_effects`` measures how far their edits move one.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from cfaug.stats.ranking import as_array, finite, unit

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
    before, after = (as_array(one).astype(np.float64) for one in (before_ND, after_ND))
    if before.ndim != 2 or before.shape != after.shape:
        raise ValueError(f"embeddings {before.shape} and {after.shape} should be edits x dim")
    found: np.ndarray = unit(after, "embeddings") - unit(before, "embeddings")
    return np.abs(found) if feature == "abs_diff" else found


def cluster_edits(feature_ND: Any, clusters: int = CLUSTERS, seed: int = 0) -> Grouping:
    """Group edits by K-Means; a group is named by the edit nearest to its centre.

    The result depends only on the features and the seed, not on the number of threads.

    Args:
        feature_ND: features of each edit, (edits, dim), such as ``difference_features`` returns.
        clusters: largest number of groups; there are never more groups than different edits.
        seed: seed of the random starts.

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
    for number, own in enumerate(groupings):
        rows = np.flatnonzero(numbers == number)
        if len(rows) != len(own.groups):
            raise ValueError(f"class {number} has {len(rows)} edits, not {len(own.groups)}")
        groups[rows] = own.groups + len(names)
        names += rows[own.names].tolist()
    if (groups < 0).any():
        raise ValueError(f"{len(groupings)} groupings are fewer than the classes")
    return Grouping(groups, np.array(names, np.int64))


def _renumber(values: Sequence[Hashable]) -> np.ndarray:
    """Return numbers from 0, in the order in which values first occur."""
    seen: dict[Hashable, int] = {}
    return np.array([seen.setdefault(value, len(seen)) for value in values], np.int64)
