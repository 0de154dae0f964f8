"""The photos that a list of items names: found, checked once each, and cropped to their boxes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath

from cfaug.core.errors import UserError
from cfaug.core.files import require_regular
from cfaug.core.pixels import MAX_PIXELS, open_image
from cfaug.data.sources.compositional.item import Box, ItemForm, ItemPhoto
from cfaug.data.sources.folders import IMAGE_FOLDERS, file_digest, locate
from cfaug.data.sources.image_check import CHUNK, Digest
from cfaug.data.sources.released import MAX_BYTES


class MissingPhotoError(UserError):
    """A missing photo; the message names it and its record."""


class EmptyBoxError(UserError):
    """A box outside its photo, or far too large; the message names it."""


@dataclass(frozen=True)
class FoundPhoto:
    """A photo that was found.

    Attributes:
        file: the absolute path of the file.
        length: the size of the file in bytes.
        digest: the digest of the visible part.
        is_padded: whether the box reaches beyond the photo.
    """

    file: Path
    length: int
    digest: Digest
    is_padded: bool = False


class PhotoFinder:
    """Finds the photos of a source, and checks each once.

    Args:
        path: the absolute path of the source's folder.
        form: the form of the source, which defines the folders of photos.
        roots: further absolute folders in which photos may be.
    """

    def __init__(self, path: Path, form: ItemForm, roots: Sequence[Path] = ()) -> None:
        # A list cannot choose a folder: in folders beside its own only plain names are searched.
        near = [up / name for up in (path.parent, path.parent.parent) for name in form.beside]
        homes = (path, *(folder for folder in near if folder.is_dir()), *roots)
        inside = (*IMAGE_FOLDERS, *form.folders)
        folders = (home / name for home in homes for name in inside)
        self._folders = [str(one) for one in dict.fromkeys(folders) if one.is_dir()]
        self._path, self._roots = path, tuple(roots)
        self._files: dict[tuple[str, ...], Path] = {}
        self._checked: dict[Path, tuple[int, Digest]] = {}
        self._sizes: dict[Path, tuple[int, int]] = {}

    def file(self, photo: ItemPhoto, where: str) -> Path:
        """Return the file of a photo, without reading it.

        Raises:
            MissingPhotoError: if it is not found.
            UserError: if its name leads out of the permitted folders.
        """
        if photo.names not in self._files:
            self._files[photo.names] = self._find(photo.names, where)
        return self._files[photo.names]

    def _find(self, names: Sequence[str], where: str) -> Path:
        for name in names:
            plain = PurePath(name)
            if plain.is_absolute() or ".." in plain.parts:
                return locate(self._path, name, where, self._roots)
            for folder in self._folders:
                if os.path.isfile(found := f"{folder}/{name}"):
                    return Path(os.path.normpath(found))
        raise MissingPhotoError(f"{where}: there is no photo {names[0]!r}")

    def found(self, photo: ItemPhoto, where: str) -> FoundPhoto:
        """Return a photo, after reading and checking its file.

        Raises:
            MissingPhotoError: if it is not found, or is not an image that can be read.
            EmptyBoxError: if its box is outside the photo, or far too large.
            UserError: if its name leads out of the permitted folders.
        """
        file = self.file(photo, where)
        try:
            if file not in self._checked:
                length = file.stat().st_size
                if length > MAX_BYTES:
                    raise UserError(f"{file}: {length} bytes are too many; at most {MAX_BYTES}")
                self._checked[file] = length, file_digest(file)
            length, digest = self._checked[file]
            if photo.box is None:
                return FoundPhoto(file, length, digest)
            width, height = self._size(file)
        except UserError as error:
            raise MissingPhotoError(f"{where}: {error}") from error
        left, top, right, bottom = photo.box
        if (right - left) * (bottom - top) > MAX_PIXELS:
            raise EmptyBoxError(f"{where}: the box has more than {MAX_PIXELS} pixels")
        if min(right, width) <= max(left, 0) or min(bottom, height) <= max(top, 0):
            raise EmptyBoxError(
                f"{where}: the box {left}, {top} to {right}, {bottom} shows nothing of {file.name} "
                f"({width} x {height} pixels)"
            )
        padded = left < 0 or top < 0 or right > width or bottom > height
        return FoundPhoto(file, length, digest.of_box(photo.box), padded)

    def _size(self, file: Path) -> tuple[int, int]:
        if file not in self._sizes:
            with require_regular(file).open("rb") as handle:
                head = handle.read(CHUNK)
            self._sizes[file] = open_image(head, str(file)).size
        return self._sizes[file]


def box_of(left: int, top: int, width: int, height: int) -> Box:
    """Return the box of a corner and a size.

    >>> box_of(10, 20, 30, 40)
    (10, 20, 40, 60)
    """
    return left, top, left + width, top + height
