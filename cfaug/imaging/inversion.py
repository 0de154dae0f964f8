"""Inversion: a trajectory of the sampler that reconstructs a photo; null-text optimisation.

An edit of a photo starts from the first latents of its inversion, and uses the source's attention
at each step. Every backend returns the same data about a photo: its latents at each level, the
embedding of the empty text, the noise added by each step, and the source's attention at each step.
Therefore the sampler is independent of the backend. The source's latents are known beforehand, so
that it needs no row without text. If the inversion has already run the model on the latents,
timestep and text of an edit's source, its queries and keys are stored and it needs no row at all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol, runtime_checkable

import numpy as np
import torch

from cfaug.core.devices import send
from cfaug.core.errors import UserError
from cfaug.core.rng import generator
from cfaug.core.validation import PartialShare, Positive, PositiveNumber, Seed, Weight, check_fields
from cfaug.imaging.attention import CallRows, Heads, SharedAttention
from cfaug.imaging.schedules import Schedule

if TYPE_CHECKING:
    from diffusers import UNet2DConditionModel
    from torch import Tensor


Attention = Mapping[str, Heads]
"""Queries and keys of some rows, by the name of the layer."""


@dataclass(frozen=True)
class PhotoBatch:
    """Photos to invert in one batch; each result is the same as alone, up to rounding.

    Attributes:
        latents: the autoencoder's scaled means, (n, channels, height, width).
        texts: the embeddings of the captions, (n, tokens, width).
        empty: the embedding of the empty text, (tokens, width).
        guidance: the guidance scale of each photo's edits.
        digests: the digest of each photo's file, by which random numbers are keyed.
    """

    latents: Tensor
    texts: Tensor
    empty: Tensor
    guidance: tuple[float, ...]
    digests: tuple[str, ...]
    remember: bool = False

    def __len__(self) -> int:
        return len(self.latents)


@dataclass(frozen=True)
class Inversion:
    """The inversion of one photo; ``taken`` steps lead from its first level to the clean one.

    Attributes:
        latents: the source at every level, (taken + 1, channels, height, width). Edits start as a
            copy of the first one; the last one, decoded, is the reconstruction.
        empty: the unconditional embedding at each step, (taken, tokens, width); ``None`` is that of
            the empty text.
        noise: the noise added by each step, (taken, channels, height, width); ``None`` for no
            noise.
        attention: the source's queries and keys at each step, one row, by the name of the layer;
            ``None`` if they are not stored.
    """

    latents: Tensor
    empty: Tensor | None = None
    noise: Tensor | None = None
    attention: tuple[Attention, ...] | None = None


@runtime_checkable
class Inverter(Protocol):
    """Finds the inversions of photos."""

    @property
    def name(self) -> str:
        """Return the name of the method on the card."""
        ...

    @property
    def eta(self) -> float:
        """Return the share of DDPM's noise in each step of the edit; 0 for no noise."""
        ...

    @property
    def depends_on_guidance(self) -> bool:
        """Return whether edits with another guidance need another inversion."""
        ...

    @property
    def remembers(self) -> bool:
        """Return whether it runs the model on the inputs that edits use for the source.

        Then inversions can store the source's attention.
        """
        ...

    def skip(self, steps: int) -> int:
        """Return the number of skipped steps, which are the schedule's first and noisiest ones."""
        ...

    def invert(self, photos: PhotoBatch, model: Predictor) -> list[Inversion]:
        """Return the inversion of each photo, in order.

        ``photos.remember`` is set only if the inverter ``remembers``.
        """
        ...


@dataclass(frozen=True)
class Predictor:
    """The model for inversions: rows are independent, without shared attention.

    Attributes:
        dtype: the number format of the UNet's input; outputs have the one of the latents.
    """

    unet: UNet2DConditionModel
    shared: SharedAttention
    schedule: Schedule
    dtype: torch.dtype
    max_rows: int = 64

    def noise(self, latents: Tensor, texts: Tensor, steps: int | Sequence[int]) -> Tensor:
        """Return the model's noise prediction for latents.

        Args:
            steps: the step whose timestep the model is called with, one for all rows or one for
                each row. The length of the schedule stands for the clean level, timestep 0.
        """
        return self.noise_and_attention(latents, texts, steps, remember=False)[0]

    def noise_and_attention(
        self, latents: Tensor, texts: Tensor, steps: int | Sequence[int], *, remember: bool
    ) -> tuple[Tensor, Attention]:
        """Return the output of ``noise``, with the queries and keys of every row if requested."""
        every = [steps] * len(latents) if isinstance(steps, int) else list(steps)
        count = -(-len(latents) // self.max_rows)
        tensors: list[Tensor] = []
        attention: list[Attention] = []
        first = 0
        for some, prompts in zip(latents.chunk(count), texts.chunk(count), strict=True):
            indices = torch.arange(len(some), device=some.device)
            self.shared.rows = CallRows(
                source=indices, text=indices, lend=indices if remember else None
            )
            part = every[first : first + len(some)]
            (out,) = self.unet(
                some.to(self.dtype),
                send(torch.from_numpy(np.append(self.schedule.timesteps, 0)[part]), some.device),
                encoder_hidden_states=prompts.to(self.dtype),
                return_dict=False,
            )
            predicted = out.to(some.dtype)
            if len(set(part)) == 1:
                tensors.append(self.schedule.noise(predicted, some, part[0]))
            else:
                rows = zip(predicted, some, part, strict=True)
                noise = [self.schedule.noise(p, x, step) for p, x, step in rows]
                tensors.append(torch.stack(noise))
            attention.append(dict(self.shared.lent))
            self.shared.lent.clear()
            first += len(some)
        return torch.cat(tensors), join_attention(attention)


def join_attention(rows: Sequence[Attention]) -> Attention:
    """Return the concatenated queries and keys of all rows, in order."""
    if len(rows) == 1:
        return rows[0]
    return {
        name: (torch.cat([row[name][0] for row in rows]), torch.cat([row[name][1] for row in rows]))
        for name in rows[0]
    }


def pick_attention(attention: Attention, row: int) -> Attention:
    """Return the queries and keys of one row."""
    return {name: (q[row : row + 1], k[row : row + 1]) for name, (q, k) in attention.items()}


def ddim_inversion(photos: PhotoBatch, model: Predictor) -> Tensor:
    """Return the latents from noise to the photos: (n, steps + 1, channels, height, width).

    They are DDIM's steps backwards at guidance 1, with text; the model gets the timestep to which a
    step leads (Mokady et al., 2023, section 3.1).
    """
    latents = photos.latents
    trajectory = [latents]
    for step in reversed(range(len(model.schedule))):
        noise = model.noise(latents, photos.texts, step)
        latents = model.schedule.move(latents, noise, step + 1, step)
        trajectory.append(latents)
    return torch.stack(trajectory[::-1], dim=1)


@dataclass(frozen=True)
class DirectInversion:
    """DDIM inversion; at each step of an edit, the source is reset to it (Ju et al., 2024).

    At every step, Direct Inversion corrects the source's latents by their difference to the
    inverted latents, so that they equal these and only their attention is computed. It needs one
    row of the model for each step and no optimisation, and the reconstruction is the autoencoder's.

    Args:
        timestep: the model's timestep on the way to noise: ``own``, the timestep of its latents, as
            in DDIM's equations; or ``next``, the timestep of the level to which a step leads, as in
            the code of null-text and direct inversion. With ``own`` the model gets exactly the
            inputs of later edits, so that the source is not computed again.
    """

    timestep: Literal["own", "next"] = "own"

    name: ClassVar[str] = "direct"
    eta: ClassVar[float] = 0.0
    depends_on_guidance: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_fields(self, "recipe.image_editor.inversion")

    @property
    def remembers(self) -> bool:
        return self.timestep == "own"

    def skip(self, steps: int) -> int:
        """Return 0: edits start from noise."""
        return 0

    def invert(self, photos: PhotoBatch, model: Predictor) -> list[Inversion]:
        if self.timestep == "next":
            return [Inversion(latents) for latents in ddim_inversion(photos, model)]
        latents, steps = photos.latents, len(model.schedule)
        way, seen = [latents], []
        for level in reversed(range(1, steps + 1)):
            noise, attention = model.noise_and_attention(
                latents, photos.texts, level, remember=photos.remember
            )
            latents = model.schedule.move(latents, noise, level, level - 1)
            way.append(latents)
            seen.append(attention)
        if not photos.remember:
            return [Inversion(trajectory) for trajectory in torch.stack(way[::-1], dim=1)]
        _, last = model.noise_and_attention(latents, photos.texts, 0, remember=True)
        # The first input, the clean level, is never used by edits.
        every = [*seen[1:], last][::-1]
        return [
            Inversion(trajectory, attention=tuple(pick_attention(rows, i) for rows in every))
            for i, trajectory in enumerate(torch.stack(way[::-1], dim=1))
        ]


@dataclass(frozen=True)
class EditFriendly:
    """Inverts a photo with independent noise at each level; keeps the noise between the levels.

    The levels are independent, so that all of them form one batch. With the text and the guidance
    of the inversion, the noise that leads from level to level reconstructs the photo exactly. It is
    keyed by the photo's content, so that all edits of a photo share its inversion. There are two
    departures. The authors' code omits the noise of the last step, which loses a little of the
    photo; and it counts the share of steps with the source's attention over all steps, while here,
    as for every other inversion, it is a share of the steps taken.

    Args:
        skipped: the share of the steps to skip, the noisiest first (the paper: 36 of 100).
        guidance: the guidance scale of the inversion (the paper: 3.5; 15 for edits); a scale of 1
            needs half the rows.
    """

    skipped: PartialShare = 0.36
    guidance: Weight = 3.5
    seed: Seed = 0

    name: ClassVar[str] = "edit_friendly"
    eta: ClassVar[float] = 1.0
    depends_on_guidance: ClassVar[bool] = False
    remembers: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_fields(self, "recipe.image_editor.inversion")

    def skip(self, steps: int) -> int:
        skipped = round(self.skipped * steps)
        if steps - skipped < 2:
            raise UserError(
                f"recipe.image_editor.inversion.skipped={self.skipped} leaves {steps - skipped} of "
                f"{steps} steps: at least 2 are needed"
            )
        return skipped

    def invert(self, photos: PhotoBatch, model: Predictor) -> list[Inversion]:
        schedule = model.schedule
        steps = range(self.skip(len(schedule)), len(schedule))
        inversions = []
        for clean, digest, text in zip(photos.latents, photos.digests, photos.texts, strict=True):
            levels = []
            for step in steps:
                # The photo at a level, with independent noise for that level.
                a, s = schedule.scales(step)
                stream = generator(self.seed, "edit_friendly", digest, step)
                drawn = stream.standard_normal(tuple(clean.shape), dtype=np.float32)
                noise = send(torch.from_numpy(drawn).to(clean.dtype), clean.device)
                levels.append(a * clean + s * noise)
            way = torch.stack([*levels, clean])
            texts = text.expand(len(steps), -1, -1)
            noise, seen = model.noise_and_attention(
                way[:-1], texts, steps, remember=photos.remember
            )
            if self.guidance != 1:
                without = model.noise(way[:-1], photos.empty.expand_as(texts), steps)
                noise = without + self.guidance * (noise - without)
            added = torch.zeros_like(noise)
            for i, step in enumerate(steps):
                spread = schedule.spread(step, self.eta)
                if spread > 0:
                    mean = schedule.mean(way[i], noise[i], step, self.eta)
                    added[i] = (way[i + 1] - mean) / spread
            every = tuple(pick_attention(seen, i) for i in range(len(steps)))
            attention = every if photos.remember else None
            inversions.append(Inversion(way, noise=added, attention=attention))
        return inversions


BETAS = (0.9, 0.999)


@dataclass(frozen=True)
class NullText:
    """Optimises the unconditional embedding at each step until guidance reconstructs the photo.

    The method is that of Mokady et al. (2023) and of the authors' code, which LANCE uses, for many
    photos at once. The pivots are DDIM's inversion at
    guidance 1. The embedding of a step starts from that of the step before. Adam is reset at each
    step i, with a learning rate of ``learning_rate * (1 - i / 100)``, and stops after the update
    for which the loss was below ``tolerance + growth * i``, or after ``inner_steps``.

    Photos are optimised in one batch and each stops independently: Adam is elementwise, so that a
    photo's embeddings are the same as alone, up to rounding. Two unnecessary computations of that
    code are omitted: the gradients of the weights, and the row with text, which does not depend on
    the embedding.

    Args:
        tolerance: the mean squared error below which the first step's updates stop.
        growth: the increase of the tolerance from step to step.
        max_rows: the largest number of photos optimised together; each needs the memory of the
            model's activations.
    """

    inner_steps: Positive = 10
    learning_rate: PositiveNumber = 0.01
    tolerance: PositiveNumber = 1e-5
    growth: float = 2e-5
    max_rows: Positive = 16

    name: ClassVar[str] = "null_text"
    eta: ClassVar[float] = 0.0
    depends_on_guidance: ClassVar[bool] = True
    remembers: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_fields(self, "recipe.image_editor.inversion")

    def skip(self, steps: int) -> int:
        """Return 0: edits start from noise."""
        return 0

    def invert(self, photos: PhotoBatch, model: Predictor) -> list[Inversion]:
        inversions: list[Inversion] = []
        for start in range(0, len(photos), self.max_rows):
            these = slice(start, start + self.max_rows)
            names = ("latents", "texts", "guidance", "digests")
            part = replace(photos, **{name: getattr(photos, name)[these] for name in names})
            inversions += self._invert(part, model)
        return inversions

    def _invert(self, photos: PhotoBatch, model: Predictor) -> list[Inversion]:
        schedule = model.schedule
        pivots = ddim_inversion(photos, model)
        scales = send(torch.tensor(photos.guidance, dtype=pivots.dtype), pivots.device)
        guidance = scales[:, None, None, None]
        latents = pivots[:, 0]
        empty = photos.empty.to(pivots.dtype).expand(len(photos), -1, -1).clone()
        way, optimised, seen = [latents], [], []
        for step in range(len(schedule)):
            with_text, attention = model.noise_and_attention(
                latents, photos.texts, step, remember=photos.remember
            )
            seen.append(attention)
            rate = self.learning_rate * (1 - step / 100)
            limit = self.tolerance + self.growth * step
            empty = empty.clone()
            first, second = torch.zeros_like(empty), torch.zeros_like(empty)
            left = torch.arange(len(empty), device=empty.device)
            for update in range(1, self.inner_steps + 1):
                with torch.enable_grad():
                    tried = empty[left].detach().requires_grad_()
                    without = model.noise(latents[left], tried, step)
                    noise = without + guidance[left] * (with_text[left] - without)
                    after = schedule.move(latents[left], noise, step, step + 1)
                    losses = ((after - pivots[:, step + 1][left]) ** 2).mean(dim=(1, 2, 3))
                    (gradient,) = torch.autograd.grad(losses.sum(), tried)
                # torch.optim.Adam's own order of operations, and its epsilon.
                first[left] = first[left].lerp(gradient, 1 - BETAS[0])
                second[left] = second[left] * BETAS[1] + gradient * gradient * (1 - BETAS[1])
                scale = second[left].sqrt() / (1 - BETAS[1] ** update) ** 0.5 + 1e-8
                empty[left] -= rate / (1 - BETAS[0] ** update) * (first[left] / scale)
                # Later updates leave out photos that have stopped.
                left = left[losses.detach() >= limit]
                if not len(left):
                    break
            without = model.noise(latents, empty, step)
            noise = without + guidance * (with_text - without)
            latents = schedule.move(latents, noise, step, step + 1)
            way.append(latents)
            optimised.append(empty)
        ways, embeddings = torch.stack(way, dim=1), torch.stack(optimised, dim=1)
        inversions = []
        for i in range(len(photos)):
            every = tuple(pick_attention(rows, i) for rows in seen) if photos.remember else None
            inversions.append(Inversion(ways[i], embeddings[i], attention=every))
        return inversions
