"""ShapeScapes-VQA: pictures of several things, each with a basic and four counterfactual questions.

As sources its parts are named ``shapescapes_vqa:train`` and ``shapescapes_vqa:test``. Pictures are
drawn on demand; no file is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce

import numpy as np

from cfaug.core.errors import UserError
from cfaug.core.rng import derive
from cfaug.data.questions import (
    BASIC,
    COUNTERFACTUAL,
    PRESUPPOSITION,
    SOURCE,
    VERIFIED,
    QuestionImage,
    SourceQuestion,
)
from cfaug.data.sources.question_sets.rows import EmbeddedImage
from cfaug.worlds.shapescapes.drawing import encode_png
from cfaug.worlds.shapescapes.settings import WorldSettings
from cfaug.worlds.shapescapes.world import (
    SHAPES,
    SIDE,
    SIZES,
    Choice,
    Gathering,
    Thing,
    World,
    pick,
    render_gathering,
)

PARTS = {"train": "vqa_pairs", "test": "vqa_test_pairs"}
"""The world's setting that holds the number of pairs of pictures of each part."""
SCENE, CHANGES = "scene", "changes"
"""Keys in ``extra``: an image's scene, for ``cfaug.worlds.shapescapes.world.gathering_of``, and
whether a question's supposition changes the answer."""


def make_questions(settings: WorldSettings, part: str) -> Iterator[QuestionImage]:
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


def draw_pair(world: World, part: str, index: int) -> tuple[QuestionImage, QuestionImage]:
    """Return pair ``index`` of a part: two images with equal questions but different answers.

    Args:
        part: the name of the random stream.
        index: the number of the pair, which determines its category.
    """
    settings, rng = world.settings, world.stream(part, index)
    if len(settings.colours) < FEWEST_COLOURS:
        raise UserError(
            f"data.world.colours={list(settings.colours)}: questions name things by their colours "
            f"and need at least {FEWEST_COLOURS}"
        )
    category = tuple(CATEGORIES)[index % len(CATEGORIES)]
    topic = CATEGORIES[category](rng, settings.colours)
    drawn = [
        (condition, changes)
        for some, changes in ((topic.changing, True), (topic.keeping, False))
        for condition in choose(rng, some, EACH)
    ]
    conditions = [(None, False), *choose(rng, drawn, len(drawn))]
    background = pick(rng, settings.backgrounds)
    turned = rng.integers(2, size=len(conditions)).astype(bool).tolist()
    seed = derive(settings.known_seed(), "shapescapes", part, index, "scene", 0)
    key, scenes = f"{part}-{index:06d}", [dict(enumerate(things)) for things in topic.scenes]

    def questions(shown: int) -> Iterator[SourceQuestion]:
        for number, ((condition, changes), other) in enumerate(
            zip(conditions, turned, strict=True)
        ):
            text, extra = topic.basic, {SOURCE: "rule", VERIFIED: True}
            first, second = (topic.answer(things, False) for things in scenes)
            if condition is not None:
                text = topic.supposed.format(condition.text)
                extra |= {PRESUPPOSITION: condition.text, CHANGES: changes}
                first, second = (
                    topic.answer(condition.change(things), condition.turned) for things in scenes
                )
            yield SourceQuestion(
                id=f"c{number}" if number else "basic",
                kind=COUNTERFACTUAL if number else BASIC,
                text=text,
                options=(second, first) if other else (first, second),
                answer=shown ^ int(other),
                extra=extra,
            )

    def show(shown: int) -> QuestionImage:
        scene, name = Gathering(topic.scenes[shown], background, seed), f"{key}-{'ab'[shown]}"
        return QuestionImage(
            key=name,
            group=key,
            image=EmbeddedImage(
                f"ShapeScapes {settings.content_hash()}, {name}",
                partial(_draw, scene, settings),
                drawn=True,
            ),
            category=category,
            questions=tuple(questions(shown)),
            extra={SCENE: scene.record()},
        )

    return show(0), show(1)


def _draw(gathering: Gathering, settings: WorldSettings) -> bytes:
    return encode_png(render_gathering(gathering, settings.image_size, settings.drawing_style()))


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
EACH = 2
"""The number of conditions for each image that change the answer, and of those that do not."""
ROUND = ("ball", "ring")
"""The shapes that can roll, by a rule of the world. By another, larger things are heavier."""


# Changes of a gathering of things under a supposition: "if the ball were removed".

PLACE = ("column", "row")
"""The attributes of a thing's place."""
Things = Mapping[int, Thing]
"""The things of an actual or supposed scene by their numbers, which changes preserve."""
Change = Callable[[Things], Things]


def _swap(first: int, second: int, *names: str) -> Change:
    def change(things: Things) -> Things:
        a, b = things[first], things[second]
        return {
            **things,
            first: replace(a, **{name: getattr(b, name) for name in names}),
            second: replace(b, **{name: getattr(a, name) for name in names}),
        }

    return change


def _give(target: int, source: int, name: str) -> Change:
    """Return the change that copies an attribute of another thing to a thing."""
    return lambda things: {
        **things, target: replace(things[target], **{name: getattr(things[source], name)}),
    }  # fmt: skip


def _remove(*numbers: int) -> Change:
    return lambda things: {n: thing for n, thing in things.items() if n not in numbers}


def _each(new: Callable[[Thing], Thing]) -> Change:
    return lambda things: {n: new(thing) for n, thing in things.items()}


def _chain(*changes: Change) -> Change:
    return lambda things: reduce(lambda state, change: change(state), changes, things)


def _add(shape: str) -> Change:
    """Return the change that adds a thing of a shape; its other attributes do not matter."""
    return lambda things: {**things, max(things) + 1: Thing(shape, "", "", 0, 0)}


def _double(shape: str) -> Change:
    def change(things: Things) -> Things:
        count = sum(thing.shape == shape for thing in things.values())
        return _chain(*[_add(shape)] * count)(things)

    return change


def _mirror(thing: Thing) -> Thing:
    return replace(thing, column=SIDE - 1 - thing.column)


def _rotate(thing: Thing) -> Thing:
    return replace(thing, column=SIDE - 1 - thing.column, row=SIDE - 1 - thing.row)


# The topics of questions: two scenes, and possible conditions.


@dataclass(frozen=True)
class Condition:
    """A condition: its text after "if", the change of the scene, and whether its rule reverses."""

    text: str
    change: Change
    turned: bool = False


@dataclass(frozen=True)
class Topic:
    """Two scenes and their possible questions, before the conditions are drawn.

    Attributes:
        supposed: the counterfactual question, with ``{}`` in place of the condition.
        answer: a function that returns the answer for a scene, and for a rule that may be reversed.
        keeping: conditions that do not change the answer.
    """

    scenes: tuple[tuple[Thing, ...], tuple[Thing, ...]]
    basic: str
    supposed: str
    answer: Callable[[Things, bool], str]
    changing: Sequence[Condition]
    keeping: Sequence[Condition]


def choose(rng: np.random.Generator, choices: Sequence[Choice], count: int) -> list[Choice]:
    """Draw ``count`` different choices, in random order."""
    return [choices[at] for at in rng.permutation(len(choices))[:count].tolist()]


def _place(
    rng: np.random.Generator, named: Sequence[Thing], fixed: str, colours: Sequence[str]
) -> tuple[Thing, ...]:
    """Put named things into random cells, with up to two others that cannot be confused."""
    cells = [divmod(at, SIDE) for at in rng.permutation(SIDE**2).tolist()]
    return _put_others(rng, [thing.at(cells.pop()) for thing in named], cells, fixed, colours)


def _put_others(
    rng: np.random.Generator,
    named: Sequence[Thing],
    cells: Sequence[tuple[int, int]],
    fixed: str,
    colours: Sequence[str],
) -> tuple[Thing, ...]:
    free = {"shape": SHAPES, "colour": tuple(colours)}
    taken = {getattr(thing, fixed) for thing in named}
    free[fixed] = tuple(value for value in free[fixed] if value not in taken)
    others = [
        Thing(pick(rng, free["shape"]), pick(rng, free["colour"]), pick(rng, tuple(SIZES)), *at)
        for at in cells[: int(rng.integers(3))]
    ]
    return (*named, *others)


def _draw_named(
    rng: np.random.Generator, attribute: str, fixed: str, colours: Sequence[str]
) -> list[Thing]:
    """Draw three things that differ in their names, the first two in an attribute as well."""
    known = {"shape": SHAPES, "colour": tuple(colours), "size": tuple(SIZES)}
    drawn = {name: [pick(rng, values) for _ in range(3)] for name, values in known.items()}
    drawn[fixed] = choose(rng, known[fixed], 3)
    values = choose(rng, known[attribute], 3)
    # There are only two sizes: the third thing has either.
    drawn[attribute] = [*values[:2], values[2] if len(values) == 3 else pick(rng, values)]
    return [Thing(drawn["shape"][i], drawn["colour"][i], drawn["size"][i], 0, 0) for i in range(3)]


def _swapped(things: tuple[Thing, ...], *names: str) -> tuple[Thing, ...]:
    swapped = _swap(0, 1, *names)(dict(enumerate(things)))
    return tuple(swapped[n] for n in range(len(things)))


def _attribute(
    name: str,
    word: str,
    fixed: str,
    free: tuple[str, str],
    basic: str,
    supposed: str,
    rng: np.random.Generator,
    colours: Sequence[str],
) -> Topic:
    """Draw two scenes in which the first two things have exchanged their values of an attribute.

    Args:
        name: the field of ``Thing`` with the attribute, and ``word`` its name in questions.
        fixed: the attribute that names the things.
        free: another attribute, with its word; changing it does not affect the first.
        basic: the question, with ``{}`` in place of the thing.
        supposed: the question after the condition, with ``{}`` in place of the thing.
    """
    first = _place(rng, _draw_named(rng, name, fixed, colours), fixed, colours)
    x, y, z = (
        f"the {thing.shape}" if fixed == "shape" else f"the {thing.colour} thing"
        for thing in first[:3]
    )
    changing = (
        Condition(f"{x} and {y} swapped {word}s", _swap(0, 1, name)),
        Condition(f"{x} were given the {word} of {y}", _give(0, 1, name)),
        Condition(
            f"{y} and {z} swapped {word}s, and then {x} and {z} did",
            _chain(_swap(1, 2, name), _swap(0, 2, name)),
        ),
    )
    keeping = (
        Condition(f"{y} were removed", _remove(1)),
        Condition(f"{x} and {y} traded places", _swap(0, 1, *PLACE)),
        Condition(f"{y} were given the {word} of {x}", _give(1, 0, name)),
        Condition(f"{y} and {z} swapped {word}s", _swap(1, 2, name)),
        Condition(f"{x} and {y} swapped {free[1]}", _swap(0, 1, free[0])),
    )
    return Topic(
        (first, _swapped(first, name)),
        basic.format(x),
        f"If {{}}, {supposed.format(x)}",
        lambda things, _: str(getattr(things[0], name)),
        changing,
        keeping,
    )


def _count(rng: np.random.Generator, colours: Sequence[str]) -> Topic:
    """Draw n things of one shape and n + 1 of another; the twin has n + 1 and n.

    Things 0 and n have the same shape in both scenes, and nothing else has their colours.
    """
    n = int(rng.integers(1, 4))
    counted, other, third = choose(rng, SHAPES, 3)
    shapes = [counted] * n + [other] * (n + 1)
    shapes += [third] * int(rng.integers(0, min(2, SIDE**2 - len(shapes)) + 1))
    palette = choose(rng, colours, len(colours))
    named, rest = {0: palette[0], n: palette[1]}, palette[2:]
    cells = [divmod(at, SIDE) for at in rng.permutation(SIDE**2).tolist()]
    first = tuple(
        Thing(shape, named.get(at) or pick(rng, rest), pick(rng, tuple(SIZES)), *cells[at])
        for at, shape in enumerate(shapes)
    )
    second = tuple(replace(t, shape=counted) if at == 2 * n else t for at, t in enumerate(first))
    trade = {counted: other, other: counted}
    changing = (
        Condition(f"the {named[0]} {counted} were removed", _remove(0)),
        Condition(f"the {named[n]} {other} turned into a {counted}", _give(n, 0, "shape")),
        Condition(f"the {named[0]} {counted} turned into a {other}", _give(0, n, "shape")),
        Condition(f"another {counted} were added", _add(counted)),
        Condition(f"there were twice as many {counted}s", _double(counted)),
        Condition(
            f"every {counted} turned into a {other} and every {other} into a {counted}",
            _each(lambda thing: replace(thing, shape=trade.get(thing.shape, thing.shape))),
        ),
    )
    keeping = (
        Condition(f"the {named[n]} {other} were removed", _remove(n)),
        Condition(f"another {other} were added", _add(other)),
        Condition(f"there were twice as many {other}s", _double(other)),
        Condition(
            f"the {named[0]} {counted} and the {named[n]} {other} traded places",
            _swap(0, n, *PLACE),
        ),
        Condition("the picture were seen in a mirror", _each(_mirror)),
    )
    return Topic(
        (first, second),
        f"How many {counted}s are there?",
        f"If {{}}, how many {counted}s would there be?",
        lambda things, _: str(sum(thing.shape == counted for thing in things.values())),
        changing,
        keeping,
    )


def _direction(rng: np.random.Generator, colours: Sequence[str]) -> Topic:
    """Draw two things on either side of a third; they have traded places in the twin."""
    axis = int(rng.integers(2))
    named = _draw_named(rng, "colour", "shape", colours)
    ends = choose(rng, (0, SIDE - 1), 2)
    cells = [
        tuple(along if i == axis else int(rng.integers(SIDE)) for i in range(2))
        for along in (*ends, SIDE // 2)
    ]
    free = [divmod(at, SIDE) for at in rng.permutation(SIDE**2).tolist()]
    placed = [thing.at((cell[0], cell[1])) for thing, cell in zip(named, cells, strict=True)]
    first = _put_others(rng, placed, [at for at in free if at not in cells], "shape", colours)
    x, y, z = (f"the {thing.shape}" for thing in named)
    sides = (("left", "right"), ("above", "below"))[axis]
    where = ("to the left or to the right of", "above or below")[axis]
    along = PLACE[axis]

    def answer(things: Things, _: bool) -> str:
        return sides[getattr(things[0], along) > getattr(things[1], along)]

    def cross(things: Things) -> Things:
        at, over = things[0], things[1]
        new = replace(at, **{along: 2 * getattr(over, along) - getattr(at, along)})
        return {**things, 0: new}

    changing = [
        Condition(f"{x} and {y} traded places", _swap(0, 1, *PLACE)),
        Condition(f"{x} were moved to the other side of {y}", cross),
        Condition("the picture were rotated by half a turn", _each(_rotate)),
        Condition(
            f"{y} and {z} traded places, and then {x} and {z} did",
            _chain(_swap(1, 2, *PLACE), _swap(0, 2, *PLACE)),
        ),
    ]
    keeping = [
        Condition(f"{x} and {z} traded places", _swap(0, 2, *PLACE)),
        Condition(f"{y} and {z} traded places", _swap(1, 2, *PLACE)),
        Condition(f"{z} were removed", _remove(2)),
        Condition(f"{x} and {y} swapped colors", _swap(0, 1, "colour")),
    ]
    (keeping if axis else changing).append(
        Condition("the picture were seen in a mirror", _each(_mirror))
    )
    return Topic(
        (first, _swapped(first, *PLACE)),
        f"Is {x} {where} {y}?",
        f"If {{}}, would {x} be {where} {y}?",
        answer,
        changing,
        keeping,
    )


def _common(rng: np.random.Generator, colours: Sequence[str]) -> Topic:
    """Draw two things; by the rules of the world one of them can roll, or is heavier."""
    rolls = rng.random() < 0.5
    attribute, free = ("shape", "size") if rolls else ("size", "shape")
    named = _draw_named(rng, attribute, "colour", colours)
    if rolls:
        angular = tuple(shape for shape in SHAPES if shape not in ROUND)
        shapes = choose(rng, (pick(rng, ROUND), pick(rng, angular)), 2)
        named[:2] = [replace(t, shape=s) for t, s in zip(named, shapes, strict=False)]
    first = _place(rng, named, "colour", colours)
    this, other = (f"the {thing.colour} thing" for thing in first[:2])

    def is_so(thing: Thing) -> bool:
        return thing.shape in ROUND if rolls else thing.size == "large"

    def answer(things: Things, turned: bool) -> str:
        (colour,) = (things[n].colour for n in (0, 1) if is_so(things[n]) != turned)
        return f"the {colour} thing"

    verb, would = ("can roll", "could roll") if rolls else ("is heavier", "would be heavier")
    rule = (
        "round things could not roll and all others could" if rolls
        else "small things were heavier than large ones"
    )  # fmt: skip
    words = {"shape": "shapes", "size": "sizes"}
    changing = (
        Condition(f"the two swapped {words[attribute]}", _swap(0, 1, attribute)),
        Condition("the two swapped colors", _swap(0, 1, "colour")),
        Condition(rule, lambda things: things, turned=True),
    )
    keeping = (
        Condition(f"the two swapped {words[free]}", _swap(0, 1, free)),
        Condition("the two traded places", _swap(0, 1, *PLACE)),
        Condition("the picture were seen in a mirror", _each(_mirror)),
        Condition("all other things were removed", _remove(*range(2, len(first)))),
    )
    return Topic(
        (first, _swapped(first, attribute)),
        f"Which {verb}, {this} or {other}?",
        f"If {{}}, which {would}, {this} or {other}?",
        answer,
        changing,
        keeping,
    )


CATEGORIES: Mapping[str, Callable[[np.random.Generator, Sequence[str]], Topic]] = {
    "count": _count,
    "color": partial(
        _attribute,
        "colour", "color", "shape", ("size", "sizes"),
        "What color is {}?", "what color would {} be?",
    ),
    "size": partial(
        _attribute,
        "size", "size", "shape", ("colour", "colors"),
        "What size is {}?", "what size would {} be?",
    ),
    "shape": partial(
        _attribute,
        "shape", "shape", "colour", ("size", "sizes"),
        "What shape is {}?", "what shape would {} be?",
    ),
    "direction": _direction,
    "common": _common,
}  # fmt: skip
"""The categories of questions, in the order of CFMM (Table 2)."""
