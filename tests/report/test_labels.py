"""Arms are called by what sets them apart, and never two by the same name."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cfaug.report.labels import LABELS, arm_labels, full_names, unnamed_settings, wrapped
from cfaug.run.identity import cleaned

SHARED = "counterfactual=PAIRS,loss=pair_aware,max_steps=1,model=clip_vit_b32,real=PHOTOS"


def test_what_all_arms_share_is_dropped():
    arms = [f"cf_ratio={ratio},{SHARED}" for ratio in (0, 0.3, 0.9)]
    assert list(arm_labels(arms, []).values()) == ["cf_ratio=0", "cf_ratio=0.3", "cf_ratio=0.9"]


def test_a_setting_that_one_arm_lacks_stays():
    arms = ["cf_ratio=0,real=R", "cf_ratio=0.9,counterfactual=C,real=R"]
    assert list(arm_labels(arms, []).values()) == ["cf_ratio=0", "cf_ratio=0.9,counterfactual=C"]
    assert list(arm_labels(["lr=1", "lr=1,seed_of=2"], []).values()) == ["lr=1", "seed_of=2"]


def test_names_given_by_hand_and_those_of_the_demo_stay():
    arms = ["real", "mine", "cf_ratio=0.5,lr=1", "base,cf_ratio=0.6,lr=1"]
    assert arm_labels(arms, []) == {
        "real": "real only", "mine": "mine", "cf_ratio=0.5,lr=1": "cf_ratio=0.5",
        "base,cf_ratio=0.6,lr=1": "base,cf_ratio=0.6",
    }  # fmt: skip
    assert set(arm_labels(list(LABELS), []).values()) == set(LABELS.values())


def test_a_name_that_was_cut_is_told_from_the_runs_record():
    names = [f"batch_size=8,{SHARED},optim.lr={lr},zz=1" for lr in (0.1, 0.2)]
    arms = [cleaned(f"a_long_setting={'x' * 40},{name}") for name in names]
    assert {len(arm) for arm in arms} == {100}
    records = [
        {"arm": arm, "identity": {"optim.lr": lr, "seed": i, "data.seed": i, "model.x": 1}}
        for i, (arm, lr) in enumerate(zip(arms, (0.1, 0.2), strict=True))
    ]
    assert list(arm_labels(arms, records).values()) == ["lr=0.1", "lr=0.2"]
    # Without a record what is left says nothing, so the names stay.
    assert list(arm_labels(arms, [{"arm": 5}, {"identity": []}]).values()) == arms


def test_settings_that_no_name_shows():
    def run(arm, **identity):
        return {"arm": arm, "identity": {k.replace("__", "."): v for k, v in identity.items()}}

    runs = [
        run("a", seed=1, optim__lr=0.1, trainer__max_steps=5, data__cf_ratio=0, content__real="x"),
        run("a", seed=2, optim__lr=9, trainer__max_steps=5, data__cf_ratio=0, content__real="x"),
        run("max_steps=7", seed=1, optim__lr=0.2, trainer__max_steps=7, data__cf_ratio=0.5),
    ]
    found = unnamed_settings(["a", "max_steps=7"], runs)
    assert found == {"optim.lr": {"a": "0.1", "max_steps=7": "0.2"}}
    assert unnamed_settings(["a"], runs) == {}


NAMES = st.text(alphabet="ab=,0+ _", max_size=12) | st.sampled_from([*LABELS, *LABELS.values()])


@given(st.lists(NAMES, unique=True, max_size=6))
def test_no_two_arms_have_one_label(arms):
    found = arm_labels(arms, [])
    assert list(found) == arms
    assert len(set(found.values())) == len(arms)


def test_full_names_come_once():
    arms = [f"cf_ratio={ratio},{SHARED}" for ratio in (0, 0.9)]
    said = full_names(arm_labels(arms, []), [*arms, "x"])
    assert said == f"Arms by their full names: cf_ratio=0: {arms[0]}; cf_ratio=0.9: {arms[1]}."
    assert full_names({"x": "x"}, ["x"]) == ""


@given(st.text(max_size=60), st.integers(4, 20))
def test_text_is_wrapped_and_nothing_is_lost(text, width):
    from rich.cells import cell_len

    lines = wrapped(text, width)
    assert all(cell_len(line) <= width for line in lines)
    kept = "".join(c for c in text if c.isprintable() and not c.isspace())
    assert "".join("".join(lines).split()) == kept
