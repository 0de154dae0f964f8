"""Sigmas, noise and trees: plain data, no model."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cfaug.core.errors import UserError
from cfaug.core.types import Draw
from cfaug.imaging import schedules
from cfaug.imaging.schedules import ancestral, noise_levels
from cfaug.imaging.tree import plan, shared_steps
from tests.imaging import reference
from tests.records import image_job

SD = {
    "num_train_timesteps": 1000, "beta_start": 0.00085, "beta_end": 0.012,
    "beta_schedule": "scaled_linear",
}  # fmt: skip
PAIR = ("a red ball", "a red cube")


@pytest.mark.parametrize("steps", [2, 7, 25, 100])
def test_sigma_table_against_an_independent_formula(steps):
    levels = noise_levels(SD, steps)
    times, values = reference.sigmas(SD, steps)
    assert np.allclose(levels.timesteps, times, rtol=1e-12, atol=1e-9)
    assert np.allclose(levels.sigmas, values, rtol=1e-10, atol=0)
    assert len(levels) == steps
    assert levels.sigmas[-1] == 0


def test_ends_of_the_table_are_stable_diffusions():
    levels = noise_levels(SD, 100)
    assert levels.sigmas[0] == pytest.approx(14.6146, abs=1e-4)
    assert levels.sigmas[-2] == pytest.approx(0.0292, abs=1e-4)
    assert levels.timesteps[1] == pytest.approx(999 - 999 / 99)


def test_ancestral_split_keeps_the_variance():
    down, up = ancestral(3.0, 2.0)
    assert down**2 + up**2 == pytest.approx(4.0)
    assert up == pytest.approx(math.sqrt(4 * 5 / 9))
    assert ancestral(3.0, 2.0, eta=0) == (2.0, 0.0)
    assert ancestral(3.0, 0.0) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("changes", "says"),
    [({"prediction_type": "sample"}, "epsilon, v_prediction"), ({"beta_schedule": "x"}, "linear")],
)
def test_unknown_schedules_are_refused(changes, says):
    with pytest.raises(UserError, match=says):
        noise_levels({**SD, **changes}, 10)


def test_one_step_is_refused():
    with pytest.raises(UserError, match="at least 2"):
        noise_levels(SD, 1)


def test_noise_depends_on_its_address_alone():
    shape, cpu = (4, 8, 8), torch.device("cpu")
    together = schedules.noise_batch([(5, 0), (6, 0), (5, 1)], 3, shape, cpu)
    alone = schedules.noise_batch([(6, 0)], 3, shape, cpu)
    assert together.dtype == torch.float32
    assert torch.equal(together[1], alone[0])
    streams = [schedules.draw(seed, step, image, shape) for seed, step, image in
               [(5, schedules.INITIAL, 0), (5, 0, 0), (5, 1, 0), (5, 1, 1), (6, 1, 0)]]  # fmt: skip
    assert len({stream.tobytes() for stream in streams}) == len(streams)
    many = np.stack([schedules.draw(seed, 0, 0, shape) for seed in range(200)])
    assert abs(many.mean()) < 0.02
    assert abs(many.std() - 1) < 0.02


def test_noise_of_the_device_has_an_address_too():
    cpu = torch.device("cpu")
    together = schedules.noise_batch([(5, 0), (6, 0)], 3, (4, 4, 4), cpu, on_device=True)
    assert torch.equal(
        together[1], schedules.noise_batch([(6, 0)], 3, (4, 4, 4), cpu, on_device=True)[0]
    )


@given(st.floats(0, 1), st.integers(2, 120))
def test_shared_steps_are_those_the_reference_compares(p, steps):
    shares = [p > i / (steps - 1) for i in range(steps)]
    assert shared_steps(p, steps) == sum(shares)
    assert shares == [True] * sum(shares) + [False] * (steps - sum(shares))


def test_edges_of_p():
    assert shared_steps(0, 100) == 0
    assert shared_steps(1, 100) == 99
    assert shared_steps(50 / 99, 100) == 50
    assert shared_steps(np.nextafter(50 / 99, 1), 100) == 51
    assert shared_steps(0.8, 50, "p2p") == 40
    for p in (-0.1, 1.1, float("nan")):
        with pytest.raises(UserError, match="between 0 and 1"):
            shared_steps(p, 100)


def jobs_of(ps, texts=PAIR, seed=0, cfg=7.5):
    return [image_job(texts, Draw(seed, p, cfg)) for p in ps]


@given(st.lists(st.floats(0.1, 0.9), min_size=1, max_size=10), st.integers(2, 5))
@settings(deadline=None)
def test_a_tree_takes_base_trunk_and_branches(ps, images):
    """Methods, section 5.3: 100 base, 100 trunk, and 100 - ceil(99 p) for every smaller p."""
    texts = tuple(f"text {i}" for i in range(images))
    tree = plan(jobs_of(ps, texts), 100)
    lengths = sorted({math.ceil(99 * p) for p in ps})
    edits = images - 1
    assert tree.latent_steps(100) == 100 + edits * (100 + sum(100 - n for n in lengths[:-1]))
    for p, job in zip(ps, tree.jobs, strict=True):
        assert [tree.text[latent] for latent in job] == list(range(images))
        assert {int(tree.shared[latent]) for latent in job[1:]} == {math.ceil(99 * p)}
        for latent in job[1:]:
            # It starts as a copy of a latent of the same text that has shared at least as long.
            parent = tree.parent[latent]
            assert tree.text[parent] == tree.text[latent]
            assert tree.shared[parent] >= tree.birth[latent]


@pytest.mark.parametrize(("m", "gain"), [(2, 1.52), (4, 2.14), (8, 2.75)])
def test_trees_save_what_was_simulated(m, gain):
    rng = np.random.default_rng(0)
    steps = [
        plan(jobs_of(rng.uniform(0.1, 0.9, m)), 100).latent_steps(100) / m for _ in range(2000)
    ]
    # Branches of equally many steps are one, which saves a little more than was simulated.
    assert gain - 0.02 < 200 / np.mean(steps) < gain + 0.1


def test_only_equal_texts_seed_and_guidance_are_one_family():
    jobs = [
        *jobs_of([0.2, 0.5, 0.2]), *jobs_of([0.5], seed=1), *jobs_of([0.5], cfg=8.0),
        *jobs_of([0.5], ("a red ball", "a tree")),
    ]  # fmt: skip
    tree = plan(jobs, 10)
    assert tree.jobs[0] == tree.jobs[2]
    assert tree.jobs[0][0] == tree.jobs[1][0]
    assert len({job[0] for job in tree.jobs}) == 4
    assert tree.texts == ("a red ball", "a red cube", "a tree")


def test_a_single_text_is_a_base_alone():
    tree = plan([*jobs_of([0.5, 0.2], ("alone",)), *jobs_of([0.5])], 10)
    assert tree.jobs == ((0,), (0,), (1, 2))
    assert tree.base[:1].tolist() == [0]
    assert tree.latent_steps(10) == 3 * 10
