"""Distributions of p: uniform, stratified, or denser where candidates are accepted.

p is the share of the denoising steps with shared self-attention. The larger a set, the fewer
candidates with a small p are accepted: among SocialCounterfactuals' released sets of 30 images,
hardly any has a p below .3, although p was drawn from U(.1, .9).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from cfaug.core.errors import UserError

STRATA = 4
"""Number of equal parts of p's range, each with its own weight."""

EXPLORED = 0.1
"""Share of a later round's candidates that is spread evenly, whatever the earlier results."""

POWER = 2
"""Exponent of a stratum's acceptance in its weight: 1 gains less, a large one explores less."""

PRIOR = 2.0
"""Number of pseudo-candidates that shrink a stratum's margin towards the mean of all."""

Trial: TypeAlias = tuple[float, Mapping[str, float]]
"""A scored candidate: its p, and for each score the margin above its threshold."""

ROUNDS = 5
"""Number of rounds of ``adaptive``; more rounds gain little (``benchmarks/p_laws.py``), and each
waits for the one before."""

_ADAPTIVE = re.compile(r"adaptive\((\d+)\)")


def count_rounds(name: str) -> int:
    """Return the number of rounds in which the candidates of a set are drawn.

    >>> [count_rounds(name) for name in ("uniform", "stratified", "adaptive", "adaptive(3)")]
    [1, 1, 5, 3]

    Raises:
        UserError: if the law is invalid.
    """
    if name in ("uniform", "stratified"):
        return 1
    if name == "adaptive":
        return ROUNDS
    found = _ADAPTIVE.fullmatch(name)
    if found is None or int(found[1]) < 2:
        raise UserError(
            f"recipe.draws.p_law={name} is not uniform or stratified or adaptive or adaptive(r) "
            "with r from 2"
        )
    return int(found[1])


@dataclass(frozen=True)
class Law:
    """A density over the range of p that is constant in each of some equal strata.

    Attributes:
        weights: the probability of each stratum; they sum to 1.
    """

    weights: tuple[float, ...] = (1.0,)

    def quantile(self, u: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the quantiles at ``u``, as places in the range, from 0 to 1."""
        edges = np.arange(len(self.weights) + 1) / len(self.weights)
        return np.interp(u, np.concatenate([[0.0], np.cumsum(self.weights)]), edges)

    def density(self, place: float) -> float:
        """Return the density at a place of the range, relative to the uniform one.

        >>> Law((0.125, 0.875)).density(0.7)
        1.75
        """
        strata = len(self.weights)
        return self.weights[min(int(place * strata), strata - 1)] * strata


@dataclass(frozen=True)
class LawLearner:
    """Learns the distribution of p for a set's further candidates from its earlier ones.

    A candidate's margin is the smallest amount by which a score exceeds its threshold, in standard
    deviations of that score's margins; it is informative even before a candidate was accepted. In
    each stratum the margin is modelled as normal, with one variance for all strata. The squared
    probability that it is positive is the stratum's weight, and a tenth is spread evenly.

    In the round after an evenly spread one, the expected acceptance does not fall if strata differ
    only by a shift of their margins: the rule treats strata alike and gives more weight to a better
    one, so expected weights rise with acceptance, and by Chebyshev's sum inequality the expected
    acceptance is at least the mean over strata. Later rounds were simulated with the published
    acceptances and with adversarial shapes: ``benchmarks/p_laws.py``.

    Args:
        bounds: the lowest and highest p.
    """

    bounds: tuple[float, float] = field(default=(0.1, 0.9))

    def place(self, p: float) -> float:
        """Return the position of p between its bounds, from 0 to 1."""
        low, high = self.bounds
        return 0.0 if high == low else (p - low) / (high - low)

    def learn(self, trials: Sequence[Trial]) -> Law:
        """Return the law of the next round; uniform if the candidates are uninformative.

        Args:
            trials: the candidates of the set so far. Those that lack a score, for example because
                the base image missed its caption, are not informative about p and are left out.
        """
        from scipy.special import log_ndtr

        names = {name for _, margins in trials for name in margins}
        whole = [(p, margins) for p, margins in trials if margins.keys() == names]
        if not names or len(whole) < STRATA:
            return Law()
        margins = np.array([[found[name] for name in sorted(names)] for _, found in whole])
        spread = margins.std(axis=0)
        worst = (margins / np.where(spread > 0, spread, 1.0)).min(axis=1)
        places = np.array([self.place(p) for p, _ in whole])
        strata = np.minimum((places * STRATA).astype(int), STRATA - 1)
        count = np.bincount(strata, minlength=STRATA)
        total = np.bincount(strata, worst, minlength=STRATA)
        means = (total + PRIOR * worst.mean()) / (count + PRIOR)
        noise = math.sqrt(float(((worst - means[strata]) ** 2).mean()))
        if noise <= 1e-9 * float(np.abs(worst).max()):
            return Law()
        accepted = POWER * log_ndtr(means / noise)
        share = np.exp(accepted - accepted.max())
        share /= share.sum()
        # Rounded, because the last bit of an exponential differs between machines, and p must not.
        weights = np.round((1 - EXPLORED) * share + EXPLORED / STRATA, 3)
        weights[int(weights.argmax())] += 1 - weights.sum()
        return Law(tuple(np.round(weights, 3).tolist()))
