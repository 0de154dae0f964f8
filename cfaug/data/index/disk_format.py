"""The disk format of an index: columns, codes of texts, ``index.json`` and checksums."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import zlib
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cfaug.core.errors import UserError
from cfaug.core.files import checksum
from cfaug.core.pixels import DIGEST_BYTES
from cfaug.core.safety.json_text import load_json
from cfaug.data.index.extra_columns import (
    MOST_COLUMNS,
    ROWS_AT_ONCE,
    GrowingExtra,
    Strings,
    map_column,
)
from cfaug.data.index.reading import RowCounts, ScanReport
from cfaug.data.sources import Row
from cfaug.data.sources.parquet import MAX_BYTES
from cfaug.data.sources.row import NAMED_AT_ONCE, Description

if TYPE_CHECKING:
    import pyarrow as pa

# Writes the columns of an index: one row per image-text pair, checked as it arrives.

NUMBERS = {
    "file": np.int32, "offset": np.int64, "length": np.int64, "sets": np.int64,
    "groups": np.uint64, "images": np.int64, "member": np.int32,
}  # fmt: skip
WORDS = ("texts", "keys", "labels", "files")
NEGATIVE_TEXTS = "negatives"
"""A column that only an index with negatives has: JSON lists of texts, or empty texts."""
BOXES = "boxes"
"""A column of indexes in which some images are parts of their files: int32 (rows, 4), left, top,
right and bottom in pixels, all 0 for a whole file."""
GROUP_NAMES = "group_names"
"""A column of texts, if groups have other names than their sets: each row's group, or nothing if it
equals the group of the row before in its set or, for a set's first row, the set's key."""
DIGESTS = "digests"
"""The column with a row for each image, not for each pair: uint8 (images, 16)."""
HASH_RULE = "2"
"""Prefix of a content's hash, to be raised when the rule changes."""


def group_code(group: str) -> int:
    """Return the 64-bit code of a group's name, the same in every source."""
    return int.from_bytes(hashlib.blake2b(group.encode(), digest_size=8).digest(), "little")


class GrowingStrings:
    """A column during writing, in memory, or in the file ``name.arrow`` of a folder."""

    def __init__(self, folder: Path | None = None, name: str = "") -> None:
        self._folder, self._name, self._rows = folder, name, 0
        self._chunks: list[pa.Array] = []
        self._waiting: list[bytes] = []

    def __len__(self) -> int:
        return self._rows

    def append(self, text: str) -> None:
        """Add one text; a lone surrogate raises UnicodeEncodeError."""
        self._waiting.append(text.encode())
        self._rows += 1
        if len(self._waiting) == ROWS_AT_ONCE:
            self._write()

    def _write(self) -> None:
        import pyarrow as pa

        texts, self._waiting = text_array(self._waiting), []
        if self._folder is None:
            self._chunks.append(texts)
        else:
            self._out.write_batch(pa.record_batch([texts], [self._name]))

    @cached_property
    def _out(self) -> pa.ipc.RecordBatchFileWriter:
        import pyarrow as pa

        schema = pa.schema([(self._name, pa.large_string())])
        return pa.ipc.new_file(f"{self._folder}/{self._name}.arrow", schema)

    def column(self) -> Strings:
        """Return the column of the texts up to now; a file takes no others then."""
        import pyarrow as pa

        if self._folder is not None:
            return self._closed
        return Strings(pa.chunked_array([*self._chunks, text_array(self._waiting)]))

    @cached_property
    def _closed(self) -> Strings:
        assert self._folder is not None
        if self._waiting:
            self._write()
        self._out.close()
        return Strings.load(self._folder, self._name)


def text_array(texts: list[bytes]) -> pa.Array:
    """Return texts in UTF-8 as an array, large_string."""
    import pyarrow as pa

    # pa.array would import pandas where that is installed.
    ends = np.cumsum([0, *map(len, texts)], dtype=np.int64)
    parts = pa.py_buffer(ends), pa.py_buffer(b"".join(texts))
    return pa.LargeStringArray.from_buffers(len(texts), *parts)


class GrowingNumbers:
    """A column of numbers during writing, in a file of ``folder`` without a name."""

    def __init__(self, dtype: Any, folder: Path) -> None:
        self._dtype, self._waiting = np.dtype(dtype), list[Any]()
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115  # closed with this object

    def append(self, number: Any) -> None:
        """Add one number."""
        self._waiting.append(number)
        if len(self._waiting) == ROWS_AT_ONCE:
            self._write()

    def _write(self) -> None:
        self._file.write(np.array(self._waiting, self._dtype).tobytes())
        self._waiting = []

    def column(self) -> np.ndarray:
        """Return the numbers up to now, mapped into memory; at least one."""
        self._write()
        self._file.flush()
        return np.memmap(self._file, self._dtype, "r")


class _Table:
    """Growing columns, in files of the folder."""

    def __init__(self, folder: Path) -> None:
        self._hash = hashlib.sha256()
        self.numbers = {name: GrowingNumbers(dtype, folder) for name, dtype in NUMBERS.items()}
        words = *WORDS, NEGATIVE_TEXTS, GROUP_NAMES
        self.words = {name: GrowingStrings(folder, name) for name in words}
        self._first_row = array("q")
        self._gap = ""
        self._set, self._file, self._member = "", "", 0
        self._images, self._images_before = dict[tuple[str, str], int](), 0
        self._digests = GrowingNumbers(f"V{DIGEST_BYTES}", folder)
        self._extra = GrowingExtra(folder)
        self._boxes: dict[int, tuple[int, int, int, int]] = {}
        self._group = ""
        self._unused = {NEGATIVE_TEXTS, GROUP_NAMES}

    @property
    def hash(self) -> str:
        """``2:`` and the sha256 of every set, group, text, label and image with all its bytes."""
        return f"{HASH_RULE}:{self._hash.hexdigest()}"

    def add(self, row: Row) -> None:
        """Add a row; a lone surrogate raises UnicodeEncodeError."""
        if row.set != self._set or row.member == 0:
            self._first_row.append(len(self.words["texts"]))
            self.words["keys"].append(row.set)
            self._images_before += len(self._images)
            self._set, self._member, self._images, self._group = row.set, 0, {}, row.set
        if row.file != self._file:
            self.words["files"].append(row.file)
            self._file = row.file
        if row.member != self._member:
            self._gap = self._gap or f"{row.where}: the member before it in {row.set!r} is missing"
        image = (row.image_id, row.digest.whole)
        if image not in self._images:
            self._images[image] = len(self._images)
            self._digests.append(bytes.fromhex(row.digest.whole))
        values = {
            "file": len(self.words["files"]) - 1, "offset": row.offset, "length": row.length,
            "sets": len(self._first_row) - 1, "groups": group_code(row.group),
            "images": self._images_before + self._images[image], "member": self._member,
        }  # fmt: skip
        number = len(self.words["texts"])
        if row.negatives:
            self._unused.discard(NEGATIVE_TEXTS)
        negatives = json.dumps(row.negatives, ensure_ascii=False) if row.negatives else ""
        self.words[NEGATIVE_TEXTS].append(negatives)
        if row.box is not None:
            self._boxes[number] = row.box
        if row.extra:
            self._extra.add(number, row.extra, row.where)
        if row.group != self._group:
            self._unused.discard(GROUP_NAMES)
        self.words[GROUP_NAMES].append("" if row.group == self._group else row.group)
        self._group = row.group
        self._member += 1
        for name, value in values.items():
            self.numbers[name].append(value)
        self.words["texts"].append(row.text)
        self.words["labels"].append(row.label or "")
        fields = [row.set, row.group, row.text, row.label, row.image_id]
        about = json.dumps([*fields, *([row.negatives] if row.negatives else [])])[:-1]
        self._hash.update(f'{about}, "{row.digest.whole}"]'.encode())

    def check(self, source: str) -> None:
        """Refuse an empty table, a set with a gap, and a duplicated key."""
        if not self._first_row:
            raise UserError(f"{source} holds no image-text pair")
        if self._gap:
            raise UserError(self._gap)
        keys = self.words["keys"].column()
        codes = np.fromiter((group_code(key) for key in keys), np.uint64, len(keys))
        order = np.argsort(codes, kind="stable")
        twice = np.flatnonzero(codes[order][1:] == codes[order][:-1])[:NAMED_AT_ONCE]
        if len(twice):
            files, file = self.words["files"].column(), self.numbers["file"].column()
            lines = []
            for a, b in zip(order[twice], order[twice + 1], strict=True):
                first, second = (files[file[self._first_row[number]]] for number in (a, b))
                lines.append(f"the key {keys[a]!r} is duplicated: in {first} and {second}")
            lines.append("keys must be unique in a source; rename one or remove it")
            raise UserError("\n".join(lines))

    def save(self, folder: Path) -> tuple[tuple[str, ...], int]:
        """Write the columns; return the extra ones, and the number left out beyond the limit."""
        for name, numbers in self.numbers.items():
            np.save(folder / f"{name}.npy", numbers.column())
        digests = self._digests.column().view(np.uint8).reshape(-1, DIGEST_BYTES)
        np.save(folder / f"{DIGESTS}.npy", digests)
        for name, words in self.words.items():
            words.column()
            if name in self._unused:
                (folder / f"{name}.arrow").unlink()
        if self._boxes:
            boxes = np.zeros((len(self.words["texts"]), 4), np.int32)
            boxes[list(self._boxes)] = list(self._boxes.values())
            np.save(folder / f"{BOXES}.npy", boxes)
        return self._extra.save(folder, len(self.words["texts"]))


FORMAT = 7
"""The number of this format: an index of another one in a cache is made anew."""
RULES = 2
"""The number of the rules by which rows are chosen; see ``cfaug.data.index.outdated``."""
ABOUT = "index.json"
NEGATIVE_FILE = f"{NEGATIVE_TEXTS}.arrow"
SEEN = "seen"
"""The column with size and time of each file of images, int64 (files, 2)."""


class DamagedError(UserError):
    """A damaged index; the message describes the damage."""


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
        form: a description of the source's form; ``None`` is ``kind``.
        describe: a function that returns the reader's description of the source, called after all
            rows are written.
    """
    tally, table, form = RowCounts(), _Table(folder), form or kind
    for row in tally.count(rows):
        try:
            table.add(row)
        except UnicodeEncodeError as error:
            raise UserError(f"{row.where}: a text that is not Unicode ({error.reason})") from error
    table.check(source)
    extra, dropped = table.save(folder)
    tally.check(source, form)
    np.save(folder / f"{SEEN}.npy", _seen(Strings.load(folder, "files")))
    described = describe()
    if dropped:
        many = f"{dropped:,} columns beyond the first {MOST_COLUMNS}"
        described = replace(described, left_out=(*described.left_out, many))
    files = sorted([*folder.glob("*.npy"), *folder.glob("*.arrow")])
    about = {
        "format": FORMAT, "rules": RULES, "kind": kind, "source": source, "hash": table.hash,
        "reading": tally.reading(kind, form, described, extra).json(),
        "checks": {file.name: checksum(file) for file in files},
    }  # fmt: skip
    (folder / ABOUT).write_text(json.dumps({**about, "check": _check_of(about)}), encoding="utf-8")


def _check_of(about: Mapping[str, Any]) -> int:
    rest = {name: value for name, value in about.items() if name != "check"}
    return zlib.crc32(json.dumps(rest, sort_keys=True).encode())


def read_about(folder: Path) -> tuple[str, str, ScanReport]:
    """Return the kind of an index's reader, the hash of the content, and the reading of the source.

    Every byte that plans and loaders read is verified.

    Raises:
        DamagedError: if a file is missing, unreadable or changed.
    """
    try:
        about: Any = load_json((folder / ABOUT).read_text(encoding="utf-8"))
        if about["format"] != FORMAT:
            raise DamagedError(f"it is of format {about['format']}, not {FORMAT}")
        if _check_of(about) != about["check"]:
            raise DamagedError(f"{ABOUT} was changed since it was written")
        checks: dict[str, int] = about["checks"]
        negatives = [NEGATIVE_FILE] if NEGATIVE_FILE in checks else []
        for name in (*column_files(), *negatives):
            if checksum(folder / name) != checks[name]:
                raise DamagedError(f"{name} was changed since it was written")
        columns = {name: map_column(folder / f"{name}.npy") for name in NUMBERS}
        words = {name: len(Strings.load(folder, name)) for name in WORDS}
        if negatives:
            words[NEGATIVE_TEXTS] = len(Strings.load(folder, NEGATIVE_TEXTS))
        digests = map_column(folder / f"{DIGESTS}.npy")
        if not _fits(columns, words, digests):
            raise DamagedError("its columns do not fit each other")
        reading = ScanReport.of_json(about["reading"])
        return str(about["kind"]), str(about["hash"]), reading
    except (OSError, ValueError, KeyError, TypeError, EOFError, RecursionError) as error:
        raise DamagedError(f"it cannot be read: {error!r}") from error


def column_files() -> list[str]:
    """Return the names of all files of columns."""
    numbers = [f"{name}.npy" for name in (*NUMBERS, DIGESTS, SEEN)]
    return numbers + [f"{name}.arrow" for name in WORDS]


def check_file(folder: Path, name: str) -> None:
    """Verify the checksum of one file that ``read_about`` skips, at its first reading.

    Raises:
        DamagedError: if the file was changed.
    """
    checks = load_json((folder / ABOUT).read_text(encoding="utf-8"))["checks"]
    try:
        if checksum(folder / name) == checks[name]:
            return
    except (OSError, KeyError) as error:
        raise DamagedError(f"{name} cannot be read: {error!r}") from error
    raise DamagedError(f"{name} was changed since it was written")


def is_current(folder: Path) -> bool:
    """Return whether every file of an index's images still has its size and modification time.

    This covers files with any name and place; a reader's identity covers only those with the usual
    extensions.
    """
    seen = map_column(folder / f"{SEEN}.npy")
    return np.array_equal(seen, _seen(Strings.load(folder, "files")))


def _seen(files: Iterable[str]) -> np.ndarray:
    stamps = []
    for file in files:
        try:
            stat = os.stat(file)
            stamps.append((stat.st_size, stat.st_mtime_ns))
        except OSError:
            stamps.append((-1, -1))
    return np.array(stamps, np.int64).reshape(-1, 2)


def _fits(columns: Mapping[str, np.ndarray], words: Mapping[str, int], digests: np.ndarray) -> bool:
    """Return whether every column has all rows, and every reference is within bounds."""
    rows = words["texts"]
    if not rows or words["labels"] != rows or words.get(NEGATIVE_TEXTS, rows) != rows:
        return False
    for name, column in columns.items():
        if column.shape != (rows,) or column.dtype != NUMBERS[name]:
            return False
    sets, files, length = columns["sets"], columns["file"], columns["length"]
    images = columns["images"]
    return bool(
        sets[0] == 0
        and sets[-1] + 1 == words["keys"]
        and np.diff(sets).view(np.uint64).max(initial=0) <= 1  # a step back is a large number
        and 0 <= files.min() <= files.max() < words["files"]
        and 0 <= length.min() <= length.max() <= MAX_BYTES
        and columns["offset"].min() >= 0
        and digests.dtype == np.uint8
        and digests.shape == (int(images.max()) + 1, DIGEST_BYTES)
        and images.min() >= 0
    )


# Texts compared by their 64-bit codes, so that millions of keys take some bytes each.

LEAST_SLOTS = 2**10


class TextCounts:
    """Counts equal texts as they come, in 16 to 32 bytes for each different one.

    Texts count as equal if their codes are: among ten million, the probability that any two others
    share one is 3e-6. A dictionary would take some 200 bytes for each.
    """

    def __init__(self) -> None:
        self._resize(LEAST_SLOTS)
        self._distinct = 0

    def add(self, text: str) -> int:
        """Count a text, and return how often it came before."""
        slot = self._find(group_code(text) or 1)  # 0 marks a free slot
        earlier = self._counts[slot]
        self._counts[slot] = earlier + 1
        if earlier:
            return earlier
        self._codes[slot] = group_code(text) or 1
        self._distinct += 1
        if 4 * self._distinct > 3 * len(self._codes):
            codes, counts = self._codes, self._counts
            self._resize(2 * len(codes))
            for code, count in zip(codes, counts, strict=True):
                if code:
                    slot = self._find(code)
                    self._codes[slot], self._counts[slot] = code, count
        return 0

    def _find(self, code: int) -> int:
        """Return the slot of a code, or the free one for it."""
        codes, last = self._codes, len(self._codes) - 1
        slot = code & last
        while codes[slot] and codes[slot] != code:
            slot = (slot + 1) & last
        return slot

    def _resize(self, slots: int) -> None:
        self._codes = array("Q", bytes(8 * slots))
        self._counts = array("I", bytes(4 * slots))


def find_repeated(texts: Callable[[], Iterable[str]]) -> list[str]:
    """Return the texts that come more than once, each once, by their first appearance.

    Args:
        texts: a function that returns the texts, the same at each call. It is called again only if
            codes repeat, so that the result is exact.
    """
    codes = code_texts(texts())
    codes.sort()
    again = set(codes[1:][codes[1:] == codes[:-1]].tolist())
    if not again:
        return []
    counts = Counter(text for text in texts() if group_code(text) in again)
    return [text for text, count in counts.items() if count > 1]


def code_texts(texts: Iterable[str]) -> np.ndarray:
    """Return the code of each text, uint64 (texts,)."""
    return np.fromiter(map(group_code, texts), np.uint64)
