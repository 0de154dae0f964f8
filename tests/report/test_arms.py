"""An arm is what its runs' records say, whatever its folder is called; labels tell arms apart."""

from __future__ import annotations

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
    read_arms,
    unnamed_settings,
)
from cfaug.report.records import Run
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


def test_arms_differ_in_one_setting():
    base = Arm("a", source="p", settings={RATIO: 0.3, "optim.lr": 1})
    assert base.differs_only_in(RATIO, replace(base, settings={RATIO: 0.6, "optim.lr": 1}))
    assert base.differs_only_in(RATIO, replace(base, source="", settings={"optim.lr": 1}))
    assert not base.differs_only_in(RATIO, replace(base, source="q"))
    assert not base.differs_only_in(RATIO, replace(base, settings={RATIO: 0.6, "optim.lr": 2}))
    assert not base.differs_only_in(PAIRS_IN_BATCH, replace(base, settings={"optim.lr": 1}))


LABELS = {"real": "real only", "before": "before fine-tuning"}
SHARED = "counterfactual=PAIRS,loss=pair_aware,max_steps=1,model=clip_vit_b32,real=PHOTOS"


def named(arms, **records) -> dict[str, Arm]:
    """Arms by name, with nothing on record but what is given."""
    return {arm: Arm(arm, settings=records.get(arm, {})) for arm in arms}


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
    said = full_names(arm_labels(named(RATIOS)), [*RATIOS, "x"])
    assert said == f"Arms by their full names: cf_ratio=0: {RATIOS[0]}; cf_ratio=0.9: {RATIOS[1]}."
    assert full_names({"x": "x"}, ["x"]) == ""


@given(st.text(max_size=60), st.integers(4, 20))
def test_text_is_wrapped_and_nothing_is_lost(text, width):
    from rich.cells import cell_len

    lines = wrap_text(text, width)
    assert all(cell_len(line) <= width for line in lines)
    kept = "".join(c for c in text if c.isprintable() and not c.isspace())
    assert "".join("".join(lines).split()) == kept


RATIOS = [f"cf_ratio={ratio},{SHARED}" for ratio in (0, 0.9)]


@pytest.mark.parametrize(
    ("arms", "given", "labels"),
    [
        (RATIOS, {}, ["cf_ratio=0", "cf_ratio=0.9"]),  # what all share is dropped
        (["cf_ratio=0,real=R", "cf_ratio=0.9,counterfactual=C,real=R"], {},
         ["cf_ratio=0", "cf_ratio=0.9,counterfactual=C"]),
        (["lr=1", "lr=1,seed_of=2"], {}, ["lr=1", "seed_of=2"]),
        (["real", "mine", "cf_ratio=0.5,lr=1", "base,cf_ratio=0.6,lr=1"], LABELS,
         ["real only", "mine", "cf_ratio=0.5", "base,cf_ratio=0.6"]),
        ([*LABELS], LABELS, [*LABELS.values()]),
        # Of several experiments, whose names stay.
        (["one-lr=1,size=5", "two-lr=1,size=5", "two-lr=2,size=5", "three-real"],
         {"three-real": "real only"}, ["one-lr=1", "two-lr=1", "two-lr=2", "real only"]),
        (["one-lr=1", "two-lr=1"], {}, ["one", "two"]),
        # A label for the label that an arm would have; never two of one name.
        (RATIOS, {"cf_ratio=0": "real only", RATIOS[1]: "mixed"}, ["real only", "mixed"]),
        (RATIOS, dict.fromkeys(RATIOS, "both"), RATIOS),
    ],
)  # fmt: skip
def test_labels_say_in_what_arms_differ(arms, given, labels):
    assert list(arm_labels(named(arms), given).values()) == labels
