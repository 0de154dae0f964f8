"""Objects found in an image: their labels, boxes and attributes, as JSON and as records.

A detector, a file or a source gives them as one list in ``Example.extra`` under
``detections``: ``{"label": "dog", "score": 0.91, "box": [left, top, right, bottom], "attributes":
[{"name": "brown", "score": 0.8}]}``. Scores and boxes may be ``null``, attributes missing. The most
certain object comes first; without scores the order is the file's.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from cfaug.core.errors import UserError
from cfaug.core.types import Example

DETECTIONS = "detections"
"""The name of the list in ``Example.extra``."""

LONGEST_NAME = 200
"""The largest number of characters of a label or an attribute; a longer text is no name."""

Box: TypeAlias = tuple[float, float, float, float]
"""Left, top, right and bottom in pixels; (0, 0) is the upper left corner of the image."""


@dataclass(frozen=True)
class Attribute:
    """A property of an object.

    Attributes:
        name: the property's name, such as ``brown``; whitespace is normalised.
        score: its confidence, higher is more certain; ``None`` if unknown.
    """

    name: str
    score: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", _name(self.name, "the name of an attribute"))
        object.__setattr__(self, "score", _score(self.score, f"the attribute {self.name!r}"))


@dataclass(frozen=True)
class Detection:
    """An object that was found in an image.

    Attributes:
        label: its name, such as ``dog``; whitespace is normalised.
        score: its confidence, higher is more certain; ``None`` if unknown.
        box: its bounding box in pixels, which may extend beyond the image, as detectors predict it.
            ``None`` if unknown.
        attributes: its attributes, the most certain first.
    """

    label: str
    score: float | None = None
    box: Box | None = None
    attributes: tuple[Attribute, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "label", _name(self.label, "the label of an object"))
        object.__setattr__(self, "score", _score(self.score, f"the object {self.label!r}"))
        object.__setattr__(self, "box", _box(self.box, f"the object {self.label!r}"))
        object.__setattr__(self, "attributes", tuple(self.attributes))


def detections_from_json(value: Any, where: str) -> tuple[Detection, ...]:
    """Return the objects of a JSON list, in its order.

    Args:
        value: the value of ``detections``. An attribute may also be given as a text, its name.
        where: the example, or the file and line, that errors name.
    """
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        raise UserError(f"{where}: detections should be a list of objects, not {value!r:.80}")
    detections = []
    for number, item in enumerate(value):
        at = f"{where}, detections[{number}]"
        record = _record(item, ("label", "score", "box", "attributes"), at)
        listed = record.get("attributes") or ()
        if not isinstance(listed, Sequence) or isinstance(listed, str | bytes):
            raise UserError(f"{at}: attributes should be a list, not {listed!r:.80}")
        try:
            attributes = []
            for i, given in enumerate(listed):
                named = {"name": given} if isinstance(given, str) else given
                about: Any = _record(named, ("name", "score"), f"attributes[{i}]")
                attributes.append(Attribute(about.get("name"), about.get("score")))
            label: Any = record.get("label")  # checked by the record itself
            box, score = record.get("box"), record.get("score")
            detections.append(Detection(label, score, box, tuple(attributes)))
        except UserError as error:
            raise UserError(f"{at}: {error}") from error
    return tuple(detections)


def detections_to_json(detections: Iterable[Detection]) -> list[dict[str, Any]]:
    """Return objects in the form that ``detections_from_json`` reads, in their order.

    >>> detections_to_json([Detection("dog", box=(0, 0, 8, 4), attributes=(Attribute("wet"),))])
    ... # doctest: +NORMALIZE_WHITESPACE
    [{'label': 'dog', 'score': None, 'box': [0.0, 0.0, 8.0, 4.0],
      'attributes': [{'name': 'wet', 'score': None}]}]
    """
    return [
        {
            "label": detection.label,
            "score": detection.score,
            "box": None if detection.box is None else list(detection.box),
            "attributes": [
                {"name": attribute.name, "score": attribute.score}
                for attribute in detection.attributes
            ],
        }
        for detection in detections
    ]


def detections_of(example: Example) -> tuple[Detection, ...]:
    """Return the objects that a source or an annotator found in an example's image."""
    if DETECTIONS not in example.extra:
        raise UserError(
            f"example {example.key!r} has no detections: the recipe needs them from the source, "
            "from a zoo that has a detector, or from a file of them (detections@recipe=file "
            "recipe.annotators.detections.file=FILE)"
        )
    return detections_from_json(example.extra[DETECTIONS], f"example {example.key!r}")


def most_certain_first(detections: Iterable[Detection]) -> tuple[Detection, ...]:
    """Return objects by descending score; objects of equal score keep their order.

    Objects without a score come last, in their order.

    >>> [box.label for box in most_certain_first([Detection("cat", 0.2), Detection("dog", 0.9)])]
    ['dog', 'cat']
    """
    return tuple(
        sorted(
            detections,
            key=lambda detection: math.inf if detection.score is None else -detection.score,
        )
    )


def clip_box(
    box: Box, width: int, height: int, padding: float = 0.0, least: float = 1.0
) -> Box | None:
    """Return the part of a box that lies in the image; ``None`` if it is smaller than ``least``.

    Args:
        box: the box in pixels; it may extend beyond the image.
        padding: the share of the box's width and height that is added on each side first.
        least: the smallest width and height of the part, in pixels.

    >>> clip_box((-3.0, 2.0, 6.0, 20.0), width=10, height=12)
    (0.0, 2.0, 6.0, 12.0)
    >>> clip_box((4.0, 4.0, 8.0, 8.0), width=10, height=12, padding=0.25)
    (3.0, 3.0, 9.0, 9.0)
    >>> clip_box((30.0, 2.0, 36.0, 4.0), width=10, height=12) is None
    True
    """
    left, top, right, bottom = box
    across, down = padding * (right - left), padding * (bottom - top)
    left, right = max(left - across, 0.0), min(right + across, float(width))
    top, bottom = max(top - down, 0.0), min(bottom + down, float(height))
    return (left, top, right, bottom) if min(right - left, bottom - top) >= least else None


def _record(value: Any, names: tuple[str, ...], where: str) -> Mapping[str, Any]:
    """Refuse anything but a JSON object with known names; an unknown name may be misspelt."""
    if not isinstance(value, Mapping):
        raise UserError(f"{where} should be a JSON object with {', '.join(names)}")
    unknown = [str(name) for name in value if name not in names]
    if unknown:
        raise UserError(f"{where}: {unknown[0]!r} is unknown: choose from {', '.join(names)}")
    return value


def _name(name: Any, where: str) -> str:
    words = " ".join(name.split()) if isinstance(name, str) else ""
    if not words:
        raise UserError(f"{where} should be a text of a word or more, not {name!r:.80}")
    if len(words) > LONGEST_NAME:
        raise UserError(f"{where} has {len(words)} characters; at most {LONGEST_NAME} are read")
    return words


def _score(score: Any, where: str) -> float | None:
    if score is None:
        return None
    if not _is_finite(score):
        raise UserError(f"{where}: the score should be a finite number or null, not {score!r:.80}")
    return float(score)


def _box(box: Any, where: str) -> Box | None:
    if box is None:
        return None
    sides = box if isinstance(box, Sequence) and not isinstance(box, str | bytes) else ()
    if len(sides) != 4 or not all(map(_is_finite, sides)):
        raise UserError(
            f"{where}: the box should be four finite numbers, left, top, right and bottom, or "
            f"null; not {box!r:.80}"
        )
    left, top, right, bottom = map(float, sides)
    if not (left < right and top < bottom):
        raise UserError(
            f"{where}: the box {list(sides)} is empty: left should be below right, and top below "
            "bottom"
        )
    return left, top, right, bottom


def _is_finite(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer larger than every float
        return False
