"""Every form of data that is read as it is. To add one: a reader, and its place in ``READERS``."""

from __future__ import annotations

import os
from pathlib import Path

from cfaug.data.sources.folders import CaptionList, ImageFolder, SidecarText
from cfaug.data.sources.row import Reader, Row
from cfaug.data.sources.tars import ClipBenchmark, OwnShards, TarReader
from cfaug.errors import UserError

__all__ = ["READERS", "Reader", "Row", "detect"]

READERS: tuple[Reader, ...] = (
    OwnShards(),
    ClipBenchmark(),
    TarReader(
        "webdataset",
        "NNNNN.tar with .jpg, .txt, .json (img2dataset, WebDataset)",
        lines_are_captions=False,
    ),
    CaptionList(),
    SidecarText(),
    ImageFolder(),
)
"""In the order they are asked; the first that recognises a folder reads it."""


def detect(path: Path) -> Reader:
    """Return the reader of a folder.

    Raises:
        UserError: if it does not exist, cannot be read, or has no form anyone knows.
    """
    try:
        if not path.is_dir():
            raise UserError(f"there is no folder {path}")
        os.listdir(path)  # or an unreadable folder would be blamed on what a reader looks for
        for reader in READERS:
            if reader.recognises(path):
                return reader
    except OSError as error:
        raise unreadable(path, error) from error
    forms = "\n".join(f"  {reader.looks_like}" for reader in READERS)
    raise UserError(f"{path} has no form that is known; it should hold one of\n{forms}")


def unreadable(path: Path, error: OSError) -> UserError:
    """Return the error for a folder, or something in it, that cannot be read."""
    return UserError(f"{error.filename or path} cannot be read: {error.strerror or error}")
