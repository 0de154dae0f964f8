"""Pre-train the tiny CLIP on clean, unbiased drawings: ``python -m cfaug.zoo.clip seed=0 out=DIR``.

The loss is CLIP's symmetric one (Radford et al., 2021, section 2.3); captions leave out the colour
and the background now and then, and in every other batch they name the subject only: without such
batches colour and background tell the scenes apart well enough, and shape was not learnt in 2,000
steps. Rebuilding with the seed, threads and versions in ``card.json`` gives the same metrics.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from cfaug.rng import derive, generator
from cfaug.shapescapes.oracle import CHOICES
from cfaug.shapescapes.scene import Scene, render
from cfaug.shapescapes.styles import STYLES
from cfaug.shapescapes.vocabulary import (
    COLOURS,
    PLACES,
    SUBJECTS,
    Factors,
    Wording,
    caption,
    draw_wording,
)
from cfaug.zoo.command import fresh_folder, read, run, write_card
from cfaug.zoo.model import IMAGE_SIZE, build_model, build_tokenizer, save

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import VisionTextDualEncoderModel


@dataclass(frozen=True)
class PretrainSettings:
    """What the command takes, as ``name=value``.

    Attributes:
        out: folder to write; must not exist yet.
        seed: of the weights, the scenes and their order.
        scenes: number of distinct training scenes.
        steps: optimiser steps.
        batch_size: scenes a step.
        lr: peak learning rate, reached after ``warmup`` steps, then a cosine down to 0.
        warmup: steps of linear warm-up.
        weight_decay: AdamW's, on matrices only.
        subject_only_every: every so many batches, captions name the subject only.
        held_out: scenes of the evaluation.
    """

    out: str
    seed: int = 0
    scenes: int = 12_000
    steps: int = 1_600
    batch_size: int = 64
    lr: float = 1.5e-3
    warmup: int = 100
    weight_decay: float = 0.01
    subject_only_every: int = 2
    held_out: int = 800


@dataclass(frozen=True)
class Drawings:
    """Unbiased scenes: pixels uint8 (n, 3, 32, 32), their factors, and a caption of each."""

    pixels: NDArray[np.uint8]
    factors: list[Factors]
    texts: list[str]


def draw(seed: int, part: str, count: int) -> Drawings:
    """Draw ``count`` clean scenes whose factors are independent and uniform."""
    pixels = np.empty((count, 3, IMAGE_SIZE, IMAGE_SIZE), dtype=np.uint8)
    every, texts = [], []
    for i in range(count):
        rng = generator(seed, "zoo", part, i)
        chosen = {kind: names[int(rng.integers(len(names)))] for kind, names in CHOICES.items()}
        factors = Factors(**chosen)
        scene = Scene(factors, derive(seed, "zoo", part, i, "scene"))
        pixels[i] = render(scene, IMAGE_SIZE, STYLES["drawing"]).pixels.transpose(2, 0, 1)
        every.append(factors)
        texts.append(caption(factors, draw_wording(rng, drop_colour=0.4, drop_background=0.6)))
    return Drawings(pixels, every, texts)


def tokenize(texts: list[str]) -> dict[str, Tensor]:
    """Return input ids and attention mask, (n, longest), as the shipped tokenizer gives them."""
    return dict(build_tokenizer()(texts, padding=True, return_tensors="pt"))


def normalise(pixels: NDArray[np.uint8]) -> Tensor:
    """Scale uint8 pixels to [-1, 1], as the shipped image processor does."""
    import torch

    return torch.from_numpy(pixels).float() / 127.5 - 1


def train(settings: PretrainSettings) -> VisionTextDualEncoderModel:
    """Train from scratch; progress on stderr. Returns the model in evaluation mode."""
    import torch
    from rich.console import Console
    from rich.progress import track

    torch.manual_seed(derive(settings.seed, "zoo", "weights") % 2**63)
    model = build_model().train()
    drawings = draw(settings.seed, "train", settings.scenes)
    tokens = tokenize(drawings.texts)
    names = tokenize([f"a {factors.subject}" for factors in drawings.factors])
    decayed = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim <= 1]
    optimizer = torch.optim.AdamW(
        [
            {"params": decayed, "weight_decay": settings.weight_decay},
            {"params": others, "weight_decay": 0.0},
        ],
        lr=settings.lr,
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _rate(settings, step))
    order = generator(settings.seed, "zoo", "order")
    for step in track(range(settings.steps), "pre-training", console=Console(stderr=True)):
        rows = order.choice(settings.scenes, settings.batch_size, replace=False)
        said = names if step % settings.subject_only_every == 0 else tokens
        output = model(
            pixel_values=normalise(drawings.pixels[rows]),
            **{key: value[rows] for key, value in said.items()},
            return_loss=True,
        )
        if not torch.isfinite(output.loss):
            raise FloatingPointError("the loss is not finite: lower lr")
        output.loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
    return model.eval()


def _rate(settings: PretrainSettings, step: int) -> float:
    if step < settings.warmup:
        return (step + 1) / settings.warmup
    done = (step - settings.warmup) / max(1, settings.steps - settings.warmup)
    return float(0.5 * (1 + np.cos(np.pi * done)))


def evaluate(model: VisionTextDualEncoderModel, seed: int, count: int) -> dict[str, float]:
    """Return zero-shot accuracy of subject, colour and background on held-out drawings."""
    import torch

    prompts = {
        "subject": [f"a {name}" for name in SUBJECTS],
        "colour": [
            caption(Factors("ball", name, "beach"), Wording(background=False)) for name in COLOURS
        ],
        "background": [f"a ball {phrase}" for phrase in PLACES.values()],
    }
    drawings = draw(seed, "held-out", count)
    metrics: dict[str, float] = {"n": count}
    for kind, texts in prompts.items():
        with torch.inference_mode():
            output = model(pixel_values=normalise(drawings.pixels), **tokenize(texts))
        truth = [CHOICES[kind].index(getattr(factors, kind)) for factors in drawings.factors]
        guess = output.logits_per_image.argmax(1).numpy()
        metrics[f"{kind}_acc1"] = float((guess == np.array(truth)).mean())
    return metrics


def main(argv: list[str]) -> int:
    """Pre-train, evaluate and write one checkpoint with its ``card.json``."""
    settings = read(PretrainSettings, argv)
    folder = fresh_folder(settings.out)
    started = time.perf_counter()
    model = train(settings)
    seconds = time.perf_counter() - started
    save(model, folder)
    facts = {
        "metrics": evaluate(model, settings.seed, settings.held_out),
        "seconds": round(seconds, 1),
        "parameters": sum(p.numel() for p in model.parameters()),
    }
    libraries = ("torch", "transformers")
    write_card(folder, "cfaug.zoo.clip", settings, facts, libraries=libraries)
    return 0


if __name__ == "__main__":
    run(main)
