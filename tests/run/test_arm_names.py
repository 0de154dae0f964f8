"""What an arm's folder is called, and how another command finds it again."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfaug.core.atomic_files import write_json
from cfaug.report.arms import CUT, arm_identity
from cfaug.run.arm_names import LONGEST_NAME, arm_slug, find_arm, other_settings, swept_keys
from tests.run.conftest import output_of, refusal

CONFIG = {
    "arm": None,
    "data": {"cf_ratio": 0.6, "seed": None, "size": 9, "real": "/a/photos"},
    "optim": {"lr": 1e-3},
}


@given(st.permutations(["data.cf_ratio=0.6", "optim.lr=1e-3", "seed=107", "trainer.devices=2"]))
def test_a_name_does_not_depend_on_the_order_of_words(overrides):
    assert arm_slug(overrides, CONFIG) == "cf_ratio=0.6,lr=0.001"


@pytest.mark.parametrize(
    ("words", "changed", "expected"),
    [
        (["data=folder", "data.real=/a/photos"], {}, "data=folder,real=photos"),
        (["data.real=/a/photos", "optim.lr=1e-3"], {}, "lr=0.001,real=photos"),  # data come last
        (["arm=mine", "optim.lr=1e-3"], {"arm": "mine"}, "mine"),
        (["experiment=demo/real", "optim.lr=1e-3"], {"arm": "real"}, "real,lr=0.001"),
        (["data.seed=3"], {"data": {"seed": 3}}, "data.seed=3"),
        (["hydra.searchpath=[file:///home/me/conf]", "optim.lr=1e-3"], {}, "lr=0.001"),
        (["model=a/b"], {}, "model=a-b"),
        (["seed=3"], {}, "default"),
    ],
)
def test_a_single_command_is_named_by_what_was_typed(words, changed, expected):
    assert arm_slug(words, {**CONFIG, **changed}) == expected


@pytest.mark.parametrize(
    ("words", "swept", "expected"),
    [
        (["data.cf_ratio=0.6", "data.size=9", "seed=1"], {"data.cf_ratio", "seed"}, "cf_ratio=0.6"),
        (["data.cf_ratio=0.6", "data.size=9", "seed=1"], {"seed"}, "cf_ratio=0.6,size=9"),
        (["data.real=/a/photos", "data.cf_ratio=0.6"], {"data.real"}, "real=photos"),
        # Whether the draw was typed is told from the name alone.
        (["data.cf_ratio=0.6", "data.seed=3"], {"data.cf_ratio"}, "data.seed=None,cf_ratio=0.6"),
        # What differs, but not in a way that changes a result, names nothing.
        (["data.workers=2", "data.size=9"], {"data.workers"}, "size=9"),
    ],
)
def test_an_arm_of_a_sweep_is_named_by_what_differs_there(words, swept, expected):
    assert arm_slug(words, CONFIG, swept=swept) == expected


def test_the_arms_of_an_experiments_file_keep_their_names_in_a_sweep():
    words, config = ["experiment=demo/real", "optim.lr=1e-3"], {**CONFIG, "arm": "real"}
    assert arm_slug(words, config, swept={"experiment", "seed"}) == "real"
    assert arm_slug(words, config, swept={"experiment", "optim.lr"}) == "real,lr=0.001"


def test_what_differs_in_a_sweep():
    jobs = [["data.cf_ratio=0", "optim.lr=1", "+loss=a"], ["data.cf_ratio=1", "optim.lr=1"]]
    assert swept_keys(jobs) == {"data.cf_ratio", "loss"}
    assert swept_keys(jobs[:1]) == swept_keys([]) == set()


VALUES = st.lists(st.text("abc=,+ /日", max_size=50), min_size=1, max_size=12)


@given(VALUES, VALUES)
def test_long_names_are_short_and_differ_where_their_settings_do(first, second):
    names = []
    for values in (first, second):
        words = [f"data.k{i}=x{value}" for i, value in enumerate(values)]
        names.append(arm_slug(words, {}))
        assert len(names[-1]) <= LONGEST_NAME + 20
        assert "/" not in names[-1]
    cut = [bool(CUT.search(name)) for name in names]
    if first != second and any(cut):
        assert names[0] != names[1]


def test_a_cut_name_says_how_many_settings_it_leaves_out():
    words = [f"data.setting{i}=123456" for i in range(10)]
    name = arm_slug(words, {})
    assert re.fullmatch(r"setting0=123456,setting1=123456,8-more-[0-9a-f]{8}", name)


def test_seeds_with_settings_of_their_own_are_one_arm():
    """The name has the rule, which all seeds share, and not what it gives for one of them."""
    rule = "${alternate:${seed},[zoo:clip-0,zoo:clip-1]}"
    names = {
        arm_slug([f"model.weights={rule}"], config, {"model.weights": rule})
        for config in ({"model": {"weights": f"zoo:clip-{seed}"}} for seed in (0, 1))
    }
    assert names == {"model.weights=-alternate-seed-,-zoo-clip-0,zoo-clip-1"}


# Folders that there are.


def begin(root, name, seed=1, arm=None, state="done", **identity):
    folder = root / name / f"seed={seed}"
    (folder / "checkpoint").mkdir(parents=True)
    content = {"identity": {"seed": seed, **identity}, "config_hash": "x", "state": state}
    write_json(folder / "run.json", content)
    write_json(folder / "config.yaml", {"arm": arm})


def wanted(seed=2, **identity):
    return arm_identity({"identity": {"seed": seed, **identity}, "by_seed": {}})


NAMES = ("cf_ratio=0", "cf_ratio=0,size=9")


def test_an_arm_that_there_is_has_the_folder_whatever_its_name(tmp_path):
    assert find_arm(tmp_path / "absent", NAMES, wanted(size=9)) == NAMES[0]
    begin(tmp_path, "before=another,rule=1", size=9)
    assert find_arm(tmp_path, NAMES, wanted(size=9)) == "before=another,rule=1"
    assert find_arm(tmp_path, NAMES, wanted(size=9), draw_typed=True) == NAMES[0]
    begin(tmp_path, NAMES[1], size=9)  # its own name comes first
    assert find_arm(tmp_path, NAMES, wanted(size=9)) == NAMES[1]


def test_a_name_that_other_settings_have_is_not_taken(tmp_path):
    begin(tmp_path, NAMES[0], size=5)
    assert find_arm(tmp_path, NAMES, wanted(size=9)) == NAMES[1]
    assert find_arm(tmp_path, NAMES, wanted(size=5)) == NAMES[0]
    assert other_settings(tmp_path / NAMES[0], wanted(size=9)) == (
        tmp_path / NAMES[0] / "seed=1", "size",
    )  # fmt: skip
    # The same data with other content is refused by the run's own folder, as it always was.
    begin(tmp_path, "real=x", **{"content.real": "a"})
    assert find_arm(tmp_path, ["real=x", "y"], wanted(**{"content.real": "b"})) == "real=x"


def test_a_run_without_a_step_takes_no_name(tmp_path):
    begin(tmp_path, NAMES[0], state="failed", size=5)
    (tmp_path / NAMES[0] / "seed=1" / "checkpoint").rmdir()
    assert find_arm(tmp_path, NAMES, wanted(size=9)) == NAMES[0]


def test_arms_named_by_hand_and_by_a_draw_are_found_by_their_names_alone(tmp_path):
    begin(tmp_path, "mine", arm="mine", size=9)
    begin(tmp_path, "data.seed=3", size=9)
    assert find_arm(tmp_path, NAMES, wanted(size=9)) == NAMES[0]
    assert find_arm(tmp_path, NAMES, wanted(size=9), arm="mine") == "mine"
    (tmp_path / "damaged" / "seed=1").mkdir(parents=True)
    (tmp_path / "damaged" / "seed=1" / "run.json").write_text("{")
    assert find_arm(tmp_path, NAMES, wanted(size=9)) == NAMES[0]


def test_an_extended_run_is_found_by_its_settings_without_its_length(tmp_path):
    begin(tmp_path, "lr=1", **{"optim.lr": 1, "trainer.max_steps": 4})
    longer = wanted(**{"optim.lr": 1, "trainer.max_steps": 8})
    assert find_arm(tmp_path, ["x"], longer, extend=True) == "lr=1"
    assert find_arm(tmp_path, ["x"], longer) == "x"


SWEEP = ["--multirun", "data.cf_ratio=0,0.5", "data.size=40", "seed=1", "trainer.max_steps=1"]


@pytest.mark.slow
def test_a_sweep_names_its_arms_and_its_runs_are_found_by_themselves(script, tmp_path, shards):
    paths = [f"paths.runs={tmp_path}", f"paths.shards={shards}"]
    train = script("train")
    assert train([*SWEEP, *paths]) == 0
    arms = {file.parents[1].name for file in tmp_path.glob("main/*/seed=1/run.json")}
    assert arms == {"cf_ratio=0", "cf_ratio=0.5"}
    alone = ["data.size=40", "data.cf_ratio=0.5", "trainer.max_steps=1"]
    out, _ = output_of(train, [*alone, "seed=1", *paths])
    assert out == f"already done: {tmp_path}/main/cf_ratio=0.5/seed=1\n"
    out, _ = output_of(train, [*alone, "seed=2", "dry_run=json", *paths])
    assert json.loads(out)["run"] == f"{tmp_path}/main/cf_ratio=0.5/seed=2"
    # Another sweep over the same ratios has other arms, with longer names.
    other = [word.replace("size=40", "size=30") for word in SWEEP]
    assert train([*other, *paths]) == 0
    arms |= {f"{arm},max_steps=1,size=30" for arm in arms}
    assert arms == {file.parents[1].name for file in tmp_path.glob("main/*/seed=1/run.json")}


@pytest.mark.slow
def test_a_folder_that_another_command_took_meanwhile_is_left_to_it(
    script, tmp_path, shards, monkeypatch
):
    """Two sweeps of equal values and unequal sizes begin before either has a folder."""
    from cfaug.run import train as command

    paths = [f"paths.runs={tmp_path}", f"paths.shards={shards}"]
    run_one = command.run_one

    def run_late(job):
        begin(tmp_path / "main", job.folder.path.parent.name, seed=7, size=3)
        return run_one(job)

    monkeypatch.setattr(command, "run_one", run_late)
    said = refusal(script("train"), [*SWEEP, *paths, "on_error=stop"])
    assert "since this command began" in said
    assert "seed=7" in said
    assert not list(tmp_path.glob("main/*/seed=1/run.json"))
