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
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from cfaug.core.rng import derive, generator
from cfaug.shapescapes.compositional.edits import (
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
from cfaug.shapescapes.compositional.parts import PairDistribution
from cfaug.shapescapes.settings import FRAMES, WorldSettings
from cfaug.shapescapes.world import World
from cfaug.shapescapes.zoo.clip import draw_unbiased, evaluate, normalise, shift
from cfaug.shapescapes.zoo.command import DrawingSettings, fit, make_model, read, run
from cfaug.shapescapes.zoo.model import build_model, build_tokenizer, go_on_from, save
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


@dataclass(frozen=True)
class _LearntPictures:
    """Pictures, uint8 (n, 3, 32, 32), and their content."""

    pixels: NDArray[np.uint8]
    pictures: list[Picture]


def draw_pictures(seed: int, part: str, count: int) -> _LearntPictures:
    """Draw clean pictures with uniform colours; three of four show two things, the others one."""
    settings = WorldSettings(style="drawing", seed=seed)
    law = PictureDistribution(World(settings))
    pixels, pictures = [], []
    for i in range(count):
        rng = generator(seed, "zoo", "clip-things", part, i)
        picture = draw_picture(rng, law, 2 if i % 4 else 1)
        png = picture.draw(derive(seed, "zoo", "clip-things", part, i, "scene"), settings)
        pixels.append(np.asarray(Image.open(io.BytesIO(png))).transpose(2, 0, 1))
        pictures.append(picture)
    return _LearntPictures(np.stack(pixels), pictures)


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
        found = relations(*picture.things)
        relation = found[int(rng.integers(len(found)))]
    things = tuple(
        (thing.shape, thing.colour if gone >= 0.3 else None)
        for thing, gone in zip(picture.things, drop, strict=False)
    )
    said = PictureDescription(things, relation, picture.background if drop[2] >= 0.5 else None)
    if rng.random() < 0.5 and len(things) == 2:
        said = said.turned()
    return say(said, DescriptionForm(int(rng.integers(len(FRAMES))), bool(form[0]), bool(form[1])))


def train(settings: ThingsSettings) -> VisionTextDualEncoderModel:
    """Train another model further with progress on stderr; return it in evaluation mode."""
    import torch

    torch.manual_seed(derive(settings.seed, "zoo", "clip-things") % 2**63)
    model = load_start(settings.start).train()
    one = draw_unbiased(settings.seed, "train", settings.scenes // settings.single_every)
    seen = draw_pictures(settings.seed, "train", settings.scenes)
    tokenizer = build_tokenizer(words_of_pictures(), MAX_LENGTH)
    order = generator(settings.seed, "zoo", "clip-things", "order")

    def loss(step: int) -> Tensor:
        single, shapes = step % settings.single_every == 0, step % 3 == 0
        pixels = one.pixels if single else seen.pixels
        rows = order.choice(len(pixels), settings.batch_size, replace=False)
        if single:
            said = [f"a {one.factors[r].subject}" if step % 8 == 0 else one.texts[r] for r in rows]
        elif shapes:
            shown = [seen.pictures[r] for r in rows]
            said = [
                say(PictureDescription(tuple((t.shape, None) for t in p.things))) for p in shown
            ]
        else:
            said = [describe(seen.pictures[r], order, settings.otherwise) for r in rows]
        found: Tensor = model(
            pixel_values=normalise(shift(pixels[rows], order)),
            **tokenizer(said, padding=True, return_tensors="pt"),
            return_loss=True,
        ).loss
        return found

    fit(model, loss, settings, "CLIP of several things")
    return model.eval()


def evaluate_pairs(
    model: VisionTextDualEncoderModel, seed: int, count: int
) -> dict[str, dict[str, float]]:
    """Return text, image and group scores on held-out pairs of drawings, by category of edit."""
    import torch

    world = World(WorldSettings(style="drawing", seed=seed))
    items = PairDistribution("zoo_held_out", EDITS, turn=True)
    drawn = [items.draw(world, i) for i in range(count)]
    texts = [text for one in drawn for text in one.captions]
    tokenizer = build_tokenizer(words_of_pictures(), MAX_LENGTH)
    images = [
        np.asarray(Image.open(io.BytesIO(picture.draw(one.seed, world.settings))))
        for one in drawn
        for picture in one.pictures
    ]
    with torch.inference_mode():
        output = model(
            pixel_values=normalise(np.stack(images).transpose(0, 3, 1, 2)),
            **tokenizer(texts, padding=True, return_tensors="pt"),
        )
    sims = pair_similarities(
        output.text_embeds.reshape(count, 2, -1), output.image_embeds.reshape(count, 2, -1)
    )
    categories = np.array([one.category for one in drawn])
    return {name: winoground(sims[categories == name]) for name in EDITS}


def main(argv: list[str]) -> int:
    """Train, evaluate and write one checkpoint with its ``card.json``."""
    settings = read(ThingsSettings, argv)

    def measure(model: VisionTextDualEncoderModel, _: Path) -> dict[str, float]:
        pairs = evaluate_pairs(model, settings.seed, settings.held_out)
        return {
            **evaluate(model, settings.seed, settings.held_out),
            **{
                f"{name} {metric}": round(value, 4)
                for name, found in pairs.items()
                for metric, value in found.items()
            },
        }

    return make_model(
        "clip_things",
        settings,
        lambda: train(settings),
        lambda model, folder: save(model, folder, words_of_pictures()),
        measure,
    )


if __name__ == "__main__":
    run(main)
