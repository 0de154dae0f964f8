"""What chance decides of a candidate: its seed, its p, its guidance scale; plain data, no torch."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

import numpy as np

from cfaug.errors import UserError
from cfaug.rng import derive, generator
from cfaug.types import Draw

SAMPLING = re.compile(r"(tree|halving)\((\d+)\)")


@dataclass(frozen=True)
class Draws:
    """How the candidates of a caption set are drawn (COCO-CFs, B.1.2: InstructPix2Pix's defaults).

    Args:
        candidates: of each set.
        p: bounds of the share of shared attention; uniform between them.
        cfg: bounds of the guidance scale; uniform, the same for every image of a candidate.
        seed_policy: ``hash`` draws every candidate from (run seed, set key, number), so that none
            depends on another. ``chain`` is the reference's law: p and cfg are the first and second
            float32 draws of the Mersenne Twister seeded with the candidate's 32-bit seed, and its
            fourth output is the next candidate's seed.
        sampling: ``independent``, or ``tree(m)``: m values of p, one from each m-th of the range,
            share one seed and cfg, and so their base image and every step before they part. Each
            candidate is what it would be by itself; together they have fewer seeds. Or
            ``halving(r)``, an approximation: r times on the way, evenly spaced, only the half of a
            set's candidates in a batch is drawn on whose guessed final images have the higher
            directional similarity; the others are rejected as ``halving``. Which of those would
            have been accepted, or the best, is not known.

    Raises:
        UserError: for bounds or names that cannot be.
    """

    candidates: int = 100
    p: tuple[float, float] = (0.1, 0.9)
    cfg: tuple[float, float] = (7.5, 15.0)
    seed_policy: Literal["hash", "chain"] = "hash"
    sampling: str = "independent"

    def __post_init__(self) -> None:
        for name in ("p", "cfg"):
            bounds = tuple(float(value) for value in getattr(self, name))
            if len(bounds) != 2 or not 0 <= bounds[0] <= bounds[1] < float("inf"):
                raise UserError(f"draws.{name}={list(bounds)} should be [lowest, highest]")
            object.__setattr__(self, name, bounds)
        if self.p[1] > 1:
            raise UserError(f"draws.p={list(self.p)} is a share of the steps: at most 1")
        if isinstance(self.candidates, bool) or not 1 <= self.candidates < 2**31:
            raise UserError(f"draws.candidates={self.candidates} should be at least 1")
        if self.seed_policy not in ("hash", "chain"):
            raise UserError(f"draws.seed_policy={self.seed_policy} is not hash or chain")
        if self.family > 1 and self.seed_policy == "chain":
            raise UserError(
                f"draws.sampling={self.sampling} with draws.seed_policy=chain: the chain gives "
                "every seed one p of its own; use seed_policy=hash, or sampling=independent"
            )

    @property
    def family(self) -> int:
        """How many candidates share a seed and a guidance scale.

        Raises:
            UserError: if ``sampling`` is none of its choices.
        """
        name, number = self._sampling()
        return number if name == "tree" else 1

    @property
    def rounds(self) -> int:
        """How often on the way the candidates of a set are halved; 0 is never."""
        name, number = self._sampling()
        return number if name == "halving" else 0

    def _sampling(self) -> tuple[str, int]:
        if self.sampling == "independent":
            return self.sampling, 1
        found = SAMPLING.fullmatch(self.sampling)
        if found is None or int(found[2]) < 1:
            raise UserError(
                f"draws.sampling={self.sampling} is not independent or tree(m) or halving(r)"
            )
        return found[1], int(found[2])

    def draw(self, key: str, seed: int) -> list[Draw]:
        """Return the draws of the set called ``key`` under the run's seed; a family is adjacent."""
        if self.seed_policy == "chain":
            return self._chain(key, seed)
        drawn: list[Draw] = []
        while len(drawn) < self.candidates:
            drawn += self._family(key, seed, len(drawn))
        return drawn

    def _family(self, key: str, seed: int, first: int) -> list[Draw]:
        """Draw candidate ``first`` and those that share its seed, p rising."""
        size = min(self.family, self.candidates - first)
        stream = generator(seed, "draw", key, first)
        cfg = _between(self.cfg, float(stream.random()))
        strata = (np.arange(size) + stream.random(size)) / size
        noise = derive(seed, "draw", key, first, "noise")
        return [Draw(noise, _between(self.p, float(u)), cfg) for u in strata]

    def _chain(self, key: str, seed: int) -> list[Draw]:
        drawn: dict[int, Draw] = {}
        link, cycles = derive(seed, "draw", key) % 2**32, 0
        while len(drawn) < self.candidates:
            if link in drawn:
                # The reference would walk this cycle for ever; a 32-bit map has short ones.
                cycles += 1
                link = derive(seed, "draw", key, cycles) % 2**32
                continue
            u_p, u_cfg, following = mersenne(link)
            drawn[link] = Draw(link, _between(self.p, u_p), _between(self.cfg, u_cfg))
            link = following
        return list(drawn.values())


def mersenne(seed: int) -> tuple[float, float, int]:
    """Return what ``torch.manual_seed(seed)``; ``rand``, ``rand``, ``randint(1 << 32)`` give.

    A float32 is the low 24 bits of one output of MT19937; the whole number is the low half of two.

    >>> round(mersenne(3761796350)[0], 6)
    0.957852
    """
    outputs = np.random.RandomState(seed).randint(0, 2**32, 4, dtype=np.uint32)
    u_p, u_cfg = ((outputs[:2] & 0xFFFFFF) / 2**24).tolist()
    return u_p, u_cfg, int(outputs[3])


def _between(bounds: tuple[float, float], share: float) -> float:
    return bounds[0] + share * (bounds[1] - bounds[0])
