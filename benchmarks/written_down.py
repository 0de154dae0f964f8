"""InstructPix2Pix's released engine: one candidate at a time, with every map stored."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from diffusers.models.attention_processor import Attention
    from torch import Tensor

    from cfaug.imaging.model import Diffusion

TEXTS = ("a red ball on the beach", "a red cube on the beach")


class WrittenDown:
    """The attention of InstructPix2Pix's fork: logits, copied rows, softmax, product."""

    def __init__(self) -> None:
        self.share = False

    def __call__(
        self,
        attn: Attention,
        hidden_states: Tensor,
        encoder_hidden_states: Tensor | None = None,
        **_: object,
    ) -> Tensor:
        """Attend and store the maps; the rows without text precede those with text."""
        import torch

        context = hidden_states if encoder_hidden_states is None else encoder_hidden_states
        q, k, v = (
            x.unflatten(-1, (attn.heads, -1)).transpose(1, 2).flatten(0, 1)
            for x in (attn.to_q(hidden_states), attn.to_k(context), attn.to_v(context))
        )
        sim = torch.einsum("bid,bjd->bij", q, k) * attn.scale
        if self.share and encoder_hidden_states is None:
            # The first row of each half lends its map: a pair in the first fork, N in the second.
            halves = sim.unflatten(0, (2, -1, attn.heads))
            halves[:, 1:] = halves[:, :1].clone()
        out = torch.einsum("bij,bjd->bid", sim.softmax(-1), v)
        out = out.unflatten(0, (-1, attn.heads)).transpose(1, 2).flatten(2)
        return attn.to_out[0](out)


@dataclass(frozen=True)
class Reference:
    """The engine, for one candidate at a time."""

    loaded: Diffusion
    processor: WrittenDown
    steps: int

    def call(self, x: Tensor, t: float, texts: Tensor) -> Tensor:
        """Call the UNet."""
        import torch

        device = self.loaded.device
        with torch.autocast(device.type, torch.float16, enabled=device.type == "cuda"):
            at = torch.tensor(t, dtype=torch.float32, device=device)
            return self.loaded.unet(x, at, encoder_hidden_states=texts, return_dict=False)[0]

    def sample(
        self,
        p: float,
        cfg: float,
        noise: Callable[[int], Tensor],
        said: Sequence[str] = TEXTS,
    ) -> Tensor:
        """Generate a base and the images that share its maps.

        Args:
            p: the share of the steps with shared attention.
            cfg: the scale of classifier-free guidance.
            noise: a function that returns a step's noise for every image; step -1 is the initial
                noise.
            said: the base's text, followed by the others'.
        """
        import torch

        from cfaug.imaging.schedules import ancestral, noise_levels

        levels = noise_levels(self.loaded.scheduler, self.steps)
        texts = torch.stack([self.loaded.encode(text) for text in ("",) * len(said) + tuple(said)])
        x = noise(-1) * float(levels.sigmas[0])
        for i in range(self.steps):
            sigma, following = map(float, levels.sigmas[i : i + 2])
            self.processor.share = p > i / (self.steps - 1)
            entering = torch.cat([x, x]) / math.sqrt(sigma**2 + 1)
            without, with_text = self.call(entering, float(levels.timesteps[i]), texts).chunk(2)
            guided = (without + cfg * (with_text - without)).float()
            if levels.prediction == "v_prediction":
                clean = x / (sigma**2 + 1) - guided * sigma / math.sqrt(sigma**2 + 1)
            else:
                clean = x - sigma * guided
            down, up = ancestral(sigma, following)
            x = x + (x - clean) / sigma * (down - sigma)
            if following > 0:
                x = x + noise(i) * up
        return x
