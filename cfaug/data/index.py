"""A columnar index over any source: one row per image-text pair, memory-mapped, cached by content.

A row says where its image lies (file, offset, length) and holds its caption, so that a loader reads
one stretch of one file and nothing else, and a plan is made of integers.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from cfaug.data.importing import imported
from cfaug.data.progress import watched
from cfaug.data.sources import Reader, Row, detect, importer_of, split_folder, unreadable
from cfaug.data.sources.released import MAX_BYTES
from cfaug.data.strings import Strings, mapped
from cfaug.data.table import NUMBERS, WORDS, write_columns
from cfaug.errors import UserError
from cfaug.files import whole_folder

FORMAT = 2
ABOUT = "index.json"
OPEN_FILES = 64
"""Files an index keeps open for reading, far below the usual limit of 1,024 a process."""


class _Handle:
    """An open file, closed when the last thread that reads from it has let go."""

    def __init__(self, file: str) -> None:
        self.number = os.open(file, os.O_RDONLY | os.O_CLOEXEC)

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
        hash: sha256 of the content, whatever the path.
    """

    folder: Path
    source: str
    kind: str
    hash: str

    def __len__(self) -> int:
        return len(self.sets)

    @cached_property
    def sets(self) -> np.ndarray:
        """Number of each row's set, int64; the rows of a set are adjacent."""
        return mapped(self.folder / "sets.npy")

    @cached_property
    def groups(self) -> np.ndarray:
        """Code of each row's group, uint64; equal names have equal codes in every source."""
        return mapped(self.folder / "groups.npy")

    @cached_property
    def images(self) -> np.ndarray:
        """Number of each row's image, int64; rows that share an image share it."""
        return mapped(self.folder / "images.npy")

    @cached_property
    def files(self) -> np.ndarray:
        """Number of the file each row's image lies in, int32."""
        return mapped(self.folder / "file.npy")

    @cached_property
    def _column(self) -> dict[str, np.ndarray]:
        names = ("offset", "length", "member")
        return {name: mapped(self.folder / f"{name}.npy") for name in names}

    @cached_property
    def _words(self) -> dict[str, Strings]:
        return {name: Strings.load(self.folder, name) for name in WORDS}

    @cached_property
    def _handles(self) -> dict[int, _Handle]:
        return {}

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("folder", "source", "kind", "hash")}

    def text(self, row: int) -> str:
        """Return a row's caption."""
        return self._words["texts"][row]

    def key(self, row: int) -> str:
        """Return ``<set>_<member>``."""
        return f"{self._words['keys'][int(self.sets[row])]}_{int(self._column['member'][row])}"

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
            UserError: if the file is gone or shorter than when it was indexed.
        """
        offset, length = int(self._column["offset"][row]), int(self._column["length"][row])
        try:
            handle = self._handle(int(self.files[row]))
            data = os.pread(handle.number, length, offset)
        except OSError as error:
            raise UserError(f"{self.image_name(row)} cannot be read: {error.strerror}") from error
        if len(data) != length:
            raise UserError(f"{self.image_name(row)}: the file changed since it was indexed")
        return data

    def _handle(self, file: int) -> _Handle:
        handle = self._handles.get(file)
        if handle is None:
            handle = self._handles[file] = _Handle(self._words["files"][file])
            for oldest in list(self._handles)[:-OPEN_FILES]:
                self._handles.pop(oldest, None)
        return handle


def open_index(source: str | Path, cache: Path) -> Index:
    """Open the index of a source, scanning it if this content was not scanned before.

    Args:
        source: a folder in any form ``cfaug.data.sources`` knows; or the folder of an index, which
            plans without its images being there, on a login node say.
        cache: where indexes are kept.

    Raises:
        UserError: if the folder is missing or unreadable, nobody knows its form, or it holds
            something that must not be read; nothing is cached then.
    """
    path = split_folder(Path(source).expanduser().resolve())
    importer = importer_of(path)
    if (path / ABOUT).is_file():
        return _stored(path, source)
    if importer is not None:
        shards = open_index(imported(importer, path, cache), cache)
        return replace(shards, source=str(source), kind=importer.kind)
    reader = detect(path)
    try:
        identity = reader.identity(path)
    except OSError as error:
        raise unreadable(path, error) from error
    name = hashlib.sha256(
        json.dumps([FORMAT, reader.kind, str(path), identity], sort_keys=True).encode()
    ).hexdigest()[:32]
    folder = cache.expanduser().resolve() / name
    if not (folder / ABOUT).exists():
        _scan(_rows(reader, path), folder, kind=reader.kind, source=str(path))
    about = json.loads((folder / ABOUT).read_text())
    return Index(folder, str(source), about["kind"], about["hash"])


def _stored(folder: Path, source: str | Path) -> Index:
    """Open an index that was named itself, after a look at its columns."""
    try:
        about = json.loads((folder / ABOUT).read_text())
        if about["format"] != FORMAT:
            raise UserError(f"{folder}: an index of format {about['format']}, not {FORMAT}")
        index = Index(folder, str(source), str(about["kind"]), str(about["hash"]))
        columns = {name: mapped(folder / f"{name}.npy") for name in NUMBERS}
        words = {name: len(Strings.load(folder, name)) for name in WORDS}
        fits = _fits(columns, words)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{folder} is no index that can be read: {error!r}") from error
    if not fits:
        raise UserError(f"{folder} is no index: its columns do not fit each other; copy it again")
    return index


def _fits(columns: Mapping[str, np.ndarray], words: Mapping[str, int]) -> bool:
    """Say whether every column has every row, and points at what is there."""
    rows = words["texts"]
    if not rows or words["labels"] != rows:
        return False
    for name, column in columns.items():
        if column.shape != (rows,) or column.dtype != NUMBERS[name]:
            return False
    sets, files, length = columns["sets"], columns["file"], columns["length"]
    return bool(
        sets[0] == 0
        and sets[-1] + 1 == words["keys"]
        and np.isin(np.diff(sets), (0, 1)).all()
        and 0 <= files.min() <= files.max() < words["files"]
        and 0 <= length.min() <= length.max() <= MAX_BYTES
        and columns["offset"].min() >= 0
    )


def _rows(reader: Reader, path: Path) -> Iterator[Row]:
    try:
        yield from watched(reader.rows(path), reader.files(path), str(path))
    except OSError as error:
        raise unreadable(path, error) from error


def _scan(rows: Iterable[Row], folder: Path, *, kind: str, source: str) -> None:
    try:
        with whole_folder(folder, ABOUT) as temporary:
            digest = write_columns(rows, temporary, source)
            about = {"format": FORMAT, "kind": kind, "source": source, "hash": digest}
            (temporary / ABOUT).write_text(json.dumps(about))
    except OSError as error:
        raise UserError(
            f"the index of {source} cannot be kept in {folder.parent}: {error}; "
            "free some space there, or choose another paths.cache"
        ) from error
