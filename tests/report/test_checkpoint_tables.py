"""What fine-tuning forgets, and gain against forgetting at every mixing factor."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from scipy.stats import binomtest

from cfaug.core.errors import UserError
from cfaug.report.arm_results import MissingError, Runs
from cfaug.report.checkpoint_tables import (
    MetricChange,
    WiseFtTable,
    alarms,
    changes,
    falls,
    initial_values,
    interpolated_arm,
    sentences,
)
from cfaug.report.document import read_document, write_document
from cfaug.report.paper_tables import write_tables_page
from cfaug.report.results import Result, append_results
from cfaug.stats.effects import t_interval

BASE = "f" * 64


def make_run(folder, values, *, steps=150, weights="trained", initial=BASE, data="asked"):
    """A run's folder with one result a metric."""
    arm, seed = folder.parent.name, int(folder.name.removeprefix("seed="))
    rows = [
        Result("x", arm, seed, benchmark, metric, value, 1000, weights, data)
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
    metric_changes = changes(run, initial_values(tmp_path / "main"))
    assert [(c.benchmark, c.metric, c.before, c.after) for c in metric_changes] == [
        (*ACC, 0.8, 0.75), (*R1, 0.5, 0.6),
    ]  # fmt: skip
    assert [(fall.arm, fall.metric) for fall in falls(metric_changes, 0.02)] == [("real", "acc1")]
    assert falls(metric_changes, 0.06) == []
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


def change(arm, seed, before, after, items=1000, chance=None):
    return MetricChange(arm, seed, *ACC, before, after, items, chance)


def test_an_arm_falls_by_the_mean_of_its_runs():
    """One seed in three fell by ten points: 3.3 on the mean; the other arm rose."""
    metric_changes = [change("a", 1, 0.8, 0.7), change("a", 2, 0.8, 0.8), change("a", 3, 0.8, 0.8),
                      change("b", 1, 0.8, 0.9)]  # fmt: skip
    [fall] = falls(metric_changes, 0.02)
    assert (fall.arm, fall.runs) == ("a", 3)
    assert str(fall) == (
        "a: zero_classification acc1 fell from 80.0 % to 76.7 % (-3.3 points, 3 runs)"
    )
    assert falls(metric_changes, 0.04) == []
    assert "more than 2 points: a:" in sentences(metric_changes, 0.02)[0]
    assert sentences(metric_changes, 0.04) == [
        "None of 1 watched metrics fell by more than 4 points."
    ]
    assert "evaluate_initial=true" in sentences([], 0.04)[0]
    assert sentences(metric_changes, None) == []


def test_arms_that_fell_on_one_benchmark_are_told_in_one_line():
    metric_changes = [
        change(arm, seed, 0.8, after)
        for arm, after in (("a", 0.7), ("b", 0.5), ("c", 0.8))
        for seed in (1, 2)
    ]
    assert sentences(metric_changes, 0.02) == [
        "forgetting, more than 2 points: zero_classification acc1 fell in 2 arms: "
        "a from 80.0 to 70.0 %, b from 80.0 to 50.0 %"
    ]


def test_five_photos_at_chance_show_no_forgetting():
    """One photo of five in three seeds was found, which is chance, and then none of five."""
    few = [change("a", seed, 0.2, after, 5, 0.2) for seed, after in enumerate((0.2, 0.0, 0.0))]
    assert sentences(few, 0.02) == [
        "zero_classification acc1: 20.0 % before and 6.7 % after, of 5 items: too few to show "
        "forgetting."
    ]
    assert alarms(few, 0.02) == {}


@pytest.mark.parametrize(
    ("before", "after", "items", "chance", "why"),
    [
        (0.25, 0.05, 100, 0.25, "at chance (25.0 %) before, so it shows no forgetting"),
        (0.25, 0.05, 100, 0.1, ""),
        (0.25, 0.05, 100, None, ""),
        (0.9, 0.85, 100, 0.1, "too few to show forgetting"),  # five of the six that it takes
        (0.9, 0.84, 100, 0.1, ""),
    ],
)
def test_a_fall_shows_forgetting_from_above_chance_and_by_enough_items(
    before, after, items, chance, why
):
    [fall] = falls([change("a", 1, before, after, items, chance)], 0.02)
    assert fall.unshown == why
    lost = round(items * (before - after))
    tests = [binomtest(lost, lost, 0.5).pvalue <= 0.05]
    if chance is not None:
        right = round(items * before)
        tests.append(binomtest(right, items, chance, alternative="greater").pvalue <= 0.05)
    assert (not why) == all(tests)
    assert bool(alarms([change("a", 1, before, after, items, chance)], 0.02)) == (not why)


def test_alarms_are_told_by_benchmark():
    part = MetricChange("a", 1, "stress [edit=blur]", "acc1", 0.9, 0.5, 100)
    warned = alarms([change("a", 1, 0.8, 0.7), part], 0.02)
    assert {name: len(lines) for name, lines in warned.items()} == {ACC[0]: 1, "stress": 1}


def test_chance_is_that_of_the_results(tmp_path):
    make_run(tmp_path / "main/before/seed=1", {ACC: 0.8}, steps=0)
    run = make_run(tmp_path / "main/real/seed=1", {ACC: 0.75})
    file = run / "results.jsonl"
    file.write_text(json.dumps({**json.loads(file.read_text()), "chance": 0.5}) + "\n")
    [known] = changes(run, initial_values(tmp_path / "main"))
    assert (known.n, known.chance) == (1000, 0.5)


GAIN = {"benchmark": "pairs", "metric": "group", "name": "pairs"}
COST = {"benchmark": "nats", "metric": "loss"}
FACTORS = (0.0, 0.5, 1.0)
SEEDS = (3, 4, 5)


def value(arm, factor, seed, cost):
    draw = np.random.default_rng([len(arm), int(10 * factor), seed, cost])
    return float(draw.random()) + (factor if not cost else -factor)


def fill(root, arms=("a", "bb"), factors=FACTORS, seeds=SEEDS, data="d"):
    for arm in arms:
        for factor in factors:
            name = interpolated_arm(arm, factor)
            for seed in seeds:
                folder = root / "exp" / name / f"seed={seed}"
                folder.mkdir(parents=True)
                gain, cost = (value(arm, factor, seed, which) for which in (0, 1))
                given = (f"exp/{name}/seed={seed}", name, seed)
                append_results(
                    folder / "results.jsonl",
                    [
                        Result(*given, "pairs", "group", gain, 10, "w", data),
                        Result(
                            *given, "nats", "loss", cost, 10, "w", data,
                            better="lower", unit="nats",
                        ),
                    ],
                )  # fmt: skip
    return Runs(root)


def table(**given):
    usual = {"name": "wise_ft", "title": "t", "experiment": "exp", "gain": GAIN, "cost": COST}
    return WiseFtTable(**(usual | given))


def test_values_and_changes_are_those_of_the_rows(tmp_path):
    document = table(arms={"bb": "Second", "a": "First"}).build(fill(tmp_path))
    [part] = document.parts
    assert [labels for labels, _ in part.rows] == [
        (arm, factor) for arm in ("Second", "First") for factor in ("0", "0.5", "1")
    ]
    for (arm, factor), cells in part.rows:
        name = {"Second": "bb", "First": "a"}[arm]
        for at, cost in ((0, 0), (2, 1)):
            values = [value(name, float(factor), seed, cost) for seed in SEEDS]
            change = [v - value(name, 0.0, s, cost) for v, s in zip(values, SEEDS, strict=True)]
            assert cells[at].numbers["value"] == pytest.approx(np.mean(values))
            assert cells[at].numbers["sd"] == pytest.approx(np.std(values, ddof=1))
            assert cells[at + 1].numbers["value"] == pytest.approx(np.mean(change))
            low, _ = t_interval(change)
            assert (cells[at + 1].small == "–") == bool(np.isnan(low)) == (factor == "0")
    assert "lower is better" in part.columns[2]
    [plot] = document.tradeoffs
    assert plot.units == ("nats", "fraction")
    assert plot.x_title == "change of nats loss (nats, lower is better)"
    assert plot.y_title == "change of pairs (points)"
    for point, xs, ys in plot.series["First"]:
        for seed in SEEDS:
            gain, cost = (
                value("a", float(point), seed, c) - value("a", 0.0, seed, c) for c in (0, 1)
            )
            assert (xs[seed], ys[seed]) == pytest.approx((cost, gain))


def test_the_page_has_the_curve_and_the_file_is_read_back(tmp_path):
    document = table().build(fill(tmp_path, arms=("a<b",)))
    write_document(document, tmp_path / "tables")
    assert read_document(tmp_path / "tables" / "wise_ft.json") == document
    page = write_tables_page(tmp_path / "tables").read_text()
    assert "a&lt;b, 0.5:" in page
    assert "a<b, 0.5" not in page
    whisker = r"<path d=[^>]*fill: none; stroke: var\(--accent\); stroke-width: 1.6"
    assert len(re.findall(whisker, page)) == 2 * len(FACTORS)


@pytest.mark.parametrize(
    ("filled", "given", "message"),
    [
        ({"factors": (0.5, 1.0)}, {}, r"a with wise_ft=\[0,\.\.\.\]"),
        ({}, {"arms": {"c": "C"}}, r"c with wise_ft"),
        ({}, {"experiment": "other"}, r"asked with wise_ft=\[0"),
        ({}, {"gain": {"benchmark": "x", "metric": "y"}}, r"x y of a,wise_ft=0"),
    ],
)
def test_what_is_missing_is_named(tmp_path, filled, given, message):
    with pytest.raises(MissingError, match=message):
        table(**given).build(fill(tmp_path, **filled))


def test_factors_of_other_seeds_are_not_compared(tmp_path):
    fill(tmp_path, arms=("a",), factors=(0.0,))
    runs = fill(tmp_path, arms=("a",), factors=(1.0,), seeds=(3, 4))
    with pytest.raises(MissingError, match=r"pairs group of a,wise_ft=1"):
        table().build(runs)


def test_settings_are_checked(tmp_path):
    with pytest.raises(UserError, match=r"table\.experiment=NAME"):
        table(experiment=None).build(Runs(tmp_path))
    with pytest.raises(UserError, match=r"table\.gain"):
        table(gain={"metric": "x"}).build(Runs(tmp_path))
