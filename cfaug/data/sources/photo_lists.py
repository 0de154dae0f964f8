"""Shared code of readers for special forms of lists of texts about photos.

The source is the folder with the list, or the list itself, ``FOLDER/NAME.csv``, if there are
several. The photos are beside it, in ``images/`` and the like, or in a folder that
``paths.image_roots`` permits.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from cfaug.core.errors import UserError
from cfaug.core.files import check_link, visible_files
from cfaug.core.pixels import Digest
from cfaug.data.sources.folders import IMAGE_FOLDERS, file_digest, images_below, locate
from cfaug.data.sources.lists import LONGEST_LINE, Record, list_records
from cfaug.data.sources.row import Description, Reader, Row, files_identity

ENDINGS = (".csv", ".jsonl", ".tsv")
"""Extensions of such lists, which are all read line by line."""

FOLDERS = ("", "annotations", "data")
"""Folders in which the list may be."""


@dataclass(frozen=True)
class PhotoText:
    """A text about a photo.

    Attributes:
        label: the class of the text; ``None`` without one.
        extra: {name: value}, further values of the list, JSON.
    """

    text: str
    label: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    edited: bool = False


class PhotoList(Reader):
    """A reader of one form of such lists; a subclass recognises the form and yields the rows.

    Args:
        image_roots: absolute folders, besides the list's own, in which photos may lie.
    """

    has_parts = True
    kind: str
    form: str
    description: str

    def __init__(self, image_roots: Sequence[Path] = ()) -> None:
        self.image_roots = tuple(image_roots)

    def with_roots(self, image_roots: Sequence[Path]) -> PhotoList:
        """Return a reader of lists that may name photos in these folders."""
        return type(self)(image_roots)

    def is_form(self, record: Mapping[str, Any]) -> bool:
        """Return whether the first record of a list has this form."""
        raise NotImplementedError

    def open(self, path: Path) -> Iterator[Row]:
        """Yield every text with its photo, with the texts of a set adjacent."""
        raise NotImplementedError

    def left_out(self, path: Path) -> tuple[str, ...]:
        """Return phrases about content of the list that is not read; called after ``open``."""
        raise NotImplementedError

    def columns(self, path: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the columns that are read, and all columns."""
        raise NotImplementedError

    def recognises(self, path: Path) -> bool:
        """Return whether the path is such a list, or a folder with one or more."""
        return bool(self.lists(path))

    def lists(self, path: Path) -> list[Path]:
        """Return the lists of a folder, or the path if it is itself a list."""
        if path.is_file():
            return [path] if self._has_form(path) else []
        for folder in FOLDERS:
            home = path / folder
            # Names are checked first, because there may be a hundred thousand photos.
            names = os.listdir(home) if home.is_dir() else []
            lists = (home / name for name in names if name.lower().endswith(ENDINGS))
            files = [file for file in visible_files(lists) if self._has_form(file)]
            if files:
                return files
        return []

    def _has_form(self, file: Path) -> bool:
        if file.suffix.lower() not in ENDINGS or not file.is_file():
            return False
        try:
            return any(self.is_form(record) for _, record in islice(self.records(file), 1))
        except UserError:
            return False

    def records(self, file: Path) -> Iterator[Record]:
        """Yield (place, fields) for every line of a list; a cell may contain an image."""
        return list_records(file, LONGEST_LINE)

    def list_of(self, path: Path) -> Path:
        """Return the list to read."""
        files = self.lists(path)
        if len(files) > 1:
            raise UserError(f"{path} has several lists; name one of {', '.join(map(str, files))}")
        return files[0]

    def home(self, path: Path) -> Path:
        """Return the folder in which photos are searched: the list's, or the named one."""
        if path.is_dir():
            return path
        folder = path.parent
        return folder.parent if folder.name in FOLDERS[1:] else folder

    def files(self, path: Path) -> list[Path]:
        """Return every image below the folder."""
        return images_below(self.home(path))

    def describe(self, path: Path) -> Description:
        """Return which columns are read, and what is left out from the list."""
        used, there = self.columns(path)
        # A column without a name is pandas' index.
        described = Description.of_columns(used, (name for name in there if name))
        return Description(described.used, described.unused, self.left_out(path))

    def identity(self, path: Path) -> Any:
        """Return the list's and every image's name, size and time."""
        return files_identity([self.list_of(path), *self.files(path)])

    def photo(self, path: Path, name: str, where: str) -> Path:
        """Return the file of a photo that the list names."""
        return find_photo(self.home(path), name, where, self.image_roots)


def find_photo(
    home: Path,
    name: str,
    where: str,
    roots: Sequence[Path],
    folders: Sequence[str] = IMAGE_FOLDERS,
) -> Path:
    """Return the file of a photo that a list names, in its folder or in a permitted one.

    Args:
        home: the absolute path of the list's folder.
        name: the name of the photo in the list.
        where: the place of the name, for messages.
        roots: absolute folders, besides the list's own, in which photos may lie.
        folders: folders below each of these in which the photo may be.
    """
    file = _locate_photo(home, name, where, roots, folders)
    check_link(file, home, roots)
    return file


def _locate_photo(
    home: Path, name: str, where: str, roots: Sequence[Path], folders: Sequence[str]
) -> Path:
    try:
        return locate(home, name, where, roots, folders)
    except UserError as error:
        missing = error
    for root in roots:
        with suppress(UserError):
            return locate(root, name, where, folders=folders)
    raise UserError(
        f"{missing}. Photos in another folder: name it: 'paths.image_roots=[FOLDER]'"
    ) from missing


def rows_of(
    key: str, group: str, file: Path, texts: Sequence[PhotoText], digest: Digest | None = None
) -> Iterator[Row]:
    """Check a photo and yield it with each of its texts.

    Args:
        group: the photo's name in every source.
        digest: the digest of a photo that was checked before; ``None`` checks it.
    """
    digest, length = digest or file_digest(file), file.stat().st_size
    for number, one in enumerate(texts):
        yield Row(
            set=key, member=number, group=group, text=one.text, label=one.label, image_id=key,
            file=str(file), offset=0, length=length, digest=digest, where=str(file),
            edited=one.edited, extra=one.extra,
        )  # fmt: skip
