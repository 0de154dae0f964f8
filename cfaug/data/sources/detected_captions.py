"""Captions with the objects of their photos, as published by the authors of XMAI.

https://github.com/claws-lab/multimodal-robustness-xmai: a csv with columns ``objects`` and
``attributes``, lists of equal length as Python prints them; a text (``hypothesis``, else
``original``, ``text`` or ``caption``), and the photo, by the name of its file (``file``) or as
base64 in the cell. MS-COCO's ``image_id`` is a printed pandas Series; beside a hypothesis the
``original`` is its premise, and ``label`` its label.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path, PurePath
from typing import Any

from cfaug.core.detections import DETECTIONS, Attribute, Detection, detections_to_json
from cfaug.core.errors import UserError
from cfaug.core.pixels import content_digest
from cfaug.core.types import CounterfactualSet, Member
from cfaug.data.sources.coco import photo_key
from cfaug.data.sources.lists import is_list_of_texts, read_texts
from cfaug.data.sources.modified_captions import (
    FILE,
    HYPOTHESIS,
    LABEL,
    LONGEST_NAME,
    ORIGINAL,
    PHOTO,
    label_of,
    photo_of,
)
from cfaug.data.sources.parquet import MAX_BYTES, require_image
from cfaug.data.sources.photo_lists import PREMISE, PhotoList, PhotoText, rows_of
from cfaug.data.sources.row import (
    ErrorCollector,
    Row,
    caption,
    clean_key,
)

OBJECTS, ATTRIBUTES = "objects", "attributes"

TEXTS = (HYPOTHESIS, ORIGINAL, "text", "caption")
"""Columns of the text; the first existing one is used."""

FILES = (FILE, "image", "file_name", "filename", "image_path", "path")
"""Columns of the photo; the first existing one is used."""

NO_ATTRIBUTE = "__no_attribute__"
"""Bottom-up attention's name of its first class of attributes."""


@dataclass(frozen=True)
class DetectedCaption:
    """A line of such a list.

    Attributes:
        photo: the name of the photo's file, or the photo as base64.
        group: the photo's name in every source: COCO's id, or the name of its file; empty if the
            cell contains the photo itself.
        text: the text as one line, with its label, premise and objects.
    """

    photo: str
    group: str
    raw: str
    text: PhotoText


def read_detected(record: Mapping[str, Any], where: str) -> DetectedCaption:
    """Read a line."""
    column = next((name for name in TEXTS if name in record), TEXTS[-1])
    extra: dict[str, Any] = {DETECTIONS: _objects(record, where)}
    if column == HYPOTHESIS and record.get(ORIGINAL):
        extra[PREMISE] = caption(record[ORIGINAL], f"{where}, {ORIGINAL}")
    text = PhotoText(caption(record.get(column), where), label_of(record, where), extra)
    known = photo_of(record, where)
    photo = _photo(record)
    if photo is None:
        if known is None:
            raise UserError(f"{where} names no photo: it needs {FILE!r} or {PHOTO!r}")
        photo = known[1]
    group = "" if _is_encoded(photo) else photo if known is None else known[0]
    return DetectedCaption(photo, group, str(record[column]), text)


def _photo(record: Mapping[str, Any]) -> str | None:
    found = next((record[name] for name in FILES if record.get(name)), None)
    return found if isinstance(found, str) else None


def _is_encoded(photo: str | None) -> bool:
    return photo is not None and len(photo) > LONGEST_NAME


def _objects(record: Mapping[str, Any], where: str) -> list[dict[str, Any]]:
    labels = read_texts(record[OBJECTS], f"{where}, {OBJECTS}")
    attributes = read_texts(record[ATTRIBUTES], f"{where}, {ATTRIBUTES}")
    if len(labels) != len(attributes):
        raise UserError(
            f"{where}: {len(labels)} objects and {len(attributes)} attributes: each object should "
            f"have one ('{NO_ATTRIBUTE}' is none)"
        )
    try:
        return detections_to_json(
            Detection(
                label,
                attributes=(Attribute(own),) if own.strip() and own != NO_ATTRIBUTE else (),
            )
            for label, own in zip(labels, attributes, strict=True)
        )
    except UserError as error:
        raise UserError(f"{where}: {error}") from error


class DetectedCaptions(PhotoList):
    """Captions with detections, photos by the names of their files; a set is a photo.

    A repeated caption of a photo is left out, as in the published tables.
    """

    kind = "detected_captions"
    form = "captions with objects and attributes"
    description = (
        "a csv with objects, attributes, a text and file (or image_id) beside the photos (XMAI)"
    )

    used = (OBJECTS, ATTRIBUTES, PHOTO, LABEL, *TEXTS, *FILES)

    def is_form(self, record: Mapping[str, Any]) -> bool:
        """Return whether a record has the columns, lists in two of them, and no image in a cell."""
        return _has_objects(record) and not _is_encoded(_photo(record))

    def open(self, path: Path) -> Iterator[Row]:
        """Yield the captions of each photo together, photos as the list first names them."""
        errors = ErrorCollector()
        photos: dict[str, tuple[str, DetectedCaption, list[PhotoText]]] = {}
        seen: set[tuple[str, str]] = set()
        duplicates = 0
        for where, record in self.records(self.list_of(path)):
            with errors.collect():
                one = read_detected(record, where)
                if (one.group, one.raw) in seen:
                    duplicates += 1
                    continue
                seen.add((one.group, one.raw))
                photos.setdefault(one.group, (where, one, []))[2].append(one.text)
        errors.report()
        self.left_out = {f"duplicated caption{'s' * (duplicates != 1)}": duplicates}
        for group, (where, first, texts) in photos.items():
            with errors.collect():
                name = str(PurePath(group).with_suffix(""))
                # COCO's ids have the form of its file names.
                key = photo_key(group) if group.isdigit() else clean_key(name)
                yield from rows_of(key, group, self.photo(path, first.photo, where), texts)
        errors.report()


def _has_objects(record: Mapping[str, Any]) -> bool:
    return (
        all(is_list_of_texts(record.get(name)) for name in (OBJECTS, ATTRIBUTES))
        and any(name in record for name in TEXTS)
        and (PHOTO in record or _photo(record) is not None)
    )


class EncodedCaptions(DetectedCaptions):
    """Captions with detections, the photo as base64 in each line: imported into shards.

    Adjacent lines with the same photo are a set.
    """

    imported = True
    has_parts = True
    kind = "encoded_captions"
    form = "captions with objects and attributes, photos in the list"
    description = (
        "a csv with objects, attributes, a text and file, a photo as base64 (XMAI's SNLI-VE)"
    )

    def is_form(self, record: Mapping[str, Any]) -> bool:
        """Return whether a record has the columns, and an image in a cell."""
        return _has_objects(record) and _is_encoded(_photo(record))

    def files(self, path: Path) -> list[Path]:
        """Return nothing: there are no photos beside the list."""
        return []

    def open(self, path: Path) -> Iterator[Any]:
        """Yield the captions of each photo together, as a set."""
        errors = ErrorCollector()
        together = groupby(self.records(self.list_of(path)), lambda r: _photo(r[1]))
        for number, (_, rows) in enumerate(together):
            with errors.collect():
                found = [(where, read_detected(record, where)) for where, record in rows]
                image = decode_base64(found[0][1].photo, found[0][0])
                key = f"{number:08d}"
                yield CounterfactualSet(
                    key=key,
                    group=content_digest(image).hex(),
                    members=tuple(
                        Member(one.text.text, "image", key, None, one.text.label, one.text.extra)
                        for _, one in found
                    ),
                    images={"image": image},
                    provenance={"source": self.kind},
                )
        errors.report()


def decode_base64(cell: str, where: str) -> bytes:
    """Return the image in a cell, in either alphabet of base64."""
    if len(cell) > MAX_BYTES * 4 // 3 + 4:
        raise UserError(f"{where}: an image of {len(cell):,} characters is too large")
    try:
        data = base64.b64decode(cell.strip().translate(str.maketrans("-_", "+/")), validate=True)
    except (binascii.Error, ValueError) as error:
        raise UserError(
            f"{where}: the photo is neither a file's name nor base64: {error}"
        ) from error
    return require_image(data, f"{where}: the photo")
