"""Sweepers of Hydra's, which choose the next run by the metric of the last ones."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
import yaml

import cfaug
from cfaug.planning.training import TrainSettings
from cfaug.report.records import read_run
from cfaug.run.identity import arm_slug, identity
from tests.run.conftest import WORLD, compose, refusal, stdout_of
from tests.skips import reason

SWEEP = ["-m", "hydra/sweeper=optuna", "optim.lr=tag(log,interval(1e-4,1e-2))"]
RECALL = ["trainer.val_metrics=[recall@1]", "optimized_metric=val/recall@1"]


@pytest.mark.slow
@pytest.mark.skipif(find_spec("optuna") is None, reason=reason("optuna"))
def test_optuna_gets_the_metric_of_every_run_and_a_repeated_search_trains_nothing(place):
    words = [*SWEEP, *RECALL, "name=search", "arm=null", "hydra.sweeper.n_trials=2",
             "hydra.sweeper.direction=maximize", "hydra.sweeper.sampler.seed=1"]  # fmt: skip
    said = stdout_of(place.train, *words)
    assert said.count("done: ") == 2
    runs = [read_run(file.parent) for file in place.root.glob("search/*/seed=0/run.json")]
    metrics = {run.record["identity"]["optim.lr"]: run.metric("val/recall@1") for run in runs}
    assert len(metrics) == 2
    file = place.root / ".launched/optimization_results.yaml"
    best = yaml.safe_load(file.read_text())
    assert str(file) in said
    assert best["best_value"] == max(metrics.values())
    assert metrics[best["best_params"]["optim.lr"]] == best["best_value"]
    assert stdout_of(place.train, *words).count("already done: ") == 2


@pytest.mark.slow
@pytest.mark.skipif(find_spec("optuna") is None, reason=reason("optuna"))
def test_the_objective_of_the_docs(place):
    import optuna

    words = [*WORLD, *place.paths, "trainer.max_steps=2"]
    fixed = {key: yaml.safe_load(value) for key, value in (word.split("=") for word in words)}

    def objective(trial):
        rate = trial.suggest_float("lr", 1e-4, 1e-2, log=True)
        run = cfaug.fine_tune({**fixed, "optim.lr": rate}, name="search", quiet=True)
        return run.metric("val/loss")

    study = optuna.create_study()
    study.optimize(objective, n_trials=2)
    runs = [read_run(file.parent) for file in place.root.glob("search/*/seed=0/run.json")]
    assert study.best_value == min(run.record["best"]["val_loss"] for run in runs)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "add optimized_metric=val/loss"),
        (["optimized_metric=val/recall@1"], "or add trainer.val_metrics=[recall@1]"),
        (RECALL, "add hydra.sweeper.direction=maximize"),
        ([*RECALL, "seed=1.5"], "seed=1.5 should be a whole number"),
    ],
)
def test_a_search_for_nothing_or_for_the_wrong_end_is_refused(script, words, said):
    assert said in refusal(script("train"), [*SWEEP, *words])


def test_a_search_needs_the_plugin_and_runs_of_training(script, monkeypatch):
    assert "optimises runs of train.py" in refusal(script("evaluate"), [*SWEEP[:2]])
    monkeypatch.setattr("cfaug.run.launch.find_spec", lambda name: None)
    said = refusal(script("train"), [*SWEEP, "optimized_metric=val/loss"])
    assert "pip install 'cfaug[sweepers]'" in said
    assert "--multirun" in refusal(script("train"), ["hydra/sweeper=basic", "seed=1"])


def test_what_is_measured_is_no_part_of_a_runs_identity():
    plain, measured = compose("train"), compose("train", *RECALL)
    assert identity(plain, {}) == identity(measured, {})
    assert arm_slug(RECALL, measured) == "default"
    assert "optimized_metric" not in TrainSettings(**plain).config()


def test_a_metric_that_was_not_logged_is_named(tmp_path):
    folder = tmp_path / "main" / "arm" / "seed=1"
    folder.mkdir(parents=True)
    (folder / "run.json").write_text('{"state": "done", "seed": 1, "best": {"step": 2}}')
    rows = [
        "attempt,step,train/loss,val/loss",
        "0,1,3.5,",
        "0,2,3.0,2.0",
        "1,2,3.0,2.25",
        "1,4,2.5,9",
    ]
    (folder / "metrics.csv").write_text("\n".join(rows))
    run = read_run(folder)
    assert (run.metric("val/loss"), run.metric("train/loss")) == (2.25, 2.5)
    with pytest.raises(cfaug.UserError, match=r"metrics\.csv has no val/recall@1"):
        run.metric("val/recall@1")
