"""The classes and captions of photos whose edits lie in folders of kinds.

A list beside the folders says them, or the folders below ``original/`` are the classes.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from cfaug.core.errors import UserError, name_some
from cfaug.core.pixels import IMAGES, UNREAD_IMAGES
from cfaug.data.sources.class_folders import LABEL, NO_CLASSES
from cfaug.data.sources.columns import CAPTION, IMAGE, image_records, one_column
from cfaug.data.sources.edited_photos import EditedPhoto
from cfaug.data.sources.row import ErrorCollector, caption, is_null, known, whole
from cfaug.data.sources.splits import split_kind


def read_classes(
    path: Path, original: Path, photos: Mapping[str, EditedPhoto], lists: Sequence[Path]
) -> None:
    """Put the class of each photo to it.

    Args:
        path: the source, for messages.
        photos: the photos by their names below the folder ``original``, without endings.
        lists: lists of photos, those of which ``photo_columns`` returns the columns.

    Raises:
        UserError: if a photo has no class, or a list and a folder contradict each other.
    """
    listed = _listed_classes(path, original, photos, lists)
    in_folders = _folder_classes(photos)
    classes = set(listed.values())
    for name, photo in photos.items():
        label = in_folders.get(name)
        if name in listed and label in classes and label != listed[name]:
            raise UserError(
                f"{photo.file}: the list says the class {listed[name]!r}, and its folder says "
                f"{label!r}: which is right? Correct the list, or move the photo and its edits"
            )
        photo.label = listed.get(name) if listed else label
    lacking = [photo.file for photo in photos.values() if photo.label is None]
    if lacking:
        files = "the list of classes does not name them" if listed else "no list says them"
        raise UserError(
            f"{len(lacking):,} of {len(photos):,} photos have no class, such as {lacking[0]}: "
            f"{files}, and they do not lie in folders called by classes. Which are they? Write "
            f"{path / 'labels.csv'} with the columns image and label, a line a photo, or put each "
            "photo and its edits into a folder called by its class"
        )


def describe_unread_folders(photos: Sequence[EditedPhoto]) -> list[str]:
    """Return a note of folders that could be classes, where a list says others."""
    in_folders = _folder_classes({photo.name: photo for photo in photos})
    others = {in_folders[p.name] for p in photos if in_folders.get(p.name) not in (None, p.label)}
    if not others:
        return []
    return [f"the classes are those of the list, not the folders ({name_some(sorted(others))})"]


def _folder_classes(photos: Mapping[str, EditedPhoto]) -> dict[str, str]:
    """Return the class of each photo by its folder, {} where folders are not classes."""
    folders = {name: name.split("/")[:-1] for name in photos}
    if not all(folders.values()):
        return {}
    # A folder around all classes, such as ``val``, is none itself.
    while len({of[0] for of in folders.values()}) == 1 and min(map(len, folders.values())) > 1:
        folders = {name: of[1:] for name, of in folders.items()}
    tops = {of[0] for of in folders.values()}
    if {name.lower() for name in tops} <= NO_CLASSES or all(map(split_kind, tops)):
        return {}
    return {name: of[0] for name, of in folders.items()}


def _listed_classes(
    path: Path, original: Path, photos: Mapping[str, EditedPhoto], lists: Sequence[Path]
) -> dict[str, str]:
    """Return the classes that a list says of photos, by the photos' names."""
    labelled = [file for file in lists if known(photo_columns(file)).label is not None]
    if len(labelled) > 1:
        raise UserError(
            f"{path} has several lists of classes, {name_some(f.name for f in labelled)}: which is "
            "right? Put the others elsewhere"
        )
    labels: dict[str, str] = {}
    errors = ErrorCollector()
    for file in labelled:
        columns = known(photo_columns(file))
        for where, record in image_records(file):
            with errors.collect():
                name = _listed_name(record.get(columns.image), original.name)
                label = record.get(str(columns.label))
                if name not in photos or is_null(label) or not str(label).strip():
                    continue
                said = caption(str(whole(label)), where)
                if labels.setdefault(name, said) != said:
                    raise UserError(
                        f"{where}: the class of {name!r} is {said!r} here and {labels[name]!r} in "
                        "an earlier line: which is right?"
                    )
    errors.report()
    return labels


def listed_captions(lists: Sequence[Path]) -> dict[str, str]:
    """Return the first caption of each image that a list names, by its name without an ending."""
    captions: dict[str, str] = {}
    for file in lists:
        columns = known(photo_columns(file))
        for where, record in image_records(file):
            text = None if columns.caption is None else record.get(columns.caption)
            if not is_null(text) and str(text).strip():
                name = _listed_name(record.get(columns.image), "")
                captions.setdefault(name, caption(text, where))
    return captions


def _listed_name(image: object, folder: str) -> str:
    """Return the name of a listed image without its ending, and without the folder of photos."""
    name = PurePosixPath(os.path.normpath(str(image or "").strip() or "."))
    if name.parts[:1] == (folder,):
        name = name.relative_to(folder)
    is_image = name.suffix.lower() in (*IMAGES, *UNREAD_IMAGES)
    return str(name.with_suffix("") if is_image else name)


class PhotoColumns(NamedTuple):
    """The columns of a list of photos, as far as it has them."""

    image: str
    label: str | None
    caption: str | None


def photo_columns(file: Path) -> PhotoColumns | None:
    """Return the columns of a list of classes or captions; ``None`` for any other file."""
    try:
        first = next(image_records(file), None)
        if first is None:
            return None
        where, record = first
        image = next((name for alias in IMAGE for name in record if name.lower() == alias), None)
        label = one_column(record, LABEL, "class", where)
        text = one_column(record, CAPTION, "caption", where)
    except UserError:
        return None  # reported as not read
    if image is None or (label is None and text is None):
        return None
    return PhotoColumns(image, label, text)
