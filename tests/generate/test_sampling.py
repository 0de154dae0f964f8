from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cfaug.core.errors import UserError
from cfaug.generate.sampling import Draws, mersenne

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
    for one in drawn:
        assert one.seed == state
        torch.manual_seed(state)
        assert one.p == 0.1 + torch.rand(()).item() * (0.9 - 0.1)
        assert one.cfg == 7.5 + torch.rand(()).item() * (15.0 - 7.5)
        state = torch.randint(1 << 32, ()).item()


@settings(max_examples=50, deadline=None)
@given(KEYS, st.integers(0, 100), st.integers(1, 30), st.integers(1, 6))
def test_a_tree_has_one_p_in_each_stratum_of_a_family(key, seed, candidates, size) -> None:
    draws = Draws(candidates=candidates, sampling=f"tree({size})")
    drawn = draws.draw(key, seed)
    assert len(drawn) == candidates
    for first in range(0, candidates, size):
        family = drawn[first : first + size]
        assert len({(one.seed, one.cfg) for one in family}) == 1
        strata = [math.floor((one.p - 0.1) / 0.8 * len(family)) for one in family]
        assert strata == list(range(len(family)))
        assert all(7.5 <= one.cfg <= 15 for one in family)
    assert len({one.seed for one in drawn}) == -(-candidates // size)


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
        ({"p2p_threshold": [0, 1.5]}, r"p2p_threshold\[1\]=1\.5 should be a number from 0 to 1"),
        ({"guidance_scale": [1]}, "draws.guidance_scale"),
        ({"guidance_scale": [-1, 1]}, r"guidance_scale\[0\]=-1 should be a number of at least"),
        ({"parameters": {"f": [1, 0]}}, "parameters.f"),
        ({"parameters": {"f": [0, 1]}, "seed_policy": "chain"}, "seed_policy=hash"),
        ({"candidates": 0}, "draws.candidates"),
        ({"seed_policy": "random"}, "seed_policy=random: choose from hash, chain"),
        ({"sampling": "forest"}, r"independent or tree\(m\) or halving\(r\)"),
        ({"sampling": "halving(0)"}, r"halving\(r\)"),
        ({"sampling": "tree(2)", "seed_policy": "chain"}, "seed_policy=hash"),
    ],
)  # fmt: skip
def test_settings_that_cannot_be_are_named(wrong, named) -> None:
    with pytest.raises(UserError, match=named):
        Draws(**wrong)
