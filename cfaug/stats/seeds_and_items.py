"""Is one arm better than another, over training seeds and over test items at once?

An interval over seeds says what retraining would give on these same items; one over items says what
these same models would give on other items. ``bootstrap_arms`` draws both;
``cfaug.stats.seeds_and_items.decompose`` says how much of the variance comes from each.

Seeds that answered the same items are crossed with them (``OneTest``); where every seed has its own
items, such as a test drawn with the seed, items are nested in seeds (``OwnTests``).

NaN and infinite values are a ``ValueError``: leave out the items that do not count first.
``scipy.stats.bootstrap`` draws along one axis only, so seeds and clusters at once are drawn here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cfaug.stats.cluster_tests import DRAWN_AT_ONCE, MeanDifference
from cfaug.stats.item_tests import RESAMPLES, nested_bootstrap, read_interval


@dataclass(frozen=True)
class OneTest:
    """Two arms whose seeds all answered the same items.

    Attributes:
        arm: the arm's value for every seed and item, (seeds, items).
        baseline: the baseline's values, (its seeds, items); the same number of seeds where
            ``paired``.
        clusters: the cluster each item was sampled in, any comparable values, (items,).
        paired: whether row s of both arms has the same training seed, so that seeds are drawn
            together; otherwise each arm's seeds are drawn independently.

    Raises:
        ValueError: if there are no values, one is NaN or infinite, or shapes do not fit.
    """

    arm: np.ndarray
    baseline: np.ndarray
    clusters: Sequence[Any] | np.ndarray
    paired: bool = True

    def __post_init__(self) -> None:
        for name in ("arm", "baseline"):
            object.__setattr__(self, name, _require_table(getattr(self, name)))
        shapes = self.arm.shape, self.baseline.shape
        fits = shapes[0][1] == shapes[1][1] == len(self.clusters)
        if not fits or (self.paired and shapes[0] != shapes[1]):
            raise ValueError(
                f"values {shapes[0]} and {shapes[1]} with {len(self.clusters)} clusters, "
                f"paired={self.paired}: shapes do not fit"
            )


@dataclass(frozen=True)
class OwnTests:
    """Two arms on the same seeds, where every seed has items of its own.

    Attributes:
        differences: arm minus baseline for every item, one row per seed, each (its items,).
        clusters: the cluster each item was sampled in, one row per seed; equal names in different
            rows are different clusters.

    Raises:
        ValueError: if a value is NaN or infinite, a seed has no values, or lengths differ.
    """

    differences: Sequence[Sequence[float] | np.ndarray]
    clusters: Sequence[Sequence[Any] | np.ndarray]

    def __post_init__(self) -> None:
        rows = [_require_table([difference])[0] for difference in self.differences]
        object.__setattr__(self, "differences", rows)
        if not rows or [len(row) for row in rows] != [len(cluster) for cluster in self.clusters]:
            raise ValueError("differences and clusters need one row per seed, of equal lengths")


@dataclass(frozen=True)
class ArmDifference(MeanDifference):
    """The difference of two arms with its interval and p over seeds and items at once."""

    seeds: int
    baseline_seeds: int


def bootstrap_arms(
    answers: OneTest | OwnTests,
    rng: np.random.Generator,
    *,
    level: float = 0.95,
    resamples: int = RESAMPLES,
) -> ArmDifference:
    """Bootstrap the difference of two arms, drawing training seeds and clusters of items.

    With one test, every resample draws as many clusters as there are, the same for both arms and
    all seeds, and as many seeds as there are, in pairs where the arms share them (the pigeonhole
    bootstrap: Owen, 2007, *The pigeonhole bootstrap*). The interaction of seeds and items counts up
    to three times, so the interval is too wide where that is most of the variance. With a test per
    seed it is ``nested_bootstrap`` with seeds as clusters: the variance from items is counted
    twice.

    Few seeds resample poorly: where seeds are most of the variance, five of them make the interval
    too short, as in ``cfaug.stats.effects.bootstrap_interval``. ``decompose`` gives the interval
    of Student's t, which is valid from four seeds on (benchmarks/seeds_and_items.py).

    Args:
        rng: generator that draws the resamples; the same state gives the same answer.
        level: nominal coverage of the interval, between 0 and 1.

    Returns:
        The mean over seeds of the mean over items, its percentile interval, and p as for
        ``nested_bootstrap``; interval and p are ``nan`` with a single cluster, or a single seed of
        both arms.

    Raises:
        ValueError: if the level or the number of resamples is out of range.

    >>> first, second = np.eye(3, 60), np.zeros((3, 60))
    >>> test = bootstrap_arms(OneTest(first + 1, second, range(60)), np.random.default_rng(0))
    >>> round(test.mean, 3), test.seeds, test.clusters, round(test.p, 4)
    (1.017, 3, 60, 0.0002)
    """
    _check_drawing(level, resamples)
    if isinstance(answers, OneTest):
        both = np.concatenate([answers.arm, answers.baseline])
        means = resample_rows(both, answers.clusters, rng, resamples)
    else:
        means = np.concatenate([
            resample_rows(np.asarray([values]), clusters, rng, resamples)
            for values, clusters in zip(answers.differences, answers.clusters, strict=True)
        ])  # fmt: skip
    return read_resampled(answers, means, rng, level=level)


def read_resampled(
    answers: OneTest | OwnTests,
    means_KB: np.ndarray,
    rng: np.random.Generator,
    *,
    level: float = 0.95,
) -> ArmDifference:
    """Return the same as ``bootstrap_arms``, from clusters that were drawn before.

    Many arms that answered one test can share their draws: call ``resample_rows`` for all of them.

    Args:
        means_KB: means of the arm's seeds and then of the baseline's, for each resample of
            clusters, (both arms' seeds, resamples); for ``OwnTests`` the means of the differences,
            (seeds, resamples).
        level: nominal coverage of the interval, between 0 and 1.

    Raises:
        ValueError: if the level is out of range, or shapes do not fit.
    """
    _check_drawing(level, means_KB.shape[1])
    if isinstance(answers, OwnTests):
        means = [float(np.mean(values)) for values in answers.differences]
        if len(means_KB) != len(means):
            raise ValueError(f"{len(means_KB)} rows of means for {len(means)} seeds")
        numbers = [count_clusters(clusters) for clusters in answers.clusters]
        about = (sum(map(len, answers.differences)), sum(numbers), len(means), len(means))
        if len(means) < 2 or min(numbers) < 2:
            return ArmDifference(float(np.mean(means)), *(math.nan,) * 4, *about)
        nested = nested_bootstrap(means, means_KB, rng, level=level, resamples=means_KB.shape[1])
        return ArmDifference(
            nested.mean, nested.low, nested.high, nested.p_greater, nested.p_less, *about
        )
    arm, baseline = answers.arm, answers.baseline
    if len(means_KB) != len(arm) + len(baseline):
        raise ValueError(f"{len(means_KB)} rows of means for {len(arm)} + {len(baseline)} seeds")
    many, columns = count_clusters(answers.clusters), np.arange(means_KB.shape[1])
    mean = float(arm.mean(axis=1).mean() - baseline.mean(axis=1).mean())
    about = (arm.shape[1], many, len(arm), len(baseline))
    if many < 2 or max(len(arm), len(baseline)) < 2:
        return ArmDifference(mean, *(math.nan,) * 4, *about)
    ours, theirs = means_KB[: len(arm)], means_KB[len(arm) :]
    drawn = rng.integers(len(ours), size=(len(ours), len(columns)))
    others = (
        drawn if answers.paired else rng.integers(len(theirs), size=(len(theirs), len(columns)))
    )
    differences = ours[drawn, columns].mean(axis=0) - theirs[others, columns].mean(axis=0)
    size = float(np.abs(arm).mean() + np.abs(baseline).mean())
    return ArmDifference(mean, *read_interval(differences, level, size), *about)


def count_clusters(clusters: Sequence[Any] | np.ndarray) -> int:
    """Return the number of clusters the items are in.

    Args:
        clusters: the cluster each item was sampled in, (items,).
    """
    return len(np.unique(np.asarray(clusters)))


def resample_rows(
    values_KN: np.ndarray,
    clusters_N: Sequence[Any] | np.ndarray,
    rng: np.random.Generator,
    resamples: int = RESAMPLES,
) -> np.ndarray:
    """Return each row's mean over clusters drawn with replacement, the same for all rows.

    Every resample draws as many clusters as there are; a cluster counts by its number of items.

    Args:
        values_KN: finite values, such as one row for each arm and seed, (rows, items).
        clusters_N: the cluster each item was sampled in, (items,).

    Returns:
        The means, float64 (rows, resamples).
    """
    totals_CK, sizes_C = sum_clusters(values_KN, clusters_N)
    both = np.column_stack([totals_CK, sizes_C])
    many = len(both)
    at_once = max(1, DRAWN_AT_ONCE // many)
    means = []
    for first in range(0, resamples, at_once):
        count = min(at_once, resamples - first)
        drawn = rng.integers(many, size=(count, many)) + many * np.arange(count)[:, None]
        times = np.bincount(drawn.reshape(-1), minlength=count * many).reshape(count, many)
        sums = times.astype(np.float64) @ both
        means.append(sums[:, :-1] / sums[:, -1:])
    return np.concatenate(means).T


def sum_clusters(
    values_KN: np.ndarray, clusters_N: Sequence[Any] | np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return every row's sum over each cluster, (clusters, rows), and the clusters' sizes.

    Args:
        values_KN: finite values, (rows, items).
        clusters_N: the cluster each item was sampled in, (items,).
    """
    names, codes = np.unique(np.asarray(clusters_N), return_inverse=True)
    codes = codes.reshape(-1)
    totals = [np.bincount(codes, row, len(names)) for row in values_KN]
    return np.stack(totals, axis=1), np.bincount(codes, minlength=len(names)).astype(np.float64)


def _require_table(values: Any) -> np.ndarray:
    table = np.asarray(values, np.float64)
    if table.ndim != 2 or not table.size or not np.isfinite(table).all():
        raise ValueError(f"a comparison needs finite values, (seeds, items), not {values!r}")
    return table


def _check_drawing(level: float, resamples: int) -> None:
    if not 0 < level < 1 or resamples < 1:
        raise ValueError("resamples must be above 0, and level between 0 and 1")


# How much of the variance of a difference of two arms comes from seeds, and how much from items?
#
# More seeds help if the variance comes from seeds; more items help if it comes from items. The
# parts are variance components of random effects, by the method of moments; they also give an
# interval of Student's t over seeds and items at once.
#
# scipy takes long to import, so it is imported where it is used. It has no random effects;
# statsmodels' ``MixedLM`` estimates them by likelihood, in iterations; here they are sums of
# squares.

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


def decompose(answers: OneTest | OwnTests) -> Decomposition:
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
        answers: answers of both arms, at least two seeds in each and two clusters in each test.

    Returns:
        The parts.

    Raises:
        ValueError: if there are fewer seeds or clusters.

    >>> seed, item = np.array([[0.0], [0.2]]), np.array([0.0, 1.0, 0.0, 1.0])
    >>> parts = decompose(OneTest(seed + item, np.zeros((2, 4)), range(4)))
    >>> round(parts.seeds, 4), round(parts.items, 4), round(abs(parts.rest), 4)
    (0.01, 0.0833, 0.0)
    """
    return (
        _decompose_nested(answers) if isinstance(answers, OwnTests) else _decompose_crossed(answers)
    )


def _decompose_crossed(answers: OneTest) -> Decomposition:
    sides = [answers.arm - answers.baseline] if answers.paired else [answers.arm, answers.baseline]
    layouts = [_linearise(values, answers.clusters) for values in sides]
    many = layouts[0].shape[1]
    _require_two([len(layout) for layout in layouts], [many])
    by_seed, by_item, rest = _MeanSquares(), _MeanSquares(), _MeanSquares()
    for layout in layouts:
        count = len(layout)
        seeds_S, items_C = layout.mean(axis=1), layout.mean(axis=0)
        left = layout - seeds_S[:, None] - items_C + layout.mean()
        by_seed.add(float(seeds_S.var(ddof=1)) / count, count - 1)
        degrees = (count - 1) * (many - 1)
        rest.add(float((left**2).sum()) / degrees / (count * many), degrees)
    means_C = layouts[0].mean(axis=0) - (0 if len(layouts) == 1 else layouts[1].mean(axis=0))
    by_item.add(float(means_C.var(ddof=1)) / many, many - 1)
    # The estimates by seed and by item each include the rest.
    whole = by_seed.cut_at(rest), by_item.cut_at(rest)
    parts = [estimate.value - rest.value for estimate in whole]
    scale = sum(float((layout**2).mean()) for layout in layouts)
    if sum(estimate.value for estimate in whole) - rest.value <= NO_SPREAD * scale:
        return Decomposition(0.0, 0.0, 0.0, (), math.nan)
    cut = [
        name
        for name, estimate in ((SEEDS, by_seed), (ITEMS, by_item))
        if estimate.value < rest.value
    ]
    return Decomposition(
        parts[0],
        parts[1],
        rest.value,
        tuple(cut),
        _satterthwaite([*whole, rest], sum(parts) + rest.value),
    )


def _decompose_nested(answers: OwnTests) -> Decomposition:
    layouts = [
        _linearise(np.asarray([values]), clusters)[0]
        for values, clusters in zip(answers.differences, answers.clusters, strict=True)
    ]
    _require_two([len(layouts)], [len(layout) for layout in layouts])
    count = len(layouts)
    by_seed, within = _MeanSquares(), _MeanSquares()
    by_seed.add(float(np.var([layout.mean() for layout in layouts], ddof=1)) / count, count - 1)
    for layout in layouts:
        within.add(float(layout.var(ddof=1)) / len(layout) / count**2, len(layout) - 1)
    scale = sum(float((layout**2).mean()) for layout in layouts) / count
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
        self.value, self.squares_by_degrees = 0.0, 0.0

    def add(self, value: float, degrees: int) -> None:
        self.value += value
        self.squares_by_degrees += value**2 / degrees

    def cut_at(self, least: _MeanSquares) -> _MeanSquares:
        """Return the larger of the two."""
        return self if self.value >= least.value else least


def _satterthwaite(parts: Sequence[_MeanSquares], total: float) -> float:
    return total**2 / sum(part.squares_by_degrees for part in parts)


def _linearise(values_SN: np.ndarray, clusters_N: Sequence[Any] | np.ndarray) -> np.ndarray:
    """Return a value per seed and cluster; its mean over clusters is the seed's mean over items.

    A cluster counts by its number of items; their variation is accounted for to first order
    (Cochran, 1977, section 6.3).
    """
    totals_CS, sizes_C = sum_clusters(values_SN, clusters_N)
    mean = totals_CS.sum() / (sizes_C.sum() * totals_CS.shape[1])
    linear: np.ndarray = (totals_CS - mean * sizes_C[:, None]) / sizes_C.mean() + mean
    return linear.T


def _require_two(seeds: Sequence[int], clusters: Sequence[int]) -> None:
    if min(*seeds, *clusters) < 2:
        raise ValueError(
            f"a decomposition needs two seeds per arm and two clusters, not {min(seeds)} and "
            f"{min(clusters)}"
        )
