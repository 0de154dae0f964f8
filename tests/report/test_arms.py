"""An arm is what its runs' records say, whatever its folder is called; labels tell arms apart."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfaug.core.words import wrap_text
from cfaug.report.arms import (
    PAIRS_IN_BATCH,
    RATIO,
    Arm,
    arm_labels,
    full_names,
    names_an_arm,
    read_arms,
    unnamed_settings,
)
from cfaug.report.records import Run, read_run
from cfaug.run.identity import clean_name


def run(arm="x", seed=1, folder=Path("nowhere"), **record) -> Run:
    return Run(folder, "e", arm, {"state": "done", "seed": seed, **record})


def test_an_arm_is_read_from_its_records():
    identity = {
        "seed": 1, "data.seed": 2, "data.world.seed": 3, "content.real": "h", "optim.lr": 0.1,
        "data.cf_ratio": 0.6, "data.pairs_in_batch": True, "data.control": "real",
    }  # fmt: skip
    sources = {"counterfactual": {"source": "pairs"}}
    runs = [
        run("cf_ratio=0.1", seed, steps=5, cf_ratio=0.6, counts={"train": 10 + seed},
            identity=identity, sources=sources)
        for seed in (1, 2)
    ]  # fmt: skip
    [arm] = read_arms(runs).values()
    assert arm == Arm(
        "cf_ratio=0.1", True, 0.6, "pairs", "real", True,
        {"optim.lr": 0.1, "data.cf_ratio": 0.6, "data.pairs_in_batch": True,
         "data.control": "real"},
        frozenset({11, 12}),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("steps", "trained"), [([0, 0], False), ([0, 150], True), ([None], True), ([], True)]
)
def test_an_arm_is_untrained_if_no_run_took_a_step(steps, trained):
    runs = [run(seed=i, steps=n) for i, n in enumerate(steps)] or [run()]
    assert read_arms(runs)["x"].trained is trained


def test_a_renamed_folder_is_the_same_arm(tmp_path):
    record = {
        "state": "done", "seed": 1, "steps": 3, "cf_ratio": 0.3, "identity": {"data.cf_ratio": 0.3},
    }  # fmt: skip
    folder = tmp_path / "e/cf_ratio=0.3/seed=1"
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps(record))
    shutil.copytree(folder.parent, tmp_path / "e/cf_ratio=0.9")
    one, other = (
        read_arms([read_run(tmp_path / "e" / name / "seed=1")])[name]
        for name in ("cf_ratio=0.3", "cf_ratio=0.9")
    )
    assert replace(other, name=one.name) == one
    assert other.cf_ratio == 0.3


def test_arms_differ_in_one_setting():
    base = Arm("a", source="p", settings={RATIO: 0.3, "optim.lr": 1})
    assert base.differs_only_in(RATIO, replace(base, settings={RATIO: 0.6, "optim.lr": 1}))
    assert base.differs_only_in(RATIO, replace(base, source="", settings={"optim.lr": 1}))
    assert not base.differs_only_in(RATIO, replace(base, source="q"))
    assert not base.differs_only_in(RATIO, replace(base, settings={RATIO: 0.6, "optim.lr": 2}))
    assert not base.differs_only_in(PAIRS_IN_BATCH, replace(base, settings={"optim.lr": 1}))


def test_seeds_and_hashes_name_no_arm():
    assert [names_an_arm(key) for key in ("seed", "data.seed", "data.world.seed")] == [False] * 3
    assert not names_an_arm("content.real")
    assert names_an_arm("data.world.bias")


LABELS = {"real": "real only", "before": "before fine-tuning"}
SHARED = "counterfactual=PAIRS,loss=pair_aware,max_steps=1,model=clip_vit_b32,real=PHOTOS"


def named(arms, **records) -> dict[str, Arm]:
    """Arms by name, with nothing on record but what is given."""
    return {arm: Arm(arm, settings=records.get(arm, {})) for arm in arms}


def test_what_all_arms_share_is_dropped():
    arms = [f"cf_ratio={ratio},{SHARED}" for ratio in (0, 0.3, 0.9)]
    assert list(arm_labels(named(arms)).values()) == ["cf_ratio=0", "cf_ratio=0.3", "cf_ratio=0.9"]


def test_a_setting_that_one_arm_lacks_stays():
    arms = ["cf_ratio=0,real=R", "cf_ratio=0.9,counterfactual=C,real=R"]
    assert list(arm_labels(named(arms)).values()) == ["cf_ratio=0", "cf_ratio=0.9,counterfactual=C"]
    assert list(arm_labels(named(["lr=1", "lr=1,seed_of=2"])).values()) == ["lr=1", "seed_of=2"]


def test_names_given_by_hand_and_those_of_the_demo_stay():
    arms = ["real", "mine", "cf_ratio=0.5,lr=1", "base,cf_ratio=0.6,lr=1"]
    assert arm_labels(named(arms), LABELS) == {
        "real": "real only", "mine": "mine", "cf_ratio=0.5,lr=1": "cf_ratio=0.5",
        "base,cf_ratio=0.6,lr=1": "base,cf_ratio=0.6",
    }  # fmt: skip
    assert set(arm_labels(named(LABELS), LABELS).values()) == set(LABELS.values())


def test_a_name_that_was_cut_is_told_from_the_runs_record():
    names = [f"batch_size=8,{SHARED},optim.lr={lr},zz=1" for lr in (0.1, 0.2)]
    arms = [clean_name(f"a_long_setting={'x' * 40},{name}") for name in names]
    assert {len(arm) for arm in arms} == {100}
    records = {
        arm: Arm(arm, settings={"optim.lr": lr, "model.x": 1})
        for arm, lr in zip(arms, (0.1, 0.2), strict=True)
    }
    assert list(arm_labels(records).values()) == ["lr=0.1", "lr=0.2"]
    # Without a record what is left says nothing, so the names stay.
    assert list(arm_labels(named(arms)).values()) == arms


def test_a_setting_that_one_cut_name_lost_and_the_others_share_is_dropped():
    names = [
        f"a_long_setting={'x' * 40},clip={clip},max_steps=2,size=40,weight=1"
        for clip in (1, 12345678)
    ]
    arms = [clean_name(f"{name},{'y' * 60}") for name in names]
    assert ["size=40" in arm for arm in arms] == [True, False]
    records = {
        arm: Arm(arm, settings={"trainer.clip": clip, "data.size": 40})
        for arm, clip in zip(arms, (1, 12345678), strict=True)
    }
    assert list(arm_labels(records).values()) == ["clip=1", "clip=12345678"]


def test_arms_of_several_experiments_keep_the_experiments_name():
    arms = ["one-lr=1,size=5", "two-lr=1,size=5", "two-lr=2,size=5", "three-real"]
    found = arm_labels(named(arms), {"three-real": "real only"})
    assert list(found.values()) == ["one-lr=1", "two-lr=1", "two-lr=2", "real only"]
    alike = ["one-lr=1", "two-lr=1"]
    assert list(arm_labels(named(alike)).values()) == ["one", "two"]


def test_a_label_may_be_given_for_the_label_that_an_arm_would_have():
    arms = [f"cf_ratio={ratio},{SHARED}" for ratio in (0, 0.9)]
    names = {"cf_ratio=0": "real only", arms[1]: "mixed"}
    assert list(arm_labels(named(arms), names).values()) == ["real only", "mixed"]
    # Never two of one name.
    assert list(arm_labels(named(arms), dict.fromkeys(arms, "both")).values()) == arms


def test_settings_that_no_name_shows():
    arms = {
        "a": Arm("a", settings={"optim.lr": 0.1, "trainer.max_steps": 5, "data.cf_ratio": 0}),
        "max_steps=7": Arm("max_steps=7", settings={
            "optim.lr": 0.2, "trainer.max_steps": 7, "data.cf_ratio": 0.5,
        }),
    }  # fmt: skip
    assert unnamed_settings(arms) == {"optim.lr": {"a": "0.1", "max_steps=7": "0.2"}}
    assert unnamed_settings({"a": arms["a"]}) == {}


NAMES = st.text(alphabet="ab=,0+ _", max_size=12) | st.sampled_from([*LABELS, *LABELS.values()])


@given(st.lists(NAMES, unique=True, max_size=6))
def test_no_two_arms_have_one_label(arms):
    found = arm_labels(named(arms), LABELS)
    assert list(found) == arms
    assert len(set(found.values())) == len(arms)


def test_full_names_come_once():
    arms = [f"cf_ratio={ratio},{SHARED}" for ratio in (0, 0.9)]
    said = full_names(arm_labels(named(arms)), [*arms, "x"])
    assert said == f"Arms by their full names: cf_ratio=0: {arms[0]}; cf_ratio=0.9: {arms[1]}."
    assert full_names({"x": "x"}, ["x"]) == ""


@given(st.text(max_size=60), st.integers(4, 20))
def test_text_is_wrapped_and_nothing_is_lost(text, width):
    from rich.cells import cell_len

    lines = wrap_text(text, width)
    assert all(cell_len(line) <= width for line in lines)
    kept = "".join(c for c in text if c.isprintable() and not c.isspace())
    assert "".join("".join(lines).split()) == kept
