"""Lightning's Trainer around one module and a stream of batches, with exact resume.

Imports Lightning, so only ``cfaug.train.task.fit`` imports this, when it is called.
"""

from __future__ import annotations

import logging
import math
import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import cycle, islice
from pathlib import Path
from typing import Any, Literal, NamedTuple

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import (
    Checkpoint,
    ProgressBar,
)
from lightning.pytorch.loggers.logger import DummyLogger
from lightning.pytorch.plugins.precision import MixedPrecision, Precision
from lightning.pytorch.profilers import AdvancedProfiler, PyTorchProfiler, SimpleProfiler
from lightning.pytorch.strategies import DDPStrategy
from lightning.pytorch.utilities.exceptions import SIGTERMException

from cfaug.core.errors import UserError
from cfaug.core.processes import StopRequest, check_accelerator, choose_device, keep_handlers
from cfaug.core.progress import Progress, preparing
from cfaug.train.checkpoint import (
    WAY_OUT,
    AtomicCheckpointIO,
    Best,
    CheckpointCallback,
    check_weights,
    read_checkpoint,
)
from cfaug.train.lightning_parts import begin_folders, logged_names, make_parts
from cfaug.train.loggers import close_loggers, make_loggers
from cfaug.train.module import TrainingModule
from cfaug.train.records import Batch, Plan
from cfaug.train.settings import (
    Factory,
    LoggerSettings,
    TrainerSettings,
    refuse_unstarted,
)


class Trained(NamedTuple):
    """The first and last step of an attempt, and the best weights if they were requested."""

    start: int
    end: int
    best: Best | None


def train(
    module: TrainingModule,
    plan: Plan,
    *,
    folder: Path,
    settings: TrainerSettings,
    logger: LoggerSettings | Factory,
    attempt: int,
    started: Callable[[int], None] | None = None,
) -> Trained:
    """Train ``module`` in place, starting from ``folder/last.ckpt`` if it exists.

    Every process ends with the last weights on the CPU (averaged if ``settings`` ask for it), and
    rank 0 also has the best.

    Args:
        folder: the folder of the run, where ``last.ckpt``, ``metrics.csv`` and other logs are
            written.
        logger: the loggers of the curves besides ``metrics.csv``, or a function that makes a logger
            of Lightning's.
        attempt: the number of the attempt, a column of ``metrics.csv``.
        started: a function that is called on rank 0 with the first step, before training.

    Returns:
        The first and last step of this attempt, and the best weights by validation loss if they
        were requested.
    """
    # from_pretrained returns a model in evaluation mode, and Lightning keeps the mode.
    module.trained.train()
    module.measure(settings.val_metrics)
    last = folder / "last.ckpt"
    start = _first_step(last, module, plan.total_steps) if last.exists() else 0
    with quiet_lightning(), torch_as_before(), stoppable() as stop:
        validated = plan.validation is not None
        trainer = make_trainer(settings, plan.total_steps, folder, validated)
        called = tuple(trainer.callbacks)
        rank, world = trainer.global_rank, trainer.world_size
        keeper = CheckpointCallback(
            settings,
            None if plan.validation is None else plan.validation(rank, world),
            steps_per_epoch=plan.steps_per_epoch,
            total_steps=plan.total_steps,
            file=last,
            stop=stop,
            called=called,
        )
        trainer.callbacks.append(keeper)  # last, so that it saves the state of those that it calls
        if trainer.is_global_zero:
            trainer.loggers = make_loggers(logger, folder, attempt, settings.val_metrics)
            if settings.progress and trainer.progress_bar_callback is None:
                trainer.callbacks.append(StepProgress(plan.total_steps, start))
            if started is not None:
                started(start)
        elif called:
            trainer.loggers = [DummyLogger()]  # callbacks such as LearningRateMonitor require one
        several = settings.accumulate_grad_batches
        batches: Iterable[Any] = plan.training(start * several, rank, world)
        if several > 1:
            batches = BatchGroups(batches, several)
        try:
            trainer.fit(module, batches, ckpt_path=last if last.exists() else None)
            keeper.stop_if_requested(trainer)  # a request may have come since the last step's check
            if settings.keep_last:
                trainer.save_checkpoint(last)
            if keeper.average is not None:
                keeper.average.write_to(module.trained)
        finally:
            close_loggers(trainer.loggers)
            close_batches(batches)
            close_batches(keeper.validation)
    return Trained(start, trainer.global_step, keeper.best)


def limited(make_plan: Callable[[int], Plan], total_steps: int, settings: TrainerSettings) -> Plan:
    """Return a plan whose epochs have only the batches that ``settings`` allow.

    Args:
        make_plan: a function that maps the number of optimizer steps of a run to its whole plan.
    """
    plan = make_plan(total_steps)
    whole = plan.steps_per_epoch
    limit = settings.limited(whole)
    if limit == whole and settings.overfit_batches is None:
        return plan
    # The limited run stops within a longer one, of as many whole epochs.
    epochs = -(-total_steps * settings.accumulate_grad_batches // limit)
    longer = make_plan(max(total_steps, epochs * whole)).training

    def training(start: int, rank: int, world: int) -> Iterator[Batch]:
        epoch, done = divmod(start, limit)
        if settings.overfit_batches is not None:
            few = list(islice(longer(0, rank, world), limit))
            yield from islice(cycle(few), done, None)
        for number in range(epoch, epochs):
            yield from islice(longer(number * whole + done, rank, world), limit - done)
            done = 0

    return replace(plan, training=training, steps_per_epoch=limit)


def close_batches(batches: Iterable[Any] | None) -> None:
    """End the processes that read batches, if there are any.

    Lightning does so for a ``DataLoader`` alone. Left running, they outlive each run of a process,
    and on a GPU the thread that pins their memory keeps the process from ending.
    """
    close = getattr(batches, "close", None)
    if close is not None:
        close()


class BatchGroups:
    """Batches in lists of ``count``, one list for each optimizer step; it has no length."""

    def __init__(self, batches: Iterable[Batch], count: int) -> None:
        self._batches, self._count = batches, count

    def close(self) -> None:
        """End the processes that read."""
        close_batches(self._batches)

    def __iter__(self) -> Iterator[list[Batch]]:
        batches = iter(self._batches)
        while group := list(islice(batches, self._count)):
            yield group


def _first_step(last: Path, module: TrainingModule, total_steps: int) -> int:
    """Return the step at which a run resumes."""
    content = read_checkpoint(last, mmap=True)
    check_weights(last, content, module.state_dict())
    step: int = content["global_step"]
    if step > total_steps:
        raise UserError(
            f"{last} is of step {step}, and this run has {total_steps}: it belongs to another run; "
            f"{WAY_OUT}"
        )
    return step


def make_trainer(
    settings: TrainerSettings, total_steps: int, folder: Path, validated: bool = True
) -> pl.Trainer:
    """Return a Trainer that sees one endless epoch; only the plan knows about epochs.

    Its own bookkeeping of restarts within an epoch or a validation is therefore never used.
    """
    callbacks, strategy, profiler = make_parts(settings, logged_names(settings, validated), folder)
    begin_folders([*callbacks, profiler], folder)
    if isinstance(settings.profiler, str):
        profiler = PROFILERS[settings.profiler](dirpath=folder, filename="profile")
    accelerator, devices, nodes = placement(settings)
    precision = Precision()
    if settings.precision != "32":
        # The plugin itself, as by its name Lightning uses bfloat16 for float16 on a CPU.
        mixed: Literal["16-mixed", "bf16-mixed"]
        mixed = "16-mixed" if settings.precision == "16-mixed" else "bf16-mixed"
        precision = MixedPrecision(mixed, {"gpu": "cuda"}.get(accelerator, accelerator))
    count = len(devices) if isinstance(devices, list) else devices
    # With a static graph DDP accepts parameters without a gradient, such as SigLIP's bias. With
    # several backward passes a step, gradients are averaged after the last one, without DDP.
    once = settings.accumulate_grad_batches == 1 and settings.micro_batch_size is None
    if strategy is None and (count * nodes > 1 or settings.strategy == "ddp"):
        strategy = DDPStrategy(static_graph=once)
    return pl.Trainer(
        accelerator=accelerator,
        devices=devices,
        num_nodes=nodes,
        strategy=strategy or "auto",
        callbacks=callbacks,
        profiler=profiler,
        default_root_dir=folder,
        log_every_n_steps=settings.log_every_steps,
        max_steps=total_steps,
        max_epochs=-1,
        plugins=[AtomicCheckpointIO(), precision],
        logger=False,
        limit_val_batches=0,
        num_sanity_val_steps=0,
        # As with a validation within an epoch: EarlyStopping and ModelCheckpoint act at its end.
        val_check_interval=NEVER if callbacks else None,
        check_val_every_n_epoch=None if callbacks else 1,
        enable_checkpointing=any(isinstance(callback, Checkpoint) for callback in callbacks),
        enable_progress_bar=any(isinstance(callback, ProgressBar) for callback in callbacks),
        enable_model_summary=False,
        use_distributed_sampler=False,
        inference_mode=False,
        deterministic=settings.deterministic or None,  # None leaves what is set in the process
    )


NEVER = 2**62
"""A number of batches that no run has."""
PROFILERS = {"simple": SimpleProfiler, "advanced": AdvancedProfiler, "pytorch": PyTorchProfiler}


def placement(settings: TrainerSettings) -> tuple[str, int | list[int], int]:
    """Return the kind of device, the processes per machine (or the only device), and the machines.

    If torchrun started this process, it determines the number of processes.
    """
    world = os.environ.get("WORLD_SIZE")
    if settings.device is not None:
        if world not in (None, "1"):
            raise UserError(
                f"trainer.device={settings.device} names the one device of a run, and torchrun "
                f"started {world} processes: leave it out"
            )
        device = choose_device(settings.device, "trainer.device")
        kind = "gpu" if device.type == "cuda" else device.type
        return kind, [device.index or 0] if kind == "gpu" else 1, 1
    check_accelerator(settings.accelerator)
    accelerator: str = settings.accelerator
    if accelerator in ("auto", "gpu"):  # chosen as Lightning does
        if torch.cuda.is_available():
            accelerator = "gpu"
        else:
            accelerator = "mps" if torch.backends.mps.is_available() else "cpu"
    refuse_unstarted(settings)
    if world is not None:
        here = int(os.environ.get("LOCAL_WORLD_SIZE", world))
        return accelerator, here, int(world) // here
    return accelerator, settings.devices, settings.num_nodes


def device_of(settings: TrainerSettings) -> str:
    """Return the name in torch of the device of a run's first process."""
    kind, devices, _ = placement(settings)
    if kind != "gpu":
        return kind
    return f"cuda:{devices[0] if isinstance(devices, list) else 0}"


@contextmanager
def torch_as_before() -> Iterator[None]:
    """Restore torch's random state, and which kernels it may choose, for the next run."""
    mode = torch.get_deterministic_debug_mode()
    with torch.random.fork_rng(devices=[]):
        try:
            yield
        finally:
            torch.set_deterministic_debug_mode(mode)


@contextmanager
def quiet_lightning() -> Iterator[None]:
    """Silence Lightning's advice on the user's terminal; errors are still shown."""
    names = ("lightning.pytorch", "lightning.fabric", "pytorch_lightning", "lightning_fabric")
    loggers = [logging.getLogger(name) for name in names]
    before = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module=r"lightning\.|torch\.(optim|autograd)")
            yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)


# Lightning's exceptions of a request to stop, turned back into a KeyboardInterrupt.


@contextmanager
def stoppable() -> Iterator[StopRequest]:
    """Listen for ``ENDINGS`` and Ctrl-C; raise KeyboardInterrupt once the run has stopped.

    Lightning turns Ctrl-C into ``exit(1)`` and ignores further ones. Under SLURM it would save a
    checkpoint of its own on SIGUSR1, if nobody listened to that before. The former handlers are
    restored at the end.
    """
    with keep_handlers():
        request = StopRequest()
        request.listen()
        try:
            yield request
        except SystemExit as stop:
            cause: BaseException | None = stop
            while cause is not None:
                if isinstance(cause, SIGTERMException | KeyboardInterrupt):
                    raise KeyboardInterrupt from None
                cause = cause.__context__
            raise


# Progress of a run with its loss and rate, on stderr; Lightning's own bar goes to stdout.


class LossFalls(pl.Callback):
    """A check for ``debug=overfit``: after the last step the loss is below that of the first.

    Raises:
        UserError: at the end of the training, if it is not.
    """

    first = last = math.nan

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, *_: Any
    ) -> None:
        """Keep the first and the last loss."""
        self.last = outputs["loss"].item()
        if trainer.global_step == 1:
            self.first = self.last

    def state_dict(self) -> dict[str, Any]:
        """Return the first loss."""
        return {"first": self.first}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the first loss."""
        self.first = state_dict["first"]

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Compare them."""
        if not self.last < self.first:
            raise UserError(
                f"the loss did not fall on the same few batches: {self.first:.4g} at first, "
                f"{self.last:.4g} at step {trainer.global_step}; look at optim.lr, tuning and loss"
            )


class StepProgress(pl.Callback):
    """A progress bar of a run's steps, on rank 0."""

    def __init__(self, total_steps: int, start_step: int) -> None:
        self._progress = Progress("training", total_steps, "steps")
        self._first = ExitStack()
        self._start_step = start_step
        self._examples = 0

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Start the clock when the run starts or resumes, and say that the first step is taken."""
        self._first.enter_context(preparing("reading the first batch and taking the first step"))
        self._progress.__enter__()
        self._progress.skip(self._start_step)
        self._began = time.monotonic()

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, *_: Any
    ) -> None:
        """Advance by a step."""
        self._first.close()
        batches = batch if isinstance(batch, list) else [batch]
        self._examples += sum(micro["global_size"] for micro in batches)
        rate = self._examples / max(1e-9, time.monotonic() - self._began)
        text = f"{rate:.1f} examples/s, loss {outputs['loss'].item():.3f}"
        self._progress.advance(trainer.global_step - self._progress.done, text)

    def teardown(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Remove the bar, also after an error."""
        self._first.close()
        self._progress.close()
