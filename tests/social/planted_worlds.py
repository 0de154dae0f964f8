"""Models that were trained in worlds with a planted skew, as far as their answers show it."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path

import numpy as np
import yaml

from cfaug.report.items import Items, write_items
from cfaug.shapescapes.settings import SKEWED, SUBJECTS, WorldSettings
from cfaug.shapescapes.world import World
from cfaug.social.skew import RankedSubject, Skew, item_columns, measure

COLOURS, BACKGROUNDS = ("red", "yellow", "blue", "purple"), ("beach", "grass", "snow")
PLAIN = WorldSettings(shortcut="none", colours=COLOURS, backgrounds=BACKGROUNDS)
EVERY = list(product(COLOURS, BACKGROUNDS))
SETS = 8
HOW = Skew(permutations=99, resamples=4)


def answer(world: World, strength: float, *, shuffled: bool = False) -> dict:
    """Return the items of a model that prefers some labels of every subject, and the planted ones.

    Args:
        world: the world with the planted labels.
        strength: the strength of the preference for a planted label.
        shuffled: whether labels are independent of the pictures.
    """
    rng = np.random.default_rng([world.settings.known_seed(), int(100 * strength), shuffled])
    own = rng.normal(0, 0.6, len(EVERY))
    rows = []
    for subject in SUBJECTS:
        wanted = world.planted.get(subject)
        planted = np.array([
            wanted is not None and wanted.items() <= {"colour": c, "background": b}.items()
            for c, b in EVERY
        ])  # fmt: skip
        scores = own + 3 * strength * planted + rng.normal(0, 1, (SETS, len(EVERY)))
        scores += rng.normal(0, 0.5, (SETS, 1))
        if shuffled:
            scores = rng.permuted(scores, axis=1)
        order = np.argsort(-scores.ravel())
        sets = order // len(EVERY)
        ranked = RankedSubject(
            "colour_background", len(EVERY), subject, "shape", order, sets,
            scores.ravel()[order], [f"{subject}-{at}" for at in order],
        )  # fmt: skip
        for names in SKEWED.values():
            rows += measure(ranked, "_".join(names), *_label(names), HOW)
    return item_columns(rows)


def _label(names: tuple[str, ...]) -> tuple[np.ndarray, list[str]]:
    values = {"colour": COLOURS, "background": BACKGROUNDS}
    labels = [" ".join(one) for one in product(*(values[name] for name in names))]
    shown = [dict(zip(values, one, strict=True)) for one in EVERY]
    codes = [labels.index(" ".join(one[name] for name in names)) for one in shown]
    return np.tile(codes, SETS), labels


def lay_world_run(
    root: Path,
    arm: str,
    settings: WorldSettings,
    seed: int,
    *,
    steps: int = 60,
    effect: float | None = None,
) -> Path:
    """Write a finished run with its answers to the oracle's sets; without a skew to shuffled ones.

    Args:
        root: the folder of all runs.
        arm: the arm's folder.
        settings: the settings of the run's world; the run's data seed is the world's.
        seed: the seed of the run.
        steps: the number of steps of the run.
        effect: the effect of the planted labels; ``None`` is the world's strength.
    """
    folder = root / "social" / arm / f"seed={seed}"
    folder.mkdir(parents=True)
    record = {"state": "done", "seed": seed, "data_seed": seed + 1, "steps": steps}
    (folder / "run.json").write_text(json.dumps(record))
    world = {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(settings).items()}
    node = {"_target_": "cfaug.shapescapes.WorldSettings", **world}
    (folder / "config.yaml").write_text(yaml.safe_dump({"data": {"world": node}}))
    planted = World(replace(settings, seed=seed + 1))
    strength = settings.skew if effect is None else effect
    for shuffled in (False, True)[: 1 + (settings.skew == 0)]:
        name = "shuffled_skew" if shuffled else "oracle_skew"
        columns = answer(planted, strength, shuffled=shuffled)
        write_items(folder, Items(name, "w", "d", columns))
    return folder
