"""InstructPix2Pix's engine as it is written, one candidate at a time, with every map written down.

Nothing here knows cfaug.imaging: softmax(Q K^T) rows are copied from the base's, and the sampler is
k-diffusion's, with the formulas of its papers. Noise comes as an argument.
"""

from __future__ import annotations

import math

import torch


def attention(attn, hidden, texts, edit):
    """Explicit maps (rows, heads, queries, keys), which ``edit(maps, is_cross)`` may change."""
    context = hidden if texts is None else texts
    rows, heads = len(hidden), attn.heads
    q, k, v = attn.to_q(hidden), attn.to_k(context), attn.to_v(context)
    q, k, v = (x.reshape(rows, x.shape[1], heads, -1).permute(0, 2, 1, 3) for x in (q, k, v))
    maps = torch.softmax(torch.einsum("bhid,bhjd->bhij", q, k) / math.sqrt(q.shape[-1]), dim=-1)
    maps = edit(maps, texts is not None)
    out = torch.einsum("bhij,bhjd->bhid", maps, v).permute(0, 2, 1, 3).reshape(hidden.shape)
    return attn.to_out[0](out)


class Explicit:
    """A processor that lets ``edit`` change the maps of every layer."""

    def __init__(self):
        self.edit = lambda maps, is_cross: maps

    def __call__(self, attn, hidden_states, encoder_hidden_states=None, attention_mask=None):
        return attention(attn, hidden_states, encoder_hidden_states, self.edit)


def share_first(maps, is_cross):
    """Row 0's map for all rows of the half without text, the first with text for the others."""
    if is_cross:
        return maps
    half = len(maps) // 2
    return torch.cat(
        [maps[:1].expand(half, -1, -1, -1), maps[half : half + 1].expand_as(maps[half:])]
    )


def sigmas(config, steps):
    """t linear from the last to 0; sigma by interpolating its logarithm; a 0 at the end."""
    roots = torch.linspace(
        config["beta_start"] ** 0.5, config["beta_end"] ** 0.5, config["num_train_timesteps"],
        dtype=torch.float64,
    )  # fmt: skip
    kept = torch.cumprod(1 - roots**2, 0)
    logs = (((1 - kept) / kept) ** 0.5).log()
    times = [(len(logs) - 1) * (1 - i / (steps - 1)) for i in range(steps)]
    values = []
    for t in times:
        low, part = math.floor(t), t - math.floor(t)
        high = min(low + 1, len(logs) - 1)
        values.append(math.exp((1 - part) * float(logs[low]) + part * float(logs[high])))
    return times, [*values, 0.0]


def sample(unet, config, texts, empty, p, cfg, noises, steps, edit=None, prediction="epsilon"):
    """Draw one candidate.

    Args:
        texts: embeddings (images, tokens, width); empty: (tokens, width).
        noises: (1 + steps, images, ...), the initial noise first.
        edit: ``edit(step, maps, is_cross)``; InstructPix2Pix's sharing for ``p`` if None.
    """
    processor = Explicit()
    unet.set_attn_processor(processor)
    times, values = sigmas(config, steps)
    x = noises[0] * values[0]
    count = len(texts)
    context = torch.cat([empty.expand(count, -1, -1), texts])
    for i in range(steps):
        sigma, following = values[i], values[i + 1]
        if edit is not None:
            processor.edit = lambda maps, cross, i=i: edit(i, maps, cross)
        else:
            processor.edit = share_first if p > i / (steps - 1) else lambda maps, cross: maps
        entering = torch.cat([x, x]) / math.sqrt(sigma**2 + 1)
        out = unet(entering, torch.tensor(times[i]), encoder_hidden_states=context).sample
        if prediction == "v_prediction":
            clean = torch.cat([x, x]) / (sigma**2 + 1) - out * sigma / math.sqrt(sigma**2 + 1)
        else:
            clean = torch.cat([x, x]) - sigma * out
        clean = clean[:count] + cfg * (clean[count:] - clean[:count])
        up = min(following, math.sqrt(following**2 * (sigma**2 - following**2) / sigma**2))
        down = math.sqrt(following**2 - up**2)
        x = x + (x - clean) / sigma * (down - sigma)
        if following > 0:
            x = x + noises[1 + i] * up
    return x
