"""The number of accepted candidates by the law that p is drawn from: a simulation without images.

The acceptance of SocialCounterfactuals' sets at each p is taken from its released metadata: the
share of accepted candidates in eight bins of p, relative to U(.1, .9), at the yield that follows
from its numbers of sets. A candidate's margin is normal with that probability of being positive,
and three of ten candidates have a base image that misses its caption, whatever p is. Further shapes
are ones at which no learner should lose. The reported mean is the probability of acceptance at the
drawn p, relative to uniform p.

    python benchmarks/p_laws.py                   # a minute
    python benchmarks/p_laws.py --sets 50 --candidates 40
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np

from cfaug.core.rng import generator
from cfaug.generate.sampling import Draws, Trial

LOW, HIGH = 0.1, 0.9
LAWS = ("uniform", "stratified", "adaptive(2)", "adaptive(5)", "adaptive(10)")
SHAPES: dict[str, tuple[Sequence[float], float]] = {
    "race x gender (12 images)": ((0.70, 0.80, 0.90, 0.99, 1.02, 1.17, 1.20, 1.23), 0.076),
    "physical x gender (28)": ((0.62, 0.74, 1.01, 1.13, 1.10, 1.14, 1.14, 1.13), 0.048),
    "physical x race (84)": ((0.06, 0.28, 0.46, 0.92, 1.14, 1.44, 1.67, 2.03), 0.008),
    "the same at every p": ((1,) * 8, 0.05),
    "falling": ((1.23, 1.20, 1.17, 1.02, 0.99, 0.90, 0.80, 0.70), 0.076),
    "best in the middle": ((0.2, 0.6, 1.2, 2.0, 2.0, 1.2, 0.6, 0.2), 0.05),
    "worst in the middle": ((2.0, 1.2, 0.6, 0.2, 0.2, 0.6, 1.2, 2.0), 0.05),
    "to and fro": ((1.6, 0.4) * 4, 0.05),
}
HOPELESS = 0.3
"""The share of candidates with a base image that misses its caption."""


def gain(shape: Sequence[float], rate: float, law: str, sets: int, candidates: int) -> list[float]:
    """Return each set's accepted candidates, in expectation, relative to uniform p.

    Args:
        shape: the acceptance in equal bins of p, relative to the mean.
        rate: the mean acceptance.
        law: the law that p is drawn from.
        sets: the number of simulated sets.
        candidates: the number of candidates of a set.
    """
    chance = np.array(shape) / np.mean(shape) * rate
    limits = [NormalDist().inv_cdf(1 - share / (1 - HOPELESS)) for share in chance]
    draws = Draws(candidates=candidates, p2p_threshold=(LOW, HIGH), p_law=law)
    gains = []
    for number in range(sets):
        stream = generator(0, "p law", law, number)
        trials: list[Trial] = []
        expected = 0.0
        for turn in range(draws.learning_rounds):
            for draw in draws.draw(str(number), 0, turn, trials):
                at = min(int((draw.p - LOW) / (HIGH - LOW) * len(chance)), len(chance) - 1)
                expected += float(chance[at])
                margins = {"base": 1.0, "edited": stream.normal() - limits[at]}
                if stream.random() < HOPELESS:
                    margins = {"base": -1.0}
                trials.append((draw.p, margins))
        gains.append(expected / candidates / rate)
    return gains


def main(argv: list[str]) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sets", type=int, default=400)
    parser.add_argument(
        "--candidates", type=int, default=100, help="candidates of a set (the paper: 100)"
    )
    args = parser.parse_args(argv)
    print(f"{args.sets} sets of {args.candidates} candidates; mean and its standard error\n")
    print(f"| accepted, by p | mean | {' | '.join(LAWS)} | p of the best bin |")
    print("|---" * (len(LAWS) + 3) + "|")
    for name, (shape, rate) in SHAPES.items():
        cells = []
        for law in LAWS:
            gains = np.array(gain(shape, rate, law, args.sets, args.candidates))
            error = gains.std(ddof=1) / math.sqrt(len(gains))
            cells.append(f"{gains.mean():.3f} ± {error:.3f}")
        print(f"| {name} | {rate:.1%} | {' | '.join(cells)} | {max(shape) / np.mean(shape):.2f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
