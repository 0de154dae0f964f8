"""Folders of photos and of kinds of edits: ``original/``, ``edited/KIND/``, ``edited/KIND/3/``.

ImageNet-C has this layout beside ImageNet's photos, and so has what an editor exports, a folder a
kind. Below the folder of a kind, and of a severity, an edit is called as its photo is.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from cfaug.core.errors import UserError, name_some
from cfaug.core.files import is_hidden
from cfaug.core.pixels import IMAGES, UNREAD_IMAGES
from cfaug.core.types import RECONSTRUCTION
from cfaug.data.sources.caption_list import COUNTERFACTUAL, ORIGINAL
from cfaug.data.sources.columns import columns_of, image_records, unnamed_lists
from cfaug.data.sources.edit_lists import edit_columns
from cfaug.data.sources.edited_classes import (
    describe_unread_folders,
    listed_captions,
    photo_columns,
    read_classes,
)
from cfaug.data.sources.edited_photos import (
    NAMED,
    RECONSTRUCTIONS,
    EditedPhoto,
    MadeEdit,
    describe_edits,
    edited_rows,
    read_kind,
)
from cfaug.data.sources.folders import list_folders
from cfaug.data.sources.row import (
    Description,
    ErrorCollector,
    Reader,
    Row,
    files_identity,
)

PHOTOS = (*ORIGINAL, "clean", "photos")
EDITS = (*COUNTERFACTUAL, "edits")
SEVERITY = re.compile(r"(?:severity|sev|level|strength|s)?[ _-]?(\d+(?:\.\d+)?)", re.IGNORECASE)
"""The name of a folder of edits of one strength, as ``3`` in ImageNet-C."""
ADVICE = "lay the photos as original/NAME and their edits as edited/KIND/NAME, with equal names"


class Sides(NamedTuple):
    """The folders of a source, by what their names say."""

    photos: tuple[Path, ...]
    edits: tuple[Path, ...]
    controls: tuple[Path, ...]


class EditedFolders(Reader):
    """Photos in ``original/`` and edits in ``edited/KIND/``, also by severity, with equal names.

    Names are equal without their endings. The first folder below ``original/`` is the class, or a
    list beside the folders (image, label) says it. ``edited/reconstruction/``, or
    ``reconstruction/`` beside the two, has the photos that were made again without an edit.
    """

    kind = "edited_folders"
    form = "folders of photos and of kinds of their edits"
    description = (
        "original/ and edited/KIND/ or edited/KIND/SEVERITY/ with equal names, folders of classes "
        "in both or labels.csv (image, label): edits of your own for benchmark=stress"
    )

    def recognises(self, path: Path) -> bool:
        """Return whether there is a folder of edits, with kinds that are not the photos' folders.

        A list whose lines are sets is read instead of the folders.
        """
        sides = find_sides(path)
        if not sides.edits or any(map(_lists_edits, unnamed_lists(path))):
            return False
        if not sides.photos:  # which open asks about
            others = [f for f in _folders(path) if f not in (*sides.edits, *sides.controls)]
            return not any(map(_has_images, others)) and any(map(_folders, sides.edits))
        return any(_has_kinds(photos, edits) for photos in sides.photos for edits in sides.edits)

    def files(self, path: Path) -> list[Path]:
        return [*survey(path).files]

    def describe(self, path: Path) -> Description:
        """Return photos and edits by class and kind, and the names of files that are not read."""
        read = survey(path)
        photos = read_photos(path)
        left_out = []
        if read.others:
            many = f"{len(read.others):,} other file{'s' * (len(read.others) > 1)}"
            left_out.append(f"{many} ({name_some(read.others, NAMED)})")
        notes = [*describe_edits(photos), *describe_unread_folders(photos)]
        pairs = [(photo.file.suffix, edit.file.suffix) for photo in photos for edit in photo.edits]
        endings = [
            f"{edited} of {original}"
            for original, edited in pairs
            if original.lower() != edited.lower()
        ]
        if endings:
            notes.append(
                f"{len(endings):,} edits have another ending than their photo "
                f"({name_some(dict.fromkeys(endings))}); they belong to it by the rest of their "
                "names"
            )
        return Description(left_out=tuple(left_out), notes=tuple(notes))

    def identity(self, path: Path) -> Any:
        """Return name, size and time of every image and list, and the names of all folders."""
        read = survey(path)
        folders = [str(folder.relative_to(path)) for folder in read.folders]
        return [folders, *files_identity([*read.lists, *read.files])]

    def open(self, path: Path) -> Iterator[Row]:
        """Yield each photo with its edits, photos and edits in the order of their names."""
        errors = ErrorCollector()
        for photo in read_photos(path):
            with errors.collect():
                yield from edited_rows(photo)
        errors.report()


def _lists_edits(file: Path) -> bool:
    """Return whether a list names photos together with their edits, a set a line."""
    if edit_columns(file) is not None:
        return True
    try:
        first = next(image_records(file), None)
        return first is not None and columns_of(first[1], first[0]).is_set
    except UserError:
        return False


def find_sides(path: Path) -> Sides:
    """Return the folders of photos, of edits and of reconstructions by their names, if any."""
    groups: list[tuple[Path, ...]] = []
    for names in (PHOTOS, EDITS, RECONSTRUCTIONS):
        groups.append(tuple(f for f in _folders(path) if f.name.lower() in names))
    photos, edits, controls = groups
    return Sides(tuple(filter(_has_images, photos)), tuple(filter(_has_images, edits)), controls)


def _folders(path: Path) -> list[Path]:
    if not path.is_dir():
        return []
    with os.scandir(path) as entries:
        return sorted(Path(e) for e in entries if e.is_dir() and not is_hidden(e.name))


def _has_images(folder: Path) -> bool:
    return any(name.lower().endswith(IMAGES) for _, names in list_folders(folder) for name in names)


def _has_kinds(photos: Path, edits: Path) -> bool:
    """Return whether a folder of edits has folders of kinds, and not those of its photos."""
    classes = {folder.name for folder in _folders(photos)}
    if any(folder.name not in classes and _has_images(folder) for folder in _folders(edits)):
        return True
    # A class may be called as a kind is: original/fog/1.jpg and edited/fog/fog/1.jpg.
    if not classes:
        return False
    names = {_name(image, photos) for image in _images(photos)}
    edited = (PurePosixPath(_name(image, edits)) for image in _images(edits))
    return any(
        str(name) not in names and str(PurePosixPath(*name.parts[1:])) in names for name in edited
    )


def _images(folder: Path) -> Iterator[Path]:
    for here, names in list_folders(folder):
        yield from (here / name for name in names if name.lower().endswith(IMAGES))


def _name(image: Path, folder: Path) -> str:
    return image.relative_to(folder).with_suffix("").as_posix()


@dataclass(frozen=True)
class Survey:
    """The files of a source.

    Attributes:
        images: the images of each side.
        lists: the lists that say the classes or captions of photos.
        others: the names of the files that are not read, relative to the source.
        folders: every folder below the sides.
    """

    sides: Sides
    images: Mapping[Path, tuple[Path, ...]]
    lists: tuple[Path, ...]
    others: tuple[str, ...]
    folders: tuple[Path, ...]

    @property
    def files(self) -> tuple[Path, ...]:
        """Every image of the sides."""
        return tuple(image for images in self.images.values() for image in images)


def survey(path: Path) -> Survey:
    """Return the files of a source; nothing but lists is opened."""
    sides = find_sides(path)
    every = [*sides.photos, *sides.edits, *sides.controls]
    images: dict[Path, list[Path]] = {side: [] for side in every}
    lists = tuple(file for file in unnamed_lists(path) if photo_columns(file) is not None)
    others, folders = [], []
    for here, names in list_folders(path):
        side = next((side for side in every if here == side or side in here.parents), None)
        if side is not None:
            folders.append(here)
        for name in names:
            if side is not None and name.lower().endswith(IMAGES):
                images[side].append(here / name)
            elif here / name not in lists:
                others.append((here / name).relative_to(path).as_posix())
    of_sides = {side: tuple(of) for side, of in images.items()}
    return Survey(sides, of_sides, lists, tuple(others), tuple(folders))


# Which photo an edit is of, and what its folders say.


def read_photos(path: Path) -> list[EditedPhoto]:
    """Return every photo with its class and its edits.

    Raises:
        UserError: asking about whatever could mean two things, or nothing.
    """
    read = survey(path)
    original, edited = _choose_sides(path, read.sides)
    photos = _read_originals(original, read.images[original])
    _refuse_exchanged(original, edited, photos, read.images[edited])
    read_classes(path, original, photos, read.lists)
    _refuse_empty(read, edited, {photo.label for photo in photos.values()})
    errors = ErrorCollector()
    there: dict[tuple[str, str, str], Path] = {}
    labels = {str(photo.label).casefold() for photo in photos.values()}
    for side in (edited, *read.sides.controls):
        for image in read.images[side]:
            with errors.collect():
                is_control = side != edited
                name, folders = _match(image, side, original, photos, is_control=is_control)
                kind, severity = RECONSTRUCTION, ""
                if not is_control:
                    kind, severity = _read_folders(folders, image, side, labels)
                # A photo has one reconstruction, wherever it lies.
                place = (name, kind, severity)
                if place in there:
                    raise UserError(
                        f"{there[place]} and {image} are both the edit {kind} of "
                        f"{photos[name].file}: which of them is it? Remove or rename the other"
                    )
                there[place] = image
                photos[name].edits.append(MadeEdit(image, kind, severity=severity))
    errors.report()
    captions = listed_captions(read.lists)
    for photo in photos.values():
        at = f"{original.name}/{photo.name}"
        photo.text = captions.get(at) or captions.get(photo.name, "")
        photo.edits = [
            replace(edit, text=captions.get(_name(edit.file, path), "")) for edit in photo.edits
        ]
        photo.edits.sort(key=lambda edit: (edit.kind != RECONSTRUCTION, edit.kind, edit.severity))
    return [*photos.values()]


def _choose_sides(path: Path, sides: Sides) -> tuple[Path, Path]:
    for group, what in zip(sides, ("photos", "edits", "reconstructions"), strict=True):
        if len(group) > 1:
            named = " and ".join(f"{folder.name}/" for folder in group)
            raise UserError(
                f"{path} has {named}: which of them holds the {what}? Put the others elsewhere, "
                "or link the right ones from a folder of their own"
            )
    if not sides.photos:
        raise UserError(
            f"{path} has {sides.edits[0].name}/ and no folder of the photos that were edited: "
            f"where are they? Put them beside it as original/ with equal names, or link their "
            "folder as original and permit it: 'paths.image_roots=[FOLDER]'"
        )
    return sides.photos[0], sides.edits[0]


def _read_originals(original: Path, images: tuple[Path, ...]) -> dict[str, EditedPhoto]:
    errors, photos = ErrorCollector(), dict[str, EditedPhoto]()
    for image in sorted(images, key=lambda image: _name(image, original)):
        with errors.collect():
            name = _name(image, original)
            if name in photos:
                raise UserError(
                    f"{photos[name].file} and {image} differ in their ending alone: which is the "
                    f"photo that the edits called {name!r} were made of? Remove or rename the other"
                )
            photos[name] = EditedPhoto(name, image, str(image))
    errors.report()
    return photos


def _refuse_exchanged(
    original: Path, edited: Path, photos: Mapping[str, EditedPhoto], edits: Sequence[Path]
) -> None:
    """Refuse photos in the folder of edits, and edits of them in that of the photos."""

    def ends(name: str) -> Iterator[str]:
        parts = name.split("/")
        return ("/".join(parts[at:]) for at in range(1, len(parts)))

    names = [_name(image, edited) for image in edits]
    if any(end in photos for name in names for end in (name, *ends(name))):
        return
    below_kinds = {*names}
    if photos and all(any(end in below_kinds for end in ends(name)) for name in photos):
        raise UserError(
            f"{original}/ holds the kinds, and {edited}/ the photos that it has under "
            "each of them: are the two folders exchanged? Rename them"
        )


def _match(
    image: Path, side: Path, original: Path, photos: Mapping[str, EditedPhoto], *, is_control: bool
) -> tuple[str, tuple[str, ...]]:
    """Return the name of an edit's photo, and the folders between the edits' folder and the name.

    Args:
        is_control: whether the images are not in folders of kinds.
    """
    parts = PurePosixPath(_name(image, side)).parts
    depths = range(1) if is_control else range(len(parts))
    names = {at: name for at in depths if (name := "/".join(parts[at:])) in photos}
    if len(names) > 1:
        several = " or ".join(str(photos[name].file) for name in names.values())
        raise UserError(
            f"{image}: is this an edit of {several}? Lay the photos in equally many folders, or "
            "name photo and edit of each line in a list (photo, edit, label, kind)"
        )
    if not names:
        wanted = [part for part in parts[1:-1] if not SEVERITY.fullmatch(part)] + [parts[-1]]
        wanted = list(parts) if is_control else wanted
        raise UserError(
            f"{image} has no original: there is no {original.name}/{'/'.join(wanted)} with any "
            f"ending{_alike(parts, photos)}; {ADVICE}, or remove it"
        )
    [(at, name)] = names.items()
    if at == 0 and not is_control:
        raise UserError(
            f"{image}: of which kind is this edit? The other edits lie in folders of their kinds: "
            f"put it into one, {side.name}/KIND/"
        )
    return name, parts[:at]


def _alike(parts: Sequence[str], photos: Mapping[str, EditedPhoto]) -> str:
    """Return a question about the photo that an edit without one may be of."""
    by_name = _by_plain_name(tuple(photos))
    plain = _plain(parts[-1])
    near = by_name.get(plain) or [
        name for short, names in by_name.items() for name in names
        if short and plain.startswith(short) and not plain[len(short)].isalnum()
    ]  # fmt: skip
    beside = [name for name in near if "/".join(parts[:-1]).endswith(name.rpartition("/")[0])]
    files = [str(photos[name].file) for name in beside or near]
    return f" (is it of {name_some(files, 2)}? give it the same name)" if files else ""


@lru_cache(maxsize=2)
def _by_plain_name(names: tuple[str, ...]) -> dict[str, list[str]]:
    by_name: dict[str, list[str]] = {}
    for name in names:
        by_name.setdefault(_plain(name.rpartition("/")[2]), []).append(name)
    return by_name


def _plain(stem: str) -> str:
    return unicodedata.normalize("NFC", stem).casefold()


def _read_folders(
    folders: tuple[str, ...], image: Path, side: Path, labels: set[str]
) -> tuple[str, str]:
    """Return the kind and the severity of an edit, by the folders in which it lies."""
    where = f"{side.name}/{'/'.join(folders)}/"
    levels = [name for name in folders if SEVERITY.fullmatch(name)]
    names = [name for name in folders if name not in levels]
    if not names:
        raise UserError(
            f"{image}: {where} says a severity and no kind: of which kind are these edits? Put the "
            f"folder into one called by it, {side.name}/KIND/{folders[0]}/"
        )
    strange = [name for name in names[1:] if name.casefold() in labels]
    if len(levels) > 1 or len(names) > 2 or strange:
        what = f"; {strange[0]!r} is a class" if strange else ""
        raise UserError(
            f"{image}: what are the folders {where}{what}? A kind, a severity and the name of a "
            f"photo are expected: {ADVICE}, also edited/KIND/SEVERITY/NAME"
        )
    kind = read_kind("/".join(names), str(image))
    if kind == RECONSTRUCTION and levels:
        raise UserError(f"{image}: a reconstruction changes nothing, and {where} says a severity")
    match = SEVERITY.fullmatch(levels[0]) if levels else None
    return kind, match[1] if match else ""


def _refuse_empty(read: Survey, edited: Path, labels: set[str | None]) -> None:
    """Refuse folders of a kind or a severity without an image: edits may be missing."""
    full = {folder for image in read.files for folder in image.parents}
    for folder in read.folders:
        of_edits = edited in folder.parents or folder in read.sides.controls
        if not of_edits or folder in full or folder.name in labels:
            continue
        unread = [
            name for name in read.others
            if (edited.parent / name).is_relative_to(folder)
            and name.lower().endswith(UNREAD_IMAGES)
        ]  # fmt: skip
        why = f", but {len(unread):,} of a format that is not read ({name_some(unread, 2)})"
        raise UserError(
            f"{folder} holds no image{why if unread else ''}: are edits missing? Add them, as .png "
            "or .jpg, or remove the folder"
        )
