"""The tiny vision-language models and their training: contents of cells, then questions.

The model is a FastVLM (Vasu et al., 2025) of stock transformers classes, a LLaVA with a
convolutional vision tower: here a ConvNeXt, which learns shape at this size, unlike a plain ViT.
The last map of the tower has three columns and three rows, so that each token represents a cell of
a ShapeScapes gathering: tokens that straddle cells would have to be separated by the language
model, which is smaller than the tower. The language model is a Llama of whole words.

The vision tower learns attributes and places of things and sees no text; it is then frozen, so that
every picture is encoded once for all steps and questions. The language model learns right answers
by their likelihood and by its contrast with that of the other option. Both pictures of a pair are
in one batch: they have the same questions and options, so that a text alone reveals nothing. The
words for a thing and the token of its cell are aligned throughout; without that, basic questions
took three times the steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn

from cfaug.core.pixels import ImageTransform
from cfaug.core.rng import generator
from cfaug.core.safety.safe_loading import from_folder
from cfaug.core.weights import resolve
from cfaug.data.questions import QuestionImage
from cfaug.models.checkpoints import quiet
from cfaug.worlds.shapescapes.judge import Pixels
from cfaug.worlds.shapescapes.question_parts import SCENE, draw_pair
from cfaug.worlds.shapescapes.settings import COLOURS, STYLES, WorldSettings
from cfaug.worlds.shapescapes.world import (
    SHAPES,
    SIDE,
    SIZES,
    World,
    gathering_of,
    render_gathering,
)
from zoo.command import Rates, fit, save_half
from zoo.model import (
    build_fast_vlm,
    build_image_processor,
    build_image_tokenizer,
)
from zoo.scenes import SCENE_SIDE, draw_chunks, shift

if TYPE_CHECKING:
    from transformers import (
        FastVlmForConditionalGeneration,
        LlavaProcessor,
        PreTrainedTokenizerFast,
    )

PATCH = 3
CELL = PATCH * 2**3
"""The side of a cell in pixels: the last of four stages sees one patch in 8 by 8."""
IMAGE_SIZE = SIDE * CELL
CELLS = SIDE**2
"""The number of tokens of a picture."""
TRANSFORM = ImageTransform(IMAGE_SIZE, (0.5,) * 3, (0.5,) * 3)
WIDTH = 96
MAX_LENGTH = 192
"""The largest number of tokens: a question of ShapeScapes-VQA has at most 48 with its picture and
answer, and another may precede it as an example."""
WEIGHT_SPREAD = 0.06
"""The spread of initial weights; with the usual 0.02, for widths of thousands, basic questions took
twice the steps."""
FUNCTION_WORDS = """
a above added all and another answer are as be below by can color colors could did every
given half heavier how if in into is left many mirror moved not of ones or other others
picture places removed right roll rotated round seen shape shapes side size sizes swapped
than the then there thing things to traded turn turned twice two were what which would
"""
"""All words except those that name attributes of things."""
TEMPLATE = (
    "{% for message in messages %}{% if message['role'] == 'user' %}"
    "{% for part in message['content'] %}{% if part['type'] == 'image' %}<image>"
    "{% else %}{{ part['text'] }}{% endif %}{% endfor %} Answer"
    "{% else %}{% for part in message['content'] %} {{ part['text'] }}{% endfor %}"
    "<|endoftext|>{% endif %}{% endfor %}"
)
"""The chat template, as in ``<image>What color is the ball? Answer red<|endoftext|>``."""


def build_tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer of all words and signs of questions, with a token for a cell."""
    plurals = (f"{shape}s" for shape in SHAPES)
    numbers = map(str, range(10))
    known = (",", "?", *numbers, *FUNCTION_WORDS.split(), *COLOURS, *SIZES, *SHAPES, *plurals)
    return build_image_tokenizer(known, MAX_LENGTH)


def build_processor() -> LlavaProcessor:
    """Return the processor of pictures and questions; a picture has nine tokens."""
    from transformers import LlavaProcessor

    return LlavaProcessor(
        build_image_processor(IMAGE_SIZE),
        build_tokenizer(),
        patch_size=CELL,
        vision_feature_select_strategy="full",
        chat_template=TEMPLATE,
    )


def build_model() -> FastVlmForConditionalGeneration:
    """Return the model with initial weights, drawn from torch's current generator."""
    vision = {
        "image_size": IMAGE_SIZE,
        "patch_size": PATCH,
        "num_stages": 4,
        "hidden_sizes": [24, 48, 96, 96],
        # No block at 24 x 24: it would take the most time.
        "depths": [0, 2, 2, 1],
        "hidden_size": 96,
    }
    text = {
        "hidden_size": WIDTH,
        "intermediate_size": 2 * WIDTH,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "initializer_range": WEIGHT_SPREAD,
        "tie_word_embeddings": True,
    }
    return build_fast_vlm(build_tokenizer(), vision, text, CELLS)


def load(name: str) -> FastVlmForConditionalGeneration:
    """Return a trained model, a folder or ``zoo:NAME``, in float32."""
    import torch
    from transformers import FastVlmForConditionalGeneration

    with quiet():
        return from_folder(FastVlmForConditionalGeneration, resolve(name), dtype=torch.float32)


def save(model: FastVlmForConditionalGeneration, folder: Path) -> None:
    """Write weights (float16 safetensors), configuration and processor."""
    save_half(model, build_processor(), folder)


STYLE = "drawing"
BATCH = 100
"""The number of pictures encoded at once."""
ATTRIBUTES: Mapping[str, tuple[str, ...]] = {
    "shape": SHAPES, "colour": tuple(COLOURS), "size": tuple(SIZES),
}  # fmt: skip
"""The possible values of each attribute of a thing."""
EMPTY = -1
"""The value of all attributes of an empty cell."""
IGNORED = -100
LOG_SCALE = 2.0
"""The initial log scale of the cosines between cells and words."""


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
    return World(WorldSettings(seed=seed, image_size=SCENE_SIDE, style=STYLE))


def draw_images(seed: int, part: str, start: int, stop: int) -> list[QuestionImage]:
    """Return the images of some pairs, two for each, with their questions, without rendering them.

    Args:
        part: a name that is not one of a world's own parts, so that no scene is in both.
    """
    world = world_of(seed)
    return [
        image for index in range(start, stop) for image in draw_pair(world, f"zoo-{part}", index)
    ]


def draw_pictures(seed: int, part: str, pairs: int, processes: int = 1) -> Pictures:
    """Draw the pictures of the first pairs of a part, the same for any number of processes."""
    drawn = draw_chunks(_draw, pairs, 250, processes, seed, part)
    return Pictures(*(np.concatenate(column) for column in zip(*drawn, strict=True)))


def _draw(seed: int, part: str, start: int, stop: int) -> tuple[Pixels, NDArray[np.int64]]:
    """Return the pixels and things of some pairs of pictures."""
    scenes = [gathering_of(image.extra[SCENE]) for image in draw_images(seed, part, start, stop)]
    drawn = (render_gathering(scene, SCENE_SIDE, STYLES[STYLE]) for scene in scenes)
    things = np.full((len(scenes), CELLS, len(ATTRIBUTES)), EMPTY, np.int64)
    for cells, scene in zip(things, scenes, strict=True):
        for thing in scene.things:
            cells[thing.row * SIDE + thing.column] = [
                values.index(getattr(thing, name)) for name, values in ATTRIBUTES.items()
            ]
    return np.stack([TRANSFORM(Image.fromarray(pixels)) for pixels in drawn]), things


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
    images: Sequence[QuestionImage], tokenizer: PreTrainedTokenizerFast, *, basic_alone: bool
) -> list[list[TokenizedQuestion]]:
    """Return the tokenized questions of each image, the basic one first.

    Args:
        basic_alone: whether to leave out the counterfactual questions.
    """
    by_image = [image.questions[: 1 if basic_alone else None] for image in images]
    texts = [f"{question.text} Answer" for questions in by_image for question in questions]
    prompts = iter(tokenizer(texts)["input_ids"])
    tokenized: list[list[TokenizedQuestion]] = []
    for questions in by_image:
        tokenized.append([])
        for question in questions:
            prompt = next(prompts)
            [other] = (option for option in question.options if option != question.right)
            right, wrong = (tokenizer(option)["input_ids"] for option in (question.right, other))
            at = next(i for i, (a, b) in enumerate(zip(right, wrong, strict=True)) if a != b)
            ids = [*prompt, *right, tokenizer.eos_token_id]
            tokenized[-1].append(TokenizedQuestion(ids, len(prompt), at, wrong[at]))
    return tokenized


# The vision tower.


def train_tower(
    tower: nn.Module, width: int, pictures: Pictures, seed: int, rates: Rates, steps: int
) -> None:
    """Train a vision tower in place to predict the content and the position of each cell.

    Args:
        tower: a tower with one position of its last map for each cell.
        pictures: the training data; they are mirrored and shifted by up to two pixels, at random.
    """
    sizes = [*(len(values) + 1 for values in ATTRIBUTES.values()), SIDE, SIDE]
    heads = nn.Linear(width, sum(sizes))
    rng = generator(seed, "zoo", "vlm-tower", "order")
    column, row = np.meshgrid(np.arange(SIDE), np.arange(SIDE))
    where = torch.from_numpy(np.stack([column.ravel(), row.ravel()], axis=-1))

    def loss(step: int) -> Tensor:
        rows = rng.choice(len(pictures.pixels), rates.batch_size, replace=False)
        pixels, things = _jitter(pictures.pixels[rows], pictures.things[rows], rng)
        features = encode_batch(tower, TRANSFORM.normalize(torch.from_numpy(pixels)))
        # An empty cell is a class of its own, the first.
        shown = torch.from_numpy(things - EMPTY)
        targets = torch.cat([shown, where.expand(len(shown), -1, -1)], dim=-1).unbind(-1)
        losses = [
            F.cross_entropy(logits.flatten(0, 1), right.flatten())
            for logits, right in zip(heads(features).split(sizes, dim=-1), targets, strict=True)
        ]
        return torch.stack(losses).sum()

    tower.train()
    fit(nn.ModuleList([tower, heads]), loss, rates, steps, "the vision tower")
    tower.eval()


def _jitter(
    pixels: Pixels, things: NDArray[np.int64], rng: np.random.Generator, reach: int = 2
) -> tuple[Pixels, NDArray[np.int64]]:
    """Shift a batch by up to ``reach`` pixels, and mirror half of its pictures with their cells."""
    moved = shift(pixels, rng, reach)
    mirrored = (rng.random(len(moved)) < 0.5)[:, None, None, None]
    cells = things.reshape(len(things), SIDE, SIDE, -1)
    turned = np.where(mirrored, cells[:, :, ::-1], cells)
    return np.where(mirrored, moved[..., ::-1], moved), turned.reshape(things.shape)


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


# The language model.


@dataclass(frozen=True)
class Lessons:
    """Encoded pictures in pairs and their questions, of which batches are drawn.

    Attributes:
        features: the features of each picture, float32 (2 x pairs, 9, width).
        things: the labels of each cell, in the form of ``Pictures``.
        questions: the questions about each picture, the basic one first.
        basic_steps: the number of first steps with only basic questions.
    """

    features: Tensor
    things: NDArray[np.int64]
    questions: Sequence[Sequence[TokenizedQuestion]]
    rng: np.random.Generator
    basic_steps: int

    def draw(self, step: int, count: int) -> list[tuple[int, TokenizedQuestion]]:
        """Draw questions with the indices of their pictures, two or four for each pair.

        If there are more than basic questions, two of a pair's five are drawn.

        Args:
            count: the number of questions, a multiple of 4.
        """
        number = len(self.questions[0])
        each = 1 if step < self.basic_steps else min(2, number)
        pairs = self.rng.choice(len(self.questions) // 2, count // (2 * each), replace=False)
        return [
            (image, self.questions[image][at])
            for pair in pairs.tolist()
            for at in (self.rng.permutation(number)[:each].tolist() if each > 1 else [0])
            for image in (2 * pair, 2 * pair + 1)
        ]


class LanguageLoss(nn.Module):
    """The loss of a batch of questions: likelihood, contrast, and alignment of cells and words."""

    def __init__(self, model: FastVlmForConditionalGeneration, alignment: float) -> None:
        super().__init__()
        self.projector = model.model.multi_modal_projector
        self.language = model.model.language_model
        self.head = model.lm_head
        self.alignment = alignment
        self.log_scale = nn.Parameter(torch.tensor(LOG_SCALE))
        names = [*ATTRIBUTES.values(), tuple(f"{shape}s" for shape in SHAPES)]
        columns = [*range(len(ATTRIBUTES)), list(ATTRIBUTES).index("shape")]
        tokenizer = build_tokenizer()
        self._words = [
            (column, torch.tensor(tokenizer.convert_tokens_to_ids(list(values))))
            for column, values in zip(columns, names, strict=True)
        ]
        """The tokens of each attribute's values, and of the plurals of shapes, with its column."""

    def forward(
        self, features: Tensor, things: Tensor, questions: Sequence[TokenizedQuestion]
    ) -> Tensor:
        """Return the loss, a scalar.

        Args:
            features: the features of each question's picture, (n, 9, width).
            things: the labels of its cells, int64 (n, 9, 3).
        """
        ids = torch.zeros(
            (len(questions), max(len(question.ids) for question in questions)), dtype=torch.int64
        )
        targets = torch.full_like(ids, IGNORED)
        for row, question in enumerate(questions):
            ids[row, : len(question.ids)] = torch.tensor(question.ids)
            targets[row, question.prompt : len(question.ids)] = ids[
                row, question.prompt : len(question.ids)
            ]
        cells = self.projector(features)
        embedding = self.language.get_input_embeddings()
        inputs = torch.cat([cells, embedding(ids)], dim=1)
        hidden = self.language(inputs_embeds=inputs).last_hidden_state
        # A token is predicted at the position of the one before it, and none after the last.
        logits = self.head(hidden[:, CELLS:-1][targets[:, 1:] != IGNORED])
        likelihood = F.cross_entropy(logits, targets[targets != IGNORED])
        # The right option against the other at the token where they first differ.
        rows = torch.arange(len(questions))
        before = torch.tensor(
            [CELLS + question.prompt + question.place - 1 for question in questions]
        )
        pair = torch.tensor([(question.right, question.wrong) for question in questions])
        contrast = F.cross_entropy(
            self.head(hidden[rows, before]).gather(1, pair), torch.zeros_like(rows)
        )
        # The words for each cell's content, by their cosines.
        taken = things[..., 0] != EMPTY
        shown, labels = F.normalize(cells[taken], dim=-1), things[taken]
        aligned = [
            F.cross_entropy(
                self.log_scale.exp() * shown @ F.normalize(embedding.weight[words], dim=-1).T,
                labels[:, column],
            )
            for column, words in self._words
        ]
        return likelihood + contrast + self.alignment * torch.stack(aligned).sum()


def train_language(
    model: FastVlmForConditionalGeneration,
    lessons: Lessons,
    rates: Rates,
    steps: int,
    alignment: float,
) -> None:
    """Train projector and language model in place; the vision tower is not changed.

    Args:
        model: the model whose vision tower encoded the lessons.
        rates: the settings; the batch size counts questions.
    """
    criterion = LanguageLoss(model, alignment)
    things = torch.from_numpy(lessons.things)

    def loss(step: int) -> Tensor:
        drawn = lessons.draw(step, rates.batch_size)
        rows = [image for image, _ in drawn]
        value: Tensor = criterion(
            lessons.features[rows], things[rows], [question for _, question in drawn]
        )
        return value

    model.train()
    fit(criterion, loss, rates, steps, "answers")
    model.eval()
