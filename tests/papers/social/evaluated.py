"""The benchmarks on tiny sources, for ``tests/run/test_unread_properties.py``."""

from __future__ import annotations

from pathlib import Path

from cfaug.data.index import open_index
from tests.data.foils import fairface
from tests.grid_sets import every_grid_set, lay_grid_sets
from tests.run.evaluated_sources import Case, label

GRIDS = {"data": "@pilots", "grids": ["race_gender"], "labellings": ["race"], "k": 3}
SKEW = {**GRIDS, "subjects": "unseen", "templates": ["a {subject}"]}
HELD_OUT = {"subjects": "no subject was held out"}


def label_seen(path: Path) -> None:
    """Label the images of the grids."""
    index = open_index(path.parent / "grids", path.parent / "index")
    label(path, "good", sorted({index.key(row).rpartition("_")[0] for row in range(6)}))


MAKERS = {
    "grids": lambda path: lay_grid_sets(path, every_grid_set(("doctor", "nurse"))),
    "pilots": lambda path: lay_grid_sets(path, every_grid_set(("pilot", "nurse"))),
    "seen": label_seen,
    "val_faces": lambda path: fairface(path, parts=("val",)),
    "train_faces": lambda path: fairface(path, parts=("train",)),
}
CASES = {
    "skew": Case(("benchmark=skew", "benchmark.data=@grids"), SKEW, HELD_OUT),
    "skew of pools": Case(
        ("benchmark=skew", "benchmark.data=@grids", "benchmark.permute=pool"), SKEW, HELD_OUT
    ),
    "pool_skew": Case(
        ("benchmark=pool_skew", "benchmark.data=@val_faces", "benchmark.k=3"),
        {"data": "@train_faces", "labels": ["gender"], "words": ["tall"], "template": "a {word}",
         "k": 2},
    ),
    "attribute_detector": Case(
        ("benchmark=attribute_detector", "benchmark.data=@grids"),
        {**GRIDS, "attribute": "race", "template": "a {value} one", "labels": "@seen.jsonl",
         "prompts": {"male": "a man", "female": "a woman"}, "answers": {"good": "asked"},
         "grids": ["other"]},
        {"grids": "is missing"},
    ),
    "attribute_detector with labels": Case(
        ("benchmark=attribute_detector", "benchmark.data=@grids", "benchmark.labels=@seen.jsonl",
         "+benchmark.prompts={male: man, female: woman}"),
        {**GRIDS, "attribute": "race", "template": "a {value} one", "labels": None,
         "prompts": None, "answers": {"good": "left_out"}, "grids": ["other"]},
        {"grids": "is missing", "data": "not in", "attribute": "is not a value"},
    ),
}  # fmt: skip
