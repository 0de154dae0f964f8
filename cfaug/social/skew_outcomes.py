"""The numbers of a skew benchmark, from its items."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from cfaug.core.types import Better, Outcome

MEANS: dict[str, tuple[Better, str]] = {
    "max_skew": ("lower", "nats"),
    "max_skew_excess": ("lower", "nats"),
    "rank_gap": ("lower", "places"),
    "rank_gap_excess": ("lower", "places"),
    "score_gap": ("lower", "cosine"),
    "ndkl": ("lower", "nats"),
    "ndkl_excess": ("lower", "nats"),
    "min_skew": ("higher", "nats"),
    "bias": ("lower", "share"),
}
"""Columns whose means over subjects are outcomes, their better direction (0 is best), and units."""


def outcomes(benchmark: str, items: Mapping[str, Any]) -> list[Outcome]:
    """Return the mean over subjects of each metric, for every grid, labelling and K.

    Args:
        benchmark: the benchmark's name.
        items: the columns that ``cfaug.social.skew`` describes.
    """
    asked: dict[tuple[str, str, int], list[int]] = {}
    every = zip(items["grid"], items["labelling"], items["k"], strict=True)
    for at, question in enumerate(every):
        asked.setdefault(question, []).append(at)
    found = []
    for (grid, labelling, k), places in asked.items():
        by = {"grid": grid, "labelling": labelling, "k": str(k)}
        for metric, (better, measured_in) in MEANS.items():
            values = items[metric][places]
            values = values[~np.isnan(values)]
            if len(values):
                mean = float(values.mean())
                found.append(Outcome(benchmark, metric, mean, len(values), better, measured_in, by))
    return found
