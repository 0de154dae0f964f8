"""The exact counterfactual of a scene: the same scene with one factor changed, nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

import numpy as np
from annotated_types import Ge
from numpy.typing import NDArray

from cfaug.core.annotations import OneOf
from cfaug.core.errors import UserError
from cfaug.core.pixels import decode_image
from cfaug.core.rng import generator
from cfaug.core.types import Example, ImageJob, Images
from cfaug.core.validation import check_fields
from cfaug.data.grids import ATTRIBUTES, SUBJECT, require_attributes
from cfaug.worlds.shapescapes.drawing import Rendering, Scene, render, scene_of
from cfaug.worlds.shapescapes.language import parse
from cfaug.worlds.shapescapes.settings import (
    CHOICES,
    FACTORS,
    STYLES,
    Factors,
    Style,
    WorldSettings,
    edit_factors,
)


def redraw_edited(
    before: Scene, after: Scene, *, size: int, style: Style
) -> tuple[Rendering, NDArray[np.bool_]]:
    """Render an edited scene, and the mask of pixels that may change.

    Returns:
        The edited scene, and a bool mask (size, size); outside it the edited scene equals the
        unedited one bit by bit. The masks of several changed factors are united.
    """
    first, second = render(before, size, style), render(after, size, style)
    differing = {k for k in FACTORS if getattr(before.factors, k) != getattr(after.factors, k)}
    mask = np.zeros((size, size), dtype=np.bool_)
    if "domain" in differing:
        mask |= True
    if "background" in differing:
        mask |= ~(first.solid & second.solid)
    if differing & {"subject", "colour"}:
        mask |= first.touched | second.touched
    return second, mask


# The oracle as an image editor: perfect edits of photos of the world, from their captions.
#
# A recipe that uses a diffusion model runs with these edits when its ``image_editor`` is replaced;
# differences of the results are then due to the image editor.


@dataclass(frozen=True)
class OracleEdit:
    """An image editor that redraws the photo's scene with the factors that the text changes.

    The first image of a job is the photo, and so is the image of any text equal to the first, as
    the oracle reconstructs perfectly. ``Draw`` has no effect.
    """

    world: WorldSettings
    """the settings of the world"""

    uses_models: ClassVar[bool] = False

    def edit(self, jobs: Sequence[ImageJob]) -> list[Images]:
        """Return the images of each job, one for each text.

        If a text of a job is not a sentence of the world, its ``Images`` have no images.
        """
        size, style = self.world.image_size, self.world.drawing_style()
        results = []
        for job in jobs:
            scene = self._scene(job.proposal.example)
            scenes = [edit_scene(scene, job.texts[0], text) for text in job.texts]
            if None in scenes:
                results.append(Images((), rejected="oracle_unknown_words"))
                continue
            shown = (render(edited, size, style).pixels for edited in scenes if edited is not None)
            results.append(Images(tuple(shown)))
        return results

    def describe(self) -> dict[str, str]:
        return {"image_editor": f"ShapeScapes oracle, style {self.world.style}"}

    def _scene(self, example: Example) -> Scene:
        """Return the scene of a photo, if it is from this world."""
        try:
            scene = scene_of(example.extra)
        except (KeyError, ValueError) as error:
            raise UserError(
                f"example {example.key!r} is not a scene of the embedded world: the oracle edits "
                "data.source=shapescapes:PART only"
            ) from error
        if example.image is not None:
            photo = decode_image(example.image.read(), f"the photo of {example.key!r}")
            drawn = render(scene, self.world.image_size, self.world.drawing_style()).pixels
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
        after: the edited caption; factors that both or neither mention stay as in the scene.

    Returns:
        The scene, or ``None`` if one of the captions is not a sentence of the world.
    """
    first, second = parse(before), parse(after)
    if first is None or second is None:
        return None
    factors = scene.factors
    for name in FACTORS:
        value = getattr(second, name)
        if value is not None and value != getattr(first, name):
            factors = edit_factors(factors, name, value)
    return replace(scene, factors=factors)


# The oracle's sets of attribute grids: one scene, drawn for every combination of a grid.

LABELS = tuple(name for name in CHOICES if name != SUBJECT)
"""The possible attributes of a grid: all factors except the subject. Factors that are not in a grid
have their first value in all members."""


@dataclass(frozen=True)
class OracleSets:
    """An image editor for grids over one subject; its images differ only in their attributes.

    Pose, texture and light depend on the draw's seed, so that candidates of one proposal are
    different scenes; p and the guidance scale have no effect.

    Args:
        shuffled: whether to permute the pictures of a set at random, so that its labels are
            independent of them: any skew that a test then finds is a false alarm, whatever the
            model prefers.
    """

    image_size: Annotated[int, Ge(8)]
    """the side of a picture, in pixels"""
    style: Annotated[str, OneOf(STYLES)]
    """how scenes are drawn"""
    shuffled: bool = False

    uses_models: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_fields(self, "recipe.image_editor")

    def edit(self, jobs: Sequence[ImageJob]) -> list[Images]:
        """Return the images of each job, one for each text."""
        results, style = [], STYLES[self.style]
        for job in jobs:
            proposal, extra = job.proposal, job.proposal.example.extra
            about = [{**extra, **details} for details in proposal.details] or [dict(extra)]
            scenes = [Scene(factors_of(member, proposal.key), job.draw.seed) for member in about]
            if self.shuffled:
                order = generator(job.draw.seed, "shuffled-set").permutation(len(scenes))
                scenes = [scenes[at] for at in order.tolist()]
            pixels = (render(scene, self.image_size, style).pixels for scene in scenes)
            results.append(Images(tuple(pixels)))
        return results

    def describe(self) -> dict[str, str]:
        """Return the name of the oracle and its style."""
        shuffled = ", shuffled" if self.shuffled else ""
        return {"image_editor": f"ShapeScapes oracle, sets, style {self.style}{shuffled}"}


def factors_of(about: Mapping[str, Any], where: str) -> Factors:
    """Return the factors of a member of a grid, from its details."""
    factors = {SUBJECT: str(about.get(SUBJECT)).lower()}
    factors |= require_attributes(about.get(ATTRIBUTES), where)
    for name, value in factors.items():
        known = CHOICES.get(name, ())
        if value not in known:
            choices = (
                f"{name} is one of {', '.join(known)}"
                if known
                else f"its attributes are {', '.join(LABELS)}"
            )
            raise UserError(
                f"{where}: the embedded world draws no {name} {value!r} ({choices}): give "
                "data.grid=shapescapes, or a grid of its words"
            )
    usual = {name: CHOICES[name][0] for name in LABELS}
    return Factors(**{**usual, **factors})
