"""Inversion: the way through the model's noise that leads back to a photo.

An edit of a photo starts where its inversion starts, and looks at the source on the way. Every
backend says the same things about a photo: where its latents are at each level, what stands for "no
text", which noise the steps add, and which attention the model paid to the source at each step. So
the sampler knows no backend. The source's latents are known beforehand, so it needs no row without
text; and where the inversion has asked the model about the very latents, timestep and text that an
edit looks at, its queries and keys are remembered and the source costs no row at all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol, runtime_checkable

import numpy as np
import torch

from cfaug.errors import UserError
from cfaug.image.attention import Heads, Rows, SharedAttention
from cfaug.image.ddim import Schedule

if TYPE_CHECKING:
    from diffusers import UNet2DConditionModel
    from torch import Tensor


Attention = Mapping[str, Heads]
"""Queries and keys of some rows, by the name of the layer."""


@dataclass(frozen=True)
class Photos:
    """Photos that are inverted together; each comes out as it would alone, up to rounding.

    Attributes:
        latents: (n, channels, height, width), the autoencoder's mean, scaled.
        texts: (n, tokens, width), embeddings of their captions.
        empty: (tokens, width), embedding of the empty text.
        guidance: of each photo.
        digests: of each photo's file, by which random numbers are keyed.
        remember: whether the inversions are to hold the source's attention.
    """

    latents: Tensor
    texts: Tensor
    empty: Tensor
    guidance: tuple[float, ...]
    digests: tuple[str, ...]
    remember: bool = False

    def __len__(self) -> int:
        return len(self.latents)

    def part(self, start: int, end: int) -> Photos:
        """Return some of them, from number ``start`` to before ``end``."""
        these = slice(start, end)
        return Photos(
            latents=self.latents[these],
            texts=self.texts[these],
            empty=self.empty,
            guidance=self.guidance[these],
            digests=self.digests[these],
            remember=self.remember,
        )


@dataclass(frozen=True)
class Inversion:
    """What is known of one photo; ``taken`` steps lead from its first level to the clean one.

    Attributes:
        latents: (taken + 1, channels, height, width): the source at every level. Edits start as a
            copy of the first; the last one, decoded, is the reconstruction.
        empty: (taken, tokens, width): at each step, the embedding that stands for no text; ``None``
            is the empty text's.
        noise: (taken, channels, height, width): what each step adds; ``None`` is nothing.
        attention: the source's queries and keys at each step, one row, by the name of the layer;
            ``None`` where they are not remembered.
    """

    latents: Tensor
    empty: Tensor | None = None
    noise: Tensor | None = None
    attention: tuple[Attention, ...] | None = None


@runtime_checkable
class Inverter(Protocol):
    """Finds the inversions of photos.

    Attributes:
        name: for the card.
        eta: share of DDPM's noise in the steps of the edit; 0 where none is added.
        depends_on_guidance: whether a photo's inversion depends on the guidance of its edits.
        remembers: whether the inversion asks the model what edits will look at.
    """

    @property
    def name(self) -> str:
        """Return what the card calls it."""
        ...

    @property
    def eta(self) -> float:
        """Return the share of DDPM's noise that steps add."""
        ...

    @property
    def depends_on_guidance(self) -> bool:
        """Return whether edits of another guidance need another inversion."""
        ...

    @property
    def remembers(self) -> bool:
        """Return whether inversions can hold the source's attention."""
        ...

    def skip(self, steps: int) -> int:
        """Return how many of the schedule's first, noisiest steps are not taken.

        Raises:
            UserError: if none would be left.
        """
        ...

    def invert(self, photos: Photos, model: Predictor) -> list[Inversion]:
        """Return the inversion of each photo, in order.

        Args:
            photos: which; with ``remember`` only if the inverter ``remembers``.
            model: whom to ask.
        """
        ...


@dataclass(frozen=True)
class Predictor:
    """The model as an inversion needs it: every row by itself, nothing shared.

    Attributes:
        unet: a UNet2DConditionModel, or its compiled form.
        shared: attached to that UNet.
        schedule: the levels of noise.
        dtype: of the UNet's input; what comes back has the dtype of the latents.
        max_rows: most rows of a call; more are cut into several.
    """

    unet: UNet2DConditionModel
    shared: SharedAttention
    schedule: Schedule
    dtype: torch.dtype
    max_rows: int = 64

    def noise(self, latents: Tensor, texts: Tensor, steps: int | Sequence[int]) -> Tensor:
        """Return the noise the model sees in latents.

        Args:
            latents: (n, channels, height, width).
            texts: (n, tokens, width), one a row.
            steps: at whose timestep the model is asked; one for all rows, or one a row. The number
                of steps stands for the clean level, timestep 0.
        """
        return self.look(latents, texts, steps, remember=False)[0]

    def look(
        self, latents: Tensor, texts: Tensor, steps: int | Sequence[int], *, remember: bool
    ) -> tuple[Tensor, Attention]:
        """Return what ``noise`` does, and the queries and keys of every row if asked to."""
        every = [steps] * len(latents) if isinstance(steps, int) else list(steps)
        count = -(-len(latents) // self.max_rows)
        parts = zip(latents.chunk(count), texts.chunk(count), strict=True)
        found: list[Tensor] = []
        attention: list[Attention] = []
        first = 0
        for some, said in parts:
            found.append(self._ask(some, said, every[first : first + len(some)], remember))
            attention.append(dict(self.shared.lent))
            self.shared.lent.clear()
            first += len(some)
        return torch.cat(found), join_attention(attention)

    def _ask(self, latents: Tensor, texts: Tensor, steps: list[int], remember: bool) -> Tensor:
        own = torch.arange(len(latents), device=latents.device)
        self.shared.rows = Rows(source=own, text=own, lend=own if remember else None)
        times = np.append(self.schedule.timesteps, 0)[steps]
        at = torch.from_numpy(times).to(latents.device)
        (out,) = self.unet(
            latents.to(self.dtype),
            at,
            encoder_hidden_states=texts.to(self.dtype),
            return_dict=False,
        )
        predicted = out.to(latents.dtype)
        if len(set(steps)) == 1:
            return self.schedule.noise(predicted, latents, steps[0])
        rows = zip(predicted, latents, steps, strict=True)
        return torch.stack([self.schedule.noise(p, x, step) for p, x, step in rows])


def join_attention(rows: Sequence[Attention]) -> Attention:
    """Return the queries and keys of all rows together, in order."""
    if len(rows) == 1:
        return rows[0]
    return {
        name: (torch.cat([one[name][0] for one in rows]), torch.cat([one[name][1] for one in rows]))
        for name in rows[0]
    }


def pick_attention(attention: Attention, row: int) -> Attention:
    """Return the queries and keys of one row."""
    return {name: (q[row : row + 1], k[row : row + 1]) for name, (q, k) in attention.items()}


def ddim_inversion(photos: Photos, model: Predictor) -> Tensor:
    """Walk from the photos to noise: (n, steps + 1, channels, height, width), the noise first.

    DDIM's steps backwards at guidance 1, with text; the model is asked at the timestep a step leads
    to (Mokady et al., 2023, section 3.1).
    """
    latents = photos.latents
    found = [latents]
    for step in reversed(range(len(model.schedule))):
        noise = model.noise(latents, photos.texts, step)
        latents = model.schedule.move(latents, noise, step + 1, step)
        found.append(latents)
    return torch.stack(found[::-1], dim=1)


@dataclass(frozen=True)
class DirectInversion:
    """DDIM inversion, and the source put back on it at each step (Ju et al., 2024).

    Direct Inversion adds to the source's latents what they lack of the inverted ones, at every
    step; so they are the inverted ones, and only their attention is computed.
    One row of the model a step, no optimisation, and the reconstruction is the autoencoder's own.

    Args:
        timestep: at which the model is asked on the way to noise: ``own``, that of the latents it
            is shown, as DDIM's equations have it; or ``next``, that of the level a step leads to,
            as the code of null-text and direct inversion has it. With ``own`` the model is asked
            exactly what edits look at later, so that the source need not be computed again.

    Raises:
        UserError: for an invalid choice.
    """

    timestep: Literal["own", "next"] = "own"

    name: ClassVar[str] = "direct"
    eta: ClassVar[float] = 0.0
    depends_on_guidance: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.timestep not in ("own", "next"):
            raise UserError(
                f"recipe.image_editor.inversion.timestep={self.timestep!r} is invalid: choose one "
                "of own, next"
            )

    @property
    def remembers(self) -> bool:
        """Return whether inversions can hold the source's attention."""
        return self.timestep == "own"

    def skip(self, steps: int) -> int:
        """Return 0: edits start from noise."""
        return 0

    def invert(self, photos: Photos, model: Predictor) -> list[Inversion]:
        """Return the inversion of each photo, in order."""
        if self.timestep == "next":
            return [Inversion(latents) for latents in ddim_inversion(photos, model)]
        latents, steps = photos.latents, len(model.schedule)
        way, seen = [latents], []
        for level in reversed(range(1, steps + 1)):
            noise, attention = model.look(latents, photos.texts, level, remember=photos.remember)
            latents = model.schedule.move(latents, noise, level, level - 1)
            way.append(latents)
            seen.append(attention)
        if not photos.remember:
            return [Inversion(one) for one in torch.stack(way[::-1], dim=1)]
        _, last = model.look(latents, photos.texts, 0, remember=True)
        # Nobody looks at the source on the clean level, of which the model was asked first.
        every = [*seen[1:], last][::-1]
        return [
            Inversion(one, attention=tuple(pick_attention(rows, i) for rows in every))
            for i, one in enumerate(torch.stack(way[::-1], dim=1))
        ]
