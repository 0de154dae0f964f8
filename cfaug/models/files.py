"""A checkpoint's folder appears complete or not at all."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cfaug.cards import CARD
from cfaug.files import replace_folder


@contextmanager
def replace_checkpoint(folder: Path) -> Iterator[Path]:
    """Give an empty folder for a checkpoint, as ``cfaug.files.replace_folder`` does.

    A model card that lies in the old folder is in the new one as well: somebody may have edited it.

    Raises:
        OSError: naming ``folder``, if the disk is full, also where safetensors met it.
    """
    from safetensors import SafetensorError

    with replace_folder(folder) as fresh:
        try:
            yield fresh
            if (folder / CARD).is_file():
                shutil.copy2(folder / CARD, fresh / CARD)
        except SafetensorError as error:  # says only in words what the disk refused
            refused = re.search(r"\(os error (\d+)\)", str(error))
            if refused is None:
                raise
            number = int(refused[1])
            raise OSError(number, os.strerror(number)) from error
