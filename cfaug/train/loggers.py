"""Loggers of curves: ``metrics.csv`` always, Weights & Biases or TensorBoard if requested."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers import Logger

from cfaug.core.atomic_files import write_file
from cfaug.core.errors import UserError
from cfaug.train.lightning_parts import begin_folders, make_part
from cfaug.train.settings import Factory, LoggerSettings
from cfaug.train.wandb_runs import connection, public_config, wandb_identity

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
        before = file.read_bytes() if file.exists() else b""
        if not before:
            write_file(file, _line(self.columns))
            return
        header, _, rows = before.partition(b"\n")
        there = tuple(header.decode().split(","))
        self.columns = tuple(dict.fromkeys((*there, *self.columns)))
        if not before.endswith(b"\n"):
            rows += b"\n"  # the process was killed in the middle of a row
        if self.columns != there or not before.endswith(b"\n"):
            write_file(file, _line(self.columns) + rows)

    @property
    def name(self) -> str:
        """Nothing: Lightning's ModelCheckpoint writes to ``checkpoints/`` in the run's folder."""
        return ""

    @property
    def version(self) -> str:
        """Nothing, as the name: a resumed run finds its checkpoints in the same folder."""
        return ""

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Append one row; a metric that was not measured stays empty."""
        if not any(column in metrics for column in self.columns):
            return  # of a callback, for the other loggers
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
    settings: LoggerSettings | Factory,
    folder: Path,
    attempt: int,
    val_metrics: Sequence[str] = (),
) -> list[Logger]:
    """Return the loggers of a run with the folder ``.../<arm>/seed=<seed>``."""
    columns = [f"val/{name}" for name in val_metrics]
    loggers: list[Logger] = [AppendingCsvLogger(folder / "metrics.csv", attempt, columns)]
    if not isinstance(settings, LoggerSettings):
        logger = make_part("logger", settings, Logger)
        begin_folders([logger], folder)
        return [*loggers, logger]
    if settings.kind == "wandb":
        from lightning.pytorch.loggers import WandbLogger

        identity = wandb_identity(settings, folder)
        logger = WandbLogger(
            **identity, config=public_config(folder), save_dir=folder, mode=settings.mode,
            settings=connection(settings),
        )  # fmt: skip
        try:
            _ = logger.experiment
        except Exception as error:
            raise UserError(
                f"Weights & Biases cannot start ({error}): logger.mode=offline needs no network"
            ) from error
        loggers.append(logger)
    if settings.kind == "trackio":  # its runs are like those of Weights & Biases
        import trackio
        from lightning.pytorch.loggers import WandbLogger

        identity = wandb_identity(settings, folder)
        with redirect_stdout(sys.stderr):  # trackio greets
            run = trackio.init(
                project=identity["project"], group=identity["group"], resume="allow",
                name=f"{identity['job_type']} {identity['name']}",
            )  # fmt: skip
        loggers.append(WandbLogger(experiment=run, save_dir=folder))
    if settings.kind == "tensorboard":
        from lightning.pytorch.loggers import TensorBoardLogger

        loggers.append(TensorBoardLogger(folder, name="tensorboard", version=f"attempt={attempt}"))
    return loggers


def close_loggers(loggers: list[Logger]) -> None:
    """Close loggers that would also log the next run of this process (wandb's is global)."""
    for logger in loggers:
        finish = getattr(getattr(logger, "experiment", None), "finish", None)
        if callable(finish):
            finish()
