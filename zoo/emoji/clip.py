"""Train a tiny CLIP on the emoji of one artist: ``python -m zoo emoji_clip seed=0 out=FOLDER``.

It sees Noto's drawings of the names of the part ``train``, and nothing else: neither another
artist's, nor names of any other part. Pictures are shifted and scaled, but not mirrored or
recoloured: names speak of directions, colours and skin tones. The tokenizer knows the words of all
names of the pack. Rebuilding with the seed, threads and versions in ``card.json`` gives the same
metrics.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.parquet as pq
from PIL import Image

from cfaug.core.rng import derive, generator
from cfaug.core.worlds import local_source
from cfaug.stats.choices import pair_similarities, winoground
from cfaug.worlds.shapescapes.judge import Pixels, normalise
from zoo.command import Rates, Seed, fit, make_model
from zoo.emoji.packages import SHIPPED
from zoo.model import TRANSFORM, build_model, build_tokenizer, load, save, split_words
from zoo.scenes import shift

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import VisionTextDualEncoderModel

ARTIST = "noto"
PARTS = ("train", "more", "pairs", "names", "test_pairs", "people")
MAX_LENGTH = 24
"""The length of texts in tokens; "woman in motorized wheelchair: medium-light skin tone, facing
right" has 15."""


@dataclass(frozen=True, kw_only=True)
class EmojiSettings(Rates):
    """The settings of the command, given as ``name=value``.

    Attributes: those of :class:`zoo.command.Rates`, and
        steps: the number of optimiser steps.
        out: the folder to write; must not exist yet.
        seed: the seed of the weights, of the order and of the shifts.
        reach: the most pixels, of 32, by which a batch is shifted.
    """

    out: str
    seed: Seed = 0
    steps: int = 1_200
    batch_size: int = 128
    reach: int = 3


def read_part(artist: str, part: str) -> list[dict[str, Any]]:
    """Return the rows of a part of the pack."""
    folder = Path(local_source(f"emoji:{artist}/{part}"))
    rows: list[dict[str, Any]] = pq.read_table(folder / f"{part}.parquet").to_pylist()
    return rows


def named_pictures(rows: Sequence[dict[str, Any]]) -> tuple[Pixels, list[str]]:
    """Return the pictures of rows, both of a pair, uint8 ``[n, 3, 32, 32]``, and their names."""
    pictures, names = [], []
    for row in rows:
        for prefix in ("", "cf_") if "cf_image" in row else ("",):
            with Image.open(io.BytesIO(row[f"{prefix}image"]["bytes"])) as image:
                pictures.append(TRANSFORM(image.convert("RGB")))
            names.append(row[f"{prefix}caption"])
    return np.stack(pictures), names


def known_words() -> tuple[str, ...]:
    """Return every word of the pack's names, in alphabetical order."""
    names = [
        row[column]
        for part in PARTS
        for row in read_part(ARTIST, part)
        for column in ("caption", "cf_caption")
        if column in row
    ]
    return tuple(sorted(set(split_words(names))))


def train(settings: EmojiSettings) -> VisionTextDualEncoderModel:
    """Train from scratch with progress on stderr; return the model in evaluation mode."""
    import torch

    torch.manual_seed(derive(settings.seed, "zoo", "emoji", "weights") % 2**63)
    words = known_words()
    model = build_model(words, max_length=MAX_LENGTH).train()
    pixels, names = named_pictures(read_part(ARTIST, "train"))
    tokens = build_tokenizer(words, MAX_LENGTH)(names, padding=True, return_tensors="pt")
    rng = generator(settings.seed, "zoo", "emoji", "order")

    def orders() -> Iterator[np.ndarray]:
        while True:
            order = rng.permutation(len(names))
            for start in range(0, len(names) - settings.batch_size + 1, settings.batch_size):
                yield order[start : start + settings.batch_size]

    batches = orders()

    def loss(step: int) -> Tensor:
        rows = next(batches)
        shifted = shift(pixels[rows], rng, settings.reach)
        batch = {key: value[rows] for key, value in tokens.items()}
        value: Tensor = model(pixel_values=normalise(shifted), **batch, return_loss=True).loss
        return value

    fit(model, loss, settings, settings.steps)
    return model.eval()


def evaluate(folder: Path, settings: EmojiSettings) -> dict[str, float]:
    """Return, for each artist, recall at 1 of names and the scores of held-out pairs.

    Recall is among all names of a part: of ``train``, which were seen as Noto draws them, and of
    held-out ``names``.
    """
    import torch

    model, tokenizer = load(folder), build_tokenizer(known_words(), MAX_LENGTH)
    metrics: dict[str, float] = {}
    for artist in SHIPPED:
        for part in ("train", "names", "test_pairs"):
            pixels, names = named_pictures(read_part(artist, part))
            with torch.inference_mode():
                tokens = tokenizer(names, padding=True, return_tensors="pt")
                out = model(pixel_values=normalise(pixels), **tokens)
            images, texts = out.image_embeds.numpy(), out.text_embeds.numpy()
            if part == "test_pairs":
                pairs = [side.reshape(len(side) // 2, 2, -1) for side in (texts, images)]
                group = winoground(pair_similarities(*pairs))["group_score"]
                metrics[f"{artist}_pairs_group"] = round(group, 4)
            else:
                best = (images @ texts.T).argmax(1)
                metrics[f"{artist}_{part}_r1"] = round(
                    float(np.mean(best == np.arange(len(best)))), 4
                )
    return metrics


def save_with_words(model: VisionTextDualEncoderModel, folder: Path) -> None:
    """Write the model with the tokenizer of the pack's words."""
    save(model, folder, known_words())


main = partial(make_model, "emoji_clip", EmojiSettings, train, save_with_words, evaluate)
