"""Sigmas, DDIM's algebra, noise and trees: plain data, no model."""

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
from cfaug.imaging.schedules import ancestral, ddim_schedule, noise_levels
from cfaug.imaging.tree import plan, shared_steps
from tests.imaging import reference
from tests.records import image_job

SD = {
    "num_train_timesteps": 1000, "beta_start": 0.00085, "beta_end": 0.012,
    "beta_schedule": "scaled_linear", "steps_offset": 1, "set_alpha_to_one": False,
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


def test_ancestral_split_keeps_the_variance():
    down, up = ancestral(3.0, 2.0)
    assert down**2 + up**2 == pytest.approx(4.0)
    assert up == pytest.approx(math.sqrt(4 * 5 / 9))
    assert ancestral(3.0, 2.0, eta=0) == (2.0, 0.0)
    assert ancestral(3.0, 0.0) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("schedule", "changes", "steps", "named"),
    [
        (noise_levels, {"prediction_type": "sample"}, 10, "epsilon, v_prediction"),
        (noise_levels, {"beta_schedule": "x"}, 10, "linear"),
        (noise_levels, {}, 1, "at least 2"),
        (ddim_schedule, {}, 1, "from 2 to 1000"),
        (ddim_schedule, {}, 1000, "use fewer steps"),
        (ddim_schedule, {"rescale_betas_zero_snr": True}, 50, "pure noise"),
        (ddim_schedule, {"prediction_type": "sample"}, 50, "epsilon, v_prediction"),
    ],
)
def test_a_schedule_that_cannot_be_is_refused(schedule, changes, steps, named):
    with pytest.raises(UserError, match=named):
        schedule({**SD, **changes}, steps)


def random(seed: int, count: int = 2):
    stream = np.random.default_rng(seed)
    return [torch.from_numpy(stream.standard_normal((1, 2, 2, 2))) for _ in range(count)]


@pytest.mark.parametrize("prediction", ["epsilon", "v_prediction"])
@pytest.mark.parametrize(("offset", "to_one", "steps"), [(1, False, 50), (0, True, 7)])
def test_steps_are_those_of_diffusers(prediction, offset, to_one, steps) -> None:
    from diffusers import DDIMScheduler

    config = {**SD, "steps_offset": offset, "set_alpha_to_one": to_one}
    config["prediction_type"] = prediction
    theirs = DDIMScheduler(**config, clip_sample=False)
    theirs.set_timesteps(steps)
    ours = ddim_schedule(config, steps)
    assert ours.timesteps.tolist() == theirs.timesteps.tolist()
    latents, answer = random(1)
    for step in range(steps):
        noise = ours.noise(answer, latents, step)
        wanted = theirs.step(answer, int(ours.timesteps[step]), latents).prev_sample
        # Their betas are float32.
        assert torch.allclose(ours.mean(latents, noise, step, 0.0), wanted, rtol=2e-5, atol=2e-5)
    zeros = torch.zeros_like(latents)
    for step in (0, steps // 2):
        noise = ours.noise(answer, latents, step)
        wanted = theirs.step(
            answer, int(ours.timesteps[step]), latents, eta=1.0, variance_noise=zeros
        ).prev_sample
        assert torch.allclose(ours.mean(latents, noise, step, 1.0), wanted, rtol=2e-5, atol=2e-5)
        variance = theirs._get_variance(
            int(ours.timesteps[step]), int(ours.timesteps[step]) - 1000 // steps
        )
        assert ours.spread(step, 1.0) ** 2 == pytest.approx(float(variance), rel=1e-3)


@given(st.integers(2, 100), st.integers(0, 99), st.integers(0, 99), st.integers(0, 9))
def test_a_way_there_and_back_is_none(steps, first, second, seed) -> None:
    schedule = ddim_schedule(SD, steps)
    start, end = first % (steps + 1), second % (steps + 1)
    latents, noise = random(seed)
    there = schedule.move(latents, noise, start, end)
    assert torch.allclose(schedule.move(there, noise, end, start), latents, atol=1e-9)
    a, s = schedule.scales(start)
    assert a * a + s * s == pytest.approx(1)
    assert (np.diff(schedule.kept) > 0).all()


@given(st.integers(2, 60), st.integers(0, 59), st.integers(0, 9))
def test_a_clean_latent_and_its_noise_stay_what_they_are(steps, step, seed) -> None:
    """Steps of the true noise lead through the photo's own noisings, with DDPM's noise too."""
    schedule = ddim_schedule({**SD, "prediction_type": "v_prediction"}, steps)
    step %= steps
    clean, noise = random(seed)
    (a, s), (to_a, to_s) = schedule.scales(step), schedule.scales(step + 1)
    latents = a * clean + s * noise
    velocity = a * noise - s * clean
    assert torch.allclose(schedule.noise(velocity, latents, step), noise)
    after = schedule.mean(latents, noise, step, 0.0)
    assert torch.allclose(after, to_a * clean + to_s * noise)
    spread = schedule.spread(step, 1.0)
    assert 0 <= spread <= to_s + 1e-12
    left = (to_s**2 - spread**2) ** 0.5
    assert torch.allclose(
        schedule.mean(latents, noise, step, 1.0), to_a * clean + left * noise, atol=1e-6
    )


def test_noise_depends_on_its_address_alone():
    shape, cpu = (4, 8, 8), torch.device("cpu")
    for on_device in (False, True):
        how = {"on_device": on_device}
        together = schedules.noise_batch([(5, 0), (6, 0), (5, 1)], 3, shape, cpu, **how)
        alone = schedules.noise_batch([(6, 0)], 3, shape, cpu, **how)
        assert together.dtype == torch.float32
        assert torch.equal(together[1], alone[0])
    streams = [schedules.draw(seed, step, image, shape) for seed, step, image in
               [(5, schedules.INITIAL, 0), (5, 0, 0), (5, 1, 0), (5, 1, 1), (6, 1, 0)]]  # fmt: skip
    assert len({stream.tobytes() for stream in streams}) == len(streams)
    many = np.stack([schedules.draw(seed, 0, 0, shape) for seed in range(200)])
    assert abs(many.mean()) < 0.02
    assert abs(many.std() - 1) < 0.02


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
