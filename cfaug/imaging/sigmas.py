"""Noise levels spaced as in k-diffusion's wrapper of the CompVis models (InstructPix2Pix).

The levels are ``n`` points linear in the training timestep from the last to 0, with sigma
log-linear between the trained levels, and a final 0; the model gets fractional timesteps. These are
not Karras' sigmas, and diffusers' ``EulerAncestralDiscreteScheduler`` interpolates sigma itself,
not its log.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfaug.core.errors import UserError

PREDICTIONS = ("epsilon", "v_prediction")


@dataclass(frozen=True)
class NoiseLevels:
    """The noise levels of the sampler.

    Attributes:
        sigmas: the noise levels, float64 (steps + 1,), descending to 0.
        timesteps: the fractional timesteps of the model's calls, float64 (steps,).
        prediction: the type of the model's prediction, ``epsilon`` or ``v_prediction``.
    """

    sigmas: NDArray[np.float64]
    timesteps: NDArray[np.float64]
    prediction: str

    def __len__(self) -> int:
        return len(self.timesteps)


def trained_alphas(config: Mapping[str, Any]) -> NDArray[np.float64]:
    """Return, for each training timestep, the remaining share of the image's variance.

    It is the cumulative product of 1 - beta, which diffusers calls ``alphas_cumprod``.

    Args:
        config: a diffusers scheduler's configuration.

    Raises:
        UserError: for a schedule of betas that is neither ``linear`` nor ``scaled_linear``.
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


def trained_sigmas(config: Mapping[str, Any]) -> NDArray[np.float64]:
    """Return sigma = sqrt((1 - a) / a) of each training timestep, with a from ``trained_alphas``.

    Raises:
        UserError: for the reasons of ``trained_alphas``.
    """
    kept = trained_alphas(config)
    return np.sqrt((1 - kept) / kept)


def read_prediction(config: Mapping[str, Any]) -> str:
    """Return the type of prediction of a model trained with ``config``.

    Raises:
        UserError: if the type is not one of ``PREDICTIONS``.
    """
    prediction = str(config.get("prediction_type", "epsilon"))
    if prediction not in PREDICTIONS:
        raise UserError(f"prediction_type {prediction!r} is not one of: {', '.join(PREDICTIONS)}")
    return prediction


def noise_levels(config: Mapping[str, Any], steps: int) -> NoiseLevels:
    """Return the levels of ``steps`` model calls for a model trained with ``config``.

    >>> sd = {"num_train_timesteps": 1000, "beta_start": 0.00085, "beta_end": 0.012}
    >>> levels = noise_levels({**sd, "beta_schedule": "scaled_linear"}, 100)
    >>> [round(float(sigma), 4) for sigma in levels.sigmas[[0, 1, 99, 100]]]
    [14.6146, 13.7525, 0.0292, 0.0]

    Raises:
        UserError: for fewer than 2 steps, or a prediction that is not one of ``PREDICTIONS``.
    """
    if steps < 2:
        raise UserError(f"recipe.image_editor.steps={steps} must be at least 2")
    prediction = read_prediction(config)
    trained = trained_sigmas(config)
    timesteps = np.linspace(len(trained) - 1, 0, steps)
    sigmas = np.exp(np.interp(timesteps, np.arange(len(trained)), np.log(trained)))
    return NoiseLevels(np.append(sigmas, 0.0), timesteps, prediction)


def ancestral(sigma: float, following: float, eta: float = 1.0) -> tuple[float, float]:
    """Split the step from ``sigma`` to ``following`` into (down, up).

    The step denoises to the level ``down`` and adds noise of the standard deviation ``up``. ``eta``
    1 is Euler-ancestral, 0 is Euler, which in these variables is DDIM without noise.
    """
    variance = following**2 * (sigma**2 - following**2) / sigma**2
    up = min(following, eta * variance**0.5)
    return (following**2 - up**2) ** 0.5, up
