from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfaug.core.errors import UserError
from cfaug.core.known_names import refuse_unknown
from cfaug.core.pixels import DIGEST_BYTES
from cfaug.data.index.disk_format import DIGESTS, NUMBERS
from cfaug.data.mixture.mixture import plan_mixture
from cfaug.data.mixture.order import MANY, epoch_order, pack, rank_share, split_sets
from cfaug.data.mixture.records import REAL
from cfaug.data.mixture.settings import (
    DataSettings,
    EntailmentData,
    NegativesData,
    PlanData,
    QuestionData,
    RatioData,
)
from tests.data.making import Columns
from tests.properties import examples


def mixture(real, sets, members=2, **arguments):
    plan = {"cf_ratio": 0.6, "size": None, "seed": 1, "validation": 0, **arguments}
    return plan_mixture(
        Columns.of((i, 1) for i in range(real)),
        Columns.of((i, members) for i in range(sets)),
        **plan,
    )


def order(plan, epoch=0, seed=3, data_seed=1, batch_size=16, **arguments):
    return epoch_order(
        plan, data_seed=data_seed, seed=seed, epoch=epoch, batch_size=batch_size, **arguments
    )


modes = st.sampled_from(
    [{}, {"stratify": True}, {"pairs_in_batch": True}, {"window": 2},
     {"window": 1, "stratify": True}, {"window": 3, "pairs_in_batch": True}]
)  # fmt: skip


@settings(max_examples=examples(100), deadline=None)
@given(st.integers(1, 60), st.integers(1, 60), st.integers(1, 4), st.integers(0, 10),
       st.integers(1, 40), st.integers(1, 5), st.integers(0, 3), modes)  # fmt: skip
def test_ranks_together_see_the_plan_once(
    real, sets, members, tenths, batch_size, world, epoch, mode
):
    plan = mixture(real, sets, members, cf_ratio=tenths / 10)
    positions = order(plan, epoch, batch_size=batch_size, **mode)
    assert sorted(positions.tolist()) == list(range(len(plan.train)))
    assert np.array_equal(positions, order(plan, epoch, batch_size=batch_size, **mode))
    batches = [positions[i : i + batch_size] for i in range(0, len(positions), batch_size)]
    assert len(batches) == RatioData(None, None, batch_size=batch_size).steps_per_epoch(
        len(positions)
    )
    for batch in batches:
        shares = [rank_share(batch, rank, world) for rank in range(world)]
        assert np.array_equal(np.concatenate(shares), batch)
        sizes = [len(share) for share in shares]
        assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("change", [{"epoch": 1}, {"seed": 4}, {"data_seed": 2}])
def test_another_epoch_or_seed_is_another_order(change):
    plan = mixture(60, 60)
    assert not np.array_equal(order(plan), order(plan, **change))


def counterfactuals_per_batch(plan, positions, batch_size):
    is_cf = plan.train[positions, 0] != REAL
    whole = len(positions) // batch_size * batch_size
    return is_cf[:whole].reshape(-1, batch_size).sum(axis=1)


def test_counterfactuals_are_spread_hypergeometrically():
    plan, size = mixture(240, 180), 16
    per_batch = np.concatenate(
        [counterfactuals_per_batch(plan, order(plan, epoch), size) for epoch in range(100)]
    )
    total, n_cf = len(plan.train), plan.counts["counterfactual"]
    share = n_cf / total
    mean, variance = size * share, size * share * (1 - share) * (total - size) / (total - 1)
    assert abs(per_batch.mean() - mean) < 5 * np.sqrt(variance / len(per_batch))
    # The deviation of a sample variance is variance * sqrt(2 / n) for a nearly normal count.
    assert abs(per_batch.var() - variance) < 5 * variance * np.sqrt(2 / len(per_batch))


@pytest.mark.parametrize("tenths", range(1, 10))
@pytest.mark.parametrize("batch_size", [7, 16])
def test_stratified_batches_have_their_share(tenths, batch_size):
    plan = mixture(150, 75, cf_ratio=tenths / 10)
    share = batch_size * plan.counts["counterfactual"] / len(plan.train)
    for epoch in range(2):
        positions = order(plan, epoch, batch_size=batch_size, stratify=True)
        counts = set(counterfactuals_per_batch(plan, positions, batch_size).tolist())
        assert counts <= {int(np.floor(share)), int(np.ceil(share))}


def test_stratified_batches_are_shuffled_inside():
    plan = mixture(240, 180)
    places = np.zeros(16)
    for epoch in range(50):
        is_cf = plan.train[order(plan, epoch, stratify=True), 0] != REAL
        places += is_cf[: len(is_cf) // 16 * 16].reshape(-1, 16).sum(axis=0)
    assert places.std() < 0.1 * places.mean()


def slow_split_sets(plan, positions, batch_size):
    batches_of_set = {}
    for place, position in enumerate(positions.tolist()):
        source, row = plan.train[position]
        if source != REAL:
            key = int(plan.sources[1].sets[row])
            batches_of_set.setdefault(key, set()).add(place // batch_size)
    return sum(len(batches) > 1 for batches in batches_of_set.values())


@pytest.mark.parametrize("batch_size", [16, 17, 64])
@pytest.mark.parametrize("members", [2, 3])
@pytest.mark.parametrize("window", [None, 4])
def test_whole_sets_share_a_batch(batch_size, members, window):
    plan = mixture(300, 450 // members, members, cf_ratio=0.6)
    for epoch in range(3):
        positions = order(plan, epoch, batch_size=batch_size, pairs_in_batch=True, window=window)
        split = split_sets(plan, positions, batch_size)
        assert split == slow_split_sets(plan, positions, batch_size)
        # At the very end there may be no single left to fill a gap with.
        assert split <= (1 if batch_size % members else 0)


@settings(max_examples=examples(100), deadline=None)
@given(st.integers(0, 20), st.integers(1, 20), st.integers(1, 5), st.integers(1, 12), st.booleans())
def test_split_sets_are_counted(real, sets, members, batch_size, together):
    plan = mixture(real + 1, sets, members, cf_ratio=0.9 if real else 1)
    positions = order(plan, batch_size=batch_size, pairs_in_batch=together)
    assert split_sets(plan, positions, batch_size) == slow_split_sets(plan, positions, batch_size)


def boundaries_crossed(sizes, batch_size):
    ends = np.cumsum(sizes)
    return np.count_nonzero((ends - 1) // batch_size != (ends - sizes) // batch_size)


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(st.integers(1, 6), max_size=80), st.integers(1, 20))
def test_packing_is_a_permutation(sizes, batch_size):
    packed = pack(np.array(sizes, np.int64), batch_size)
    assert sorted(packed.tolist()) == list(range(len(sizes)))


def test_packing_cuts_only_when_nothing_fits():
    rng = np.random.default_rng(0)
    sizes = rng.choice([1, 2, 3], 5_000)
    assert boundaries_crossed(sizes, 17) > 100
    packed = pack(sizes, 17)
    assert boundaries_crossed(sizes[packed], 17) == 0
    # Few units are far from their place: the order is still the shuffled one.
    assert np.median(np.abs(packed - np.arange(len(sizes)))) < 64


def test_packing_with_far_more_sets_than_singles():
    sizes = np.where(np.random.default_rng(1).random(60_000) < 0.12, 1, 2)
    packed = pack(sizes, 17)
    assert np.count_nonzero(np.diff(packed) < 0) > MANY  # the queue was rewritten on the way
    assert sorted(packed.tolist()) == list(range(len(sizes)))
    assert boundaries_crossed(sizes[packed], 17) < 0.1 * boundaries_crossed(sizes, 17)


@pytest.mark.parametrize("mode", [{}, {"stratify": True}, {"pairs_in_batch": True}])
def test_a_window_touches_few_files_at_a_time(mode):
    plan = mixture(140, 105, cf_ratio=0.6)
    positions = order(plan, window=3, **mode)
    for source in (0, 1):
        rows = plan.train[positions][plan.train[positions][:, 0] == source, 1]
        files = plan.sources[source].files[rows]
        last = {int(file): place for place, file in enumerate(files)}
        first = {int(file): place for place, file in reversed(list(enumerate(files)))}
        open_at_once = max(
            sum(first[f] <= place <= last[f] for f in first) for place in range(len(files))
        )
        # A set put off by one batch may keep its window's files open next to the following ones.
        assert open_at_once <= (6 if mode.get("pairs_in_batch") else 3)
        assert len(first) > 10
        starts = [f for f, _ in sorted(first.items(), key=lambda item: item[1])]
        assert starts != sorted(starts)


def test_drop_last_that_drops_everything():
    with pytest.raises(UserError, match=r"10 training examples.*batch_size=64"):
        RatioData(None, None, drop_last=True).steps_per_epoch(10)


# Data settings that contradict each other are refused.


class Medium:
    """A plan that is never drawn."""

    name = "medium"
    sources = (True, True)
    needs_labels = False

    def draw(self, pool, validation):
        raise AssertionError


MEDIUM = Medium()


@pytest.mark.parametrize(
    ("kind", "given", "named"),
    [
        (PlanData, {}, r"data\.plan=None should be an object .*data\.mixture=NAME"),
        (PlanData, {"plan": "medium"}, r"data\.plan='medium' should be an object"),
        (PlanData, {"plan": MEDIUM, "control": "both"}, "choose from real, counterfactual"),
        (PlanData, {"plan": MEDIUM, "control_source": "x"},
         r"data\.control_source=x needs data\.control"),
        (RatioData, {"world": "fog"}, r"data\.world=fog should be null or settings of its own"),
        (RatioData, {"stratify": True, "pairs_in_batch": True}, r"stratify.*pairs_in_batch"),
        (RatioData, {"shuffle": "window(0)"}, r"data\.shuffle=.*window\(8\)"),
        (RatioData, {"shuffle": 3}, r"data\.shuffle=.*should be a text"),
        (RatioData, {"split": "rows"}, "choose from group, random"),
        (RatioData, {"real_captions": "some"}, "choose from all, edited"),
        (RatioData, {"batch_size": 0}, r"data\.batch_size="),
        (RatioData, {"workers": -1}, r"data\.workers="),
        (RatioData, {"size": 0}, r"data\.size="),
        (RatioData, {"validation": 1}, r"data\.validation="),
        (RatioData, {"cf_ratio": 2}, r"data\.cf_ratio="),
        (RatioData, {"counterfactual_holdout": 1},
         r"data\.counterfactual_holdout=1 should be a number in"),
        (NegativesData, {"negatives": "texts"}, "none, text, image, both"),
        (NegativesData, {"negatives": None}, "none, text, image, both"),
        (NegativesData, {"negatives": "both", "stratify": True}, "exclude each other"),
    ],
)  # fmt: skip
def test_settings_that_are_invalid_or_contradict_each_other_are_named(kind, given, named):
    with pytest.raises(UserError, match=named):
        kind("real", "cf", **given)


# What a mixture lacks cannot be given, and has one value for everybody who reads it.
LACKED = {
    PlanData: ("cf_ratio", "size", "counterfactual_members", "negatives"),
    RatioData: ("plan", "control", "control_source", "negatives"),
    NegativesData: (
        "plan", "control", "control_source", "split", "pairs_in_batch", "human_labels",
        "counterfactual_members", "counterfactual_captions",
    ),
    EntailmentData: ("plan", "negatives", "counterfactual_captions"),
    QuestionData: (
        "plan", "control", "human_labels", "holdout", "counterfactual_holdout", "shuffle", "fields",
        "reader", "near_duplicates", "negatives", "real_captions", "counterfactual_captions",
        "counterfactual_members",
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind, names in LACKED.items() for name in names]
)
def test_a_mixture_lacks_what_it_determines(kind, name):
    plan = {"plan": MEDIUM} if kind is PlanData else {}
    with pytest.raises(TypeError, match=name):
        kind("real", "cf", **plan, **{name: None})
    assert getattr(kind("real", "cf", **plan), name) == getattr(DataSettings(None, None), name) or (
        name == "cf_ratio"
    )
    with pytest.raises(UserError, match=rf"data\.{name} is a setting of "):
        refuse_unknown({name: 1}, [], "data.", kind)


def test_a_seed_follows_the_run_s_unless_it_is_given():
    assert RatioData("real", "cf").with_seed(107).seed == 108
    assert RatioData("real", "cf", seed=0).with_seed(107).seed == 0


# Ten million rows are planned in the time of a few sorts, within a GiB.


PLAN = """
import json, sys, time
import numpy as np
from pathlib import Path
from cfaug.data.index import Index
from cfaug.data.mixture.mixture import plan_mixture
from cfaug.data.mixture.order import epoch_order
from cfaug.run.run_folder import peak_rss_mib

indexes = [Index(Path(folder), folder, "synthetic", folder) for folder in sys.argv[1:3]]
# One thread: seconds of CPU are what an idle core takes, whatever else the machine does.
started = time.process_time()
plan = plan_mixture(*indexes, cf_ratio=0.6, size=None, seed=108)
order = epoch_order(
    plan, data_seed=108, seed=107, epoch=0, batch_size=64, **json.loads(sys.argv[3])
)
seconds = time.process_time() - started
peak = peak_rss_mib()  # not ru_maxrss, which a child inherits from the process that started it
# What the machine takes to sort as many numbers: the measure of what it can do.
numbers = np.random.default_rng(0).permutation(sum(map(len, indexes)))
started = time.process_time()
numbers.argsort(kind="stable")
sorting = time.process_time() - started
found = {"counts": plan.counts, "n": len(order), "seconds": seconds, "sorting": sorting}
print(json.dumps({**found, "peak_mib": peak}))
"""


def write_index(folder: Path, rows: int, members: int) -> Path:
    """Write the columns a plan reads, as a scan would."""
    folder.mkdir()
    sets = np.arange(rows) // members
    columns = {
        "sets": sets,
        "groups": sets.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15),
        "file": np.arange(rows) // 10_000,
        "images": np.arange(rows),
    }
    for name, column in columns.items():
        np.save(folder / f"{name}.npy", column.astype(NUMBERS[name]))
    digests = np.random.default_rng(rows).integers(0, 256, (rows, DIGEST_BYTES), np.uint8)
    digests[members] = digests[0]  # two groups are joined, which takes every step there is
    np.save(folder / f"{DIGESTS}.npy", digests)
    return folder


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("scale")
    return [
        str(write_index(root / "real", 4_000_000, 1)),
        str(write_index(root / "counterfactual", 6_000_000, 2)),
    ]


@pytest.mark.slow
def test_ten_million_rows(folders):
    done = subprocess.run(
        [sys.executable, "-c", PLAN, *folders, json.dumps({"stratify": True})],
        capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    measured = json.loads(done.stdout)
    print(measured)
    assert measured["n"] == 8_000_000
    assert measured["counts"]["counterfactual"] == 4_800_000
    assert measured["seconds"] < 10 * measured["sorting"]
    assert measured["peak_mib"] < 1024
