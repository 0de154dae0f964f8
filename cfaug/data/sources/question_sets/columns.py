"""Columns of encoded images in parquet and in Arrow streams, read a few rows at a time."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any

from cfaug.core.errors import UserError
from cfaug.core.files import require_regular
from cfaug.core.pixels import content_digest
from cfaug.data.sources.folders import IMAGE_FOLDERS
from cfaug.data.sources.parquet import DAMAGE, ROWS_AT_ONCE, holds_images, open_parquet
from cfaug.data.sources.photo_lists import find_photo
from cfaug.data.sources.released import MAX_BYTES, require_image


@dataclass
class ParquetColumn:
    """One column of a parquet file; reading rows in order reads the file once."""

    file: Path
    name: str
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)
    _batches: Iterator[Any] | None = field(default=None, init=False, repr=False)
    _batch: Any = field(default=None, init=False, repr=False)
    _first: int = field(default=0, init=False, repr=False)
    _group: int = field(default=-1, init=False, repr=False)

    def __getitem__(self, row: int) -> Any:
        """Return a value as a Python object."""
        import pyarrow as pa

        with self._lock:
            try:
                while not self._holds(row):
                    self._advance(row)
                return self._batch.column(0)[row - self._first].as_py()
            except (pa.ArrowException, StopIteration, *DAMAGE) as error:
                raise UserError(
                    f"{self.file}, row {row + 1}: {self.name!r} cannot be read ({error}); fetch "
                    "the file again"
                ) from error

    @cached_property
    def _table(self) -> Any:
        return open_parquet(self.file)

    @cached_property
    def _ends(self) -> list[int]:
        about = self._table.metadata
        return list(accumulate(about.row_group(i).num_rows for i in range(about.num_row_groups)))

    def _holds(self, row: int) -> bool:
        return self._batch is not None and 0 <= row - self._first < len(self._batch)

    def _advance(self, row: int) -> None:
        """Read the next rows of the row's group, from its start if the row lies before them."""
        group = bisect_right(self._ends, row)
        if self._batches is None or group != self._group or row < self._first:
            self._group, self._first = group, self._ends[group - 1] if group else 0
            self._batch = None
            self._batches = self._table.iter_batches(
                batch_size=ROWS_AT_ONCE, row_groups=[group], columns=[self.name]
            )
        self._first += 0 if self._batch is None else len(self._batch)
        self._batch = next(self._batches)


class ArrowStream:
    """An Arrow stream written by ``datasets.save_to_disk``, memory-mapped and checked.

    Args:
        file: the file of the stream, such as ``data-00000-of-00003.arrow``.
    """

    def __init__(self, file: Path) -> None:
        import pyarrow as pa

        self._file = file
        try:
            self._batches = list(pa.ipc.open_stream(pa.memory_map(str(require_regular(file)))))
            for batch in self._batches:
                batch.validate(full=True)  # mainly offsets beyond the end of the file
            schema = list(self._batches[0].schema) if self._batches else []
            self.names = tuple(one.name for one in schema)
            self.images = tuple(one.name for one in schema if holds_images(one.type))
        except (pa.ArrowException, *DAMAGE) as error:
            raise UserError(
                f"{file} is not a readable Arrow stream ({error}); fetch it again"
            ) from error
        if not self._batches:
            raise UserError(f"{file} holds no row")

    def records(self, names: Sequence[str]) -> Iterator[dict[str, Any]]:
        """Yield the values of some columns for every row."""
        for batch in self._batches:
            chosen = batch.select(list(names))
            for start in range(0, len(batch), ROWS_AT_ONCE):  # a batch may be half a gigabyte
                yield from chosen.slice(start, ROWS_AT_ONCE).to_pylist()

    def column(self, name: str) -> _ArrowColumn:
        """Return a column whose values are copied from the file on demand."""
        return _ArrowColumn(self._batches, name, self._file)


@dataclass(frozen=True)
class _ArrowColumn:
    batches: Sequence[Any]
    name: str
    file: Path

    @cached_property
    def _ends(self) -> list[int]:
        return list(accumulate(len(batch) for batch in self.batches))

    def __getitem__(self, row: int) -> Any:
        at = bisect_right(self._ends, row)
        first = self._ends[at - 1] if at else 0
        try:
            return self.batches[at].column(self.name)[row - first].as_py()
        except DAMAGE as error:  # for the name of a part that is not text
            raise UserError(
                f"{self.file}, row {row + 1}: {self.name!r} cannot be read ({error}); fetch the "
                "file again"
            ) from error


# The images of a question set: named files, and encoded bytes in a table.


@dataclass(frozen=True)
class FileImage:
    """An image in its own file: a ``cfaug.core.types.SourceImage``.

    Attributes:
        file: the absolute path of the file.
    """

    file: Path

    @cached_property
    def digest(self) -> str:
        """The digest of all bytes, hexadecimal; the file is read once."""
        return content_digest(self._load()).hex()

    def read(self) -> bytes:
        """Return the file."""
        data = self._load()
        found = content_digest(data).hex()
        if self.__dict__.setdefault("digest", found) != found:
            raise UserError(f"{self.file} was replaced while its questions were asked: start again")
        return data

    def _load(self) -> bytes:
        try:
            if (size := require_regular(self.file).stat().st_size) > MAX_BYTES:
                raise UserError(f"{self.file}: {size} bytes are too many; at most {MAX_BYTES}")
            return require_image(self.file.read_bytes(), str(self.file))
        except OSError as error:
            raise UserError(f"{self.file} cannot be read: {error.strerror}") from error


@dataclass(frozen=True)
class EmbeddedImage:
    """An encoded image inside another file: a ``cfaug.core.types.SourceImage``, loaded on demand.

    Attributes:
        name: the place of the image, for messages; equal only for equal images.
        load: a function that returns the encoded image.
        drawn: whether the name determines the image, as for one that is rendered by rules.
    """

    name: str
    load: Callable[[], bytes] = field(compare=False, repr=False)
    drawn: bool = field(default=False, compare=False, repr=False)

    @cached_property
    def digest(self) -> str:
        """The digest of all bytes, hexadecimal; the image is loaded once."""
        return content_digest(self.read()).hex()

    def read(self) -> bytes:
        """Return the encoded image."""
        return require_image(self.load(), self.name)


@dataclass(frozen=True)
class PhotoFiles:
    """Finds the files of images that a list names.

    Attributes:
        home: the absolute path of the list's folder.
        roots: further absolute folders in which images may be.
        folders: folders below ``home`` or a root that are searched as well.
    """

    home: Path
    roots: tuple[Path, ...] = ()
    folders: tuple[str, ...] = ()

    def find(self, name: str, where: str) -> FileImage:
        """Return an image, which must exist, without reading it.

        Args:
            name: the name of the image in the list.
            where: the place of the name, for messages.
        """
        folders = (*IMAGE_FOLDERS, *self.folders)
        return FileImage(find_photo(self.home, name, where, self.roots, folders))
