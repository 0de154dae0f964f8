"""A columnar index over any source, memory-mapped, cached by content; and its rows as examples.

A row has the place of its image (file, offset, length) and its caption, so that a loader reads only
one range of one file, and a plan consists of integers.
"""

from __future__ import annotations

import hashlib
import json
import operator
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, SupportsIndex

import numpy as np

from cfaug.core.errors import UserError, name_some
from cfaug.core.pixels import box_digest, content_digest, cut_out, decode_image
from cfaug.core.safety.json_text import load_json
from cfaug.core.stores import mirror_of, read_range
from cfaug.core.types import Example
from cfaug.data.index.disk_format import (
    ABOUT,
    BOXES,
    DIGESTS,
    GROUP_NAMES,
    NEGATIVE_FILE,
    NEGATIVE_TEXTS,
    WORDS,
    DamagedError,
    check_file,
    group_code,
)
from cfaug.data.index.extra_columns import EXTRA, ExtraColumns, Strings, map_column
from cfaug.data.index.reading import ScanReport
from cfaug.data.sources.row import NEGATIVES, class_caption

if TYPE_CHECKING:
    import pyarrow as pa
    from PIL.Image import Image


OPEN_FILES = 64
"""Number of files that an index keeps open, far below the usual limit of 1,024 a process."""


class _Handle:
    """An open file, closed when the last thread that reads from it is done."""

    def __init__(self, file: str) -> None:
        self.number = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)

    def __del__(self) -> None:
        if hasattr(self, "number") and os is not None:  # None while the interpreter stops
            os.close(self.number)


@dataclass(frozen=True)
class Index:
    """An open index, cheap to send to a worker, which maps the same files.

    Rows are numbered as the items of a list: -1 is the last row, and a row beyond the last one
    raises IndexError.

    Attributes:
        source: the indexed source, as the user named it.
        hash: the hash of the content, which does not depend on the path.
        reading: the reader's report on the source; not sent to workers.
    """

    folder: Path
    source: str
    kind: str
    hash: str
    reading: ScanReport | None = None

    def __len__(self) -> int:
        return len(self.sets)

    @cached_property
    def sets(self) -> np.ndarray:
        """Number of each row's set, int64; the rows of a set are adjacent."""
        return self._map("sets")

    @cached_property
    def groups(self) -> np.ndarray:
        """Code of each row's group, uint64; equal names have equal codes in every source."""
        return self._map("groups")

    @cached_property
    def images(self) -> np.ndarray:
        """Number of each row's image, int64; equal for rows that share an image."""
        return self._map("images")

    @cached_property
    def digests(self) -> np.ndarray:
        """Digest of all bytes of each image, uint8 (images, 16), by the image's number."""
        return self._map(DIGESTS)

    @property
    def contents(self) -> np.ndarray:
        """Code of the bytes of each row's image, uint64; equal for equal images in any source."""
        return self.content_codes(slice(None))

    def content_codes(self, rows: np.ndarray | slice) -> np.ndarray:
        """Return ``contents`` of some rows, uint64 (rows,), without reading the others."""
        codes: np.ndarray = self.digests.view("<u8")[:, 0]
        return codes[self.images[rows]].astype(np.uint64, copy=False)

    @cached_property
    def files(self) -> np.ndarray:
        """Number of the file with each row's image, int32."""
        return self._map("file")

    @cached_property
    def _column(self) -> dict[str, np.ndarray]:
        names = ("offset", "length", "member")
        return {name: self._map(name) for name in names}

    @cached_property
    def _words(self) -> dict[str, Strings]:
        return {name: self._load_words(name) for name in WORDS}

    def _map(self, name: str) -> np.ndarray:
        try:
            return map_column(self.folder / f"{name}.npy")
        except FileNotFoundError as error:
            raise self._removed() from error

    def _load_words(self, name: str) -> Strings:
        try:
            return Strings.load(self.folder, name)
        except FileNotFoundError as error:
            raise self._removed() from error
        except ValueError as error:
            raise UserError(
                f"the index {self.folder} is damaged: {error}; make it again"
            ) from error

    def _has(self, file: str) -> bool:
        """Say whether the index has a file that only some have, and verify it."""
        there = (self.folder / file).is_file()
        if not there and not (self.folder / ABOUT).is_file():
            raise self._removed()
        try:
            if there and file != NEGATIVE_FILE:  # verified when the index was opened
                check_file(self.folder, file)
        except DamagedError as error:
            raise UserError(
                f"the index {self.folder} is damaged ({error}): remove it and run the same command "
                "again"
            ) from error
        return there

    def _removed(self) -> UserError:
        return UserError(
            f"the index {self.folder} was removed while it was in use: run the same command again, "
            "which makes the index again and goes on from what was saved"
        )

    def _number(self, row: SupportsIndex) -> int:
        number, rows = operator.index(row), len(self)
        if not -rows <= number < rows:
            raise IndexError(f"row {number} is out of range: {self.source} has {rows} rows")
        return number % rows

    @cached_property
    def _handles(self) -> dict[int, _Handle]:
        return {}

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("folder", "source", "kind", "hash")}

    def text(self, row: int) -> str:
        """Return a row's caption."""
        return self._words["texts"][self._number(row)]

    def key(self, row: int) -> str:
        """Return ``<set>_<member>``."""
        row = self._number(row)
        return f"{self._words['keys'][int(self.sets[row])]}_{int(self._column['member'][row])}"

    def keys(self, rows: np.ndarray) -> list[str]:
        """Return the keys of some rows, integers (rows,), as ``key`` does for one."""
        members = self._column["member"][rows].tolist()
        sets = self._words["keys"].take(np.asarray(self.sets)[rows])
        return [f"{name}_{member}" for name, member in zip(sets, members, strict=True)]

    @cached_property
    def _negatives(self) -> Strings | None:
        return self._load_words(NEGATIVE_TEXTS) if self._has(NEGATIVE_FILE) else None

    @property
    def has_negatives(self) -> bool:
        """Whether any row has negatives: wrong captions without an image."""
        return self._negatives is not None

    def negatives(self, row: int) -> list[str]:
        """Return captions that are wrong about a row's image and have no image themselves."""
        row = self._number(row)
        if self._negatives is None:
            return []
        negatives: list[str] = load_json(self._negatives[row] or "[]")
        return negatives

    def group_name(self, row: int) -> str:
        """Return the name of a row's group; ``groups`` has its code."""
        row = self._number(row)
        name, first = "", row
        if self._group_names is not None:
            while not (name := self._group_names[first]) and int(self._column["member"][first]):
                first -= 1  # named by the row before, in the same set
        name = name or self._words["keys"][int(self.sets[row])]
        if group_code(name) != self.groups[row]:
            raise UserError(
                f"the index {self.folder} was made before indexes had names of groups: name the "
                "source itself, of which a new one is made"
            )
        return name

    @cached_property
    def _group_names(self) -> Strings | None:
        return self._load_words(GROUP_NAMES) if self._has(f"{GROUP_NAMES}.arrow") else None

    @cached_property
    def _extra(self) -> ExtraColumns | None:
        if not self._has(EXTRA):
            return None
        try:
            return ExtraColumns(self.folder, len(self))
        except (OSError, ValueError) as error:
            raise UserError(
                f"the index {self.folder} is damaged: {error}; make it again"
            ) from error

    @property
    def extra_names(self) -> tuple[str, ...]:
        """The names of the extra columns of the source."""
        return () if self._extra is None else tuple(self._extra.table.column_names)

    def extra(self, name: str) -> pa.ChunkedArray:
        """Return an extra column, memory-mapped: (rows,), null if a pair has no value.

        Its type is bool, int64, float64 or string; lists and objects are strings of JSON.
        """
        if self._extra is None or name not in self.extra_names:
            if not self.extra_names:
                raise UserError(
                    f"{self.source} has no column {name!r}: it has none besides image and caption"
                )
            choices = ", ".join(self.extra_names)
            raise UserError(f"{self.source} has no column {name!r}: choose from {choices}")
        return self._extra.table.column(name)

    def extra_values(self, name: str, rows: np.ndarray) -> list[Any]:
        """Return an extra column at some rows, with JSON decoded, ``None`` without a value."""
        self.extra(name)
        assert self._extra is not None
        return self._extra.values(name, rows)

    def extra_row(self, row: int) -> dict[str, Any]:
        """Return a row's values in the extra columns by name, as JSON, without nulls."""
        row = self._number(row)
        return {} if self._extra is None else self._extra.row(row)

    def hash_with(self, names: Sequence[str]) -> str:
        """Return the hash of the content and some extra columns; without any, it is ``hash``."""
        if not names:
            return self.hash
        digest = hashlib.sha256(self.hash.encode())
        for name in sorted(set(names)):
            for chunk in self.extra(name).chunks:
                digest.update(json.dumps([name, str(chunk.type), chunk.to_pylist()]).encode())
        return digest.hexdigest()

    def label(self, row: int) -> str | None:
        """Return a row's class name, if it has one."""
        return self._words["labels"][self._number(row)] or None

    def file_name(self, row: int) -> str:
        """Return the path of the file with a row's image."""
        return self._words["files"][int(self.files[self._number(row)])]

    def image_name(self, row: int) -> str:
        """Name a row's image for a message: the file, and the key within it."""
        return f"{self.file_name(row)} ({self.key(row)})"

    def image(self, row: int) -> Image:
        """Return a row's image, RGB; its size is checked before it is decoded."""
        return decode_image(self.read_image(row), self.image_name(row))

    def read_image(self, row: int) -> bytes:
        """Return a row's encoded image, by one read of one range of one file; thread-safe.

        A file that is only in an object store is read there.

        If the row shows a part of its file, the result is a PNG of that part.
        """
        row = self._number(row)
        offset, length = int(self._column["offset"][row]), int(self._column["length"][row])
        file = int(self.files[row])
        try:
            handle = self._handles.get(file)
            if handle is None:
                handle = self._handles[file] = _Handle(self._words["files"][file])
                for oldest in list(self._handles)[:-OPEN_FILES]:
                    self._handles.pop(oldest, None)
            data = os.pread(handle.number, length, offset)
        except FileNotFoundError:
            try:
                data = read_range(Path(self.file_name(row)), offset, length)
            except FileNotFoundError as error:
                why = error.strerror
                raise UserError(f"{self.image_name(row)} cannot be read: {why}") from error
        except OSError as error:
            raise UserError(f"{self.image_name(row)} cannot be read: {error.strerror}") from error
        box = () if self._boxes is None else tuple(self._boxes[row].tolist())
        digest = content_digest(data)
        known = self.digests[self.images[row]].tobytes()
        if (box_digest(digest, box) if any(box) else digest) != known:
            raise UserError(
                f"{self.image_name(row)}: the file changed since it was indexed; if it is as it "
                f"should be, remove the index {self.folder} and run the same command again"
            )
        return cut_out(data, box, self.image_name(row)) if any(box) else data

    @cached_property
    def is_stored(self) -> bool:
        """Whether images may have to be read from an object store, where each takes a while."""
        return len(self) > 0 and mirror_of(Path(self.file_name(0)).parent) is not None

    @cached_property
    def _boxes(self) -> np.ndarray | None:
        return self._map(BOXES) if self._has(f"{BOXES}.npy") else None


def captioned_classes(index: Index, rows: Iterable[int]) -> list[str] | None:
    """Return the classes of a source, sorted, if captions only name them; otherwise ``None``."""
    for row in rows:
        label = index.label(int(row))
        if label is None or index.text(int(row)) != class_caption(label):
            return None
    return sorted({index.label(row) or "" for row in range(len(index))} - {""})


@lru_cache(maxsize=4)
def all_captioned_classes(index: Index) -> list[str] | None:
    """Return ``captioned_classes`` of every row, read once for all runs of a sweep."""
    return captioned_classes(index, range(len(index)))


# The content of a source as examples for generation, whichever reader reads it.


@dataclass(frozen=True)
class IndexedImage:
    """The image of a row: a ``cfaug.core.types.SourceImage``, read in place on demand."""

    index: Index
    row: int

    @property
    def digest(self) -> str:
        return self.index.digests[self.index.images[self.row]].tobytes().hex()

    def read(self) -> bytes:
        return self.index.read_image(self.row)


def examples(index: Index, per: Literal["image", "text"] = "image") -> Iterator[Example]:
    """Yield the content of a source, in its order; no image is read.

    The key of an example is that of its (first) row, ``<set>_<member>``, its group the name with
    the code in ``Index.groups``, so that generated sets always stay with their example. ``extra``
    has the other columns of the (first) row, see ``Index.extra_row``, and under ``negatives`` the
    captions that are wrong about the image.

    Args:
        per: the unit of an example: ``image``, with all its captions, or ``text``, a caption with
            its image.
    """
    for _, rows in groupby(range(len(index)), key=lambda row: int(index.sets[row])):
        units: dict[int, list[int]] = {}
        for row in rows:
            units.setdefault(row if per == "text" else int(index.images[row]), []).append(row)
        for unit in units.values():
            first = unit[0]
            extra: dict[str, Any] = index.extra_row(first)
            if negatives := [text for row in unit for text in index.negatives(row)]:
                extra[NEGATIVES] = negatives
            yield Example(
                key=index.key(first),
                group=index.group_name(first),
                texts=tuple(index.text(row) for row in unit),
                image=IndexedImage(index, first),
                label=index.label(first),
                extra=extra,
            )


NAMED = 3
"""Number of sets that a message names."""


def pair_rows(index: Index, rows: np.ndarray | None = None) -> tuple[tuple[str, ...], np.ndarray]:
    """Return the keys of the sets, and the rows of their original and changed texts.

    Args:
        rows: the rows to use, of whole sets; ``None`` is all.

    Returns:
        The keys, and int64 (sets, 2).
    """
    chosen = np.arange(len(index)) if rows is None else np.sort(rows)
    numbers, first, counts = np.unique(
        np.asarray(index.sets)[chosen], return_index=True, return_counts=True
    )
    if not len(numbers):
        raise UserError(f"{index.source} holds no set: generate some with python generate.py")
    _refuse(index, chosen[first[counts != 2]], len(numbers), "two members: a text before and after")
    order = np.argsort(np.asarray(index.sets)[chosen], kind="stable")
    pairs = chosen[order].reshape(-1, 2)
    images = np.asarray(index.images)[pairs]
    apart = index.digests[images[:, 0]] != index.digests[images[:, 1]]
    _refuse(index, pairs[apart.any(axis=1), 0], len(pairs), "one image that both texts share")
    keys = tuple(index.key(int(row)).rpartition("_")[0] for row in pairs[:, 0])
    refuse_duplicated_keys(index.source, keys)
    return keys, pairs


def _refuse(index: Index, wrong: np.ndarray, of: int, needed: str) -> None:
    if len(wrong):
        names = name_some((index.key(int(row)).rpartition("_")[0] for row in wrong), NAMED)
        raise UserError(
            f"{index.source}: {len(wrong)} of {of} sets do not have {needed} ({names}); the "
            "recipes deletion, eda, checklist and clare make such sets"
        )


def refuse_duplicated_keys(source: str, keys: Sequence[str]) -> None:
    """Refuse sets with equal keys."""
    twice = [key for key, count in Counter(keys).items() if count > 1]
    if twice:
        raise UserError(
            f"{source}: {len(twice)} keys of sets are duplicated, such as {twice[0]!r}: each set "
            "needs a key of its own"
        )
