"""How often are tests and intervals wrong with few clusters, few seeds, few items? A simulation.

Two models without a difference answer items in 3 to 60 clusters of equal and unequal sizes; p of
.05 and of .001 or less are counted, and 95 % intervals that hold the true difference: those of
``cfaug.stats.cluster_tests.cluster_mean``, computed here for many trials at once. Then the
bootstrap (BCa) and Student's intervals over 3, 5 and 10 seeds, and Tango's beside McNemar's p.

python benchmarks/few_clusters.py
python benchmarks/few_clusters.py --trials 2000 --clusters 3,5,8
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from cfaug.core.rng import generator
from cfaug.stats.cluster_tests import CUT_AT_LEAST, choose_subsets, student_reach
from cfaug.stats.effects import bootstrap_interval, t_interval, welch_interval
from cfaug.stats.item_tests import mcnemar, tango_interval

CLUSTERS = (3, 5, 8, 10, 15, 30, 60)
SEEDS = (3, 5, 10)
LEVELS = (0.05, 0.001)
USUAL_SIZE = 20
AT_ONCE = 500
"""Trials at once, each with up to 32,767 subsets: 70 MB."""
ROUNDED = 1e-9
"""A sum of no more than this is 0."""

Draw = Callable[[np.random.Generator, np.ndarray], np.ndarray]


def equal_sizes(rng: np.random.Generator, trials: int, clusters: int) -> np.ndarray:
    """Return the number of items of each cluster, (trials, clusters)."""
    return np.full((trials, clusters), float(USUAL_SIZE))


def lognormal_sizes(rng: np.random.Generator, trials: int, clusters: int) -> np.ndarray:
    """Return sizes of which a tenth is below a quarter and a tenth above 4 times the median."""
    sizes = np.round(USUAL_SIZE * rng.lognormal(-0.5, 1, (trials, clusters)))
    return np.asarray(np.maximum(sizes, 1))


def one_large(rng: np.random.Generator, trials: int, clusters: int) -> np.ndarray:
    """Return sizes of which one is a third of all items."""
    sizes = equal_sizes(rng, trials, clusters)
    sizes[:, 0] = USUAL_SIZE * max(1, (clusters - 1) / 2)
    return sizes


SIZES = {"equal": equal_sizes, "lognormal": lognormal_sizes, "one a third": one_large}


def normal(alike: float) -> Draw:
    """Draw sums of normal differences, of which a share of the variance is their cluster's."""

    def draw(rng: np.random.Generator, sizes: np.ndarray) -> np.ndarray:
        shared = np.sqrt(alike) * sizes * rng.normal(size=sizes.shape)
        noise = np.sqrt((1 - alike) * sizes) * rng.normal(size=sizes.shape)
        return np.asarray(shared + noise)

    return draw


def right_or_wrong(gain: float) -> Draw:
    """Draw sums of -1, 0 and 1, less the true mean; a fifth of the items tells the models apart.

    Args:
        gain: the mean difference of the two models.
    """

    def draw(rng: np.random.Generator, sizes: np.ndarray) -> np.ndarray:
        apart = rng.binomial(sizes.astype(int), rng.beta(1, 4, sizes.shape))
        up = 0.5 + gain / 0.4  # of those that tell them apart
        better = rng.binomial(apart, rng.beta(6 * up, 6 * (1 - up), sizes.shape))
        return np.asarray(2.0 * better - apart - gain * sizes)

    return draw


def skewed(rng: np.random.Generator, sizes: np.ndarray) -> np.ndarray:
    """Draw sums of clusters whose effects are exponential: most a little below the mean."""
    return np.asarray((rng.exponential(size=sizes.shape) - 1) * sizes)


WORLDS: Mapping[str, Draw] = {
    "items independent": normal(0),
    "a tenth of the variance by cluster": normal(0.1),
    "all of the variance by cluster": normal(1),
    "right or wrong": right_or_wrong(0),
    "right or wrong, 10 points apart": right_or_wrong(0.1),
    "skewed effects of clusters": skewed,
}


def test_trials(totals: np.ndarray, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Test sums and sizes of clusters, (trials, clusters), as ``cluster_mean`` does.

    Returns:
        The two-sided p of each trial, and whether its interval holds 0, (trials,) each. From 7
        clusters on the interval holds what the test does not reject.
    """
    order = np.lexsort((totals, np.abs(totals), sizes), axis=-1)
    totals, sizes = (np.take_along_axis(values, order, axis=1) for values in (totals, sizes))
    above, below = np.ones((2, len(totals)), np.int64)
    patterns = 1
    for chosen in choose_subsets(totals.shape[1]):
        patterns += len(chosen)
        sums = totals @ chosen.T
        above += (sums <= ROUNDED).sum(axis=1)
        below += (sums >= -ROUNDED).sum(axis=1)
    p = np.minimum(2 * np.minimum(above, below) / patterns, 1)
    cut = int(0.025 * patterns + 1e-9)
    if cut >= CUT_AT_LEAST:
        return p, np.minimum(above, below) > cut
    mean = totals.sum(axis=1) / sizes.sum(axis=1)
    reach = np.array([student_reach(*row, 0.95) for row in zip(totals, sizes, strict=True)])
    return p, np.abs(mean) <= reach + ROUNDED


def show_clusters(clusters: Sequence[int], trials: int) -> None:
    """Print false alarms at both levels and coverages, by sizes and world."""
    print(f"p of {LEVELS[0]} or less / of {LEVELS[1]} or less / interval holds the truth, percent")
    print("| sizes | world | " + " | ".join(map(str, clusters)) + " |")
    print("|---" * (len(clusters) + 2) + "|")
    for sizes_name, draw_sizes in SIZES.items():
        for world, draw in WORLDS.items():
            cells = []
            for many in clusters:
                rng = generator(0, "few clusters", sizes_name, world, many)
                sizes = draw_sizes(rng, trials, many)
                totals = draw(rng, sizes)
                pieces = [
                    test_trials(totals[first : first + AT_ONCE], sizes[first : first + AT_ONCE])
                    for first in range(0, trials, AT_ONCE)
                ]
                p, held = (np.concatenate(parts) for parts in zip(*pieces, strict=True))
                alarms = [100 * float((p <= level).mean()) for level in LEVELS]
                cells.append(f"{alarms[0]:.1f} / {alarms[1]:.2f} / {100 * held.mean():.1f}")
            print(f"| {sizes_name} | {world} | {' | '.join(cells)} |", flush=True)


VALUES: Mapping[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "normal": lambda rng, n: rng.normal(size=n),
    "uniform": lambda rng, n: rng.uniform(-1, 1, n),
    "skewed": lambda rng, n: rng.exponential(size=n) - 1,
}


def show_seeds(trials: int) -> None:
    """Print how often intervals over seeds hold the true difference of two arms."""
    print(f"\n95 % intervals over seeds that hold the true difference, percent of {trials:,}")
    print("| differences | seeds | BCa | Student's, paired | Student's of two arms (Welch) |")
    print("|---" * 5 + "|")
    for name, draw in VALUES.items():
        for seeds in SEEDS:
            rng, held = generator(0, "few seeds", name, seeds), np.zeros(3)
            for _ in range(trials):
                arm, other = draw(rng, seeds), draw(rng, seeds)
                ends = (bootstrap_interval(arm), t_interval(arm), welch_interval(arm, other))
                held += [low <= 0 <= high for low, high in ends]
            shares = " | ".join(f"{100 * share / trials:.1f}" for share in held)
            print(f"| {name} | {seeds} | {shares} |", flush=True)


def show_items(trials: int) -> None:
    """Print how often McNemar's p is small, and Tango's interval right, without clusters."""
    print("\nItems without clusters: p of .05 or less / Tango's interval holds the truth, percent")
    print("| items | 5 % tell apart | 20 % | 20 %, one model 10 points better |")
    print("|---" * 4 + "|")
    for items in (20, 50, 200, 1000):
        cells = []
        for apart, gain in ((0.05, 0.0), (0.2, 0.0), (0.2, 0.1)):
            rng = generator(0, "few items", items, str(apart), str(gain))
            shares = ((apart + gain) / 2, (apart - gain) / 2, 1 - apart)
            drawn, times = np.unique(
                rng.multinomial(items, shares, trials)[:, :2], axis=0, return_counts=True
            )
            alarms, held = 0, 0
            for (better, worse), count in zip(drawn.tolist(), times.tolist(), strict=True):
                low, high = tango_interval(better, worse, items)
                alarms += count * (mcnemar(better, worse) <= LEVELS[0])
                held += count * (low <= gain <= high)
            cells.append(f"{100 * alarms / trials:.1f} / {100 * held / trials:.1f}")
        print(f"| {items} | {' | '.join(cells)} |", flush=True)


def main() -> None:
    """Print the three tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--clusters", default=",".join(map(str, CLUSTERS)), help="by commas")
    parser.add_argument("--trials", type=int, default=10_000)
    given = parser.parse_args()
    show_clusters([int(many) for many in given.clusters.split(",")], given.trials)
    show_seeds(-(-given.trials // 5))
    show_items(given.trials)


if __name__ == "__main__":
    main()
