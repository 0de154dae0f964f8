"""Cache files: each has its checksum in its name and is never changed.

So processes can share a folder of them without locks: any file may be deleted at any time. A
damaged file is deleted, and its content is computed again.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from cfaug.core.files import checksum, write_file


def write_kept(folder: Path, name: str, suffix: str, content: bytes) -> Path:
    """Write a file atomically; its folder is created if missing.

    Args:
        folder: the folder to write into.
        name: the file's name, without its checksum.
        suffix: the end of the file's name, such as ``.npy``.
        content: the file's bytes.

    Returns:
        The file.

    Raises:
        OSError: if it cannot be written.
    """
    file = folder / f"{name}-{zlib.crc32(content):08x}{suffix}"
    folder.mkdir(parents=True, exist_ok=True)
    write_file(file, content)
    return file


def read_kept(folder: Path, pattern: str, read: Callable[[Path], None]) -> int:
    """Read the intact files in the order of their names, and delete damaged ones.

    Args:
        folder: the folder; it may be missing.
        pattern: the glob of the files' names.
        read: a function that is called with each file; it raises ``ValueError``, ``KeyError``,
            ``TypeError`` or ``EOFError`` for invalid content.

    Returns:
        The number of damaged files, not counting files that another process deleted meanwhile.
    """
    damaged = 0
    for file in sorted(folder.glob(pattern)):
        try:
            if f"{checksum(file):08x}" != file.stem.rpartition("-")[2]:
                raise ValueError(f"{file}: its checksum is not that of its name")
            read(file)
        except FileNotFoundError:
            continue
        except (OSError, ValueError, KeyError, TypeError, EOFError):
            damaged += 1
            with suppress(OSError):
                file.unlink()
    return damaged


# A cache of JSON records by key, such as a model's answers, so that each is computed once.
#
# Each file holds some records, is written atomically, has its checksum in its name and never
# changes; so processes can share a folder without locks. Any file may be deleted at any time; a
# damaged one is deleted.

Record = Mapping[str, Any]


class KeptRecords:
    """Records by key, in memory and in a folder.

    Args:
        folder: the folder of the files, created when a record is added; ``None`` keeps records in
            memory only.

    Attributes:
        damaged: the number of damaged files that were deleted.
    """

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self._known: dict[str, Record] = {}
        self.damaged = 0 if folder is None else read_kept(folder, "*.jsonl", self._read_file)

    def __contains__(self, key: str) -> bool:
        """Say whether there is a record for a key."""
        return key in self._known

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self._known)

    def __getitem__(self, key: str) -> Record:
        """Return a record."""
        return self._known[key]

    def add(self, found: Mapping[str, Record]) -> None:
        """Write records into one file.

        Raises:
            OSError: if the disk is full or cannot be written.
        """
        lines = [json.dumps({"key": key, "found": dict(one)}) for key, one in found.items()]
        # In the form that the next process will read: a tuple becomes a list.
        self._known.update({one["key"]: one["found"] for one in map(json.loads, lines)})
        if self.folder is None or not found:
            return
        content = "".join(f"{line}\n" for line in lines).encode()
        self._write(hashlib.sha256(" ".join(found).encode()).hexdigest()[:32], content)

    def _write(self, name: str, content: bytes) -> None:
        assert self.folder is not None
        write_kept(self.folder, name, ".jsonl", content)

    def _read_file(self, file: Path) -> None:
        # Not splitlines: U+2028 may stand within a text.
        for line in file.read_bytes().split(b"\n"):
            if line:
                one = json.loads(line)
                self._known[one["key"]] = one["found"]
