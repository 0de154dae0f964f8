"""The rows of a question set in any file format: their fields, and their images on demand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from cfaug.core.errors import UserError
from cfaug.core.files import check_links
from cfaug.core.hidden import visible_files
from cfaug.core.types import SourceImage
from cfaug.data.sources.captioned_parquet import split_files, split_home
from cfaug.data.sources.lists import LISTS, list_records
from cfaug.data.sources.parquet import (
    column_names,
    holds_images,
    image_of,
    open_parquet,
    parquet_files,
    records,
)
from cfaug.data.sources.question_sets.columns import ArrowStream, ParquetColumn
from cfaug.data.sources.question_sets.images import EmbeddedImage, PhotoFiles
from cfaug.data.sources.released import text_field

STREAM_FOLDERS = ("", "data", "test", "data/test")
"""Folders in which ``save_to_disk`` puts the files of a set, and of its split ``test``."""

Embedded = Callable[[str], SourceImage]


@dataclass(frozen=True)
class SetRow:
    """A row of a question set.

    Attributes:
        where: the place of the row, for messages.
        fields: {column: value}, without columns that hold images.
        photos: the finder of named files.
        embedded: a function that returns the image in a column; ``None`` if images are named files.
    """

    where: str
    fields: Mapping[str, Any]
    photos: PhotoFiles
    embedded: Embedded | None = None

    def text(self, name: str) -> str:
        """Return a text or whole number as one line.

        Raises:
            UserError: if the value is missing or empty, naming the place.
        """
        line = " ".join(text_field(dict(self.fields), name, self.where).split())
        if not line:
            raise UserError(f"{self.where}: {name!r} is empty")
        return line

    def image(self, name: str) -> SourceImage:
        """Return the image in a column, or the file that it names.

        Raises:
            UserError: if the file is missing, naming the place.
        """
        if self.embedded is not None:
            return self.embedded(name)
        return self.photos.find(self.text(name), self.where)


@dataclass(frozen=True)
class SetTable:
    """A file or folder of rows.

    Attributes:
        source: the file or folder, as the user named it.
        columns: the columns of the first row.
        read: a function that yields every row, given further folders in which its images may be.
    """

    source: Path
    columns: tuple[str, ...]
    read: Callable[[Sequence[str]], Iterator[SetRow]]


def open_table(path: Path, roots: Sequence[Path]) -> list[SetTable]:
    """Return every table at a path: one, except for a folder with several lists.

    Args:
        path: a list, a parquet file or an Arrow stream; a folder with any of them; for parquet also
            ``FOLDER:SPLIT``.
        roots: absolute folders, besides the list's own, in which it may name images.

    Raises:
        UserError: if there is nothing readable.
    """
    if (home := split_home(path)[0]).is_dir():
        check_links(home, roots)
    kind = path.suffix.lower()
    if path.is_file() and kind in LISTS:
        return [_list_table(path, roots)]
    if path.is_file() and kind == ".arrow":
        return [_stream_table(path, [path])]
    if path.is_file() and kind == ".parquet":
        return [_parquet_table(path, [path])]
    if path.is_file():
        raise UserError(
            f"{path} is not a readable question set: choose from {', '.join(LISTS)}, "
            ".parquet and .arrow"
        )
    for folder in STREAM_FOLDERS if path.is_dir() else ():
        if streams := sorted((path / folder).glob("data-*.arrow")):
            return [_stream_table(path, streams)]
    if parquet_files(split_home(path)[0]):
        return [_parquet_table(path, split_files(path))]
    if not path.is_dir():
        raise UserError(f"there is no file or folder {path}")
    lists = [one for one in visible_files(path.iterdir()) if one.suffix.lower() in LISTS]
    return [_list_table(one, roots) for one in lists if one.is_file()]


def _list_table(file: Path, roots: Sequence[Path]) -> SetTable:
    def read(folders: Sequence[str]) -> Iterator[SetRow]:
        photos = PhotoFiles(file.parent.absolute(), tuple(roots), tuple(folders))
        for where, fields in list_records(file):
            yield SetRow(where, fields, photos)

    first = next((one for _, one in islice(list_records(file), 1)), {})
    return SetTable(file, tuple(first), read)


def _parquet_table(source: Path, files: Sequence[Path]) -> SetTable:
    names = column_names(files[0])
    with open_parquet(files[0]) as table:
        texts = [one.name for one in table.schema_arrow if not holds_images(one.type)]

    def read(folders: Sequence[str]) -> Iterator[SetRow]:
        for file in files:
            columns = {name: ParquetColumn(file, name) for name in names if name not in texts}
            for row, (where, fields) in enumerate(records([file], texts)):
                yield _embedded_row(where, fields, columns, row)

    return SetTable(source, tuple(names), read)


def _stream_table(source: Path, files: Sequence[Path]) -> SetTable:
    streams = [ArrowStream(file) for file in files]

    def read(folders: Sequence[str]) -> Iterator[SetRow]:
        for file, stream in zip(files, streams, strict=True):
            columns = {name: stream.column(name) for name in stream.images}
            texts = [name for name in stream.names if name not in columns]
            for row, fields in enumerate(stream.records(texts)):
                yield _embedded_row(f"{file}, row {row + 1}", fields, columns, row)

    return SetTable(source, streams[0].names, read)


def _embedded_row(
    where: str, fields: Mapping[str, Any], columns: Mapping[str, Any], row: int
) -> SetRow:
    def embedded(name: str) -> SourceImage:
        load = partial(_load, columns[name], row, name, where)
        return EmbeddedImage(f"{where}: {name}", load)

    return SetRow(where, fields, PhotoFiles(Path("/")), embedded)


def _load(column: Any, row: int, name: str, where: str) -> bytes:
    return image_of({name: column[row]}, name, where)
