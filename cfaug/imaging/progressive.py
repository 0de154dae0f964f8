"""A complete run of a progressive editor: sample, decode, check."""

from __future__ import annotations

from collections.abc import Sequence

from cfaug.core.pixels import round_pixels
from cfaug.core.protocols import Progressive
from cfaug.core.types import ImageJob, Images


def edit_at_once(editor: Progressive, jobs: Sequence[ImageJob]) -> list[Images]:
    """Return the images of each job, one for each text, all decoded and checked."""
    made = []
    for latents in editor.sample(jobs):
        images = editor.decode(latents)
        flagged = frozenset(i for i, unsafe in enumerate(editor.unsafe(images)) if unsafe)
        made.append(Images(tuple(round_pixels(images)), unsafe=flagged))
    return made
