"""Imports of released data into our shards: by ``import_sets``, or by naming the folder.

``data.counterfactual=FOLDER`` imports a folder that cannot be read in place into the cache on first
use, and reads the shards from then on.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from cfaug.core.errors import UserError, say
from cfaug.core.files import whole_folder, write_json
from cfaug.core.progress import watch
from cfaug.core.types import CounterfactualSet
from cfaug.data.shards.shards import (
    CARD,
    list_committed,
    list_complete,
    read_sets,
    summarise,
    write_shards,
)
from cfaug.data.sources import READERS, InstructPix2Pix, Reader, unreadable_error
from cfaug.data.sources.tars import IMPORTED

FORMAT = 2
"""Format 1 had no columns besides captions and images."""
SETS_PER_SHARD = 1000


def import_sets(folder: str | Path) -> Iterator[CounterfactualSet]:
    """Yield the sets of a folder in a released form (or of our own shards), one at a time.

    ``write_shards(import_sets(folder), shards)`` makes shards of it.
    """
    path = Path(folder).expanduser().resolve()
    if not path.is_dir():
        raise UserError(f"there is no folder {path}")
    try:
        reader = next((candidate for candidate in READERS if candidate.reads(path)), None)
        if isinstance(reader, InstructPix2Pix):
            return reader.sets(path)
        if reader is not None and reader.imported:
            return reader.open(path)
        if list_complete(path):
            return read_sets(path)
    except OSError as error:
        raise unreadable_error(path, error) from error
    known = (
        candidate
        for candidate in READERS
        if candidate.imported or isinstance(candidate, InstructPix2Pix)
    )
    forms = "\n".join(f"  {candidate.description}" for candidate in known)
    raise UserError(f"{path} has no sets in a known form; it should hold one of\n{forms}")


def import_folder(reader: Reader, path: Path, cache: Path) -> Path:
    """Return the shards of a released folder, writing them unless they exist for this content."""
    try:
        identity = reader.identity(path)
    except OSError as error:
        raise unreadable_error(path, error) from error
    about = json.dumps([FORMAT, reader.kind, str(path), identity], sort_keys=True)
    name = hashlib.sha256(about.encode()).hexdigest()[:32]
    folder = cache.expanduser().resolve() / f"imported-{name}"
    if _whole(folder):
        return folder
    if folder.exists():
        say(f"the shards of {path} in {folder} are damaged: they are made again")
    try:
        with whole_folder(folder, _whole) as temporary:
            sets = watch(reader.open(path), f"importing {path}", None, "sets")
            if not write_shards(sets, temporary, sets_per_shard=SETS_PER_SHARD)["sets"]:
                raise UserError(f"{path} holds no set: its files have no rows; fetch them again")
            # Called last, after all content has been read.
            write_json(temporary / IMPORTED, asdict(reader.describe(path)))
    except OSError as error:
        raise UserError(
            f"the shards of {path} cannot be kept in {folder.parent}: {error}; free some space "
            "there, or choose another paths.cache"
        ) from error
    return folder


def _whole(folder: Path) -> bool:
    """Return whether all imported shards exist, each with the length in its commit."""
    try:
        return bool(
            json.loads((folder / CARD).read_text(encoding="utf-8"))
            == summarise(list_committed(folder))
        )
    except (OSError, ValueError, KeyError, UserError):
        return False
