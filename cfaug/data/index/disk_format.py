"""An index on the disk: its columns, what ``index.json`` says of them, and their checksums."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from cfaug.data.index.extra_columns import EXTRA, MOST_COLUMNS
from cfaug.data.index.reading import Reading, Tally
from cfaug.data.index.string_column import Strings, map_column
from cfaug.data.index.table import DIGESTS, NEGATIVES, NUMBERS, WORDS, write_columns
from cfaug.data.sources import Row
from cfaug.data.sources.image_check import DIGEST_BYTES
from cfaug.data.sources.released import MAX_BYTES
from cfaug.data.sources.row import Description
from cfaug.errors import UserError
from cfaug.files import checksum

FORMAT = 4
"""3 had no extra columns and no names of groups; 2 no digests of whole images, no checksums, and
the content's hash by the older rule."""

READABLE = (3, 4)
"""Formats of an index that is named itself; one in a cache is made again in the present format."""

ABOUT = "index.json"
NEGATIVE_FILES = tuple(f"{NEGATIVES}.{part}.npy" for part in ("blob", "offsets"))

SEEN = "seen"
"""The column of size and time of each file that holds images, int64 (files, 2)."""


class DamagedError(UserError):
    """An index that is damaged; the message says how."""


@dataclass(frozen=True)
class About:
    """What ``index.json`` says.

    Attributes:
        kind: how the source was read.
        hash: of the content.
        earlier: hash of the content by the rule of format 2.
        reading: what was recognised.
    """

    kind: str
    hash: str
    earlier: str
    reading: Reading


def write_index(
    rows: Iterable[Row],
    folder: Path,
    *,
    kind: str,
    source: str,
    form: str | None = None,
    describe: Callable[[], Description] = Description,
) -> None:
    """Write the index of rows into a folder that is there.

    Args:
        rows: in order; members of a set follow each other.
        folder: must exist.
        kind: how the source is read.
        source: what the rows are of.
        form: how it is read, in words; ``None`` is ``kind``.
        describe: gives what the reader says beside; asked when all rows are written.

    Raises:
        UserError: if there is no row, a set has a gap, a key is duplicated, or the rows can only
            have been read by mistake.
    """
    tally, form = Tally(), form or kind
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
    (folder / ABOUT).write_text(json.dumps({**about, "check": _check_of(about)}))


def _check_of(about: Mapping[str, Any]) -> int:
    """Return the checksum of what an index says of itself, but for the checksum."""
    rest = {name: value for name, value in about.items() if name != "check"}
    return zlib.crc32(json.dumps(rest, sort_keys=True).encode())


def read_about(folder: Path) -> About:
    """Return what an index says of itself, after a look at every byte that plans and loaders read.

    Raises:
        DamagedError: if a file is missing, unreadable, or not what was written.
    """
    try:
        about: Any = json.loads((folder / ABOUT).read_text())
        if about["format"] not in READABLE:
            raise DamagedError(f"it is of format {about['format']}, not {FORMAT}")
        if _check_of(about) != about["check"]:
            raise DamagedError(f"{ABOUT} is not what was written")
        checks: dict[str, int] = about["checks"]
        for name in (*column_files(), *(file for file in NEGATIVE_FILES if file in checks)):
            if checksum(folder / name) != checks[name]:
                raise DamagedError(f"{name} is not what was written")
        columns = {name: map_column(folder / f"{name}.npy") for name in NUMBERS}
        words = {name: len(Strings.load(folder, name)) for name in WORDS}
        if any(file in checks for file in NEGATIVE_FILES):
            words[NEGATIVES] = len(Strings.load(folder, NEGATIVES))
        digests = map_column(folder / f"{DIGESTS}.npy")
        if not _fits(columns, words, digests):
            raise DamagedError("its columns do not fit each other")
        reading = Reading.of_json(about["reading"])
        return About(str(about["kind"]), str(about["hash"]), str(about["earlier"]), reading)
    except (OSError, ValueError, KeyError, TypeError, EOFError, RecursionError) as error:
        raise DamagedError(f"it cannot be read: {error!r}") from error


def check_file(folder: Path, name: str) -> None:
    """Check one file that ``read_about`` passes over against its checksum, at its first reading.

    Raises:
        DamagedError: if it is not what was written.
    """
    checks = json.loads((folder / ABOUT).read_text())["checks"]
    try:
        if checksum(folder / name) == checks[name]:
            return
    except (OSError, KeyError) as error:
        raise DamagedError(f"{name} cannot be read: {error!r}") from error
    raise DamagedError(f"{name} is not what was written")


def check_words(folder: Path) -> None:
    """Refuse an index from elsewhere whose strings are invalid: anyone can make checksums.

    Raises:
        DamagedError: naming the column.
    """
    there = [NEGATIVES] if (folder / NEGATIVE_FILES[0]).is_file() else []
    for name in (*WORDS, *there):
        try:
            column = Strings.load(folder, name)
            column.check()
        except (OSError, ValueError, EOFError) as error:
            raise DamagedError(f"{name} are no texts: {error}") from error


def is_current(folder: Path) -> bool:
    """Say whether every file that an index points into still has its size and modification time.

    Whatever its name ends in, and wherever it lies: of what a reader lists, only files with the
    usual endings are part of its identity.
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
    """Return the names of all the files that hold columns."""
    numbers = [f"{name}.npy" for name in (*NUMBERS, DIGESTS, SEEN)]
    return numbers + [f"{name}.{part}.npy" for name in WORDS for part in ("blob", "offsets")]


def _fits(columns: Mapping[str, np.ndarray], words: Mapping[str, int], digests: np.ndarray) -> bool:
    """Say whether every column has every row, and points at what is there."""
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
