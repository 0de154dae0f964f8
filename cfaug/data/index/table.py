"""Writes the columns of an index: one row per image-text pair, checked as it arrives."""

from __future__ import annotations

import hashlib
import json
from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cfaug.core.errors import UserError
from cfaug.data.index.extra_columns import GrowingExtra
from cfaug.data.index.string_column import GrowingStrings, Strings
from cfaug.data.sources import Row
from cfaug.data.sources.image_check import DIGEST_BYTES
from cfaug.data.sources.row import NAMED_AT_ONCE

NUMBERS = {
    "file": np.int32, "offset": np.int64, "length": np.int64, "sets": np.int64,
    "groups": np.uint64, "images": np.int64, "member": np.int32,
}  # fmt: skip
WORDS = ("texts", "keys", "labels", "files")
NEGATIVES = "negatives"
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
"""Prefix of a content's hash. Rule 1, which had no prefix, covered only the first 4 KiB of
images."""


@dataclass(frozen=True)
class Content:
    """The content of a source, independent of its path.

    Attributes:
        hash: ``2:`` and the sha256 of every set, group, text, label and image (with all its bytes).
        earlier: the sha256 in indexes of format 2, of images' lengths and first 4 KiB.
        extra: the names of the extra columns.
        columns_dropped: number of extra columns left out beyond the limit.
    """

    hash: str
    earlier: str
    extra: tuple[str, ...] = ()
    columns_dropped: int = 0


def group_code(group: str) -> int:
    """Return the 64-bit code of a group's name, the same in every source."""
    return int.from_bytes(hashlib.blake2b(group.encode(), digest_size=8).digest(), "little")


def write_columns(rows: Iterable[Row], folder: Path, source: str) -> Content:
    """Write every column and return the hashes of the content.

    Args:
        rows: the rows, in order; members of a set follow each other.
        folder: the folder to write to, which must exist.
        source: the name of the rows' source, for messages.

    Raises:
        UserError: if there are no rows, a set has a gap, or a key is duplicated.
    """
    table = _Table(source)
    digest, earlier = hashlib.sha256(), hashlib.sha256()
    for row in rows:
        table.add(row)
        fields = [row.set, row.group, row.text, row.label, row.image_id]
        about = json.dumps([*fields, *([row.negatives] if row.negatives else [])])[:-1]
        line = f"{about}, ".encode()
        digest.update(line + f'"{row.digest.whole}"]'.encode())
        earlier.update(line + f'"{row.digest.head}"]'.encode())
    table.check()
    extra, dropped = table.save(folder)
    return Content(f"{HASH_RULE}:{digest.hexdigest()}", earlier.hexdigest(), extra, dropped)


class _Table:
    """Growing columns; only a row's numbers and the bytes of its strings are kept."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.numbers = {n: array("Q" if d is np.uint64 else "q") for n, d in NUMBERS.items()}
        self.words = {name: GrowingStrings() for name in WORDS}
        self._first_row = array("q")
        self._gap = ""
        self._set, self._file, self._member = "", "", 0
        self._images, self._images_before = dict[tuple[str, str], int](), 0
        self._digests = bytearray()
        self._negatives: dict[int, tuple[str, ...]] = {}
        self._extra = GrowingExtra()
        self._boxes: dict[int, tuple[int, int, int, int]] = {}
        self._group_names, self._group, self._named_groups = GrowingStrings(), "", False

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
            self._set, self._member, self._images, self._group = row.set, 0, {}, row.set
        if row.file != self._file:
            self.words["files"].append(row.file)
            self._file = row.file
        if row.member != self._member:
            self._gap = self._gap or f"{row.where}: the member before it in {row.set!r} is missing"
        image = (row.image_id, row.digest.whole)
        if image not in self._images:
            self._images[image] = len(self._images)
            self._digests += bytes.fromhex(row.digest.whole)
        values = {
            "file": len(self.words["files"]) - 1, "offset": row.offset, "length": row.length,
            "sets": len(self._first_row) - 1, "groups": group_code(row.group),
            "images": self._images_before + self._images[image], "member": self._member,
        }  # fmt: skip
        if row.negatives:
            self._negatives[len(self.words["texts"])] = row.negatives
        if row.box is not None:
            self._boxes[len(self.words["texts"])] = row.box
        if row.extra:
            self._extra.add(len(self.words["texts"]), row.extra, row.where)
        if row.group == self._group:
            self._group_names.append("")
        else:
            self._group_names.append(row.group)
            self._group, self._named_groups = row.group, True
        self._member += 1
        for name, value in values.items():
            self.numbers[name].append(value)
        self.words["texts"].append(row.text)
        self.words["labels"].append(row.label or "")

    def check(self) -> None:
        """Refuse an empty table, a set with a gap, and a duplicated key."""
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
                    f"the key {keys[a]!r} is duplicated: in {self._place(a)} and {self._place(b)}"
                    for a, b in zip(order[twice], order[twice + 1], strict=True)
                )
                + "\nkeys must be unique in a source; rename one or remove it"
            )

    def _place(self, set_number: int) -> str:
        files = self.words["files"].column()
        return files[self.numbers["file"][self._first_row[set_number]]]

    def save(self, folder: Path) -> tuple[tuple[str, ...], int]:
        for name, dtype in NUMBERS.items():
            np.save(folder / f"{name}.npy", np.array(self.numbers[name]).astype(dtype))
        digests = np.frombuffer(self._digests, np.uint8).reshape(-1, DIGEST_BYTES)
        np.save(folder / f"{DIGESTS}.npy", digests)
        for name, words in self.words.items():
            words.column().save(folder, name)
        if self._negatives:
            rows = (self._negatives.get(row) for row in range(len(self.words["texts"])))
            texts = ("" if one is None else json.dumps(one, ensure_ascii=False) for one in rows)
            Strings.of(texts).save(folder, NEGATIVES)
        if self._boxes:
            boxes = np.zeros((len(self.words["texts"]), 4), np.int32)
            boxes[list(self._boxes)] = list(self._boxes.values())
            np.save(folder / f"{BOXES}.npy", boxes)
        if self._named_groups:
            self._group_names.column().save(folder, GROUP_NAMES)
        return self._extra.save(folder, len(self.words["texts"]))
