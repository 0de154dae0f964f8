"""The Euler-ancestral sampler of InstructPix2Pix over a tree of candidates, in float32.

Diffusers' ``EulerAncestralDiscreteScheduler.step`` draws noise for every row, which destroys the
pairing of a set. Here, noise is shared within a set, and each candidate has its guidance and p.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from cfaug.imaging import noise
from cfaug.imaging.attention import SharedAttention
from cfaug.imaging.sigmas import NoiseLevels, ancestral
from cfaug.imaging.tree import Tree
from cfaug.imaging.unet_batching import Batching, Call, calls

if TYPE_CHECKING:
    from diffusers import UNet2DConditionModel
    from torch import Tensor

    from cfaug.imaging.attention_edit_matrices import Folds


@dataclass(frozen=True)
class Noise:
    """The source of a candidate's noise.

    Attributes:
        independent: whether every image of a set has its own noise (an ablation).
        on_device: whether noise is drawn with the device's generator instead of the CPU's.
    """

    independent: bool = False
    on_device: bool = False

    def of(
        self, tree: Tree, shape: tuple[int, ...], device: torch.device
    ) -> Callable[[int], Tensor]:
        """Return a function that draws the noise of a step, float32 (latents, *shape).

        Latents that share their noise have equal rows.
        """
        image = tree.image if self.independent else tree.image * 0
        owners = list(zip(tree.family.tolist(), image.tolist(), strict=True))
        order = {owner: at for at, owner in enumerate(dict.fromkeys(owners))}
        addresses = [(tree.seeds[family], image) for family, image in order]
        rows = torch.tensor([order[owner] for owner in owners], device=device)

        def draw(step: int) -> Tensor:
            return noise.batch(addresses, step, shape, device, on_device=self.on_device)[rows]

        return draw


@dataclass(frozen=True)
class Sampler:
    """Denoises all candidates of a tree step by step.

    Attributes:
        unet: a UNet2DConditionModel, or its compiled form.
        shared: the shared attention that is attached to that UNet.
        levels: the noise levels: sigmas and timesteps.
        shape: the shape of a latent, (channels, height, width).
        dtype: the number format of the UNet's input; latents and the sampler's own sums are
            float32, or float64 for a float64 UNet.
        batching: the rules by which rows are split into calls.
        noise: the source of the noise.
        eta: the share of the ancestral noise at every step: 1 is Euler-ancestral, 0 adds no noise.
    """

    unet: UNet2DConditionModel
    shared: SharedAttention
    levels: NoiseLevels
    shape: tuple[int, int, int]
    dtype: torch.dtype
    batching: Batching
    noise: Noise
    eta: float = 1.0

    def begin(self, tree: Tree, device: torch.device) -> Tensor:
        """Return the initial noise of a tree, (latents, *shape)."""
        drawn = self.noise.of(tree, self.shape, device)(noise.INITIAL)
        exact = torch.promote_types(self.dtype, torch.float32)
        return drawn.to(exact) * float(self.levels.sigmas[0])

    def denoise(
        self, tree: Tree, texts: Tensor, folds: Folds | None, latents: Tensor, steps: range
    ) -> tuple[Tensor, Tensor]:
        """Denoise during some steps.

        Args:
            tree: the plan of the latents to denoise.
            texts: the embeddings (1 + tree's texts, tokens, width), the empty text first.
            folds: the matrices of cross-attention control; ``None`` for no control.
            latents: the latents before the first of the steps, (latents, *shape).
            steps: the consecutive steps to take.

        Returns:
            The latents after the last step, and its prediction of the clean latents; both are
            meaningless for a branch that has not started by then.
        """
        device, exact = texts.device, latents.dtype
        latents = latents.clone()
        cfg = torch.from_numpy(tree.cfg[tree.family]).to(device, exact)[:, None, None, None]
        parents = torch.from_numpy(tree.parent).to(device)
        timesteps = torch.tensor(self.levels.timesteps, dtype=torch.float32, device=device)
        draw = self.noise.of(tree, self.shape, device)
        denoised = torch.zeros_like(latents)
        todo: list[Call] = []
        changes = {steps.start} | tree.changes()
        if folds is not None:
            changes |= folds.changes(tree)
        for step in steps:
            if step in changes:
                born = torch.from_numpy(tree.born(step)).to(device)
                latents[born] = latents[parents[born]]
                todo = calls(tree, step, self.batching, device, folds)
            denoised = torch.zeros_like(latents)
            for call in todo:
                rows = call.latents[: call.real]
                guess = self._denoise(call, latents, texts, cfg, timesteps[step], step)
                denoised[rows] = guess[: call.real]
            latents = self._advance(latents, denoised, draw, step)
        self.shared.lent.clear()
        return latents, denoised

    def _denoise(
        self, call: Call, latents: Tensor, texts: Tensor, cfg: Tensor, at: Tensor, step: int
    ) -> Tensor:
        """Return the guided prediction of the clean latents of a call."""
        sigma = float(self.levels.sigmas[step])
        scale = (sigma**2 + 1) ** -0.5
        noisy = latents[call.latents]
        inputs = (noisy * scale).to(self.dtype).repeat(2, 1, 1, 1)
        self.shared.rows = call.rows
        (out,) = self.unet(
            inputs,
            at,
            encoder_hidden_states=texts[call.texts],
            return_dict=False,
        )
        without, with_text = out.to(noisy.dtype).chunk(2)
        guided = without + cfg[call.latents] * (with_text - without)
        if self.levels.prediction == "v_prediction":
            return noisy * scale**2 - guided * (sigma * scale)
        return noisy - sigma * guided

    def _advance(
        self, latents: Tensor, denoised: Tensor, draw: Callable[[int], Tensor], step: int
    ) -> Tensor:
        """Take one Euler-ancestral step (k-diffusion's ``sample_euler_ancestral``)."""
        sigma, following = (float(s) for s in self.levels.sigmas[step : step + 2])
        down, up = ancestral(sigma, following, self.eta)
        latents = latents + (latents - denoised) * ((down - sigma) / sigma)
        if up > 0:
            latents = latents + up * draw(step).to(latents.dtype)
        return latents
