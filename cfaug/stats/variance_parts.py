"""How much of the variance of a difference of two arms comes from seeds, and how much from items?

More seeds help if the variance comes from seeds; more items help if it comes from items. The parts
are variance components of random effects, by the method of moments; they also give an interval of
Student's t over seeds and items at once.

scipy takes long to import, so it is imported where it is used. It has no random effects;
statsmodels' ``MixedLM`` estimates them by likelihood, in iterations; here they are sums of squares.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cfaug.stats.seeds_and_items import OneTest, OwnTests, sum_clusters

SEEDS, ITEMS = "seeds", "items"
"""The parts of a squared standard error whose estimates may be negative and are then cut to 0."""

NO_SPREAD = 1e-24
"""A squared standard error below this share of the mean square is rounding error."""

FEW_SEEDS: Mapping[int, tuple[float, float]] = {2: (0.084, 0.139), 3: (0.066, 0.074)}
"""The highest shares of one-sided and of two-sided p of .05 or less where there is no difference,
by the smaller number of seeds of two arms, as measured by ``python benchmarks/seeds_and_items.py
--alarms --seeds 2,3,4,5 --trials 10000`` (docs/statistics.md). The spread of two or three seeds is
so uncertain that Satterthwaite's degrees of freedom are too many; with four, p is about right."""


@dataclass(frozen=True)
class Decomposition:
    """The squared standard error of a difference of two arms, split into parts.

    Attributes:
        seeds: variance from the choice of training seeds.
        items: variance from the choice of clusters of items.
        rest: variance from their interaction and from noise; ``nan`` where each seed has its own
            test, in which case ``items`` includes it.
        truncated: names of the parts (``SEEDS``, ``ITEMS``) that were estimated below 0 and are cut
            to 0.
        degrees: degrees of freedom of the total (Satterthwaite, 1946).
    """

    seeds: float
    items: float
    rest: float
    truncated: tuple[str, ...]
    degrees: float

    @property
    def total(self) -> float:
        """The squared standard error."""
        return self.seeds + self.items + (0.0 if math.isnan(self.rest) else self.rest)

    @property
    def standard_error(self) -> float:
        """The standard error of the difference over seeds and items."""
        return math.sqrt(self.total)

    def share(self, part: float) -> float:
        """Return a part as a share of the total; ``nan`` where there is no spread at all.

        Args:
            part: value of ``seeds``, ``items`` or ``rest``.
        """
        return part / self.total if self.total > 0 else math.nan

    def interval(self, mean: float, level: float = 0.95) -> tuple[float, float]:
        """Return Student's interval over seeds and items; both ends ``nan`` without spread.

        Args:
            mean: difference of the two arms.
            level: nominal coverage of the interval, between 0 and 1.
        """
        if not self.total > 0:
            return math.nan, math.nan
        from scipy.special import stdtrit

        reach = float(stdtrit(self.degrees, (1 + level) / 2)) * self.standard_error
        return mean - reach, mean + reach

    def p_greater(self, mean: float) -> float:
        """Return the one-sided p of Student's t for a difference above 0.

        Without spread it is 1 if there is no difference either, else ``nan``.

        Args:
            mean: difference of the two arms.
        """
        if not self.total > 0:
            return 1.0 if mean == 0 else math.nan
        from scipy.special import stdtr

        return float(stdtr(self.degrees, -mean / self.standard_error))


def decompose(asked: OneTest | OwnTests) -> Decomposition:
    """Decompose the squared standard error of a difference into parts from seeds and from items.

    With one test: a two-way layout of seeds and clusters with random effects, each by the method of
    moments (Searle, Casella and McCulloch, 1992, chapter 4); clusters of unequal size enter by the
    linearised ratio. Arms that do not share their seeds each have a part of seeds and a rest, which
    are added. With a test per seed: clusters within seeds, where the rest cannot be separated from
    items.

    With few seeds the parts themselves are uncertain: five seeds estimate the spread of seeds to
    within a factor of about 2. With two or three, p is too small (``FEW_SEEDS``). A part that is
    estimated below 0 is cut to 0 and named.

    Args:
        asked: answers of both arms, at least two seeds in each and two clusters in each test.

    Returns:
        The parts.

    Raises:
        ValueError: if there are fewer seeds or clusters.

    >>> seed, item = np.array([[0.0], [0.2]]), np.array([0.0, 1.0, 0.0, 1.0])
    >>> parts = decompose(OneTest(seed + item, np.zeros((2, 4)), range(4)))
    >>> round(parts.seeds, 4), round(parts.items, 4), round(abs(parts.rest), 4)
    (0.01, 0.0833, 0.0)
    """
    return _decompose_nested(asked) if isinstance(asked, OwnTests) else _decompose_crossed(asked)


def _decompose_crossed(asked: OneTest) -> Decomposition:
    sides = [asked.arm - asked.baseline] if asked.paired else [asked.arm, asked.baseline]
    layouts = [_linearise(values, asked.clusters) for values in sides]
    many = layouts[0].shape[1]
    _require_two([len(one) for one in layouts], [many])
    by_seed = _MeanSquares()
    rest = _MeanSquares()
    for layout in layouts:
        count = len(layout)
        seeds_S, items_C = layout.mean(axis=1), layout.mean(axis=0)
        left = layout - seeds_S[:, None] - items_C + layout.mean()
        by_seed.add(float(seeds_S.var(ddof=1)) / count, count - 1)
        degrees = (count - 1) * (many - 1)
        rest.add(float((left**2).sum()) / degrees / (count * many), degrees)
    means_C = layouts[0].mean(axis=0) - (0 if len(layouts) == 1 else layouts[1].mean(axis=0))
    by_item = _MeanSquares()
    by_item.add(float(means_C.var(ddof=1)) / many, many - 1)
    # The estimates by seed and by item each include the rest.
    whole = by_seed.cut_at(rest), by_item.cut_at(rest)
    parts = [one.value - rest.value for one in whole]
    scale = sum(float((layout**2).mean()) for layout in layouts)
    flat = sum(one.value for one in whole) - rest.value <= NO_SPREAD * scale
    cut = [
        name
        for name, own in ((SEEDS, by_seed), (ITEMS, by_item))
        if own.value < rest.value and not flat
    ]
    if flat:
        return Decomposition(0.0, 0.0, 0.0, (), math.nan)
    return Decomposition(
        parts[0],
        parts[1],
        rest.value,
        tuple(cut),
        _satterthwaite([*whole, rest], sum(parts) + rest.value),
    )


def _decompose_nested(asked: OwnTests) -> Decomposition:
    layouts = [
        _linearise(np.asarray([values]), own)[0]
        for values, own in zip(asked.differences, asked.clusters, strict=True)
    ]
    _require_two([len(layouts)], [len(one) for one in layouts])
    count = len(layouts)
    by_seed, within = _MeanSquares(), _MeanSquares()
    by_seed.add(float(np.var([one.mean() for one in layouts], ddof=1)) / count, count - 1)
    for one in layouts:
        within.add(float(one.var(ddof=1)) / len(one) / count**2, len(one) - 1)
    scale = sum(float((one**2).mean()) for one in layouts) / count
    whole = by_seed.cut_at(within)
    if whole.value <= NO_SPREAD * scale:
        return Decomposition(0.0, 0.0, math.nan, (), math.nan)
    return Decomposition(
        whole.value - within.value,
        within.value,
        math.nan,
        (SEEDS,) if by_seed.value < within.value else (),
        _satterthwaite([whole], whole.value),
    )


class _MeanSquares:
    """Independent estimates of variance that add up, each with its degrees of freedom."""

    def __init__(self) -> None:
        self.value, self._by_degrees = 0.0, 0.0

    def add(self, value: float, degrees: int) -> None:
        self.value += value
        self._by_degrees += value**2 / degrees

    @property
    def squares_by_degrees(self) -> float:
        """The sum of the squared estimates by their degrees of freedom."""
        return self._by_degrees

    def cut_at(self, least: _MeanSquares) -> _MeanSquares:
        """Return the larger of the two."""
        return self if self.value >= least.value else least


def _satterthwaite(parts: Sequence[_MeanSquares], total: float) -> float:
    return total**2 / sum(one.squares_by_degrees for one in parts)


def _linearise(values_SN: np.ndarray, clusters_N: Sequence[Any] | np.ndarray) -> np.ndarray:
    """Return a value per seed and cluster; its mean over clusters is the seed's mean over items.

    A cluster counts by its number of items; their variation is accounted for to first order
    (Cochran, 1977, section 6.3).
    """
    totals_CS, sizes_C = sum_clusters(values_SN, clusters_N)
    mean = totals_CS.sum() / (sizes_C.sum() * totals_CS.shape[1])
    found: np.ndarray = (totals_CS - mean * sizes_C[:, None]) / sizes_C.mean() + mean
    return found.T


def _require_two(seeds: Sequence[int], clusters: Sequence[int]) -> None:
    if min(*seeds, *clusters) < 2:
        raise ValueError(
            f"a decomposition needs two seeds per arm and two clusters, not {min(seeds)} and "
            f"{min(clusters)}"
        )
