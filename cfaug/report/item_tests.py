"""Is one arm better than another on the items of a benchmark? A test for single checkpoints too.

Tests over seeds (``tables``) ask whether retraining would give a better model. These ask whether
the same models would be better on other items of the same kind: the seeds are fixed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from cfaug.core.errors import UserError
from cfaug.core.types import CLUSTER, ITEM
from cfaug.report.items import Items
from cfaug.report.page import Measure
from cfaug.stats.cluster_tests import standard_error
from cfaug.stats.item_tests import compare_answers, describe_resolution, mcnemar


@dataclass(frozen=True)
class ItemTest:
    """Two arms on one metric of one benchmark, compared item by item.

    Attributes:
        arm: the arm's mean over items, as is ``baseline``.
        gain: improvement of the arm over the baseline; above 0 is better, whatever the metric's
            direction; ``low`` to ``high`` is its 95 % interval.
        p: one-sided p of ``test``, see ``cfaug.stats.item_tests.WHICH_TEST``: the arm is better.
        error: standard error of the gain over clusters of items.
        p_exact: two-sided p of McNemar's exact test, which treats items as independent; ``nan`` for
            values that are not right or wrong.
        better: number of items on which the arm has the better value; ``worse``, the baseline.
    """

    benchmark: str
    metric: str
    arm: float
    baseline: float
    gain: float
    low: float
    high: float
    p: float
    p_two_sided: float
    test: str
    items: int
    clusters: int
    error: float = math.nan
    p_exact: float = math.nan
    better: int = 0
    worse: int = 0

    def describe(self, measure: Measure) -> str:
        """Return a sentence on what a difference of this size means on a set of this size."""
        unit = "points" if measure.is_fraction else measure.unit
        return describe_resolution(
            self.error, self.items, self.clusters, factor=measure.factor, unit=unit
        )

    def interval(self, measure: Measure) -> tuple[float, float]:
        """Return the 95 % interval of arm minus baseline, whatever the metric's direction."""
        low, high = sorted(map(measure.gain, (self.low, self.high)))
        return low, high


def compare_items(
    arm: Sequence[Items],
    baseline: Sequence[Items],
    metric: str,
    measure: Measure | None = None,
    by: Mapping[str, str] | None = None,
) -> ItemTest:
    """Compare two arms on a metric, item by item.

    Every item is averaged over the seeds that answered it; the difference of the averages is tested
    in the metric's own direction. If seeds have test data of their own, the items of each are
    compared with those of the other arm on the same data, and all are tested together, by the
    test that ``cfaug.stats.item_tests.compare_answers`` chooses.

    Args:
        arm: answers of the arm, one per seed.
        measure: unit and direction of the metric; ``None`` means that higher is better.
        by: column values of the items to use; ``None`` uses all items.
    """
    if not (arm and baseline):
        raise UserError(f"{metric}: items are missing; evaluate both arms again to write them")
    benchmark = arm[0].benchmark
    ours, theirs = (_averages(side, metric, by or {}) for side in (arm, baseline))
    if ours.keys() != theirs.keys():
        raise _differ(arm, metric, "test data")
    clusters: list[np.ndarray] = []
    means: list[np.ndarray] = []
    known = 0
    for data in sorted(ours):
        left, right = ours[data], theirs[data]
        _check_alike(left, right, arm, metric)
        counts = ~np.isnan(left.values)
        means.append(np.stack([left.values[counts], right.values[counts]]))
        # Equal names in different test data are different clusters.
        _, places = np.unique(left.clusters[counts], return_inverse=True)
        clusters.append(places + known)
        known += len(places)
    pairs = np.concatenate(means, axis=1)
    if not pairs.size:
        raise UserError(f"{benchmark}, {metric}: no item counts ({dict(by or {})})")
    direction, sampled_in = (measure or Measure()).gain(1.0), np.concatenate(clusters)
    gains = direction * (pairs[0] - pairs[1])
    better_first, other = pairs if direction > 0 else pairs[::-1]
    compared = compare_answers(better_first, other, sampled_in)
    better, worse = int((gains > 0).sum()), int((gains < 0).sum())
    binary = bool(np.isin(pairs, (0.0, 1.0)).all())
    p_exact = mcnemar(better, worse) if binary else math.nan
    return ItemTest(
        benchmark=benchmark,
        metric=metric,
        arm=float(pairs[0].mean()),
        baseline=float(pairs[1].mean()),
        gain=compared.mean,
        low=compared.low,
        high=compared.high,
        p=compared.p_greater,
        p_two_sided=compared.p,
        test=compared.test,
        items=compared.items,
        clusters=compared.clusters,
        error=standard_error(gains, sampled_in),
        p_exact=p_exact,
        better=better,
        worse=worse,
    )


@dataclass(frozen=True)
class Values:
    """A metric of the items of one test, (items,) each, by sorted names.

    ``clusters`` are those that items were sampled in; a value is ``nan`` where an item does not
    count.
    """

    names: np.ndarray
    clusters: np.ndarray
    values: np.ndarray


def read_values(items: Items, metric: str, by: Mapping[str, str]) -> Values:
    """Return a metric of some items, in the order of their names.

    Args:
        by: column values of the items to use; empty for all items.
    """
    chosen = np.ones(len(items), bool)
    for column, value in by.items():
        if column not in items.columns:
            raise UserError(f"the items of {items.benchmark} lack the column {column!r}")
        chosen &= np.asarray(items.columns[column]).astype(str) == value
    names = np.asarray(items.columns[ITEM]).astype(str)[chosen]
    order = np.argsort(names)
    clusters = np.asarray(items.columns[CLUSTER]).astype(str)[chosen][order]
    return Values(names[order], clusters, items.metric(metric)[chosen][order])


def _averages(answers: Sequence[Items], metric: str, by: Mapping[str, str]) -> dict[str, Values]:
    tests: dict[str, list[Values]] = {}
    for items in answers:
        tests.setdefault(items.data, []).append(read_values(items, metric, by))
    for first, *others in tests.values():
        for other in others:
            _check_alike(first, other, answers, metric)
    return {
        data: replace(seeds[0], values=np.mean([seed.values for seed in seeds], axis=0))
        for data, seeds in tests.items()
    }


def _check_alike(first: Values, other: Values, answers: Sequence[Items], metric: str) -> None:
    if not np.array_equal(first.names, other.names):
        raise _differ(answers, metric, "items")
    if not np.array_equal(np.isnan(first.values), np.isnan(other.values)):
        raise _differ(answers, metric, "items that count")


def _differ(answers: Sequence[Items], metric: str, noun: str) -> UserError:
    return UserError(
        f"{answers[0].benchmark}, {metric}: different {noun}, so there is nothing to pair; "
        "evaluate both on the same data"
    )
