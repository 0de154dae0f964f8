"""Euler's sampler over a tree of candidates, ancestral as in InstructPix2Pix or plain, in float32.

Diffusers' ``EulerAncestralDiscreteScheduler.step`` draws noise for every row, which destroys the
pairing of a set. Here, noise is shared within a set, and each candidate has its guidance and p.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, cast

import numpy as np
import torch

from cfaug.core.devices import send
from cfaug.imaging import schedules
from cfaug.imaging.attention import CallRows, CrossRows, SharedAttention
from cfaug.imaging.inversion import Inversion, join_attention
from cfaug.imaging.schedules import NoiseLevels, Schedule, ancestral
from cfaug.imaging.tree import Branches, Integers, PhotoTree, Tree

if TYPE_CHECKING:
    from diffusers import UNet2DConditionModel
    from torch import Tensor

    from cfaug.imaging.attention import Folds


Texts = tuple["Tensor", ...]
"""What a network is told about some texts: tensors with a row for each."""


class Network(Protocol):
    """The network of a diffusion model, with a text for each row."""

    def __call__(
        self, noisy: Tensor, timestep: Tensor, texts: Texts, text: Tensor, guidance: Tensor
    ) -> Tensor:
        """Return the predictions, like ``noisy``.

        Args:
            noisy: (rows, *shape), in the network's number format.
            timestep: float32, one number.
            texts: the embeddings of the call's distinct texts.
            text: (rows,) the index of each row's text in ``texts``.
            guidance: (rows with text,) the guidance scales, for a network that reads them.
        """
        ...


@dataclass(frozen=True)
class UNet:
    """Stable Diffusion's network, whose only condition is the hidden states of a text."""

    unet: UNet2DConditionModel

    def __call__(
        self, noisy: Tensor, timestep: Tensor, texts: Texts, text: Tensor, guidance: Tensor
    ) -> Tensor:
        """Return the predictions; the attention layers give each row its text."""
        (hidden,) = texts
        (out,) = self.unet(noisy, timestep, encoder_hidden_states=hidden, return_dict=False)
        return cast("Tensor", out)


@dataclass(frozen=True)
class Sampler:
    """Denoises all candidates of a tree step by step.

    Attributes:
        shape: the shape of a latent, (channels, height, width).
        dtype: the number format of the network's input; latents and the sampler's own sums are
            float32, or float64 for a float64 network.
        independent: whether every image of a set has its own noise (an ablation).
        on_device: whether noise is drawn with the device's generator instead of the CPU's.
        eta: the share of the ancestral noise at every step: 1 is Euler-ancestral, 0 adds no noise.
    """

    network: Network
    shared: SharedAttention
    levels: NoiseLevels
    shape: tuple[int, int, int]
    dtype: torch.dtype
    batching: Batching
    independent: bool = False
    on_device: bool = False
    eta: float = 1.0

    def _noise(self, tree: Tree, device: torch.device) -> Callable[[int], Tensor]:
        """Return a function that draws the noise of a step, float32 (latents, *shape).

        Latents that share their noise have equal rows.
        """
        image = tree.image if self.independent else tree.image * 0
        owners = list(zip(tree.family.tolist(), image.tolist(), strict=True))
        order = {owner: at for at, owner in enumerate(dict.fromkeys(owners))}
        addresses = [(tree.seeds[family], image) for family, image in order]
        rows = send(torch.tensor([order[owner] for owner in owners]), device)

        def draw(step: int) -> Tensor:
            drawn = schedules.noise_batch(
                addresses, step, self.shape, device, on_device=self.on_device
            )
            return drawn[rows]

        return draw

    def begin(self, tree: Tree, device: torch.device) -> Tensor:
        """Return the initial noise of a tree, (latents, *shape)."""
        drawn = self._noise(tree, device)(schedules.INITIAL)
        exact = torch.promote_types(self.dtype, torch.float32)
        return drawn.to(exact) * self.levels.initial

    def denoise(
        self, tree: Tree, texts: Texts, folds: Folds | None, latents: Tensor, steps: range
    ) -> tuple[Tensor, Tensor]:
        """Denoise during some steps.

        Args:
            texts: the embeddings of the tree's texts, the empty text first; of Stable Diffusion,
                (1 + tree's texts, tokens, width) alone.
            latents: the latents before the first of the steps, (latents, *shape).

        Returns:
            The latents after the last step, and its prediction of the clean latents; both are
            meaningless for a branch that has not started by then.
        """
        device, exact = latents.device, latents.dtype
        latents = latents.clone()
        scales = torch.from_numpy(tree.cfg[tree.family]).to(exact)
        cfg = send(scales, device)[:, None, None, None]
        parents = send(torch.from_numpy(tree.parent), device)
        timesteps = send(torch.tensor(self.levels.timesteps, dtype=torch.float32), device)
        draw = self._noise(tree, device)
        denoised = torch.zeros_like(latents)
        todo: list[Call] = []
        changes = {steps.start} | tree.changes()
        if folds is not None:
            changes |= folds.changes(tree)
        for step in steps:
            if step in changes:
                born = send(torch.from_numpy(tree.born(step)), device)
                latents[born] = latents[parents[born]]
                todo = calls(tree, step, self.batching, device, folds)
            denoised = torch.zeros_like(latents)
            sigma, following = (float(s) for s in self.levels.sigmas[step : step + 2])
            scale = self.levels.input_scale(sigma)
            for call in todo:
                noisy, guidance = latents[call.latents], cfg[call.latents]
                self.shared.rows = call.rows
                entering = (noisy * scale).to(self.dtype)
                out = self.network(
                    torch.cat([entering[call.guided], entering]),
                    timesteps[step],
                    tuple(tensor[call.texts] for tensor in texts),
                    call.rows.text,
                    guidance.flatten(),
                ).to(noisy.dtype)
                guided = out[len(call.guided) :]
                if len(call.guided):
                    without = out[: len(call.guided)]
                    guided = without + guidance * (guided - without)
                if self.levels.prediction == "v_prediction":
                    guess = noisy * scale**2 - guided * (sigma * scale)
                else:
                    guess = noisy - sigma * guided
                denoised[call.latents[: call.real]] = guess[: call.real]
            # One Euler-ancestral step (k-diffusion's ``sample_euler_ancestral``).
            down, up = ancestral(sigma, following, self.eta)
            latents = latents + (latents - denoised) * ((down - sigma) / sigma)
            if up > 0:
                latents = latents + up * draw(step).to(latents.dtype)
        self.shared.lent.clear()
        return latents, denoised


@dataclass(frozen=True)
class PhotoSampler:
    """Denoises all edits of a tree step by step by DDIM or DDPM, with prompt-to-prompt's control.

    Attributes:
        schedule: the levels of noise; a tree with fewer steps takes the last ones.
        dtype: the number format of the UNet's input; latents and the sampler's own sums are
            float32, or float64 for a float64 UNet.
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
            texts: the embeddings (1 + tree's texts, tokens, width), the empty text first.
        """
        device = texts.device
        way = torch.stack([inversion.latents for inversion in inversions])
        first = len(self.schedule) - tree.steps
        cfg = send(torch.from_numpy(tree.cfg).to(way.dtype), device)[:, None, None, None]
        owner, parents, sources, timesteps = (
            send(torch.from_numpy(numbers), device)
            for numbers in (
                tree.source, tree.parent, np.flatnonzero(tree.image == 0),
                self.schedule.timesteps[first:],
            )
        )  # fmt: skip
        latents = way[owner, 0]
        changes = tree.changes() | (set() if folds is None else folds.changes(tree))
        todo: list[Call] = []
        for step in range(tree.steps):
            if step in changes:
                born = send(torch.from_numpy(tree.born(step)), device)
                latents[born] = latents[parents[born]]
                todo = calls(tree, step, self.batching, device, folds)
            latents[sources] = way[:, step]
            embeddings = texts
            if tree.empty_texts > 1 or inversions[0].empty is not None:
                empty = [
                    texts[0] if inversion.empty is None else inversion.empty[step]
                    for inversion in inversions
                ]
                embeddings = torch.cat([torch.stack(empty).to(texts.dtype), texts[1:]])
            if tree.remembered and any(call.rows.borrow for call in todo):
                seen = [
                    inversion.attention[step]
                    for inversion in inversions
                    if inversion.attention is not None
                ]
                self.shared.lent = dict(join_attention(seen))
            noise = torch.zeros_like(latents)
            for call in todo:
                noisy = latents[call.latents]
                self.shared.rows = call.rows
                (out,) = self.unet(
                    torch.cat([noisy[call.guided], noisy]).to(self.dtype),
                    timesteps[step],
                    encoder_hidden_states=embeddings[call.texts],
                    return_dict=False,
                )
                sizes = [len(call.guided), len(call.latents)]
                without, with_text = out.to(latents.dtype).split(sizes)
                rows = call.latents[call.guided]
                guided = without + cfg[rows] * (with_text[call.guided] - without)
                noise[rows] = self.schedule.noise(guided, latents[rows], first + step)
            latents = self.schedule.mean(latents, noise, first + step, self.eta)
            if self.eta:
                added = torch.stack(
                    [
                        inversion.noise[step]
                        for inversion in inversions
                        if inversion.noise is not None
                    ]
                )
                spread = self.schedule.spread(first + step, self.eta)
                latents = latents + spread * added[owner]
        self.shared.lent.clear()
        latents[sources] = way[:, -1]
        return latents


# A guided latent is two rows, without and with its text; a latent without guidance needs only the
# row with text. A call has all rows without text, then all rows with text. Latents of a family are
# adjacent, so that at most one family spans two calls: its base is computed in the first and lends
# its queries and keys to the next.


@dataclass(frozen=True)
class Call:
    """Rows of the UNet that are computed together.

    Attributes:
        latents: (n,) the numbers of the latents, padding included.
        real: the number of latents without padding.
        guided: (g,) the places in the call of latents with a row without text.
        texts: (m,) the numbers of the call's distinct texts, the empty ones first.
        rows: the information for the attention layers about g + n rows.
    """

    latents: Tensor
    real: int
    guided: Tensor
    texts: Tensor
    rows: CallRows


@dataclass(frozen=True)
class Batching:
    """The rules by which a step is split into calls.

    Attributes:
        max_rows: the largest number of rows in a call; a multiple of ``multiple``.
        multiple: the even number whose multiples the rows of a call are padded to, so that few
            shapes occur.
        both_halves: whether the rows without text share attention too (InstructPix2Pix does,
            prompt-to-prompt does not).
    """

    max_rows: int = 64
    multiple: int = 2
    both_halves: bool = True

    def pieces(self, active: Integers) -> list[Integers]:
        """Split latents into as few calls as possible, of nearly equal size."""
        count = -(-len(active) // (self.max_rows // 2))
        return list(np.array_split(active, count)) if count else []


def calls(
    tree: Branches, step: int, batching: Batching, device: torch.device, folds: Folds | None = None
) -> list[Call]:
    """Return the calls of one step, in the order in which they have to be made."""
    pieces = batching.pieces(tree.active(step))
    made = []
    for number, piece in enumerate(pieces):
        padding = -(2 * len(piece)) % batching.multiple // 2
        latents = np.append(piece, np.repeat(piece[:1], padding))
        n, real = len(latents), len(piece)
        guided = np.flatnonzero(tree.guided[latents])
        g = len(guided)
        where = {int(latent): at for at, latent in reversed(list(enumerate(latents)))}
        # Rows of each latent; a latent without guidance uses its only row for both.
        with_text = g + np.arange(n)
        without_text = with_text.copy()
        without_text[guided] = np.arange(g)
        base_at = np.array([where.get(int(base), -1) for base in tree.base[latents]])
        # A base computed by an earlier call is lent as the two rows after the call's own.
        base_without = np.where(base_at < 0, g + n, without_text[base_at])
        base_with = np.where(base_at < 0, g + n + tree.lent[latents], with_text[base_at])
        cross, controlled = None, np.zeros(n, dtype=np.bool_)
        if folds is not None:
            cross, places = _cross(tree, step, latents[:real], base_with[:real], g, folds)
            controlled[places] = True
        shares = tree.shared[latents] > step
        without = np.where(shares & batching.both_halves, base_without, without_text)[guided]
        source = np.concatenate([without, np.where(shares, base_with, with_text)])
        shown = np.concatenate(
            [tree.empty_text[latents[guided]], tree.empty_texts + tree.text[latents]]
        )
        texts, text = np.unique(shown, return_inverse=True)
        # The next call borrows the rows of its first family's base, if this call computes it.
        lends = None
        if number + 1 < len(pieces):
            at = where.get(int(tree.base[pieces[number + 1][0]]))
            if at is not None:
                lends = send(torch.tensor([without_text[at], with_text[at]]), device)
        rows = CallRows(
            source=send(torch.from_numpy(source), device),
            text=send(torch.from_numpy(text), device),
            lend=lends,
            borrow=bool(((base_at < 0) & (shares | controlled)).any()),
            cross=cross,
        )
        made.append(
            Call(
                latents=send(torch.from_numpy(latents), device),
                real=real,
                guided=send(torch.from_numpy(guided), device),
                texts=send(torch.from_numpy(texts), device),
                rows=rows,
            )
        )
    return made


def _cross(
    tree: Branches, step: int, latents: Integers, base_with: Integers, first: int, folds: Folds
) -> tuple[CrossRows | None, list[int]]:
    """Return the control of a call's rows, and the places of its controlled latents."""
    entries: list[tuple[int, int, Tensor]] = []
    for at, latent in enumerate(latents):
        if tree.image[latent] > 0:
            texts = int(tree.text[tree.base[latent]]), int(tree.text[latent])
            matrices = folds(*texts, step)
            if matrices is not None:
                entries.append((at, int(base_with[at]), matrices))
    if not entries:
        return None, []
    places, sources, folded = zip(*entries, strict=True)
    both = torch.stack(folded, dim=1)
    cross = CrossRows(
        rows=send(torch.tensor(places) + first, both.device),
        source=send(torch.tensor(sources), both.device),
        from_source=both[0],
        from_own=both[1],
    )
    return cross, list(places)
