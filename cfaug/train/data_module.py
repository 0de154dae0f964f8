"""An exact mixture as a LightningDataModule: for anybody's Trainer, resumed in mid-epoch.

Imports Lightning, so it is only imported when code takes it from ``cfaug``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.utilities import rank_zero_warn

from cfaug.core.errors import UserError, name_some
from cfaug.data.mixture.records import Mixture
from cfaug.train.contrastive_module import ContrastiveModule
from cfaug.train.mixture_task import MixtureTask
from cfaug.train.module import TrainingModule
from cfaug.train.records import Batch, Plan

NEVER = sys.maxsize
"""The end of the stream of batches, which the Trainer stops before."""


class MixtureDataModule(pl.LightningDataModule):
    """The batches of a task on an exact mixture, as a function of the step alone.

    The position in an epoch is that of Lightning's own progress, which every checkpoint holds: a
    loader that started from its own count would be a batch ahead of it after prefetching.

    Args:
        task: the task, whose ``trainer`` and ``optim`` are not read here.
        identity: {setting or content: value} of everything that determines the batches; a
            checkpoint holds it, and is refused with another.
    """

    def __init__(self, task: MixtureTask, identity: Mapping[str, Any]) -> None:
        super().__init__()
        self.task = task
        self.identity = dict(identity)
        self._plan: Plan | None = None
        self._stream: Iterator[Batch] = iter(())
        self._next = -1  # the number of the stream's next batch, from the run's first

    @property
    def mixture(self) -> Mixture:
        """The rows of the training and validation splits."""
        return self.task.mixture

    def make_module(self, kind: type[TrainingModule] | None = None) -> TrainingModule:
        """Return the module that learns from these data, for a Trainer of one's own.

        The settings name the model, the loss, the optimizer and the seed, as those of
        ``cfaug.fine_tune`` do.

        Args:
            kind: the module's class, a subclass of the task's own; ``None`` for that.

        Raises:
            UserError: if the data's task is another module's.
        """
        task = self.task
        if kind is not None and not issubclass(kind, task.kind):
            raise UserError(
                f"{kind.__name__} does not learn from these data: {task.kind.__name__} does; "
                "task=entailment makes data of EntailmentModule, task=classification of "
                "ClassificationModule, task=vqa of AnswerModule, and without task=... they are of "
                "ContrastiveModule"
            )
        module: TrainingModule = task.make_module(task.load_tuned(), None, kind)
        # from_pretrained returns a model in evaluation mode, and Lightning keeps the mode.
        module.trained.train()
        module.measure(task.trainer.val_metrics)
        return module

    def setup(self, stage: str | None = None) -> None:
        """Prepare the batches for the module that is trained, or for the model of the settings."""
        # The tokenizer would warn at every fork of a loader's worker.
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        module = None if self.trainer is None else self.trainer.lightning_module
        loss = getattr(self.task, "loss", None)
        if isinstance(module, ContrastiveModule) and module.weighting != loss:
            raise UserError(
                f"the module's loss is {module.weighting}, and these data are for {loss}: "
                f"make the module by data.make_module({type(module).__name__})"
            )
        if not isinstance(module, TrainingModule):
            trained = self.task.load()
        elif module.trainer.precision in {"16-true", "bf16-true", "64-true"}:
            raise UserError(
                f"precision={module.trainer.precision}: weights and images of the module are "
                "float32; give the Trainer precision=bf16-mixed, 16-mixed or 32-true"
            )
        else:
            trained = module.trained
        self._plan = self.task.make_plan(trained, NEVER, None)

    def teardown(self, stage: str | None = None) -> None:
        """Let the loader's workers end."""
        self._stream, self._next = iter(()), -1

    def train_dataloader(self) -> Iterable[Batch]:
        """Return the batches of the Trainer's epoch, from the one where it resumes."""
        return _Batches(self.task.batches_per_epoch, self._train_epoch)

    def val_dataloader(self) -> Iterable[Batch]:
        """Return the batches of the validation split, in a fixed order; none if it is empty."""
        validation = self._planned().validation
        if validation is None:
            return []
        count = -(-len(self.mixture.validation) // self.task.batch_size)
        loader = validation(*self._place())  # made once: it keeps decoded pixels
        return _Batches(count, lambda: iter(loader))

    def state_dict(self) -> dict[str, Any]:
        """Return what identifies the batches; Lightning's progress has the position."""
        unfinished = 0  # batches that were accumulated since the last optimizer step
        if (trainer := self.trainer) is not None:
            done = trainer.fit_loop.epoch_loop.batch_progress.current.processed
            if done < trainer.num_training_batches:
                unfinished = done % trainer.accumulate_grad_batches
        return {"identity": self.identity, "unfinished": unfinished}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Refuse the checkpoint of other batches; warn of one that was written within a step.

        Raises:
            UserError: naming the settings that differ.
        """
        there, here = state_dict["identity"], self.identity
        differing = [key for key in here if key in there and there[key] != here[key]]
        if differing:
            changes = [
                f"{key} was {there[key]} and is {here[key]}"
                for key in differing
                if not key.startswith("content.")
            ] or [f"the {key.removeprefix('content.')} data have changed" for key in differing]
            raise UserError(
                "the checkpoint was trained on other batches, and a run of these would not be its "
                f"continuation: {name_some(changes)}. Make the data with its settings, or call fit "
                "without ckpt_path"
            )
        if unfinished := state_dict["unfinished"]:
            rank_zero_warn(
                f"the checkpoint was written within an optimizer step, and the gradients of its "
                f"first {unfinished} batches are lost: the weights will not be those of an "
                "uninterrupted run. Checkpoints by steps (every_n_train_steps) are exact"
            )

    def _planned(self) -> Plan:
        if self._plan is None:
            self.setup()
        assert self._plan is not None
        return self._plan

    def _place(self) -> tuple[int, int]:
        """Return the rank and the number of processes."""
        trainer = self.trainer
        return (0, 1) if trainer is None else (trainer.global_rank, trainer.world_size)

    def _train_epoch(self) -> Iterator[Batch]:
        """Yield the batches from the Trainer's position to the end of its epoch.

        Nothing runs before the first batch is read: Lightning makes the iterator before it
        restores its progress.
        """
        length, trainer = self.task.batches_per_epoch, self.trainer
        epoch = begin = 0
        if trainer is not None:
            begin = trainer.fit_loop.batch_idx + 1
            epoch = 0 if trainer.overfit_batches else trainer.current_epoch
        if self._next != epoch * length + begin:  # else the last epoch's stream goes on
            self._next = epoch * length + begin
            self._stream = iter(self._planned().training(self._next, *self._place()))
        for _ in range(begin, length):
            batch = next(self._stream)
            self._next += 1
            yield batch


class _Batches:
    """Batches of known number, which Lightning does not reorder as it does a DataLoader's."""

    def __init__(self, length: int, iterate: Callable[[], Iterator[Batch]]) -> None:
        self._length, self._iterate = length, iterate

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Batch]:
        return self._iterate()

    def state_dict(self) -> dict[str, Any]:
        """Return nothing: that Lightning finds this method tells it that the loader resumes."""
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Do nothing."""
