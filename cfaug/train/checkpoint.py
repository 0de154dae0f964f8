"""``last.ckpt``: written atomically, read as tensors and plain values only."""

from __future__ import annotations

import math
import pickle
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

import lightning.pytorch as pl
import torch
from lightning.pytorch.plugins.io import TorchCheckpointIO
from lightning.pytorch.utilities.exceptions import SIGTERMException
from torch import Tensor

from cfaug.core.atomic_files import replace_file
from cfaug.core.errors import UserError
from cfaug.core.files import require_regular
from cfaug.core.processes import StopRequest
from cfaug.core.progress import Progress
from cfaug.train.module import TrainingModule
from cfaug.train.records import Batch
from cfaug.train.settings import TrainerSettings
from cfaug.train.tuning import AveragedWeights

LIGHTNINGS = ("state_dict", "optimizer_states", "lr_schedulers", "callbacks", "loops")
"""The keys, besides ``global_step``, of a checkpoint that a run wrote."""


def read_checkpoint(path: Path, *, mmap: bool = False) -> dict[str, Any]:
    """Read a checkpoint of a run onto the CPU.

    Args:
        path: the path of ``last.ckpt``.
        mmap: whether tensors are read only when they are accessed.
    """
    require_regular(path)
    try:
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=mmap)
    except (
        pickle.UnpicklingError, RuntimeError, EOFError, ValueError, KeyError, OSError,
        AttributeError, TypeError, zipfile.BadZipFile,
    ) as error:  # fmt: skip
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise UserError(
            f"{path} is damaged, or is not a checkpoint of this program, and is not opened "
            f"({reason}): {WAY_OUT}"
        ) from error
    missing = [*LIGHTNINGS, "global_step"]
    if isinstance(content, dict):
        missing = [name for name in missing if name not in content]
    if missing:
        raise UserError(f"{path} is not a checkpoint of a run ({missing[0]} is missing): {WAY_OUT}")
    step, weights = content["global_step"], content["state_dict"]
    if isinstance(step, bool) or not isinstance(step, int) or step < 0:
        raise UserError(f"{path}: the step is invalid ({step!r}): {WAY_OUT}")
    if not isinstance(weights, dict):
        raise UserError(f"{path}: the weights are invalid: {WAY_OUT}")
    return content


def check_weights(
    path: Path, checkpoint: Mapping[str, Any], model: Mapping[str, torch.Tensor]
) -> None:
    """Refuse the checkpoint of another model.

    Args:
        checkpoint: the result of ``read_checkpoint``.
        model: the weights of the model that resumes training.
    """
    weights = checkpoint["state_dict"]
    there = {name: getattr(weight, "shape", None) for name, weight in weights.items()}
    wanted = {name: weight.shape for name, weight in model.items()}
    if there != wanted:
        name = next(key for key in (*wanted, *there) if there.get(key) != wanted.get(key))
        raise UserError(f"{path} is of another model ({name} differs): {WAY_OUT}")


WAY_OUT = "remove it to start this run from its beginning"


class _File:
    """A file for ``torch.save`` that keeps the error of a write, which ``torch.save`` loses."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self.error: OSError | None = None

    def write(self, content: bytes) -> int:
        try:
            written: int = self._file.write(content)
        except OSError as error:
            self.error = error
            raise
        return written

    def flush(self) -> None:
        self._file.flush()


class AtomicCheckpointIO(TorchCheckpointIO):
    """Checkpoint files that are replaced only when the new one is on the disk."""

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None
    ) -> None:
        """Write to a temporary file beside ``path``, flush it to the disk, rename it.

        Raises:
            OSError: naming ``path``, if the disk is full; the old file is kept.
        """
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        with replace_file(target, target.with_name(f".{target.name}.new")) as handle:
            file = _File(handle)
            try:
                torch.save(checkpoint, cast("IO[bytes]", file))
            except RuntimeError as error:
                if file.error is None:
                    raise
                raise file.error from error

    def load_checkpoint(
        self,
        path: str | Path,
        map_location: Callable[..., Any] | None = None,
        weights_only: bool | None = None,
    ) -> dict[str, Any]:
        """Read a checkpoint onto the CPU; unpickle only tensors and plain values."""
        return read_checkpoint(Path(path))


# After each step, in this order: average, validate, keep the best weights, log, save, stop.

STOPPING = "early_stopping"
AVERAGE = "average"
STOPPED = "stopped"


@dataclass(frozen=True)
class Best:
    """The weights of the lowest validation loss so far, on the CPU."""

    step: int
    val_loss: float
    weights: dict[str, Tensor]


class CheckpointCallback(pl.Callback):
    """A callback that averages, validates, keeps the best weights, logs and saves.

    One hook does all of it because an exact resume depends on the order. Lightning's own validation
    loop runs after the hook in which checkpoints are saved, and a run killed in between would skip
    that validation when it resumes. The best weights are inside ``last.ckpt``, so that they always
    match the step at which training resumes.

    Args:
        validation: the batches of the validation split, in a fixed order; ``None`` if it is empty.
        steps_per_epoch: the number of batches in an epoch, after which validation is due by
            default.
        total_steps: the number of optimizer steps of the run; the last is always validated.
        file: the path of ``last.ckpt``.
        called: the user's callbacks, whose hooks of a validation and of an epoch this one calls, as
            Lightning's Trainer runs neither.
    """

    state_key = "Keeper"  # its name in all existing last.ckpt files

    def __init__(
        self,
        settings: TrainerSettings,
        validation: Iterable[Batch] | None,
        *,
        steps_per_epoch: int,
        total_steps: int,
        file: Path,
        stop: StopRequest,
        called: Sequence[pl.Callback] = (),
    ) -> None:
        self.settings = settings
        self.validation = validation
        self.steps_per_epoch = steps_per_epoch
        self.total_steps = total_steps
        self.file = file
        self.stop = stop
        self.called = called
        self._stopped = False  # by one of them
        decay = settings.ema_decay
        self.average = None if decay is None else AveragedWeights(decay)
        self.best: Best | None = None
        self._unvalidated: float | None = None
        self.lowest = math.inf  # validation loss, counted in every process
        self.waited = 0  # validations since
        self._saved_at = 0.0
        self._started_at = 0.0

    def state_dict(self) -> dict[str, Any]:
        """Return the best weights so far, the unvalidated step, and the counts of early stopping.

        ``unvalidated`` is the training loss of a step whose validation was interrupted: a resumed
        run validates it first and then writes its row of ``metrics.csv``.
        """
        best = None if self.best is None else dict(vars(self.best))
        state: dict[str, Any] = {"best": best, "unvalidated": self._unvalidated}
        if self.settings.early_stopping is not None:
            counted = {"lowest": self.lowest, "waited": self.waited, "total": self.total_steps}
            state[STOPPING] = counted
        if self.average is not None:
            state[AVERAGE] = self.average.state()
        if self.called:
            state[STOPPED] = self.total_steps if self._stopped else None
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the result of ``state_dict``.

        An extended run restarts the count of early stopping, and is not stopped by a callback that
        stopped the shorter one.
        """
        best = state_dict["best"]
        self.best = Best(**best) if best else None
        self._unvalidated = state_dict["unvalidated"]
        counted = state_dict.get(STOPPING)
        if counted is not None:
            self.lowest = counted["lowest"]
            self.waited = counted["waited"] if counted["total"] == self.total_steps else 0
        if self.average is not None:
            if AVERAGE not in state_dict:
                raise UserError(f"{self.file} has no averaged weights: {WAY_OUT}")
            self.average.load(state_dict[AVERAGE])
        self._stopped = state_dict.get(STOPPED) == self.total_steps

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Start the clocks, listen for signals, and finish a validation that was interrupted."""
        self.stop.listen()
        self._started_at = self._saved_at = time.monotonic()
        self._finish_last_step(trainer, pl_module)
        self._stop_early(trainer)  # as before, if it was interrupted after this decision
        trainer.should_stop = trainer.should_stop or self._stopped

    def on_fit_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Finish the last step's validation if it was interrupted; no training follows."""
        self._finish_last_step(trainer, pl_module)

    def _finish_last_step(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        assert isinstance(module, TrainingModule)
        if self._unvalidated is not None:
            self._finish_step(trainer, module, self._unvalidated)

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, *_: Any
    ) -> None:
        """Validate, log, save and stop as is due after this step."""
        assert isinstance(pl_module, TrainingModule)
        if self.average is not None:
            self.average.update(pl_module.trained)
        self._finish_step(trainer, pl_module, outputs["loss"])

    def _finish_step(
        self, trainer: pl.Trainer, module: TrainingModule, loss: Tensor | float
    ) -> None:
        step = trainer.global_step
        if self.called:
            trainer.callback_metrics["train/loss"] = torch.as_tensor(loss)
        val_loss = self._validate(trainer, module, step, loss)
        if val_loss is not None or step % self.settings.log_every_steps == 0:
            self._log(trainer, module, step, loss, val_loss)
        if val_loss is not None:
            self.waited = 0 if val_loss < self.lowest else self.waited + 1
            self.lowest = min(self.lowest, val_loss)
            self._stop_early(trainer)
        if self._ends_epoch(step) and step < self.total_steps:  # Lightning ends the last
            self._call("on_train_epoch_end", trainer, module)
            self._call("on_train_epoch_start", trainer, module)
        self._stopped = bool(self.called) and trainer.should_stop
        self.stop_if_requested(trainer)
        if self._save_is_due(trainer, step):
            self._save(trainer)

    def _call(self, hook: str, trainer: pl.Trainer, module: pl.LightningModule, *of: Any) -> None:
        for callback in self.called:
            getattr(callback, hook)(trainer, module, *of)

    def _save(self, trainer: pl.Trainer) -> None:
        trainer.save_checkpoint(self.file)
        self._saved_at = time.monotonic()

    def stop_if_requested(self, trainer: pl.Trainer) -> None:
        """Save and end the run if any of its processes should stop.

        Raises:
            SIGTERMException: after saving.
        """
        if self._stop_requested(trainer):
            self._save(trainer)
            raise SIGTERMException

    def _stop_requested(self, trainer: pl.Trainer) -> bool:
        # A signal may reach one process alone, but all save and stop together.
        return trainer.strategy.reduce_boolean_decision(self.stop.requested, all=False)

    def _stop_early(self, trainer: pl.Trainer) -> None:
        patience = self.settings.early_stopping
        if patience is None:
            return
        # Every process saw the same loss; if they ever differed, none would continue alone.
        if trainer.strategy.reduce_boolean_decision(self.waited >= patience, all=False):
            trainer.should_stop = True

    def _validation_is_due(self, step: int) -> bool:
        if step == self.total_steps:
            return True
        every = self.settings.val_every_steps
        if every is not None:
            return step % every == 0
        return self._ends_epoch(step)

    def _ends_epoch(self, step: int) -> bool:
        several = self.settings.accumulate_grad_batches
        return step * several // self.steps_per_epoch > (step - 1) * several // self.steps_per_epoch

    def _validate(
        self, trainer: pl.Trainer, module: TrainingModule, step: int, loss: Tensor | float
    ) -> float | None:
        if self.validation is None or not self._validation_is_due(step):
            return None
        module.check_finite()
        # Saved in last.ckpt if the run is stopped between two batches of the validation.
        self._unvalidated = float(loss)
        average = self.average
        if self.called:  # progress bars read the number of batches from the loop that never runs
            total = len(self.validation) if isinstance(self.validation, Sized) else math.inf
            trainer.fit_loop.epoch_loop.val_loop._max_batches = [total]
        try:
            # The user's callbacks are called as Lightning's loop of validation does.
            for hook in ("on_validation_start", "on_validation_epoch_start"):
                self._call(hook, trainer, module)
            with nullcontext() if average is None else average.applied(module.trained):
                batches = self._interruptible(trainer, module, self.validation)
                val_loss = module.validation_loss(batches)
                self._unvalidated = None
                keep = self.settings.checkpoint == "best" and trainer.is_global_zero
                if keep and (self.best is None or val_loss < self.best.val_loss):
                    weights = module.trained.state_dict()
                    self.best = Best(
                        step, val_loss, {k: v.detach().cpu().clone() for k, v in weights.items()}
                    )
                if self.called:
                    measured = {"val/loss": val_loss, **module.measured}
                    for name, value in measured.items():
                        trainer.callback_metrics[name] = torch.tensor(value, dtype=torch.float64)
            for hook in ("on_validation_epoch_end", "on_validation_end"):
                self._call(hook, trainer, module)
        except SIGTERMException:  # saved after the model got its own weights back
            self._save(trainer)
            raise
        return val_loss

    def _interruptible(
        self, trainer: pl.Trainer, module: pl.LightningModule, batches: Iterable[Batch]
    ) -> Iterator[Batch]:
        """Yield the batches; stop between two of them if the run should stop.

        With callbacks a validation is finished first: half of it may be in their state.
        """
        total = len(batches) if isinstance(batches, Sized) else None
        shown = self.settings.progress and trainer.is_global_zero
        with Progress("validating", total, "batches", shown=shown) as progress:
            for number, batch in enumerate(batches):
                if not self.called and self._stop_requested(trainer):
                    raise SIGTERMException
                self._call("on_validation_batch_start", trainer, module, batch, number)
                yield batch
                self._call("on_validation_batch_end", trainer, module, None, batch, number)
                progress.advance()

    def _log(
        self,
        trainer: pl.Trainer,
        module: TrainingModule,
        step: int,
        loss: Tensor | float,
        val_loss: float | None,
    ) -> None:
        if not trainer.loggers:
            return
        module.check_finite()
        row = {
            "epoch": step * self.settings.accumulate_grad_batches / self.steps_per_epoch,
            "train/loss": float(loss),
            # The scheduler has already advanced to the next step.
            "lr": module.steps.optim.lr * module.steps.optim.factor(step - 1, self.total_steps),
            **module.curves(),
            "seconds": time.monotonic() - self._started_at,
        }
        if val_loss is not None:
            row |= {"val/loss": val_loss, **module.measured}
        for logger in trainer.loggers:
            logger.log_metrics(row, step)

    def _save_is_due(self, trainer: pl.Trainer, step: int) -> bool:
        settings = self.settings
        if step == self.total_steps or trainer.should_stop:
            return False  # the final checkpoint is about to be written
        if settings.save_every_steps is not None and step % settings.save_every_steps == 0:
            return True
        if settings.save_every_minutes is None:
            return False
        due = (time.monotonic() - self._saved_at) / 60 >= settings.save_every_minutes
        return bool(trainer.strategy.broadcast(due))  # clocks differ: rank 0 decides
