"""Shared attention of images and texts with every map written down, one set at a time.

Nothing here knows cfaug.imaging. A map's logits are written block by block: those between image
tokens are copied from the base; those between an image and a text are of the base's image tokens
and the row's own text; those within a text are the row's own. Noise comes as an argument.
"""

from __future__ import annotations

import math

import torch


def rotate(x, cos, sin):
    """Rotate pairs of neighbouring numbers of (rows, heads, tokens, width), in float32."""
    pairs = x.float().unflatten(-1, (-1, 2))
    turned = torch.stack([-pairs[..., 1], pairs[..., 0]], dim=-1).flatten(-2)
    return (x.float() * cos + turned * sin).to(x.dtype)


def attend(queries, keys, values, source, share_texts=False):
    """Attend from and to [image, text] or [image]; each of the three is a list of such parts.

    Args:
        source: the row whose image tokens' queries and keys each row uses.
        share_texts: whether the texts' are shared as well, which they should not be.
    """
    scale = 1 / math.sqrt(queries[0].shape[-1])
    sources = [source, source if share_texts else torch.arange(len(source))]
    logits = torch.cat(
        [
            torch.cat(
                [
                    torch.einsum("bhid,bhjd->bhij", query[rows], key[columns]) * scale
                    for key, columns in zip(keys, sources, strict=False)
                ],
                dim=3,
            )
            for query, rows in zip(queries, sources, strict=False)
        ],
        dim=2,
    )
    return torch.einsum("bhij,bhjd->bhid", torch.softmax(logits, -1), torch.cat(values, 2))


def heads(flat, width):
    return flat.unflatten(-1, (-1, width)).transpose(1, 2)


def join(mixed):
    return mixed.transpose(1, 2).flatten(2)


class Explicit:
    """A processor of all layers, with the rows' sources and the number of the text's tokens."""

    def __init__(self, share_texts=False):
        self.source, self.texts, self.share_texts = None, 0, share_texts

    def __call__(
        self, attn, hidden_states, encoder_hidden_states=None, attention_mask=None,
        image_rotary_emb=None, **_,
    ):  # fmt: skip
        if hasattr(attn, "to_qkv_mlp_proj"):  # whose third argument is its positions
            return self.single(attn, hidden_states, attention_mask)
        if not hasattr(attn, "norm_q") or attn.norm_q is None:
            return self.plain(attn, hidden_states, encoder_hidden_states)
        width = attn.norm_q.weight.shape[0]
        image = [heads(to(hidden_states), width) for to in (attn.to_q, attn.to_k, attn.to_v)]
        image[:2] = attn.norm_q(image[0]), attn.norm_k(image[1])
        if encoder_hidden_states is None:
            mixed = attend(*([part] for part in image), self.source)
            return attn.to_out[0](join(mixed))
        text = [
            heads(to(encoder_hidden_states), width)
            for to in (attn.add_q_proj, attn.add_k_proj, attn.add_v_proj)
        ]
        if attn.norm_added_q is not None:
            text[:2] = attn.norm_added_q(text[0]), attn.norm_added_k(text[1])
        pixels = hidden_states.shape[1]
        if image_rotary_emb is not None:
            count = text[0].shape[2]
            cos, sin = image_rotary_emb
            text[:2] = (rotate(x, cos[:count], sin[:count]) for x in text[:2])
            image[:2] = (rotate(x, cos[count:], sin[count:]) for x in image[:2])
        both = ([a, b] for a, b in zip(image, text, strict=True))
        mixed = join(attend(*both, self.source, self.share_texts))
        own, said = mixed[:, :pixels], mixed[:, pixels:]
        if getattr(attn, "context_pre_only", None):
            return attn.to_out[0](own), said
        return attn.to_out[0](own), attn.to_add_out(said)

    def plain(self, attn, hidden, texts):
        """A UNet's layer: attention of the image to itself, or to the text."""
        context, source = hidden, self.source
        if texts is not None:
            context, source = texts, torch.arange(len(hidden))
        width = attn.to_q.weight.shape[0] // attn.heads
        parts = (attn.to_q(hidden), attn.to_k(context), attn.to_v(context))
        return attn.to_out[0](join(attend(*([heads(x, width)] for x in parts), source)))

    def single(self, attn, hidden, positions):
        """FLUX.2's single block: one sequence, [text, image], with its own feed-forward part."""
        projected = attn.to_qkv_mlp_proj(hidden)
        inner = attn.inner_dim
        query, key, value, rest = projected.split(
            [inner, inner, inner, projected.shape[-1] - 3 * inner], dim=-1
        )
        query, key, value = (heads(x, attn.head_dim) for x in (query, key, value))
        query, key = (rotate(x, *positions) for x in (attn.norm_q(query), attn.norm_k(key)))
        n = self.texts
        parts = ([x[:, :, n:], x[:, :, :n]] for x in (query, key, value))
        mixed = join(attend(*parts, self.source, self.share_texts))
        mixed = torch.cat([mixed[:, -n:], mixed[:, :-n]], dim=1)
        gate, up = rest.chunk(2, dim=-1)
        return attn.to_out(torch.cat([mixed, torch.nn.functional.silu(gate) * up], dim=-1))


def draw(ask, processor, noise, p, cfg, sigmas, *, guided=True, scale=None):
    """Draw a set by Euler's method.

    Args:
        ask: ``ask(latents, step)``, the network's answer for every row: those without text, if
            there are any, and those with it.
        noise: (images, ...), the initial latents.
        scale: ``scale(sigma)``, the factor of the network's input; ``None`` for a flow.
    """
    x, count, steps = noise, len(noise), len(sigmas) - 1
    own = torch.arange(2 * count if guided else count)
    for i in range(steps):
        sigma, following = sigmas[i], sigmas[i + 1]
        processor.source = own // count * count if p > i / (steps - 1) else own
        entering = x if scale is None else x * scale(sigma)
        out = ask(torch.cat([entering, entering]) if guided else entering, i)
        if guided:
            out = out[:count] + cfg * (out[count:] - out[:count])
        x = x + out * (following - sigma)
    return x
