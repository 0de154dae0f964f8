"""Progress of a run with its loss and rate, on stderr; Lightning's own bar goes to stdout."""

from __future__ import annotations

import time
from typing import Any

import lightning.pytorch as pl

from cfaug.core.progress import Progress


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
