"""Lightning's Trainer around one dual encoder and a stream of batches; exact when resumed.

Imports Lightning, so only ``cfaug.train.job.fit`` imports this, when it is called.
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import lightning.pytorch as pl
import torch
from lightning.pytorch.strategies import DDPStrategy

from cfaug.errors import UserError
from cfaug.models.encoder import Encoder
from cfaug.train.checkpoint import (
    WAY_OUT,
    AtomicCheckpointIO,
    check_weights,
    read_checkpoint,
)
from cfaug.train.keep import Best, Keeper
from cfaug.train.loggers import close_loggers, make_loggers
from cfaug.train.module import Batch, ContrastiveModule
from cfaug.train.progress import ProgressBar
from cfaug.train.settings import LoggerSettings, LossSettings, OptimSettings, TrainerSettings
from cfaug.train.stopping import interruptible

PRECISION = {"32": "32-true", "bf16": "bf16-mixed"}


@dataclass(frozen=True)
class Plan:
    """What to train on, as a function of the step alone.

    Args:
        training: maps a first step (from 0), a rank and the number of processes to the rank's
            shares of that step's batch and all that follow, epoch after epoch. Without a length.
        validation: maps a rank and the number of processes to its shares of the validation split;
            ``None`` if that is empty.
        steps_per_epoch: batches of one epoch.
        total_steps: of the whole run.
    """

    training: Callable[[int, int, int], Iterable[Batch]]
    validation: Callable[[int, int], Iterable[Batch]] | None
    steps_per_epoch: int
    total_steps: int


def train_encoder(
    encoder: Encoder,
    plan: Plan,
    *,
    folder: Path,
    optim: OptimSettings,
    settings: TrainerSettings,
    logger: LoggerSettings,
    seed: int,
    attempt: int,
    loss: LossSettings | None = None,
    started: Callable[[int], None] | None = None,
) -> tuple[int, Best | None]:
    """Train ``encoder`` in place from where ``folder/last.ckpt`` stands, if there is one.

    Every process ends with the last weights on the CPU, and rank 0 also has the best.

    Args:
        encoder: the model.
        plan: what to train on.
        folder: the run's; ``last.ckpt``, ``metrics.csv`` and other logs go there.
        optim: optimizer and schedule.
        settings: on what to train, and what to do how often.
        logger: where the curves go besides ``metrics.csv``.
        seed: decides dropout, step by step.
        attempt: a column of ``metrics.csv``.
        loss: what counts as a negative; ``None`` is the authors' loss.
        started: called on rank 0 with the first step, before training.

    Returns:
        The step this attempt started from, and the best weights by validation loss if asked for.
    """
    encoder.train()  # from_pretrained gives evaluation mode, and Lightning keeps what it is given
    last = folder / "last.ckpt"
    module = ContrastiveModule(
        encoder,
        optim,
        total_steps=plan.total_steps,
        gradient_clip=settings.gradient_clip,
        seed=seed,
        weighting=loss,
    )
    start = _first_step(last, module, plan.total_steps) if last.exists() else 0
    with _quiet(), torch.random.fork_rng(devices=[]), interruptible() as stop:
        trainer = _make_trainer(settings, plan.total_steps)
        rank, world = trainer.global_rank, trainer.world_size
        keeper = Keeper(
            settings,
            None if plan.validation is None else plan.validation(rank, world),
            steps_per_epoch=plan.steps_per_epoch,
            total_steps=plan.total_steps,
            file=last,
            stop=stop,
        )
        trainer.callbacks.append(keeper)
        if trainer.is_global_zero:
            trainer.loggers = make_loggers(logger, folder, attempt)
            if settings.progress:
                trainer.callbacks.append(ProgressBar(plan.total_steps, start))
            if started is not None:
                started(start)
        batches = plan.training(start, rank, world)
        try:
            trainer.fit(module, batches, ckpt_path=last if last.exists() else None)
            keeper.stop_if_asked(trainer)  # after the last step, which asked before it returned
        finally:
            close_loggers(trainer.loggers)
    return start, keeper.best


def _first_step(last: Path, module: ContrastiveModule, total_steps: int) -> int:
    """Return the step a run goes on from.

    Raises:
        UserError: if ``last.ckpt`` is damaged, of another model, or of a longer run, which would
            never end.
    """
    content = read_checkpoint(last, mmap=True)
    check_weights(last, content, module.state_dict())
    step: int = content["global_step"]
    if step > total_steps:
        raise UserError(
            f"{last} is of step {step}, and this run has {total_steps}: it is another run's; "
            f"{WAY_OUT}"
        )
    return step


def _make_trainer(settings: TrainerSettings, total_steps: int) -> pl.Trainer:
    """Return a Trainer that sees one endless epoch: epochs are the plan's affair.

    Its bookkeeping of restarts in the middle of epochs and validations is thereby never used.
    """
    devices, nodes = placement(settings)
    return pl.Trainer(
        accelerator=settings.accelerator,
        devices=devices,
        num_nodes=nodes,
        # A static graph lets DDP bear parameters that no gradient reaches, such as SigLIP's bias.
        strategy=DDPStrategy(static_graph=True) if devices * nodes > 1 else "auto",
        precision=PRECISION[settings.precision],
        max_steps=total_steps,
        max_epochs=-1,
        plugins=[AtomicCheckpointIO()],
        logger=False,
        limit_val_batches=0,
        num_sanity_val_steps=0,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
        inference_mode=False,
    )


def placement(settings: TrainerSettings) -> tuple[int, int]:
    """Return processes per machine and machines: torchrun's where it started this process.

    Raises:
        UserError: if several processes are asked for and nobody started them.
    """
    world = os.environ.get("WORLD_SIZE")
    if world is not None:
        here = int(os.environ.get("LOCAL_WORLD_SIZE", world))
        return here, int(world) // here
    if settings.devices * settings.num_nodes > 1 and "SLURM_PROCID" not in os.environ:
        raise UserError(
            f"trainer.devices={settings.devices} trainer.num_nodes={settings.num_nodes} needs "
            "its processes started, by srun or by "
            f"torchrun --nproc-per-node={settings.devices} train.py ..."
        )
    return settings.devices, settings.num_nodes


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep Lightning's advice out of the user's terminal; errors still come through."""
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
