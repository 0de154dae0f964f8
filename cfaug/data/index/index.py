"""A columnar index over any source: one row per image-text pair, memory-mapped, cached by content.

A row says where its image lies (file, offset, length) and holds its caption, so that a loader reads
one stretch of one file and nothing else, and a plan is made of integers.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from cfaug.data.index.disk_format import (
    ABOUT,
    FORMAT,
    DamagedError,
    check_words,
    is_current,
    read_about,
    write_index,
)
from cfaug.data.index.progress import show_progress
from cfaug.data.index.reading import Reading
from cfaug.data.index.string_column import Strings, map_column
from cfaug.data.index.table import DIGESTS, NEGATIVES, WORDS
from cfaug.data.sources import Reader, Row, detect, importer_of, split_folder, unreadable_error
from cfaug.data.sources.importing import import_folder
from cfaug.data.sources.row import IMAGES, Description, content_digest
from cfaug.errors import UserError
from cfaug.files import whole_folder
from cfaug.messages import say

OPEN_FILES = 64
"""Files an index keeps open for reading, far below the usual limit of 1,024 a process."""


_SENT = ("folder", "source", "kind", "hash", "earlier")
"""What a worker gets of an index."""


class _Handle:
    """An open file, closed when the last thread that reads from it has let go."""

    def __init__(self, file: str) -> None:
        self.number = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)

    def __del__(self) -> None:
        if hasattr(self, "number"):
            os.close(self.number)


@dataclass(frozen=True)
class Index:
    """An open index; cheap to send to a worker, which maps the same files again.

    Attributes:
        folder: where the columns lie.
        source: what was indexed, as the user named it.
        kind: how it was read.
        hash: of the content, whatever the path.
        earlier: the same by the rule of indexes before, which runs made then are identified by.
        reading: what was recognised of the source; not sent to workers.
    """

    folder: Path
    source: str
    kind: str
    hash: str
    earlier: str = ""
    reading: Reading | None = None

    def __len__(self) -> int:
        return len(self.sets)

    @cached_property
    def sets(self) -> np.ndarray:
        """Number of each row's set, int64; the rows of a set are adjacent."""
        return map_column(self.folder / "sets.npy")

    @cached_property
    def groups(self) -> np.ndarray:
        """Code of each row's group, uint64; equal names have equal codes in every source."""
        return map_column(self.folder / "groups.npy")

    @cached_property
    def images(self) -> np.ndarray:
        """Number of each row's image, int64; rows that share an image share it."""
        return map_column(self.folder / "images.npy")

    @cached_property
    def digests(self) -> np.ndarray:
        """Digest of each image's bytes, all of them, uint8 (images, 16), by the image's number."""
        return map_column(self.folder / f"{DIGESTS}.npy")

    @cached_property
    def contents(self) -> np.ndarray:
        """Code of each row's image by its bytes, uint64; equal ones are equal in every source."""
        codes = np.ascontiguousarray(self.digests[:, :8]).view("<u8").reshape(-1)
        return codes.astype(np.uint64)[self.images]

    @cached_property
    def files(self) -> np.ndarray:
        """Number of the file each row's image lies in, int32."""
        return map_column(self.folder / "file.npy")

    @cached_property
    def _column(self) -> dict[str, np.ndarray]:
        names = ("offset", "length", "member")
        return {name: map_column(self.folder / f"{name}.npy") for name in names}

    @cached_property
    def _words(self) -> dict[str, Strings]:
        return {name: Strings.load(self.folder, name) for name in WORDS}

    @cached_property
    def _handles(self) -> dict[int, _Handle]:
        return {}

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _SENT}

    def text(self, row: int) -> str:
        """Return a row's caption."""
        return self._words["texts"][row]

    def key(self, row: int) -> str:
        """Return ``<set>_<member>``."""
        return f"{self._words['keys'][int(self.sets[row])]}_{int(self._column['member'][row])}"

    @cached_property
    def _negatives(self) -> Strings | None:
        there = (self.folder / f"{NEGATIVES}.offsets.npy").is_file()
        return Strings.load(self.folder, NEGATIVES) if there else None

    @property
    def has_negatives(self) -> bool:
        """Whether any row has captions without an image beside it."""
        return self._negatives is not None

    def negatives(self, row: int) -> list[str]:
        """Return captions that are wrong about a row's image and have none of their own."""
        if self._negatives is None:
            return []
        found: list[str] = json.loads(self._negatives[row] or "[]")
        return found

    def label(self, row: int) -> str | None:
        """Return a row's class name, where it has one."""
        return self._words["labels"][row] or None

    def file_name(self, row: int) -> str:
        """Return the path of the file a row's image lies in."""
        return self._words["files"][int(self.files[row])]

    def image_name(self, row: int) -> str:
        """Name a row's image for a message: the file, and the key within it."""
        return f"{self.file_name(row)} ({self.key(row)})"

    def read_image(self, row: int) -> bytes:
        """Return a row's encoded image: one read of one stretch of one file; threads may share it.

        Raises:
            UserError: if the file is gone or holds something else than when it was indexed.
        """
        offset, length = int(self._column["offset"][row]), int(self._column["length"][row])
        try:
            handle = self._handle(int(self.files[row]))
            data = os.pread(handle.number, length, offset)
        except OSError as error:
            raise UserError(f"{self.image_name(row)} cannot be read: {error.strerror}") from error
        if content_digest(data) != self.digests[self.images[row]].tobytes():
            raise UserError(
                f"{self.image_name(row)}: the file changed since it was indexed; if it is as it "
                f"should be, remove the index {self.folder} and run the same command again"
            )
        return data

    def _handle(self, file: int) -> _Handle:
        handle = self._handles.get(file)
        if handle is None:
            handle = self._handles[file] = _Handle(self._words["files"][file])
            for oldest in list(self._handles)[:-OPEN_FILES]:
                self._handles.pop(oldest, None)
        return handle


def open_index(source: str | Path, cache: Path, image_roots: Sequence[Path] = ()) -> Index:
    """Open the index of a source, scanning it if this content was not scanned before.

    An index in the cache that is damaged is made again, which is said on stderr.

    Args:
        source: a folder in any form ``cfaug.data.sources`` knows; or the folder of an index, which
            plans without its images being there, on a login node say.
        cache: where indexes are kept.
        image_roots: absolute folders in which a list of images may name some, beside its own.

    Raises:
        UserError: if the folder is missing or unreadable, nobody knows its form, or it holds
            something that must not be read; nothing is cached then. If it is an index and damaged.
    """
    path = split_folder(Path(source).expanduser().resolve())
    importer = importer_of(path)
    if (path / ABOUT).is_file():
        return _named(path, source)
    if importer is not None:
        shards = _read(
            import_folder(importer, path, cache), source, cache, (), (path, importer.form)
        )
        reading = shards.reading
        if reading is not None:
            reading = replace(reading, kind=importer.kind, form=importer.form)
        return replace(shards, kind=importer.kind, reading=reading)
    return _read(path, source, cache, image_roots)


def _read(
    path: Path,
    source: str | Path,
    cache: Path,
    image_roots: Sequence[Path],
    origin: tuple[Path, str] | None = None,
) -> Index:
    """Open or make the index of a folder that is read where it lies.

    Args:
        path: the folder.
        source: as the user named it.
        cache: where indexes are kept.
        image_roots: as for ``open_index``.
        origin: of imported shards, the folder they were made of and its form, for messages.
    """
    reader = detect(path, image_roots)
    try:
        identity = reader.identity(path)
    except OSError as error:
        raise unreadable_error(path, error) from error
    name = hashlib.sha256(
        json.dumps([FORMAT, reader.kind, str(path), identity], sort_keys=True).encode()
    ).hexdigest()[:32]
    folder = cache.expanduser().resolve() / name
    if folder.exists():
        try:
            index = _opened(folder, source)
            if is_current(folder):
                return index
        except DamagedError as error:
            say(f"the index of {path} in {folder} is damaged ({error}): it is made again")
    _scan(reader, path, folder, origin or (path, reader.form))
    return _opened(folder, source)


def _opened(folder: Path, source: str | Path) -> Index:
    about = read_about(folder)
    return Index(folder, str(source), about.kind, about.hash, about.earlier, about.reading)


def _named(folder: Path, source: str | Path) -> Index:
    """Open an index that was named itself, which nobody can make again."""
    try:
        index = _opened(folder, source)
        check_words(folder)
        return index
    except DamagedError as error:
        raise UserError(
            f"{folder} is no index that can be read: {error}; make or copy it again"
        ) from error


def _rows(reader: Reader, path: Path) -> Iterator[Row]:
    try:
        yield from show_progress(reader.rows(path), reader.files(path), str(path))
    except OSError as error:
        raise unreadable_error(path, error) from error


def _described(reader: Reader, path: Path, written: Path) -> Description:
    """Return what the reader says of a source, and the images there that no row shows."""
    seen = set(Strings.load(written, "files"))
    images = (str(file) for file in reader.files(path) if file.name.lower().endswith(IMAGES))
    others = sum(image not in seen for image in images)
    described = reader.describe(path)
    if not others:
        return described
    return replace(described, left_out=(*described.left_out, f"{others:,} other images"))


def _scan(reader: Reader, path: Path, folder: Path, origin: tuple[Path, str]) -> None:
    """Scan a source into ``folder``, in the place of what lies there."""
    source, form = origin

    def whole(there: Path) -> bool:
        try:
            read_about(there)
            return is_current(there)
        except DamagedError:
            return False

    try:
        with whole_folder(folder, whole) as temporary:
            write_index(
                _rows(reader, path), temporary, kind=reader.kind, source=str(source),
                form=form, describe=lambda: _described(reader, path, temporary),
            )  # fmt: skip
    except OSError as error:
        raise UserError(
            f"the index of {path} cannot be kept in {folder.parent}: {error}; "
            "free some space there, or choose another paths.cache"
        ) from error
