"""Shortened captions of the world, so that words can be inserted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from cfaug.core.articles import right_articles
from cfaug.core.errors import UserError
from cfaug.core.rng import generator
from cfaug.core.types import ENTAILMENT, Example
from cfaug.core.validation import Share, check_fields
from cfaug.shapescapes.grammar import parse
from cfaug.shapescapes.vocabulary import PLACES


@dataclass(frozen=True)
class LeaveOut:
    """The shares of captions that leave out colour and background.

    Attributes:
        colour: the share of captions without the subject's colour, from 0 to 1.
        background: the share of captions without the background, from 0 to 1.
    """

    colour: Share = 0.0
    background: Share = 0.0

    def __post_init__(self) -> None:
        check_fields(self, "data.leave_out")


def read_leave_out(given: Mapping[str, float]) -> LeaveOut:
    """Return the setting ``data.leave_out``.

    Raises:
        UserError: for an unknown name, or an invalid share.
    """
    unknown = [name for name in given if name not in ("colour", "background")]
    if unknown:
        raise UserError(f"data.leave_out.{unknown[0]}: choose from colour, background")
    return LeaveOut(**given)


def shorten_caption(example: Example, shares: LeaveOut, seed: int) -> Example:
    """Return an example with a caption that leaves out colour and background with these shares.

    The choice is keyed by the example, so that a larger share shortens all captions that a smaller
    one does. The frame ("there is ...") stays.

    Args:
        example: an example of the world, with one caption.
        shares: the shares of captions that leave out the colour and the background.
        seed: the seed of the draws.

    Raises:
        UserError: for a caption that is not a sentence of the world, or a hypothesis, whose label
            might become wrong.
    """
    said = parse(example.text)
    if said is None or example.label in ENTAILMENT:
        kind = "no caption of the embedded world" if said is None else "a hypothesis with a label"
        raise UserError(
            f"data.leave_out: example {example.key!r}, {example.text!r}, is {kind}: leave_out is "
            "for captions of data.source=shapescapes:PART"
        )
    colour, background = generator(seed, "leave-out", example.key).random(2)
    text = example.text
    if said.background is not None and background < shares.background:
        text = text.replace(f" {PLACES[said.background]}", "")
    if said.colour is not None and colour < shares.colour:
        text = right_articles(text.replace(f"{said.colour} {said.subject}", said.subject))
    return replace(example, texts=(text,))
