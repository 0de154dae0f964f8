"""The identity of a run: a hash of its settings and data; and which names folders may have.

``<runs>/<experiment>/<arm>/seed=<seed>/run.json`` records the identity.
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cfaug.core.errors import UserError
from cfaug.core.files import check_place, read_yaml
from cfaug.core.worlds import is_questions, is_world
from cfaug.data.mixture.near_duplicates import DEFAULT_DISTANCE
from cfaug.report.arms import CONTENT
from cfaug.report.checkpoint_tables import WEIGHTS
from cfaug.run.command_line.arguments import flatten

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


def is_under(key: str, names: Sequence[str]) -> bool:
    """Return whether a setting is one of those named, or lies in one of them."""
    return any(key == name or key.startswith(name + ".") for name in names)


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


# Folder names of experiments, arms and checkpoints; different names get different folders.

LONGEST = 100
"""Most characters of a folder's name; a longer one ends in a hash."""
MOST_BYTES = 255
"""Most bytes of a name in file systems; a letter may have four bytes."""
ALPHANUMERIC = "LMN"
"""Unicode's letters, marks (the vowels of many alphabets) and numbers."""
DEBUG = ".debug"
"""The folder of debug runs among the others."""
TAKEN = {
    WEIGHTS: "checkpoints that are not runs (weights=..., evaluate_initial=true)",
    "tables": "tables of papers (cfaug table)",
    "annotation": "pages and answers of annotators (cfaug annotate)",
    DEBUG: "runs of debug=...",
}
"""Folders beside the experiments, with their content."""


def clean_name(name: str, extra: str = "=,+") -> str:
    """Return a name that a folder may have, of at most 100 characters.

    Letters and digits of every alphabet are kept, in Unicode's form NFC; everything else becomes a
    hyphen.

    Args:
        extra: characters kept beside letters, digits, ``_``, ``.`` and ``-``.

    >>> clean_name("日本 (ünï)"), clean_name("../a b")
    ('日本-ünï', 'a-b')
    """
    kept = f"_.-{extra}"
    signs = (
        sign if sign in kept or unicodedata.category(sign)[0] in ALPHANUMERIC else "\0"
        for sign in unicodedata.normalize("NFC", name)
    )
    name = re.sub("\0+", "-", "".join(signs)).strip("-.") or "default"
    if len(name) <= LONGEST and len(name.encode()) <= MOST_BYTES:
        return name
    ending = f"-{hashlib.sha256(name.encode()).hexdigest()[:12]}"
    start = name[: LONGEST - len(ending)].encode()[: MOST_BYTES - len(ending)]
    return start.decode(errors="ignore") + ending


def check_arm(arm: str) -> None:
    """Refuse an arm's name from which no folder name can be made."""
    if clean_name(arm) == clean_name("") != arm:
        raise UserError(
            f"arm={arm!r} is invalid: a name has letters or digits; arm=null names the arm after "
            "its settings"
        )


def check_owner(folder: Path, arm: str | None) -> None:
    """Refuse an arm's folder that has runs of an arm with another name, such as "a b" for "a-b".

    A renamed folder belongs to the arm with its new name.

    Args:
        arm: the arm's name, if given by hand; ``None`` for an arm named after its settings.
    """
    for file in sorted(folder.glob("seed=*/config.yaml"))[:1]:
        try:
            content = read_yaml(file)
        except UserError:
            continue
        there = content.get("arm") if isinstance(content, dict) else None
        if arm is None or not isinstance(there, str) or clean_name(there) != folder.name:
            continue
        if unicodedata.normalize("NFC", there) != unicodedata.normalize("NFC", arm):
            raise UserError(
                f"arm={arm!r} would share {folder} with arm={there!r}: choose another name"
            )


def runs_folder(name: str) -> Path:
    """Return the folder of all runs, ``paths.runs``, which need not exist yet."""
    check_place(name, "paths.runs")
    return Path(name)


def experiment_name(name: str) -> str:
    """Return the name of an experiment's folder: its name, normalised as Unicode NFC."""
    name = unicodedata.normalize("NFC", name)
    if name in TAKEN:
        raise UserError(f"name={name} is taken: it holds {TAKEN[name]}. Choose another")
    if "/" in name:
        folder, _, last = name.rpartition("/")
        raise UserError(
            f"name={name} is invalid: a name is one folder. name={last} and paths.runs={folder} "
            "(or a folder in it) put the runs elsewhere"
        )
    if not name.strip() or name in {".", ".."} or not name.isprintable():
        raise UserError(f"name={name!r} is invalid: a folder cannot have this name")
    size = len(name.encode())
    if size > MOST_BYTES:
        raise UserError(f"name={name[:20]}... has {size} bytes: choose one of {MOST_BYTES} at most")
    return name
