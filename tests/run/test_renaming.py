"""Experiments and arms that were renamed, moved and copied; runs of one arm that do not belong."""

from __future__ import annotations

import csv
import json
import shutil

import pytest

from cfaug.report.arms import same_identity
from cfaug.report.records import read_run

ASKED = ["benchmark=shapescapes", "benchmark.only=[shapescapes_id_classification]"]
FAST = ["trainer.max_steps=1", "seed=107"]
LONG = "data.cf_ratio=0.6"


def arms_of(experiment):
    with (experiment / "table.csv").open() as handle:
        lines = [line for line in handle if not line.startswith("#")]
    return {row["arm"] for row in csv.DictReader(lines)}


@pytest.fixture
def mine(place):
    for arm, ratio in (("cf_ratio=0", 0), ("cf_ratio=0.6", 0.6)):
        assert place.train("name=mine", f"arm={arm}", f"data.cf_ratio={ratio}", *FAST) == 0
    assert place.evaluate("name=mine", *ASKED) == 0
    return place


@pytest.mark.slow
def test_experiments_and_arms_may_be_renamed_moved_and_copied(mine, tmp_path, capsys, monkeypatch):
    root = mine.root
    shutil.copytree(root / "mine", root / "v2")
    (root / "mine" / "cf_ratio=0.6").rename(root / "mine" / "sixty")
    before = {p.name: p.read_bytes() for p in (root / "v2").glob("table.*")}
    assert mine.evaluate("name=mine", *ASKED) == 0
    assert arms_of(root / "mine") == {"cf_ratio=0", "sixty"}
    assert {p.name: p.read_bytes() for p in (root / "v2").glob("table.*")} == before
    for file in (root / "v2").glob("table.*"):
        file.unlink()
    capsys.readouterr()
    assert mine.evaluate("name=v2", *ASKED) == 0
    assert "already evaluated" in capsys.readouterr().out
    assert arms_of(root / "v2") == {"cf_ratio=0", "cf_ratio=0.6"}
    assert arms_of(root / "mine") == {"cf_ratio=0", "sixty"}
    assert (
        "`v2`, `cf_ratio=0.6`"
        in (root / "v2/cf_ratio=0.6/seed=107/checkpoint/README.md").read_text()
    )
    # The renamed arm is still the run that it was.
    assert mine.train("name=mine", "arm=sixty", LONG, *FAST) == 0
    assert "already done" in capsys.readouterr().out
    # Arms of two experiments, linked into one.
    assert mine.evaluate("name=[mine,v2]", *ASKED) == 0
    assert "already evaluated" in capsys.readouterr().out
    assert arms_of(root / "mine+v2") >= {"mine-sixty", "v2-cf_ratio=0"}
    # The same by hand.
    (root / "both").mkdir()
    for name, arm in (("mine", "sixty"), ("v2", "cf_ratio=0")):
        (root / "both" / f"{name}-{arm}").symlink_to(f"../{name}/{arm}")
    assert mine.evaluate("name=both", *ASKED) == 0
    assert arms_of(root / "both") == {"mine-sixty", "v2-cf_ratio=0"}
    assert "already evaluated" in capsys.readouterr().out
    # Elsewhere altogether, named by folder.
    (root / "v2").rename(tmp_path / "moved")
    monkeypatch.chdir(tmp_path / "moved" / "cf_ratio=0")
    for file in (tmp_path / "moved").glob("table.*"):
        file.unlink()
    assert mine.evaluate('runs=["seed=107"]', *ASKED) == 0
    assert arms_of(tmp_path / "moved") == {"cf_ratio=0", "cf_ratio=0.6"}
    assert not (root / "v2").exists()


@pytest.mark.slow
def test_runs_unlike_the_others_of_their_arm_and_damaged_ones_do_not_enter(mine, capsys):
    root = mine.root / "mine"
    for seed, steps in ((108, 2), (109, 1)):
        for ratio in (0, 0.6):
            words = ["name=mine", f"arm=cf_ratio={ratio}", f"data.cf_ratio={ratio}", f"seed={seed}"]
            assert mine.train(*words, f"trainer.max_steps={steps}") == 0
    capsys.readouterr()
    assert mine.evaluate("name=mine", *ASKED) == 0
    said = capsys.readouterr()
    assert "cf_ratio=0.6/seed=108 (trainer.max_steps is 2, not 1)" in said.err
    with (root / "table.csv").open() as handle:
        lines = [line for line in handle if not line.startswith("#")]
    assert {row["n"] for row in csv.DictReader(lines)} == {"2"}
    assert "trainer.max_steps is 2, not 1" in (root / "report.html").read_text()
    # A record of the wrong type is one sentence, and the others are evaluated all the same.
    for arm in ("cf_ratio=0", "cf_ratio=0.6"):
        file = root / arm / "seed=109" / "run.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), "seed": "x", "arm": None}))
    (root / "table.csv").unlink()
    assert mine.evaluate("name=mine", *ASKED) == 2
    said = capsys.readouterr().err
    assert "seed=109/run.json: 'seed' is \"x\"; it should be a whole number" in said
    assert "Traceback" not in said
    assert arms_of(root) == {"cf_ratio=0", "cf_ratio=0.6"}


def test_a_metric_lost_with_a_torn_line_is_measured_again(place, capsys):
    assert place.train(LONG, *FAST) == 0
    words = ["benchmark=shapescapes", "benchmark.only=[shapescapes_id_retrieval]"]
    assert place.evaluate(*words) == 0
    file = place.root / "main/run/seed=107/results.jsonl"
    whole = file.read_bytes()
    file.write_bytes(whole[:-30])
    assert place.evaluate(*words) == 0
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    first = [json.loads(line) for line in whole.decode().splitlines()]
    assert rows[len(first) - 1 :] == first
    capsys.readouterr()
    assert place.evaluate(*words) == 0
    assert "already evaluated" in capsys.readouterr().out


@pytest.mark.slow
def test_seeds_of_one_arm_may_start_from_other_weights_and_worlds(place):
    words = ["model=tiny_clips", "data.world.seed=null", "trainer.max_steps=0", "arm=x"]
    for seed in (106, 107, 108):
        assert place.train(*words, f"seed={seed}") == 0
    assert place.train(*words, "seed=109", "model.name_or_path=zoo:clip-1") == 0
    assert place.train(*words, "seed=110", "data.cf_ratio=0.1") == 0
    runs = [read_run(place.root / "main/x" / f"seed={seed}") for seed in range(106, 111)]
    first = runs[0].record
    assert first["by_seed"]["model.name_or_path"].startswith("${alternate:${seed}")
    assert first["by_seed"]["data.real"] == "shapescapes:real"
    assert len({run.record["identity"]["content.real"] for run in runs}) == 5
    kept, left_out = same_identity(runs)
    assert [run.seed for run in kept] == [106, 107, 108]
    assert "seed=109 (content.weights is " in left_out[0]
    assert "seed=110 (data.cf_ratio is 0.1, not 0.5)" in left_out[1]
