"""A run's folder is one run of Weights & Biases, however often training was interrupted."""

from __future__ import annotations

import json
import time

import pytest

from cfaug.core.atomic_files import write_json
from cfaug.report.results import Result, append_results
from cfaug.train.loggers import close_loggers, make_loggers
from cfaug.train.settings import LoggerSettings
from cfaug.train.wandb_runs import _curves, public_config, publish

SETTINGS = LoggerSettings(kind="wandb", mode="offline")


def test_curves_have_a_row_a_step_and_repeated_steps_as_repeated(tmp_path):
    lines = ["attempt,step,epoch,train/loss,val/loss", "0,1,0,3.0,", "0,2,0,2.0,", "0,2,0,,1.5",
             "1,2,0,2.5,", "1,3,1,1.0,1.25"]  # fmt: skip
    (tmp_path / "metrics.csv").write_text("\n".join(lines) + "\n")
    step = "trainer/global_step"
    assert _curves(tmp_path / "metrics.csv") == [
        {step: 1, "epoch": 0, "train/loss": 3.0},
        {step: 2, "epoch": 0, "train/loss": 2.5, "val/loss": 1.5},
        {step: 3, "epoch": 1, "train/loss": 1.0, "val/loss": 1.25},
    ]
    assert _curves(tmp_path / "absent.csv") == []


def test_settings_are_sent_without_places(tmp_path):
    assert public_config(tmp_path) is None
    write_json(tmp_path / "config.yaml", {"data": {"real": "/home/anna/photos"}, "seed": 1})
    assert public_config(tmp_path) == {"data": {"real": "photos"}, "seed": 1}


def test_other_loggers_get_nothing(tmp_path):
    publish(LoggerSettings(kind="tensorboard"), tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_two_attempts_and_their_results_are_one_offline_run(tmp_path):
    folder = tmp_path / "main" / "cf_ratio=0.6" / "seed=1"
    folder.mkdir(parents=True)
    for attempt in (0, 1):
        time.sleep(1.1)  # wandb's folders are named by the second
        loggers = make_loggers(SETTINGS, folder, attempt)
        for logger in loggers:
            logger.log_metrics({"train/loss": 2.5 - attempt}, attempt + 1)
        close_loggers(loggers)
    place = folder / "wandb"
    (place / "mine").mkdir()  # of somebody: left alone
    offline = "offline-run-*"
    assert len(list(place.glob(offline))) == 2
    time.sleep(1.1)
    publish(SETTINGS, folder)
    [run] = place.glob(offline)
    assert (place / "latest-run").resolve() == run
    assert len(list(place.glob(f"attempts/{offline}"))) == 2
    publish(SETTINGS, folder)  # nothing changed
    assert list(place.glob(offline)) == [run]
    # Results come, and the folder that was written here gives way.
    append_results(
        folder / "results.jsonl",
        [Result("main/cf_ratio=0.6/seed=1", "cf_ratio=0.6", 1, "ood", "acc1", 0.5, 10, "w")],
    )
    time.sleep(1.1)
    publish(SETTINGS, folder)
    [again] = place.glob(offline)
    assert again != run
    assert len(list(place.glob(f"attempts/{offline}"))) == 2
    [table] = again.glob("files/media/table/results_*.table.json")
    assert json.loads(table.read_text())["data"] == [["ood", "acc1", 0.5, 10]]
    assert (place / "mine").is_dir()
    (place / "published.json").write_text("[1]")  # damaged: written once more
    time.sleep(1.1)
    publish(SETTINGS, folder)
    assert len(list(place.glob(offline))) == 1
