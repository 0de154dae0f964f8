"""Teach a tiny fusion encoder ShapeScapes-VE: does a drawing entail a hypothesis?

``python -m zoo entailment out=DIR``. It continues from a trained matcher or from towers, as
entailers of real photos do. Drawings are mirrored and shifted by up to two pixels. Rebuilding with
the seed, threads and versions in ``card.json`` gives the same metrics.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from cfaug.core.annotations import OneOf
from cfaug.core.protocols import Entailer
from cfaug.core.rng import derive, generator
from cfaug.core.types import ENTAILMENT
from cfaug.core.validation import check_fields
from cfaug.models.fusion import TowerEntailer
from cfaug.models.task_specs import BridgeTowerEntailment, FlavaEntailment, ViltEntailment
from cfaug.worlds.shapescapes.drawing import render
from cfaug.worlds.shapescapes.parts import PLAN, cover, photos
from cfaug.worlds.shapescapes.settings import WorldSettings
from cfaug.worlds.shapescapes.world import World
from zoo.command import DrawingSettings, fit, make_model
from zoo.model import IMAGE_SIZE
from zoo.scenes import jitter

HYPOTHESES = len(PLAN[0][1])
"""The number of hypotheses about each photo."""

KINDS = {
    "bridgetower": BridgeTowerEntailment,
    "flava": FlavaEntailment,
    "vilt": ViltEntailment,
}


@dataclass(frozen=True, kw_only=True)
class EntailmentSettings(DrawingSettings):
    """The settings of the command, given as ``name=value``.

    Attributes: those of ``DrawingSettings`` (batches are of photos), and
        kind: the architecture: vilt, bridgetower or flava.
        start: the initial encoder, a folder or ``zoo:NAME``.
    """

    kind: Annotated[str, OneOf(KINDS)] = "vilt"
    start: str = "zoo:vilt-0"
    batch_size: int = 24
    lr: float = 1e-3
    warmup: int = 50
    steps: int = 2_400
    held_out: int = 600

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True)
class EntailmentDrawings:
    """Photos of ShapeScapes-VE with their hypotheses.

    Attributes:
        pixels: the photos, uint8 (photos, 3, 32, 32).
        texts: the hypotheses, ``HYPOTHESES`` for each photo in turn.
        labels: the hypotheses' indices in ``cfaug.core.types.ENTAILMENT``.
        hidden: the factor that is covered in each hypothesis's photo, or "".
    """

    pixels: NDArray[np.uint8]
    texts: list[str]
    labels: NDArray[np.int64]
    hidden: list[str]


def draw(seed: int, part: str, count: int) -> EntailmentDrawings:
    """Draw ``count`` clean scenes with three hypotheses each."""
    settings = WorldSettings(image_size=IMAGE_SIZE, style="drawing", shortcut="none", seed=seed)
    world, name = World(settings), f"zoo-entailment-{part}"
    pixels = np.empty((count, 3, IMAGE_SIZE, IMAGE_SIZE), dtype=np.uint8)
    texts, labels, hidden = list[str](), list[int](), list[str]()
    for index, photo in enumerate(photos(world, name, count)):
        scene = world.scene(photo.factors, name, index)
        drawn = render(scene, IMAGE_SIZE, settings.drawing_style())
        pixels[index] = cover(drawn, photo.hidden).transpose(2, 0, 1)
        for hypothesis in photo.hypotheses:
            texts.append(hypothesis.text)
            labels.append(ENTAILMENT.index(hypothesis.label))
            hidden.append(photo.hidden or "")
    return EntailmentDrawings(pixels, texts, np.array(labels), hidden)


def train(settings: EntailmentSettings) -> Any:
    """Train an entailer by the cross-entropy of its answers, with progress on stderr."""
    torch.manual_seed(derive(settings.seed, "zoo", "weights") % 2**63)
    entailer = KINDS[settings.kind](settings.start).load_to_train(settings.seed)
    drawings = draw(settings.seed, "train", settings.scenes)
    order = generator(settings.seed, "zoo", "order")

    def loss(step: int) -> Tensor:
        chosen = order.choice(len(drawings.pixels), settings.batch_size, replace=False)
        pixels = torch.from_numpy(jitter(drawings.pixels[chosen], order))
        rows = (chosen[:, None] * HYPOTHESES + np.arange(HYPOTHESES)).ravel()
        answers = _answer(entailer, pixels, [drawings.texts[row] for row in rows])
        return F.nll_loss(answers.log(), torch.from_numpy(drawings.labels[rows]))

    entailer.train()
    fit(entailer, loss, settings, settings.steps)
    return entailer


def _answer(entailer: Any, pixels: Tensor, texts: list[str]) -> Tensor:
    """Return probabilities (n * HYPOTHESES, 3); images are encoded once if the model allows it."""
    if isinstance(entailer, TowerEntailer):
        states = entailer.encode_images(pixels)
        return entailer.entail_encoded(states.repeat_interleave(HYPOTHESES, dim=0), texts)
    tensor: Tensor = entailer.entail(
        [""] * len(texts), texts, pixels.repeat_interleave(HYPOTHESES, 0)
    )
    return tensor


def evaluate(folder: Path, settings: EntailmentSettings) -> dict[str, float]:
    """Return the accuracy overall, by label and by covered factor."""
    entailer = KINDS[settings.kind](str(folder)).load(Entailer)
    drawings = draw(settings.seed, "held-out", settings.held_out)
    with torch.inference_mode():
        answers = _answer(entailer, torch.from_numpy(drawings.pixels), drawings.texts)
    right = answers.argmax(1).numpy() == drawings.labels
    metrics = {"n": float(len(right)), "accuracy": float(right.mean())}
    for number, label in enumerate(ENTAILMENT):
        metrics[f"{label}_accuracy"] = float(right[drawings.labels == number].mean())
    hidden = np.array(drawings.hidden)
    for name in ("", "colour", "background"):
        metrics[f"{name or 'nothing'}_covered_accuracy"] = float(right[hidden == name].mean())
    return metrics


def _save(entailer: Any, folder: Path) -> None:
    entailer.eval().half().save(folder)


main = partial(make_model, "entailment", EntailmentSettings, train, _save, evaluate)
