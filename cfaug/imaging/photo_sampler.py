"""The sampler for edits of photos: DDIM or DDPM over a tree of edits that use their sources."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from cfaug.imaging.attention import SharedAttention
from cfaug.imaging.ddim import Schedule
from cfaug.imaging.inversion import Inversion, join_attention
from cfaug.imaging.photo_tree import PhotoTree
from cfaug.imaging.unet_batching import Batching, Call, calls

if TYPE_CHECKING:
    from diffusers import UNet2DConditionModel
    from torch import Tensor

    from cfaug.imaging.attention_edit_matrices import Folds


@dataclass(frozen=True)
class PhotoSampler:
    """Denoises all edits of a tree step by step, with prompt-to-prompt's control.

    Attributes:
        unet: a UNet2DConditionModel, or its compiled form.
        shared: the shared attention that is attached to that UNet.
        schedule: the levels of noise; a tree with fewer steps takes the last ones.
        dtype: the number format of the UNet's input; latents and the sampler's own sums are
            float32, or float64 for a float64 UNet.
        batching: the rules by which rows are split into calls.
        eta: the share of DDPM's noise in each step.
    """

    unet: UNet2DConditionModel
    shared: SharedAttention
    schedule: Schedule
    dtype: torch.dtype
    batching: Batching
    eta: float = 0.0

    def denoise(
        self, tree: PhotoTree, texts: Tensor, inversions: Sequence[Inversion], folds: Folds | None
    ) -> Tensor:
        """Return the final latents, (latents, channels, height, width); a source's are unchanged.

        Args:
            tree: the plan of the latents to denoise.
            texts: the embeddings (1 + tree's texts, tokens, width), the empty text first.
            inversions: the inversion of each of the tree's sources.
            folds: the matrices of cross-attention control; ``None`` for no control.
        """
        device = texts.device
        way = torch.stack([one.latents for one in inversions])
        cfg = torch.from_numpy(tree.cfg).to(device, way.dtype)[:, None, None, None]
        owner, parents = (torch.from_numpy(x).to(device) for x in (tree.source, tree.parent))
        sources = torch.from_numpy(tree.image == 0).to(device).nonzero()[:, 0]
        latents = way[owner, 0]
        changes = tree.changes() | (set() if folds is None else folds.changes(tree))
        first = len(self.schedule) - tree.steps
        todo: list[Call] = []
        for step in range(tree.steps):
            if step in changes:
                born = torch.from_numpy(tree.born(step)).to(device)
                latents[born] = latents[parents[born]]
                todo = calls(tree, step, self.batching, device, folds)
            latents[sources] = way[:, step]
            said = self._texts(tree, texts, inversions, step)
            if tree.remembered and any(call.rows.borrow for call in todo):
                seen = [one.attention[step] for one in inversions if one.attention is not None]
                self.shared.lent = dict(join_attention(seen))
            noise = torch.zeros_like(latents)
            for call in todo:
                self._ask(call, latents, said, cfg, first + step, noise)
            latents = self.schedule.mean(latents, noise, first + step, self.eta)
            if self.eta:
                added = torch.stack([_added(one, step) for one in inversions])[owner]
                latents = latents + self.schedule.spread(first + step, self.eta) * added
        self.shared.lent.clear()
        latents[sources] = way[:, -1]
        return latents

    def _texts(
        self, tree: PhotoTree, texts: Tensor, inversions: Sequence[Inversion], step: int
    ) -> Tensor:
        """Return the embeddings for the rows of a step: unconditional ones, then those of texts."""
        if tree.empty_texts == 1 and inversions[0].empty is None:
            return texts
        empty = [texts[0] if one.empty is None else one.empty[step] for one in inversions]
        return torch.cat([torch.stack(empty).to(texts.dtype), texts[1:]])

    def _ask(
        self, call: Call, latents: Tensor, texts: Tensor, cfg: Tensor, step: int, noise: Tensor
    ) -> None:
        """Write the guided noise predictions of one call into ``noise``."""
        shown = latents[call.latents]
        self.shared.rows = call.rows
        (out,) = self.unet(
            torch.cat([shown[call.guided], shown]).to(self.dtype),
            torch.tensor(self.schedule.timesteps[step], device=latents.device),
            encoder_hidden_states=texts[call.texts],
            return_dict=False,
        )
        without, with_text = out.to(latents.dtype).split([len(call.guided), len(call.latents)])
        with_text = with_text[call.guided]
        rows = call.latents[call.guided]
        guided = without + cfg[rows] * (with_text - without)
        noise[rows] = self.schedule.noise(guided, latents[rows], step)


def _added(inversion: Inversion, step: int) -> Tensor:
    assert inversion.noise is not None
    return inversion.noise[step]
