"""Photos inverted and edited as the papers' code does: one photo, one edit, one step at a time.

Nothing here knows cfaug.imaging: betas, DDIM and every map are written down, and every row is
computed anew at each step: two of the source, two of the edit.
"""

from __future__ import annotations

import math

import torch

from tests.imaging.reference import Explicit


class Ddim:
    """DDIM as the notebook of null-text inversion has it (``prev_step`` and ``next_step``)."""

    def __init__(self, config, steps):
        roots = torch.linspace(
            config["beta_start"] ** 0.5, config["beta_end"] ** 0.5, config["num_train_timesteps"],
            dtype=torch.float64,
        )  # fmt: skip
        self.kept = torch.cumprod(1 - roots**2, 0)
        self.gap = config["num_train_timesteps"] // steps
        self.times = [i * self.gap + config["steps_offset"] for i in range(steps)][::-1]
        self.velocity = config["prediction_type"] == "v_prediction"

    def level(self, t):
        return float(self.kept[t] if t >= 0 else self.kept[0])

    def noise(self, out, x, t):
        kept = self.level(t)
        return math.sqrt(kept) * out + math.sqrt(1 - kept) * x if self.velocity else out

    def _between(self, x, eps, start, end):
        clean = (x - math.sqrt(1 - start) * eps) / math.sqrt(start)
        return math.sqrt(end) * clean + math.sqrt(1 - end) * eps

    def prev_step(self, eps, t, x):
        return self._between(x, eps, self.level(t), self.level(t - self.gap))

    def next_step(self, eps, t, x):
        return self._between(x, eps, self.level(t - self.gap), self.level(t))


def ask(unet, x, t, texts):
    return unet(x, torch.tensor(t), encoder_hidden_states=texts).sample


def ddim_loop(unet, ddim, clean, text):
    """The pivots, the clean latent first."""
    unet.set_attn_processor(Explicit())
    pivots = [clean]
    for t in reversed(ddim.times):
        x = pivots[-1][None]
        pivots.append(ddim.next_step(ddim.noise(ask(unet, x, t, text[None]), x, t), t, x)[0])
    return pivots


def null_text(
    unet, ddim, clean, text, empty, guidance, *, inner_steps=10, epsilon=1e-5, growth=2e-5
):
    """Null-text optimisation; returns the pivots, the embeddings, the way, and updates a step."""
    pivots = ddim_loop(unet, ddim, clean, text)
    x, embeddings, way, updates = pivots[-1][None], [], [pivots[-1]], []
    moved = empty[None].clone()
    for i, t in enumerate(ddim.times):
        moved = moved.clone().detach().requires_grad_()
        optimizer = torch.optim.Adam([moved], lr=1e-2 * (1.0 - i / 100.0))
        target = pivots[len(pivots) - i - 2][None]
        with torch.no_grad():
            cond = ddim.noise(ask(unet, x, t, text[None]), x, t)
        count = 0
        for _ in range(inner_steps):
            count += 1
            uncond = ddim.noise(ask(unet, x, t, moved), x, t)
            rec = ddim.prev_step(uncond + guidance * (cond - uncond), t, x)
            loss = torch.nn.functional.mse_loss(rec, target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if loss.item() < epsilon + i * growth:
                break
        updates.append(count)
        embeddings.append(moved[0].detach())
        with torch.no_grad():
            both = ask(unet, torch.cat([x, x]), t, torch.cat([moved, text[None]]))
            uncond, cond = ddim.noise(both, torch.cat([x, x]), t).chunk(2)
            x = ddim.prev_step(uncond + guidance * (cond - uncond), t, x)
        way.append(x[0])
    return pivots, embeddings, way, updates


def edit(unet, ddim, start, texts, empties, guidance, control, put_back=None):
    """Draw source and edit together, rows [without, without, with, with].

    Args:
        start: the latent that both begin with.
        texts: embeddings of the source's and the edit's text.
        empties: the embedding of the empty text for each step.
        control: ``control(step, maps, is_cross)`` on maps (4, heads, pixels, tokens).
        put_back: the source's latent after each step, which Direct Inversion puts back.
    """
    processor = Explicit()
    unet.set_attn_processor(processor)
    x = torch.stack([start, start])
    for i, t in enumerate(ddim.times):
        processor.edit = lambda maps, cross, i=i: control(i, maps, cross)
        context = torch.stack([empties[i], empties[i], *texts])
        rows = torch.cat([x, x])
        without, with_text = ddim.noise(ask(unet, rows, t, context), rows, t).chunk(2)
        x = ddim.prev_step(without + guidance * (with_text - without), t, x)
        if put_back is not None:
            x = torch.stack([put_back[i], x[1]])
    return x


def edit_friendly(unet, ddim, clean, noises, text, empty, guidance):
    """The levels and the noise of each step, from the last step back (inversion_utils.py)."""
    unet.set_attn_processor(Explicit())
    times = ddim.times
    levels = [
        math.sqrt(ddim.level(t)) * clean + math.sqrt(1 - ddim.level(t)) * noise
        for t, noise in zip(times, noises, strict=True)
    ] + [clean]
    added = []
    for i, t in enumerate(times):
        x = levels[i][None]
        out = ask(unet, torch.cat([x, x]), t, torch.stack([empty, text]))
        uncond, cond = ddim.noise(out, torch.cat([x, x]), t).chunk(2)
        mean, spread = ddpm_mean(ddim, uncond + guidance * (cond - uncond), t, x)
        added.append((levels[i + 1] - mean[0]) / spread)
    return levels, added


def ddpm_mean(ddim, eps, t, x):
    """The mean of the next level and its deviation, eta 1 (``get_variance``)."""
    now, after = ddim.level(t), ddim.level(t - ddim.gap)
    variance = (1 - after) / (1 - now) * (1 - now / after)
    clean = (x - math.sqrt(1 - now) * eps) / math.sqrt(now)
    mean = math.sqrt(after) * clean + math.sqrt(1 - after - variance) * eps
    return mean, math.sqrt(variance)
