"""The images of a question set: named files, and encoded bytes in a table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from cfaug.core.errors import UserError
from cfaug.core.files import require_regular
from cfaug.data.sources.folders import IMAGE_FOLDERS
from cfaug.data.sources.image_check import content_digest
from cfaug.data.sources.photo_lists import find_photo
from cfaug.data.sources.released import MAX_BYTES, require_image


@dataclass(frozen=True)
class FileImage:
    """An image in its own file: a ``cfaug.core.types.SourceImage``.

    Attributes:
        file: the absolute path of the file.
    """

    file: Path

    @cached_property
    def digest(self) -> str:
        """The digest of all bytes, hexadecimal; the file is read once."""
        return content_digest(self._load()).hex()

    def read(self) -> bytes:
        """Return the file.

        Raises:
            UserError: if it is missing, too large, not an image, or was replaced since it was first
                read.
        """
        data = self._load()
        found = content_digest(data).hex()
        if self.__dict__.setdefault("digest", found) != found:
            raise UserError(f"{self.file} was replaced while its questions were asked: start again")
        return data

    def _load(self) -> bytes:
        try:
            if (size := require_regular(self.file).stat().st_size) > MAX_BYTES:
                raise UserError(f"{self.file}: {size} bytes are too many; at most {MAX_BYTES}")
            return require_image(self.file.read_bytes(), str(self.file))
        except OSError as error:
            raise UserError(f"{self.file} cannot be read: {error.strerror}") from error


@dataclass(frozen=True)
class EmbeddedImage:
    """An encoded image inside another file: a ``cfaug.core.types.SourceImage``, loaded on demand.

    Attributes:
        name: the place of the image, for messages; equal only for equal images.
        load: a function that returns the encoded image.
        drawn: whether the name determines the image, as for one that is rendered by rules.
    """

    name: str
    load: Callable[[], bytes] = field(compare=False, repr=False)
    drawn: bool = field(default=False, compare=False, repr=False)

    @cached_property
    def digest(self) -> str:
        """The digest of all bytes, hexadecimal; the image is loaded once."""
        return content_digest(self.read()).hex()

    def read(self) -> bytes:
        """Return the encoded image.

        Raises:
            UserError: if it is missing, too large or not an image.
        """
        return require_image(self.load(), self.name)


@dataclass(frozen=True)
class PhotoFiles:
    """Finds the files of images that a list names.

    Attributes:
        home: the absolute path of the list's folder.
        roots: further absolute folders in which images may be.
        folders: folders below ``home`` or a root that are searched as well.
    """

    home: Path
    roots: tuple[Path, ...] = ()
    folders: tuple[str, ...] = ()

    def find(self, name: str, where: str) -> FileImage:
        """Return an image, which must exist, without reading it.

        Args:
            name: the name of the image in the list.
            where: the place of the name, for messages.

        Raises:
            UserError: if the image is missing, or leads out of the permitted folders, naming
                ``where``.
        """
        folders = (*IMAGE_FOLDERS, *self.folders)
        return FileImage(find_photo(self.home, name, where, self.roots, folders))
