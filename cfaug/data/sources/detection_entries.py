"""Single objects in the formats of COCO and Visual Genome, and their boxes in the image."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cfaug.core.detections import Attribute, Detection, clip_box
from cfaug.core.errors import UserError

READ = (
    "bbox", "category_id", "score", "object_id", "name", "names", "x", "y", "w", "h", "attributes",
)  # fmt: skip
"""The fields of an object that are read."""

SMALLEST = 1e-6
"""The least length of a side in pixels: MS-COCO has objects of less than one pixel."""


def kept_columns(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the fields of an object that are read: COCO's outlines are most of its file."""
    return {name: entry[name] for name in READ if name in entry}


def read_object(entry: Mapping[str, Any], categories: Mapping[str, str]) -> Detection:
    """Return the object in an entry of COCO's annotations or results, or of Visual Genome.

    Args:
        entry: an entry with ``bbox`` and ``category_id``, or with ``names``, ``x``, ``y``, ``w``
            and ``h``.
        categories: {number: name} of COCO's categories.

    Raises:
        UserError: if label, score, box or attributes are invalid.
    """
    if "bbox" in entry:
        label: Any = categories[str(entry["category_id"])]
        sides: Any = entry["bbox"]
    else:
        names = entry.get("names") or [entry.get("name")]
        label = names[0] if isinstance(names, list) else names
        sides = [entry.get(side) for side in ("x", "y", "w", "h")]
    found = entry.get("attributes") or ()
    if not isinstance(found, list | tuple) or not all(isinstance(a, str) for a in found):
        raise UserError(f"attributes should be a list of texts, not {found!r:.80}")
    named = dict.fromkeys(" ".join(one.lower().split()) for one in found)
    return Detection(
        label.lower() if isinstance(label, str) else label,
        entry.get("score"),
        _corners(sides),
        tuple(Attribute(one) for one in named if one),
    )


def image_size(image: Mapping[str, Any]) -> tuple[int, int] | None:
    """Return the width and height of an image in a file, if given."""
    sides = (image.get("width"), image.get("height"))
    if all(isinstance(side, int) and side > 0 for side in sides):
        return sides  # type: ignore[return-value]  # just looked at
    return None


def _corners(sides: Any) -> Any:
    """Convert a box of left, top, width and height to left, top, right and bottom.

    An invalid box is returned unchanged: the record of a detection reports what is wrong with it.
    """
    if isinstance(sides, list) and len(sides) == 4 and all(type(s) in (int, float) for s in sides):
        left, top, width, height = sides
        return (left, top, left + width, top + height)
    return sides


def cut_to_image(one: Detection, size: tuple[int, int] | None, where: str) -> Detection:
    """Return an object with its box clipped to the image.

    Raises:
        UserError: if nothing is left: the file belongs to another image, or to another size of it.
    """
    if one.box is None or size is None:
        return one
    box = clip_box(one.box, *size, least=SMALLEST)
    if box is None:
        raise UserError(
            f"{where}: the box {list(one.box)} of {one.label!r} lies outside of the image, which "
            f"is {size[0]} x {size[1]}"
        )
    return Detection(one.label, one.score, box, one.attributes)
