"""Two arms whose answers have a known spread over seeds and items."""

from __future__ import annotations

import numpy as np

from cfaug.stats.seeds_and_items import OneTest


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def layout(seed=0.0, item=0.0, rest=0.0, shape=(5, 80), draw=0) -> np.ndarray:
    """Differences with these standard deviations of seeds, items and their interaction."""
    at = rng(draw)
    return (
        0.3 + at.normal(0, seed, (shape[0], 1)) + at.normal(0, item, (1, shape[1]))
        + at.normal(0, rest, shape)
    )  # fmt: skip


def crossed(values: np.ndarray, clusters=None) -> OneTest:
    names = range(values.shape[1]) if clusters is None else clusters
    return OneTest(values, np.zeros_like(values), names)
