"""An oracle detector that reads the scene instead of its pixels, with a given rate of errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
from annotated_types import MinLen

from cfaug.core.detections import DETECTIONS, Attribute, Box, Detection, detections_to_json
from cfaug.core.read_with import GIVEN, ReadWith
from cfaug.core.rng import generator
from cfaug.core.types import Example
from cfaug.core.validation import OneOf, Seed, Share, check_fields
from cfaug.core.weights import sha256_text
from cfaug.shapescapes.scene import render, scene_of
from cfaug.shapescapes.settings import WorldSettings
from cfaug.shapescapes.truth import PLACE_COLOURS, read_scene
from cfaug.shapescapes.vocabulary import COLOURS, SUBJECTS

ERRORS = ("attribute", "missed", "label")
"""The kinds of errors: a wrong colour, a missed object, a wrong label."""

PLACE_LABELS: Mapping[str, str] = {
    "beach": "beach",
    "grass": "grass",
    "brick": "brick wall",
    "water": "water",
    "curtain": "curtain",
}
"""The labels of places, if they have one of the world's colours; snow and roads have none, and the
night is not an object."""


@dataclass(frozen=True)
class SceneDetector:
    """An annotator of photos of the world: the subject and the place, each with its colour.

    Errors are keyed by the example and the object, so that a detector with more errors makes all
    errors of one with fewer. Covered parts of a photo of ShapeScapes-VE are not seen: a covered
    subject has no attribute, a covered place is not found.

    Args:
        error_rate: the share of objects with an error, from 0 to 1.
        errors: the kinds of errors, equally probable: ``attribute``, ``missed``, ``label``.
        seed: the seed of the errors.
        world: the world that drew the photos (``data.world``); ``None`` gives no boxes.

    Raises:
        UserError: if the rate is not a share, or a kind of error is unknown.
    """

    error_rate: Share = 0.0
    errors: Annotated[Sequence[Annotated[str, OneOf(ERRORS)]], MinLen(1)] = ERRORS
    seed: Seed = 0
    world: WorldSettings | None = None

    name = DETECTIONS
    reads = ("key", "extra")

    read_with: ClassVar[ReadWith] = {
        "errors": {"error_rate": GIVEN},
        "seed": {"error_rate": GIVEN},
    }

    def __post_init__(self) -> None:
        check_fields(self, "zoo.detector")

    def annotate(self, examples: Sequence[Example]) -> list[Mapping[str, Any]]:
        """Return ``{"detections": [...]}`` for each example, the subject before the place.

        Raises:
            UserError: naming an example that is not a photo of the world.
        """
        return [{self.name: detections_to_json(self._detect(one))} for one in examples]

    def _detect(self, example: Example) -> list[Detection]:
        factors, hidden = read_scene(example.extra, f"example {example.key!r}")
        subject, place = self._boxes(example)
        attributes = () if hidden == "colour" else (Attribute(factors.colour),)
        found = [Detection(factors.subject, None, subject, attributes)]
        if factors.background in PLACE_LABELS and hidden != "background":
            known = tuple(
                Attribute(one) for one in sorted(PLACE_COLOURS[factors.background] & set(COLOURS))
            )
            found.append(Detection(PLACE_LABELS[factors.background], None, place, known))
        seen = (self._err(example.key, number, one) for number, one in enumerate(found))
        return [one for one in seen if one is not None]

    def _boxes(self, example: Example) -> tuple[Box | None, Box | None]:
        """Return the boxes of the subject and of the place, in pixels."""
        if self.world is None:
            return None, None
        size = self.world.image_size
        solid = render(scene_of(example.extra), size, self.world.look()).touched
        down, across = np.nonzero(solid)
        box = (int(across.min()), int(down.min()), int(across.max()) + 1, int(down.max()) + 1)
        return (*map(float, box),), (0.0, 0.0, float(size), float(size))  # type: ignore[return-value]

    def _err(self, key: str, number: int, right: Detection) -> Detection | None:
        """Return the detection of an object with an error; ``None`` if it is missed."""
        rng = generator(self.seed, "detector", key, number)
        if rng.random() >= self.error_rate:
            return right
        way = self.errors[int(rng.integers(len(self.errors)))]
        if way == "missed":
            return None
        if way == "label":
            labels = SUBJECTS if number == 0 else tuple(PLACE_LABELS.values())
            others = [one for one in labels if one != right.label]
            label = others[int(rng.integers(len(others)))]
            return Detection(label, right.score, right.box, right.attributes)
        own = {one.name for one in right.attributes}
        others = [one for one in COLOURS if one not in own]
        wrong = Attribute(others[int(rng.integers(len(others)))])
        return Detection(right.label, right.score, right.box, (wrong,))

    def identity(self) -> str:
        """Return a hash of all settings that change an answer."""
        world = None if self.world is None else self.world.content_hash()
        parts = [type(self).__qualname__, self.error_rate, list(self.errors), self.seed, world]
        return sha256_text(repr(parts))

    def describe(self) -> dict[str, str]:
        """Return the name of the oracle and its rate of errors."""
        return {self.name: f"ShapeScapes oracle, {self.error_rate:g} of its objects wrong"}
