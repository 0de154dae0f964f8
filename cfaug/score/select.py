"""Which candidates are good enough, and which of those is kept (InstructPix2Pix, section 3.1.2)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from cfaug.errors import UserError

REASONS = ("same_text", "halving", "unsafe", "caption_0", "caption_1", "image", "direction")
"""Why a candidate may be rejected, in the order in which it is asked; "" is accepted."""


@dataclass(frozen=True)
class Scores:
    """One candidate's cosines, one an edited member; what an early exit left out is absent.

    Attributes:
        sim_0: base image and unedited caption; ``None`` if nothing was drawn.
        sim_1: each edited image and its caption.
        image: each edited image and the base image.
        direction: change of the image and change of the caption.
    """

    sim_0: float | None = None
    sim_1: tuple[float, ...] = ()
    image: tuple[float, ...] = ()
    direction: tuple[float, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether every image was scored."""
        return self.sim_0 is not None and bool(self.sim_1)

    def finite(self) -> bool:
        """Say whether every cosine is a number."""
        base = () if self.sim_0 is None else (self.sim_0,)
        return all(map(math.isfinite, (*base, *self.sim_1, *self.image, *self.direction)))


@dataclass(frozen=True)
class Selection:
    """Thresholds, all inclusive as in the reference, and the choice among what passes.

    Args:
        caption: least cosine of every image with its own caption (COCO-CFs, B.1.2).
        image: least cosine of an edited image with the base image.
        direction: least directional cosine; ``None`` asks for none. The paper names no such
            threshold, InstructPix2Pix's code, whose defaults it used, has 0.2.
        over: what a set of several edits must pass with: its worst edit, or their mean.
        keep: how many candidates of a set are kept, the best by directional cosine.

    Raises:
        UserError: for a threshold that is no cosine, or a name or count that cannot be.
    """

    caption: float = 0.2
    image: float = 0.7
    direction: float | None = 0.2
    over: Literal["min", "mean"] = "min"
    keep: int = 1

    def __post_init__(self) -> None:
        for name in ("caption", "image", "direction"):
            value = getattr(self, name)
            if value is not None and not -1 <= value <= 1:
                raise UserError(f"select.{name}={value} is a cosine: from -1 to 1")
        if self.over not in ("min", "mean"):
            raise UserError(f"select.over={self.over} is not min or mean")
        if isinstance(self.keep, bool) or self.keep < 1:
            raise UserError(f"select.keep={self.keep} should be at least 1")

    def passes_base(self, sim_0: float) -> bool:
        """Say whether a base image alone does not rule its candidates out."""
        return sim_0 >= self.caption

    def overall(self, scores: Scores) -> dict[str, float]:
        """Return the set's four scores: a pair's own, a larger set's worst or mean.

        Raises:
            ValueError: if an early exit left some out.
        """
        if scores.sim_0 is None or not scores.complete:
            raise ValueError("only a candidate whose images were all scored has overall scores")
        return {
            "sim_0": scores.sim_0,
            "sim_1": self.pooled(scores.sim_1),
            "sim_image": self.pooled(scores.image),
            "sim_direction": self.pooled(scores.direction),
        }

    def pooled(self, values: Sequence[float]) -> float:
        """Return a set's score: the only edit's, or the worst or mean of several."""
        return min(values) if self.over == "min" else math.fsum(values) / len(values)

    def reason(self, scores: Scores) -> str:
        """Return the first threshold a scored candidate misses, "" if none."""
        if scores.sim_0 is not None and not self.passes_base(scores.sim_0):
            return "caption_0"
        overall = self.overall(scores)
        if overall["sim_1"] < self.caption:
            return "caption_1"
        if overall["sim_image"] < self.image:
            return "image"
        if self.direction is not None and overall["sim_direction"] < self.direction:
            return "direction"
        return ""

    def best(self, accepted: Sequence[tuple[int, int, Scores]]) -> list[int]:
        """Return the numbers of the candidates that are kept, the best first.

        Equal directional cosines go to the larger seed, as in the reference, then to the lower
        number: candidates of a tree share a seed.

        Args:
            accepted: (number, seed, scores) of a set's accepted candidates.
        """

        def rank(one: tuple[int, int, Scores]) -> tuple[float, int, int]:
            number, seed, scores = one
            return -self.overall(scores)["sim_direction"], -seed, number

        return [number for number, _, _ in sorted(accepted, key=rank)[: self.keep]]
