"""The oracle as an image editor: perfect edits of photos of the world, from their captions.

A recipe that uses a diffusion model runs with these edits when its ``image_editor`` is replaced;
differences of the results are then due to the image editor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from cfaug.core.errors import UserError
from cfaug.core.pixels import decode_image
from cfaug.core.types import Example, ImageJob, Images
from cfaug.shapescapes.grammar import parse
from cfaug.shapescapes.oracle import FACTORS, edit_factors
from cfaug.shapescapes.scene import Scene, render, scene_of
from cfaug.shapescapes.settings import WorldSettings

UNKNOWN_WORDS = "oracle_unknown_words"
"""The reason for an edit that is not drawn: its text is not in the world's grammar."""


@dataclass(frozen=True)
class OracleEdit:
    """An image editor that redraws the photo's scene with the factors that the text changes.

    The first image of a job is the photo, and so is the image of any text equal to the first, as
    the oracle reconstructs perfectly. ``Draw`` has no effect.

    Args:
        world: the world of the photos (``data.world``).
    """

    world: WorldSettings

    def edit(self, jobs: Sequence[ImageJob]) -> list[Images]:
        """Return the images of each job, one for each text.

        If a text of a job is not a sentence of the world, its ``Images`` have no images.

        Raises:
            UserError: if an example is not a scene of this world.
        """
        return [self._edit(job) for job in jobs]

    def describe(self) -> dict[str, str]:
        """Return the name of the oracle and the style of its world."""
        return {"image_editor": f"ShapeScapes oracle, style {self.world.style}"}

    def _edit(self, job: ImageJob) -> Images:
        scene = self._scene(job.proposal.example)
        scenes = [edit_scene(scene, job.texts[0], text) for text in job.texts]
        if None in scenes:
            return Images((), rejected=UNKNOWN_WORDS)
        size, look = self.world.image_size, self.world.look()
        return Images(tuple(render(one, size, look).pixels for one in scenes if one is not None))

    def _scene(self, example: Example) -> Scene:
        """Return the scene of a photo, if it is from this world.

        Raises:
            UserError: naming the example.
        """
        try:
            scene = scene_of(example.extra)
        except (KeyError, ValueError) as error:
            raise UserError(
                f"example {example.key!r} is not a scene of the embedded world: the oracle edits "
                "data.source=shapescapes:PART only"
            ) from error
        if example.image is not None:
            photo = decode_image(example.image.read(), f"the photo of {example.key!r}")
            drawn = render(scene, self.world.image_size, self.world.look()).pixels
            if not np.array_equal(np.asarray(photo), drawn):
                raise UserError(
                    f"the photo of {example.key!r} is not what recipe.image_editor.world draws: "
                    "give the oracle the world of the photos, ${data.world}"
                )
        return scene


def edit_scene(scene: Scene, before: str, after: str) -> Scene | None:
    """Return the scene that an edited caption describes.

    Args:
        scene: the scene of the photo, which the unedited caption may describe wrongly.
        before: the unedited caption.
        after: the edited caption; factors that both or neither mention stay as in the scene.

    Returns:
        The scene, or ``None`` if one of the captions is not a sentence of the world.
    """
    first, second = parse(before), parse(after)
    if first is None or second is None:
        return None
    factors = scene.factors
    for name in FACTORS:
        said = getattr(second, name)
        if said is not None and said != getattr(first, name):
            factors = edit_factors(factors, name, said)
    return replace(scene, factors=factors)
