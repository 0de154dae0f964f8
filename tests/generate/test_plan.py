from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from cfaug.core.types import Edit
from cfaug.generate.recipe import (
    ShardPlan,
    digest,
    shard_count,
    shard_slice,
    shards_of,
)
from cfaug.generate.sampling import Draws
from tests.properties import examples
from tests.records import proposal


def sets(count, members=2):
    edits = (None, *(Edit("noun", "cat", f"dog{m}") for m in range(1, members)))
    return [
        proposal([f"text {i} {m}" for m in range(members)], edits, f"k{i}") for i in range(count)
    ]


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(0, 500), st.integers(1, 40), st.integers(1, 12))
def test_parts_divide_the_shards_and_shards_the_captions(captions, per_shard, parts) -> None:
    items = list(range(captions))
    count = shard_count(captions, per_shard)
    dealt = [number for part in range(parts) for number in shards_of(part, parts, count)]
    assert sorted(dealt) == list(range(count))
    cut = [shard_slice(items, number, per_shard) for number in range(count)]
    assert [item for piece in cut for item in piece] == items
    assert all(0 < len(piece) <= per_shard for piece in cut)


@settings(max_examples=examples(60), deadline=None)
@given(
    st.integers(0, 7), st.integers(1, 20), st.integers(1, 5), st.integers(1, 25), st.integers(0, 9)
)
def test_batches_hold_every_candidate_once_in_order(count, candidates, tree, size, seed) -> None:
    draws = Draws(candidates=candidates, sampling=f"tree({tree})")
    some = sets(count)
    cut = ShardPlan(some, draws, seed, size).batches()
    found = [
        (portion.place, portion.first + k, draw)
        for batch in cut
        for portion in batch
        for k, draw in enumerate(portion.draws)
    ]
    assert found == [
        (place, k, draw)
        for place, one in enumerate(some)
        for k, draw in enumerate(draws.draw(one.key, seed))
    ]
    for batch in cut:
        held = sum(len(portion.draws) for portion in batch)
        families = {(p.place, d.seed) for p in batch for d in p.draws}
        assert held <= size or len(families) == 1
        assert len({portion.place for portion in batch}) == len(batch)
    seeds = [{(p.place, d.seed) for p in batch for d in p.draws} for batch in cut]
    assert sum(map(len, seeds)) == len(set().union(*seeds))  # no family is parted


def test_a_batch_is_its_texts_and_its_draws() -> None:
    some = sets(3)
    first, second = ShardPlan(some, Draws(candidates=4), 0, 6).batches()
    assert digest(first, some) == digest(first, sets(3))
    assert digest(first, some) != digest(second, some)
    assert digest(first, some) != digest(first, sets(3, members=3))
    assert digest(first, some) != digest(
        ShardPlan(some, Draws(candidates=4), 1, 6).batches()[0], some
    )


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.integers(1, 4), max_size=6), st.integers(1, 7), st.integers(1, 25))
def test_batches_never_part_an_example_where_they_are_to_keep_it_whole(
    counts, candidates, size
) -> None:
    some = [
        replace(proposal(["a", "b"], key=f"e{number}"), key=f"e{number}-{k}")
        for number, count in enumerate(counts)
        for k in range(count)
    ]
    draws = Draws(candidates=candidates)
    cut = ShardPlan(some, draws, 0, size, whole_examples=True).batches()
    places = [one.place for batch in cut for one in batch]
    assert places == list(range(len(some)))
    assert all(len(one.draws) == candidates for batch in cut for one in batch)
    held = [[some[one.place].example.key for one in batch] for batch in cut]
    for before, after in pairwise(held):
        assert before[-1] != after[0]
        # Nothing is cut that would have fitted.
        assert candidates * (len(before) + counts[int(after[0][1:])]) > size
    for keys in held:
        assert candidates * len(keys) <= size or len(set(keys)) == 1
