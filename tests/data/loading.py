"""Loaders, what they give, and what the plan says they should."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import torch

from cfaug.core.pixels import ImageTransform, decode_image
from cfaug.data.index import Index
from cfaug.data.mixture.loader import Examples, TrainingBatches, make_loader
from cfaug.data.mixture.mixture import plan_mixture
from cfaug.data.mixture.order import epoch_order
from cfaug.data.mixture.records import Mixture
from cfaug.data.mixture.settings import RatioData
from tests.data.making import noise_image

TRANSFORM = ImageTransform(8, (0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
Seen = list[tuple[list[str], int]]


def mixture_of(indexes: tuple[Index, Index], ratio: float = 0.5, **arguments: Any) -> Mixture:
    arguments = {"size": None, "seed": 1} | arguments
    return plan_mixture(*indexes, cf_ratio=ratio, **arguments)


def loader(
    indexes: tuple[Index, Index],
    mixture: Mixture,
    *,
    workers: int = 0,
    start: int = 0,
    steps: int = 9,
    rank: int = 0,
    world: int = 1,
    rows: int = 200,
    **data: Any,
) -> torch.utils.data.DataLoader:
    node = RatioData(None, None, **({"batch_size": 16} | data))
    shares = TrainingBatches(
        mixture, node, seed=7, data_seed=1, start_step=start, total_steps=steps, rank=rank,
        world=world,
    )  # fmt: skip
    return make_loader(Examples(indexes, TRANSFORM, rows), shares, workers)


@cache
def pixels_of(text: str) -> np.ndarray:
    """Return the image that belongs to a text of ``indexes``, (3, 8, 8)."""
    number = int(text.split()[1])
    data = noise_image(number)
    if text.startswith("scene"):
        data = noise_image(1000 * number + int(text[-1]))
    return np.asarray(decode_image(data, text)).transpose(2, 0, 1)


def seen(batches: Any) -> Seen:
    """Return the texts and global size of each batch, after checking that pixels fit texts."""
    contents = []
    for batch in batches:
        assert batch["pixels"].dtype == torch.uint8
        assert batch["pixels"].shape == (len(batch["texts"]), 3, 8, 8)
        for pixels, text in zip(batch["pixels"], batch["texts"], strict=True):
            np.testing.assert_array_equal(pixels.numpy(), pixels_of(text))
        contents.append((batch["texts"], batch["global_size"]))
    return contents


def planned(
    indexes: tuple[Index, Index], mixture: Mixture, steps: int, batch_size: int, **data: Any
) -> Seen:
    """Return what ``seen`` should be, from the plan alone."""
    batches: Seen = []
    epoch = 0
    while len(batches) < steps:
        order = epoch_order(
            mixture, data_seed=1, seed=7, epoch=epoch, batch_size=batch_size, **data
        )
        for at in range(0, len(order), batch_size):
            rows = mixture.train[order[at : at + batch_size]].tolist()
            batches.append(([indexes[source].text(row) for source, row in rows], len(rows)))
        epoch += 1
    return batches[:steps]
