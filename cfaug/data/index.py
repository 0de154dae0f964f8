"""A columnar index over any source: one row per image-text pair, memory-mapped, cached by content.

A row says where its image lies (file, offset, length) and holds its caption, so that a loader reads
one stretch of one file and nothing else, and a plan is made of integers.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from cfaug.data.importing import imported
from cfaug.data.progress import watched
from cfaug.data.sources import Reader, Row, detect, importer_of, unreadable
from cfaug.data.sources.row import NAMED_AT_ONCE
from cfaug.data.strings import GrowingStrings, Strings, mapped
from cfaug.errors import UserError

FORMAT = 2
NUMBERS = {
    "file": np.int32, "offset": np.int64, "length": np.int64, "sets": np.int64,
    "groups": np.uint64, "images": np.int64, "member": np.int32,
}  # fmt: skip
WORDS = ("texts", "keys", "labels", "files")
OPEN_FILES = 64
"""Files an index keeps open for reading, far below the usual limit of 1,024 a process."""


def group_code(group: str) -> int:
    """Return the 64-bit code of a group's name, the same in every source."""
    return int.from_bytes(hashlib.blake2b(group.encode(), digest_size=8).digest(), "little")


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
        source: a folder in any form ``cfaug.data.sources`` knows.
        cache: where indexes are kept.

    Raises:
        UserError: if the folder is missing or unreadable, nobody knows its form, or it holds
            something that must not be read; nothing is cached then.
    """
    path = Path(source).expanduser().resolve()
    importer = importer_of(path)
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
    if not (folder / "index.json").exists():
        _scan(_rows(reader, path), folder, kind=reader.kind, source=str(path))
    about = json.loads((folder / "index.json").read_text())
    return Index(folder, str(source), about["kind"], about["hash"])


def _rows(reader: Reader, path: Path) -> Iterator[Row]:
    try:
        yield from watched(reader.rows(path), reader.files(path), str(path))
    except OSError as error:
        raise unreadable(path, error) from error


def _scan(rows: Iterable[Row], folder: Path, *, kind: str, source: str) -> None:
    temporary = None
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
        digest = _write_columns(rows, temporary, source)
        about = {"format": FORMAT, "kind": kind, "source": source, "hash": digest}
        (temporary / "index.json").write_text(json.dumps(about))
        temporary.chmod(0o755)
        try:
            temporary.rename(folder)
        except OSError:  # another process was first; its index is the same
            if not (folder / "index.json").exists():
                raise
    except OSError as error:
        raise UserError(
            f"the index of {source} cannot be kept in {folder.parent}: {error}; "
            "free some space there, or choose another paths.cache"
        ) from error
    finally:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)


def _write_columns(rows: Iterable[Row], folder: Path, source: str) -> str:
    """Write every column and return the sha256 of the content."""
    table = _Table(source)
    digest = hashlib.sha256()
    for row in rows:
        table.add(row)
        digest.update(
            json.dumps([row.set, row.group, row.text, row.label, row.image_id, row.digest]).encode()
        )
    table.check()
    table.save(folder)
    return digest.hexdigest()


class _Table:
    """Columns as they grow; nothing is kept of a row but its numbers and its strings' bytes."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.numbers = {n: array("Q" if d is np.uint64 else "q") for n, d in NUMBERS.items()}
        self.words = {name: GrowingStrings() for name in WORDS}
        self._first_row = array("q")
        self._gap = ""
        self._set, self._file, self._member = "", "", 0
        self._images, self._images_before = dict[str, int](), 0

    def add(self, row: Row) -> None:
        try:
            self._add(row)
        except UnicodeEncodeError as error:
            raise UserError(f"{row.where}: a text that is not Unicode ({error.reason})") from error

    def _add(self, row: Row) -> None:
        if row.set != self._set or row.member == 0:
            self._first_row.append(len(self.numbers["sets"]))
            self.words["keys"].append(row.set)
            self._images_before += len(self._images)
            self._set, self._member, self._images = row.set, 0, {}
        if row.file != self._file:
            self.words["files"].append(row.file)
            self._file = row.file
        if row.member != self._member:
            self._gap = self._gap or f"{row.where}: the member before it in {row.set!r} is missing"
        image = self._images.setdefault(row.image_id, len(self._images))
        values = {
            "file": len(self.words["files"]) - 1, "offset": row.offset, "length": row.length,
            "sets": len(self._first_row) - 1, "groups": group_code(row.group),
            "images": self._images_before + image, "member": self._member,
        }  # fmt: skip
        self._member += 1
        for name, value in values.items():
            self.numbers[name].append(value)
        self.words["texts"].append(row.text)
        self.words["labels"].append(row.label or "")

    def check(self) -> None:
        """Refuse an empty table, a set with a gap, and a key that comes twice."""
        if not self._first_row:
            raise UserError(f"{self.source} holds no image-text pair")
        if self._gap:
            raise UserError(self._gap)
        keys = self.words["keys"].column()
        codes = np.fromiter((group_code(key) for key in keys), np.uint64, len(keys))
        order = np.argsort(codes, kind="stable")
        twice = np.flatnonzero(codes[order][1:] == codes[order][:-1])[:NAMED_AT_ONCE]
        if len(twice):
            raise UserError(
                "\n".join(
                    f"the key {keys[a]!r} comes twice: in {self._place(a)} and {self._place(b)}"
                    for a, b in zip(order[twice], order[twice + 1], strict=True)
                )
                + "\nkeys must be unique in a source; rename one or remove it"
            )

    def _place(self, set_number: int) -> str:
        files = self.words["files"].column()
        return files[self.numbers["file"][self._first_row[set_number]]]

    def save(self, folder: Path) -> None:
        for name, dtype in NUMBERS.items():
            np.save(folder / f"{name}.npy", np.array(self.numbers[name]).astype(dtype))
        for name, words in self.words.items():
            words.column().save(folder, name)
