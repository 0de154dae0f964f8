"""``fit``: one run from its settings to ``checkpoint/``. Torch and Lightning are imported in it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cfaug.errors import UserError
from cfaug.protocols import DualEncoder

if TYPE_CHECKING:
    from cfaug.data.feeding.pixel_cache import KeptPixels
    from cfaug.data.index import Index
    from cfaug.data.planning.records import Mixture
    from cfaug.data.planning.settings import DataSettings
    from cfaug.models.encoder import Encoder
    from cfaug.models.specs import ModelSpec
    from cfaug.train.engine import Plan
    from cfaug.train.settings import LoggerSettings, LossSettings, OptimSettings, TrainerSettings
    from cfaug.train.tuning import Tuning


@dataclass(frozen=True)
class FitResult:
    """What a finished run did.

    Attributes:
        steps: optimizer steps of the whole run, all attempts together.
        start_step: the step this attempt went on from.
        end_step: the step it ended at.
        seen: training examples in all steps up to ``end_step``, repetitions counted.
        best_step: the step whose weights are in ``checkpoint/``; ``None`` if the last were asked
            for.
        best_val_loss: their validation loss.
        trained: numbers that were trained, adapters counted.
        parameters: numbers of the model, adapters counted.
    """

    steps: int
    start_step: int
    end_step: int
    seen: int
    best_step: int | None
    best_val_loss: float | None
    trained: int = 0
    parameters: int = 0


@dataclass(frozen=True, kw_only=True)
class FitSettings:
    """What is trained, on what and how.

    Attributes:
        data: batch size, workers and order.
        mixture: what is trained on and what is held out.
        indexes: of the real and the counterfactual source.
        model: where to start.
        optim: optimizer and schedule.
        trainer: how long, on what, what to keep.
        logger: where the curves go besides ``metrics.csv``.
        seed: of the run.
        data_seed: of the data, which the papers pair with the seed (108 with 107); both decide
            the order of examples.
        tuning: which parameters are trained; ``None`` is all.
        loss: what counts as a negative; ``None`` is the authors' loss.
    """

    data: DataSettings
    mixture: Mixture
    indexes: tuple[Index | None, Index | None]
    model: ModelSpec
    optim: OptimSettings
    trainer: TrainerSettings
    logger: LoggerSettings
    seed: int
    data_seed: int
    tuning: Tuning | None = None
    loss: LossSettings | None = None


def fit(
    job: FitSettings,
    folder: Path,
    *,
    attempt: int,
    started: Callable[[int], None] | None = None,
    kept: KeptPixels | None = None,
) -> FitResult:
    """Fine-tune, going on from ``folder/last.ckpt`` if a killed attempt left one.

    Writes ``last.ckpt`` and ``metrics.csv``, and at the end ``checkpoint/``, whole or not at all.
    Under torchrun every process calls this; rank 0 alone writes.

    Args:
        job: what is trained, on what and how.
        folder: the run's, ``.../<experiment>/<arm>/seed=<seed>``.
        attempt: number of this attempt at the run, from 0; a column of ``metrics.csv``.
        started: called on rank 0 with the step this attempt starts from, before training.
        kept: decoded pixels that runs of one process share; ``None`` keeps the run's own.

    Raises:
        UserError: if there is too little data, nothing to tell the best weights by, or the loss is
            not a number.
    """
    data, trainer = job.data, job.trainer
    rows = len(job.mixture.train)
    steps_per_epoch = data.steps_per_epoch(rows)
    total_steps = trainer.total_steps(steps_per_epoch)
    _check(job.mixture, data, trainer, total_steps)
    # The tokenizer would warn at every fork of a loader's worker.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    encoder = job.model.load(DualEncoder)
    if total_steps == 0:
        return _keep_initial(encoder, folder, started)
    if job.tuning is not None:
        job.tuning.apply(encoder, job.seed)

    from cfaug.train.engine import train_encoder
    from cfaug.train.tuning import merge, trainable

    start_step, end_step, best = train_encoder(
        encoder,
        _plan(encoder, job, total_steps, kept),
        folder=folder,
        optim=job.optim,
        settings=trainer,
        logger=job.logger,
        seed=job.seed,
        attempt=attempt,
        loss=job.loss,
        started=started,
    )
    if best is not None:
        encoder.load_state_dict(best.weights)
    trained, parameters = trainable(encoder)
    merge(encoder)
    _save_on_rank_0(encoder, folder)
    return FitResult(
        steps=total_steps,
        start_step=start_step,
        end_step=end_step,
        seen=_seen(end_step * trainer.accumulate_grad_batches, steps_per_epoch, rows, data),
        best_step=None if best is None else best.step,
        best_val_loss=None if best is None else best.val_loss,
        trained=trained,
        parameters=parameters,
    )


def _seen(batches: int, batches_per_epoch: int, rows: int, data: DataSettings) -> int:
    epochs, rest = divmod(batches, batches_per_epoch)
    size = data.batch_size
    return epochs * min(rows, batches_per_epoch * size) + min(rows, rest * size)


def _check(
    mixture: Mixture,
    data: DataSettings,
    trainer: TrainerSettings,
    total_steps: int,
) -> None:
    if not total_steps or len(mixture.validation):
        return
    if trainer.checkpoint == "best":
        raise UserError(
            "trainer.checkpoint=best needs a validation split to choose by, and it is empty: "
            f"set trainer.checkpoint=last, or raise data.validation={data.validation}"
        )
    if trainer.early_stopping is not None:
        raise UserError(
            f"trainer.early_stopping={trainer.early_stopping} needs a validation split to stop by, "
            f"and it is empty: raise data.validation={data.validation}"
        )


def _keep_initial(
    encoder: Encoder, folder: Path, started: Callable[[int], None] | None
) -> FitResult:
    """Save what the run starts from: the table's row before fine-tuning."""
    if int(os.environ.get("RANK", "0")) == 0:
        if started is not None:
            started(0)
        folder.mkdir(parents=True, exist_ok=True)
        encoder.save(folder / "checkpoint")
    return FitResult(0, 0, 0, 0, None, None)


def _plan(encoder: Encoder, job: FitSettings, total_steps: int, kept: KeptPixels | None) -> Plan:
    from cfaug.data.feeding.loader import Examples, TrainingShares, ValidationShares, make_loader
    from cfaug.train.engine import Plan

    data, mixture = job.data, job.mixture
    batches = total_steps * job.trainer.accumulate_grad_batches

    def training(start: int, rank: int, world: int) -> Iterable[Any]:
        shares = TrainingShares(
            mixture, data, seed=job.seed, data_seed=job.data_seed, start_step=start,
            total_steps=batches, rank=rank, world=world,
        )  # fmt: skip
        examples = Examples(job.indexes, encoder.transform, len(mixture.train), kept)
        return _Unsized(make_loader(examples, shares, data.workers))

    def validation(rank: int, world: int) -> Iterable[Any]:
        shares = ValidationShares(mixture, data.batch_size, rank=rank, world=world)
        examples = Examples(job.indexes, encoder.transform, len(mixture.validation), kept)
        return make_loader(examples, shares, data.workers)

    return Plan(
        training,
        validation if len(mixture.validation) else None,
        steps_per_epoch=data.steps_per_epoch(len(mixture.train)),
        total_steps=total_steps,
    )


class _Unsized:
    """A loader without a length: a resumed one is shorter, which Lightning takes for the epoch."""

    def __init__(self, loader: Iterable[Any]) -> None:
        self._loader = loader

    def __iter__(self) -> Iterator[Any]:
        return iter(self._loader)


def _save_on_rank_0(encoder: Encoder, folder: Path) -> None:
    import torch.distributed as dist

    together = dist.is_available() and dist.is_initialized()
    if not together or dist.get_rank() == 0:
        encoder.save(folder / "checkpoint")
    if together:
        dist.barrier()  # no process says it is done before the checkpoint is there
