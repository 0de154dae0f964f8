"""Atomic writing of checkpoint folders."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cfaug.core.cards import CARD
from cfaug.core.files import replace_folder


@contextmanager
def replace_checkpoint(folder: Path) -> Iterator[Path]:
    """Provide an empty folder for a checkpoint, like ``cfaug.core.files.replace_folder``.

    A model card in the old folder is kept in the new one, because the user may have edited it.

    Raises:
        OSError: if the disk is full, also if safetensors reports it by its own error.
    """
    from safetensors import SafetensorError

    with replace_folder(folder) as fresh:
        try:
            yield fresh
            if (folder / CARD).is_file() and not (folder / CARD).is_symlink():
                shutil.copy2(folder / CARD, fresh / CARD)
        except SafetensorError as error:  # has the disk's error only as text
            refused = re.search(r"\(os error (\d+)\)", str(error))
            if refused is None:
                raise
            number = int(refused[1])
            raise OSError(number, os.strerror(number)) from error
