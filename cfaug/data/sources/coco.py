"""MS-COCO as downloaded: ``annotations/captions_val2017.json`` beside the folder ``val2017/``.

The source is the folder of images (``coco/val2017``), or its parent if that has only one split.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from cfaug.core.errors import UserError
from cfaug.data.sources.folders import image_rows, images_below, locate
from cfaug.data.sources.lists import json_file
from cfaug.data.sources.released import text_field
from cfaug.data.sources.row import Description, ErrorCollector, Row, files_identity
from cfaug.data.sources.values import caption, clean_key

ANNOTATIONS = "annotations"

COCO_NAME = re.compile(r"(?:COCO_(?:train|val|test)\d{4}_)?(\d{12})")
"""Names of photo files without extension; the number is the photo's id."""


class Coco:
    """Captions and images of one split; a set is a photo with its captions, in the file's order.

    The group is the photo's id, as in COCO-Counterfactuals, so that no split separates them. Photos
    without a caption are skipped.
    """

    kind = "coco"
    form = "captions of MS-COCO"
    description = "SPLIT/ beside annotations/captions_SPLIT.json (COCO; name the folder SPLIT)"

    def recognises(self, path: Path) -> bool:
        """Return whether there is a split."""
        return self._split(path) is not None

    def files(self, path: Path) -> list[Path]:
        """Return every image of the split."""
        return images_below(self._known(path)[1])

    def describe(self, path: Path) -> Description:
        """Return an empty description: the form is fixed."""
        return Description()

    def identity(self, path: Path) -> Any:
        """Return name, size and time of the annotations and of every image."""
        annotations, images = self._known(path)
        return files_identity([annotations, *images_below(images)])

    def rows(self, path: Path) -> Iterator[Row]:
        """Yield the captions of each photo together, photos in the order of ``images``.

        Raises:
            UserError: if an entry is missing or invalid, naming it.
        """
        annotations, folder = self._known(path)
        errors = ErrorCollector()
        for photo in photos_of(json_file(annotations), annotations):
            if photo.texts:
                with errors.collect():
                    file = locate(folder, photo.file_name, photo.where)
                    yield from image_rows(file, photo_key(photo.id), photo.texts, photo.id)
        errors.report()

    def _known(self, path: Path) -> tuple[Path, Path]:
        found = self._split(path)
        assert found is not None
        return found

    def _split(self, path: Path) -> tuple[Path, Path] | None:
        """Return the annotations and the images of a split.

        Raises:
            UserError: if there are several, or there are annotations without images.
        """
        own = path.parent / ANNOTATIONS / f"captions_{path.name}.json"
        if own.is_file():
            return own, path
        lists = sorted((path / ANNOTATIONS).glob("captions_*.json"))
        splits = [(one, path / one.stem.removeprefix("captions_")) for one in lists]
        there = [(one, images) for one, images in splits if images.is_dir()]
        if len(there) > 1:
            named = ", ".join(str(images) for _, images in there)
            raise UserError(f"{path} has several splits; name one: {named}")
        if splits and not there:
            named = ", ".join(str(images) for _, images in splits)
            raise UserError(f"{path} has annotations without their images: there is no {named}")
        return there[0] if there else None


@dataclass(frozen=True)
class Photo:
    """A photo with its captions, from a list."""

    id: str
    file_name: str
    texts: list[str]
    where: str


def photos_of(about: Any, file: Path) -> list[Photo]:
    """Return the photos of a JSON with ``images`` and ``annotations``, in the order of ``images``.

    Args:
        about: the content of the file.
        file: the file, for messages.

    Raises:
        UserError: if an entry is missing or invalid, naming it.
    """
    errors = ErrorCollector()
    photos: dict[str, Photo] = {}
    for where, one in entries(about, "images", file):
        with errors.collect():
            photo = text_field(one, "id", where)
            if photo in photos:
                raise UserError(f"{where}: the photo {photo} is duplicated")
            name = text_field(one, "file_name", where)
            photos[photo] = Photo(photo, name, [], f"{file}, photo {photo}")
    for where, one in entries(about, "annotations", file):
        with errors.collect():
            photo = text_field(one, "image_id", where)
            if photo not in photos:
                raise UserError(f"{where}: there is no photo {photo} in 'images'")
            photos[photo].texts.append(caption(one.get("caption"), where))
    errors.report()
    return list(photos.values())


def coco_photo(file_name: str) -> str:
    """Return the id of the COCO photo that a file is named after; "" for any other name.

    >>> coco_photo("COCO_val2014_000000391895.jpg"), coco_photo("dog.jpg")
    ('391895', '')
    """
    found = COCO_NAME.fullmatch(PurePath(file_name).stem)
    return str(int(found[1])) if found else ""


def photo_key(photo: str) -> str:
    """Return the key of a COCO photo, as its files are named.

    >>> photo_key("391895")
    '000000391895'
    """
    return clean_key(photo.zfill(12))


def entries(about: Any, name: str, file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (place, entry) of a list of objects in a JSON file.

    Raises:
        UserError: if the list is missing, or an entry is invalid, naming it.
    """
    found = about.get(name) if isinstance(about, dict) else None
    if not isinstance(found, list):
        raise UserError(f"{file}: there should be a list {name!r}")
    for number, entry in enumerate(found):
        where = f"{file}, {name}[{number}]"
        if not isinstance(entry, dict):
            raise UserError(f"{where} should be a JSON object")
        yield where, entry
