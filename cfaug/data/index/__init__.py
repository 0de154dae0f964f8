"""An index over any source: one row per image-text pair, memory-mapped and cached by content.

It is opened from the cache, or made by a scan.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

from cfaug.core.atomic_files import tidy, whole_folder
from cfaug.core.errors import UserError, say
from cfaug.core.files import advise
from cfaug.core.pixels import IMAGES
from cfaug.core.progress import Progress
from cfaug.core.stores import size_of
from cfaug.data.index.disk_format import (
    ABOUT,
    FORMAT,
    DamagedError,
    is_current,
    read_about,
    write_index,
)
from cfaug.data.index.extra_columns import Strings
from cfaug.data.index.index import Index
from cfaug.data.index.outdated import is_outdated
from cfaug.data.sources import (
    Reader,
    Row,
    check_source,
    find_reader,
    import_folder,
    split_folder,
    unreadable_error,
)
from cfaug.data.sources.fields import field_names, reading_by
from cfaug.data.sources.folders import hidden_below
from cfaug.data.sources.row import Description, split_home
from cfaug.data.sources.tars import OwnShards

__all__ = ["Index", "open_index"]


def open_index(
    source: str | Path,
    cache: Path,
    image_roots: Sequence[Path] = (),
    reader: Reader | None = None,
) -> Index:
    """Open the index of a source; new content is scanned first.

    A damaged index in the cache is remade, with a message on stderr.

    Args:
        source: a folder in any form that ``cfaug.data.sources`` knows; or the folder of an index,
            which can be planned without its images, for example on a login node.
        reader: the reader of a folder whose form cannot be recognised from its files; ``None``
            tries all readers.
    """
    path = Path(source).expanduser().resolve()
    check_source(path, image_roots)
    if reader is not None:
        return _read(path, source, cache, reader)
    path = split_folder(path)
    try:
        is_index = path.is_dir() and ABOUT in os.listdir(path)
    except OSError as error:
        raise unreadable_error(path, error) from error
    if is_index:  # it cannot be remade from a source
        try:
            return _open_folder(path, source)
        except DamagedError as error:
            raise UserError(
                f"{path} is not a readable index: {error}; make or copy it again"
            ) from error
    reader = find_reader(path, image_roots)
    if not reader.imported:
        with reading_by(None) if isinstance(reader, OwnShards) else nullcontext():
            return _read(path, source, cache, reader)
    folder = import_folder(reader, path, cache)
    with reading_by(None):  # the columns of shards have our names
        shards = _read(folder, source, cache, find_reader(folder), (path, reader.form))
    reading = shards.reading
    if reading is not None:
        reading = replace(reading, kind=reader.kind, form=reader.form)
    return replace(shards, kind=reader.kind, reading=reading)


def _read(
    path: Path,
    source: str | Path,
    cache: Path,
    reader: Reader,
    origin: tuple[Path, str] | None = None,
) -> Index:
    """Open or make the index of a folder that is read in place.

    Args:
        origin: the folder that imported shards were made from, and its form, for messages; ``None``
            for a folder that is not imported.
    """
    try:
        identity = reader.identity(path)
    except OSError as error:
        raise unreadable_error(path, error) from error
    about = [FORMAT, reader.kind, str(path), identity, *field_names().key]
    name = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:32]
    folder = cache.expanduser().resolve() / name
    tidy(folder.parent)
    if folder.exists():
        try:
            index = _open_folder(folder, source)
            if is_current(folder) and not is_outdated(folder, index.reading):
                return index
        except DamagedError as error:
            say(f"the index of {path} in {folder} is damaged ({error}): it is made again")
    _scan(reader, path, folder, origin or (path, reader.form))
    return _open_folder(folder, source)


def _open_folder(folder: Path, source: str | Path) -> Index:
    return Index(folder, str(source), *read_about(folder))


def _scan(reader: Reader, path: Path, folder: Path, origin: tuple[Path, str]) -> None:
    source, form = origin

    def rows() -> Iterator[Row]:
        last = ("", 0)
        try:
            size = sum(size_of(file) or 0 for file in reader.files(path))
            with Progress(f"indexing {path}", size, "bytes") as progress:
                for row in reader.open(path):
                    if last != (row.file, row.offset):
                        last = (row.file, row.offset)
                        progress.advance(row.length)
                    yield row
        except OSError as error:
            raise unreadable_error(path, error) from error

    def describe() -> Description:
        """Add the numbers of images that no row shows."""
        seen = set(Strings.load(temporary, "files"))
        images = (str(file) for file in reader.files(path) if file.name.lower().endswith(IMAGES))
        others = sum(image not in seen for image in images)
        described = field_names().describe(reader.describe(path))
        left_out = [f"{others:,} other images"] if others else []
        home = split_home(path)[0]
        left_out += hidden_below(home if home.is_dir() else home.parent, seen)
        return replace(described, left_out=(*described.left_out, *left_out))

    def whole(there: Path) -> bool:
        try:
            _, _, reading = read_about(there)
            return is_current(there) and not is_outdated(there, reading)
        except DamagedError:
            return False

    try:
        with whole_folder(folder, whole) as temporary:
            write_index(
                rows(), temporary, kind=reader.kind, source=str(source), form=form,
                describe=describe,
            )  # fmt: skip
    except OSError as error:
        raise UserError(
            f"the index of {path} cannot be kept in {folder.parent}: {error.strerror}; "
            f"{advise(error, 'paths.cache')}"
        ) from error
