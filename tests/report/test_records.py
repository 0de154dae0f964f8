"""Runs are what their place says, arms are runs of one identity, what is damaged is named."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cfaug.core.errors import UserError
from cfaug.report.arm_results import collect
from cfaug.report.checkpoint_tables import changes, initial_values
from cfaug.report.experiment_report import _effort_part, _provenance
from cfaug.report.records import (
    LEAKS,
    OPTIONAL,
    REQUIRED,
    check_record,
    leak_sentences,
    read_config,
    read_run,
    setting_node,
    training_seconds,
)
from cfaug.report.results import Result, append_results
from tests.properties import examples

ROW = Result("demo/real/seed=1", "real", 1, "own_retrieval", "R@1", 0.5, 80, "abc")
IDENTITY = {
    "seed": 1, "data.seed": 2, "optim.lr": 1e-3, "trainer.max_steps": 2, "data.world": None,
    "content.real": "2:aa", "content.weights": "ww",
}  # fmt: skip
SAYS_IT = {"model.weights": "${alternate:${seed},[a,b]}"}


def put(root: Path, run: str, *, by_seed: dict | None = None, **record) -> Path:
    """Write a run's folder with one result; ``record`` replaces fields, ``_`` stands for a dot."""
    folder = root / run
    experiment, arm, seed = run.split("/")
    number = int(seed.removeprefix("seed="))
    changed = record.pop("changed", {})
    content = {
        "state": "done", "experiment": experiment, "arm": arm, "seed": number, "cf_ratio": 0.5,
        "steps": 2, "counts": {"train": 5, "counterfactual": 2},
        "identity": {**IDENTITY, "seed": number, "data.seed": number + 1, **changed},
        **({} if by_seed is None else {"by_seed": by_seed}), **record,
    }  # fmt: skip
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps(content))
    append_results(folder / "results.jsonl", [replace(ROW, run=run, arm=arm, seed=number)])
    return folder


def folders(experiment: Path) -> list[Path]:
    return sorted(file.parent for file in experiment.glob("*/seed=*/run.json"))


def test_experiment_and_arm_are_the_folders_place(tmp_path):
    put(tmp_path, "mine/cf_ratio=0.6/seed=1")
    (tmp_path / "mine/cf_ratio=0.6").rename(tmp_path / "mine/sixty")
    (tmp_path / "mine").rename(tmp_path / "v2")
    collected = collect(folders(tmp_path / "v2"))
    assert [(row.run, row.arm) for row in collected.rows] == [("v2/sixty/seed=1", "sixty")]
    assert [(r["experiment"], r["arm"]) for r in collected.records] == [("v2", "sixty")]
    assert collected.left_out == []
    assert changes(tmp_path / "v2/sixty/seed=1", initial_values(tmp_path / "v2")) == []


def test_a_doubled_arm_is_refused_and_folders_without_results_are_passed_over(tmp_path):
    first, second = (put(tmp_path, f"{name}/real/seed=1") for name in ("demo", "other"))
    empty = put(tmp_path, "demo/empty/seed=1")
    (empty / "results.jsonl").unlink()
    assert len(collect([first, empty]).rows) == 1
    with pytest.raises(UserError, match="one experiment at a time") as error:
        collect([first, second])
    assert str(second) in str(error.value)


def test_an_arm_is_runs_of_one_identity(tmp_path):
    for seed, steps in ((1, 40), (2, 2), (3, 2), (4, 2)):
        put(tmp_path, f"mix/real/seed={seed}", by_seed={}, changed={"trainer.max_steps": steps})
    put(tmp_path, "mix/other/seed=2", by_seed={}, changed={"trainer.max_steps": 9})
    collected = collect(folders(tmp_path / "mix"))
    assert [(row.arm, row.seed) for row in collected.rows] == [
        ("other", 2), ("real", 2), ("real", 3), ("real", 4),
    ]  # fmt: skip
    (said,) = collected.left_out
    assert "real/seed=1" in said
    assert "trainer.max_steps is 40, not 2" in said
    assert "seed is" not in said


def test_at_a_tie_the_lowest_seed_says_what_the_arm_is(tmp_path):
    for seed, lr in ((10, 1e-5), (9, 1e-3)):
        put(tmp_path, f"mix/real/seed={seed}", by_seed={}, changed={"optim.lr": lr})
    assert [row.seed for row in collect(folders(tmp_path / "mix")).rows] == [9]


@pytest.mark.parametrize(
    ("changed", "kept"),
    [
        ({"content.weights": "other"}, [1, 2]),
        ({"content.real": "2:bb"}, [1, 2]),
        ({"data.seed": 77}, [1, 2, 3]),
    ],
)
def test_content_of_one_path_must_agree(tmp_path, changed, kept):
    for seed in (1, 2, 3):
        more = changed if seed == 3 else {}
        put(tmp_path, f"mix/real/seed={seed}", by_seed={}, changed=more)
    assert [row.seed for row in collect(folders(tmp_path / "mix")).rows] == kept


def test_weights_and_worlds_may_follow_the_seed_where_a_run_says_so(tmp_path):
    for seed in (1, 2, 3):
        changed = {"content.weights": f"w{seed % 2}", "content.real": f"2:{seed}"}
        rules = {**SAYS_IT, "data.real": "shapescapes:real"}
        put(tmp_path, f"mix/real/seed={seed}", by_seed=rules, changed=changed)
    assert len(collect(folders(tmp_path / "mix")).rows) == 3
    put(tmp_path, "mix/real/seed=4", by_seed={"data.real": "shapescapes:real"})
    collected = collect(folders(tmp_path / "mix"))
    assert len(collected.rows) == 3
    assert "model.weights is (absent)" in collected.left_out[0]


@pytest.mark.parametrize("state", ["failed", "running"])
def test_results_of_a_run_that_is_not_finished_are_left_out(tmp_path, state):
    put(tmp_path, "mine/real/seed=1")
    put(tmp_path, "mine/real/seed=2", state=state)
    collected = collect(folders(tmp_path / "mine"))
    assert [row.seed for row in collected.rows] == [1]
    assert f"left out, not finished: {tmp_path}/mine/real/seed=2" in collected.left_out[0]


def test_a_copied_seed_is_left_out_and_named(tmp_path):
    folder = put(tmp_path, "mine/real/seed=1")
    shutil.copytree(folder, folder.parent / "seed=2")
    collected = collect(folders(tmp_path / "mine"))
    assert [row.seed for row in collected.rows] == [1]
    assert "seed=2 holds seed 1, not its own" in collected.left_out[0]
    third = put(tmp_path, "mine/real/seed=3")
    shutil.copy(folder / "results.jsonl", third)
    with pytest.raises(UserError, match="rows of seed 1, but the run is of seed 3"):
        read_run(third).results()


def test_a_damaged_run_does_not_stop_the_others(tmp_path):
    put(tmp_path, "mine/real/seed=1")
    put(tmp_path, "mine/real/seed=2", seed="2")
    (put(tmp_path, "mine/real/seed=3") / "run.json").write_text("{")
    (put(tmp_path, "mine/real/seed=4") / "results.jsonl").write_text("[]\n")
    collected = collect(folders(tmp_path / "mine"))
    assert [row.seed for row in collected.rows] == [1]
    said = "\n".join(collected.left_out)
    assert "seed=2/run.json: 'seed' is \"2\"; it should be a whole number" in said
    assert "seed=3/run.json cannot be read" in said
    assert "seed=4/results.jsonl, line 1 should be a JSON object" in said


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)
RECORD = {
    "state": "done", "experiment": "demo", "arm": "real", "seed": 1, "cf_ratio": 0.5, "steps": 2,
    "counts": {"train": 5, "counterfactual": 2}, "hardware": {"cores": 2}, "threads": 1,
    "wall_s": 1.5, "versions": {"torch": "2"}, "git": None, "identity": IDENTITY, "by_seed": {},
}  # fmt: skip


@settings(max_examples=examples(80), deadline=None)
@given(st.sampled_from([*REQUIRED, *OPTIONAL, "git"]), JSON)
@example("identity", {"": math.nan})
@example("identity", {"a": [math.nan]})
@example("attempts", None)
def test_whatever_a_record_holds_is_used_or_named(tmp_path_factory, name, value):
    record = {**RECORD, name: value}
    fits, _ = {**REQUIRED, **OPTIONAL}.get(name, (lambda _: True, ""))
    if not fits(value) and not (value is None and name in OPTIONAL):
        with pytest.raises(UserError, match=rf"here/run\.json: '{name}' is "):
            check_record(record, Path("here/run.json"))
        return
    check_record(record, Path("here/run.json"))
    root = tmp_path_factory.mktemp("record")
    folder = root / "demo/real/seed=1"
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps({**record, "seed": 1, "state": "done"}))
    append_results(folder / "results.jsonl", [ROW])
    collected = collect([folder])
    assert len(collected.rows) == 1
    changes(folder, initial_values(root / "demo"))
    _effort_part(collected.records, {})
    _provenance(collected.records)
    shutil.rmtree(root)


@pytest.mark.parametrize("name", REQUIRED)
def test_what_a_record_must_have_is_named(name):
    record = {key: value for key, value in RECORD.items() if key != name}
    with pytest.raises(UserError, match=f"'{name}' is missing"):
        check_record(record, Path("run.json"))


@pytest.mark.parametrize("text", ["", "[1]", "model: {", "model: 5"])
def test_settings_of_a_run_that_are_none_are_named(tmp_path, text):
    (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(UserError, match=r"config\.yaml"):
        setting_node(read_config(tmp_path), "model", tmp_path)


def test_the_worst_run_of_each_benchmark_is_named(tmp_path):
    folders = [tmp_path / "arm" / f"seed={n}" for n in range(3)]
    for folder, images in zip(folders, (3, 5, None), strict=True):
        folder.mkdir(parents=True)
        if images is not None:
            leaks = {"images": images, "total": 1000, "with_coco_id": 1000, "coco_ids": [1]}
            (folder / LEAKS).write_text(json.dumps({"coco5k_retrieval": leaks}))
    [said] = leak_sentences(folders)
    assert said.startswith("coco5k_retrieval: up to 5 of 1,000 test images")
    assert "(arm, seed=1)" in said
    assert leak_sentences(folders[2:]) == []
    (folders[2] / LEAKS).write_text('{"own": {"images": 9, "equal": 9, "total": 9}}')
    assert leak_sentences(folders[2:]) == ["own: all 9 test images were trained on (arm, seed=2)."]
    (folders[2] / LEAKS).write_text("[]")
    with pytest.raises(UserError, match=LEAKS):
        leak_sentences(folders)


@pytest.mark.parametrize(
    ("attempts", "expected"),
    [
        ([{"seconds": 1.5}], (1.5, True)),
        ([{"seconds": 4.0}, {"seconds": 1.5}], (5.5, True)),
        ([{"seconds": None}, {"seconds": 4.0}, {"seconds": 1.5}], (5.5, False)),
        ([{"seconds": "4"}, {"seconds": 1.5}], (1.5, False)),
        ([{"start_step": 0}, {"start_step": 3}], (1.5, False)),
        ([], (1.5, True)),
    ],
)
def test_the_time_of_a_run_is_that_of_all_attempts_that_left_one(attempts, expected):
    assert training_seconds({"wall_s": 1.5, "attempts": attempts}) == expected
    assert training_seconds({"wall_s": None, "attempts": attempts}) == (None, False)
