"""Parts of Lightning's that settings name: callbacks, a strategy, a profiler, a logger.

They are made before a training begins, and those that cannot work in one are refused.
"""

from __future__ import annotations

import io
import pickle
from collections import Counter
from collections.abc import Collection, Iterable
from inspect import signature
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import (
    BaseFinetuning,
    BasePredictionWriter,
    BatchSizeFinder,
    GradientAccumulationScheduler,
    LearningRateFinder,
    ModelPruning,
    StochasticWeightAveraging,
    WeightAveraging,
)
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.profilers import Profiler
from lightning.pytorch.strategies import DDPStrategy, Strategy
from torch.nn.parallel import DistributedDataParallel

from cfaug.core.errors import UserError, say_once
from cfaug.core.known_names import refuse_unknown
from cfaug.core.outputs import begin_folder, check_begun
from cfaug.train.settings import SHARDED, Factory, TrainerSettings

COUNTING_EPOCHS = {
    StochasticWeightAveraging: "trainer.ema_decay, or wise_ft",
    GradientAccumulationScheduler: "trainer.accumulate_grad_batches",
    BaseFinetuning: "tuning=...",
    BatchSizeFinder: "data.batch_size",
    LearningRateFinder: "optim.lr",
}
"""{callback of Lightning that cannot work here: what takes its place}."""
BREAKING = {
    ModelPruning: "its masks are no part of the model that checkpoint/ is made of: prune a "
    "finished checkpoint by torch.nn.utils.prune",
    BasePredictionWriter: "nothing is predicted in a training: evaluate.py writes items",
}
"""{callback of Lightning that fails or does nothing in a training: what to do instead}."""
TRIED = frozenset(
    {
        "DeviceStatsMonitor", "EMAWeightAveraging", "EarlyStopping", "LambdaCallback",
        "LearningRateMonitor", "ModelCheckpoint", "ModelSummary", "OnExceptionCheckpoint",
        "RichModelSummary", "RichProgressBar", "SpikeDetection", "TQDMProgressBar", "Timer",
        "WeightAveraging",
    }
)  # fmt: skip
"""Callbacks of Lightning that were run here; of others a warning says that they were not."""

WRITTEN = "files of Lightning"
"""What the record of outputs calls what callbacks, profilers and loggers write in named folders."""


def make_parts(
    settings: TrainerSettings, logged: Collection[str], run: Path
) -> tuple[list[pl.Callback], Strategy | None, Profiler | None]:
    """Make the parts of Lightning's that settings ask for: callbacks, a strategy and a profiler.

    Args:
        logged: the names of the numbers that a run logs, which callbacks may monitor.
        run: the run's folder, in which parts may write.

    Raises:
        UserError: if a part cannot be made, is not of its kind, would break an exact resume,
            monitors what nobody logs, or could replace files of others in a folder that it names.
    """
    callbacks, others = [], {"trainer.strategy": Strategy, "trainer.profiler": Profiler}
    made: dict[str, Any] = {}
    for key, make in settings.passed_on.items():
        made[key] = make_part(key, make, others.get(key, pl.Callback))
        if key not in others:
            callbacks.append(made[key])
    strategy = made.get("trainer.strategy")
    if isinstance(strategy, DDPStrategy):  # it hands on what it does not know
        known = {
            **signature(DDPStrategy).parameters,
            **signature(DistributedDataParallel).parameters,
        }
        refuse_unknown(getattr(settings.strategy, "keywords", {}), list(known), "trainer.strategy.")
    if strategy is not None and type(strategy).save_checkpoint is not Strategy.save_checkpoint:
        raise UserError(f"trainer.strategy is a {type(strategy).__name__}. {SHARDED}")
    for callback in callbacks:
        _check_callback(callback)
        monitor = getattr(callback, "monitor", None)
        if monitor is not None and monitor not in logged:
            raise UserError(
                f"the callback {type(callback).__name__} has monitor={monitor}, which this run "
                f"does not log: choose {', '.join(logged)}; trainer.val_metrics=[recall@1] adds "
                "val/recall@1"
            )
    for key, part in made.items():
        if (folder := named_folder(part, run)) is not None:
            check_begun(folder, WRITTEN, f"{key}.dirpath")
    keys = Counter(callback.state_key for callback in callbacks if callback.state_dict())
    for key in (key for key, number in keys.items() if number > 1):
        raise UserError(
            f"trainer.callbacks holds {key} twice, whose states could not be told apart"
        )
    return callbacks, strategy, made.get("trainer.profiler")


def named_folder(part: object, run: Path) -> Path | None:
    """Return the folder on this machine in which a part writes, unless it is in the run's own."""
    folder = getattr(part, "dirpath", None)
    if isinstance(part, CSVLogger) and part._version is not None:  # otherwise the next free one
        folder = part.log_dir  # whose metrics.csv it deletes
    if folder is None or "://" in str(folder):
        return None
    place = Path(folder).expanduser()
    return None if place.resolve().is_relative_to(run.resolve()) else place


def begin_folders(parts: Iterable[object], run: Path) -> None:
    """Note that parts write in the folders that they name: Lightning replaces and deletes there."""
    for part in parts:
        if (folder := named_folder(part, run)) is not None:
            begin_folder(folder, WRITTEN, f"dirpath of {type(part).__name__}")


def make_part(key: str, make: Factory, kind: type) -> Any:
    """Make one part of Lightning's; ``key`` is the setting that an error names."""
    try:
        made = make()
    except Exception as error:
        raise UserError(f"{key}: {error}") from error
    if not isinstance(made, kind):
        raise UserError(f"{key} makes a {type(made).__name__}, not a {kind.__name__} of Lightning")
    return made


def logged_names(settings: TrainerSettings, validated: bool) -> list[str]:
    """Return the names of the numbers that a run logs for its callbacks.

    Args:
        validated: whether the run has a validation split.
    """
    measured = ["val/loss", *(f"val/{name}" for name in settings.val_metrics)]
    return [*(measured if validated else ()), "train/loss"]


def _check_callback(callback: pl.Callback) -> None:
    """Refuse a callback that cannot work here, or whose saved state could not be read again."""
    name = type(callback).__name__
    for kind, reason in BREAKING.items():
        if isinstance(callback, kind):
            raise UserError(f"the callback {name} does not work here: {reason}")
    if type(callback).__module__.startswith("lightning.") and name not in TRIED:
        say_once(f"warning: Lightning's {name} was not tried in a training here: see what it does")
    for kind, instead in COUNTING_EPOCHS.items():
        if isinstance(callback, kind):
            raise UserError(
                f"the callback {name} goes by Lightning's epochs or loops, and to Lightning a run "
                f"is one endless epoch: use {instead}"
            )
    if isinstance(callback, WeightAveraging) and getattr(callback, "_use_buffers", False):
        raise UserError(
            f"the callback {name} would average whole numbers too, such as transformers' "
            "position_ids, and round them down: give use_buffers: false, or use trainer.ema_decay"
        )
    content = io.BytesIO()
    try:
        torch.save(callback.state_dict(), content)
        content.seek(0)
        torch.load(content, weights_only=True)
    except (pickle.PickleError, AttributeError, TypeError) as error:
        raise UserError(
            f"the state_dict of the callback {name} holds more than tensors, "
            "numbers, texts, lists and dictionaries: a killed run could not resume, as last.ckpt "
            "is read without executing anything in it"
        ) from error
