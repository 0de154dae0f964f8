"""Runs of the paper's tables that were never trained: folders with made-up numbers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from cfaug.report.items import Items, write_items
from cfaug.report.results import Result, append_results
from cfaug.stats.ranking import SCORES

SEEDS = (107, 108, 109, 110, 111)
RETRIEVAL = tuple(f"{way}_R@{k}" for way in ("image_to_text", "text_to_image") for k in (1, 5, 10))
TASKS = ("", "_photo", "_drawing", "_solids", "_colour", "_background")
CLASSIFICATION = tuple(f"shapescapes_ood{task}_classification" for task in TASKS)
MIXTURES = {  # level, train, counterfactual, steps
    "before": (0.02, 480, 0, 0),
    "real": (0.35, 480, 0, 80),
    "base": (0.36, 480, 240, 80),
    "medium": (0.55, 1200, 720, 190),
    "all": (0.57, 1440, 960, 230),
}
CONTROLS = {"real_as_medium": (0.4, 1200, 0, 190), "real_as_all": (0.42, 1440, 0, 230)}


def put(
    root: Path, run: str, level: float, cells, *, counts=None, steps=0, seeds=SEEDS, spread=0.01
) -> None:
    """Write the seeds of one arm; ``counts=None`` is a checkpoint that was only evaluated."""
    experiment, arm = run.split("/")
    rng = np.random.default_rng(sum(map(ord, run)))
    for seed in seeds:
        folder = root / run / f"seed={seed}"
        folder.mkdir(parents=True, exist_ok=True)
        if counts is not None:
            record = {
                "state": "done", "experiment": experiment, "arm": arm, "seed": seed,
                "steps": steps, "counts": counts, "identity": {"data.world.style": "fog"},
            }  # fmt: skip
            (folder / "run.json").write_text(json.dumps(record))
        rows = [
            Result(f"{run}/seed={seed}", arm, seed, benchmark, metric,
                   float(np.clip(level + rng.normal(0, spread), 0, 1)), 560,
                   f"{run} {seed}")
            for benchmark, metric in cells
        ]  # fmt: skip
        append_results(folder / "results.jsonl", rows)


def mixtures(root: Path, **settings) -> None:
    """Write the runs of Tables 3, 4, 6, 11 and 12."""
    cells = [
        (benchmark, metric)
        for benchmark in ("shapescapes_ood_retrieval", "shapescapes_id_retrieval")
        for metric in RETRIEVAL
    ]
    cells += [(benchmark, "acc1") for benchmark in CLASSIFICATION]
    runs = {f"coco_cf_3/{arm}": plan for arm, plan in MIXTURES.items()}
    runs |= {f"coco_cf_3/{arm}": plan for arm, plan in CONTROLS.items()}
    runs["coco_cf_11/human_validated"] = (0.5, 1182, 702, 190)
    for run, (level, train, cf, steps) in runs.items():
        counts = {"train": train, "counterfactual": cf, "real": train - cf}
        put(root, run, level, cells, counts=counts, steps=steps, **settings)
        if cf:
            for folder in (root / run).iterdir():
                frequency = dict(zip(CLASSIFICATION, (600, 600, 600, 390, 0, 0), strict=True))
                text = json.dumps({"pairs": 600, "frequency": frequency})
                (folder / "label_frequency.json").write_text(text)


def models(root: Path) -> None:
    """Write the runs of Table 5."""
    cells = [("shapescapes_cf_heldout_retrieval", metric) for metric in RETRIEVAL]
    for model in ("clip", "bridgetower", "flava"):
        for arm, level, steps in (
            ("before", 0.02, 0),
            ("real", 0.3, 80),
            ("counterfactual", 0.5, 110),
        ):
            counts = {"train": 480, "counterfactual": 480 * (arm == "counterfactual")}
            put(root, f"coco_cf_5/{model}_{arm}", level, cells, counts=counts, steps=steps)


def checkpoints(root: Path) -> None:
    """Write what Tables 2 and 13 and Figure 3 are made of."""
    levels = {"real": 0.6, "cf": 0.3, "cf_validated": 0.45}
    for model in ("clip", "bridgetower", "flava"):
        for name, level in levels.items():
            cells = [(f"shapescapes_{name}_retrieval", metric) for metric in RETRIEVAL]
            put(root, f"weights/zoo-{model}-0,world.style=drawing", level, cells)
    rng = np.random.default_rng(0)
    for model in ("clip", "bridgetower-itm", "vilt"):
        folder = root / f"weights/zoo-{model}-0,world.style=drawing/seed=107"
        folder.mkdir(parents=True, exist_ok=True)
        means = {"r": 2.0, "c": 0.5}
        columns = {
            name: rng.normal(means[kind] * (at == 0), size=40)
            for kind, names in SCORES.items()
            for at, name in enumerate(names)
        }
        pairs = [f"p{i}" for i in range(40)]
        columns |= {"item": pairs, "cluster": pairs, "kind": ["logit"] * 40}
        write_items(folder, Items("shapescapes_cf_matching", "w" * 16, "d" * 16, columns))


def sharing(root: Path) -> None:
    """Write what ``benchmarks/sharing.py`` does."""
    from PIL import Image

    folder = root / "sharing"
    folder.mkdir(parents=True)
    arm = {
        "name": "same noise <p = 0>",
        "target": 1.0,
        "every": 0.9,
        "direction": 0.8,
        "outside": 8.9,
    }
    (folder / "sharing.json").write_text(json.dumps({"pairs": 20, "model": "zoo", "arms": [arm]}))
    Image.new("RGB", (8, 8)).save(folder / "sharing.png")


def everything(root: Path) -> None:
    """Write all of it."""
    mixtures(root)
    models(root)
    checkpoints(root)
    sharing(root)
