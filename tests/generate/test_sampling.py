"""Random parameters of candidates, and the plan of shards and batches."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from itertools import pairwise
from statistics import NormalDist

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cfaug.core.errors import UserError
from cfaug.core.types import Edit
from cfaug.generate.job import generate
from cfaug.generate.recipe import ShardPlan, digest, shard_count, shard_slice, shards_of
from cfaug.generate.sampling import STRATA, Draws, Law, LawLearner, mersenne
from cfaug.imaging.select import clip_selection
from tests.generate import tiny
from tests.properties import examples
from tests.records import proposal

KEYS = st.text("abc123-", min_size=1, max_size=8)


def test_the_released_metadata_s_draws_come_back() -> None:
    u_p, u_cfg, _ = mersenne(3761796350)  # a row of SocialCounterfactuals' metadata
    assert 0.1 + 0.8 * u_p == pytest.approx(0.8662819862, abs=1e-6)
    assert 7.5 + 7.5 * u_cfg == pytest.approx(14.2739852754, abs=1e-6)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_a_link_of_the_chain_is_what_torch_draws(seed: int) -> None:
    stream = torch.Generator().manual_seed(seed)
    drawn = torch.rand((), generator=stream).item(), torch.rand((), generator=stream).item()
    following = torch.randint(1 << 32, (), generator=stream).item()
    assert mersenne(seed) == (*drawn, following)


@settings(max_examples=20, deadline=None)
@given(KEYS, st.integers(0, 100), st.integers(1, 12))
def test_a_chain_is_the_reference_s_loop(key: str, seed: int, candidates: int) -> None:
    drawn = Draws(candidates=candidates, seed_policy="chain").draw(key, seed)
    state = drawn[0].seed
    for draw in drawn:
        assert draw.seed == state
        torch.manual_seed(state)
        assert draw.p == 0.1 + torch.rand(()).item() * (0.9 - 0.1)
        assert draw.cfg == 7.5 + torch.rand(()).item() * (15.0 - 7.5)
        state = torch.randint(1 << 32, ()).item()


@settings(max_examples=50, deadline=None)
@given(KEYS, st.integers(0, 100), st.integers(1, 30), st.integers(1, 6))
def test_a_tree_has_one_p_in_each_stratum_of_a_family(key, seed, candidates, size) -> None:
    draws = Draws(candidates=candidates, sampling=f"tree({size})")
    drawn = draws.draw(key, seed)
    assert len(drawn) == candidates
    for first in range(0, candidates, size):
        family = drawn[first : first + size]
        assert len({(draw.seed, draw.cfg) for draw in family}) == 1
        strata = [math.floor((draw.p - 0.1) / 0.8 * len(family)) for draw in family]
        assert strata == list(range(len(family)))
        assert all(7.5 <= draw.cfg <= 15 for draw in family)
    assert len({draw.seed for draw in drawn}) == -(-candidates // size)


def test_a_candidate_does_not_depend_on_how_many_follow_or_on_other_sets() -> None:
    few, many = Draws(candidates=3).draw("a", 0), Draws(candidates=9).draw("a", 0)
    assert many[:3] == few
    assert not {d.seed for d in many} & {d.seed for d in Draws(candidates=9).draw("b", 0)}
    assert not {d.seed for d in many} & {d.seed for d in Draws(candidates=9).draw("a", 1)}


def test_p_and_cfg_are_uniform_between_their_bounds() -> None:
    drawn = Draws(candidates=4000, p2p_threshold=(0.2, 0.6), guidance_scale=(3, 5)).draw("a", 0)
    p, cfg = torch.tensor([[d.p, d.cfg] for d in drawn], dtype=torch.float64).T
    for values, low, high in ((p, 0.2, 0.6), (cfg, 3, 5)):
        assert low <= values.min() <= values.max() <= high
        share = ((values - low) / (high - low)).sort().values
        # Kolmogorov-Smirnov at 1e-6 or so; the seed is fixed, so the test is too.
        assert (share - torch.linspace(0, 1, len(share))).abs().max() < 2.7 / math.sqrt(len(share))


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"p2p_threshold": [0.9, 0.1]}, "draws.p2p_threshold"),
        ({"guidance_scale": [1]}, "draws.guidance_scale"),
        ({"parameters": {"f": [1, 0]}}, "parameters.f"),
        ({"parameters": {"f": [0, 1]}, "seed_policy": "chain"}, "seed_policy=hash"),
        ({"sampling": "forest"}, r"independent or tree\(m\) or halving\(r\)"),
        ({"sampling": "halving(0)"}, r"halving\(r\)"),
        ({"sampling": "tree(2)", "seed_policy": "chain"}, "seed_policy=hash"),
        ({"p_law": "normal"}, "uniform or stratified"), ({"p_law": "adaptive(1)"}, "r from 2"),
        ({"p_law": "stratified", "seed_policy": "chain"}, "the chain draws p itself"),
        ({"p_law": "adaptive(2)", "sampling": "halving(1)"}, "the p of dropped candidates"),
    ],
)  # fmt: skip
def test_settings_that_cannot_be_are_named(wrong, named) -> None:
    with pytest.raises(UserError, match=named):
        Draws(**wrong)


def test_examples_that_must_stay_whole_are_not_drawn_in_rounds() -> None:
    with pytest.raises(UserError, match="use p_law=stratified"):
        ShardPlan([], Draws(p_law="adaptive(2)"), 0, 4, whole_examples=True)


LOW, HIGH = 0.1, 0.9


def law_of(trials):
    """The rule again, slowly: worst standardised margin, shrunken stratum means, one variance."""
    names = sorted({name for _, margins in trials for name in margins})
    whole = [(p, margins) for p, margins in trials if sorted(margins) == names]
    if not names or len(whole) < 4:
        return [1.0]
    worst = []
    for _, margins in whole:
        ratios = []
        for name in names:
            every = [other[name] for _, other in whole]
            mean = sum(every) / len(every)
            sd = math.sqrt(sum((x - mean) ** 2 for x in every) / len(every))
            ratios.append(margins[name] / (sd or 1))
        worst.append(min(ratios))
    middle = sum(worst) / len(worst)
    at = [min(int((p - LOW) / (HIGH - LOW) * 4), 3) for p, _ in whole]
    means = []
    for stratum in range(4):
        mine = [value for value, place in zip(worst, at, strict=True) if place == stratum]
        means.append((sum(mine) + 2 * middle) / (len(mine) + 2))
    noise = math.sqrt(sum((w - means[i]) ** 2 for w, i in zip(worst, at, strict=True)) / len(worst))
    if noise <= 1e-9 * max(map(abs, worst)):
        return [1.0]
    logs = [2 * log_cdf(mean / noise) for mean in means]
    squares = [math.exp(log - max(logs)) for log in logs]
    return [0.9 * square / sum(squares) + 0.1 / 4 for square in squares]


def log_cdf(z):
    """Of the standard normal; far below 0 by its asymptotic series."""
    if z > -30:
        return math.log(0.5 * math.erfc(-z / math.sqrt(2)))
    return -z * z / 2 - math.log(-z * math.sqrt(2 * math.pi)) - 1 / z**2


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(
        st.tuples(st.floats(LOW, HIGH), st.floats(-0.3, 0.1), st.floats(-0.3, 0.3), st.booleans()),
        max_size=40,
    )
)
def test_weights_are_those_of_the_slow_rule(rows) -> None:
    trials = [(p, {"a": a} if cut else {"a": a, "b": b}) for p, a, b, cut in rows]
    weights = LawLearner((LOW, HIGH)).learn(trials).weights
    wanted = law_of(trials)
    assert len(weights) == len(wanted)
    assert weights == pytest.approx(wanted, abs=2.1e-3)  # rounded to a thousandth, then to sum to 1
    assert sum(weights) == pytest.approx(1, abs=1e-9)
    assert min(weights) >= min(1.0, 0.1 / STRATA - 1e-3)


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.floats(0.01, 1), min_size=1, max_size=6), st.floats(0, 1))
def test_quantiles_invert_the_density(raw, u) -> None:
    law = Law(tuple(x / sum(raw) for x in raw))
    grid = (np.arange(4000) + 0.5) / 4000
    density = np.array([law.density(x) for x in grid])
    assert density.mean() == pytest.approx(1, abs=5e-3)
    place = float(law.quantile(np.array([u]))[0])
    assert (density * (grid < place)).mean() == pytest.approx(u, abs=1e-2)


@settings(max_examples=examples(40), deadline=None)
@given(st.integers(1, 40), st.sampled_from([1, 2, 3]), st.integers(0, 5))
def test_a_stratified_set_has_one_p_in_every_stratum(candidates, family, seed) -> None:
    whole = candidates * family
    draws = Draws(candidates=whole, sampling=f"tree({family})", p_law="stratified")
    drawn = draws.draw("a", seed)
    places = sorted(int((draw.p - LOW) / (HIGH - LOW) * whole) for draw in drawn)
    assert places == list(range(whole))
    assert {draw.p_density for draw in drawn} == {1.0}
    assert [(d.seed, d.cfg) for d in drawn] == [
        (d.seed, d.cfg) for d in Draws(candidates=whole, sampling=f"tree({family})").draw("a", seed)
    ]


@settings(max_examples=examples(40), deadline=None)
@given(st.integers(1, 25), st.integers(2, 6), st.integers(1, 3), st.integers(1, 9))
def test_rounds_hold_every_candidate_once(candidates, rounds, family, size) -> None:
    law = f"adaptive({rounds})"
    draws = Draws(candidates=candidates, sampling=f"tree({family})", p_law=law)
    some = [proposal(["a", "b"], (None, Edit("noun", "a", "b")), f"k{i}") for i in range(3)]
    plan = ShardPlan(some, draws, 0, size)
    trials: dict[int, list] = {}
    numbers: dict[int, list[int]] = {}
    for number in range(plan.rounds):
        for batch in plan.batches(number, trials, lost={1} if number else ()):
            for portion in batch:
                numbers.setdefault(portion.place, []).extend(
                    range(portion.first, portion.first + len(portion.draws))
                )
        for place in numbers:
            trials[place] = [(0.5, {})] * len(numbers[place])
    assert numbers[0] == numbers[2] == list(range(candidates))
    assert numbers[1] == list(range(len(numbers[1])))
    seeds = {d.seed for n in range(plan.rounds) for d in draws.draw("k0", 0, n, ())}
    assert len(seeds) == -(-candidates // family)


def test_a_round_depends_on_its_own_set_alone() -> None:
    draws = Draws(candidates=40, p_law="adaptive(4)")
    trials = [(draw.p, {"a": draw.p - 0.7}) for draw in draws.draw("a", 0)]
    later = draws.draw("a", 0, 1, trials)
    assert later == draws.draw("a", 0, 1, trials)
    assert [draw.p for draw in later] != [draw.p for draw in draws.draw("a", 0, 1, ())]
    learned = LawLearner((LOW, HIGH))
    law = learned.learn(trials)
    assert [draw.p_density for draw in later] == [law.density(learned.place(d.p)) for d in later]
    assert np.mean([draw.p for draw in later]) > 0.55


DENSITIES = {  # accepted sets relative to U(.1, .9), eight bins of the released metadata
    "race x gender": ((0.70, 0.80, 0.90, 0.99, 1.02, 1.17, 1.20, 1.23), 0.076),
    "physical x race": ((0.06, 0.28, 0.46, 0.92, 1.14, 1.44, 1.67, 2.03), 0.008),
    "in the middle": ((0.2, 0.6, 1.2, 2, 2, 1.2, 0.6, 0.2), 0.05),
    "a comb": ((1.6, 0.4) * 4, 0.05),
}


@pytest.mark.parametrize("name", DENSITIES)
def test_adaptive_never_accepts_less_than_chance(name) -> None:
    shape, rate = DENSITIES[name]
    chance = np.array(shape) / np.mean(shape) * rate
    limits = [NormalDist().inv_cdf(1 - probability) for probability in chance]
    draws = Draws(candidates=100, p_law="adaptive(5)")
    stream = np.random.default_rng(1)
    expected = []
    for number in range(15):
        trials: list = []
        for turn in range(draws.learning_rounds):
            for draw in draws.draw(str(number), 0, turn, trials):
                part = min(int((draw.p - LOW) / 0.1), 7)
                trials.append((draw.p, {"a": stream.normal() - limits[part]}))
                expected.append(chance[part])  # the expectation, not the outcome: less noise
    gain = np.mean(expected) / rate
    assert gain > (1.2 if name in ("physical x race", "in the middle") else 0.985)


@pytest.mark.slow
def test_the_log_has_every_density_and_an_interrupted_part_the_same_bytes(tmp_path) -> None:
    changes = {"captions": tiny.captions(9), "draws": Draws(candidates=12, p_law="adaptive(3)")}
    whole, broken, parts = (tmp_path / name for name in ("whole", "broken", "parts"))

    def studio(editor=None):
        select = clip_selection(0.45, 0.6, 0.3, keep=2)
        return tiny.studio(editor=editor or tiny.Painter(), select=select)

    generate(tiny.job(whole, **changes, studio=studio()))
    rows = tiny.log(whole)
    assert {row["p_density"] for row in rows} > {1.0}
    assert all(row["p_density"] == 1 for row in rows if row["candidate"] < 4)

    class Killed(tiny.Painter):
        def sample(self, jobs):
            if len(self.sampled) == 7:
                raise KeyboardInterrupt
            return super().sample(jobs)

    with pytest.raises(KeyboardInterrupt):
        generate(tiny.job(broken, **changes, studio=studio(Killed())))
    again = tiny.Painter()
    generate(tiny.job(broken, **changes, studio=studio(again)))
    assert tiny.contents(broken) == tiny.contents(whole)
    for part in (1, 0):
        how = {"pipeline_scoring": bool(part), "part": part, "parts": 2}
        generate(tiny.job(parts, **changes, studio=studio(), **how))
    assert tiny.contents(parts) == tiny.contents(whole)
    sets = 8  # of 9 captions, the one about a star has no edit
    assert sum(again.sampled) < 12 * sets


def test_a_failure_stops_the_rounds_and_costs_nothing(tmp_path) -> None:
    changes = {
        "draws": Draws(candidates=6, p_law="adaptive(3)"), "captions": tiny.captions(9)
    }  # fmt: skip
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    generate(tiny.job(whole, **changes))
    bad = tiny.Painter(broken=frozenset({"7"}))
    generate(tiny.job(broken, **changes, studio=tiny.studio(editor=bad)))
    assert not (broken / "00001.tar").exists()
    generate(tiny.job(broken, **changes))
    assert tiny.contents(broken) == tiny.contents(whole)
    left = tmp_path / "left"
    bad = tiny.Painter(broken=frozenset({"7"}))
    generate(tiny.job(left, **changes, studio=tiny.studio(editor=bad), publish_incomplete=True))
    there, here = ({json.dumps(row) for row in tiny.log(f)} for f in (whole, left))
    assert here < there
    assert {json.loads(row)["set"] for row in there - here} == {"photo3-1"}


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
    planned = [
        (portion.place, portion.first + k, draw)
        for batch in cut
        for portion in batch
        for k, draw in enumerate(portion.draws)
    ]
    assert planned == [
        (place, k, draw)
        for place, caption_set in enumerate(some)
        for k, draw in enumerate(draws.draw(caption_set.key, seed))
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
    places = [portion.place for batch in cut for portion in batch]
    assert places == list(range(len(some)))
    assert all(len(portion.draws) == candidates for batch in cut for portion in batch)
    held = [[some[portion.place].example.key for portion in batch] for batch in cut]
    for before, after in pairwise(held):
        assert before[-1] != after[0]
        # Nothing is cut that would have fitted.
        assert candidates * (len(before) + counts[int(after[0][1:])]) > size
    for keys in held:
        assert candidates * len(keys) <= size or len(set(keys)) == 1
