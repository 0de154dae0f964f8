"""Questions about a gathering of things, basic and counterfactual.

Questions come with two scenes, twins, that differ only in the subject of the questions and have
different answers to each of them. The options are the two answers. Both scenes are shown, so that
for every question, with its options in their order, each option is right once: no text reveals an
answer, alone or together with the other questions about the image.

Two of four conditions change the answer. So a model that sees perfectly but ignores the condition
answers half of the counterfactual questions correctly (about five eighths for counts, whose options
do not always include the number without the condition). A model that always takes the other option
answers at most half of them correctly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from cfaug.core.errors import UserError
from cfaug.shapescapes.gathering import Thing
from cfaug.shapescapes.question_changes import State
from cfaug.shapescapes.question_topics import CATEGORIES, Condition, Topic, choose

FEWEST_COLOURS = 4
"""The smallest number of colours of a world for its questions: three named things, and others."""

CHANGING, KEEPING = 2, 2
"""The numbers of conditions for each image that do and do not change the answer."""


@dataclass(frozen=True)
class RuleQuestion:
    """A question, and its answer in any scene.

    Attributes:
        text: the whole question.
        answer: a function that returns the answer for a scene's things.
        condition: the supposition; ``None`` for a basic question.
        changes: whether the supposition changes the answer.
    """

    text: str
    answer: Callable[[Sequence[Thing]], str]
    condition: str | None = None
    changes: bool = False


@dataclass(frozen=True)
class Twins:
    """Two scenes, the basic question about them, and four counterfactual ones."""

    scenes: tuple[tuple[Thing, ...], tuple[Thing, ...]]
    questions: tuple[RuleQuestion, ...]


def draw_twins(rng: np.random.Generator, category: str, colours: Sequence[str]) -> Twins:
    """Draw two scenes and five questions with different answers in the two.

    Args:
        rng: the random generator of this pair alone.
        category: a name of ``CATEGORIES``.
        colours: the colours of the world.

    Raises:
        UserError: if there are fewer than four colours.
    """
    if len(colours) < FEWEST_COLOURS:
        raise UserError(
            f"data.world.colours={list(colours)}: questions name things by their colours and need "
            f"at least {FEWEST_COLOURS}"
        )
    topic = CATEGORIES[category](rng, colours)
    drawn = [
        (one, changes)
        for some, count, changes in (
            (topic.changing, CHANGING, True), (topic.keeping, KEEPING, False),
        )
        for one in choose(rng, some, count)
    ]  # fmt: skip
    further = [
        RuleQuestion(topic.supposed.format(one.text), _answer(topic, one), one.text, changes)
        for one, changes in choose(rng, drawn, len(drawn))
    ]
    return Twins(topic.scenes, (RuleQuestion(topic.basic, _answer(topic)), *further))


def _answer(topic: Topic, condition: Condition | None = None) -> Callable[[Sequence[Thing]], str]:
    def answer(things: Sequence[Thing]) -> str:
        state = State(dict(enumerate(things)))
        return topic.ask(state if condition is None else condition.change(state))

    return answer
