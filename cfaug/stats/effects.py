"""How large a difference is: effect sizes, intervals, and the sensitivity of a classifier to edits.

``scipy.stats.bootstrap`` draws the same resamples from the same generator and finds the same BCa
interval, and ``TtestResult.confidence_interval`` the same Student's interval, except for the last
bit. ``table.csv`` prints all digits, so three of four and one of two intervals would change there.
They also take two to three and 25 times as long, and scipy.stats takes half a second to import. The
tests compare both functions with scipy's.

``scipy.stats.binomtest(...).proportion_ci(method="wilson")`` gives the same Wilson interval for
whole counts. Here an image sorted by several people counts in fractions, which scipy does not
accept.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import Any, Literal, get_args

import numpy as np

from cfaug.core.rng import generator
from cfaug.core.types import Better
from cfaug.stats import significance as test
from cfaug.stats.cluster_tests import MeanDifference, cluster_mean
from cfaug.stats.item_tests import sign_test
from cfaug.stats.ranking import as_array, finite
from cfaug.stats.significance import SeedSummary, require_finite, sign_flip, summarise

Interval = Literal["bca", "percentile"]
RESAMPLES = 10_000


def hedges_g(arm: SeedSummary, baseline: SeedSummary) -> float:
    """Return the difference in pooled standard deviations, corrected for few seeds (Hedges, 1981).

    For independent arms. If neither arm has spread, 0 without a difference and ``nan`` with one;
    ``nan`` with fewer than two values in either.

    >>> round(hedges_g(SeedSummary(2.0, 1.0, 5), SeedSummary(1.0, 1.0, 5)), 4)
    0.9027
    """
    if min(arm.n, baseline.n) < 2:
        return math.nan
    degrees = arm.n + baseline.n - 2
    pooled = ((arm.n - 1) * arm.sd**2 + (baseline.n - 1) * baseline.sd**2) / degrees
    # The exact correction; the usual 1 - 3 / (4 degrees - 1) approximates it.
    correction = math.exp(math.lgamma(degrees / 2) - math.lgamma((degrees - 1) / 2)) / math.sqrt(
        degrees / 2
    )
    return correction * _ratio(arm.mean - baseline.mean, math.sqrt(pooled))


def cohen_d_z(differences: Sequence[float] | np.ndarray) -> float:
    """Return the mean paired difference over the standard deviation of the differences.

    ``nan`` for one pair, or for equal differences other than 0.

    Args:
        differences: differences by seed, finite, (n,).

    >>> cohen_d_z([1.0, 2.0, 3.0])
    2.0
    """
    summary = summarise(differences)
    return math.nan if summary.n < 2 else _ratio(summary.mean, summary.sd)


def _ratio(difference: float, spread: float) -> float:
    if spread > test.NO_SPREAD:
        return difference / spread
    return 0.0 if abs(difference) <= test.NO_SPREAD else math.nan


def bootstrap_interval(
    values: Sequence[float] | np.ndarray,
    level: float = 0.95,
    method: Interval = "bca",
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> tuple[float, float]:
    """Return a bootstrap interval for the mean of values by seed.

    ``"bca"`` corrects the percentiles for bias and skew (Efron, 1987). Resampling a handful of
    seeds understates the uncertainty: a nominal 95 % interval of normal values covered their mean
    in 84 % of 1,500 trials with 5 seeds, 90 % with 10 and 92 % with 25 (percentile: the same). So
    tables print ``t_interval``, which agrees with the paired t-test.

    Args:
        values: one finite value per seed, (n,), such as the differences of two arms.
        level: nominal coverage, between 0 and 1.

    Returns:
        (low, high); both ``nan`` for one value, or if all values are equal, where an empty interval
        would not mean certainty.

    Raises:
        ValueError: if an argument is invalid.
    """
    array = require_finite(values)
    if not 0 < level < 1 or method not in get_args(Interval):
        raise ValueError(f"level={level} or method={method!r} is not allowed")
    summary = summarise(array)
    if summary.n < 2 or not summary.has_spread:
        return math.nan, math.nan
    means = array[_draws(seed, summary.n, resamples)].mean(axis=1)
    tails = np.array([(1 - level) / 2, (1 + level) / 2])
    if method == "bca":
        normal = NormalDist()
        observed = array.mean()
        below = (means < observed).mean() + (means == observed).mean() / 2
        bias = normal.inv_cdf(float(np.clip(below, 1 / len(means), 1 - 1 / len(means))))
        # Leaving value i out moves the mean by (mean - value_i) / (n - 1); the factor cancels.
        influence = array - observed
        acceleration = (influence**3).sum() / (6 * (influence**2).sum() ** 1.5)
        z = np.array([normal.inv_cdf(float(tail)) for tail in tails]) + bias
        tails = np.array([normal.cdf(float(x)) for x in bias + z / (1 - acceleration * z)])
    low, high = np.quantile(means, tails)
    return float(low), float(high)


@lru_cache(maxsize=4)
def _draws(seed: int, n: int, resamples: int) -> np.ndarray:
    """Return the rows to resample; cached, as a table asks for the same ones again and again."""
    return generator(seed, "bootstrap", n).integers(n, size=(resamples, n))


def t_interval(values: Sequence[float] | np.ndarray, level: float = 0.95) -> tuple[float, float]:
    """Return Student's interval for the mean of values by seed.

    Both ends are ``nan`` for one value, or if all values are equal, where an empty interval would
    not mean certainty. At 95 % it excludes 0 exactly when the two-sided t-test gives p < 0.05.

    Args:
        values: one finite value per seed, (n,).

    >>> low, high = t_interval([1.0, 2.0, 3.0])
    >>> round(low, 3), round(high, 3)
    (-0.484, 4.484)
    """
    summary = summarise(values)
    if summary.n < 2 or not summary.has_spread:
        return math.nan, math.nan
    from scipy.special import stdtrit

    reach = float(stdtrit(summary.n - 1, (1 + level) / 2)) * summary.sd / math.sqrt(summary.n)
    return summary.mean - reach, summary.mean + reach


def welch_interval(
    arm: Sequence[float] | np.ndarray,
    baseline: Sequence[float] | np.ndarray,
    level: float = 0.95,
) -> tuple[float, float]:
    """Return Welch's interval for the difference of two independent means, arm minus baseline.

    At 95 % it excludes 0 exactly when the two-sided Welch test gives p < 0.05.

    Args:
        arm: one finite value per seed of the arm, (n,).
        baseline: the baseline's values, by seeds of its own, (m,).

    Returns:
        (low, high); both ``nan`` for a single value or without any spread.

    >>> low, high = welch_interval([1.0, 2.0, 3.0], [0.0, 1.0, 2.0, 1.0])
    >>> round(low, 3), round(high, 3)
    (-0.992, 2.992)
    """
    ours, theirs = summarise(arm), summarise(baseline)
    if min(ours.n, theirs.n) < 2 or not (ours.has_spread or theirs.has_spread):
        return math.nan, math.nan
    from scipy.special import stdtrit

    parts = [summary.sd**2 / summary.n for summary in (ours, theirs)]
    degrees = sum(parts) ** 2 / (parts[0] ** 2 / (ours.n - 1) + parts[1] ** 2 / (theirs.n - 1))
    reach = float(stdtrit(degrees, (1 + level) / 2)) * math.sqrt(sum(parts))
    difference = ours.mean - theirs.mean
    return difference - reach, difference + reach


def wilson_interval(count: float, n: float, level: float = 0.95) -> tuple[float, float]:
    """Return Wilson's interval for a share (Wilson, 1927); ``nan`` if n is 0.

    Unlike the normal approximation it stays within [0, 1] and is not empty at 0 and 1.

    Args:
        count: number of items that have the property, a fraction where an item counts in part.

    >>> low, high = wilson_interval(0, 10)
    >>> round(low, 3), round(high, 3)
    (0.0, 0.278)
    """
    if n == 0:
        return math.nan, math.nan
    z = NormalDist().inv_cdf((1 + level) / 2)
    share = count / n
    middle = share + z**2 / (2 * n)
    reach = z * math.sqrt(share * (1 - share) / n + z**2 / (4 * n**2))
    low, high = ((middle + sign * reach) / (1 + z**2 / n) for sign in (-1, 1))
    return max(0.0, low), min(1.0, high)


@dataclass(frozen=True)
class ArmComparison:
    """An arm against its baseline on one metric. One-sided p: the arm is better.

    ``p_*_two_sided`` tests for a difference in either direction, and so also shows that an arm is
    worse. Paired quantities are ``nan`` where the two were not run on the same seeds. ``p_min`` is
    the smallest p an exact test on this many pairs could give; ``ci_*`` is the BCa bootstrap
    interval of the paired difference, ``t_*`` Student's, or Welch's where the two are not paired,
    both at 95 %, ``nan`` where every pair has the same difference.
    """

    n: int
    diff: float
    p_welch: float
    p_welch_two_sided: float
    p_paired: float
    p_paired_two_sided: float
    p_wilcoxon: float
    p_permutation: float
    p_min: float
    g: float
    d_z: float
    bca_low: float
    bca_high: float
    t_low: float
    t_high: float


def compare(
    arm: Mapping[int, float],
    baseline: Mapping[int, float],
    seed: int = 0,
    better: Better = "higher",
) -> ArmComparison:
    """Compare two arms given as {training seed: value}.

    ``n`` is the number of pairs, or of the arm's seeds where the two are not paired. Differences,
    intervals and effect sizes are arm minus baseline whether higher or lower is better; only the
    one-sided p depend on it.

    >>> c = compare({1: 0.5, 2: 0.7, 3: 0.6}, {1: 0.4, 2: 0.5, 3: 0.3})
    >>> round(c.diff, 3), round(c.p_paired, 4), c.p_permutation
    (0.2, 0.0371, 0.125)
    >>> c = compare({1: -0.5, 2: -0.7, 3: -0.6}, {1: -0.4, 2: -0.5, 3: -0.3}, better="lower")
    >>> round(c.diff, 3), round(c.p_paired, 4), c.p_permutation
    (-0.2, 0.0371, 0.125)
    """
    improves: test.Alternative = "greater" if better == "higher" else "less"
    ours, theirs = summarise(list(arm.values())), summarise(list(baseline.values()))
    shared: dict[str, float] = dict.fromkeys(
        ("p_paired", "p_paired_two_sided", "p_wilcoxon", "p_permutation", "p_min", "d_z",
         "bca_low", "bca_high"), math.nan,
    )  # fmt: skip
    t_low, t_high = welch_interval(list(arm.values()), list(baseline.values()))
    if arm.keys() == baseline.keys():
        differences = np.array([arm[key] - baseline[key] for key in sorted(arm)])
        low, high = bootstrap_interval(differences, seed=seed)
        t_low, t_high = t_interval(differences)
        shared = {
            "p_paired": test.paired_t(differences, improves),
            "p_paired_two_sided": test.paired_t(differences, "two-sided"),
            "p_wilcoxon": test.wilcoxon(differences, improves),
            "p_permutation": test.sign_flip(differences, improves, seed=seed),
            "p_min": test.smallest_exact_p(len(differences)),
            "d_z": cohen_d_z(differences),
            "bca_low": low,
            "bca_high": high,
        }
    return ArmComparison(
        n=ours.n,
        diff=ours.mean - theirs.mean,
        p_welch=test.welch(ours, theirs, improves),
        p_welch_two_sided=test.welch(ours, theirs, "two-sided"),
        g=hedges_g(ours, theirs),
        t_low=t_low,
        t_high=t_high,
        **shared,
    )


# Sensitivity of a classifier to edits of its test images: probabilities, drops and tests of them.
#
# LANCE (Prabhu et al., 2023), section 4.1. The paired tests compare each edit with the photo it was
# made from. The paper compares sets of different sizes (equation 3), unpaired. Both are here.
#
# The unpaired test is scipy's; the paired ones are those of ``item_tests`` and ``significance``.


def softmax(logits_NC: Any) -> np.ndarray:
    """Return the probabilities of all classes, float64 (images, classes); every row sums to one.

    Args:
        logits_NC: logits, (images, classes).

    Raises:
        ValueError: if a logit is NaN or infinite.

    >>> softmax([[0.0, 0.0], [1000.0, 0.0]]).tolist()
    [[0.5, 0.5], [1.0, 0.0]]
    """
    from scipy.special import softmax as row_softmax

    logits = finite(as_array(logits_NC), "logits").astype(np.float64)
    probabilities: np.ndarray = row_softmax(logits, axis=1)
    return probabilities


def truth_probability(p_NC: np.ndarray, labels_N: np.ndarray) -> np.ndarray:
    """Return the probability of each image's own class, float64 (images,).

    Args:
        p_NC: probabilities, (images, classes).
        labels_N: index of each image's class, integers (images,).

    >>> truth_probability(np.array([[0.5, 0.3, 0.2]]), np.array([1])).tolist()
    [0.3]
    """
    probabilities: np.ndarray = p_NC[np.arange(len(p_NC)), labels_N].astype(np.float64)
    return probabilities


def top_classes(p_NC: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the most probable classes and their probabilities, each (images, min(k, classes)).

    Among equally probable classes the one with the smaller number comes first.

    Args:
        p_NC: probabilities, (images, classes).

    >>> classes, p = top_classes(np.array([[0.2, 0.5, 0.3]]), 2)
    >>> classes.tolist(), p.tolist()
    ([[1, 2]], [[0.5, 0.3]])
    """
    order = np.argsort(-p_NC, axis=1, kind="stable")[:, :k]
    return order, np.take_along_axis(p_NC, order, axis=1)


def fisher(right: int, n: int, right_other: int, n_other: int) -> float:
    """Return the two-sided p of Fisher's exact test that two sets differ in accuracy.

    It treats all images as independent, as a comparison of sets of different sizes must. The photo
    of an edit is in the other set, so the paired test is better; this one is the paper's.

    Args:
        right: number of images of the first set that are classified right.
        right_other: number of images of the second set that are classified right.

    Raises:
        ValueError: if a count is below zero or above its set's size.

    >>> round(fisher(460, 576, 578, 781), 3)  # LANCE, Table 2: ResNet-50, original against LANCE
    0.014
    """
    if not (0 <= right <= n and 0 <= right_other <= n_other):
        raise ValueError(f"{right} of {n} and {right_other} of {n_other} are invalid counts")
    from scipy.stats import fisher_exact

    table = [[right, n - right], [right_other, n_other - right_other]]
    return float(fisher_exact(table)[1])


@dataclass(frozen=True)
class DropTest:
    """A test of how much worse edits are classified than their originals.

    Attributes:
        before: mean of the originals' values, each counted once per edit.
        after: mean of the edits' values.
        mean: mean drop, ``before - after``, with its interval over photos (``cluster_mean``).
        lost: number of edits whose original has the larger value.
        won: number of edits with a larger value than their original.
        p_sign: two-sided p of the exact test on ``lost`` and ``won`` (McNemar's, for hits); it
            treats edits of one photo as independent.
        p_photos: two-sided p of a sign-flip permutation of whole photos, exact up to 16 of them and
            never below 2 ** (1 - photos). A bootstrap would call any drop on which two photos agree
            significant.
    """

    before: float
    after: float
    mean: MeanDifference
    lost: int
    won: int
    p_sign: float
    p_photos: float


def paired_drop(
    before: Sequence[float] | np.ndarray,
    after: Sequence[float] | np.ndarray,
    photos: Sequence[Any] | np.ndarray,
    rng: np.random.Generator,
) -> DropTest:
    """Test the drop from each original to its edit.

    Args:
        before: value of the original of each edit, a hit or a probability, (edits,).
        after: value of each edit, (edits,).
        photos: the photo each edit was made from, any comparable values, (edits,); the bootstrap
            draws whole photos.

    Raises:
        ValueError: if there is no edit, a value is NaN or infinite, or lengths differ.

    >>> test = paired_drop([1, 1, 1], [0, 1, 0], ["a", "a", "b"], np.random.default_rng(0))
    >>> round(test.mean.mean, 3), test.lost, test.won, test.p_sign, test.p_photos
    (0.667, 2, 0, 0.5, 0.5)
    """
    first, second = require_finite(before), require_finite(after)
    if len(first) != len(second):
        raise ValueError(f"{len(first)} originals and {len(second)} edits: lengths must be equal")
    differences = first - second
    codes = np.unique(np.asarray(photos), return_inverse=True)[1].reshape(-1)
    return DropTest(
        before=float(first.mean()),
        after=float(second.mean()),
        mean=cluster_mean(differences, photos),
        lost=int((differences > 0).sum()),
        won=int((differences < 0).sum()),
        p_sign=sign_test(differences),
        p_photos=sign_flip(np.bincount(codes, differences), "two-sided"),
    )


# Dose and response.


@dataclass(frozen=True)
class Saturation:
    """A response ``limit * (1 - exp(-dose / scale))``.

    Attributes:
        limit: the response at an unbounded dose.
        half: the dose of half of it, ``scale * ln 2``.
        limit_interval: 95 % interval, from a bootstrap over seeds.
        half_interval: the same of ``half``.
        bounded: whether ``half`` lies within the doses; beyond them the limit is extrapolated.
    """

    limit: float
    half: float
    limit_interval: tuple[float, float]
    half_interval: tuple[float, float]
    bounded: bool

    def at(self, dose: float) -> float:
        """Return the response at a dose."""
        return self.limit * (1 - 2 ** (-dose / self.half))


def fit_saturation(
    responses: Mapping[float, Mapping[int, float]], rng: np.random.Generator, resamples: int = 2000
) -> Saturation:
    """Fit a saturating response by least squares.

    For a scale the limit has a closed form, so that the scale is searched alone, over 400 values
    from a tenth of the smallest dose to ten times the largest.

    Args:
        responses: {dose above 0: {seed: response}}; every dose has the same seeds.
        rng: draws the resamples of whole seeds.

    Raises:
        ValueError: if there are fewer than two doses, or their seeds differ.

    >>> curve = {dose: {0: 0.5 * (1 - math.exp(-dose / 100))} for dose in (50.0, 100.0, 300.0)}
    >>> fit = fit_saturation(curve, np.random.default_rng(0))
    >>> round(fit.limit, 2), round(fit.half)
    (0.5, 69)
    """
    doses = np.array(sorted(responses))
    seeds = sorted(responses[doses[0]]) if len(doses) else []
    if len(doses) < 2 or doses[0] <= 0 or any(sorted(of) != seeds for of in responses.values()):
        raise ValueError("two doses above 0 or more, each with the same seeds")
    values_SD = np.array([[responses[dose][seed] for dose in doses] for seed in seeds])
    scales = np.geomspace(doses[0] / 10, doses[-1] * 10, 400)
    shape_KD = 1 - np.exp(-doses / scales[:, None])

    def fit(means_D: np.ndarray) -> tuple[float, float]:
        limits = shape_KD @ means_D / (shape_KD**2).sum(1)
        errors = ((means_D - limits[:, None] * shape_KD) ** 2).sum(1)
        best = int(errors.argmin())
        return float(limits[best]), float(scales[best] * math.log(2))

    limit, half = fit(values_SD.mean(0))
    drawn = rng.integers(len(seeds), size=(resamples, len(seeds)))
    again = np.array([fit(values_SD[rows].mean(0)) for rows in drawn])
    ends = np.quantile(again, (0.025, 0.975), axis=0)
    return Saturation(
        limit, half, (float(ends[0, 0]), float(ends[1, 0])), (float(ends[0, 1]), float(ends[1, 1])),
        half <= doses[-1],
    )  # fmt: skip
