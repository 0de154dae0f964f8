"""A bar on stderr with the loss, the rate and what is left; Lightning's own goes to stdout."""

from __future__ import annotations

from typing import Any

import lightning.pytorch as pl
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

COLUMNS = (
    TextColumn("[progress.description]{task.description}"),
    BarColumn(),
    MofNCompleteColumn(),
    TextColumn("{task.fields[rate]:.1f} examples/s"),
    TimeElapsedColumn(),
    TextColumn("left"),
    TimeRemainingColumn(),
    TextColumn("loss {task.fields[loss]:.3f}"),
)


class ProgressBar(pl.Callback):
    """Shows the steps of a run, on rank 0."""

    def __init__(self, total_steps: int, start_step: int) -> None:
        # Few refreshes: the bar's thread shares two cores with the training.
        self._bar = Progress(*COLUMNS, console=Console(stderr=True), refresh_per_second=2)
        self._total_steps = total_steps
        self._start_step = start_step
        self._examples = 0

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Show the bar where the run starts or goes on."""
        self._bar.start()
        self._task = self._bar.add_task(
            "training",
            total=self._total_steps,
            completed=self._start_step,
            rate=0.0,
            loss=float("nan"),
        )

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, *_: Any
    ) -> None:
        """Move on by a step."""
        self._examples += batch["global_size"]
        elapsed = self._bar.tasks[0].elapsed or 0.0
        self._bar.update(
            self._task,
            completed=trainer.global_step,
            rate=self._examples / elapsed if elapsed else 0.0,
            loss=outputs["loss"].item(),
        )

    def teardown(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Take the bar down, after an error too."""
        self._bar.stop()
