"""The algebra of DDIM's schedule, against diffusers and by properties."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cfaug.core.errors import UserError
from cfaug.imaging.schedules import ddim_schedule

SD = {
    "num_train_timesteps": 1000, "beta_start": 0.00085, "beta_end": 0.012,
    "beta_schedule": "scaled_linear", "steps_offset": 1, "set_alpha_to_one": False,
}  # fmt: skip


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


def test_timesteps_are_those_of_the_released_code() -> None:
    """50 steps from 981 to 1; the clean level has the variance of timestep 0 (section 2.2)."""
    schedule = ddim_schedule(SD, 50)
    assert schedule.timesteps.tolist() == list(range(981, 0, -20))
    assert schedule.kept[-1] == pytest.approx(1 - 0.00085)


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


def test_what_cannot_be_inverted_is_refused() -> None:
    for config, steps, named in (
        (SD, 1, "from 2 to 1000"), (SD, 1000, "use fewer steps"),
        ({**SD, "rescale_betas_zero_snr": True}, 50, "pure noise"),
        ({**SD, "prediction_type": "sample"}, 50, "epsilon, v_prediction"),
    ):  # fmt: skip
        with pytest.raises(UserError, match=named):
            ddim_schedule(config, steps)
