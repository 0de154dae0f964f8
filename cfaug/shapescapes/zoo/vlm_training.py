"""Training of the tiny vision-language models: contents of cells, then questions.

The vision tower learns attributes and places of things and sees no text; it is then frozen, so that
every picture is encoded once for all steps and questions. The language model learns right answers
by their likelihood and by its contrast with that of the other option. Both pictures of a pair are
in one batch: they have the same questions and options, so that a text alone reveals nothing. The
words for a thing and the token of its cell are aligned throughout; without that, basic questions
took three times the steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn

from cfaug.core.questions import AskedImage, AskedQuestion
from cfaug.core.rng import generator
from cfaug.core.validation import OneOf, Positive, Seed, check_fields
from cfaug.data.export import write_questions
from cfaug.shapescapes.gathering import (
    SHAPES,
    SIDE,
    SIZES,
    Gathering,
    gathering_of,
    render_gathering,
)
from cfaug.shapescapes.question_parts import PARTS, SCENE, draw_pair, make_questions
from cfaug.shapescapes.settings import COLOURS, STYLES, WorldSettings
from cfaug.shapescapes.world import World
from cfaug.shapescapes.zoo.command import FittingSettings, fit, read, run
from cfaug.shapescapes.zoo.vlm_model import CELLS, TRANSFORM, build_tokenizer

if TYPE_CHECKING:
    from transformers import FastVlmForConditionalGeneration, PreTrainedTokenizerFast


BATCH = 100
"""The number of pictures encoded at once."""
IGNORED = -100
LOG_SCALE = 2.0
"""The initial log scale of the cosines between cells and words."""


def train_tower(
    tower: nn.Module, width: int, pictures: Pictures, seed: int, settings: FittingSettings
) -> None:
    """Train a vision tower in place to predict the content and the position of each cell.

    Args:
        tower: a tower with one position of its last map for each cell.
        width: the number of channels of that map.
        pictures: the training data; they are mirrored and shifted by up to two pixels, at random.
        settings: the number of steps and the learning rate.
    """
    sizes = [*(len(values) + 1 for values in ATTRIBUTES.values()), SIDE, SIDE]
    heads = nn.Linear(width, sum(sizes))
    rng = generator(seed, "zoo", "vlm-tower", "order")
    column, row = np.meshgrid(np.arange(SIDE), np.arange(SIDE))
    where = torch.from_numpy(np.stack([column.ravel(), row.ravel()], axis=-1))

    def loss(step: int) -> Tensor:
        rows = rng.choice(len(pictures.pixels), settings.batch_size, replace=False)
        pixels, things = _jitter(pictures.pixels[rows], pictures.things[rows], rng)
        features = encode_batch(tower, TRANSFORM.normalize(torch.from_numpy(pixels)))
        # An empty cell is a class of its own, the first.
        shown = torch.from_numpy(things - EMPTY)
        wanted = torch.cat([shown, where.expand(len(shown), -1, -1)], dim=-1).unbind(-1)
        found = heads(features).split(sizes, dim=-1)
        losses = [
            F.cross_entropy(one.flatten(0, 1), right.flatten())
            for one, right in zip(found, wanted, strict=True)
        ]
        return torch.stack(losses).sum()

    tower.train()
    fit(nn.ModuleList([tower, heads]), loss, settings, "the vision tower")
    tower.eval()


def _jitter(
    pixels: NDArray[np.uint8], things: NDArray[np.int64], rng: np.random.Generator, reach: int = 2
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Shift a batch by up to ``reach`` pixels, and mirror half of its pictures with their cells."""
    size = pixels.shape[-1]
    padded = np.pad(pixels, ((0, 0), (0, 0), (reach, reach), (reach, reach)), mode="edge")
    top, left = rng.integers(0, 2 * reach + 1, 2)
    moved = padded[:, :, top : top + size, left : left + size]
    mirrored = rng.random(len(moved)) < 0.5
    cells = things.reshape(len(things), SIDE, SIDE, -1)
    turned = np.where(mirrored[:, None, None, None], cells[:, :, ::-1], cells)
    seen = np.where(mirrored[:, None, None, None], moved[..., ::-1], moved)
    return seen, turned.reshape(things.shape)


def encode_batch(tower: Any, pixels: Tensor) -> Tensor:
    """Return a tower's features of each cell, in FastVLM's order: float (n, 9, width)."""
    tensor: Tensor = tower(pixels).last_hidden_state
    return tensor.flatten(2).transpose(1, 2)


def encode(tower: nn.Module, pixels: NDArray[np.uint8]) -> Tensor:
    """Return the features of pictures from a tower in evaluation mode: float32 (n, 9, width)."""
    with torch.inference_mode():
        parts = [
            encode_batch(tower, TRANSFORM.normalize(torch.from_numpy(pixels[at : at + BATCH])))
            for at in range(0, len(pixels), BATCH)
        ]
    return torch.cat(parts).clone()


class Lessons:
    """Encoded pictures in pairs and their questions, and a method that draws batches of them.

    Args:
        features: the features of each picture, float32 (2 x pairs, 9, width).
        things: the labels of each cell, in the form of ``Pictures``.
        questions: the questions about each picture, the basic one first.
        basic_steps: the number of first steps with only basic questions.
    """

    def __init__(
        self,
        features: Tensor,
        things: NDArray[np.int64],
        questions: Sequence[Sequence[TokenizedQuestion]],
        seed: int,
        basic_steps: int,
    ) -> None:
        self.features, self.things, self.questions = features, things, questions
        self.basic_steps = basic_steps
        self._rng = generator(seed, "zoo", "vlm", "order")

    def draw(self, step: int, count: int) -> list[tuple[int, TokenizedQuestion]]:
        """Draw questions with the indices of their pictures, two or four for each pair.

        If there are more than basic questions, two of a pair's five are drawn.

        Args:
            count: the number of questions, a multiple of 4.
        """
        asked = len(self.questions[0])
        each = 1 if step < self.basic_steps else min(2, asked)
        pairs = self._rng.choice(len(self.questions) // 2, count // (2 * each), replace=False)
        found = []
        for pair in pairs.tolist():
            drawn = self._rng.permutation(asked)[:each].tolist() if each > 1 else [0]
            for at in drawn:
                found += [(image, self.questions[image][at]) for image in (2 * pair, 2 * pair + 1)]
        return found


class LanguageLoss(nn.Module):
    """The loss of a batch of questions: likelihood, contrast, and alignment of cells and words.

    Args:
        model: the model; its projector and language model are trained.
    """

    def __init__(self, model: FastVlmForConditionalGeneration, alignment: float) -> None:
        super().__init__()
        self.projector = model.model.multi_modal_projector
        self.language = model.model.language_model
        self.head = model.lm_head
        self.alignment = alignment
        self.log_scale = nn.Parameter(torch.tensor(LOG_SCALE))
        self._words = list(_word_tokens(build_tokenizer()))

    def forward(
        self, features: Tensor, things: Tensor, questions: Sequence[TokenizedQuestion]
    ) -> Tensor:
        """Return the loss, a scalar.

        Args:
            features: the features of each question's picture, (n, 9, width).
            things: the labels of its cells, int64 (n, 9, 3).
        """
        cells = self.projector(features)
        ids, wanted = _pad(questions)
        words = self.language.get_input_embeddings()(ids)
        hidden = self.language(inputs_embeds=torch.cat([cells, words], dim=1)).last_hidden_state
        # A token is predicted at the position of the one before it, and none after the last.
        told = self.head(hidden[:, CELLS:-1][wanted[:, 1:] != IGNORED])
        likelihood = F.cross_entropy(told, wanted[wanted != IGNORED])
        return likelihood + self._contrast(hidden, questions) + self.alignment * self._align(
            cells, things
        )  # fmt: skip

    def _contrast(self, hidden: Tensor, questions: Sequence[TokenizedQuestion]) -> Tensor:
        """Return the cross-entropy of the right option at the token where they first differ."""
        rows = torch.arange(len(questions))
        before = torch.tensor(
            [CELLS + question.prompt + question.place - 1 for question in questions]
        )
        told = self.head(hidden[rows, before])
        pair = torch.tensor([(question.right, question.wrong) for question in questions])
        return F.cross_entropy(told.gather(1, pair), torch.zeros(len(rows), dtype=torch.int64))

    def _align(self, cells: Tensor, things: Tensor) -> Tensor:
        """Return the cross-entropy of the words for each cell's content, by their cosines."""
        taken = things[..., 0] != EMPTY
        shown, names = F.normalize(cells[taken], dim=-1), things[taken]
        known = self.language.get_input_embeddings().weight
        losses = [
            F.cross_entropy(
                self.log_scale.exp() * shown @ F.normalize(known[words], dim=-1).T, names[:, column]
            )
            for column, words in self._words
        ]
        return torch.stack(losses).sum()


def _word_tokens(tokenizer: PreTrainedTokenizerFast) -> Iterator[tuple[int, Tensor]]:
    """Yield the tokens of each attribute's values, and of their plurals, with its column."""
    for column, values in enumerate(ATTRIBUTES.values()):
        yield column, torch.tensor(tokenizer.convert_tokens_to_ids(list(values)))
    plurals = [f"{one}s" for one in SHAPES]
    yield list(ATTRIBUTES).index("shape"), torch.tensor(tokenizer.convert_tokens_to_ids(plurals))


def _pad(questions: Sequence[TokenizedQuestion]) -> tuple[Tensor, Tensor]:
    """Return tokens, padded with 0 on the right, and targets, which are those of the answers."""
    longest = max(len(question.ids) for question in questions)
    ids = torch.zeros((len(questions), longest), dtype=torch.int64)
    wanted = torch.full_like(ids, IGNORED)
    for row, one in enumerate(questions):
        ids[row, : len(one.ids)] = torch.tensor(one.ids)
        wanted[row, one.prompt : len(one.ids)] = ids[row, one.prompt : len(one.ids)]
    return ids, wanted


def train_language(
    model: FastVlmForConditionalGeneration,
    lessons: Lessons,
    settings: FittingSettings,
    alignment: float,
) -> None:
    """Train projector and language model in place; the vision tower is not changed.

    Args:
        model: the model whose vision tower encoded the lessons.
        lessons: the encoded pictures and their questions.
        settings: the number of steps and the learning rate; the batch size counts questions.
        alignment: the weight of the alignment of cells and words.
    """
    criterion = LanguageLoss(model, alignment)
    things = torch.from_numpy(lessons.things)

    def loss(step: int) -> Tensor:
        drawn = lessons.draw(step, settings.batch_size)
        rows = [image for image, _ in drawn]
        found: Tensor = criterion(lessons.features[rows], things[rows], [one for _, one in drawn])
        return found

    model.train()
    fit(criterion, loss, settings, "answers")
    model.eval()


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
        part: a name that is not one of a world's own parts, so that no scene is in both.
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
        drawn = [_draw(*chunk) for chunk in chunks]
    return Pictures(
        np.concatenate([one.pixels for one in drawn]),
        np.concatenate([one.things for one in drawn]),
    )


def _draw(seed: int, part: str, start: int, stop: int) -> Pictures:
    scenes = [gathering_of(one.extra[SCENE]) for one in draw_images(seed, part, start, stop)]
    images = (
        Image.fromarray(render_gathering(scene, DRAWN_SIZE, STYLES[STYLE])) for scene in scenes
    )
    return Pictures(
        np.stack([TRANSFORM(image) for image in images]),
        np.stack([_cells(scene) for scene in scenes]),
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
    [other] = (option for option in question.options if option != question.right)
    right, wrong = (tokenizer(one)["input_ids"] for one in (question.right, other))
    place = next(at for at, (a, b) in enumerate(zip(right, wrong, strict=True)) if a != b)
    ids = [*prompt, *right, tokenizer.eos_token_id]
    return TokenizedQuestion(ids, len(prompt), place, wrong[place])


# Write ShapeScapes-VQA as a question set: ``python -m cfaug zoo questions out=FOLDER part=test``.
#
# ``FOLDER/questions.jsonl`` has the form that ``benchmark.data`` reads, and ``FOLDER/images`` has
# the pictures. The same settings give the same bytes, and a larger set begins with the smaller one.


@dataclass(frozen=True, kw_only=True)
class QuestionSettings:
    """The settings of the command, given as ``name=value``.

    Attributes:
        out: the folder to write, empty or missing.
        part: ``train`` or ``test``, which have no scene in common.
        pairs: the number of pairs of pictures, each with five questions; of every six pairs one is
            of each category.
        image_size: the side of the pictures in pixels; small shapes are distinguishable from about
            64.
        style: a name of ``cfaug.shapescapes.settings.STYLES``.
    """

    out: str
    part: Annotated[str, OneOf(PARTS)] = "test"
    pairs: Positive = 150
    seed: Seed = 0
    image_size: int = 64
    style: str = "drawing"

    def __post_init__(self) -> None:
        check_fields(self)


def main(argv: list[str]) -> int:
    """Write the questions and the pictures, and print their numbers."""
    given = read(QuestionSettings, argv)
    world = WorldSettings(seed=given.seed, image_size=given.image_size, style=given.style)
    size: dict[str, Any] = {PARTS[given.part]: given.pairs}
    images = make_questions(replace(world, **size), given.part)
    count = write_questions(images, Path(given.out))
    print(f"{count:,} pictures with five questions each in {given.out}")
    return 0


if __name__ == "__main__":
    run(main)
