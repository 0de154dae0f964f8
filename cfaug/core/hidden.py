"""Files and folders that programs leave beside a user's data, which no reader takes for data."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

LITTER = frozenset({
    "__macosx", "thumbs.db", "desktop.ini", "@eadir", "$recycle.bin", "lost+found",
    "system volume information",
})  # fmt: skip
"""Names, in lower case, that systems give their own files: macOS, Windows, Synology, ext4."""


def is_hidden(name: str) -> bool:
    """Return whether a file or folder belongs to a program, by its name without its folder.

    >>> is_hidden(".ipynb_checkpoints"), is_hidden("._a.jpg"), is_hidden("__MACOSX")
    (True, True, True)
    >>> is_hidden("cat"), is_hidden("a.b.jpg")
    (False, False)
    """
    return name.startswith(".") or name.lower() in LITTER


def visible_files(files: Iterable[Path]) -> list[Path]:
    """Return the files that are not hidden, sorted; ``glob`` yields the others, too."""
    return sorted(file for file in files if not is_hidden(file.name))
