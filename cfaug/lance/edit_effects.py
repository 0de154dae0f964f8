"""How far groups of edits move a classifier: Figure 3 and the class insights of LANCE.

``delta`` of an edit is how far the probability of the true class moves when the photo is edited:
the paper takes the absolute value (section 4.1), a drop keeps its sign. Even a reconstruction
without an edit moves it a little, so what an edit adds is measured against its own photo's
reconstruction.

The tests are those of ``item_tests`` and ``significance``, which compare them with scipy's.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cfaug.core.rng import Name, generator
from cfaug.stats.item_tests import RESAMPLES, cluster_bootstrap
from cfaug.stats.significance import holm, require_finite, sign_flip


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
    own: dict[Hashable, list[int]] = {}
    for row, group in enumerate(groups.tolist() if isinstance(groups, np.ndarray) else groups):
        own.setdefault(group, []).append(row)
    found = [
        _effect(group, np.array(rows, np.int64), values, usual, names, (seed, number, resamples))
        for number, (group, rows) in enumerate(own.items())
    ]
    corrected = holm([one.p for one in found]).tolist()
    found = [replace(one, p_holm=p) for one, p in zip(found, corrected, strict=True)]
    return sorted(found, key=lambda one: -one.mean)


def _effect(
    group: Hashable,
    rows: np.ndarray,
    delta: np.ndarray,
    control: np.ndarray,
    photos: np.ndarray,
    drawing: tuple[int, Name, int],
) -> GroupEffect:
    seed, number, resamples = drawing
    own, names = delta[rows], photos[rows]
    rng = generator(seed, "edit_effects", number)
    boot = cluster_bootstrap(own, names, rng, resamples=resamples)
    excess = own - control[rows]
    there = ~np.isnan(excess)
    p = _p_of_excess(excess[there], names[there], seed) if there.any() else math.nan
    return GroupEffect(
        group=group,
        rows=rows[np.argsort(-own, kind="stable")],
        photos=boot.clusters,
        mean=boot.mean,
        low=boot.low,
        high=boot.high,
        excess=float(excess[there].mean()) if there.any() else math.nan,
        p=p,
    )


def _p_of_excess(excess: np.ndarray, photos: np.ndarray, seed: int) -> float:
    _, place, counts = np.unique(photos, return_inverse=True, return_counts=True)
    means = np.bincount(place.reshape(-1), excess) / counts
    return sign_flip(means, "greater", seed=seed)
