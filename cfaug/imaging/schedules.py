"""Noise: DDIM's steps, the levels of InstructPix2Pix's sampler, and noise keyed by seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cfaug.core.devices import send
from cfaug.core.errors import UserError
from cfaug.core.rng import derive, generator

if TYPE_CHECKING:
    import torch
    from torch import Tensor


# DDIM's steps (Song et al., 2021) in both directions, in its own variables.
#
# A latent of level i is ``a x + s e``: the clean latent x times ``a``, and unit noise e times
# ``s``, with ``a^2 + s^2 = 1``. The levels are those of diffusers' ``DDIMScheduler`` with
# ``timestep_spacing="leading"``, which prompt-to-prompt, null-text inversion and LANCE use.


@dataclass(frozen=True)
class Schedule:
    """The noise levels of the steps.

    Attributes:
        timesteps: the model's timestep at each step, int64 (steps,), descending.
        kept: the share of the clean latent's variance at each level, float64 (steps + 1,). Step i
            leads from level i to level i + 1; the last level is that of the clean image.
    """

    timesteps: NDArray[np.int64]
    kept: NDArray[np.float64]
    prediction: str

    def __len__(self) -> int:
        return len(self.timesteps)

    def scales(self, level: int) -> tuple[float, float]:
        """Return (a, s) of a level: the scales of the clean latent and of the noise."""
        kept = float(self.kept[level])
        return kept**0.5, (1 - kept) ** 0.5

    def noise(self, predicted: Tensor, latents: Tensor, step: int) -> Tensor:
        """Convert the model's output at ``timesteps[step]`` to noise.

        A velocity is converted with the scales of the model's timestep, even in DDIM inversion,
        where the latents belong to the level below.
        """
        if self.prediction == "epsilon":
            return predicted
        a, s = self.scales(step)
        return a * predicted + s * latents

    def move(self, latents: Tensor, noise: Tensor, start: int, end: int) -> Tensor:
        """Move latents from one level to another with the given noise: DDIM's step with eta 0."""
        (a, s), (to_a, to_s) = self.scales(start), self.scales(end)
        return to_a * ((latents - s * noise) / a) + to_s * noise

    def mean(self, latents: Tensor, noise: Tensor, step: int, eta: float) -> Tensor:
        """Return the latents after a step, without the noise of ``spread(step, eta)``."""
        if eta == 0:
            return self.move(latents, noise, step, step + 1)
        (a, s), (to_a, to_s) = self.scales(step), self.scales(step + 1)
        left = max(0.0, to_s**2 - self.spread(step, eta) ** 2) ** 0.5
        return to_a * ((latents - s * noise) / a) + left * noise

    def spread(self, step: int, eta: float) -> float:
        """Return the standard deviation of the noise that a step adds (equation 16).

        ``eta`` is the share of DDPM's noise: 0 for no noise, 1 for DDPM.
        """
        kept, after = float(self.kept[step]), float(self.kept[step + 1])
        return float(eta * ((1 - after) / (1 - kept) * (1 - kept / after)) ** 0.5)


def ddim_schedule(config: Mapping[str, Any], steps: int) -> Schedule:
    """Return the schedule of ``steps`` steps for a model trained with ``config``.

    >>> sd = {"num_train_timesteps": 1000, "beta_start": 0.00085, "beta_end": 0.012}
    >>> schedule = ddim_schedule({**sd, "beta_schedule": "scaled_linear", "steps_offset": 1}, 50)
    >>> schedule.timesteps[[0, 1, -1]].tolist()
    [981, 961, 1]

    Args:
        config: a diffusers scheduler's configuration: betas, ``steps_offset`` (default 0),
            ``set_alpha_to_one`` (default false, as in null-text inversion).
        steps: the number of steps: at least 2, and at most the number of training timesteps.
    """
    trained = trained_alphas(config)
    if not 2 <= steps <= len(trained):
        raise UserError(f"recipe.image_editor.steps={steps} is invalid: from 2 to {len(trained)}")
    if config.get("rescale_betas_zero_snr"):
        raise UserError(
            "the model's last timestep is pure noise (rescale_betas_zero_snr), from which no image "
            "can be inverted: use a model without"
        )
    offset = int(config.get("steps_offset") or 0)
    timesteps = np.arange(steps)[::-1] * (len(trained) // steps) + offset
    if timesteps[0] >= len(trained):
        raise UserError(
            f"recipe.image_editor.steps={steps} with the model's steps_offset={offset} asks for "
            f"timestep {timesteps[0]} of {len(trained)}: use fewer steps"
        )
    last = 1.0 if config.get("set_alpha_to_one") else float(trained[0])
    return Schedule(timesteps, np.append(trained[timesteps], last), read_prediction(config))


# Noise levels spaced as in k-diffusion's wrapper of the CompVis models (InstructPix2Pix).
#
# The levels are ``n`` points linear in the training timestep from the last to 0, with sigma
# log-linear between the trained levels, and a final 0; the model gets fractional timesteps. These
# are not Karras' sigmas, and diffusers' ``EulerAncestralDiscreteScheduler`` interpolates sigma
# itself, not its log.


FLOW = "flow"


@dataclass(frozen=True)
class NoiseLevels:
    """The noise levels of the sampler.

    Attributes:
        sigmas: the noise levels, float64 (steps + 1,), descending to 0.
        timesteps: the fractional timesteps of the model's calls, float64 (steps,).
        prediction: ``epsilon`` or ``v_prediction``, of latents that are clean ones plus sigma times
            noise; or ``flow``, the noise less the clean latents, of (1 - sigma) times clean ones
            plus sigma times noise.
        initial: the scale of the initial noise.
    """

    sigmas: NDArray[np.float64]
    timesteps: NDArray[np.float64]
    prediction: str
    initial: float

    def __len__(self) -> int:
        return len(self.timesteps)

    def input_scale(self, sigma: float) -> float:
        """Return the factor by which latents are multiplied for the model."""
        return 1.0 if self.prediction == FLOW else float((sigma**2 + 1) ** -0.5)


def trained_alphas(config: Mapping[str, Any]) -> NDArray[np.float64]:
    """Return, for each training timestep, the remaining share of the image's variance.

    It is the cumulative product of 1 - beta, which diffusers calls ``alphas_cumprod``.

    ``config`` is a diffusers scheduler's configuration.
    """
    count = int(config["num_train_timesteps"])
    first, last = float(config["beta_start"]), float(config["beta_end"])
    schedule = config["beta_schedule"]
    if config.get("trained_betas") is not None:
        betas = np.asarray(config["trained_betas"], dtype=np.float64)
    elif schedule == "linear":
        betas = np.linspace(first, last, count)
    elif schedule == "scaled_linear":
        betas = np.linspace(first**0.5, last**0.5, count) ** 2
    else:
        raise UserError(f"beta_schedule {schedule!r} is not one of: linear, scaled_linear")
    kept: NDArray[np.float64] = np.cumprod(1 - betas, dtype=np.float64)
    return kept


def read_prediction(config: Mapping[str, Any]) -> str:
    """Return the type of prediction of a model trained with ``config``."""
    prediction = str(config.get("prediction_type", "epsilon"))
    if prediction not in ("epsilon", "v_prediction"):
        raise UserError(f"prediction_type {prediction!r} is not one of: epsilon, v_prediction")
    return prediction


def noise_levels(config: Mapping[str, Any], steps: int) -> NoiseLevels:
    """Return the levels of ``steps`` model calls for a model trained with ``config``.

    >>> sd = {"num_train_timesteps": 1000, "beta_start": 0.00085, "beta_end": 0.012}
    >>> levels = noise_levels({**sd, "beta_schedule": "scaled_linear"}, 100)
    >>> [round(float(sigma), 4) for sigma in levels.sigmas[[0, 1, 99, 100]]]
    [14.6146, 13.7525, 0.0292, 0.0]
    """
    if steps < 2:
        raise UserError(f"recipe.image_editor.steps={steps} must be at least 2")
    prediction = read_prediction(config)
    kept = trained_alphas(config)
    trained = np.sqrt((1 - kept) / kept)
    timesteps = np.linspace(len(trained) - 1, 0, steps)
    sigmas = np.exp(np.interp(timesteps, np.arange(len(trained)), np.log(trained)))
    return NoiseLevels(np.append(sigmas, 0.0), timesteps, prediction, float(sigmas[0]))


def scheduler_levels(scheduler: Any, prediction: str) -> NoiseLevels:
    """Return the levels of one of diffusers' Euler schedulers, after its ``set_timesteps``."""
    sigmas, timesteps = (x.double().cpu().numpy() for x in (scheduler.sigmas, scheduler.timesteps))
    initial = 1.0 if prediction == FLOW else float(scheduler.init_noise_sigma)
    return NoiseLevels(sigmas, timesteps, prediction, initial)


def ancestral(sigma: float, following: float, eta: float = 1.0) -> tuple[float, float]:
    """Split the step from ``sigma`` to ``following`` into (down, up).

    The step denoises to the level ``down`` and adds noise of the standard deviation ``up``. ``eta``
    1 is Euler-ancestral, 0 is Euler, which in these variables is DDIM without noise.
    """
    variance = following**2 * (sigma**2 - following**2) / sigma**2
    up = min(following, eta * variance**0.5)
    return (following**2 - up**2) ** 0.5, up


# Keyed noise: a candidate's noise depends only on its seed and the step.
#
# One tensor serves all images of a set (as in InstructPix2Pix), whatever the batch and its order.
# The initial latent and each step have separate streams, so that a tree, an early exit or a restart
# gets the same noise.

INITIAL = -1
"""The step of the initial latent."""


def draw(seed: int, step: int, image: int, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Return standard normal float32 noise of ``shape`` for one step of one candidate.

    Args:
        image: 0 for noise shared by a set; ``k`` for the own noise of image ``k`` of a set.
    """
    return generator(seed, "noise", image, step).standard_normal(shape, dtype=np.float32)


def noise_batch(
    addresses: Sequence[tuple[int, int]],
    step: int,
    shape: tuple[int, ...],
    device: torch.device,
    *,
    on_device: bool = False,
) -> Tensor:
    """Return the noise of ``step`` for each (seed, image): float32 (addresses, *shape).

    ``on_device`` draws with the device's own generator, which saves a copy, but its numbers differ
    from those of a CPU.
    """
    import torch

    if on_device:
        rows = torch.empty((len(addresses), *shape), device=device)
        stream = torch.Generator(device)
        for row, (seed, image) in zip(rows, addresses, strict=True):
            stream.manual_seed(derive(seed, "noise", image, step) % 2**63)
            row.normal_(generator=stream)
        return rows
    drawn = np.stack([draw(seed, step, image, shape) for seed, image in addresses])
    return send(torch.from_numpy(drawn), device)
