"""The disk format of an index: its columns, their description in ``index.json``, and checksums."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from cfaug.core.errors import UserError
from cfaug.core.files import checksum
from cfaug.data.index.extra_columns import EXTRA, MOST_COLUMNS
from cfaug.data.index.reading import RowCounts, ScanReport
from cfaug.data.index.string_column import Strings, map_column
from cfaug.data.index.table import DIGESTS, NEGATIVES, NUMBERS, WORDS, write_columns
from cfaug.data.sources import Row
from cfaug.data.sources.image_check import DIGEST_BYTES
from cfaug.data.sources.released import MAX_BYTES
from cfaug.data.sources.row import Description

FORMAT = 4
"""Format 3 had no extra columns and no names of groups; format 2 no digests of whole images, no
checksums, and the content's hash by the older rule."""

READABLE = (3, 4)
"""Readable formats of an index that the user names; an older index in a cache is remade."""

ABOUT = "index.json"
NEGATIVE_FILES = tuple(f"{NEGATIVES}.{part}.npy" for part in ("blob", "offsets"))

SEEN = "seen"
"""The column with size and time of each file of images, int64 (files, 2)."""


class DamagedError(UserError):
    """A damaged index; the message describes the damage."""


@dataclass(frozen=True)
class IndexDescription:
    """The content of ``index.json``.

    Attributes:
        kind: the kind of the reader, such as ``shards``.
        hash: the hash of the content.
        earlier: the hash of the content by the rule of format 2.
        reading: the form, columns and counts that were recognised in the source.
    """

    kind: str
    hash: str
    earlier: str
    reading: ScanReport


def write_index(
    rows: Iterable[Row],
    folder: Path,
    *,
    kind: str,
    source: str,
    form: str | None = None,
    describe: Callable[[], Description] = Description,
) -> None:
    """Write the index of rows into an existing folder.

    Args:
        rows: the rows, in order; members of a set follow each other.
        folder: the folder to write to, which must exist.
        kind: the kind of the reader, such as ``shards``.
        source: the name of the rows' source.
        form: a description of the source's form; ``None`` is ``kind``.
        describe: a function that returns the reader's description of the source, called after all
            rows are written.

    Raises:
        UserError: if there are no rows, a set has a gap, a key is duplicated, or the rows were
            evidently misread.
    """
    tally, form = RowCounts(), form or kind
    content = write_columns(tally.count(rows), folder, source)
    tally.check(source, form)
    np.save(folder / f"{SEEN}.npy", _seen(Strings.load(folder, "files")))
    described = describe()
    if content.columns_dropped:
        many = f"{content.columns_dropped:,} columns beyond the first {MOST_COLUMNS}"
        described = replace(described, left_out=(*described.left_out, many))
    files = sorted([*folder.glob("*.npy"), *folder.glob(EXTRA)])
    about = {
        "format": FORMAT, "kind": kind, "source": source, "hash": content.hash,
        "earlier": content.earlier,
        "reading": tally.reading(kind, form, described, content.extra).json(),
        "checks": {file.name: checksum(file) for file in files},
    }  # fmt: skip
    (folder / ABOUT).write_text(json.dumps({**about, "check": _check_of(about)}), encoding="utf-8")


def _check_of(about: Mapping[str, Any]) -> int:
    """Return the checksum of an index's description, without the checksum itself."""
    rest = {name: value for name, value in about.items() if name != "check"}
    return zlib.crc32(json.dumps(rest, sort_keys=True).encode())


def read_about(folder: Path) -> IndexDescription:
    """Return an index's description, after verifying every byte that plans and loaders read.

    Raises:
        DamagedError: if a file is missing, unreadable or changed.
    """
    try:
        about: Any = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
        if about["format"] not in READABLE:
            raise DamagedError(f"it is of format {about['format']}, not {FORMAT}")
        if _check_of(about) != about["check"]:
            raise DamagedError(f"{ABOUT} was changed since it was written")
        checks: dict[str, int] = about["checks"]
        for name in (*column_files(), *(file for file in NEGATIVE_FILES if file in checks)):
            if checksum(folder / name) != checks[name]:
                raise DamagedError(f"{name} was changed since it was written")
        columns = {name: map_column(folder / f"{name}.npy") for name in NUMBERS}
        words = {name: len(Strings.load(folder, name)) for name in WORDS}
        if any(file in checks for file in NEGATIVE_FILES):
            words[NEGATIVES] = len(Strings.load(folder, NEGATIVES))
        digests = map_column(folder / f"{DIGESTS}.npy")
        if not _fits(columns, words, digests):
            raise DamagedError("its columns do not fit each other")
        reading = ScanReport.of_json(about["reading"])
        return IndexDescription(
            str(about["kind"]), str(about["hash"]), str(about["earlier"]), reading
        )
    except (OSError, ValueError, KeyError, TypeError, EOFError, RecursionError) as error:
        raise DamagedError(f"it cannot be read: {error!r}") from error


def check_file(folder: Path, name: str) -> None:
    """Verify the checksum of one file that ``read_about`` skips, at its first reading.

    Raises:
        DamagedError: if the file was changed.
    """
    checks = json.loads((folder / ABOUT).read_text(encoding="utf-8"))["checks"]
    try:
        if checksum(folder / name) == checks[name]:
            return
    except (OSError, KeyError) as error:
        raise DamagedError(f"{name} cannot be read: {error!r}") from error
    raise DamagedError(f"{name} was changed since it was written")


def check_words(folder: Path) -> None:
    """Refuse an index from elsewhere with invalid strings: anyone can compute checksums.

    Raises:
        DamagedError: if a column has invalid strings, naming it.
    """
    there = [NEGATIVES] if (folder / NEGATIVE_FILES[0]).is_file() else []
    for name in (*WORDS, *there):
        try:
            column = Strings.load(folder, name)
            column.check()
        except (OSError, ValueError, EOFError) as error:
            raise DamagedError(f"{name} are not texts: {error}") from error


def is_current(folder: Path) -> bool:
    """Return whether every file of an index's images still has its size and modification time.

    This covers files with any name and place; a reader's identity covers only those with the usual
    extensions.
    """
    seen = map_column(folder / f"{SEEN}.npy")
    return np.array_equal(seen, _seen(Strings.load(folder, "files")))


def _seen(files: Iterable[str]) -> np.ndarray:
    return np.array([_stat(file) for file in files], np.int64).reshape(-1, 2)


def _stat(file: str) -> tuple[int, int]:
    try:
        found = os.stat(file)
    except OSError:
        return -1, -1
    return found.st_size, found.st_mtime_ns


def column_files() -> list[str]:
    """Return the names of all files of columns."""
    numbers = [f"{name}.npy" for name in (*NUMBERS, DIGESTS, SEEN)]
    return numbers + [f"{name}.{part}.npy" for name in WORDS for part in ("blob", "offsets")]


def _fits(columns: Mapping[str, np.ndarray], words: Mapping[str, int], digests: np.ndarray) -> bool:
    """Return whether every column has all rows, and every reference is within bounds."""
    rows = words["texts"]
    if not rows or words["labels"] != rows or words.get(NEGATIVES, rows) != rows:
        return False
    for name, column in columns.items():
        if column.shape != (rows,) or column.dtype != NUMBERS[name]:
            return False
    sets, files, length = columns["sets"], columns["file"], columns["length"]
    images = columns["images"]
    return bool(
        sets[0] == 0
        and sets[-1] + 1 == words["keys"]
        and np.isin(np.diff(sets), (0, 1)).all()
        and 0 <= files.min() <= files.max() < words["files"]
        and 0 <= length.min() <= length.max() <= MAX_BYTES
        and columns["offset"].min() >= 0
        and digests.dtype == np.uint8
        and digests.shape == (int(images.max()) + 1, DIGEST_BYTES)
        and images.min() >= 0
    )
