"""DDIM's steps (Song et al., 2021) in both directions, in its own variables.

A latent of level i is ``a x + s e``: the clean latent x times ``a``, and unit noise e times ``s``,
with ``a^2 + s^2 = 1``. The levels are those of diffusers' ``DDIMScheduler`` with
``timestep_spacing="leading"``, which prompt-to-prompt, null-text inversion and LANCE use.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cfaug.core.errors import UserError
from cfaug.imaging.sigmas import read_prediction, trained_alphas

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Schedule:
    """The noise levels of the steps.

    Attributes:
        timesteps: the model's timestep at each step, int64 (steps,), descending.
        kept: the share of the clean latent's variance at each level, float64 (steps + 1,). Step i
            leads from level i to level i + 1; the last level is that of the clean image.
        prediction: the type of the model's prediction, ``epsilon`` or ``v_prediction``.
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

        Args:
            predicted: the model's output, of the latents' shape.
            latents: the model's input.
            step: the step with the timestep that the model was called with.
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

        Args:
            step: the index of the step.
            eta: the share of DDPM's noise: 0 for no noise, 1 for DDPM.
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

    Raises:
        UserError: if the number of steps, the betas or the prediction are invalid.
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
