"""The identity of a run: a hash of its settings and data.

``<runs>/<experiment>/<arm>/seed=<seed>/run.json`` records the identity.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from cfaug.core.annotations import without_result
from cfaug.core.worlds import is_questions, is_world
from cfaug.data.mixture.settings import DataSettings
from cfaug.planning.training import TrainSettings
from cfaug.report.arms import CONTENT
from cfaug.settings.arguments import flatten
from cfaug.settings.unread import is_under
from cfaug.train.settings import TrainerSettings

WATCHING = frozenset(
    f"lightning.pytorch.callbacks.{name}"
    for name in (
        "DeviceStatsMonitor", "LearningRateMonitor", "ModelCheckpoint", "ModelSummary",
        "OnExceptionCheckpoint", "RichModelSummary", "RichProgressBar", "ThroughputMonitor",
        "TQDMProgressBar",
    )
)  # fmt: skip
"""Callbacks of Lightning that never change weights or stop a run; all others may."""
REPLACED_BY_CONTENT = (
    "data.real", "data.counterfactual", "data.human_labels", "data.control_source",
    "data.edits", "data.prompts", "data.format", "model.weights", "declared",
)  # fmt: skip
"""Settings whose content is hashed in their place: the same bytes elsewhere are the same run."""
LENGTH = ("trainer.max_steps", "trainer.max_epochs", "trainer.early_stopping")
"""Settings in which a run may differ from its extension."""
EXTENDED = "extended_from"
"""Key of an identity: the steps after which a run was extended, each time."""


@cache
def not_a_result() -> tuple[str, ...]:
    """Return the settings of a run that never change its result (``NO_RESULT``)."""
    nodes = {"": TrainSettings, "data.": DataSettings, "trainer.": TrainerSettings}
    return tuple(
        f"{place}{name}" for place, kind in nodes.items() for name in sorted(without_result(kind))
    )


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
    left_out = (*not_a_result(), *REPLACED_BY_CONTENT, *without_effect(config))
    settings = {
        k: without_module(v) if k.rpartition(".")[2] == "_target_" else v
        for k, v in flatten(config).items()
        if not is_under(k, left_out)
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
    by_seed = {key: rule for key, rule in written.items() if not is_under(key, not_a_result())}
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
