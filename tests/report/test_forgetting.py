from __future__ import annotations

import json

import pytest

from cfaug.report.checkpoint_tables import MetricChange, changes, falls, initial_values, sentences
from cfaug.report.results import Result, append_results

BASE = "f" * 64


def make_run(folder, values, *, steps=150, weights="trained", initial=BASE, data="asked"):
    """A run's folder with one result a metric."""
    arm, seed = folder.parent.name, int(folder.name.removeprefix("seed="))
    rows = [
        Result("x", arm, seed, benchmark, metric, value, 100, weights, data)
        for (benchmark, metric), value in values.items()
    ]
    folder.mkdir(parents=True)
    append_results(folder / "results.jsonl", rows)
    record = {"state": "done", "arm": arm, "seed": seed, "steps": steps,
              "identity": {"content.weights": initial}}  # fmt: skip
    (folder / "run.json").write_text(json.dumps(record))
    return folder


ACC, R1 = ("zero_classification", "acc1"), ("pairs_retrieval", "image_to_text_R@1")


def test_a_run_is_compared_with_the_run_of_no_steps(tmp_path):
    before = {ACC: 0.8, R1: 0.5, ("zero_classification", "acc5"): 0.9}
    make_run(tmp_path / "main/before/seed=1", before, steps=0, weights="saved as float32")
    run = make_run(
        tmp_path / "main/real/seed=1", {ACC: 0.75, R1: 0.6, ("zero_classification", "acc5"): 0.1}
    )
    found = changes(run, initial_values(tmp_path / "main"))
    assert [(c.benchmark, c.metric, c.before, c.after) for c in found] == [
        (*ACC, 0.8, 0.75), (*R1, 0.5, 0.6),
    ]  # fmt: skip
    assert [(fall.arm, fall.metric) for fall in falls(found, 0.02)] == [("real", "acc1")]
    assert falls(found, 0.06) == []
    assert changes(tmp_path / "main/before/seed=1", initial_values(tmp_path / "main")) == []


def test_a_checkpoint_that_was_evaluated_is_known_by_its_hash(tmp_path):
    make_run(tmp_path / "weights/zoo-clip-0/seed=1", {ACC: 0.8}, weights=BASE)
    make_run(tmp_path / "weights/other/seed=1", {ACC: 0.1}, weights="e" * 64)
    run = make_run(tmp_path / "main/real/seed=1", {ACC: 0.7})
    [change] = changes(run, initial_values(tmp_path / "main"))
    assert change.before == 0.8
    assert change.difference == pytest.approx(-0.1)


@pytest.mark.parametrize("other", [{"initial": "0" * 64}, {"data": "another world"}, {"data": ""}])
def test_other_weights_and_other_questions_are_not_compared(tmp_path, other):
    make_run(tmp_path / "main/before/seed=1", {ACC: 0.8}, steps=0, **other)
    run = make_run(tmp_path / "main/real/seed=1", {ACC: 0.1})
    assert changes(run, initial_values(tmp_path / "main")) == []


def change(arm, seed, before, after):
    return MetricChange(arm, seed, *ACC, before, after, 100)


def test_an_arm_falls_by_the_mean_of_its_runs():
    """One seed in three fell by ten points: 3.3 on the mean; the other arm rose."""
    found = [change("a", 1, 0.8, 0.7), change("a", 2, 0.8, 0.8), change("a", 3, 0.8, 0.8),
             change("b", 1, 0.8, 0.9)]  # fmt: skip
    [fall] = falls(found, 0.02)
    assert (fall.arm, fall.runs) == ("a", 3)
    assert str(fall) == (
        "a: zero_classification acc1 fell from 80.0 % to 76.7 % (-3.3 points, 3 runs)"
    )
    assert falls(found, 0.04) == []
    assert "more than 2 points: a:" in sentences(found, 0.02)[0]
    assert sentences(found, 0.04) == ["None of 1 watched metrics fell by more than 4 points."]
    assert "evaluate_initial=true" in sentences([], 0.04)[0]
    assert sentences(found, None) == []


def test_arms_that_fell_on_one_benchmark_are_told_in_one_line():
    found = [change(arm, seed, 0.8, after) for arm, after in (("a", 0.7), ("b", 0.5), ("c", 0.8))
             for seed in (1, 2)]  # fmt: skip
    assert sentences(found, 0.02) == [
        "forgetting, more than 2 points: zero_classification acc1 fell in 2 arms: "
        "a from 80.0 to 70.0 %, b from 80.0 to 50.0 %"
    ]
