from __future__ import annotations

import csv

import pytest

from cfaug.core.errors import UserError
from cfaug.train.engine import AppendingCsvLogger, close_loggers, make_loggers
from cfaug.train.settings import LoggerSettings
from tests.train import tiny_plan


def test_a_row_once_written_stays(tmp_path):
    file = tmp_path / "metrics.csv"
    AppendingCsvLogger(file, 0).log_metrics({"train/loss": 2.5, "unknown": 1.0}, 1)
    before = file.read_bytes()
    AppendingCsvLogger(file, 1).log_metrics({"val/loss": 1.25}, 2)
    assert file.read_bytes().startswith(before)
    with file.open() as handle:
        first, second = csv.DictReader(handle)
    assert (first["attempt"], first["step"], first["train/loss"]) == ("0", "1", "2.5")
    assert (second["attempt"], second["val/loss"], second["train/loss"]) == ("1", "1.25", "")


def test_a_row_torn_by_a_kill_spoils_no_other(tmp_path):
    file = tmp_path / "metrics.csv"
    AppendingCsvLogger(file, 0).log_metrics({"train/loss": 2.5}, 1)
    with file.open("ab") as handle:
        handle.write(b"0,2,0.5")
    AppendingCsvLogger(file, 1).log_metrics({"train/loss": 1.5}, 2)
    with file.open() as handle:
        steps = [(row["attempt"], row["step"]) for row in csv.DictReader(handle)]
    assert steps == [("0", "1"), ("0", "2"), ("1", "2")]


def test_tensorboard_gets_the_curves(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    loggers = make_loggers(LoggerSettings(kind="tensorboard"), tmp_path, 0)
    for logger in loggers:
        logger.log_metrics({"train/loss": 2.5}, 1)
        logger.finalize("success")
    close_loggers(loggers)
    assert (tmp_path / "metrics.csv").exists()
    events = EventAccumulator(str(tmp_path / "tensorboard" / "attempt=0"))
    events.Reload()
    assert [event.value for event in events.Scalars("train/loss")] == [2.5]


def test_wandb_works_offline_and_lets_go(tmp_path):
    import wandb

    settings = LoggerSettings(kind="wandb", mode="offline")
    for seed in (1, 2):
        folder = tmp_path / "demo" / "cf_ratio=0.6" / f"seed={seed}"
        folder.mkdir(parents=True)
        loggers = make_loggers(settings, folder, 0)
        assert wandb.run.name == f"cf_ratio=0.6 seed={seed}"
        assert wandb.run.group == "cf_ratio=0.6"
        for logger in loggers:
            logger.log_metrics({"train/loss": 2.5}, 1)
        close_loggers(loggers)
        assert wandb.run is None
        assert list((folder / "wandb").glob("offline-run-*/*.wandb"))


def test_no_network_is_said_soon_and_the_way_out_with_it(tmp_path, capsys, monkeypatch):
    from lightning.pytorch import loggers as lightning_loggers
    from wandb.sdk.lib import identity

    class NoNetwork:
        """wandb asks for the account's name twice, then waits for the run."""

        def __init__(self, settings, **_) -> None:
            self.timeout = 2 * identity._RESOLVE_TIMEOUT_SECONDS + settings.init_timeout

        @property
        def experiment(self):
            raise TimeoutError(f"gave up after {self.timeout:.0f} s")

    monkeypatch.setattr(lightning_loggers, "WandbLogger", NoNetwork)
    folder = tmp_path / "main" / "arm" / "seed=1"
    folder.mkdir(parents=True)
    with pytest.raises(UserError, match=r"gave up after 30 s.*logger\.mode=offline"):
        make_loggers(LoggerSettings(kind="wandb", mode="online"), folder, 0)
    assert "connecting to Weights & Biases, for at most 30 s" in capsys.readouterr().err


def test_a_metric_that_is_asked_for_later_gets_a_column_beside_the_rows_there_are(tmp_path):
    file = tmp_path / "metrics.csv"
    AppendingCsvLogger(file, 0).log_metrics({"val/loss": 2.5}, 1)
    before = file.read_text().splitlines()
    AppendingCsvLogger(file, 1, ["val/recall@1"]).log_metrics({"val/recall@1": 0.5}, 2)
    AppendingCsvLogger(file, 2).log_metrics({"val/recall@1": 0.75}, 3)
    header, row, *_ = file.read_text().splitlines()
    assert (header, row) == (f"{before[0]},val/recall@1", before[1])
    assert [one["val/recall@1"] for one in tiny_plan.rows(tmp_path)] == [None, "0.5", "0.75"]
