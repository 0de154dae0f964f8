"""Successive halving: who is given up, what is told of them, and what does not depend on it."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfaug.data.shards.shards import read_sets
from cfaug.generate.candidate_scoring import ShardScorer, better_half
from cfaug.generate.job import generate
from cfaug.generate.recipe import ShardPlan
from cfaug.generate.sampling import Draws
from cfaug.imaging.select import clip_selection
from tests.generate import tiny
from tests.generate.test_candidate_scoring import caption_sets, slow_scores
from tests.generate.tiny import card, contents, job, log

EVERYTHING = clip_selection(-1, -1, None)


@given(
    st.dictionaries(st.integers(0, 50), st.tuples(st.integers(0, 3), st.floats(-1, 1)), max_size=20)
)
def test_the_better_half_of_every_set_is_kept(candidates) -> None:
    kept = better_half(candidates)
    assert kept == sorted(set(kept))
    for one in {place for place, _ in candidates.values()}:
        mine = [number for number, (place, _) in candidates.items() if place == one]
        staying = [number for number in kept if number in mine]
        leaving = [number for number in mine if number not in staying]
        assert len(staying) == math.ceil(len(mine) / 2)
        worst = min(candidates[number][1] for number in staying)
        assert all(candidates[number][1] <= worst for number in leaving)


@pytest.mark.parametrize("aggregate", ["min", "mean"])
@pytest.mark.parametrize(("rounds", "left"), [(1, 3), (2, 2), (5, 1)])
def test_the_directional_similarity_decides(aggregate, rounds, left) -> None:
    """Six candidates a set; the painter's guesses are exact, so the order is that of the end."""
    draws = Draws(candidates=6, sampling=f"halving({rounds})")
    select = clip_selection(-1, -1, None, aggregate)
    sets = caption_sets(3, count=4)
    desk = ShardScorer(tiny.studio(select=select), sets, draws)
    [batch] = ShardPlan(sets, draws, 3, 100).batches()
    for drawn in desk.score(batch, desk.sample(batch)):
        texts = sets[drawn.place].texts
        pool = min if aggregate == "min" else (lambda values: sum(values) / len(values))
        value = {one.number: pool(slow_scores(texts, one.draw)[3]) for one in drawn.candidates}
        best = sorted(value, key=value.__getitem__)[-left:]
        assert {one.number for one in drawn.candidates if not one.reason} == set(best)
        for one in drawn.candidates:
            if one.number not in best:
                assert (one.reason, one.scores) == ("halving", {})


def test_what_was_given_up_is_logged_and_the_best_is_found(tmp_path) -> None:
    draws = {name: Draws(candidates=5, sampling=name) for name in ("independent", "halving(1)")}
    for name, one in draws.items():
        generate(job(tmp_path / name, draws=one, studio=tiny.studio(select=EVERYTHING)))
    rows = log(tmp_path / "halving(1)")
    reasons = Counter(row["reason"] for row in rows)
    assert reasons == {"": 3 * len(rows) / 5, "halving": 2 * len(rows) / 5}
    assert card(tmp_path / "halving(1)")["rejected"] == {"halving": reasons["halving"]}
    given_up = [row for row in rows if row["reason"] == "halving"]
    assert all(row["sim_0"] is None and not row["accepted"] for row in given_up)
    whole, halved = (
        {one.key: one.members[0].extra["candidate"] for one in read_sets(tmp_path / name)}
        for name in draws
    )
    assert halved == whole  # here, where guesses are exact and every candidate is acceptable


@pytest.mark.parametrize("overlap", [False, True])
def test_bytes_depend_on_the_plan_alone(tmp_path, overlap) -> None:
    draws = Draws(candidates=6, sampling="halving(2)")
    generate(job(tmp_path / "whole", draws=draws))
    for part in range(3):
        generate(job(tmp_path / "parts", draws=draws, part=part, parts=3, pipeline_scoring=overlap))
    found = contents(tmp_path / "parts")
    assert found == contents(tmp_path / "whole")
