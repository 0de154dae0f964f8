"""Null-text inversion (Mokady et al., 2023), for many photos at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch

from cfaug.core.validation import Positive, PositiveNumber, check_fields
from cfaug.imaging.inversion import Inversion, PhotoBatch, Predictor, ddim_inversion, pick_attention

if TYPE_CHECKING:
    from torch import Tensor

BETAS = (0.9, 0.999)
EPSILON = 1e-8
"""Adam's epsilon, as in torch."""


@dataclass(frozen=True)
class NullText:
    """Optimises the unconditional embedding at each step until guidance reconstructs the photo.

    The method is that of the authors' code, which LANCE uses. The pivots are DDIM's inversion at
    guidance 1. The embedding of a step starts from that of the step before. Adam is reset at each
    step i, with a learning rate of ``learning_rate * (1 - i / 100)``, and stops after the update
    for which the loss was below ``tolerance + growth * i``, or after ``inner_steps``.

    Photos are optimised in one batch and each stops independently: Adam is elementwise, so that a
    photo's embeddings are the same as alone, up to rounding. Two unnecessary computations of that
    code are omitted: the gradients of the weights, and the row with text, which does not depend on
    the embedding.

    Args:
        inner_steps: the largest number of updates at each step.
        learning_rate: Adam's learning rate at the first step.
        tolerance: the mean squared error below which the first step's updates stop.
        growth: the increase of the tolerance from step to step.
        max_rows: the largest number of photos optimised together; each needs the memory of the
            model's activations.

    Raises:
        UserError: if a number is not positive.
    """

    inner_steps: Positive = 10
    learning_rate: PositiveNumber = 0.01
    tolerance: PositiveNumber = 1e-5
    growth: float = 2e-5
    max_rows: Positive = 16

    name: ClassVar[str] = "null_text"
    eta: ClassVar[float] = 0.0
    depends_on_guidance: ClassVar[bool] = True
    remembers: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_fields(self, "recipe.image_editor.inversion")

    def skip(self, steps: int) -> int:
        """Return 0: edits start from noise."""
        return 0

    def invert(self, photos: PhotoBatch, model: Predictor) -> list[Inversion]:
        """Return the inversion of each photo, in order."""
        inversions: list[Inversion] = []
        for start in range(0, len(photos), self.max_rows):
            inversions += self._invert(photos.part(start, start + self.max_rows), model)
        return inversions

    def _invert(self, photos: PhotoBatch, model: Predictor) -> list[Inversion]:
        pivots = ddim_inversion(photos, model)
        guidance = torch.tensor(photos.guidance, device=pivots.device, dtype=pivots.dtype)
        latents = pivots[:, 0]
        empty = photos.empty.to(pivots.dtype).expand(len(photos), -1, -1).clone()
        way, found, seen = [latents], [], []
        for step in range(len(model.schedule)):
            with_text, attention = model.look(latents, photos.texts, step, remember=photos.remember)
            seen.append(attention)
            task = _Step(
                model, step, latents, pivots[:, step + 1], guidance[:, None, None, None], with_text
            )
            empty = self._optimise(task, empty)
            latents = task.follow(model.noise(latents, empty, step), slice(None))
            way.append(latents)
            found.append(empty)
        ways, embeddings = torch.stack(way, dim=1), torch.stack(found, dim=1)
        return [
            Inversion(
                latents=ways[i],
                empty=embeddings[i],
                attention=tuple(pick_attention(rows, i) for rows in seen)
                if photos.remember
                else None,
            )
            for i in range(len(photos))
        ]

    def _optimise(self, task: _Step, empty: Tensor) -> Tensor:
        """Return the embeddings of a step; later updates leave out photos that have stopped."""
        rate = self.learning_rate * (1 - task.step / 100)
        limit = self.tolerance + self.growth * task.step
        tensor = empty.clone()
        left = torch.arange(len(empty), device=empty.device)
        first, second = torch.zeros_like(empty), torch.zeros_like(empty)
        for update in range(1, self.inner_steps + 1):
            losses, gradient = task.differentiate(tensor[left], left)
            # torch.optim.Adam's own order of operations.
            first[left] = first[left].lerp(gradient, 1 - BETAS[0])
            second[left] = second[left] * BETAS[1] + gradient * gradient * (1 - BETAS[1])
            scale = second[left].sqrt() / (1 - BETAS[1] ** update) ** 0.5 + EPSILON
            tensor[left] -= rate / (1 - BETAS[0] ** update) * (first[left] / scale)
            left = left[losses >= limit]
            if not len(left):
                break
        return tensor


@dataclass(frozen=True)
class _Step:
    """One step of all photos.

    Attributes:
        step: the index of the step.
        latents: the latents before the step, (n, channels, height, width).
        target: the pivots after the step, of the same shape.
        guidance: the guidance scale of each photo, (n, 1, 1, 1).
        with_text: the model's noise prediction with text, of the latents' shape.
    """

    model: Predictor
    step: int
    latents: Tensor
    target: Tensor
    guidance: Tensor
    with_text: Tensor

    def follow(self, without: Tensor, rows: Tensor | slice) -> Tensor:
        """Return the latents of some photos after the step, given the noise without text."""
        noise = without + self.guidance[rows] * (self.with_text[rows] - without)
        return self.model.schedule.move(self.latents[rows], noise, self.step, self.step + 1)

    def differentiate(self, empty: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return the loss of each of some photos, (n,), and its gradient by their embeddings."""
        with torch.enable_grad():
            empty = empty.detach().requires_grad_()
            after = self.follow(self.model.noise(self.latents[rows], empty, self.step), rows)
            losses = ((after - self.target[rows]) ** 2).mean(dim=(1, 2, 3))
            (gradient,) = torch.autograd.grad(losses.sum(), empty)
        return losses.detach(), gradient
