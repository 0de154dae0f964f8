"""Parts of Lightning's that settings name: callbacks, a strategy, a profiler, a logger.

They are made before a training begins, and those that cannot work in one are refused.
"""

from __future__ import annotations

import io
import pickle
from collections import Counter
from collections.abc import Collection
from inspect import signature
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
from lightning.pytorch.profilers import Profiler
from lightning.pytorch.strategies import DDPStrategy, Strategy
from torch.nn.parallel import DistributedDataParallel

from cfaug.core.errors import UserError, say_once
from cfaug.core.known_names import refuse_unknown
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


def make_parts(
    settings: TrainerSettings, logged: Collection[str]
) -> tuple[list[pl.Callback], Strategy | None, Profiler | None]:
    """Make the parts of Lightning's that settings ask for: callbacks, a strategy and a profiler.

    Args:
        logged: the names of the numbers that a run logs, which callbacks may monitor.

    Raises:
        UserError: if a part cannot be made, is not of its kind, would break an exact resume, or
            monitors what nobody logs.
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
        _check_monitor(callback, logged)
    keys = Counter(callback.state_key for callback in callbacks if callback.state_dict())
    for key in (key for key, number in keys.items() if number > 1):
        raise UserError(
            f"trainer.callbacks holds {key} twice, whose states could not be told apart"
        )
    return callbacks, strategy, made.get("trainer.profiler")


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


def _check_monitor(callback: pl.Callback, logged: Collection[str]) -> None:
    """Refuse a callback that monitors a number that nobody logs."""
    monitor = getattr(callback, "monitor", None)
    if monitor is not None and monitor not in logged:
        raise UserError(
            f"the callback {type(callback).__name__} has monitor={monitor}, which this run does "
            f"not log: choose {', '.join(logged)}; trainer.val_metrics=[recall@1] adds val/recall@1"
        )


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
