"""ShapeScapes-VQA: pictures of several things, each with a basic and four counterfactual questions.

As sources its parts are named ``shapescapes_vqa:train`` and ``shapescapes_vqa:test``. Pictures are
drawn on demand; no file is written.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from PIL import Image

from cfaug.core.errors import UserError
from cfaug.core.questions import (
    BASIC,
    COUNTERFACTUAL,
    PRESUPPOSITION,
    SOURCE,
    VERIFIED,
    AskedImage,
    AskedQuestion,
)
from cfaug.core.rng import derive
from cfaug.data.sources.question_sets.rows import EmbeddedImage
from cfaug.shapescapes.gathering import Gathering, Thing, render_gathering
from cfaug.shapescapes.question_topics import CATEGORIES, Condition, State, Topic, choose
from cfaug.shapescapes.settings import WorldSettings
from cfaug.shapescapes.world import World

PARTS = {"train": "vqa_pairs", "test": "vqa_test_pairs"}
"""The world's setting that holds the number of pairs of pictures of each part."""
RULE = "rule"
"""The author and verifier of the questions."""
SCENE, CHANGES = "scene", "changes"
"""Keys in ``extra``: an image's scene, for ``cfaug.shapescapes.gathering.gathering_of``, and
whether a question's supposition changes the answer."""


def make_questions(settings: WorldSettings, part: str) -> Iterator[AskedImage]:
    """Yield the pictures of a part with their questions, two in a group.

    Args:
        settings: the settings of the world, with a seed; of every six pairs one belongs to each
            category.
        part: ``train`` or ``test``.
    """
    if part not in PARTS:
        raise UserError(f"shapescapes_vqa has no part {part!r}; choose from {', '.join(PARTS)}")
    world = World(settings)
    settings.known_seed()
    for index in range(getattr(settings, PARTS[part])):
        yield from draw_pair(world, f"vqa_{part}", index)


def draw_pair(world: World, part: str, index: int) -> tuple[AskedImage, AskedImage]:
    """Return pair ``index`` of a part: two images with equal questions but different answers.

    Args:
        part: the name of the random stream.
        index: the number of the pair, which determines its category.
    """
    rng = world.stream(part, index)
    category = tuple(CATEGORIES)[index % len(CATEGORIES)]
    twins = draw_twins(rng, category, world.settings.colours)
    backgrounds = world.settings.backgrounds
    background = backgrounds[int(rng.integers(len(backgrounds)))]
    seed = derive(world.settings.known_seed(), "shapescapes", part, index, "scene", 0)
    turned = rng.integers(2, size=len(twins.questions)).astype(bool).tolist()
    key, settings = f"{part}-{index:06d}", world.settings

    def show(shown: int) -> AskedImage:
        scene, name = Gathering(twins.scenes[shown], background, seed), f"{key}-{'ab'[shown]}"
        return AskedImage(
            key=name,
            group=key,
            image=EmbeddedImage(
                f"ShapeScapes {settings.content_hash()}, {name}",
                partial(_draw, scene, settings),
                drawn=True,
            ),
            category=category,
            questions=tuple(_ask(twins, shown, turned)),
            extra={SCENE: scene.record()},
        )

    return show(0), show(1)


def _ask(twins: Twins, shown: int, turned: Sequence[bool]) -> Iterator[AskedQuestion]:
    """Yield the questions about one of two scenes."""
    for number, (one, other) in enumerate(zip(twins.questions, turned, strict=True)):
        first, second = (one.answer(things) for things in twins.scenes)
        extra = {SOURCE: RULE, VERIFIED: True}
        if one.condition is not None:
            extra |= {PRESUPPOSITION: one.condition, CHANGES: one.changes}
        yield AskedQuestion(
            id=f"c{number}" if number else "basic",
            kind=COUNTERFACTUAL if number else BASIC,
            text=one.text,
            options=(second, first) if other else (first, second),
            answer=shown ^ int(other),
            extra=extra,
        )


def _draw(gathering: Gathering, settings: WorldSettings) -> bytes:
    buffer = io.BytesIO()
    pixels = render_gathering(gathering, settings.image_size, settings.look())
    Image.fromarray(pixels).save(buffer, "PNG", compress_level=1)
    return buffer.getvalue()


# Questions about a gathering of things, basic and counterfactual.
#
# Questions come with two scenes, twins, that differ only in the subject of the questions and have
# different answers to each of them. The options are the two answers. Both scenes are shown, so that
# for every question, with its options in their order, each option is right once: no text reveals an
# answer, alone or together with the other questions about the image.
#
# Two of four conditions change the answer. So a model that sees perfectly but ignores the condition
# answers half of the counterfactual questions correctly (about five eighths for counts, whose
# options do not always include the number without the condition). A model that always takes the
# other option answers at most half of them correctly.

FEWEST_COLOURS = 4
"""The smallest number of colours of a world for its questions: three named things, and others."""
CHANGING, KEEPING = 2, 2
"""The numbers of conditions for each image that do and do not change the answer."""


@dataclass(frozen=True)
class RuleQuestion:
    """A question, and its answer in any scene.

    Attributes:
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
