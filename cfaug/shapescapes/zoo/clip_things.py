"""Teach the tiny CLIP pictures of several things: ``python -m cfaug zoo clip_things out=DIR``.

It continues from ``zoo:clip-0``, which knows drawings of one thing: the tokenizer gets the words
for several things ("a red ball left of a blue cube"), texts may be longer, and the text tower gets
a second layer. It is trained on drawings of one thing, as before, and on compositional pictures,
all drawn uniformly. Captions name only shapes or everything, in turn; some have another form ("on
the beach there is a ball that is red").
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from cfaug.core.rng import derive, generator
from cfaug.shapescapes.compositional_edits import (
    EDITS,
    DescriptionForm,
    Picture,
    PictureDescription,
    PictureDistribution,
    draw_picture,
    relations,
    say,
    words_of_pictures,
)
from cfaug.shapescapes.compositional_parts import PairDistribution
from cfaug.shapescapes.settings import FRAMES, WorldSettings
from cfaug.shapescapes.world import World
from cfaug.shapescapes.zoo import clip
from cfaug.shapescapes.zoo.command import DrawingSettings, fit, make_model
from cfaug.shapescapes.zoo.model import build_model, build_tokenizer, go_on_from, load, save
from cfaug.shapescapes.zoo.scenes import Pixels, draw_unbiased, shift
from cfaug.stats.choices import pair_similarities, winoground

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import VisionTextDualEncoderModel

MAX_LENGTH = 24
"""The length of texts in tokens; "there is a ball that is red left of a cube that is blue in front
of a brick wall" has 22."""


@dataclass(frozen=True, kw_only=True)
class ThingsSettings(DrawingSettings):
    """The settings of the command, given as ``name=value``.

    Attributes: those of :class:`cfaug.shapescapes.zoo.command.DrawingSettings`, and
        start: the initial model.
        single_every: the period, in batches, at which pictures show one thing, as in the training
            of ``start``.
        otherwise: the share of captions in another form.
    """

    start: str = "zoo:clip-0"
    scenes: int = 6_000
    steps: int = 1_200
    lr: float = 1.5e-3
    weight_decay: float = 0.01
    single_every: int = 4
    otherwise: float = 0.3


def _draw(picture: Picture, seed: int, world: World) -> Pixels:
    png = picture.draw(seed, world.settings)
    return np.asarray(Image.open(io.BytesIO(png))).transpose(2, 0, 1)


def _world(seed: int) -> World:
    return World(WorldSettings(style="drawing", seed=seed))


def load_start(name: str) -> VisionTextDualEncoderModel:
    """Return a tiny CLIP with a tokenizer that knows the words for several things.

    Known tokens and positions keep their embeddings; the second layer of the text tower is the
    identity at first.

    Args:
        name: the model whose tokens are the first of the new tokenizer's.
    """
    model = build_model(words_of_pictures(), max_length=MAX_LENGTH, text_layers=2)
    for key, value in model.state_dict().items():
        if ".layers.1." in key and ("out_proj" in key or "fc2" in key):
            value.zero_()
    return go_on_from(name, model)


def describe(picture: Picture, rng: np.random.Generator, otherwise: float) -> str:
    """Return a description of a picture with the omissions of captions, possibly in another form.

    Args:
        otherwise: the probability of another form.
    """
    drop, form, relation = rng.random(3), rng.random(2) < otherwise, None
    if len(picture.things) == 2 and rng.random() < 0.5:
        true = relations(*picture.things)
        relation = true[int(rng.integers(len(true)))]
    things = tuple(
        (thing.shape, thing.colour if gone >= 0.3 else None)
        for thing, gone in zip(picture.things, drop, strict=False)
    )
    description = PictureDescription(
        things, relation, picture.background if drop[2] >= 0.5 else None
    )
    if rng.random() < 0.5 and len(things) == 2:
        description = description.turned()
    return say(
        description, DescriptionForm(int(rng.integers(len(FRAMES))), bool(form[0]), bool(form[1]))
    )


def train(settings: ThingsSettings) -> VisionTextDualEncoderModel:
    """Train another model further with progress on stderr; return it in evaluation mode."""
    import torch

    names = ("zoo", "clip-things")
    torch.manual_seed(derive(settings.seed, *names) % 2**63)
    model = load_start(settings.start).train()
    drawings = draw_unbiased(settings.seed, "train", settings.scenes // settings.single_every)
    # Clean pictures with uniform colours; three of four show two things, the others one.
    world = _world(settings.seed)
    law, drawn, pictures = PictureDistribution(world), [], []
    for i in range(settings.scenes):
        picture = draw_picture(generator(settings.seed, *names, "train", i), law, 2 if i % 4 else 1)
        drawn.append(_draw(picture, derive(settings.seed, *names, "train", i, "scene"), world))
        pictures.append(picture)
    several = np.stack(drawn)
    tokenizer = build_tokenizer(words_of_pictures(), MAX_LENGTH)
    order = generator(settings.seed, *names, "order")

    def loss(step: int) -> Tensor:
        single = step % settings.single_every == 0
        pixels = drawings.pixels if single else several
        rows = order.choice(len(pixels), settings.batch_size, replace=False)
        if single:
            texts = [
                f"a {drawings.factors[r].subject}" if step % 8 == 0 else drawings.texts[r]
                for r in rows
            ]
        elif step % 3 == 0:
            shapes = (tuple((t.shape, None) for t in pictures[r].things) for r in rows)
            texts = [say(PictureDescription(some)) for some in shapes]
        else:
            texts = [describe(pictures[r], order, settings.otherwise) for r in rows]
        tokens = tokenizer(texts, padding=True, return_tensors="pt")
        seen = shift(pixels[rows], order)
        value: Tensor = clip.compare(model, tokens, seen, return_loss=True).loss
        return value

    fit(model, loss, settings, settings.steps, "CLIP of several things")
    return model.eval()


def evaluate(folder: Path, settings: ThingsSettings) -> dict[str, float]:
    """Return the metrics of the tiny CLIP of one thing, and those of pairs by category of edit.

    The latter are text, image and group scores on held-out pairs of drawings.
    """
    import torch

    model, world, count = load(folder), _world(settings.seed), settings.held_out
    items = PairDistribution("zoo_held_out", EDITS, turn=True)
    drawn = [items.draw(world, i) for i in range(count)]
    texts = [text for pair in drawn for text in pair.captions]
    images = [_draw(picture, pair.seed, world) for pair in drawn for picture in pair.pictures]
    tokenizer = build_tokenizer(words_of_pictures(), MAX_LENGTH)
    tokens = tokenizer(texts, padding=True, return_tensors="pt")
    with torch.inference_mode():
        output = clip.compare(model, tokens, np.stack(images))
    sims = pair_similarities(
        output.text_embeds.reshape(count, 2, -1), output.image_embeds.reshape(count, 2, -1)
    )
    categories = np.array([pair.category for pair in drawn])
    metrics = clip.evaluate(folder, settings)
    for name in EDITS:
        for metric, value in winoground(sims[categories == name]).items():
            metrics[f"{name} {metric}"] = round(value, 4)
    return metrics


main = partial(
    make_model,
    "clip_things",
    ThingsSettings,
    train,
    partial(save, known=words_of_pictures()),
    evaluate,
)
