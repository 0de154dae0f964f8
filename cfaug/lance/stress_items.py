"""A classifier's answers to photos and their edits, read from the items of ``benchmark=stress``.

The columns are those that ``cfaug.lance.stress`` writes. No model is needed here: effects of edits,
insights into classes and the factors that a classifier relies on are computed from the items alone.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np

from cfaug.core.errors import UserError
from cfaug.core.item_schema import ItemColumn, ItemSchema
from cfaug.core.rng import Name, generator
from cfaug.core.types import ITEM, ORIGINAL, RECONSTRUCTION
from cfaug.report.items import ModelItems
from cfaug.stats.item_tests import RESAMPLES, cluster_bootstrap
from cfaug.stats.ranking import as_array, finite, unit
from cfaug.stats.significance import holm, require_finite, sign_flip

EDITED = "edited"
"""A stress test's name of its edits, besides ``original`` photos and their ``reconstruction``."""
TOP = 5
"""Number of most probable classes that an item names."""
GROUP, CENTRE = "edit_group", "edit_centre"
"""Columns of items whose edits were clustered by their texts: the number of each edit's cluster, -1
without one, and whether the edit names the cluster."""
JOINED_ITEMS = (
    ItemColumn("item", "``<set>/<key>_<member>``", "text", always=True),
    ItemColumn("cluster", "the photo", "text", always=True),
    ItemColumn(
        "set",
        "``original`` (photos), ``reconstruction``, ``edited``, ``random`` or a name of ``more``",
        "text",
        always=True,
    ),
    ItemColumn(
        "photos",
        "``edited`` if ``data`` has an edit of the photo (the paper's 576), else ``unedited``",
        "text",
        always=True,
    ),
    ItemColumn(
        "kind",
        "the kind of the edit: ``original``, ``reconstruction``, ``subject``, ...",
        "text",
        always=True,
    ),
    ItemColumn("class", "the label", "text", always=True),
    ItemColumn("text", "the caption of the image", "text", always=True),
)
"""Columns of every test of photos and their edits."""
STRESS_ITEMS = ItemSchema(
    "an image: a photo, its reconstruction or an edit of it",
    (
        *JOINED_ITEMS,
        ItemColumn("photo", "the item of the photo that it was made from", "text", always=True),
        ItemColumn("before", "the words that the edit replaces", "text", always=True),
        ItemColumn("after", "the words that replace them", "text", always=True),
        ItemColumn("text_before", "the caption of the photo", "text", always=True),
        ItemColumn("source", "the folder, as it was given", "text"),
        ItemColumn("key", "its set there", "text"),
        ItemColumn("member", "its number in the set", "whole number"),
        ItemColumn("image", "digest of its bytes", "text"),
        ItemColumn("class_name", "the model's name of the label, in words", "text"),
        ItemColumn("class_number", "its index in the logits", "whole number"),
        ItemColumn(
            "acc1", "1 if its class is the most probable; a share where classes tie", always=True
        ),
        ItemColumn("acc5", "the same for the five most probable, if there are five classes"),
        ItemColumn("rank", "1 + the number of classes above its own", "whole number"),
        ItemColumn("p", "the probability of its class", always=True),
        ItemColumn("p_photo", "the same for its photo; null for a photo", always=True),
        ItemColumn(
            "p_reconstruction",
            "the same for the photo's reconstruction; null for a photo",
            always=True,
        ),
        ItemColumn("p_drop", "p_photo - p; null for a photo", always=True),
        ItemColumn("delta_p", "its absolute value", always=True),
        ItemColumn("photo_acc<k>", "the hits of its photo; null for a photo"),
        ItemColumn("paired_drop<k>", "these minus its own hits"),
        ItemColumn(
            "net_drop<k>", "hits of the reconstruction minus its own; null for a reconstruction"
        ),
        ItemColumn("top<n>_p", "the probability of the n-th most probable class, to 5"),
        ItemColumn("top<n>", "its name", "text"),
        ItemColumn("prompt", "the prompt of the edit, where it has one", "text"),
        ItemColumn("f", "the edit's ``f``, where it has one"),
        ItemColumn(GROUP, "the number of the edit's cluster; -1 without one", "whole number"),
        ItemColumn(CENTRE, "whether the edit names the cluster", "yes or no"),
    ),
)
"""The items of ``benchmark=stress``."""
Delta = Literal["absolute", "drop"]
"""How far an edit moves the probability of the true class: absolute as in LANCE, section 4.1, or
signed, positive if it falls."""


@dataclass(frozen=True)
class Insight:
    """One intervention on a class with its effect on a classifier (LANCE, Figure 6).

    Attributes:
        before: the words that it replaces; empty for an insertion.
        after: the words that replace them.
        effect: effect of all its edits; ``rows`` are rows of the items, the strongest first.
        named_by: the row of the edit that names it.
    """

    label: str
    kind: str
    before: str
    after: str
    effect: GroupEffect
    named_by: int

    @property
    def words(self) -> str:
        """The intervention in words."""
        return f"{self.before} → {self.after}" if self.before else f"+ {self.after}"


class StressItems(ModelItems):
    """The answers of one classifier."""

    schema = STRESS_ITEMS
    ASKED_BY = "stress"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check()

    def _check(self) -> None:
        """Refuse items that no stress test writes, as they may have been changed by hand."""
        for column in STRESS_ITEMS.columns:
            if column.always and column.kind == "number":
                self.items.metric(column.name)
        hits = self.items.metric("acc1")
        if not ((hits >= 0) & (hits <= 1)).all():
            raise self._damaged("acc1 of an item is not between 0 and 1")
        names, photos, parts = (self.texts(name) for name in (ITEM, "photo", "set"))
        there = {name for name, part in zip(names, parts, strict=True) if part == ORIGINAL}
        for name, photo in zip(names, photos, strict=True):
            if photo not in there:
                raise self._damaged(f"the photo {photo!r} of {name!r} is not one of the items")
        if self.is_clustered:
            groups, centres = (np.asarray(self.items.columns[name]) for name in (GROUP, CENTRE))
            if groups.dtype.kind not in "iu" or centres.dtype.kind != "b":
                raise self._damaged(f"{GROUP} should hold whole numbers, and {CENTRE} yes or no")
            nameless = sorted(set(groups[groups >= 0].tolist()) - set(groups[centres].tolist()))
            if nameless:
                raise self._damaged(f"no edit names the cluster {nameless[0]} ({CENTRE})")

    def _damaged(self, fault: str) -> UserError:
        return UserError(
            f"the items of {self.items.benchmark} ({self.model}) are damaged: {fault}; {self.renew}"
        )

    @cached_property
    def sets(self) -> tuple[str, ...]:
        """The names of the sets, in their order."""
        return tuple(dict.fromkeys(self.texts("set")))

    @property
    def edit_sets(self) -> tuple[str, ...]:
        """The sets of edits: neither the photos nor their reconstructions."""
        return tuple(name for name in self.sets if name not in (ORIGINAL, RECONSTRUCTION))

    def rows(self, name: str) -> np.ndarray:
        """Return the rows of a set, int64."""
        if name not in self.sets:
            raise UserError(
                f"the items of {self.items.benchmark} have no set {name!r}; there are "
                f"{', '.join(self.sets)}"
            )
        return np.flatnonzero(np.array(self.texts("set")) == name)

    @cached_property
    def row_of(self) -> dict[str, int]:
        """The row of each item by its name."""
        return {name: row for row, name in enumerate(self.texts(ITEM))}

    def deltas(self, rows: np.ndarray, delta: Delta = "absolute") -> tuple[np.ndarray, np.ndarray]:
        """Return how far edits move the classifier, and how far reconstructions of their photos do.

        Returns:
            Two arrays, float64 (rows,); the second is ``nan`` where a photo has no reconstruction.
        """
        if delta not in get_args(Delta):
            raise UserError(f"delta={delta} is invalid: choose from {', '.join(get_args(Delta))}")
        photo, control = (self.items.metric(name)[rows] for name in ("p_photo", "p_reconstruction"))
        drop, usual = photo - self.items.metric("p")[rows], photo - control
        if np.isnan(drop).any():
            raise UserError(f"the items of {self.items.benchmark} lack the probability of a photo")
        return (np.abs(drop), np.abs(usual)) if delta == "absolute" else (drop, usual)

    def effects_by(
        self, column: str = "kind", part: str = EDITED, delta: Delta = "absolute"
    ) -> list[GroupEffect]:
        """Return how far each part of a set moves the classifier, strongest first (Figure 3).

        Args:
            column: column that defines the parts, such as ``kind`` or ``class``.
        """
        rows = self.rows(part)
        groups = [self.texts(column)[row] for row in rows]
        return self._measure(rows, groups, delta)

    def effects_within_classes(
        self, part: str = EDITED, delta: Delta = "absolute"
    ) -> list[GroupEffect]:
        """Return how far each kind of edit moves the classifier within each class.

        Returns:
            One effect for each pair of a class and a kind, its ``group``, strongest first; p is
            corrected over all of them.
        """
        rows = self.rows(part)
        labels, kinds = self.texts("class"), self.texts("kind")
        return self._measure(rows, [(labels[row], kinds[row]) for row in rows], delta)

    def _measure(
        self, rows: np.ndarray, groups: Sequence[Hashable], delta: Delta
    ) -> list[GroupEffect]:
        photos = [self.texts("photo")[row] for row in rows]
        values, control = self.deltas(rows, delta)
        effects = group_effects(values, control, photos, groups)
        return [replace(effect, rows=rows[effect.rows]) for effect in effects]

    @property
    def is_clustered(self) -> bool:
        """Whether edits were clustered by their texts when the model was asked."""
        return {GROUP, CENTRE} <= self.items.columns.keys()

    def insights(
        self, part: str = EDITED, *, min_photos: int = 2, delta: Delta = "absolute"
    ) -> list[Insight]:
        """Return interventions on classes, by class in order, strongest first within a class.

        Edits are grouped by the clusters of their texts if the items have them, else by class, kind
        and new words. p is corrected over all returned groups.

        Args:
            min_photos: smallest number of photos of a group; smaller groups say little about a
                class and are left out.
        """
        rows = self.rows(part)
        grouping = self._grouping(rows)
        photos = np.array([self.texts("photo")[row] for row in rows])
        sizes = [len(set(photos[grouping.groups == group])) for group in range(len(grouping.names))]
        large = np.array([group >= 0 and sizes[group] >= min_photos for group in grouping.groups])
        if not large.any():
            return []
        effects = self._measure(rows[large], grouping.groups[large].tolist(), delta)
        labels = self.texts("class")
        order = {label: i for i, label in enumerate(dict.fromkeys(labels))}
        insights = [
            self._insight(effect, int(rows[grouping.names[effect.group]])) for effect in effects
        ]
        return sorted(insights, key=lambda insight: order[insight.label])

    def _grouping(self, rows: np.ndarray) -> Grouping:
        if self.is_clustered:
            groups = np.asarray(self.items.columns[GROUP])[rows].astype(np.int64)
            centres = np.asarray(self.items.columns[CENTRE])[rows].astype(bool)
            kept = sorted(set(groups[groups >= 0].tolist()))
            names = [int(np.flatnonzero(centres & (groups == group))[0]) for group in kept]
            position = {group: i for i, group in enumerate(kept)}
            numbers = [position.get(group, -1) for group in groups.tolist()]
            return Grouping(np.array(numbers, np.int64), np.array(names, np.int64))
        columns = [self.texts(name) for name in ("class", "kind", "after")]
        words = [tuple(column[row].lower() for column in columns) for row in rows]
        return group_equal(words)

    def _insight(self, effect: GroupEffect, named_by: int) -> Insight:
        label, kind, after = (self.texts(name)[named_by] for name in ("class", "kind", "after"))
        before = self.texts("before")
        # Equal new words may replace different ones: the name gives the most frequent case.
        usual = Counter(before[row] for row in effect.rows).most_common(1)[0][0]
        return Insight(
            label, kind, before[named_by] if self.is_clustered else usual, after, effect, named_by
        )


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
        low: lower end of the 95 % interval of the mean, from a bootstrap over photos; ``nan`` with
            one photo.
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
    resamples: int = RESAMPLES,
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
    effects = [
        _effect(group, np.array(rows, np.int64), values, usual, names, (seed, number, resamples))
        for number, (group, rows) in enumerate(rows_of.items())
    ]
    corrected = holm([effect.p for effect in effects]).tolist()
    effects = [replace(effect, p_holm=p) for effect, p in zip(effects, corrected, strict=True)]
    return sorted(effects, key=lambda effect: -effect.mean)


def _effect(
    group: Hashable,
    rows: np.ndarray,
    delta: np.ndarray,
    control: np.ndarray,
    photos: np.ndarray,
    drawing: tuple[int, Name, int],
) -> GroupEffect:
    seed, number, resamples = drawing
    values, names = delta[rows], photos[rows]
    rng = generator(seed, "edit_effects", number)
    boot = cluster_bootstrap(values, names, rng, resamples=resamples)
    excess = values - control[rows]
    there = ~np.isnan(excess)
    p = _p_of_excess(excess[there], names[there], seed) if there.any() else math.nan
    return GroupEffect(
        group=group,
        rows=rows[np.argsort(-values, kind="stable")],
        photos=boot.clusters,
        mean=boot.mean,
        low=boot.low,
        high=boot.high,
        excess=float(excess[there].mean()) if there.any() else math.nan,
        p=p,
    )


def _p_of_excess(excess: np.ndarray, photos: np.ndarray, seed: int) -> float:
    _, inverse, counts = np.unique(photos, return_inverse=True, return_counts=True)
    means = np.bincount(inverse.reshape(-1), excess) / counts
    return sign_flip(means, "greater", seed=seed)
