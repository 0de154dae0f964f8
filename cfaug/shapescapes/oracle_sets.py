"""The oracle's sets of attribute grids: one scene, drawn for every combination of a grid."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from annotated_types import Ge

from cfaug.core.errors import UserError
from cfaug.core.grids import ATTRIBUTES, SUBJECT, require_attributes
from cfaug.core.rng import generator
from cfaug.core.types import ImageJob, Images
from cfaug.core.validation import OneOf, check_fields
from cfaug.shapescapes.oracle import CHOICES
from cfaug.shapescapes.scene import Scene, render
from cfaug.shapescapes.styles import STYLES
from cfaug.shapescapes.vocabulary import Factors

LABELS = tuple(name for name in CHOICES if name != SUBJECT)
"""The possible attributes of a grid: all factors except the subject. Factors that are not in a grid
have their first value in all members."""


@dataclass(frozen=True)
class OracleSets:
    """An image editor for grids over one subject; its images differ only in their attributes.

    Pose, texture and light depend on the draw's seed, so that candidates of one proposal are
    different scenes; p and the guidance scale have no effect.

    Args:
        image_size: the side of the pictures in pixels.
        style: a name of ``cfaug.shapescapes.styles.STYLES``.
        shuffled: whether to permute the pictures of a set at random, so that its labels are
            independent of them: any skew that a test then finds is a false alarm, whatever the
            model prefers.

    Raises:
        UserError: if there is no such style, or the pictures are smaller than 8 pixels.
    """

    image_size: Annotated[int, Ge(8)]
    style: Annotated[str, OneOf(STYLES)]
    shuffled: bool = False

    def __post_init__(self) -> None:
        check_fields(self, "recipe.image_editor")

    def edit(self, jobs: Sequence[ImageJob]) -> list[Images]:
        """Return the images of each job, one for each text.

        Raises:
            UserError: if a job is not a grid over a subject of the world.
        """
        return [self._draw(job) for job in jobs]

    def describe(self) -> dict[str, str]:
        """Return the name of the oracle and its style."""
        shuffled = ", shuffled" if self.shuffled else ""
        return {"image_editor": f"ShapeScapes oracle, sets, style {self.style}{shuffled}"}

    def _draw(self, job: ImageJob) -> Images:
        proposal = job.proposal
        extra = proposal.example.extra
        about = [{**extra, **details} for details in proposal.details] or [dict(extra)]
        scenes = [Scene(factors_of(one, proposal.key), job.draw.seed) for one in about]
        if self.shuffled:
            order = generator(job.draw.seed, "shuffled-set").permutation(len(scenes))
            scenes = [scenes[at] for at in order.tolist()]
        look = STYLES[self.style]
        return Images(tuple(render(one, self.image_size, look).pixels for one in scenes))


def factors_of(about: Mapping[str, Any], where: str) -> Factors:
    """Return the factors of a member of a grid, from its details.

    Args:
        about: a member's ``extra``, with ``subject`` and ``attributes``.
        where: the place that errors name.

    Raises:
        UserError: naming ``where``, if the world has no such subject, attribute or value.
    """
    found = {SUBJECT: str(about.get(SUBJECT)).lower()}
    found |= require_attributes(about.get(ATTRIBUTES), where)
    for name, value in found.items():
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
    return Factors(**{**usual, **found})
