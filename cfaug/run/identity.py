"""The identity of a run: the name of its arm's folder, and a hash of its settings and data.

``<runs>/<experiment>/<arm>/seed=<seed>/run.json`` records the identity.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from cfaug.core.renames import old_key, old_word
from cfaug.core.world_source import is_questions, is_world
from cfaug.report.identities import CONTENT
from cfaug.run.arguments import flatten
from cfaug.run.names import check_arm, clean_name

NOT_A_RESULT = (
    "paths", "logger", "name", "arm", "dry_run", "overwrite", "part", "parts", "parallel",
    "on_error", "share_image_cache", "image_cache_mib", "extend", "threads", "data.workers",
    "trainer.devices", "trainer.num_nodes", "trainer.accelerator", "trainer.device",
    "trainer.save_every_steps", "trainer.save_every_minutes", "trainer.keep_last",
    "trainer.log_every_steps", "trainer.progress",
)  # fmt: skip
"""Settings of place, speed or frequency, which never change the result."""

REPLACED_BY_CONTENT = (
    "data.real", "data.counterfactual", "data.human_labels", "data.control_source",
    "data.edits", "data.prompts", "data.format", "model.name_or_path", "model.pretrained",
)  # fmt: skip
"""Settings whose content is hashed in their place: the same bytes elsewhere are the same run."""

NEUTRAL: Mapping[str, Any] = MappingProxyType(
    {
        "data.control": None, "data.plan": None, "data.real_captions": "all",
        "data.counterfactual_captions": "own", "data.negatives": None,
        "data.split": "group", "data.counterfactual_holdout": 0, "data.holdout": 0,
        "data.world.shortcut": "background", "data.world.domains": ["photo"],
        "data.world.colours": [
            "red", "orange", "yellow", "green", "blue", "purple", "pink", "black",
        ],
        "data.world.backgrounds": [
            "beach", "grass", "night", "snow", "brick", "water", "road", "curtain",
        ],
        "data.world.skew": 0.0, "data.world.skewed": "both", "data.world.skewed_subjects": 5,
        "data.world.ve_photos": 3000, "data.world.ve_test_photos": 300,
        "data.world.vqa_pairs": 3000, "data.world.vqa_test_pairs": 150,
        "model.geometry": None, "optim.decay_rule": "matrices", "optim.layer_decay": None,
        "optim.warmup_ratio": None, "trainer.accumulate_grad_batches": 1,
        "trainer.micro_batch_size": None, "trainer.early_stopping": None,
        "trainer.ema_decay": None,
    }
)  # fmt: skip
"""Settings that are left out at these values, which change nothing, so that a run from before a
setting existed is still the same run."""

LENGTH = ("trainer.max_steps", "trainer.max_epochs", "trainer.early_stopping")
"""Settings in which a run may differ from its extension."""

EXTENDED = "extended_from"
"""Key of an identity: the steps after which a run was extended, each time."""

SHORT = {"data", "trainer", "optim"}
"""Groups left out of a slug, as in ``cf_ratio=0.6``."""


def _is_under(key: str, names: Sequence[str]) -> bool:
    return any(key == name or key.startswith(name + ".") for name in names)


def arm_folder(experiment: Path, overrides: Sequence[str], config: Mapping[str, Any]) -> Path:
    """Return the folder of an arm; a folder named after older names of settings keeps its name.

    Args:
        experiment: the experiment's folder, which holds those of its arms.
        overrides: the words of the command line, ``key=value``.
        config: the resolved configuration.
    """
    folder = experiment / arm_slug(overrides, config)
    typed = [old_word(word, "train") for word in overrides]
    former = [
        experiment / arm_slug(overrides, config, named=str),
        experiment / arm_slug(typed, config, named=lambda key: old_key(key, "train")),
    ]
    return next((one for one in (folder, *former) if one.exists()), folder)


def arm_slug(
    overrides: Sequence[str],
    config: Mapping[str, Any],
    named: Callable[[str], str] = lambda key: "" if _is_under(key, ["hydra"]) else key,
) -> str:
    """Name the arm after every override that changes the result.

    Args:
        overrides: the words of the command line, ``key=value``.
        config: the resolved configuration.
        named: a function that returns the name of a setting in the slug.

    >>> arm_slug(["data.cf_ratio=.6", "seed=107"], {"data": {"cf_ratio": 0.6}, "arm": None})
    'cf_ratio=0.6'
    >>> arm_slug(["seed=1", "data.workers=2"], {"data": {"workers": 2}, "arm": None})
    'default'

    Raises:
        UserError: for an ``arm`` from which no folder name can be made.
    """
    keys = [override.split("=", 1)[0].lstrip("+~") for override in overrides]
    if config.get("arm") is not None:
        check_arm(config["arm"])
        if "arm" in keys:
            return clean_name(config["arm"])
    flat = flatten(config)
    pieces = {}
    for key, override in zip(keys, overrides, strict=True):
        if key in {"seed", "experiment", "scale", "task"} or _is_under(key, NOT_A_RESULT):
            continue
        if not named(key):
            continue
        head, _, tail = named(key).partition(".")
        name = tail if head in SHORT and tail not in {"", "seed"} else named(key)
        value = flat.get(key, override.partition("=")[2])
        pieces[name] = Path(str(value)).name if key in REPLACED_BY_CONTENT else value
    parts = [str(config["arm"])] if config.get("arm") else []
    parts += [f"{name}={value}" for name, value in sorted(pieces.items())]
    return clean_name(",".join(parts) or "default")


def identity(config: Mapping[str, Any], content: Mapping[str, str]) -> dict[str, Any]:
    """Return the content of ``config_hash``: settings that change the result, and hashes of data.

    Args:
        config: the resolved configuration.
        content: {name: hash} of each index and of the initial weights.
    """
    left_out = (*NOT_A_RESULT, *REPLACED_BY_CONTENT)
    settings = {
        k: without_module(v) if k.rpartition(".")[2] == "_target_" else v
        for k, v in flatten(config).items()
        if not _is_under(k, left_out) and not (k in NEUTRAL and v == NEUTRAL[k])
    }
    return {**settings, **_content(content)}


def without_module(target: str) -> str:
    """Return a class of ours without its module, so that a run is the same after a class moved.

    >>> without_module("cfaug.train.settings.LossSettings"), without_module("mine.losses.Loss")
    ('cfaug.LossSettings', 'mine.losses.Loss')
    """
    return f"cfaug.{target.rpartition('.')[2]}" if target.startswith("cfaug.") else target


def _content(hashes: Mapping[str, str]) -> dict[str, str]:
    return {f"content.{name}": value for name, value in hashes.items()}


def older_content(hashes: Mapping[str, str]) -> dict[str, str]:
    """Return the part of an identity that differs by an older rule.

    Args:
        hashes: {name of an index: its hash by the older rule}, named as for ``identity``.
    """
    return _content(hashes)


def what_follows_the_seed(written: Mapping[str, str], data: Mapping[str, Any]) -> dict[str, str]:
    """Return the settings that differ between the seeds of one arm, as they are written.

    Args:
        written: {dotted name of a setting: its value as written, ``${alternate:${seed},[a,b]}``}.
        data: the node ``data``; a world without a seed of its own is drawn anew for every seed.
    """
    found = {key: rule for key, rule in written.items() if not _is_under(key, NOT_A_RESULT)}
    world = data.get("world")
    if isinstance(world, Mapping) and world.get("seed") is None:
        for key in CONTENT:
            name = data.get(key.removeprefix("data."))
            if isinstance(name, str) and (is_world(name) or is_questions(name)):
                found.setdefault(key, name)
    return found


def config_hash(what: Mapping[str, Any]) -> str:
    """Return the sha256 of an identity, independent of the order of its keys."""
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()
