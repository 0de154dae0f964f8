"""Experiments of several arms: their tables, their comparison, and several in one."""

from __future__ import annotations

import csv
import io
import json
import math
import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import cfaug
from cfaug.core.errors import UserError
from cfaug.report.arms import Arm, arm_labels
from cfaug.report.layout import comparisons_csv
from cfaug.report.results import Result, append_results
from cfaug.report.significance_table import significance_table
from cfaug.run.compare import Comparison, _equal_labels, compare, join_experiments
from tests.report.example import OOD, results
from tests.run.conftest import Place, output_of, refusal, stdout_of


@pytest.fixture(scope="module")
def good(tmp_path_factory, shards, script):
    """One experiment of two arms over two seeds, evaluated."""
    place = Place(tmp_path_factory.mktemp("runs"), shards, script)
    for arm, ratio, size in (("real", 0, 30), ("counterfactual", 0.6, 75)):
        words = [f"arm={arm}", f"data.cf_ratio={ratio}", "seed=1,2", "name=good"]
        assert place.train("--multirun", *words, f"data.size={size}") == 0
    assert place.evaluate() == 0
    return place.root


@pytest.fixture
def trained(place, good):
    return place.begin_with(good)


def copied(place, name):
    """Copy the experiment under another name."""
    folder = place.root / name
    shutil.copytree(place.root / "good", folder, ignore=shutil.ignore_patterns("table.*"))
    for file in folder.glob("*/seed=*/run.json"):
        file.write_text(json.dumps({**json.loads(file.read_text()), "experiment": name}))
    return folder


def lines(folder, name="table.csv"):
    with (folder / name).open() as handle:
        return list(csv.DictReader(handle))


@pytest.mark.slow
def test_every_experiment_gets_its_table_though_another_fails(trained):
    shutil.rmtree(copied(trained, "a_seed_less") / "real" / "seed=2")
    (copied(trained, "b_record") / "real/seed=1/run.json").write_text("{")
    (copied(trained, "c_config") / "counterfactual/seed=1/config.yaml").write_text("model: [")
    # An arm that was named by hand hides what it was trained with.
    for file in copied(trained, "z_last").glob("real/seed=*/run.json"):
        record = json.loads(file.read_text())
        usual = record["identity"]["optim.lr"]
        record["identity"]["optim.lr"] = 0.5
        file.write_text(json.dumps(record))
    said, errors = output_of(trained.evaluate, code=2)
    before_evaluating = errors.index("experiment a_seed_less: Compared on seed 1")
    assert "real only lacks seed 2" in errors[before_evaluating:]
    assert "real only lacks seed 2" in (trained.root / "a_seed_less/table.md").read_text()
    assert {row["n"] for row in lines(trained.root / "a_seed_less")} == {"1"}
    assert str(trained.root / "b_record/real/seed=1/run.json") in errors
    assert str(trained.root / "c_config/counterfactual/seed=1/config.yaml") in errors
    assert (
        f"Arms differ in more than their data: optim.lr {usual} (real + counterfactual pairs), "
        "0.5 (real only)."
    ) in (trained.root / "z_last/table.md").read_text()
    assert "more than their data" not in (trained.root / "good/table.md").read_text()
    assert (trained.root / "z_last/report.html").exists()
    assert "Traceback" not in errors
    # More than three experiments: a line each, with the way to its table.
    [line] = [line for line in said.splitlines() if line.startswith("z_last: ")]
    assert line.startswith("z_last: 2 arms, ")
    assert line.endswith(str(trained.root / "z_last/table.md"))
    assert "±" not in said
    assert said.count("already evaluated: ") <= 7


@pytest.mark.slow
def test_the_table_and_its_family_are_what_was_asked(trained):
    folder = trained.root / "good"
    first = lines(folder)
    assert (
        "Arms differ in their number of training examples: 24 (real only); 60 (real + "
        "counterfactual pairs)."
    ) in (folder / "table.md").read_text()
    benchmarks = {row["benchmark"] for row in first}
    assert len(benchmarks) > 3
    # Over seeds and items at once, beside it and in its documents.
    joint = lines(folder, "seeds_and_items.csv")
    assert {row["benchmark"] for row in joint} == benchmarks
    assert {row["seeds"] for row in joint} == {"2"}
    for file in ("table.md", "report.html"):
        assert "Comparisons over seeds and items" in (folder / file).read_text()
    only = ["benchmark=ood", "benchmark.only=[shapescapes_ood_colour_classification]"]
    said = " ".join(stdout_of(trained.evaluate, "name=good", *only).split())
    assert "±" in said
    assert {row["benchmark"] for row in lines(folder)} == {"shapescapes_ood_colour_classification"}
    assert "tabulate=all adds shapescapes_id_retrieval" in said
    assert f"{len(lines(folder)) // 2} comparisons: 1 arm against real only on" in said
    assert trained.evaluate("name=good", *only, "tabulate=all") == 0
    everything = {row["benchmark"] for row in lines(folder)}
    assert everything == benchmarks | {"shapescapes_ood_colour_classification"}
    # The suite of the run itself again: neither more questions since nor a table less has changed
    # a corrected p.
    assert trained.evaluate("name=good", "comparison.seeds_and_items=false") == 0
    again = lines(folder)
    assert all("adds shapescapes_ood_colour_classification" in row.pop("note") for row in again)
    assert again == [{k: v for k, v in row.items() if k != "note"} for row in first]
    assert not (folder / "seeds_and_items.csv").exists()
    assert "Comparisons over seeds and items" not in (folder / "table.md").read_text()
    said = refusal(trained.evaluate, "name=good", "tabulate=everything")
    assert "tabulate=everything: choose from asked, all" in said


@pytest.mark.slow
def test_a_baseline_may_be_named_as_the_table_calls_it(trained):
    folder = copied(trained, "labelled")
    (folder / "real").rename(folder / "cf_ratio=0,real=x")
    (folder / "counterfactual").rename(folder / "cf_ratio=0.6,real=x")
    assert trained.evaluate("name=labelled", "baseline='cf_ratio=0.6'") == 0
    once = lines(folder)
    assert {row["baseline"] for row in once} == {"cf_ratio=0.6,real=x"}
    # By both of its names it is still one: nothing is corrected for twice.
    both = "baseline=['cf_ratio=0.6','cf_ratio=0.6,real=x']"
    assert trained.evaluate("name=labelled", both) == 0
    assert lines(folder) == once
    said = refusal(trained.evaluate, "name=labelled", "baseline='cf_ratio=0.7'")
    assert "no arm is called 'cf_ratio=0.7'" in said


# What ``cfaug.compare`` returns is what the table says.


@pytest.fixture(scope="module")
def rows():
    return results()


@pytest.fixture(scope="module")
def comparison(rows):
    table = significance_table(rows, ["real"], frozenset({"before"}))
    return Comparison(Path("demo"), table, tuple(rows))


def test_a_difference_is_a_paired_t_test_with_its_own_interval(comparison, rows):
    [difference] = [d for d in comparison if (d.arm, d.benchmark) == ("counterfactual", OOD)]
    values = {arm: [r.value for r in rows if (r.arm, r.benchmark) == (arm, OOD)]
              for arm in ("counterfactual", "real")}  # fmt: skip
    test = stats.ttest_rel(values["counterfactual"], values["real"])
    gains = np.subtract(values["counterfactual"], values["real"])
    assert difference.value == pytest.approx(gains.mean())
    assert difference.interval == pytest.approx(test.confidence_interval(0.95))
    assert (difference.p, difference.over) == (pytest.approx(test.pvalue), "seeds")
    assert difference.test == "Student's t, paired by seed"


def test_the_family_is_corrected_together(comparison):
    """Against statsmodels' definition: the k-th smallest p times the number that are left."""
    assert len(comparison.family) == len(comparison) == 8
    p = sorted(row.p for row in comparison.family)
    holm = np.minimum(1, np.maximum.accumulate([v * (8 - i) for i, v in enumerate(p)]))
    assert sorted(row.p_holm for row in comparison.family) == pytest.approx(list(holm))


def test_pandas_has_the_rows_of_the_csv(comparison):
    frame = comparison.to_pandas()
    text = comparisons_csv(comparison._table)
    pd.testing.assert_frame_equal(frame, pd.read_csv(io.StringIO(text)))
    assert list(frame[frame.arm != frame.baseline]["diff"]) == [row.value for row in comparison]


def test_it_prints_the_table(comparison):
    assert OOD in str(comparison)
    assert comparison.notes[0].partition(":")[0] == "Seeds per arm"
    assert "Seeds per arm" in str(comparison)


def test_without_a_test_there_is_no_p(rows):
    one_seed = [row for row in rows if row.seed == 11]
    table = significance_table(one_seed, ["real"], frozenset({"before"}))
    untested = Comparison(Path("demo"), table, tuple(one_seed))
    assert not untested.family
    for difference in untested:
        assert math.isnan(difference.p)
        assert (difference.over, difference.test) == (None, "one seed")


def test_without_pandas_the_remedy_is_named(comparison, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(UserError, match=r"pip install 'cfaug\[notebook\]'"):
        replace(comparison).to_pandas()


# What the files of a table say, of runs that were laid without training.


@pytest.fixture
def laid(tmp_path):
    """Two arms over two seeds, measured on ``first`` before ``second``."""
    for arm, value in (("cf_ratio=0", 0.5), ("cf_ratio=0.5", 0.6)):
        for seed in (1, 2):
            folder = tmp_path / "study" / arm / f"seed={seed}"
            folder.mkdir(parents=True)
            record = {
                "state": "done", "seed": seed, "steps": 9, "cf_ratio": float(arm.split("=")[1]),
                "identity": {"data.cf_ratio": float(arm.split("=")[1])},
            }  # fmt: skip
            (folder / "run.json").write_text(json.dumps(record))
            (folder / "config.yaml").write_text(
                "data:\n  _target_: cfaug.data.mixture.settings.RatioData\n"
                "  real: null\n  counterfactual: null\n  seed: 2\n"
            )
            rows = [
                Result("x", arm, seed, name, "acc1", value + seed / 50, 40, f"{arm} {seed}", "d")
                for name in ("first", "second")
            ]
            append_results(folder / "results.jsonl", rows)
    return tmp_path / "study"


def test_a_caution_stands_only_with_the_benchmark_that_it_is_about(laid):
    """Forgetting on photos of an earlier command was printed below another test's table."""
    cautions = {name: [f"forgetting: {name} acc1 fell"] for name in ("first", "second")}
    files = ("table.md", "table.tex", "table.csv", "report.html")
    for every, cautioned in ((False, 1), (True, 2)):
        table = compare(
            laid, None, lambda data, count: [], cautions, primary_metrics={"second": ()},
            every_benchmark=every,
        )  # fmt: skip
        assert len(table.cautions) == cautioned
        for file in files:
            text = (laid / file).read_text()
            assert "forgetting: second acc1 fell" in text
            assert ("forgetting: first acc1 fell" in text) == every
        if every:
            tables = (laid / "table.tex").read_text().split(r"\caption{")[1:]
            below = [re.findall(r"forgetting: (\w+)", part) for part in tables]
            assert below == [["first"], ["second"]]


def test_the_report_is_about_the_commands_benchmark(laid):
    for every in (False, True):
        compare(
            laid, None, lambda data, count: [], primary_metrics={"second": ()},
            every_benchmark=every,
        )  # fmt: skip
        page = (laid / "report.html").read_text()
        said = re.search(r"<h1>(.*?)</h1>", page, re.DOTALL)[1]
        assert "on second" in said
    text = (laid / "table.tex").read_text()
    assert "adds first" not in text
    compare(laid, None, lambda data, count: [], primary_metrics={"second": ()},
            every_benchmark=False)  # fmt: skip
    below, *comments = (laid / "table.tex").read_text().split("\n% ")
    assert "adds first" not in below
    assert any("tabulate=all adds first." in line for line in comments)


# name=[a,b]: the arms of several experiments in one table.


def lay_run(root, experiment, arm, seed=107):
    folder = root / experiment / arm / f"seed={seed}"
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps({"state": "done", "seed": seed}))
    return folder


def test_arms_are_linked_and_kept_up(tmp_path):
    lay_run(tmp_path, "a", "real")
    lay_run(tmp_path, "b", "real")
    assert join_experiments(tmp_path, ["a", "b"]) == "a+b"
    joined = tmp_path / "a+b"
    assert sorted(arm.name for arm in joined.iterdir()) == ["a-real", "b-real"]
    assert (joined / "b-real").resolve() == tmp_path / "b/real"
    (joined / "table.csv").write_text("kept")
    lay_run(tmp_path, "b", "more")
    (tmp_path / "a/real").rename(tmp_path / "a/same")
    join_experiments(tmp_path, ["a", "b"])
    assert sorted(arm.name for arm in joined.iterdir() if arm.is_symlink()) == [
        "a-same", "b-more", "b-real",
    ]  # fmt: skip
    assert (joined / "table.csv").read_text() == "kept"


def test_what_cannot_be_joined_is_named(tmp_path):
    lay_run(tmp_path, "a", "real")
    lay_run(tmp_path, "b", "real")
    for names, said in (
        (["a"], "two experiments or more"),
        (["a", "a"], "each once"),
        (["a", "b+c"], r"a name with \+ cannot be joined"),
        (["a", "c"], "holds no run; there are: a, b"),
    ):
        with pytest.raises(UserError, match=said):
            join_experiments(tmp_path, names)
    lay_run(tmp_path, "a+b", "mine")
    with pytest.raises(UserError, match="holds mine, which is not a linked arm"):
        join_experiments(tmp_path, ["a", "b"])
    assert (tmp_path / "a+b/mine/seed=107/run.json").is_file()


def test_names_that_come_to_one_are_refused(tmp_path):
    lay_run(tmp_path, "a", "b-c")
    lay_run(tmp_path, "a-b", "c")
    with pytest.raises(UserError, match="two arms would be called a-b-c"):
        join_experiments(tmp_path, ["a", "a-b"])


@pytest.mark.slow
def test_the_command_tables_both(trained):
    shutil.rmtree(copied(trained, "a") / "counterfactual")
    shutil.rmtree(copied(trained, "b") / "real")
    for file in trained.root.glob("[ab]/*/*/results.jsonl"):
        file.unlink()
    words = ["benchmark=ood", "benchmark.only=shapescapes_ood_solids_classification"]
    assert trained.evaluate("name=[a,b]", "baseline=a-real", *words) == 0
    assert {row["arm"] for row in lines(trained.root / "a+b")} == {"a-real", "b-counterfactual"}
    settings = {"paths.runs": str(trained.root), "benchmark.only": [words[1].partition("=")[2]]}
    joined = cfaug.compare(["a", "b"], settings, baseline="a-real", benchmark="ood")
    assert {(row.arm, row.baseline) for row in joined} == {("b-counterfactual", "a-real")}
    assert len(joined.results) == len(joined.to_pandas()) * 2  # of two seeds
    assert joined.folder == (trained.root / "a+b").absolute()
    assert (trained.root / "a/real/seed=1/results.jsonl").is_file()


def test_arms_with_equal_labels_are_named():
    arms = {name: Arm(name) for name in ("lr=1,size=5", "lr=2,size=5", "real")}
    automatic = arm_labels(arms)
    for given, alike in (
        ({"lr=1": "mine", "lr=2,size=5": "mine"}, ["lr=1,size=5, lr=2,size=5"]),
        ({"lr=1": "mine", "real": "yours"}, []),
    ):
        notes = _equal_labels(automatic, arm_labels(arms, given), given)
        assert notes == [f"Arms with equal labels keep their names: {names}." for names in alike]
