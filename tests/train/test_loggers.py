from __future__ import annotations

import csv
from dataclasses import replace

import pytest
import torch

from cfaug.core.errors import UserError
from cfaug.stats import ranking
from cfaug.train.loggers import AppendingCsvLogger, close_loggers, make_loggers
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


@pytest.mark.slow
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
    assert [logged["val/recall@1"] for logged in tiny_plan.rows(tmp_path)] == [None, "0.5", "0.75"]


# Metrics of the validation split: equal to the pure functions, and without a trace in the run.


NAMES = ("recall@1", "text_to_image_recall@5")


def run(folder, weights, **given):
    encoder, _, _ = tiny_plan.train(folder, weights, steps=6, **given)
    return encoder, tiny_plan.rows(folder)


def test_recalls_are_those_of_the_whole_split_and_change_nothing_else(tmp_path, weights):
    plain, without = run(tmp_path / "plain", weights)
    encoder, rows = run(tmp_path / "measured", weights, val_metrics=NAMES)
    assert tiny_plan.same_weights(plain.state_dict(), encoder.state_dict())
    columns = [f"val/{name}" for name in NAMES]
    assert list(rows[0]) == [*without[0], *columns]
    assert [row["val/loss"] for row in rows] == [row["val/loss"] for row in without]
    assert [row["step"] for row in rows if row[columns[0]]] == ["5", "6"]

    images, texts, numbers = [], [], []
    encoder.eval()
    with torch.no_grad():
        for i, size in enumerate((16, 5)):
            batch = tiny_plan.batch(10**6 + i, size)
            own_images, own_texts = encoder.features(batch["pixels"], batch["texts"])
            images += own_images
            texts += own_texts
            numbers += batch["images"].tolist()
    first = [numbers.index(number) for number in sorted(set(numbers))]
    standings = ranking.standings(torch.stack(texts), torch.stack(images)[first], numbers)
    both = [ranks.hits(1).mean() for ranks in standings.values()]
    assert float(rows[-1][columns[0]]) == pytest.approx(sum(both) / 2, abs=1e-12)
    at_5 = standings["text_to_image"].hits(5).mean()
    assert float(rows[-1][columns[1]]) == pytest.approx(at_5, abs=1e-12)


@pytest.mark.slow
def test_a_run_of_a_wandb_agent_gets_each_validation_with_its_step(tmp_path, weights, monkeypatch):
    """Hyperband compares runs by what they logged so far, under the id that the agent gave."""
    import wandb
    from wandb.sdk.wandb_run import Run

    logged, log = [], Run.log

    def keep(run, row, *more, **named):
        logged.append((run.id, row))
        return log(run, row, *more, **named)

    monkeypatch.setattr(Run, "log", keep)
    monkeypatch.setenv("WANDB_SWEEP_ID", "sweep1")
    monkeypatch.setenv("WANDB_RUN_ID", "given")
    folder = tmp_path / "main" / "arm" / "seed=1"
    logger = LoggerSettings(kind="wandb", mode="offline")
    wandb.teardown()  # a process reads these variables once
    tiny_plan.train(folder, weights, steps=6, val_metrics=NAMES, val_every_steps=2, logger=logger)
    wandb.teardown()
    assert {run for run, _ in logged} == {"given"}
    assert [row["trainer/global_step"] for _, row in logged] == [1, 2, 3, 4, 5, 6]
    key = "val/recall@1"
    validated = {str(row["trainer/global_step"]): row[key] for _, row in logged if key in row}
    assert validated == {
        row["step"]: float(row[key]) for row in tiny_plan.rows(folder) if row[key]
    }  # at steps 2, 4 and 6
    assert list(validated) == ["2", "4", "6"]


@pytest.mark.parametrize(
    ("names", "validation", "said"),
    [
        (("recal@1",), 0.2, "recal@1 is not of this task, which has recall@1"),
        (("recall@0",), 0.2, "recall@0 is not"),
        (("recall@1",), 0.0, "raise data.validation=0"),
    ],
)
def test_a_metric_of_another_task_or_of_no_split_is_refused(names, validation, said):
    from unittest.mock import MagicMock

    from cfaug.train.mixture_task import ContrastiveTask
    from cfaug.train.settings import TrainerSettings

    task = MagicMock(spec=ContrastiveTask)
    task.measurable = ContrastiveTask.measurable
    task.trainer = TrainerSettings(max_steps=1, checkpoint="last", val_metrics=names)
    task.counts = {"train": 8, "validation": round(8 * validation)}
    task.lower_validation = f"data.validation={validation:g}"
    task.steps = 1
    with pytest.raises(UserError, match=said):
        ContrastiveTask.check(task)
    task.trainer = replace(task.trainer, val_metrics=())
    ContrastiveTask.check(task)
