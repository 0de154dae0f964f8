"""Files of the objects in images: COCO's, Visual Genome's, and our own lists.

* MS-COCO: ``instances_*.json`` with ``images``, ``annotations`` and ``categories``; or a list of
  results, ``image_id``, ``category_id``, ``bbox``, ``score``, with such a file for the categories.
* Visual Genome: ``objects.json`` and ``attributes.json``, which share ``object_id``s; either one
  alone suffices.
* Ours: a ``.jsonl`` with an image a line, its name and ``detections`` as
  ``cfaug.data.detections`` has them.

Errors of a file as a whole are raised at once; errors in the objects of one image are raised when
that image is requested, so that the others can be used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from typing import Any

from cfaug.core.errors import RejectedError, UserError
from cfaug.core.safety.json_text import json_file
from cfaug.data.detections import (
    DETECTIONS,
    Attribute,
    Detection,
    clip_box,
    detections_from_json,
    most_certain_first,
)
from cfaug.data.sources.coco import entries
from cfaug.data.sources.lists import json_lines
from cfaug.data.sources.parquet import text_field
from cfaug.data.sources.row import ErrorCollector

MISSING, INVALID = "no detections", "invalid detections"
"""Reasons of examples for which a file has no entry, or an invalid one."""
NAMES = ("key", "image", "image_id", "file_name", "group", "id")
"""Columns of our lists that may name the image, in this order."""
FORMS = (
    "COCO's instances (an object with images, annotations and categories) or results (a list with "
    "category_id and bbox, beside a file of the categories), Visual Genome's objects.json or "
    "attributes.json, or a .jsonl with an image a line and its detections"
)


@dataclass
class _Image:
    """The entries of a file for an image.

    Attributes:
        objects: (place, entry) of each object, in the order of the file.
        size: width and height in pixels, if the file has them.
    """

    objects: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)
    size: tuple[int, int] | None = None


class DetectionFile:
    """Objects by image, from one or more files that belong together.

    Args:
        more: further files: the categories of COCO's results, Visual Genome's other file.
        column: column of our lists that names the image; ``None`` is the first of ``key``,
            ``image``, ``image_id``, ``file_name``, ``group`` and ``id`` that a line has.
    """

    def __init__(self, file: Path, more: Sequence[Path] = (), column: str | None = None) -> None:
        self.file = file
        self._images: dict[str, _Image] = {}
        self._aliases: dict[str, list[str]] = {}
        self._categories: dict[str, str] = {}
        self._whole = False  # whether images without an object are listed too
        if file.suffix.lower() == ".jsonl":
            self._read_lines(column)
            return
        for path in (file, *more):
            about = json_file(path)
            first = about[0] if isinstance(about, list) and about else {}
            if isinstance(about, dict) and {"annotations", "categories"} <= set(about):
                self._read_coco(about, path)
            elif isinstance(first, dict) and {"image_id", "category_id", "bbox"} <= set(first):
                self._read_annotations({"annotations": about}, path)
            elif isinstance(first, dict) and {"objects", "attributes"} & set(first):
                self._read_visual_genome(about, path)
            else:
                raise UserError(f"{path} has no detections in a known form; it should be {FORMS}")
        self._check_categories()

    def find(self, name: str, size: tuple[int, int] | None = None) -> tuple[Detection, ...]:
        """Return the objects of an image, the most certain first, with boxes clipped to the image.

        Args:
            name: the name of the image: its id, or its file's name, with or without folder and
                extension.
            size: the image's width and height in pixels, if the file lacks them; ``None`` leaves
                boxes unclipped.

        Raises:
            RejectedError: if the file lacks the image, an object's label, score or box is invalid,
                or its box is outside the image, naming the entry.
        """
        known = self._known(name)
        if known is None:
            raise RejectedError(MISSING, f"{self.file} has no entry for the image {name!r}")
        size = known.size or size
        objects: list[Detection] = []
        try:
            for where, entry in known.objects:
                if DETECTIONS in entry:
                    read = detections_from_json(entry[DETECTIONS], where)
                else:
                    try:
                        read = (read_object(entry, self._categories),)
                    except UserError as error:
                        raise UserError(f"{where}: {error}") from error
                for detection in read:
                    box = detection.box
                    if box is not None and size is not None:
                        # MS-COCO has objects of less than one pixel.
                        box = clip_box(box, *size, least=1e-6)
                        if box is None:
                            raise UserError(
                                f"{where}: the box {list(detection.box or ())} of "
                                f"{detection.label!r} lies outside of the image, which is "
                                f"{size[0]} x {size[1]}"
                            )
                    objects.append(replace(detection, box=box))
            return most_certain_first(objects)
        except UserError as error:
            raise RejectedError(INVALID, str(error)) from error

    def size(self, name: str) -> tuple[int, int] | None:
        """Return the width and height of an image, if the file has them."""
        known = self._known(name)
        return None if known is None else known.size

    def __contains__(self, name: str) -> bool:
        """Return whether the file has an entry for an image."""
        return self._known(name) is not None

    def _known(self, name: str) -> _Image | None:
        path = PurePath(name)
        for alias in (name, path.name, path.stem):
            if alias in self._images:
                return self._images[alias]
            ids = self._aliases.get(alias, [])
            if len(ids) > 1:
                raise UserError(
                    f"{self.file}: {alias!r} could be the images {', '.join(ids[:3])}: name images "
                    "by their ids (match)"
                )
            if ids:
                return self._images[ids[0]]
        return None

    def _add_aliases(self, name: str, *aliases: str) -> None:
        for alias in dict.fromkeys(aliases):
            self._aliases.setdefault(alias, []).append(name)

    def _read_lines(self, column: str | None) -> None:
        errors = ErrorCollector()
        for where, record in json_lines(self.file):
            with errors.collect():
                name = next(
                    (n for n in (NAMES if column is None else (column,)) if n in record), ""
                )
                if not name or DETECTIONS not in record:
                    wanted = column or f"one of {', '.join(NAMES)}"
                    raise UserError(
                        f"{where} needs {DETECTIONS!r} and {wanted}; it has "
                        f"{', '.join(map(repr, record))}"
                    )
                image = text_field(record, name, where)
                if image in self._images:
                    raise UserError(f"{where}: the image {image!r} is duplicated")
                self._images[image] = _Image([(where, record)])
                self._add_aliases(image, PurePath(image).name, PurePath(image).stem)
        errors.report()

    def _read_coco(self, about: Mapping[str, Any], file: Path) -> None:
        errors = ErrorCollector()
        for where, entry in entries(about, "categories", file):
            with errors.collect():
                number = text_field(entry, "id", where)
                if number in self._categories:
                    raise UserError(f"{where}: the category {number} is duplicated")
                self._categories[number] = text_field(entry, "name", where)
        seen: set[str] = set()
        for where, entry in entries(about, "images", file) if "images" in about else ():
            with errors.collect():
                name = text_field(entry, "id", where)
                if name in seen:
                    raise UserError(f"{where}: the image {name!r} is duplicated")
                seen.add(name)
                # Results may be read before the categories.
                image = self._images.setdefault(name, _Image())
                path = PurePath(text_field(entry, "file_name", where))
                self._add_aliases(name, str(path), path.name, path.stem)
                width, height = entry.get("width"), entry.get("height")
                if isinstance(width, int) and isinstance(height, int) and min(width, height) > 0:
                    image.size = width, height
        errors.report()
        self._whole = True
        if file == self.file:
            self._read_annotations(about, file)

    def _read_annotations(self, about: Mapping[str, Any], file: Path) -> None:
        errors = ErrorCollector()
        for where, entry in entries(about, "annotations", file):
            with errors.collect():
                image = text_field(entry, "image_id", where)
                text_field(entry, "category_id", where)
                if "bbox" not in entry:
                    raise UserError(f"{where} has no bbox")
                if image not in self._images and self._whole:
                    raise UserError(f"{where}: there is no image {image} in 'images'")
                objects = self._images.setdefault(image, _Image()).objects
                objects.append((where, kept_columns(entry)))
        errors.report()

    def _check_categories(self) -> None:
        errors = ErrorCollector()
        for image in self._images.values():
            for where, entry in image.objects:
                number = str(entry.get("category_id", ""))
                with errors.collect():
                    if "bbox" in entry and not self._categories:
                        raise UserError(
                            f"{self.file} has numbers of categories and no names: name the file "
                            "with the categories too, such as instances_val2017.json (more=[FILE])"
                        )
                    if "bbox" in entry and number not in self._categories:
                        raise UserError(f"{where}: there is no category {number}")
        errors.report()

    def _read_visual_genome(self, about: Sequence[Any], file: Path) -> None:
        errors = ErrorCollector()
        for number, record in enumerate(about):
            where = f"{file}, [{number}]"
            with errors.collect():
                if not isinstance(record, dict):
                    raise UserError(f"{where} should be a JSON object")
                image = text_field(record, "image_id", where)
                key = "objects" if "objects" in record else "attributes"
                objects = self._images.setdefault(image, _Image()).objects
                by_id = {str(entry.get("object_id")): n for n, (_, entry) in enumerate(objects)}
                new = list(entries(record, key, Path(where)))
                ids = [text_field(entry, "object_id", position) for position, entry in new]
                if len(set(ids)) < len(ids):
                    twice = next(object_id for object_id in ids if ids.count(object_id) > 1)
                    raise UserError(f"{where}: the object {twice} is duplicated")
                for (position, entry), name in zip(new, ids, strict=True):
                    kept = kept_columns(entry)
                    if name not in by_id:
                        objects.append((position, kept))
                        continue
                    at = by_id[name]
                    earlier_place, earlier = objects[at]
                    # The names of ``objects.json`` take precedence over later files.
                    names = {n: earlier[n] for n in ("names", "attributes") if earlier.get(n)}
                    objects[at] = (earlier_place, {**earlier, **kept, **names})
        errors.report()


# Single objects in the formats of COCO and Visual Genome, and their boxes in the image.

READ = (
    "bbox", "category_id", "score", "object_id", "name", "names", "x", "y", "w", "h", "attributes",
)  # fmt: skip
"""The fields of an object that are read."""


def kept_columns(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the fields of an object that are read: COCO's outlines are most of its file."""
    return {name: entry[name] for name in READ if name in entry}


def read_object(entry: Mapping[str, Any], categories: Mapping[str, str]) -> Detection:
    """Return the object in an entry of COCO's annotations or results, or of Visual Genome.

    Args:
        entry: an entry with ``bbox`` and ``category_id``, or with ``names``, ``x``, ``y``, ``w``
            and ``h``.
        categories: {number: name} of COCO's categories.
    """
    if "bbox" in entry:
        label: Any = categories[str(entry["category_id"])]
        box: Any = entry["bbox"]
    else:
        names = entry.get("names") or [entry.get("name")]
        label = names[0] if isinstance(names, list) else names
        box = [entry.get(side) for side in ("x", "y", "w", "h")]
    # An invalid box is kept: the record of a detection reports what is wrong with it.
    if isinstance(box, list) and len(box) == 4 and all(type(s) in (int, float) for s in box):
        left, top, width, height = box
        box = (left, top, left + width, top + height)
    attributes = entry.get("attributes") or ()
    if not isinstance(attributes, list | tuple) or not all(isinstance(a, str) for a in attributes):
        raise UserError(f"attributes should be a list of texts, not {attributes!r:.80}")
    named = dict.fromkeys(" ".join(attribute.lower().split()) for attribute in attributes)
    return Detection(
        label.lower() if isinstance(label, str) else label,
        entry.get("score"),
        box,
        tuple(Attribute(name) for name in named if name),
    )
