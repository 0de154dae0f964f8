"""name=[a,b]: the arms of several experiments in one table."""

from __future__ import annotations

import csv
import json

import pytest

import cfaug
from cfaug.core.errors import UserError
from cfaug.run.compare import join_experiments


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
    assert sorted(one.name for one in joined.iterdir()) == ["a-real", "b-real"]
    assert (joined / "b-real").resolve() == tmp_path / "b/real"
    (joined / "table.csv").write_text("kept")
    lay_run(tmp_path, "b", "more")
    (tmp_path / "a/real").rename(tmp_path / "a/same")
    join_experiments(tmp_path, ["a", "b"])
    assert sorted(one.name for one in joined.iterdir() if one.is_symlink()) == [
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
def test_the_command_tables_both(place):
    assert place.train("data.cf_ratio=0", "seed=107,108", "--multirun", "name=a", "arm=real") == 0
    assert place.train("data.cf_ratio=0.5", "seed=107,108", "--multirun", "name=b", "arm=half") == 0
    words = ["benchmark=ood", "benchmark.only=shapescapes_ood_solids_classification"]
    assert place.evaluate("name=[a,b]", "baseline=a-real", *words) == 0
    with (place.root / "a+b/table.csv").open() as handle:
        arms = {row["arm"] for row in csv.DictReader(handle)}
    assert arms == {"a-real", "b-half"}
    settings = {"paths.runs": str(place.root), "benchmark.only": [words[1].partition("=")[2]]}
    found = cfaug.compare(["a", "b"], settings, baseline="a-real", benchmark="ood")
    assert {(one.arm, one.baseline) for one in found} == {("b-half", "a-real")}
    assert len(found.results) == len(found.to_pandas()) * 2  # of two seeds
    assert found.folder == (place.root / "a+b").absolute()
    assert (place.root / "a/real/seed=107/results.jsonl").is_file()
