"""Attention with queries and keys from other rows, so that attention maps are never stored.

Copying a row's attention map is the same as copying its queries and keys (in exact arithmetic, when
the map is taken whole from one row): values, output projection and residual stay the row's own.
Every row has the index of the row whose map it uses, so that pairs, sets and different p fit in one
batch, and results do not depend on the order of rows (InstructPix2Pix asserts a batch of four).

Control of cross-attention folds into the values: after the softmax every prompt-to-prompt edit is
linear in the columns of the map, so ``(A @ W) @ V`` is computed as ``A @ (W @ V)``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from cfaug.core.devices import send
from cfaug.core.errors import UserError
from cfaug.imaging.cross_attention import CrossAttention, Tokens

if TYPE_CHECKING:
    from diffusers import Flux2Transformer2DModel, SD3Transformer2DModel, UNet2DConditionModel
    from diffusers.models.attention_processor import Attention
    from torch import Tensor

    from cfaug.imaging.tree import Branches


Heads = tuple["Tensor", ...]
"""Queries and keys, each (rows, heads, tokens, width); or one of them."""


@dataclass(frozen=True)
class CrossRows:
    """Cross-attention control of some rows of a call; matrices are (rows, tokens, tokens).

    Attributes:
        source: the row that lends the other map to each of these rows; a number after the call's
            own rows is a row of an earlier call.
        from_source: the matrices ``W_b`` for the maps of the sources.
        from_own: the matrices ``W_e`` for the rows' own maps.
    """

    rows: Tensor
    source: Tensor
    from_source: Tensor
    from_own: Tensor


@dataclass(frozen=True)
class CallRows:
    """Information about the rows of one call for the attention layers.

    Attributes:
        source: (rows,) the row whose queries and keys a row uses in self-attention; its own index
            if it shares no attention. ``rows`` and ``rows + 1`` are the two rows lent by an earlier
            call.
        text: (rows,) the index of a row's text among the call's distinct texts.
        lend: (2,) the rows that later calls of the same step borrow; ``None`` if they borrow none.
        borrow: whether this call uses rows lent by an earlier call.
        cross: the control of cross-attention; ``None`` for no control.
    """

    source: Tensor
    text: Tensor
    lend: Tensor | None = None
    borrow: bool = False
    cross: CrossRows | None = None


class SharedAttention:
    """State shared by all layers of a network: the rows of the current call, and the lent rows.

    The sampler sets ``rows`` before each call, and its network ``text_tokens`` if layers mix texts
    and images; no layer counts steps or calls.

    Args:
        max_tokens: the largest number of tokens up to which self-attention is shared; ``None`` for
            no limit (prompt-to-prompt: 32 * 32 or 16 * 16; InstructPix2Pix: no limit).
        cross: whether cross-attention is controlled, so that its maps are lent too.
    """

    def __init__(self, max_tokens: int | None = None, *, cross: bool = False) -> None:
        self.max_tokens, self.cross = max_tokens, cross
        self.rows: CallRows | None = None
        self.text_tokens = 0
        self.lent: dict[str, Heads] = {}

    def attach(self, unet: UNet2DConditionModel) -> None:
        """Replace the UNet's attention processors."""
        layers = {name: module for name, module in unet.named_modules() if hasattr(module, "to_q")}
        for name, layer in layers.items():
            odd = [
                part for part in ("group_norm", "spatial_norm", "norm_cross", "norm_q", "norm_k")
                if getattr(layer, part) is not None
            ]  # fmt: skip
            if odd or not name.endswith(("attn1", "attn2")):
                raise UserError(
                    f"the UNet's layer {name} is not an attention layer of Stable Diffusion "
                    f"({', '.join(odd) or 'neither attn1 nor attn2'}): sharing is not defined"
                )
        unet.set_attn_processor({f"{name}.processor": _Processor(self, name) for name in layers})

    def attach_joint(self, transformer: SD3Transformer2DModel | Flux2Transformer2DModel) -> None:
        """Give each row of a transformer of images and texts its source's queries and keys.

        Only those of image tokens are given; text tokens, values, and everything after stay the
        row's own. The layers' processors are diffusers' own, with their rotary positions, backends
        and parallel settings: queries and keys are replaced as they leave their normalisation,
        which sees image tokens alone, or, in single blocks, the text's tokens and then the image's
        (``text_tokens`` says how many).
        """
        for name, layer in transformer.named_modules():
            if not hasattr(layer, "norm_q"):
                continue
            mixed = not hasattr(layer, "to_q")  # one projection of both kinds of tokens
            for part in ("q", "k"):
                # Without normalisation, as in SD 3, the projection itself has the image's tokens.
                norm = getattr(layer, f"norm_{part}")
                leaving = getattr(layer, f"to_{part}") if norm is None else norm
                leaving.register_forward_hook(self._replace(f"{name}.{part}", mixed))

    def _replace(self, name: str, mixed: bool) -> Callable[..., Tensor]:
        def hook(_: Any, __: Any, made: Tensor) -> Tensor:
            rows = self.rows
            if rows is None:
                raise RuntimeError("set SharedAttention.rows before the call")
            first = self.text_tokens if mixed else 0
            (pooled,) = self.pool(name, (made[:, first:] if mixed else made,), rows)
            taken = pooled[rows.source]
            return torch.cat([made[:, :first], taken], dim=1) if mixed else taken

        return hook

    def pool(self, name: str, heads: Heads, rows: CallRows) -> Heads:
        """Return the call's queries and keys, then the borrowed ones; lend the requested rows."""
        pooled = heads
        if rows.borrow:
            pooled = tuple(map(torch.cat, zip(heads, self.lent[name], strict=True)))
        if rows.lend is not None:
            self.lent[name] = tuple(tensor[rows.lend] for tensor in heads)
        return pooled


class _Processor:
    """One layer's attention; the interface is diffusers' ``AttnProcessor2_0``."""

    def __init__(self, shared: SharedAttention, name: str) -> None:
        self.shared, self.name = shared, name

    def __call__(
        self,
        attn: Attention,
        hidden_states: Tensor,
        encoder_hidden_states: Tensor | None = None,
        attention_mask: Tensor | None = None,
        temb: Tensor | None = None,
    ) -> Tensor:
        rows = self.shared.rows
        if rows is None or attention_mask is not None:
            raise RuntimeError("set SharedAttention.rows before the call, and pass no mask")
        if encoder_hidden_states is None:
            value = _heads(attn.to_v(hidden_states), attn.heads)
            query = _heads(attn.to_q(hidden_states), attn.heads)
            key = _heads(attn.to_k(hidden_states), attn.heads)
            limit = self.shared.max_tokens
            if limit is None or hidden_states.shape[1] <= limit:
                query, key = self.shared.pool(self.name, (query, key), rows)
                query, key = query[rows.source], key[rows.source]
            mixed = F.scaled_dot_product_attention(query, key, value)
        else:
            mixed = self._cross(attn, hidden_states, encoder_hidden_states, rows)
        joined = mixed.transpose(1, 2).flatten(2)
        out: Tensor = attn.to_out[1](attn.to_out[0](joined))
        return out

    def _cross(self, attn: Attention, hidden: Tensor, texts: Tensor, rows: CallRows) -> Tensor:
        # Distinct texts are projected once and then distributed to the rows.
        query = _heads(attn.to_q(hidden), attn.heads)
        key = _heads(attn.to_k(texts), attn.heads)[rows.text]
        value = _heads(attn.to_v(texts), attn.heads)[rows.text]
        if not self.shared.cross:
            return F.scaled_dot_product_attention(query, key, value)
        pool_query, pool_key = self.shared.pool(self.name, (query, key), rows)
        control = rows.cross
        if control is None:
            return F.scaled_dot_product_attention(query, key, value)
        edited = value[control.rows]
        value = value.index_copy(0, control.rows, control.from_own[:, None] @ edited)
        mixed = F.scaled_dot_product_attention(query, key, value)
        other = F.scaled_dot_product_attention(
            pool_query[control.source],
            pool_key[control.source],
            control.from_source[:, None] @ edited,
        )
        return mixed.index_add(0, control.rows, other)


def _heads(flat: Tensor, heads: int) -> Tensor:
    """Map (rows, tokens, heads * width) to (rows, heads, tokens, width)."""
    return flat.unflatten(-1, (heads, -1)).transpose(1, 2)


@dataclass(frozen=True)
class Folds:
    """The matrices of cross-attention control for the texts of one tree, each made once."""

    control: CrossAttention
    tokens: Sequence[Tokens]
    steps: int
    device: torch.device
    dtype: torch.dtype

    @cached_property
    def _made(self) -> dict[tuple[int, int, bytes], Tensor]:
        return {}

    @cached_property
    def _schedule(self) -> Callable[[int], NDArray[np.bool_]]:
        return cache(lambda text: self.control.schedule(self.tokens[text], self.steps))

    def changes(self, tree: Branches) -> set[int]:
        """Return the steps at which any edit's matrices change."""
        steps: set[int] = set()
        for text in set(tree.text[tree.image > 0].tolist()):
            table = self._schedule(text)
            steps |= set((np.flatnonzero((table[1:] != table[:-1]).any(1)) + 1).tolist())
        return steps

    def __call__(self, base: int, edited: int, step: int) -> Tensor | None:
        """Return the matrices for source and edited text, (2, tokens, tokens); ``None`` for none.

        Maps are not edited at a step without active tokens.
        """
        active = self._schedule(edited)[step]
        if not active.any():
            return None
        key = base, edited, active.tobytes()
        if key not in self._made:
            both = self.control.matrices(self.tokens[base], self.tokens[edited], active)
            self._made[key] = send(torch.from_numpy(both).to(self.dtype), self.device)
        return self._made[key]
