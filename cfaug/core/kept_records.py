"""Results kept in a folder by several processes: files whose names hold their checksums.

A damaged file is deleted and what it held is computed again; no file is written twice.
"""

from __future__ import annotations

import hashlib
import json
import re
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from cfaug.core.atomic_files import remove_leftovers, write_file
from cfaug.core.files import checksum

KEPT = re.compile(r"-[0-9a-f]{8}\Z")
"""Matches the stem of a file that ``write_kept`` wrote."""


def write_kept(folder: Path, name: str, suffix: str, content: bytes) -> Path:
    """Write a file atomically; its folder is created if missing.

    Args:
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
    remove_leftovers(folder)
    for file in sorted(folder.glob(pattern)):
        if not KEPT.search(file.stem):
            continue  # somebody else's
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


Record = Mapping[str, Any]

_KEY, _VALUE = '{"key": "', '", "found": '
"""The texts before the key and before the value in a line of JSON."""


class KeptRecords:
    """JSON values by key, in memory and in a folder.

    A value is parsed each time it is read: often only a few of a folder's values are needed.

    Args:
        folder: the folder of the files, created when a value is added; ``None`` keeps values in
            memory only.

    Attributes:
        damaged: the number of damaged files that were deleted.
    """

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self._known: dict[str, str] = {}
        self.damaged = 0 if folder is None else read_kept(folder, "*.jsonl", self._read_file)

    def __contains__(self, key: str) -> bool:
        """Say whether there is a value for a key."""
        return key in self._known

    def __len__(self) -> int:
        """Return the number of values."""
        return len(self._known)

    def __getitem__(self, key: str) -> Any:
        """Return a value, in the form that another process would read: a tuple became a list."""
        return json.loads(self._known[key])

    def add(self, values: Mapping[str, Any]) -> None:
        """Write values into one file.

        Args:
            values: the values by key; a key is a hash in hexadecimal digits, or another text that
                JSON does not escape.

        Raises:
            OSError: if the disk is full or cannot be written.
        """
        texts = {key: json.dumps(value) for key, value in values.items()}
        self._known.update(texts)
        if self.folder is None or not texts:
            return
        content = "".join(f"{_KEY}{key}{_VALUE}{text}}}\n" for key, text in texts.items())
        self._write(hashlib.sha256(" ".join(texts).encode()).hexdigest()[:32], content.encode())

    def _write(self, name: str, content: bytes) -> None:
        assert self.folder is not None
        write_kept(self.folder, name, ".jsonl", content)

    def _read_file(self, file: Path) -> None:
        # Not splitlines: U+2028 may stand within a text.
        for line in file.read_bytes().split(b"\n"):
            if line:
                head, separator, text = line.decode().partition(_VALUE)
                if not separator or not head.startswith(_KEY):
                    raise ValueError(f"{file} has a line that is not a record")
                self._known[head.removeprefix(_KEY)] = text[:-1]
