"""The budget is chosen among accepted sets: exactly, in both directions, and read by training."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfaug.core.errors import UserError
from cfaug.core.types import CounterfactualSet, Edit, Edited, Example, Member, Proposal
from cfaug.data.index import open_index
from cfaug.data.shards.shards import read_chosen, read_sets, write_chosen, write_shard
from cfaug.evaluation.failures import Finder, ModelFailure, write_failures
from cfaug.generate.captions import write_captions
from cfaug.generate.failures import Attempt
from cfaug.generate.folder import write_card
from cfaug.papers.repair.choice import RepairChoice, allocate
from tests.evaluation.joined import picture

WORDS = ("beach", "night", "water", "road", "grass")


def failures_of(count, **more):
    return [
        ModelFailure("stress", "background", word, "snow", effect=1 / (number + 1), **more)
        for number, word in enumerate(WORDS[:count])
    ]


def as_set(proposal):
    shown = enumerate(zip(proposal.texts, proposal.edits, strict=True))
    members = tuple(Member(text, str(i), proposal.key, edit) for i, (text, edit) in shown)
    images = {"0": picture(0), "1": picture(1)}
    return CounterfactualSet(proposal.key, proposal.group, members, images)


def make(folder, tried, accepted, shards=2):
    """Write shards as recipe=repair does: {(failure, direction): tried}, and those accepted."""
    proposals, kept = [], []
    for (number, way), count in tried.items():
        for place in range(count):
            key = f"p{number}{way[0]}{place}"
            example = Example(key, key, (f"a ball {number}",))
            edit = Edit("background", str(number), "snow")
            about = {"failure": number, "direction": way}
            texts = (example.text, "a ball snow")
            proposals.append(Proposal(example, texts, (None, edit), about, f"{key}-{number:03d}"))
            if place < accepted[number, way]:
                kept.append(proposals[-1])
    for shard in range(shards):
        some = proposals[shard::shards]
        done = {i: Edited((proposal,)) for i, proposal in enumerate(some)}
        examples = [proposal.example for proposal in some]
        folder.mkdir(exist_ok=True)
        write_captions(examples, Attempt(done, {}), folder, shard, {})
        sets = [as_set(proposal) for proposal in some if proposal in kept]
        commit = {"caption_sets": 0, "candidates": 0, "accepted": 0, "without": 0,
                  "rejected": {}, "failed": [], "edits": ""}  # fmt: skip
        write_shard(sets, folder, shard, about=commit)
    return folder


def tally(keys, number, way):
    return sum(key.startswith(f"p{number}{way[0]}") for key in keys)


WAYS = ("forward", "reverse")


def both(tried):
    return {(i, way): n for i, of in tried.items() for way, n in zip(WAYS, of, strict=True)}


def test_as_many_are_chosen_in_one_direction_as_in_the_other(tmp_path):
    file = tmp_path / "failures.jsonl"
    write_failures(file, failures_of(4))
    tried = both({0: (30, 20), 1: (20, 20), 2: (30, 30), 3: (20, 0)})
    accepted = both({0: (30, 6), 1: (20, 20), 2: (1, 0), 3: (20, 0)})
    folder = make(tmp_path / "shards", tried, accepted)
    choice = RepairChoice(str(file), budget=48)
    content = choice.choose(folder)
    rows = content["failures"]
    # A quarter of 48 images is 12; the third yields 1 of 60; the fourth has none in reverse.
    assert [row["chosen"] for row in rows] == [12, 12, 0, 0]
    assert [row["editable"] for row in rows] == [True, True, False, True]
    assert [row["planned"] for row in rows] == [12, 12, 12, 12]
    assert content["returned"] == 24
    for number, way in ((0, "forward"), (0, "reverse"), (1, "forward"), (1, "reverse")):
        assert tally(content["keys"], number, way) == 6
    assert rows[2]["yield"] == pytest.approx(1 / 60, abs=1e-4)
    assert choice.choose(folder) == content
    other = RepairChoice(str(file), budget=48, seed=1).choose(folder)
    assert other["keys"] != content["keys"]
    strict = RepairChoice(str(file), budget=48, least_yield=0.8).choose(folder)
    assert [row["editable"] for row in strict["failures"]] == [False, True, False, True]
    assert [row["chosen"] for row in strict["failures"]] == [0, 12, 0, 0]


def test_a_failure_of_coverage_has_its_images_in_one_direction(tmp_path):
    file = tmp_path / "failures.jsonl"
    lacking, relied = failures_of(2)
    write_failures(file, (replace(lacking, cause="coverage"), replace(relied, cause="reliance")))
    tried = both({0: (30, 0), 1: (30, 30)})
    content = RepairChoice(str(file), budget=48).choose(make(tmp_path / "shards", tried, tried))
    assert [row["chosen"] for row in content["failures"]] == [12, 12]
    assert tally(content["keys"], 0, "forward") == 12
    assert tally(content["keys"], 1, "forward") == tally(content["keys"], 1, "reverse") == 6


def test_a_larger_budget_keeps_what_a_smaller_one_chose(tmp_path):
    file = tmp_path / "failures.jsonl"
    write_failures(file, failures_of(2))
    tried = both({0: (40, 40), 1: (40, 40)})
    folder = make(tmp_path / "shards", tried, tried)
    small, large = (RepairChoice(str(file), budget=n).choose(folder)["keys"] for n in (32, 96))
    assert set(small) < set(large)
    assert (len(small), len(large)) == (16, 48)


def test_a_card_beside_shards_says_which_sets_are_read(tmp_path):
    file = tmp_path / "failures.jsonl"
    write_failures(file, failures_of(1))
    tried = both({0: (9, 9)})
    folder = make(tmp_path / "shards", tried, tried)
    write_card(folder)
    whole = open_index(str(folder), tmp_path / "cache")
    assert len(whole) == 36
    assert read_chosen(folder) is None
    content = RepairChoice(str(file), budget=32).choose(folder)
    write_chosen(folder, content)
    index = open_index(str(folder), tmp_path / "cache")
    read = {index.key(row).rpartition("_")[0] for row in range(len(index))}
    assert sorted(read) == content["keys"]
    assert index.hash != whole.hash
    assert sorted(made.key for made in read_sets(folder)) == content["keys"]
    write_chosen(folder, {"keys": ["p0f0-000", "gone"]})
    with pytest.raises(UserError, match=r"chosen\.json names sets .* \(gone\)"):
        open_index(str(folder), tmp_path / "cache")
    for damaged in ({"keys": "p"}, {}, {"keys": [1]}):
        write_chosen(folder, damaged)
        with pytest.raises(UserError, match="does not list the keys of sets"):
            read_chosen(folder)
    (folder / "chosen.json").write_text("{")
    with pytest.raises(UserError, match="cannot be read"):
        open_index(str(folder), tmp_path / "cache")


def cells_of(count):
    """Return measured cells as a file holds them: strongest first, half of them negative."""
    effects = [1 - 2 * number / count for number in range(count)]
    return [
        ModelFailure("stress", "background", f"word {number}", "snow", effect=effect)
        for number, effect in enumerate(effects)
    ]


@pytest.mark.slow
def test_which_equal_lines_are_kept_is_drawn_and_not_the_files_order(tmp_path):
    """40 lines and 16 pairs; an independent draw per seed has each line in 16 of 40 choices."""
    failures = cells_of(40)
    tried = {(i, way): 1 for i in range(40) for way in WAYS}
    file = tmp_path / "all.jsonl"
    write_failures(file, failures)
    folder = make(tmp_path / "shards", tried, tried)
    kept = []
    for seed in range(30):
        rows = RepairChoice(str(file), budget=32, weights="equal", seed=seed).choose(folder)
        kept.append([row["chosen"] for row in rows["failures"]])
        assert sorted(kept[-1]) == [0] * 24 + [2] * 16
    shares = [sum(of) / 60 for of in zip(*kept, strict=True)]
    assert min(shares) > 0
    assert max(shares) < 0.8
    assert abs(sum(shares[:20]) / 20 - 0.4) < 0.06
    # Turning the file round keeps the same lines.
    write_failures(file, failures[::-1])
    choice = RepairChoice(str(file), budget=32, weights="equal", seed=3)
    assert [row["planned"] for row in choice.choose(folder)["failures"]][::-1] == kept[3]
    write_failures(file, [])
    with pytest.raises(UserError, match="holds no failure: there is nothing to repair"):
        RepairChoice(str(file), weights="equal").choose(folder)


@given(st.lists(st.integers(0, 30), min_size=1, max_size=30), st.integers(4, 40), st.integers(0, 9))
def test_equal_lines_differ_by_one_pair_or_have_all_they_can(limits, quarter, seed):
    failures = cells_of(len(limits) + 1)[: len(limits)]
    choice = RepairChoice(None, budget=8 * quarter, weights="equal", seed=seed)
    capped = [min(limit, quarter) for limit in limits]
    (pairs,) = choice._allocate(failures, capped)
    # By hand: a pair at a time to whoever has fewest and can take another.
    slow = [0] * len(limits)
    for _ in range(4 * quarter):
        able = [i for i, limit in enumerate(capped) if slow[i] < limit]
        if able:
            slow[min(able, key=lambda i: slow[i])] += 1
    assert sorted(pairs) == sorted(slow)
    assert all(pair <= limit for pair, limit in zip(pairs, capped, strict=True))


@dataclass(frozen=True)
class Weights:
    """A model's weights, of which only the hash counts here."""

    name: str

    def weights_hash(self) -> str:
        return f"sha of {self.name}"


def test_the_model_under_repair_does_not_judge(tmp_path):
    judge, other = Weights("one"), Weights("other")
    finder = Finder("demo/real/seed=1", judge.weights_hash(), "a_stress", "data")
    file = tmp_path / "failures.jsonl"
    write_failures(file, failures_of(2, found_by=finder))
    with pytest.raises(UserError, match="it is the model under repair: demo/real/seed=1"):
        RepairChoice(str(file), judge=judge)
    RepairChoice(str(file), judge=other)
    write_failures(file, failures_of(2))
    RepairChoice(str(file), judge=judge)


def test_a_budget_of_less_than_a_fourth_for_a_failure_is_refused():
    with pytest.raises(UserError, match=r"recipe\.choice\.budget=31"):
        RepairChoice(None, budget=31)


# A budget divided in proportion, within bounds, to the last image.


PARTS = st.lists(
    st.tuples(st.integers(-1, 50).map(lambda x: x / 10), st.integers(0, 40)), max_size=8
)


@given(PARTS, st.integers(0, 120), st.integers(0, 9))
def test_bounds_hold_and_nothing_is_left_that_could_be_placed(parts, total, least):
    weights, limits = [weight for weight, _ in parts], [limit for _, limit in parts]
    counts = allocate(weights, total, least=least, limits=limits)
    assert len(counts) == len(parts)
    assert sum(counts) <= total
    for weight, limit, count in zip(weights, limits, counts, strict=True):
        assert count == 0 or (least <= count <= limit and weight > 0)
    able = [i for i in range(len(parts)) if weights[i] > 0 and limits[i] >= max(least, 1)]
    if total - sum(counts) >= max(least, 1):
        assert all(counts[i] == limits[i] for i in able)
    for i in able:
        for j in able:
            if weights[i] > weights[j] and limits[i] >= limits[j]:
                assert counts[i] >= counts[j]


@given(st.lists(st.integers(1, 30), min_size=1, max_size=6), st.integers(0, 100))
def test_without_bounds_it_is_the_largest_remainder(weights, total):
    counts = allocate(weights, total, least=0, limits=[total] * len(weights))
    whole = sum(weights)
    slow = [total * weight // whole for weight in weights]
    while sum(slow) < total:
        gaps = [Fraction(total * w, whole) - n for w, n in zip(weights, slow, strict=True)]
        slow[gaps.index(max(gaps))] += 1
    assert counts == slow
    for weight, count in zip(weights, counts, strict=True):
        assert abs(count - total * weight / whole) < 1


@pytest.mark.parametrize(
    ("weights", "total", "limits", "counts"),
    [
        ([9, 1], 100, [50, 50], [50, 50]),  # what one cannot take goes to the other
        ([9, 1], 100, [25, 25], [25, 25]),  # and what none can take is returned
        ([1, 1, 1], 20, [20, 20, 20], [10, 10, 0]),  # too little for three: the first two
        ([1, 0, -1], 20, [20, 20, 20], [20, 0, 0]),
        ([1, 1], 20, [7, 20], [0, 20]),
    ],
)
def test_examples(weights, total, limits, counts):
    assert allocate(weights, total, least=8, limits=limits) == counts


def test_what_was_accepted_is_said_in_both_directions(tmp_path, capsys):
    file = tmp_path / "failures.jsonl"
    write_failures(file, failures_of(2))
    folder = make(tmp_path / "shards", both({0: (9, 8), 1: (6, 0)}), both({0: (9, 7), 1: (6, 0)}))
    RepairChoice(str(file), budget=32).choose(folder)
    first, second, last = capsys.readouterr().err.splitlines()
    assert first.endswith("9 of 9 edits and 7 of 8 back were accepted, 8 images of 8 planned")
    assert second.endswith("6 of 6 edits and 0 of 0 back were accepted, 0 images of 8 planned")
    assert last.startswith("8 of the budget's 32 images are chosen; 24 are returned; more photos")
