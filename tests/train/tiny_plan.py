"""A training run small enough to be repeated: batches drawn from their step, a tiny model."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from cfaug.core.rng import generator
from cfaug.models.specs import HFClip
from cfaug.train.settings import LoggerSettings, OptimSettings, TrainerSettings
from tests.models import tiny

EPOCH, STEPS = 7, 40


def batch(number, size, rank=0, world=1, *, wrong_images=False):
    """Batch ``number``, or the share of it that ``rank`` has; maybe with images without a text."""
    draw = generator(0, "batch", number)
    texts = [" ".join(draw.choice(tiny.WORDS, 4)) for _ in range(size)]
    pixels = torch.from_numpy(draw.integers(0, 256, (size, 3, tiny.SIZE, tiny.SIZE), dtype="uint8"))
    mine = np.array_split(np.arange(size), world)[rank]
    # Sets of four: two captions of one image, then two captions of another.
    numbers = {"images": torch.arange(size) // 2, "sets": torch.arange(size) // 4}
    # Some texts without an image, as many for a batch of one example as for half a process.
    numbers["negatives"] = [" ".join(draw.choice(tiny.WORDS, 4)) for _ in range((size + 1) // 2)]
    numbers["negative_owners"] = torch.arange(len(numbers["negatives"])) * 2 % size
    # As many images without a text, of which a process has its share.
    wrong = torch.from_numpy(
        generator(1, "batch", number).integers(0, 256, (2, 3, tiny.SIZE, tiny.SIZE), dtype="uint8")
    )
    share = np.array_split(np.arange(len(wrong)), world)[rank]
    shown = {"negative_pixels": wrong[share], "negative_image_owners": torch.tensor([size // 2, 0])}
    # Every other set has a neutral prompt.
    numbers["neutral_texts"] = [" ".join(draw.choice(tiny.WORDS, 2)) for _ in range(2)]
    place = numbers["sets"]
    numbers["neutrals"] = torch.where(place % 2 == 0, place // 2 % 2, -1)
    return {
        "pixels": pixels[mine], "texts": [texts[i] for i in mine], "global_size": size, **numbers,
        **(shown if wrong_images else {}),
    }  # fmt: skip


@dataclass(frozen=True)
class Stream:
    """Endless batches from a first step, of sizes that come round; three draws, soon overfitted."""

    sizes: tuple[int, ...] = (16,)
    pause: float = 0.0  # seconds before a batch: leaves somebody the time to kill the run
    wrong_images: bool = False

    def __call__(self, step, rank, world):
        while True:
            time.sleep(self.pause)
            size = self.sizes[step % len(self.sizes)]
            yield batch(step % 3, size, rank, world, wrong_images=self.wrong_images)
            step += 1


def train(
    folder: Path,
    weights: Path,
    *,
    attempt=0,
    sizes=(16,),
    steps=STEPS,
    optim=None,
    loss=None,
    pause=0.0,
    spec=HFClip,
    wrong_images=False,
    logger=None,
    **given,
):
    """Train in ``folder``; return the encoder, the first step and the best weights."""
    from cfaug.train.contrastive_module import ContrastiveModule
    from cfaug.train.engine import train as train_module
    from cfaug.train.records import Plan, Steps

    folder.mkdir(parents=True, exist_ok=True)

    def validation(rank, world):
        return [batch(10**6 + i, size, rank, world) for i, size in enumerate((16, 5))]

    settings = {"max_steps": steps, "val_every_steps": 5, "progress": False, "accelerator": "cpu"}
    trainer = TrainerSettings(**{**settings, **given})
    encoder = spec(str(weights)).load()
    how = Steps(
        optim or OptimSettings(lr=3e-3, warmup=5), steps, trainer.gradient_clip, seed=3,
        parts=trainer.accumulate_grad_batches,
    )  # fmt: skip
    pieces = trainer.micro_batch_size
    done = train_module(
        ContrastiveModule(encoder, how, weighting=loss, micro_batch_size=pieces),
        Plan(
            Stream(sizes, pause, wrong_images), validation, steps_per_epoch=EPOCH, total_steps=steps
        ),
        folder=folder,
        settings=trainer,
        logger=logger or LoggerSettings(),
        attempt=attempt,
    )
    return encoder, done.start, done.best


def folder_of(place, name="run"):
    """The folder of a run in ``place``."""
    return place / name / "arm" / "seed=1"


def same_weights(first, second):
    """Whether two state dicts hold the same bits."""
    return first.keys() == second.keys() and all(torch.equal(first[k], second[k]) for k in first)


def rows(folder):
    """The rows of ``metrics.csv``."""
    import csv

    with (folder / "metrics.csv").open() as handle:
        return list(csv.DictReader(handle))
