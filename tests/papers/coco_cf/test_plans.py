"""The paper's plans beside what else a mixture may be: held-out rows, controls, wrong answers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfaug.core.errors import UserError
from cfaug.data.index import open_index
from cfaug.data.mixture.leakage import hold_out, withhold
from cfaug.data.mixture.loader import TrainingBatches
from cfaug.data.mixture.mixture import mix
from cfaug.data.mixture.records import COUNTERFACTUAL, REAL
from cfaug.data.mixture.settings import NegativesData, PlanData, Sources
from cfaug.data.shards.shards import write_shards
from cfaug.papers.coco_cf.mixtures import PaperMixture
from tests.data.making import Columns, pair
from tests.data.planned import PAIRS, REAL_ROWS, pairs, photos
from tests.data.test_hard_negatives import SETS, original
from tests.data.test_holdout import EDITS, PICTURES, Pictures, groups_used, with_holdout
from tests.data.test_pool import pairs_of, real_of
from tests.papers.coco_cf.plans import mixed, settings_of
from tests.properties import examples


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pairs")
    write_shards([pair(n) for n in range(SETS)], folder / "cf", sets_per_shard=16)
    return open_index(folder / "cf", folder / "index")


def test_a_plan_of_rows_that_people_validated_needs_their_labels():
    with pytest.raises(UserError, match=r"human_labels=FILE: .*key.*member.*label"):
        PlanData("real", "cf", plan=PaperMixture("human_validated"))


@pytest.mark.parametrize("plan", ["real", "base", "medium", "all"])
def test_a_plan_draws_none_of_it_either(plan):
    mixture = with_holdout(plan=PaperMixture(plan))
    assert not groups_used(mixture) & set(hold_out(PICTURES, 0.1).groups.tolist())


@pytest.mark.parametrize(
    "barred", [{"holdout": 0.3}, {"holdout": 0, "counterfactual_holdout": 0.3}]
)
def test_a_control_draws_none_of_it_from_a_source_of_its_own(barred):
    control = Pictures.of((group, 4) for group in range(60))
    more = {"plan": PaperMixture("base"), "control": "real", "control_source": "more", **barred}
    mixture = with_holdout(more_real=control, **more)
    assert mixture.sources[0] is control
    groups = hold_out(PICTURES, 0.3).groups if barred["holdout"] else withhold(EDITS, 0.3).groups
    assert len(groups) > 10
    assert not groups_used(mixture) & set(groups.tolist())


# What a plan is held against: controls of its size, and a test set it never sees.


@pytest.mark.parametrize("split", ["group", "random"])
@pytest.mark.parametrize(("plan", "train"), [("base", 13_928), ("real", 13_928)])
def test_a_control_has_as_many_training_rows_of_one_source(plan, train, split):
    for control, source in (("real", REAL), ("counterfactual", COUNTERFACTUAL)):
        if plan == "real" and control == "counterfactual":
            continue  # the plan reads no counterfactual source
        mixture = mixed(plan, photos(REAL_ROWS), pairs(PAIRS), control=control, split=split)
        assert mixture.counts["train"] == train
        assert (mixture.train[:, 0] == source).all()
        assert (mixture.validation[:, 0] == source).all()
        assert mixture.sources[1 - source] is None
        assert 0 < mixture.counts["validation"] <= 3_483


def test_a_control_draws_from_a_larger_source_where_its_own_is_too_small():
    with pytest.raises(UserError, match=r"34820 training.*17410: .*data\.control_source"):
        mixed("medium", photos(REAL_ROWS), pairs(PAIRS), control="real")
    with pytest.raises(UserError, match=r"34820 training.*validate on; there are 34820"):
        mixed("medium", photos(REAL_ROWS), pairs(PAIRS), control="counterfactual")
    more = photos(50_000)
    mixture = mix(
        settings_of("medium", control="real", control_source="more"),
        Sources(photos(REAL_ROWS), pairs(PAIRS), more),
    )  # fmt: skip
    assert mixture.counts == {
        "real": 34_820, "counterfactual": 0, "total": 34_820, "train": 34_820,
        "validation": 8_705, "dropped": 0,
    }  # fmt: skip
    assert mixture.sources == (more, None)


def test_real_rows_of_withheld_groups_are_kept_out_too():
    real, cf = photos(400), pairs(400)
    mixture = mix(settings_of("all", counterfactual_holdout=0.3), Sources(real, cf))
    used = np.concatenate([mixture.train, mixture.validation])
    groups = [
        set(source.groups[used[used[:, 0] == s, 1]].tolist()) for s, source in enumerate((real, cf))
    ]
    assert len(groups[0] | groups[1]) == 70


def test_the_papers_real_data_are_the_captions_that_were_edited():
    """COCO-CFs, footnote 11: 17,410 of 25,014 captions; here three are not found."""
    photos = [(i // 5, f"caption number {i}.") for i in range(25_014)]
    edited = [(g, text.upper()) for g, text in photos[:17_407]]
    edited += [(1, "gone"), (2, "caption number 5."), (10**6, "caption number 1.")]
    asked = PlanData("real", "cf", plan=PaperMixture("real"), real_captions="edited", seed=108)
    mixture = mix(asked, Sources(real_of(photos), pairs_of(edited)))
    assert mixture.join.missed == (
        ("key17407_34814", "gone"), ("key17408_34816", "caption number 5."),
        ("key17409_34818", "caption number 1."),
    )  # fmt: skip
    assert mixture.counts["train"] == int(0.8 * 17_407)
    used = np.concatenate([mixture.train, mixture.validation])[:, 1]
    assert used.max() < 17_407


@pytest.mark.parametrize("arm", ["none", "text", "both"])
def test_a_ratio_draws_the_rows_of_a_papers_data_set_and_has_its_arms(index, arm):
    """The plan draws rows as its ratio does; then pairs show what the arm says."""
    usual = mix(PlanData("r", "c", plan=PaperMixture("all"), seed=1), Sources(index, index))
    data = NegativesData("r", "c", negatives=arm, cf_ratio=0.5, size=160, seed=1)
    mixture = mix(data, Sources(index, index))
    drawn = usual.train[:, 0] == COUNTERFACTUAL
    np.testing.assert_array_equal(mixture.train[:, 0], usual.train[:, 0])
    np.testing.assert_array_equal(mixture.train[~drawn], usual.train[~drawn])
    sets = np.asarray(index.sets)
    np.testing.assert_array_equal(sets[mixture.train[drawn, 1]], sets[usual.train[drawn, 1]])
    assert drawn.any()
    if arm != "both":
        assert all(original(index.text(row)) for row in mixture.train[drawn, 1].tolist())
    assert mixture.counts["text_negatives"] == (0 if arm == "none" else drawn.sum())


# Plans keep the members of a pair in a batch, on any ranks.


@settings(max_examples=examples(60), deadline=None)
@given(
    st.sampled_from(["base", "medium", "all"]),
    st.sampled_from(["group", "random"]),
    st.integers(1, 4),
    st.integers(2, 40),
    st.integers(0, 3),
    st.integers(0, 5),
)
def test_pairs_stay_together_on_any_ranks_beside_photos_with_five_captions(
    plan, split, world, batch_size, epoch, start
):
    """What the loader asks of its workers: the union of the ranks' shares is a batch with pairs."""
    real = Columns.of((i, 5) for i in range(30))
    mixture = mixed(plan, real, Columns.of((i // 2, 2) for i in range(60)), split=split)
    asked = settings_of(plan, batch_size=batch_size, pairs_in_batch=True)
    steps = asked.steps_per_epoch(len(mixture.train))
    first = epoch * steps + min(start, steps - 1)
    arguments = {"seed": 107, "data_seed": 108, "total_steps": (epoch + 1) * steps}
    shares = [
        list(TrainingBatches(mixture, asked, start_step=first, rank=rank, world=world, **arguments))
        for rank in range(world)
    ]
    whole = list(TrainingBatches(mixture, asked, start_step=epoch * steps, **arguments))
    order = np.concatenate([share.rows for share in whole])
    assert sorted(map(tuple, order.tolist())) == sorted(map(tuple, mixture.train.tolist()))
    batches: dict[int, set[int]] = {}
    for step, share in enumerate(whole):
        for source, row in share.rows.tolist():
            if source == COUNTERFACTUAL:
                batches.setdefault(row // 2, set()).add(step)
    # An odd batch that pairs alone must fill has no room for its last.
    singles = mixture.counts["real"] + sum(
        list(order[order[:, 0] == COUNTERFACTUAL, 1] // 2).count(s) == 1 for s in batches
    )
    parted = sum(len(steps_of) > 1 for steps_of in batches.values())
    assert parted <= max(1, steps - singles)
    for at, share in enumerate(whole[first - epoch * steps :]):
        together = np.concatenate([rank_shares[at].rows for rank_shares in shares])
        assert np.array_equal(together, share.rows)
        assert all(np.array_equal(rank_shares[at].whole, share.rows) for rank_shares in shares)
