"""A folder appears complete or not at all."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cfaug.files import with_path


@contextmanager
def replaced_folder(folder: Path) -> Iterator[Path]:
    """Give an empty folder to fill; when the block ends well it takes the place of ``folder``.

    What was there before is removed only then. A block that fails or is killed leaves ``folder``
    as it was; what it had written is removed by the next call.

    Raises:
        OSError: naming ``folder``, if the disk is full.
    """
    from safetensors import SafetensorError

    fresh, stale = (folder.with_name(f".{folder.name}.{tag}") for tag in ("new", "old"))
    for leftover in (fresh, stale):
        shutil.rmtree(leftover, ignore_errors=True)
    fresh.mkdir(parents=True)
    try:
        yield fresh
        for path in fresh.rglob("*"):
            if path.is_file():
                _flush(path)
        if folder.exists():
            folder.rename(stale)
        fresh.rename(folder)
    except OSError as error:
        raise with_path(error, folder) from error
    except SafetensorError as error:  # says only in words what the disk refused
        refused = re.search(r"\(os error (\d+)\)", str(error))
        if refused is None:
            raise
        number = int(refused[1])
        raise with_path(OSError(number, os.strerror(number)), folder) from error
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    _flush(folder.parent)
    shutil.rmtree(stale, ignore_errors=True)


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
