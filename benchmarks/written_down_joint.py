"""Shared attention of images and texts with every map written down, one set at a time.

Image tokens take the base's queries and keys, text tokens their own; the map of the whole sequence
is stored, and multiplied by the row's own values. ``cfaug.imaging`` is not used, so that its tests
and the benchmark hold it against this.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

Parts = Sequence["Tensor"]
"""Tokens of images, or of images and then of texts, each (rows, heads, tokens, width)."""


class WrittenDownJoint:
    """A processor for all layers of SD 3.5, FLUX.2 and a UNet.

    Attributes:
        source: (rows,) the row whose image tokens' queries and keys each row uses.
        texts: the number of text tokens at the start of a single block's sequence.
        share_texts: whether those of text tokens are shared as well, which they should not be.
    """

    source: Tensor

    def __init__(self, *, share_texts: bool = False) -> None:
        self.texts, self.share_texts = 0, share_texts

    def __call__(
        self, attn: Any, hidden_states: Tensor, encoder_hidden_states: Tensor | None = None,
        attention_mask: Any = None, image_rotary_emb: Any = None, **_: object,
    ) -> Any:  # fmt: skip
        """Return the layer's output for images, and for texts where it has one."""
        import torch

        if hasattr(attn, "to_qkv_mlp_proj"):  # whose third argument is its positions
            return self._single(attn, hidden_states, attention_mask)
        texts, images = encoder_hidden_states, hidden_states
        width = attn.to_q.weight.shape[0] // attn.heads
        if texts is None or getattr(attn, "add_q_proj", None) is None:
            context = images if texts is None else texts  # of a UNet's cross-attention
            source = (
                self.source if texts is None else torch.arange(len(images), device=images.device)
            )
            parts = (attn.to_q(images), attn.to_k(context), attn.to_v(context))
            query, key, value = (_heads(x, width) for x in parts)
            query, key = _normalise(attn.norm_q, query), _normalise(attn.norm_k, key)
            return attn.to_out[0](self._attend([query], [key], [value], source))
        image = [_heads(to(images), width) for to in (attn.to_q, attn.to_k, attn.to_v)]
        text = [
            _heads(to(texts), width) for to in (attn.add_q_proj, attn.add_k_proj, attn.add_v_proj)
        ]
        image[:2] = _normalise(attn.norm_q, image[0]), _normalise(attn.norm_k, image[1])
        text[:2] = _normalise(attn.norm_added_q, text[0]), _normalise(attn.norm_added_k, text[1])
        if image_rotary_emb is not None:
            count = text[0].shape[2]
            cos, sin = image_rotary_emb
            text[:2] = (_rotate(x, cos[:count], sin[:count]) for x in text[:2])
            image[:2] = (_rotate(x, cos[count:], sin[count:]) for x in image[:2])
        both = (list(parts) for parts in zip(image, text, strict=True))
        mixed = self._attend(*both, self.source)
        shown, read = mixed.split([images.shape[1], texts.shape[1]], dim=1)
        read = read if getattr(attn, "context_pre_only", None) else attn.to_add_out(read)
        return attn.to_out[0](shown), read

    def _single(self, attn: Any, hidden: Tensor, positions: Any) -> Tensor:
        """FLUX.2's single block: one sequence, the text first, with its feed-forward part."""
        import torch

        projected, inner, n = attn.to_qkv_mlp_proj(hidden), attn.inner_dim, self.texts
        sizes = [inner, inner, inner, projected.shape[-1] - 3 * inner]
        *flat, rest = projected.split(sizes, dim=-1)
        query, key, value = (_heads(x, attn.head_dim) for x in flat)
        query, key = (_rotate(x, *positions) for x in (attn.norm_q(query), attn.norm_k(key)))
        mixed = self._attend(
            *([x[:, :, n:], x[:, :, :n]] for x in (query, key, value)), self.source
        )
        gate, up = rest.chunk(2, dim=-1)
        gated = torch.nn.functional.silu(gate) * up
        return attn.to_out(torch.cat([torch.cat([mixed[:, -n:], mixed[:, :-n]], 1), gated], -1))

    def _attend(self, queries: Parts, keys: Parts, values: Parts, source: Tensor) -> Tensor:
        """Return (rows, tokens, heads * width)."""
        import torch

        def take(parts: Parts) -> Tensor:
            image, *texts = parts
            shared = [text[source] if self.share_texts else text for text in texts]
            return torch.cat([image[source], *shared], dim=2)

        query, key = take(queries), take(keys)
        logits = torch.einsum("bhid,bhjd->bhij", query, key) / math.sqrt(query.shape[-1])
        mixed = torch.einsum("bhij,bhjd->bhid", logits.softmax(-1), torch.cat(list(values), dim=2))
        return mixed.transpose(1, 2).flatten(2)


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate pairs of neighbouring numbers of (rows, heads, tokens, width), in float32."""
    import torch

    pairs = x.float().unflatten(-1, (-1, 2))
    turned = torch.stack([-pairs[..., 1], pairs[..., 0]], dim=-1).flatten(-2)
    return (x.float() * cos + turned * sin).to(x.dtype)


def _normalise(norm: Any, x: Tensor) -> Tensor:
    return x if norm is None else norm(x)


def _heads(flat: Tensor, width: int) -> Tensor:
    return flat.unflatten(-1, (-1, width)).transpose(1, 2)


def draw_set(
    ask: Callable[[Tensor, int], Tensor],
    processor: WrittenDownJoint,
    noise: Tensor,
    sharing: tuple[float, float],
    sigmas: Sequence[float],
    *,
    guided: bool = True,
    scale: Callable[[float], float] = lambda _: 1.0,
) -> Tensor:
    """Draw a set by Euler's method.

    Args:
        ask: ``ask(latents, step)``, the network's answer for every row: those without text, if
            there are any, and those with it.
        noise: (images, ...), the initial latents.
        sharing: p, the share of the steps with shared attention, and the guidance scale.
        guided: whether there are rows without text.
        scale: ``scale(sigma)``, the factor of the network's input.
    """
    import torch

    (p, cfg), x, count, steps = sharing, noise, len(noise), len(sigmas) - 1
    rows = torch.arange(2 * count if guided else count, device=noise.device)
    for i in range(steps):
        sigma, following = sigmas[i], sigmas[i + 1]
        processor.source = rows // count * count if p > i / (steps - 1) else rows
        entering = x * scale(sigma)
        out = ask(torch.cat([entering, entering]) if guided else entering, i).to(x.dtype)
        if guided:
            out = out[:count] + cfg * (out[count:] - out[:count])
        x = x + out * (following - sigma)
    return x
