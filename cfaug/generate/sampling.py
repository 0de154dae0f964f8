"""The random parameters of a candidate: seed, p and guidance scale; without torch."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal, TypeAlias

import numpy as np
from annotated_types import Interval, MinLen
from numpy.typing import NDArray

from cfaug.core.errors import UserError
from cfaug.core.rng import derive, generator
from cfaug.core.types import Draw
from cfaug.core.validation import Share, Weight, check_fields


@dataclass(frozen=True)
class Draws:
    """The distribution of a set's candidates (COCO-CFs, B.1.2: InstructPix2Pix's defaults).

    Args:
        p2p_threshold: the bounds of p, the share of the steps during which attention is shared,
            which is uniform between them.
        guidance_scale: the bounds of the scale of classifier-free guidance, which is uniform
            between them and the same for every image of a candidate.
        parameters: the bounds of further parameters by name; they are uniform, the same for every
            image of a candidate, and reach the image editor as ``Draw.parameters``.
        seed_policy: ``hash`` draws every candidate from (run seed, set key, number), independently
            of the others. ``chain`` draws each from the one before, as InstructPix2Pix's code for
            pairs does: p and the guidance scale are the first and second float32 draws of the
            Mersenne Twister seeded with the candidate's 32-bit seed, and the low half of the two
            following outputs, its fourth, is the next candidate's seed. There are two departures:
            the first seed is keyed by run seed and set, while that code draws it at random, and a
            chain that returns to an earlier seed is restarted, while that code would never end. The
            code for larger sets (SocialCounterfactuals) seeds again within a candidate, so its next
            seed is the second output and its chains are different.
        sampling: ``independent``, ``tree(m)`` or ``halving(r)``. With ``tree(m)``, m values of p,
            one from each m-th of the range, share one seed and guidance scale, and thus their base
            image and every step until they diverge. Each candidate is the same as if drawn alone,
            but there are fewer seeds. ``halving(r)`` is an approximation: at r evenly spaced steps,
            only the half of a set's candidates in a batch whose predicted final images have the
            higher ``selection.maximise`` continues; the others are rejected as ``halving``. Whether
            one of them would have been accepted, or the best, remains unknown.
        p_law: ``uniform`` draws every p independently, as in the papers. ``stratified`` spreads the
            candidates of a set evenly over the range of p. ``adaptive(r)``, or ``adaptive`` for
            five rounds, draws them in r rounds of about equal size, the first one stratified, each
            later one near the p at which the set's own earlier candidates came closest to the
            thresholds (``LawLearner``). The density at the drawn p is kept with every candidate,
            except for ``uniform``.
    """

    candidates: Annotated[int, Interval(ge=1, lt=2**31)] = 100
    """the number of candidates of a proposal"""
    p2p_threshold: tuple[Share, Share] = (0.1, 0.9)
    guidance_scale: tuple[Weight, Weight] = (7.5, 15.0)
    parameters: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    seed_policy: Literal["hash", "chain"] = "hash"
    sampling: str = "independent"
    p_law: str = "uniform"

    per_example: ClassVar = False
    """Whether all proposals of an example have the same draws."""

    def __post_init__(self) -> None:
        check_fields(self, "recipe.draws")
        for name in ("p2p_threshold", "guidance_scale"):
            object.__setattr__(self, name, _check_bounds(name, getattr(self, name)))
        further = {
            name: _check_bounds(f"parameters.{name}", bounds)
            for name, bounds in self.parameters.items()
        }
        object.__setattr__(self, "parameters", further)
        if self.family > 1 and self.seed_policy == "chain":
            raise UserError(
                f"recipe.draws.sampling={self.sampling} with seed_policy=chain: the chain gives "
                "every seed its own p; use seed_policy=hash, or sampling=independent"
            )
        if self.parameters and self.seed_policy == "chain":
            raise UserError(
                f"recipe.draws.parameters ({', '.join(self.parameters)}) with seed_policy=chain: "
                "the chain draws p and the guidance scale only; use seed_policy=hash"
            )
        if count_rounds(self.p_law) > 1 and self.rounds:
            raise UserError(
                f"recipe.draws.p_law={self.p_law} with sampling={self.sampling}: the p of dropped "
                "candidates cannot be judged; use sampling=independent or tree(m)"
            )
        if self.p_law != "uniform" and self.seed_policy == "chain":
            raise UserError(
                f"recipe.draws.p_law={self.p_law} with seed_policy=chain: the chain draws p "
                "itself; use seed_policy=hash"
            )

    @property
    def family(self) -> int:
        """The number of candidates that share a seed and a guidance scale."""
        return self._count("tree") or 1

    @property
    def rounds(self) -> int:
        """The number of times that the candidates of a set are halved during denoising."""
        return self._count("halving")

    def _count(self, name: str) -> int:
        """Return the number in ``sampling``; 0 if it does not have this name."""
        if self.sampling == "independent":
            return 0
        match = re.fullmatch(r"(tree|halving)\((\d+)\)", self.sampling)
        if match is None or int(match[2]) < 1:
            raise UserError(
                f"recipe.draws.sampling={self.sampling} is not independent or tree(m) or halving(r)"
            )
        return int(match[2]) if match[1] == name else 0

    @property
    def learning_rounds(self) -> int:
        """The number of rounds of a set's candidates, each drawn after the one before is scored."""
        return min(count_rounds(self.p_law), -(-self.candidates // self.family))

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of a candidate's random parameters, without its seed."""
        density = () if self.p_law == "uniform" else ("p_density",)
        return ("p", "cfg", *self.parameters, *density)

    def draw(
        self, key: str, seed: int, number: int = 0, trials: Sequence[Trial] = ()
    ) -> list[Draw]:
        """Return the draws of one round of a set, with families together.

        Args:
            number: the number of the round, less than ``learning_rounds``; there is only one round
                unless p is adaptive.
            trials: the set's candidates of all earlier rounds, with their margins.
        """
        if self.seed_policy == "chain":
            chain: dict[int, Draw] = {}
            link, cycles = derive(seed, "draw", key) % 2**32, 0
            while len(chain) < self.candidates:
                if link in chain:
                    # The reference would repeat this cycle forever; a 32-bit map has short ones.
                    cycles += 1
                    link = derive(seed, "draw", key, cycles) % 2**32
                    continue
                u_p, u_cfg, following = mersenne(link)
                p = _between(self.p2p_threshold, u_p)
                chain[link] = Draw(link, p, _between(self.guidance_scale, u_cfg))
                link = following
            return list(chain.values())
        families = range(0, self.candidates, self.family)
        bounds = [len(families) * i // self.learning_rounds for i in (number, number + 1)]
        firsts = families[slice(*bounds)]
        if self.p_law == "uniform":
            return [draw for first in firsts for draw in self._family(key, seed, first)]
        law = LawLearner(self.p2p_threshold).learn(trials) if number else Law()
        strata = generator(seed, "draw", key, "strata", number).permutation(len(firsts))
        return [
            draw
            for first, stratum in zip(firsts, strata.tolist(), strict=True)
            for draw in self._family(key, seed, first, (law, stratum, len(firsts)))
        ]

    def _family(
        self, key: str, seed: int, first: int, spread: tuple[Law, int, int] | None = None
    ) -> list[Draw]:
        """Return the draws of candidate ``first`` and of those that share its seed, with rising p.

        Args:
            spread: the law of p, this family's stratum, and the number of strata; ``None`` is
                uniform, independent of other families.
        """
        size = min(self.family, self.candidates - first)
        stream = generator(seed, "draw", key, first)
        cfg = _between(self.guidance_scale, float(stream.random()))
        chance = stream.random(size)
        noise = derive(seed, "draw", key, first, "noise")
        further = {
            name: _between(bounds, generator(seed, "draw", key, first, name).random())
            for name, bounds in self.parameters.items()
        }
        if spread is None:
            positions = (np.arange(size) + chance) / size
        else:
            law, stratum, strata = spread
            positions = law.quantile((np.arange(size) + (stratum + chance) / strata) / size)
        return [
            Draw(
                noise,
                _between(self.p2p_threshold, float(position)),
                cfg,
                further,
                None if spread is None else spread[0].density(float(position)),
            )
            for position in positions
        ]


@dataclass(frozen=True)
class GridDraws:
    """One candidate of every proposal for each of some fixed values of p, in their order.

    Only the noise is random, if the image editor needs noise; it depends only on the example, so
    that every edit of a photo starts from the same noise. All candidates of a proposal share it and
    the guidance scale, so that their common steps are computed only once.

    Args:
        self_replace_steps: the values of p, the share of the steps during which attention is shared
            (LANCE, section 3.2: f).
    """

    self_replace_steps: Annotated[Sequence[Share], MinLen(1)]
    guidance_scale: Weight = 7.5
    """the scale of classifier-free guidance"""

    per_example: ClassVar = True
    """Whether all proposals of an example have the same draws."""
    rounds: ClassVar = 0
    learning_rounds: ClassVar = 1
    columns: ClassVar = ("p", "cfg")

    def __post_init__(self) -> None:
        check_fields(self, "recipe.draws")
        shares = tuple(float(share) for share in self.self_replace_steps)
        object.__setattr__(self, "self_replace_steps", shares)
        where = f"recipe.draws.self_replace_steps={list(shares)}"
        if not shares or len(set(shares)) < len(shares):
            raise UserError(f"{where} should be one or more different values")

    @property
    def candidates(self) -> int:
        """The number of candidates of a proposal."""
        return len(self.self_replace_steps)

    @property
    def family(self) -> int:
        """The number of candidates that share a seed and a guidance scale: all."""
        return self.candidates

    def draw(
        self, key: str, seed: int, number: int = 0, trials: Sequence[Trial] = ()
    ) -> list[Draw]:
        """Return the draws of each proposal of an example, by its key and the run's seed."""
        noise = derive(seed, "draw", key, "noise")
        return [Draw(noise, share, self.guidance_scale) for share in self.self_replace_steps]


AnyDraws: TypeAlias = Draws | GridDraws
"""A distribution of a proposal's candidates."""


def mersenne(seed: int) -> tuple[float, float, int]:
    """Return torch's ``rand``, ``rand`` and ``randint(1 << 32)`` after ``torch.manual_seed(seed)``.

    A float32 is the low 24 bits of one output of MT19937; the integer is the low half of two.

    >>> round(mersenne(3761796350)[0], 6)
    0.957852
    """
    outputs = np.random.RandomState(seed).randint(0, 2**32, 4, dtype=np.uint32)
    u_p, u_cfg = ((outputs[:2] & 0xFFFFFF) / 2**24).tolist()
    return u_p, u_cfg, int(outputs[3])


def _check_bounds(name: str, given: Sequence[float]) -> tuple[float, float]:
    bounds = tuple(float(value) for value in given)
    if len(bounds) != 2 or not -math.inf < bounds[0] <= bounds[1] < math.inf:
        raise UserError(f"recipe.draws.{name}={list(bounds)} should be [lowest, highest]")
    return bounds[0], bounds[1]


def _between(bounds: tuple[float, float], share: float) -> float:
    return bounds[0] + share * (bounds[1] - bounds[0])


# p is the share of the denoising steps with shared self-attention. The larger a set, the fewer
# candidates with a small p are accepted: among SocialCounterfactuals' released sets of 30 images,
# hardly any has a p below .3, although p was drawn from U(.1, .9).

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


def count_rounds(name: str) -> int:
    """Return the number of rounds in which the candidates of a set are drawn.

    >>> [count_rounds(name) for name in ("uniform", "stratified", "adaptive", "adaptive(3)")]
    [1, 1, 5, 3]
    """
    if name in ("uniform", "stratified"):
        return 1
    if name == "adaptive":
        # More rounds gain little (``benchmarks/p_laws.py``), and each waits for the one before.
        return 5
    match = re.fullmatch(r"adaptive\((\d+)\)", name)
    if match is None or int(match[1]) < 2:
        raise UserError(
            f"recipe.draws.p_law={name} is not uniform or stratified or adaptive or adaptive(r) "
            "with r from 2"
        )
    return int(match[1])


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

    def density(self, position: float) -> float:
        """Return the density at a position in the range, relative to the uniform one.

        >>> Law((0.125, 0.875)).density(0.7)
        1.75
        """
        strata = len(self.weights)
        return self.weights[min(int(position * strata), strata - 1)] * strata


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
        margins = np.array([[by_name[name] for name in sorted(names)] for _, by_name in whole])
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
