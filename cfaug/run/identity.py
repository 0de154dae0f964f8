"""The identity of a run: a hash of its settings and data.

``<runs>/<experiment>/<arm>/seed=<seed>/run.json`` records the identity.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from cfaug.core.worlds import is_questions, is_world
from cfaug.data.mixture.near_duplicates import DEFAULT_DISTANCE
from cfaug.report.arms import CONTENT
from cfaug.settings.arguments import flatten
from cfaug.settings.unread import is_under

NOT_A_RESULT = (
    "paths", "logger", "name", "arm", "dry_run", "overwrite", "debugging", "part", "parts",
    "parallel", "engine", "on_error", "share_image_cache", "image_cache_mib", "extend", "threads",
    "quiet", "verbose", "export", "data.workers", "optimized_metric", "model_name",
    "trainer.devices", "trainer.num_nodes", "trainer.accelerator", "trainer.device",
    "trainer.save_every_steps", "trainer.save_every_minutes", "trainer.keep_last",
    "trainer.log_every_steps", "trainer.progress", "trainer.val_metrics", "trainer.profiler",
)  # fmt: skip
"""Settings of place, speed or frequency, which never change the result."""
WATCHING = frozenset(
    f"lightning.pytorch.callbacks.{name}"
    for name in (
        "DeviceStatsMonitor", "LearningRateMonitor", "ModelCheckpoint", "ModelSummary",
        "OnExceptionCheckpoint", "RichModelSummary", "RichProgressBar", "ThroughputMonitor",
        "TQDMProgressBar",
    )
)  # fmt: skip
"""Callbacks of Lightning that never change weights or stop a run; all others may."""
LEFT_OUT: Mapping[str, Any] = {
    "trainer.limit_train_batches": None,
    "trainer.overfit_batches": None,
    "trainer.gradient_checkpointing": False,
    "trainer.deterministic": False,
    "model.max_tokens": None,
    "data.fields": {},
    "data.reader": None,
    "data.near_duplicates": None,
    "data.near_distance": DEFAULT_DISTANCE,
    "model.train_logit_scale": True,
}
"""{setting: the value with which an identity lacks it}, as in runs from before there was such."""
REPLACED_BY_CONTENT = (
    "data.real", "data.counterfactual", "data.human_labels", "data.control_source",
    "data.edits", "data.prompts", "data.format", "model.weights", "declared",
)  # fmt: skip
"""Settings whose content is hashed in their place: the same bytes elsewhere are the same run."""
LENGTH = ("trainer.max_steps", "trainer.max_epochs", "trainer.early_stopping")
"""Settings in which a run may differ from its extension."""
EXTENDED = "extended_from"
"""Key of an identity: the steps after which a run was extended, each time."""


def without_effect(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the settings for parts of Lightning's that cannot change the result here."""
    trainer = config.get("trainer") or {}
    callbacks = trainer.get("callbacks") or {}
    watching = [name for name, node in callbacks.items() if node.get("_target_") in WATCHING]
    names = [f"trainer.callbacks.{name}" for name in watching]
    if len(names) == len(callbacks):
        names = ["trainer.callbacks", "callbacks"]
    if trainer.get("strategy") in (None, "auto", "ddp"):  # as trainer.devices
        names.append("trainer.strategy")
    return tuple(names)


def identity(config: Mapping[str, Any], content: Mapping[str, str]) -> dict[str, Any]:
    """Return the content of ``config_hash``: settings that change the result, and hashes of data.

    Args:
        content: {name: hash} of each index and of the initial weights.
    """
    left_out = (*NOT_A_RESULT, *REPLACED_BY_CONTENT, *without_effect(config))
    settings = {
        k: without_module(v) if k.rpartition(".")[2] == "_target_" else v
        for k, v in flatten(config).items()
        if not is_under(k, left_out) and not (k in LEFT_OUT and v == LEFT_OUT[k])
    }
    return {**settings, **{f"content.{name}": value for name, value in content.items()}}


def without_module(target: str) -> str:
    """Return a class of ours without its module, so that a run is the same after a class moved.

    >>> without_module("cfaug.train.settings.LossSettings"), without_module("mine.losses.Loss")
    ('cfaug.LossSettings', 'mine.losses.Loss')
    """
    return f"cfaug.{target.rpartition('.')[2]}" if target.startswith("cfaug.") else target


def what_follows_the_seed(written: Mapping[str, str], data: Mapping[str, Any]) -> dict[str, str]:
    """Return the settings that differ between the seeds of one arm, as they are written.

    Args:
        written: {dotted name of a setting: its value as written, ``${alternate:${seed},[a,b]}``}.
        data: the node ``data``; a world without a seed of its own is drawn anew for every seed.
    """
    by_seed = {key: rule for key, rule in written.items() if not is_under(key, NOT_A_RESULT)}
    world = data.get("world")
    if isinstance(world, Mapping) and world.get("seed") is None:
        for key in CONTENT:
            name = data.get(key.removeprefix("data."))
            if isinstance(name, str) and (is_world(name) or is_questions(name)):
                by_seed.setdefault(key, name)
    return by_seed


def config_hash(content: Mapping[str, Any]) -> str:
    """Return the sha256 of an identity, independent of the order of its keys."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
