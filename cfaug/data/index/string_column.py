"""A column of strings without a Python object per row: one blob of UTF-8 and its offsets.

A memory-mapped Arrow file, as for the extra columns, is written, opened and checked in half the
time (0.1 s for half a million captions), but a row takes 1.2 times as long to read. Indexes on
users' disks must stay readable, so a second format would not replace this one.
"""

from __future__ import annotations

import codecs
from array import array
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

AT_ONCE = 2**22
"""Number of bytes that are decoded together when all strings are checked."""


class Strings:
    """A read-only column; ``column[i]`` decodes one string.

    Args:
        blob: the UTF-8 of all strings, one after the other, uint8 (bytes,).
        offsets: the start of each string, int64 (rows + 1,).
    """

    def __init__(self, blob: np.ndarray, offsets: np.ndarray) -> None:
        self.blob = blob
        self.offsets = offsets

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __iter__(self) -> Iterator[str]:
        return (self[row] for row in range(len(self)))

    def __getitem__(self, row: int) -> str:
        return bytes(self.blob[self.offsets[row] : self.offsets[row + 1]]).decode()

    def check(self) -> None:
        """Check every string.

        Raises:
            ValueError: if one is not UTF-8, or the offsets are not those of this blob.
        """
        blob, offsets = self.blob, self.offsets
        types = (blob.dtype == np.uint8, offsets.dtype == np.int64)
        if not all(types) or (blob.ndim, offsets.ndim) != (1, 1):
            raise ValueError("columns of another type")
        ends = offsets[:1].tolist(), offsets[-1:].tolist()
        if ends != ([0], [len(blob)]) or (np.diff(offsets) < 0).any():
            raise ValueError("offsets that lead out of the text")
        decoder = codecs.getincrementaldecoder("utf-8")()
        for start in range(0, len(blob), AT_ONCE):
            decoder.decode(blob[start : start + AT_ONCE].tobytes())
        decoder.decode(b"", final=True)
        begins = offsets[:-1][offsets[:-1] < len(blob)]
        if ((blob[begins] & 0xC0) == 0x80).any():
            raise ValueError("a text that begins within a character")

    @classmethod
    def of(cls, strings: Iterable[str]) -> Strings:
        """Collect strings.

        >>> Strings.of(["a ball", "", "höhe"])[2]
        'höhe'
        """
        growing = GrowingStrings()
        for string in strings:
            growing.append(string)
        return growing.column()

    def save(self, folder: Path, name: str) -> None:
        """Write ``name.blob.npy`` and ``name.offsets.npy``."""
        np.save(folder / f"{name}.blob.npy", self.blob)
        np.save(folder / f"{name}.offsets.npy", self.offsets)

    @classmethod
    def load(cls, folder: Path, name: str) -> Strings:
        """Map the two files into memory."""
        return cls(
            map_column(folder / f"{name}.blob.npy"), map_column(folder / f"{name}.offsets.npy")
        )


class GrowingStrings:
    """A column during writing: each string is appended to the blob."""

    def __init__(self) -> None:
        self._blob, self._offsets = bytearray(), array("q", [0])

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def append(self, string: str) -> None:
        """Add one string; a lone surrogate raises UnicodeEncodeError."""
        self._blob += string.encode()
        self._offsets.append(len(self._blob))

    def column(self) -> Strings:
        """Return the column over the same memory; nothing can be appended after that."""
        return Strings(np.frombuffer(self._blob, np.uint8), np.frombuffer(self._offsets, np.int64))


def map_column(file: Path) -> np.ndarray:
    """Map a column into memory; nothing in it is ever unpickled."""
    # A plain view: indexing a memmap object costs ten times as much.
    return np.asarray(np.load(file, mmap_mode="r", allow_pickle=False))
