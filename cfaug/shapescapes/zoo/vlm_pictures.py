"""Training data of the tiny vision-language models: pictures, contents of cells, questions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from cfaug.core.question_sets import AskedImage, AskedQuestion
from cfaug.shapescapes.gathering import (
    SHAPES,
    SIDE,
    SIZES,
    Gathering,
    gathering_of,
    render_gathering,
)
from cfaug.shapescapes.question_parts import SCENE, draw_pair
from cfaug.shapescapes.settings import WorldSettings
from cfaug.shapescapes.styles import STYLES
from cfaug.shapescapes.vocabulary import COLOURS
from cfaug.shapescapes.world import World
from cfaug.shapescapes.zoo.vlm_model import CELLS, TRANSFORM

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

STYLE = "drawing"
DRAWN_SIZE = 64
CHUNK = 250

ATTRIBUTES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"shape": SHAPES, "colour": tuple(COLOURS), "size": tuple(SIZES)}
)
"""The possible values of each attribute of a thing."""

EMPTY = -1
"""The value of all attributes of an empty cell."""


@dataclass(frozen=True)
class Pictures:
    """Pictures in pairs, each pair in two successive rows.

    Attributes:
        pixels: the pictures for the model, uint8 (n, 3, 72, 72).
        things: the labels of shape, colour and size in each cell, row by row, int64 (n, 9, 3);
            ``EMPTY`` in empty cells.
    """

    pixels: NDArray[np.uint8]
    things: NDArray[np.int64]


def world_of(seed: int) -> World:
    """Return the world of the training scenes: drawings without a shortcut."""
    return World(WorldSettings(seed=seed, image_size=DRAWN_SIZE, style=STYLE))


def draw_images(seed: int, part: str, start: int, stop: int) -> list[AskedImage]:
    """Return the images of some pairs, two for each, with their questions, without rendering them.

    Args:
        seed: the seed of the world.
        part: a name that is not one of a world's own parts, so that no scene is in both.
        start: the first pair.
        stop: the pair after the last one.
    """
    world = world_of(seed)
    return [one for index in range(start, stop) for one in draw_pair(world, f"zoo-{part}", index)]


def draw_pictures(seed: int, part: str, pairs: int, processes: int = 1) -> Pictures:
    """Draw the pictures of the first pairs of a part, the same for any number of processes."""
    starts = range(0, pairs, CHUNK)
    chunks = [(seed, part, start, min(start + CHUNK, pairs)) for start in starts]
    if processes > 1:
        with ProcessPoolExecutor(processes, mp_context=get_context("forkserver")) as pool:
            drawn = list(pool.map(_draw, *zip(*chunks, strict=True)))
    else:
        drawn = [_draw(*one) for one in chunks]
    return Pictures(
        np.concatenate([one.pixels for one in drawn]),
        np.concatenate([one.things for one in drawn]),
    )


def _draw(seed: int, part: str, start: int, stop: int) -> Pictures:
    scenes = [gathering_of(one.extra[SCENE]) for one in draw_images(seed, part, start, stop)]
    images = (Image.fromarray(render_gathering(one, DRAWN_SIZE, STYLES[STYLE])) for one in scenes)
    return Pictures(
        np.stack([TRANSFORM(image) for image in images]),
        np.stack([_cells(one) for one in scenes]),
    )


def _cells(scene: Gathering) -> NDArray[np.int64]:
    cells = np.full((CELLS, len(ATTRIBUTES)), EMPTY, np.int64)
    for thing in scene.things:
        cells[thing.row * SIDE + thing.column] = [
            values.index(getattr(thing, name)) for name, values in ATTRIBUTES.items()
        ]
    return cells


@dataclass(frozen=True)
class TokenizedQuestion:
    """A question and its right answer, in the form that the model reads after the picture.

    Attributes:
        ids: the tokens of the prompt and the right answer, and the one that ends it.
        prompt: the number of tokens of the prompt, at least 1.
        place: the index at which the right and the wrong answer first differ, counted from
            ``prompt``.
        wrong: the wrong answer's token at that index.
    """

    ids: list[int]
    prompt: int
    place: int
    wrong: int

    @property
    def right(self) -> int:
        """The right answer's token at ``place``."""
        return self.ids[self.prompt + self.place]


def tokenize_questions(
    images: Sequence[AskedImage], tokenizer: PreTrainedTokenizerFast, *, basic_alone: bool
) -> list[list[TokenizedQuestion]]:
    """Return the tokenized questions of each image, the basic one first.

    Args:
        images: images with questions that have two options each.
        tokenizer: the tokenizer of the model.
        basic_alone: whether to leave out the counterfactual questions.
    """
    asked = [image.questions[: 1 if basic_alone else None] for image in images]
    every = [one for own in asked for one in own]
    prompts = tokenizer([f"{one.text} Answer" for one in every])["input_ids"]
    found = iter(
        _tokenize(one, prompt, tokenizer) for one, prompt in zip(every, prompts, strict=True)
    )
    return [[next(found) for _ in own] for own in asked]


def _tokenize(
    question: AskedQuestion, prompt: list[int], tokenizer: PreTrainedTokenizerFast
) -> TokenizedQuestion:
    [other] = (one for one in question.options if one != question.right)
    right, wrong = (tokenizer(one)["input_ids"] for one in (question.right, other))
    place = next(at for at, (a, b) in enumerate(zip(right, wrong, strict=True)) if a != b)
    ids = [*prompt, *right, tokenizer.eos_token_id]
    return TokenizedQuestion(ids, len(prompt), place, wrong[place])
