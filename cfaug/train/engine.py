"""Lightning's Trainer around one module and a stream of batches, with exact resume.

Imports Lightning, so only ``cfaug.train.task.fit`` imports this, when it is called.
"""

from __future__ import annotations

import csv
import io
import logging
import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple

import lightning.pytorch as pl
import torch
from lightning.pytorch.loggers import Logger
from lightning.pytorch.plugins.precision import MixedPrecision, Precision
from lightning.pytorch.strategies import DDPStrategy
from lightning.pytorch.utilities.exceptions import SIGTERMException

from cfaug.core.errors import UserError
from cfaug.core.files import write_file
from cfaug.core.processes import StopRequest, check_accelerator, choose_device, keep_handlers
from cfaug.core.progress import Progress
from cfaug.train.card import connection, wandb_identity
from cfaug.train.checkpoint import (
    WAY_OUT,
    AtomicCheckpointIO,
    Best,
    CheckpointCallback,
    check_weights,
    read_checkpoint,
)
from cfaug.train.module import Batch, TrainingModule
from cfaug.train.settings import LoggerSettings, TrainerSettings, refuse_unstarted


@dataclass(frozen=True)
class Plan:
    """The batches of a run, as a function of the step alone.

    Args:
        training: a function that maps a first batch (from 0), a rank and the number of processes to
            an endless stream: the rank's shares of that batch and of all later ones.
        validation: a function that maps a rank and the number of processes to the rank's shares of
            the validation split; ``None`` if the split is empty.
        total_steps: the number of optimizer steps of the whole run, each with as many batches as
            are accumulated.
    """

    training: Callable[[int, int, int], Iterable[Batch]]
    validation: Callable[[int, int], Iterable[Batch]] | None
    steps_per_epoch: int
    total_steps: int


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
    logger: LoggerSettings,
    attempt: int,
    started: Callable[[int], None] | None = None,
) -> Trained:
    """Train ``module`` in place, starting from ``folder/last.ckpt`` if it exists.

    Every process ends with the last weights on the CPU (averaged if ``settings`` ask for it), and
    rank 0 also has the best.

    Args:
        module: the model with its loss and its optimizer.
        plan: the batches of the run.
        folder: the folder of the run, where ``last.ckpt``, ``metrics.csv`` and other logs are
            written.
        settings: the device, and the intervals of validating, logging and saving.
        logger: the loggers of the curves besides ``metrics.csv``.
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
    with _quiet(), torch.random.fork_rng(devices=[]), stoppable() as stop:
        trainer = _make_trainer(settings, plan.total_steps)
        rank, world = trainer.global_rank, trainer.world_size
        keeper = CheckpointCallback(
            settings,
            None if plan.validation is None else plan.validation(rank, world),
            steps_per_epoch=plan.steps_per_epoch,
            total_steps=plan.total_steps,
            file=last,
            stop=stop,
        )
        trainer.callbacks.append(keeper)
        if trainer.is_global_zero:
            trainer.loggers = make_loggers(logger, folder, attempt, settings.val_metrics)
            if settings.progress:
                trainer.callbacks.append(ProgressBar(plan.total_steps, start))
            if started is not None:
                started(start)
        several = settings.accumulate_grad_batches
        batches: Iterable[Any] = plan.training(start * several, rank, world)
        if several > 1:
            batches = BatchGroups(batches, several)
        try:
            trainer.fit(module, batches, ckpt_path=last if last.exists() else None)
            keeper.stop_if_asked(trainer)  # a request may have come since the last step's check
            if settings.keep_last:
                trainer.save_checkpoint(last)
            if keeper.average is not None:
                keeper.average.write_to(module.trained)
        finally:
            close_loggers(trainer.loggers)
    return Trained(start, trainer.global_step, keeper.best)


class BatchGroups:
    """Batches in lists of ``count``, one list for each optimizer step; it has no length."""

    def __init__(self, batches: Iterable[Batch], count: int) -> None:
        self._batches, self._count = batches, count

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


def _make_trainer(settings: TrainerSettings, total_steps: int) -> pl.Trainer:
    """Return a Trainer that sees one endless epoch; only the plan knows about epochs.

    Its own bookkeeping of restarts within an epoch or a validation is therefore never used.
    """
    accelerator, devices, nodes = placement(settings)
    count = len(devices) if isinstance(devices, list) else devices
    # With a static graph DDP accepts parameters without a gradient, such as SigLIP's bias. With
    # several backward passes a step, gradients are averaged after the last one, without DDP.
    once = settings.accumulate_grad_batches == 1 and settings.micro_batch_size is None
    return pl.Trainer(
        accelerator=accelerator,
        devices=devices,
        num_nodes=nodes,
        strategy=DDPStrategy(static_graph=once) if count * nodes > 1 else "auto",
        max_steps=total_steps,
        max_epochs=-1,
        plugins=[AtomicCheckpointIO(), _precision(settings, accelerator)],
        logger=False,
        limit_val_batches=0,
        num_sanity_val_steps=0,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
        inference_mode=False,
    )


def _precision(settings: TrainerSettings, accelerator: str) -> Precision:
    """Return the plugin itself, as by its name Lightning uses bfloat16 for float16 on a CPU."""
    if settings.precision == "32":
        return Precision()
    name: Literal["16-mixed", "bf16-mixed"]
    name = "16-mixed" if settings.precision == "16-mixed" else "bf16-mixed"
    return MixedPrecision(name, {"gpu": "cuda"}.get(accelerator, accelerator))


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
    accelerator = _kind(settings.accelerator)
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


def _kind(accelerator: str) -> str:
    """Return Lightning's choice for ``auto`` and ``gpu``: ``cpu``, ``gpu`` (CUDA) or ``mps``."""
    if accelerator not in ("auto", "gpu"):
        return accelerator
    if torch.cuda.is_available():
        return "gpu"
    return "mps" if torch.backends.mps.is_available() else "cpu"


@contextmanager
def _quiet() -> Iterator[None]:
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
    """Listen for SIGTERM and Ctrl-C; raise KeyboardInterrupt once the run has stopped.

    Lightning turns Ctrl-C into ``exit(1)`` and ignores further ones. The former handlers are
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


# Loggers of curves: ``metrics.csv`` always, Weights & Biases or TensorBoard if requested.

COLUMNS = (
    "attempt", "step", "epoch", "train/loss", "val/loss", "lr", "logit_scale", "seconds",
)  # fmt: skip


class AppendingCsvLogger(Logger):
    """A logger that appends rows to ``metrics.csv``.

    Lightning's CSVLogger deletes the file when a run resumes. This one keeps every row: a resumed
    run repeats the steps since its checkpoint under the next ``attempt``.

    Args:
        metrics: further columns, at the end; a file of an earlier attempt gets them as well.
    """

    def __init__(self, file: Path, attempt: int, metrics: Sequence[str] = ()) -> None:
        super().__init__()
        self.file = file
        self.attempt = attempt
        self.columns: tuple[str, ...] = (*COLUMNS, *metrics)
        self._open()

    def _open(self) -> None:
        before = self.file.read_bytes() if self.file.exists() else b""
        if not before:
            write_file(self.file, _line(self.columns))
            return
        header, _, rows = before.partition(b"\n")
        there = tuple(header.decode().split(","))
        self.columns = tuple(dict.fromkeys((*there, *self.columns)))
        if not before.endswith(b"\n"):
            rows += b"\n"  # the process was killed in the middle of a row
        if self.columns != there or not before.endswith(b"\n"):
            write_file(self.file, _line(self.columns) + rows)

    @property
    def name(self) -> str:
        """The file's name."""
        return self.file.name

    @property
    def version(self) -> int:
        """The number of the attempt."""
        return self.attempt

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Append one row; a metric that was not measured stays empty."""
        row = {"attempt": self.attempt, "step": step, **metrics}
        with self.file.open("ab") as handle:
            handle.write(_line([row.get(column) for column in self.columns]))

    def log_hyperparams(self, *_: Any, **__: Any) -> None:
        """Do nothing, since ``config.yaml`` has the settings."""


def _line(values: Any) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(values)
    return text.getvalue().encode()


def make_loggers(
    settings: LoggerSettings, folder: Path, attempt: int, val_metrics: Sequence[str] = ()
) -> list[Logger]:
    """Return the loggers of a run with the folder ``.../<arm>/seed=<seed>``."""
    columns = [f"val/{name}" for name in val_metrics]
    loggers: list[Logger] = [AppendingCsvLogger(folder / "metrics.csv", attempt, columns)]
    if settings.kind == "wandb":
        loggers.append(_wandb(settings, folder))
    if settings.kind == "tensorboard":
        from lightning.pytorch.loggers import TensorBoardLogger

        loggers.append(TensorBoardLogger(folder, name="tensorboard", version=f"attempt={attempt}"))
    return loggers


def _wandb(settings: LoggerSettings, folder: Path) -> Logger:
    from lightning.pytorch.loggers import WandbLogger

    identity = wandb_identity(settings, folder)
    logger = WandbLogger(
        **identity, save_dir=folder, mode=settings.mode, settings=connection(settings)
    )
    try:
        _ = logger.experiment
    except Exception as error:
        raise UserError(
            f"Weights & Biases cannot start ({error}): logger.mode=offline needs no network"
        ) from error
    return logger


def close_loggers(loggers: list[Logger]) -> None:
    """Close loggers that would also log the next run of this process (wandb's is global)."""
    for logger in loggers:
        finish = getattr(getattr(logger, "experiment", None), "finish", None)
        if callable(finish):
            finish()


# Progress of a run with its loss and rate, on stderr; Lightning's own bar goes to stdout.


class ProgressBar(pl.Callback):
    """A progress bar of a run's steps, on rank 0."""

    def __init__(self, total_steps: int, start_step: int) -> None:
        self._progress = Progress("training", total_steps, "steps")
        self._start_step = start_step
        self._examples = 0

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Start the clock when the run starts or resumes."""
        self._progress.__enter__()
        self._progress.skip(self._start_step)
        self._began = time.monotonic()

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, *_: Any
    ) -> None:
        """Advance by a step."""
        batches = batch if isinstance(batch, list) else [batch]
        self._examples += sum(one["global_size"] for one in batches)
        rate = self._examples / max(1e-9, time.monotonic() - self._began)
        said = f"{rate:.1f} examples/s, loss {outputs['loss'].item():.3f}"
        self._progress.advance(trainer.global_step - self._progress.done, said)

    def teardown(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Remove the bar, also after an error."""
        self._progress.close()
