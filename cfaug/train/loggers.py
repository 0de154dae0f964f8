"""Loggers of curves: ``metrics.csv`` always, Weights & Biases or TensorBoard if requested."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers import Logger

from cfaug.core.errors import UserError
from cfaug.train.settings import LoggerSettings
from cfaug.train.tracking import connection, wandb_identity

COLUMNS = (
    "attempt", "step", "epoch", "train/loss", "val/loss", "lr", "logit_scale", "seconds",
)  # fmt: skip


class AppendingCsvLogger(Logger):
    """A logger that appends rows to ``metrics.csv``.

    Lightning's CSVLogger deletes the file when a run resumes. This one keeps every row: a resumed
    run repeats the steps since its checkpoint under the next ``attempt``.
    """

    def __init__(self, file: Path, attempt: int) -> None:
        super().__init__()
        self.file = file
        self.attempt = attempt
        self._open()

    def _open(self) -> None:
        before = self.file.read_bytes() if self.file.exists() else b""
        with self.file.open("ab") as handle:
            if not before:
                handle.write(_line(COLUMNS))
            elif not before.endswith(b"\n"):
                handle.write(b"\n")  # the process was killed in the middle of a row

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
            handle.write(_line([row.get(column) for column in COLUMNS]))

    def log_hyperparams(self, *_: Any, **__: Any) -> None:
        """Do nothing, since ``config.yaml`` has the settings."""


def _line(values: Any) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(values)
    return text.getvalue().encode()


def make_loggers(settings: LoggerSettings, folder: Path, attempt: int) -> list[Logger]:
    """Return the loggers of a run with the folder ``.../<arm>/seed=<seed>``."""
    loggers: list[Logger] = [AppendingCsvLogger(folder / "metrics.csv", attempt)]
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
