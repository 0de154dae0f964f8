"""The simulated cluster, against closed forms and against one event a shard."""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import fmean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import cluster_simulation
from benchmarks.cluster_simulation import (
    Cluster,
    Workload,
    cluster_part,
    predict,
    recommend,
    simulate,
)
from tests.properties import examples

CALM = Cluster(
    stragglers=0, restarts_per_hour=0, losses_per_hour=0, start_up=30, seconds_per_shard=2
)
"""Without anything random."""


@settings(max_examples=examples(100))
@given(sets=st.integers(1, 400), per_shard=st.integers(1, 60), workers=st.integers(1, 20))
def test_without_failures_the_time_is_that_of_the_fullest_worker(sets, per_shard, workers):
    work = Workload(sets, per_shard, 10)
    run = simulate(work, workers, CALM)
    each, rounds = per_shard * 10 + 2, sets // per_shard // workers
    left = sets // per_shard % workers  # shards of the last round; then the one with the rest
    rest = sets % per_shard * 10 + 2 if sets % per_shard else 0
    wall = rounds * each + max(each if left else 0, rest)
    assert run.wall == pytest.approx(30 + wall)
    assert run.kept == pytest.approx(10 * sets)
    assert run.lost == 0
    assert run.wall <= simulate(work, workers - 1 or 1, CALM).wall + 1e-6


@settings(max_examples=examples(100))
@given(
    sets=st.integers(1, 3000), per_shard=st.integers(1, 200), workers=st.integers(1, 30),
    journal=st.booleans(), replicate=st.integers(0, 99),
)  # fmt: skip
def test_all_sets_are_kept_once_whatever_fails(sets, per_shard, workers, journal, replicate):
    cluster = replace(CALM, restarts_per_hour=4, losses_per_hour=2, journal=journal)
    run = simulate(Workload(sets, per_shard, 5), workers, cluster, replicate)
    assert run.kept == pytest.approx(5 * sets)
    assert run.lost >= -1e-6
    assert run.waiting >= -1e-6
    assert 0 <= run.waste < 1
    assert run == simulate(Workload(sets, per_shard, 5), workers, cluster, replicate)


@pytest.mark.parametrize("per_shard", [10, 60])
def test_the_time_lost_is_that_of_exponential_failures(per_shard):
    """E[work until a shard survives] = (exp(rate d) - 1) / rate, of which d is kept."""
    rate, seconds = 2 / 3600, per_shard * 30
    cluster = replace(CALM, restarts_per_hour=2, start_up=0, seconds_per_shard=0, journal=False)
    runs = [simulate(Workload(30_000, per_shard, 30), 8, cluster, i) for i in range(6)]
    lost = sum(run.lost for run in runs) / sum(run.lost + run.kept for run in runs)
    assert lost == pytest.approx(1 - rate * seconds / math.expm1(rate * seconds), rel=0.1)


def test_a_journal_saves_all_but_a_batch():
    rates = replace(CALM, restarts_per_hour=2, journal=True)
    work = Workload(20_000, 300, 10, sets_per_batch=4)
    with_journal, without = (simulate(work, 8, replace(rates, journal=j)) for j in (True, False))
    failures = 2 / 3600 * with_journal.paid
    assert with_journal.lost == pytest.approx(failures * 20, rel=0.25)  # half a batch each
    assert without.lost > 20 * with_journal.lost


def test_given_failures_are_followed_to_the_second():
    """Two workers, shards of 10 s: the first fails 4 s into its second shard, and starts again."""
    cluster = replace(CALM, start_up=1, seconds_per_shard=0, journal=False)
    run = simulate(Workload(50, 10, 1), 2, cluster, uptimes=[[15.0], []])
    # Worker 0: shard until 11, lost at 15, again from 16 to 26. Worker 1: until 11, 21, 31.
    assert (run.wall, run.lost, run.kept) == (31, 4, 50)
    assert run.waiting == pytest.approx(62 - 54 - 3)
    kept = simulate(Workload(50, 10, 1), 2, replace(cluster, journal=True), uptimes=[[15.5], []])
    assert kept.lost == pytest.approx(0.5)


def test_many_shards_as_one_event_change_no_expectation(monkeypatch):
    cluster = Cluster(losses_per_hour=0.5, replacement=300, seconds_per_shard=3, slowdown=3)
    work = Workload(6_000, 10, 20, sets_per_batch=2)

    def walls():
        return [simulate(work, 12, cluster, i).wall for i in range(30)]

    together = walls()
    monkeypatch.setattr(cluster_simulation, "PORTION", 10**9)
    alone = walls()
    assert fmean(together) == pytest.approx(fmean(alone), rel=0.02)


def test_the_quickest_choice_is_recommended_within_the_limit_of_files():
    cluster = replace(
        CALM, workers=(2, 10), sets_per_shard=(1, 10, 100), replicates=1, most_files=1000
    )
    predictions = predict(1000, 60, 1, cluster)
    # Of two workers each makes half, whatever the shards; of ten, shards of 100 fill them once.
    assert recommend(predictions, 10_000) == {2: 100, 10: 100}
    eleven = predict(1100, 60, 1, replace(cluster, workers=(10,)))
    assert recommend(eleven, 10_000) == {10: 10}
    assert recommend(eleven, 100) == {10: 100}
    assert recommend(eleven, 10) == {10: None}
    part = cluster_part(eleven, cluster)
    assert [labels[1] for labels, _ in part.rows] == ["1", "10 *", "100"]
    assert (
        "every choice has more than 10 files"
        in cluster_part(eleven, replace(cluster, most_files=10)).notes[0]
    )
