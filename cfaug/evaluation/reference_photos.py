"""The photographs of counterfactual pairs' captions, and random photographs beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cfaug.core.errors import UserError
from cfaug.core.rng import derive
from cfaug.data.mixture.caption_matching import normalise

if TYPE_CHECKING:
    from cfaug.data.index import Index


def find_anchors(pairs: Index, first: np.ndarray, real: Index) -> np.ndarray:
    """Return the row of ``real`` that each pair's original caption came from, -1 for none."""
    within: dict[tuple[int, str], int] = {}
    anywhere: dict[str, int] = {}
    for row in range(len(real)):
        text = normalise(real.text(row))
        within.setdefault((int(real.groups[row]), text), row)
        anywhere[text] = -1 if text in anywhere else row
    found = []
    for row in first.tolist():
        text = normalise(pairs.text(row))
        found.append(within.get((int(pairs.groups[row]), text), anywhere.get(text, -1)))
    return np.array(found)


def draw_random_rows(
    pairs: Index, first: np.ndarray, real: Index, anchor: np.ndarray, seed: int
) -> np.ndarray:
    """Draw another photograph's row for each anchored pair, keyed only by the pair's key."""
    images = np.asarray(real.images)
    if len(np.unique(images)) < 2:
        raise UserError(f"{real.source} has one image; a random pair needs another")
    found = np.full(len(first), -1)
    for i, (row, own) in enumerate(zip(first.tolist(), anchor.tolist(), strict=True)):
        if own < 0:
            continue
        tries = 0
        while found[i] < 0 or images[found[i]] == images[own]:
            found[i] = derive(seed, "matching", pairs.key(row), tries) % len(images)
            tries += 1
    return found
