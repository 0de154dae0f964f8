from __future__ import annotations

from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfaug.core.errors import UserError
from cfaug.core.types import CounterfactualSet, Edit, Member
from cfaug.data.index import Index, open_index
from cfaug.data.mixture import leakage, pool, records
from cfaug.data.mixture.loader import Examples, RankBatch
from cfaug.data.mixture.mixture import (
    count_unchanged,
    find_edited,
    find_unchanged,
    largest_size,
    mix,
    plan_mixture,
)
from cfaug.data.mixture.pool import choose_one_of_each, first_members
from cfaug.data.mixture.records import COUNTERFACTUAL, REAL, Mixture, is_among, random_keys
from cfaug.data.mixture.settings import RatioData, Sources
from cfaug.data.shards.shards import write_shards
from cfaug.models.losses import log_negative_weights
from tests.data.loading import TRANSFORM
from tests.data.making import Columns, noise_image, write_tar
from tests.data.planned import floor, half_up, keyed
from tests.properties import examples

RATIOS = (0, 0.1, 0.25, 0.3, 1 / 3, 0.5, 0.6, 0.67, 0.9, 1)
sources = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 4)), min_size=3, max_size=40)


def slow_plan(real, counterfactual, cf_ratio, size, seed, validation):
    """Return (train, validation, dropped) as lists, by walking groups one row at a time."""
    ratio, share = Decimal(repr(float(cf_ratio))), Decimal(repr(float(validation)))

    train = floor((1 - share) * size)
    wanted = (train - half_up(ratio * train), half_up(ratio * train))
    in_all = (size - half_up(ratio * size), half_up(ratio * size))
    rows = [
        sorted(
            (
                (keyed(int(g), seed, "mixture", "groups"), row, int(g))
                for row, g in enumerate(source.groups)
            )
        )
        for source in (real, counterfactual)
    ]
    chosen = [(s, row, g) for s in (0, 1) for _, row, g in rows[s][: wanted[s]]]
    trained = {g for _, _, g in chosen}
    held, dropped = [], 0
    for s in (0, 1):
        rest = [(s, row, g) for _, row, g in rows[s][wanted[s] :]]
        free = [entry for entry in rest if entry[2] not in trained]
        dropped += len(rest) - len(free)
        held += free[: in_all[s] - wanted[s]]
    return [c[:2] for c in chosen], [h[:2] for h in held], dropped


@settings(max_examples=examples(100), deadline=None)
@given(sources, sources, st.sampled_from(RATIOS), st.floats(0.05, 1), st.integers(0, 2**31),
       st.sampled_from((0, 0.1, 0.2, 0.5)))  # fmt: skip
def test_equals_the_slow_obvious_plan(real_sets, cf_sets, cf_ratio, part, seed, validation):
    real, cf = Columns.of(real_sets), Columns.of(cf_sets)
    largest = largest_size(len(real), len(cf), cf_ratio)
    size = max(1, int(part * largest))
    train, held, dropped = slow_plan(real, cf, cf_ratio, size, seed, validation)
    given_size = None if size == largest else size
    arguments = {"cf_ratio": cf_ratio, "size": given_size, "seed": seed, "validation": validation}
    if not train or (not held and size > len(train)):
        with pytest.raises(UserError, match=r"data\.size"):
            plan_mixture(real, cf, **arguments)
        return
    plan = plan_mixture(real, cf, **arguments)
    assert [tuple(row) for row in plan.train.tolist()] == train
    assert [tuple(row) for row in plan.validation.tolist()] == held
    counts = plan.counts
    assert counts["real"] + counts["counterfactual"] == counts["total"] == counts["train"]
    assert counts["train"] == len(train)
    assert (counts["validation"], counts["dropped"]) == (len(held), dropped)
    assert abs(counts["counterfactual"] - cf_ratio * counts["train"]) <= 0.5


def singles(count, offset=0):
    return Columns.of((offset + i, 1) for i in range(count))


def pairs(count):
    return Columns.of((i, 2) for i in range(count))


def test_ratios_are_decimals_not_binary_floats():
    # In binary 0.1 + 0.2 > 0.3, and 0.29 * 100 < 29.
    real, cf = singles(71), singles(29, offset=100)
    assert plan_mixture(real, cf, cf_ratio=0.29, size=100, seed=0, validation=0).counts == {
        "real": 71, "counterfactual": 29, "total": 100, "train": 100, "validation": 0, "dropped": 0
    }  # fmt: skip
    ratio = np.float64(0.29)
    assert plan_mixture(real, cf, cf_ratio=ratio, size=None, seed=0).counts["train"] == 80


def test_one_source_needs_no_other():
    real, cf = singles(10), pairs(10)
    only_real = plan_mixture(real, None, cf_ratio=0, size=None, seed=0)
    assert (only_real.counts["real"], only_real.counts["counterfactual"]) == (8, 0)
    only_cf = plan_mixture(None, cf, cf_ratio=1, size=None, seed=0)
    assert (only_cf.counts["real"], only_cf.counts["counterfactual"]) == (0, 16)


def test_the_first_member_of_every_set_alone_may_be_eligible():
    first = (None, first_members(pairs(10)))
    plan = plan_mixture(singles(10), pairs(10), cf_ratio=0.5, size=None, seed=0, eligible=first)
    counterfactual = [plan.train, plan.validation]
    rows = np.concatenate([part[part[:, 0] == COUNTERFACTUAL, 1] for part in counterfactual])
    assert (rows % 2 == 0).all()
    assert plan.counts["counterfactual"] == 8
    with pytest.raises(UserError, match="10 real and 10 counterfactual"):
        plan_mixture(singles(10), pairs(10), cf_ratio=0.6, size=18, seed=0, eligible=first)
    asked = RatioData("r", "c", cf_ratio=0.5, seed=0, counterfactual_members="unedited")
    mixed = mix(asked, Sources(singles(10), pairs(10)))
    assert np.array_equal(mixed.train, plan.train)
    assert np.array_equal(mixed.validation, plan.validation)


@pytest.mark.parametrize("size", [101, 10**9])
def test_too_much_is_refused_with_what_there_is(size):
    with pytest.raises(UserError) as caught:
        plan_mixture(singles(40), pairs(40), cf_ratio=0.6, size=size, seed=0)
    for said in ("40 real", "80 counterfactual", "data.size=100", f"data.size={size}"):
        assert said in str(caught.value)


@pytest.mark.parametrize("ratio", [-0.1, 1.1, float("nan"), float("inf"), True, "0.6", None])
def test_a_ratio_that_is_none(ratio):
    with pytest.raises(UserError, match=r"data\.cf_ratio"):
        plan_mixture(singles(40), pairs(40), cf_ratio=ratio, size=None, seed=0)


def test_an_empty_validation_is_refused():
    one_photo = Columns.of([(7, 1)] * 20)
    with pytest.raises(UserError, match=r"no group is left.*data\.validation=0"):
        plan_mixture(one_photo, None, cf_ratio=0, size=None, seed=0)


@pytest.mark.parametrize("ratio", [0, 0.3, 0.6, 1])
def test_a_random_split_is_as_exact_and_parts_what_has_one_source(ratio):
    real, cf = Columns.of((i // 5, 1) for i in range(500)), pairs(250)
    plan = plan_mixture(real, cf, cf_ratio=ratio, size=400, seed=7, split="random")
    assert (plan.counts["train"], plan.counts["validation"]) == (320, 80)
    assert plan.counts["counterfactual"] == round(ratio * 320)
    assert np.count_nonzero(plan.validation[:, 0] == COUNTERFACTUAL) == round(ratio * 80)
    everything = [tuple(row) for row in np.concatenate([plan.train, plan.validation]).tolist()]
    assert len(set(everything)) == 400
    groups = (real.groups, cf.groups)
    trained, held = (
        {int(groups[s][row]) for s, row in rows.tolist()} for rows in (plan.train, plan.validation)
    )
    assert trained & held


@settings(max_examples=examples(40), deadline=None)
@given(sources, sources, st.data())
def test_rows_that_are_not_eligible_are_nowhere(real_sets, cf_sets, data):
    real, cf = Columns.of(real_sets), Columns.of(cf_sets)
    masks = [
        np.array(data.draw(st.lists(st.booleans(), min_size=len(source), max_size=len(source))))
        for source in (real, cf)
    ]
    split = data.draw(st.sampled_from(["group", "random"]))
    try:
        plan = plan_mixture(
            real, cf, cf_ratio=0.5, size=None, seed=1, validation=0, split=split,
            eligible=(masks[0], masks[1]),
        )  # fmt: skip
    except UserError:
        assert min(mask.sum() for mask in masks) < 2
        return
    assert all(masks[source][row] for source, row in plan.train.tolist())
    assert plan.counts["train"] == 2 * min(int(mask.sum()) for mask in masks)


# Groups whose keys agree, in part or wholly: none of them is both trained and validated on.


FEW_BITS = np.uint64(0xC000_0000_0000_0000)
"""The bits of a key that a collision leaves: four values."""


def collide_in_part(codes, seed, *names):
    """Keys that differ in the lowest bits alone, which the sort of rows leaves out."""
    keys = random_keys(codes, seed, *names)
    return (keys & FEW_BITS) | (keys & np.uint64(0b111))


def collide_wholly(codes, seed, *names):
    return random_keys(codes, seed, *names) & FEW_BITS


def unmix(key, stream):
    """Undo SplitMix64's finaliser."""
    for shift, factor in ((31, 0x319642B2D24D8EC3), (27, 0x96DE1B173F119089), (30, 1)):
        key ^= (key >> shift) ^ (key >> 2 * shift)
        key = key * factor % 2**64
    return key ^ stream


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**32))
def test_no_two_codes_have_one_key(code, seed):
    (key,) = random_keys(np.array([code], np.uint64), seed, "mixture").tolist()
    assert unmix(key, records.derive(seed, "mixture")) == code


@given(st.lists(st.integers(0, 30), max_size=20), st.lists(st.integers(0, 30), max_size=20))
def test_what_is_searched_need_not_be_sorted(some, others):
    among = is_among(np.array(some, np.uint64), np.array(others, np.uint64))
    assert among.tolist() == [key in others for key in some]


sizes = st.lists(st.integers(1, 4), min_size=8, max_size=25)


@pytest.mark.parametrize("collide", [collide_in_part, collide_wholly])
@settings(max_examples=examples(60), deadline=None)
@given(real=sizes, cf=sizes, ratio=st.sampled_from([0, 0.3, 0.5, 1]), seed=st.integers(0, 99))
def test_no_group_is_parted(collide, real, cf, ratio, seed):
    sources = Columns.of(enumerate(real)), Columns.of(enumerate(cf))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pool, "random_keys", collide)
        try:
            plan = plan_mixture(*sources, cf_ratio=ratio, size=None, seed=seed, validation=0.4)
        except pool.UserError:
            return  # nothing is left to validate on
    sides = [
        {int(sources[source].groups[row]) for source, row in rows.tolist()}
        for rows in (plan.train, plan.validation)
    ]
    assert not sides[0] & sides[1]
    drawn = [tuple(row) for row in (*plan.train.tolist(), *plan.validation.tolist())]
    assert len(set(drawn)) == len(drawn)
    assert plan.counts["train"] == int(0.6 * plan.size + 1e-9)


def test_groups_that_only_collide_in_part_are_told_apart():
    """Where the cut falls between two groups, the second may still be validated on."""
    source = Columns.of((group, 2) for group in range(40))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pool, "random_keys", collide_in_part)
        plan = plan_mixture(source, None, cf_ratio=0, size=None, seed=3, validation=0.5)
    assert len(plan.train) == 40
    assert len(plan.validation) > 20


@pytest.mark.parametrize("collide", [collide_in_part, collide_wholly])
def test_held_out_groups_are_whole(collide):
    source = Columns.of((group % 37, 2) for group in range(200))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(leakage, "random_keys", collide)
        for kept_out in (leakage.hold_out(source, 0.3), leakage.withhold(source, 0.3)):
            allowed = kept_out.find_allowed(source.groups)
            inside = set(source.groups[~allowed].tolist())
            assert inside == set(source.groups[kept_out.rows].tolist())
            assert not inside & set(source.groups[allowed].tolist())


# Sets of two captions on one photo, some of them unchanged.


PHOTOS, UNCHANGED = 40, 3
"""Every third caption could not be edited."""


def two_captions(number: int) -> CounterfactualSet:
    """Return what an editor of captions makes of a photo: its caption, and that changed."""
    text = f"photo {number}"
    changed = number % UNCHANGED != 0
    return CounterfactualSet(
        key=f"{number:04d}",
        group=f"{number:04d}",
        members=(
            Member(text, "0", f"{number:04d}"),
            Member(f"red {text}" if changed else text, "0", f"{number:04d}",
                   Edit("insertion", "", "red") if changed else None),
        ),
        images={"0": noise_image(number)},
    )  # fmt: skip


@pytest.fixture(scope="module")
def photos_and_sets(tmp_path_factory):
    """Photos with captions, and the sets that were made of them."""
    folder = tmp_path_factory.mktemp("edited")
    members = {}
    for number in range(PHOTOS):
        members[f"{number:04d}.png"] = noise_image(number)
        members[f"{number:04d}.txt"] = f"photo {number}".encode()
    write_tar(folder / "real" / "00000.tar", members)
    write_shards(map(two_captions, range(PHOTOS)), folder / "sets", sets_per_shard=15)
    real, sets = (open_index(folder / name, folder / "cache") for name in ("real", "sets"))
    return real, sets


def planned(photos_and_sets: tuple[Index, Index], **settings) -> Mixture:
    given_ = {"cf_ratio": 0.5, "seed": 1, "validation": 0.2} | settings
    return mix(RatioData("real", "sets", **given_), Sources(*photos_and_sets))


def texts(mixture: Mixture, source: int) -> list[str]:
    index = mixture.sources[source]
    assert isinstance(index, Index)
    both = np.concatenate([mixture.train, mixture.validation])
    return [index.text(int(row)) for row in both[both[:, 0] == source, 1]]


def test_one_member_of_each_set_is_a_random_one(photos_and_sets):
    chosen = []
    for seed in (0, 1):
        mixture = planned(
            photos_and_sets, counterfactual_members="one", cf_ratio=1, validation=0, seed=seed
        )
        said = texts(mixture, COUNTERFACTUAL)
        assert len({text.split()[-1] for text in said}) == len(said) == PHOTOS - 14
        chosen.append({text for text in said if text.startswith("red")})
        assert 0.3 < len(chosen[-1]) / len(said) < 0.7
    assert chosen[0] != chosen[1]


def test_one_of_each_is_among_those_that_may_be_drawn(photos_and_sets):
    _, sets = photos_and_sets
    allowed = np.arange(len(sets)) % 2 == 1  # the second members
    assert (choose_one_of_each(sets, 3, allowed) == allowed).all()
    whole = choose_one_of_each(sets, 3)
    assert (choose_one_of_each(sets, 3, np.ones(len(sets), bool)) == whole).all()
    numbers, counts = np.unique(np.asarray(sets.sets)[whole], return_counts=True)
    assert len(numbers) == len(np.unique(sets.sets))
    assert set(counts) == {1}


def test_unchanged_sets_never_count(photos_and_sets):
    _, sets = photos_and_sets
    unchanged = find_unchanged(sets)
    for row in range(len(sets)):
        number = int(sets.key(row).split("_")[0])
        assert unchanged[row] == (number % UNCHANGED == 0)
    assert count_unchanged(sets, unchanged) == 14
    for members, per_set in (("all", 2), ("edited", 1), ("unedited", 1)):
        mixture = planned(photos_and_sets, counterfactual_members=members, cf_ratio=1, validation=0)
        assert mixture.counts["counterfactual"] == per_set * (PHOTOS - 14)
        assert mixture.counts["unchanged"] == 14
        said = texts(mixture, COUNTERFACTUAL)
        assert {int(text.split()[-1]) % UNCHANGED for text in said} == {1, 2}
        reds = sum(text.startswith("red") for text in said)
        assert reds == {"all": len(said) // 2, "edited": len(said), "unedited": 0}[members]


def test_one_photo_of_both_sources_is_one_image_in_a_batch(photos_and_sets):
    real, sets = photos_and_sets
    rows = np.array([(REAL, 4), (COUNTERFACTUAL, 9), (COUNTERFACTUAL, 20), (REAL, 10),
                     (COUNTERFACTUAL, 8), (REAL, 5)])  # fmt: skip
    batch = Examples((real, sets), TRANSFORM, 10).__getitems__(RankBatch(rows, rows))
    shown = ["4", "4", "10", "10", "4", "5"]
    assert [text.split()[-1] for text in batch["texts"]] == shown
    images = batch["images"]
    same = np.array(shown)[:, None] == np.array(shown)
    assert ((images[:, None] == images).numpy() == same).all()
    masked = log_negative_weights(images, batch["sets"], mask_same_image=True,
                                  hard_negative_weight=2.0)  # fmt: skip
    assert (np.isneginf(masked.numpy()) == (same & ~np.eye(6, dtype=bool))).all()


@given(st.lists(st.tuples(st.integers(1, 4), st.booleans(), st.booleans()), min_size=1))
def test_what_is_unchanged_is_what_a_plain_loop_finds(sets):
    """Sets of some members, on one image or on many, one of them edited or none."""
    import pyarrow as pa

    columns = Columns.of((i, members) for i, (members, _, _) in enumerate(sets))
    images, kinds, wanted = [], [], []
    for number, (members, one_image, edited) in enumerate(sets):
        for i in range(members):
            images.append(10 * number if one_image else 10 * number + i)
            kinds.append("subject" if edited and i == members - 1 else None)
            wanted.append(members > 1 and one_image and not edited)

    class Said(Columns):
        def extra(self, name: str) -> pa.ChunkedArray:
            assert name == "edit_kind"
            return pa.chunked_array([pa.array(kinds, pa.string())])

    said = Said(columns.groups, columns.sets, columns.files, columns.contents, ("edit_kind",))
    object.__setattr__(said, "images", np.array(images))
    unchanged = find_unchanged(said)
    assert wanted == ([False] * len(wanted) if unchanged is None else unchanged.tolist())
    assert find_edited(said).tolist() == [kind is not None for kind in kinds]


def test_a_source_that_says_of_no_edits_is_left_as_it_is(photos_and_sets):
    real, _ = photos_and_sets
    assert find_unchanged(real) is None
    with pytest.raises(UserError, match=r"edited needs a source that says which.*'edit_kind'"):
        find_edited(real)
