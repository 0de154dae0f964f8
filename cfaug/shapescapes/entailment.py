"""ShapeScapes-VE: does a photo entail a hypothesis, contradict it, or neither?

A neutral hypothesis must be about something that the photo neither shows nor excludes. So in two of
three photos something is covered in grey: the subject's colour (all of the subject but its outline
against the background) or the background (all but the subject). A statement about the covered part
is neutral.

The hypothesis alone says nothing about the label: over six photos in a row every form of hypothesis
(one that names a colour, a place, or both) has each label twice, and within a form all words are
uniform and independent of the label. So photo and hypothesis are both needed. (The photo alone says
something: if nothing is covered, no hypothesis is neutral.)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from cfaug.shapescapes.drawing import Rendering
from cfaug.shapescapes.settings import FRAMES, SUBJECTS, CaptionWording, Factors, caption
from cfaug.shapescapes.world import World, pick

COVER = 128
"""The grey of covered parts, from 0 to 255."""

Forms = tuple[tuple[str, tuple[str, ...]], ...]

COLOUR, PLACE = ("colour",), ("background",)
BOTH = COLOUR + PLACE

PLAN: tuple[tuple[str | None, Forms], ...] = (
    (None, (("entailment", BOTH), ("entailment", COLOUR), ("contradiction", PLACE))),
    ("colour", (("neutral", COLOUR), ("neutral", BOTH), ("contradiction", PLACE))),
    ("background", (("neutral", PLACE), ("neutral", BOTH), ("contradiction", COLOUR))),
    (None, (("entailment", BOTH), ("entailment", PLACE), ("contradiction", COLOUR))),
    ("colour", (("neutral", COLOUR), ("entailment", PLACE), ("contradiction", BOTH))),
    ("background", (("neutral", PLACE), ("entailment", COLOUR), ("contradiction", BOTH))),
)
"""For six photos in a row: the covered part, and each hypothesis's label and named factors."""


@dataclass(frozen=True)
class Hypothesis:
    """A text and its label for a photo, one of ``cfaug.core.types.ENTAILMENT``."""

    text: str
    label: str


@dataclass(frozen=True)
class EntailmentPhoto:
    """A photo's content, its covered part, and its hypotheses."""

    factors: Factors
    hidden: str | None
    hypotheses: tuple[Hypothesis, ...]


def cover(drawn: Rendering, hidden: str | None) -> NDArray[np.uint8]:
    """Return a scene's pixels with a factor covered in grey: uint8 (size, size, 3).

    Args:
        hidden: the factor to cover: ``colour`` covers all pixels that the subject touches,
            ``background`` all pixels that do not show only the subject; ``None`` covers nothing.
    """
    if hidden is None:
        return drawn.pixels
    covered = drawn.touched if hidden == "colour" else ~drawn.solid
    return np.where(covered[..., None], np.uint8(COVER), drawn.pixels)


def photos(world: World, part: str, count: int) -> Iterator[EntailmentPhoto]:
    """Yield the first ``count`` photos of a part, their factors uniform and independent."""
    for index in range(count):
        rng = world.stream(part, index)
        factors = world.draw_unbiased(rng)
        hidden, forms = PLAN[index % len(PLAN)]
        hypotheses = []
        for label, named in forms:
            claimed = factors
            if hidden is not None:
                # The covered part could be anything: the hypothesis is independent of it, too.
                claimed = replace(claimed, **{hidden: pick(rng, world.values[hidden])})
            if label == "contradiction":
                wrong = pick(rng, [name for name in ("subject", *named) if name != hidden])
                values = SUBJECTS if wrong == "subject" else world.values[wrong]
                others = [value for value in values if value != getattr(claimed, wrong)]
                claimed = replace(claimed, **{wrong: pick(rng, others)})
            frame = int(rng.integers(len(FRAMES)))
            wording = CaptionWording(frame, "colour" in named, "background" in named)
            hypotheses.append(Hypothesis(caption(claimed, wording), label))
        yield EntailmentPhoto(factors, hidden, tuple(hypotheses))
