"""Writing a file, or a folder, whole or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def write_file(path: Path, content: bytes) -> None:
    """Write a file so that a reader, or the machine's next start, sees all of it or the old one."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as handle:
            handle.write(content)
            handle.flush()
            os.fsync(handle.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def whole_folder(folder: Path, sign: str) -> Iterator[Path]:
    """Give a private folder to fill, which takes its place when all went well.

    Args:
        folder: where it is to stand; its parents are made.
        sign: a file that a whole one holds: of a process that was first, what it made is kept.

    Raises:
        OSError: where the disk refuses; nothing is left then.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        yield temporary
        temporary.chmod(0o755)  # others may read it: mkdtemp's is its owner's alone
        try:
            temporary.rename(folder)
        except OSError:
            if not (folder / sign).exists():
                raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
