"""The numbers of a stress test, from its items."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from cfaug.core.types import ORIGINAL, RECONSTRUCTION, Better, Outcome

Part = Literal["kind", "class"]

MEANS: dict[str, Better] = {
    "acc1": "higher", "acc5": "higher", "photo_acc1": "higher", "photo_acc5": "higher",
    "paired_drop1": "lower", "paired_drop5": "lower", "net_drop1": "lower", "net_drop5": "lower",
    "p": "higher", "delta_p": "lower", "p_drop": "lower",
}  # fmt: skip
"""Columns of the items whose means are outcomes, and their better direction."""

ACCURACY = ("acc1", "acc5")

FIRST = ("acc1", "drop1", "paired_drop1", "net_drop1", "delta_p")
"""Metrics of whole sets that are reported first, as in a one-line summary."""


def outcomes(benchmark: str, items: Mapping[str, Any], parts: Sequence[Part]) -> list[Outcome]:
    """Return the means of each set and its parts, and the paper's unpaired drops.

    ``drop1`` and ``drop5`` are LANCE's equation 3 with the opposite sign, so that a fall is
    positive: accuracy on the photos that have an edit, minus accuracy on the images of a set. They
    compare means of two sets, so they are not means over items.

    Args:
        benchmark: the benchmark's name.
        items: the columns that ``cfaug.lance.stress`` describes.
        parts: columns by which sets other than photos and reconstructions are also reported.
    """
    columns = {name: np.asarray(values) for name, values in items.items()}
    sets = list(dict.fromkeys(columns["set"].tolist()))
    edits = [name for name in sets if name not in (ORIGINAL, RECONSTRUCTION)]
    reference = {"set": ORIGINAL, "photos": "edited"}
    found: list[Outcome] = []
    for name in (one for one in (ORIGINAL, RECONSTRUCTION) if one in sets):
        found += _means(benchmark, columns, {"set": name})
        found += _means(benchmark, columns, {"set": name, "photos": "edited"})
        if name == RECONSTRUCTION:
            found += _drops(benchmark, columns, reference, {**reference, "set": name})
    for name in edits:
        found += _means(benchmark, columns, {"set": name})
        found += _drops(benchmark, columns, reference, {"set": name})
        for part in parts:
            chosen = columns["set"] == name
            for value in sorted(set(columns[part][chosen].tolist())):
                found += _means(benchmark, columns, {"set": name, part: value})
    return sorted(found, key=lambda one: (len(one.by) > 1, one.metric not in FIRST))


def _mask(columns: Mapping[str, np.ndarray], by: Mapping[str, str]) -> np.ndarray:
    chosen = np.ones(len(columns["set"]), bool)
    for column, value in by.items():
        chosen &= columns[column] == value
    return chosen


def _means(
    benchmark: str, columns: Mapping[str, np.ndarray], by: Mapping[str, str]
) -> Iterator[Outcome]:
    chosen = _mask(columns, by)
    for metric, better in MEANS.items():
        if metric not in columns:
            continue
        values = columns[metric][chosen]
        values = values[~np.isnan(values)]
        if len(values):
            mean = float(values.mean())
            yield Outcome(benchmark, metric, mean, len(values), better=better, by=by)


def _drops(
    benchmark: str,
    columns: Mapping[str, np.ndarray],
    reference: Mapping[str, str],
    by: Mapping[str, str],
) -> Iterator[Outcome]:
    before, after = _mask(columns, reference), _mask(columns, by)
    for metric in ACCURACY:
        if metric in columns and after.any():
            drop = float(columns[metric][before].mean() - columns[metric][after].mean())
            name = f"drop{metric.removeprefix('acc')}"
            yield Outcome(benchmark, name, drop, int(after.sum()), better="lower", by=by)
