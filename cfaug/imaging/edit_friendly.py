"""Edit-friendly DDPM inversion (Huberman-Spiegelglas et al., 2024), all levels in one batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch

from cfaug.core.errors import UserError
from cfaug.core.rng import generator
from cfaug.core.validation import PartialShare, Seed, Weight, check_fields
from cfaug.imaging.inversion import Inversion, PhotoBatch, Predictor, pick_attention

if TYPE_CHECKING:
    from torch import Tensor


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
        seed: the seed of the noise.

    Raises:
        UserError: if the share is invalid, or the guidance negative.
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
        """Return the number of skipped steps, which are the first and noisiest ones.

        Raises:
            UserError: if fewer than two steps would be left.
        """
        skipped = round(self.skipped * steps)
        if steps - skipped < 2:
            raise UserError(
                f"recipe.image_editor.inversion.skipped={self.skipped} leaves {steps - skipped} of "
                f"{steps} steps: at least 2 are needed"
            )
        return skipped

    def invert(self, photos: PhotoBatch, model: Predictor) -> list[Inversion]:
        """Return the inversion of each photo, in order."""
        return [self._invert(photos, i, model) for i in range(len(photos))]

    def _invert(self, photos: PhotoBatch, photo: int, model: Predictor) -> Inversion:
        schedule, clean = model.schedule, photos.latents[photo]
        steps = range(self.skip(len(schedule)), len(schedule))
        levels = [self._noised(clean, photos.digests[photo], step, model) for step in steps]
        way = torch.stack([*levels, clean])
        texts = photos.texts[photo].expand(len(steps), -1, -1)
        noise, seen = model.look(way[:-1], texts, steps, remember=photos.remember)
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
        return Inversion(way, noise=added, attention=every if photos.remember else None)

    def _noised(self, clean: Tensor, digest: str, level: int, model: Predictor) -> Tensor:
        """Return the photo at a level, with independent noise for that level."""
        a, s = model.schedule.scales(level)
        stream = generator(self.seed, "edit_friendly", digest, level)
        drawn = stream.standard_normal(tuple(clean.shape), dtype=np.float32)
        return a * clean + s * torch.from_numpy(drawn).to(clean.device, clean.dtype)
