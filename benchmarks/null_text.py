"""Null-text inversion and prompt-to-prompt of LANCE's code: one photo, one f, stored maps.

Its weights require gradients, which are computed but never used; every step of an edit computes the
source and the edit, with and without text.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from diffusers.models.attention_processor import Attention
    from torch import Tensor

    from cfaug.imaging.model import Diffusion


@dataclass
class Control:
    """Prompt-to-prompt's control of a step, for rows [without, without, with, with] text.

    Attributes:
        aligned: the source token that each token of the edit is, 0 for a new one, (tokens,).
        known: 1 for tokens of the edit that are the source's, 0 for new ones, (tokens,).
        weight: the factor of each token's map, (tokens,).
        cross: whether maps of texts are edited at this step.
        share: whether the source's map of pixels is copied at this step.
        limit: the number of pixels of the largest map that is copied.
    """

    aligned: Tensor
    known: Tensor
    weight: Tensor
    cross: bool = False
    share: bool = False
    limit: int = 1024

    def edit(self, maps: Tensor, is_cross: bool) -> Tensor:
        """Change the edit's map (4, heads, pixels, columns)."""
        import torch

        source, edited = maps[2], maps[3]
        if is_cross and self.cross:
            edited = source[..., self.aligned] * self.known + edited * (1 - self.known)
            edited = edited * self.weight
        elif not is_cross and self.share and maps.shape[2] <= self.limit:
            edited = source
        return torch.cat([maps[:3], edited[None]])


@dataclass
class EveryMap:
    """An attention processor that stores every map, and lets ``control`` change it."""

    control: Control | None = None

    def __call__(
        self,
        attn: Attention,
        hidden_states: Tensor,
        encoder_hidden_states: Tensor | None = None,
        **_: object,
    ) -> Tensor:
        """Attend and store every map."""
        import torch

        context = hidden_states if encoder_hidden_states is None else encoder_hidden_states
        q, k, v = (
            x.unflatten(-1, (attn.heads, -1)).transpose(1, 2)
            for x in (attn.to_q(hidden_states), attn.to_k(context), attn.to_v(context))
        )
        maps = (torch.einsum("bhid,bhjd->bhij", q, k) * attn.scale).softmax(-1)
        if self.control is not None:
            maps = self.control.edit(maps, encoder_hidden_states is not None)
        out = torch.einsum("bhij,bhjd->bhid", maps, v).transpose(1, 2).flatten(2)
        return attn.to_out[0](out)


@dataclass
class PaperWay:
    """The released code's way, with the weights of a loaded model.

    Attributes:
        loaded: the model; its attention and its weights' ``requires_grad`` are changed.
        steps: the number of DDIM steps.
        inner_steps: the largest number of updates of the embedding in a step.
        updates: the number of updates in each step of the last inversion.
    """

    loaded: Diffusion
    steps: int
    inner_steps: int = 10
    updates: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        from cfaug.imaging.schedules import ddim_schedule

        self.schedule = ddim_schedule(self.loaded.scheduler, self.steps)
        self.maps = EveryMap()
        self.loaded.unet.set_attn_processor(self.maps)
        self.loaded.unet.requires_grad_(True)

    def noise(self, x: Tensor, step: int, texts: Tensor) -> Tensor:
        """Call the UNet."""
        import torch

        at = torch.tensor(self.schedule.timesteps[step], device=x.device)
        out = self.loaded.unet(x, at, encoder_hidden_states=texts, return_dict=False)[0]
        return self.schedule.noise(out, x, step)

    def invert(self, clean: Tensor, text: Tensor, empty: Tensor, guidance: float) -> Any:
        """Return the noise, and an embedding of the empty text for each step."""
        import torch
        import torch.nn.functional as F

        self.maps.control = None
        move, pivots = self.schedule.move, [clean[None]]
        for step in reversed(range(self.steps)):
            with torch.no_grad():
                noise = self.noise(pivots[-1], step, text[None])
                pivots.append(move(pivots[-1], noise, step + 1, step))
        x, moved, embeddings, self.updates = pivots[-1], empty[None], [], []
        for step in range(self.steps):
            moved = moved.clone().detach().requires_grad_()
            adam = torch.optim.Adam([moved], lr=1e-2 * (1 - step / 100))
            with torch.no_grad():
                cond = self.noise(x, step, text[None])
            count = 0
            for _ in range(self.inner_steps):
                count += 1
                uncond = self.noise(x, step, moved)
                after = move(x, uncond + guidance * (cond - uncond), step, step + 1)
                loss = F.mse_loss(after, pivots[self.steps - step - 1])
                adam.zero_grad()
                loss.backward()
                adam.step()
                if loss.item() < 1e-5 + step * 2e-5:
                    break
            self.updates.append(count)
            embeddings.append(moved[0].detach())
            with torch.no_grad():
                both = self.noise(torch.cat([x, x]), step, torch.stack([embeddings[-1], text]))
                uncond, cond = both.chunk(2)
                x = move(x, uncond + guidance * (cond - uncond), step, step + 1)
        self.loaded.unet.zero_grad(set_to_none=True)
        return pivots[-1][0], embeddings

    def edit(
        self, start: Tensor, texts: Tensor, empties: list[Tensor], guidance: float, share: float
    ) -> Tensor:
        """Sample the source and its edit from an inversion; ``share`` is f."""
        import torch

        assert self.maps.control is not None
        x = torch.stack([start, start])
        for step, empty in enumerate(empties):
            self.maps.control.cross = step < int(0.8 * (self.steps + 1))
            self.maps.control.share = step < int(share * self.steps)
            context = torch.cat([torch.stack([empty, empty]), texts])
            with torch.no_grad():
                both = self.noise(torch.cat([x, x]), step, context)
            uncond, cond = both.chunk(2)
            noise = uncond + guidance * (cond - uncond)
            x = self.schedule.move(x, noise, step, step + 1)
        return x
