"""How often do intervals over seeds and items contain the true difference? A simulation.

Differences of two arms are drawn as the sum of a seed's effect, an item's effect and noise, in
varied shares; then the coverage of four intervals is counted: Student's over seeds, that over
items, the bootstrap over both, and the one of the decomposition. ``--alarms`` counts how often
the decomposition's p is .05 or less where there is no difference; its highest rates are
``cfaug.stats.seeds_and_items.FEW_SEEDS``.

python benchmarks/seeds_and_items.py
python benchmarks/seeds_and_items.py --seeds 3,5,10 --items 200 --trials 2000
python benchmarks/seeds_and_items.py --alarms --seeds 2,3,4,5 --trials 10000
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from cfaug.core.rng import generator
from cfaug.stats.cluster_tests import cluster_mean
from cfaug.stats.effects import t_interval
from cfaug.stats.seeds_and_items import OneTest, OwnTests, bootstrap_arms, decompose

TRUE = 0.3
SPREADS = {
    "seeds alone": (1.0, 0.0, 0.0),
    "mostly seeds": (0.7, 0.2, 0.1),
    "as much of each": (1 / 3, 1 / 3, 1 / 3),
    "mostly items": (0.2, 0.7, 0.1),
    "items alone": (0.0, 1.0, 0.0),
    "interaction": (0.0, 0.0, 1.0),
}
"""Shares of the squared standard error of the difference: seeds, items, interaction."""

NEARLY_SEEDS = {"nearly all seeds": (0.9, 0.1, 0.0)}
"""Where false alarms are most frequent."""

MANY_SEEDS = 10
ALPHA = 0.05

METHODS = ("t over seeds", "over items", "bootstrap over both", "decomposition")


@dataclass(frozen=True)
class Design:
    """The numbers of seeds, items and trials."""

    seeds: int
    items: int
    trials: int
    resamples: int


def draw_differences(
    design: Design, shares: tuple[float, float, float], rng: np.random.Generator, own_tests: bool
) -> np.ndarray:
    """Draw differences, (seeds, items); their mean has standard error 1 around ``TRUE``."""
    sizes = (design.seeds, design.items, design.seeds * design.items)
    sd = [np.sqrt(share * size) for share, size in zip(shares, sizes, strict=True)]
    shape = (design.seeds, design.items)
    by_item = rng.normal(0, sd[1], (1, design.items))
    if own_tests:
        by_item = rng.normal(0, sd[1] * np.sqrt(design.seeds), shape)
    return TRUE + rng.normal(0, sd[0], (design.seeds, 1)) + by_item + rng.normal(0, sd[2], shape)


def intervals(
    drawn: np.ndarray, rng: np.random.Generator, resamples: int, own_tests: bool
) -> Iterator[tuple[float, float]]:
    """Yield the interval of each of ``METHODS``."""
    count, items = drawn.shape
    names = np.arange(items)
    yield t_interval(drawn.mean(axis=1))
    if own_tests:
        places = np.arange(drawn.size)
        over_items = cluster_mean(drawn.reshape(-1), places)
        answers: OneTest | OwnTests = OwnTests(list(drawn), [names] * count)
    else:
        over_items = cluster_mean(drawn.mean(axis=0), names)
        answers = OneTest(drawn, np.zeros_like(drawn), names)
    yield over_items.low, over_items.high
    both = bootstrap_arms(answers, rng, resamples=resamples)
    yield both.low, both.high
    yield decompose(answers).interval(float(drawn.mean()))


def cover(
    design: Design, shares: tuple[float, float, float], own_tests: bool = False
) -> list[float]:
    """Return the share of trials in which each method's interval contained the true difference."""
    held = np.zeros(len(METHODS))
    for trial in range(design.trials):
        rng = generator(trial, "coverage", design.seeds, design.items, str(shares), str(own_tests))
        drawn = draw_differences(design, shares, rng, own_tests)
        ends = intervals(drawn, rng, design.resamples, own_tests)
        held += [low <= TRUE <= high for low, high in ends]
    return [float(share) for share in held / design.trials]


def draw_alike(
    design: Design, rng: np.random.Generator, shares: tuple[float, float, float], own_tests: bool
) -> OneTest | OwnTests:
    """Draw two arms without a difference, from normal distributions."""
    drawn = draw_differences(design, shares, rng, own_tests) - TRUE
    names = np.arange(design.items)
    if own_tests:
        return OwnTests(list(drawn), [names] * design.seeds)
    return OneTest(drawn, np.zeros_like(drawn), names)


def draw_answers(
    design: Design, rng: np.random.Generator, own_tests: bool = False, baseline_seeds: int = 0
) -> OneTest | OwnTests:
    """Draw right and wrong answers of two equally good arms; seven of ten are right.

    Args:
        design: the numbers of seeds and items.
        rng: the generator that draws.
        own_tests: whether every seed has its own items.
        baseline_seeds: number of the baseline's seeds, which are not the arm's; 0 for the same.
    """
    names = np.arange(design.items)

    def answer(item: np.ndarray, seeds: int) -> np.ndarray:
        by_arm = rng.normal(0, 0.5, item.shape)
        noise = rng.normal(0, 0.5, (seeds, design.items))
        return (item + by_arm + rng.normal(0, 0.2, (seeds, 1)) + noise > -0.65).astype(float)

    def items() -> np.ndarray:
        return rng.normal(0, 1, (1, design.items))

    if own_tests:
        tests = [items() for _ in range(design.seeds)]
        rows = [(answer(test, 1) - answer(test, 1))[0] for test in tests]
        return OwnTests(rows, [names] * design.seeds)
    test = items()
    arm, baseline = answer(test, design.seeds), answer(test, baseline_seeds or design.seeds)
    return OneTest(arm, baseline, names, paired=not baseline_seeds)


Draw = Callable[[Design, np.random.Generator], OneTest | OwnTests]

WITHOUT_DIFFERENCE: dict[str, Draw] = {
    **{
        f"{name}, {whose}": partial(draw_alike, shares=shares, own_tests=own_tests)
        for own_tests, whose in ((False, "one test"), (True, "own tests"))
        for name, shares in {**SPREADS, **NEARLY_SEEDS}.items()
    },
    "right or wrong, one test": draw_answers,
    "right or wrong, own tests": partial(draw_answers, own_tests=True),
    f"right or wrong, against {MANY_SEEDS} seeds": partial(draw_answers, baseline_seeds=MANY_SEEDS),
}


def false_alarms(design: Design, world: str) -> tuple[float, float]:
    """Return the shares of trials with a one-sided and with a two-sided p of .05 or less."""
    alarms = np.zeros(2)
    for trial in range(design.trials):
        rng = generator(trial, "false alarms", design.seeds, design.items, world)
        answers = WITHOUT_DIFFERENCE[world](design, rng)
        means = (
            [np.mean(differences) for differences in answers.differences]
            if isinstance(answers, OwnTests)
            else [answers.arm.mean() - answers.baseline.mean()]
        )
        p = decompose(answers).p_greater(float(np.mean(means)))
        alarms += [p <= ALPHA, 2 * min(p, 1 - p) <= ALPHA]
    one_sided, two_sided = alarms / design.trials
    return float(one_sided), float(two_sided)


def show_false_alarms(designs: list[Design]) -> None:
    """Print a row per world, and last the highest rates."""
    print(f"p of {ALPHA} or less without a difference, one-sided / two-sided, in percent")
    print(f"| {designs[0].items} items | " + " | ".join(f"{d.seeds} seeds" for d in designs) + " |")
    print("|---" * (len(designs) + 1) + "|")
    highest = np.zeros((len(designs), 2))
    for world in WITHOUT_DIFFERENCE:
        rates = np.array([false_alarms(design, world) for design in designs])
        highest = np.maximum(highest, rates)
        print(f"| {world} | {_rates(rates)} |", flush=True)
    print(f"| the highest | {_rates(highest)} |")


def _rates(rates: np.ndarray) -> str:
    return " | ".join(
        f"{100 * one_sided:.1f} / {100 * two_sided:.1f}" for one_sided, two_sided in rates
    )


def main() -> None:
    """Print a table of coverages for every number of seeds, or of false alarms."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", default="5", help="numbers of seeds, separated by commas")
    parser.add_argument("--items", type=int, default=200)
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--resamples", type=int, default=1000)
    parser.add_argument("--alarms", action="store_true", help="count false alarms instead")
    given = parser.parse_args()
    designs = [
        Design(seeds, given.items, given.trials, given.resamples)
        for seeds in map(int, given.seeds.split(","))
    ]
    if given.alarms:
        show_false_alarms(designs)
        return
    for design in designs:
        seeds = design.seeds
        for own_tests in (False, True):
            whose = "a test of its own a seed" if own_tests else "one test for all seeds"
            print(f"\n{seeds} seeds, {given.items} items, {whose}: nominal 95 % intervals held it")
            print(f"{'spread':18}" + "".join(f"{name:>24}" for name in METHODS))
            for name, shares in SPREADS.items():
                coverages = cover(design, shares, own_tests)
                print(
                    f"{name:18}" + "".join(f"{100 * coverage:22.1f} %" for coverage in coverages),
                    flush=True,
                )
    show_speed()


def show_speed() -> None:
    """Print the time of 10,000 resamples of two arms with 5 seeds and 7,500 items."""
    rng = generator(0, "speed")
    right = (rng.random((10, 7500)) < 0.7).astype(float)
    for clusters in (7500, 1500):
        answers = OneTest(right[:5], right[5:], np.arange(7500) % clusters)
        started = time.perf_counter()
        bootstrap_arms(answers, rng)
        took = time.perf_counter() - started
        print(f"10,000 resamples, 5 seeds, 7,500 items in {clusters:,} clusters: {took:.2f} s")


if __name__ == "__main__":
    main()
