"""The jobs of a sweep: each different one once, and no setting typed twice."""

from __future__ import annotations

import json
import re
from functools import partial
from importlib.util import find_spec

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

import cfaug
from cfaug.core.errors import UserError
from cfaug.planning.training import TrainSettings
from cfaug.report.records import read_run
from cfaug.run.arm_names import arm_slug
from cfaug.run.identity import identity
from cfaug.run.train import main as train
from cfaug.settings.sweep_jobs import leave_out_duplicated
from tests.properties import examples
from tests.run.conftest import compose, jobs_of, refusal, stderr_of, stdout_of
from tests.skips import reason

trained = partial(jobs_of, "train")


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("seed=range(5,1)", "the sweep is empty: seed=range(5,1) lists no value"),
        ("seed=range(0,5,0)", "cannot read the sweep: seed=range(0,5,0)"),
        ("seed=range(nan,3)", "cannot read the sweep: seed=range(nan,3)"),
        ("seed=interval(0,1)", "has no list of values"),
        ("seed=range(0,1e99)", "the sweep has more than 1,000,000 jobs: seed=range(0,1e99)"),
        ("seed=shuffle(1,2,3)", "list the values"),
    ],
)
def test_a_sweep_without_jobs_or_end_is_refused(word, said):
    """N17: range(5,1) ended in a traceback, and other ranges without end or values with it."""
    with pytest.raises(UserError, match=re.escape(said)):
        trained("-m", word)


def test_several_long_lists_are_multiplied_before_they_are_listed():
    with pytest.raises(UserError, match=r"jobs: seed of 2,000 values times data\.size of 2,000 va"):
        trained("-m", "seed=range(0,2000)", "data.size=range(1,2001)")


@pytest.mark.slow
def test_glob_sweeps_over_the_choices_of_a_group():
    """N18: model=glob(...) ended in a traceback."""

    def chosen(word):
        return [words[0].partition("=")[2] for _, words in trained("-m", word)]

    assert chosen("model=glob(tiny_cl*)") == ["tiny_classifier", "tiny_clip", "tiny_clips"]
    assert chosen("model=glob([tiny_cl*,tiny_f*],exclude=[*er,*s])") == ["tiny_clip", "tiny_flava"]
    assert "null" not in chosen("loss=glob(*)")
    assert chosen("loss=choice(negatives,pair_aware)") == ["negatives", "pair_aware"]


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("model=glob(nope*)", "no choice of model matches; choose from .*tiny_clip"),
        ("seed=glob(*)", "glob.. lists choices of a group, and seed is a setting"),
        ("loss=null,glob(p*)", "glob.. is not one of several values"),
    ],
)
def test_glob_without_choices_is_refused(word, said):
    """N18."""
    with pytest.raises(UserError, match=said):
        trained("-m", word)


@pytest.mark.parametrize("word", ["model=glob(tiny_cl*)", "model=tiny_clip,tiny_flava"])
def test_several_choices_without_multirun_name_the_flag(word):
    """N18: the answer was the list of the choices, in which tiny_clip stood."""
    with pytest.raises(UserError, match=r"several choices: add --multirun"):
        trained(word)


@pytest.mark.slow
def test_equal_jobs_are_one_job_with_a_note(capsys):
    """N28: one run was planned four times, and refused for an arm=... that was not typed."""
    jobs = trained("-m", "data.cf_ratio=0.5,0.50", "seed=1,1")
    assert [words for _, words in jobs] == [["data.cf_ratio=0.5", "seed=1"]]
    said = capsys.readouterr().err
    assert "data.cf_ratio=0.5,0.50, seed=1,1" in said
    assert "each job is run once" in said
    jobs = trained("-m", "data.cf_ratio=1,1.0,0.5", "tuning=null,lora")
    assert len(jobs) == 4
    assert "data.cf_ratio=1.0 is data.cf_ratio=1" in capsys.readouterr().err
    trained("-m", "data.cf_ratio=0,0.5", "seed=1,2")
    assert capsys.readouterr().err == ""


def test_true_is_not_one():
    """N28: settings that are equal only for Python are different jobs."""
    assert len(leave_out_duplicated([({"a": True}, ["a=true"]), ({"a": 1}, ["a=1"])])) == 2
    assert len(leave_out_duplicated([({"a": [1.0]}, ["a=[1.0]"]), ({"a": [1]}, ["a=[1]"])])) == 1


@pytest.mark.slow
def test_different_jobs_of_one_folder_name_what_differs(place):
    """N28: only an arm=... that was typed is to be left out."""
    said = refusal(place.train, "-m", "arm=typed", "data.cf_ratio=0,0.5")
    assert "differ in data.cf_ratio: leave out arm=..., or give each its own" in said
    words = ["data.cf_ratio=0", "threads=1,2", "trainer.max_steps=0"]
    said = refusal(place.script("train"), ["-m", *place.paths, *words])
    assert "differ in threads, which does not change the result" in said
    assert "arm=" not in said


@pytest.mark.parametrize(
    ("words", "both"),
    [
        (["seed=1", "seed=2"], "seed=1 and seed=2"),
        (["--seed=1", "+seed=2"], "seed=1 and +seed=2"),
        (["++seed=1", "threads=1", "seed=2"], "++seed=1 and seed=2"),
        (["-m", "seed=1,2", "seed=3"], "seed=1,2 and seed=3"),
        (["data=folder", "data=shapescapes"], "data=folder and data=shapescapes"),
    ],
)  # fmt: skip
def test_a_setting_that_is_typed_twice_is_refused(tmp_path, monkeypatch, words, both):
    """N30: the last one won silently."""
    monkeypatch.chdir(tmp_path)
    assert refusal(train, words).startswith(f"error: duplicated setting: {both}: type ")


def test_the_same_word_may_stand_twice():
    """As in an agent's command and among its parameters."""
    assert len(trained("-m", "seed=1,2", "+threads=1", "threads=1", "seed=1,2")) == 2


def test_a_word_replaces_that_of_a_sweep_file(tmp_path):
    """N30: what is typed beside a sweep file is meant to replace its values."""
    file = tmp_path / "grid.yaml"
    content = {"seed": {"values": [1, 2]}, "data.cf_ratio": {"value": 0.5}}
    file.write_text(yaml.safe_dump({"method": "grid", "parameters": content}))
    for typed in ("seed=3", "++seed=3"):
        jobs = trained("-m", f"sweep={file}", typed)
        assert [(config["seed"], config["data"]["cf_ratio"]) for config, _ in jobs] == [(3, 0.5)]


@pytest.mark.slow
@settings(max_examples=examples(2))
@given(
    seeds=st.lists(st.integers(0, 2**32 - 2), min_size=2, max_size=2, unique=True),
    more=st.lists(
        st.sampled_from([
            "data.world.seed=3", "model=tiny_flava", "loss=negatives", "task=entailment",
            "name='x${seed}'", "name='${alternate:${seed},[a,b]}'",
        ]), max_size=1,
    ),
)  # fmt: skip
def test_jobs_that_share_their_files_are_as_if_composed_alone(seeds, more):
    """N29: the files of jobs that differ in their seed are merged once."""
    together = trained("-m", *more, f"seed={','.join(map(str, seeds))}", "data.cf_ratio=0,0.5")
    alone = [trained(*words)[0] for _, words in together]
    assert json.dumps(together) == json.dumps(alone)


@pytest.mark.slow
def test_a_long_sweep_shows_its_progress(place, monkeypatch):
    """N29: a sweep of many jobs was composed and planned without a word."""
    monkeypatch.setattr("cfaug.core.progress.LINE_SECONDS", 0.0)
    said = stderr_of(place.train, "-m", "data.cf_ratio=0", "seed=range(0,3)", "dry_run=true")
    assert re.search(r"composing the sweep: 2/3 jobs, [\d.]+ jobs/s, 0:00:\d\d left", said)
    assert re.search(r"planning the sweep: 2/3 jobs, [\d.]+ jobs/s, 0:\d\d:\d\d left", said)


# Sweepers of Hydra's, which choose the next run by the metric of the last ones.


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
    assert {run.arm for run in runs} == {f"lr={rate}" for rate in metrics}  # what is searched for
    file = place.root / ".launched/optimization_results.yaml"
    best = yaml.safe_load(file.read_text())
    assert str(file) in said
    assert best["best_value"] == max(metrics.values())
    assert metrics[best["best_params"]["optim.lr"]] == best["best_value"]
    assert stdout_of(place.train, *words).count("already done: ") == 2


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


@pytest.mark.slow
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
