"""A reader of one's own, ``data.reader``: from each row of a list, parquet or tar to examples.

A class with one method is enough::

    class Headlines(RowReader):
        def read(self, row):
            text = f"{row['headline']}. {row['subline']}"
            return Example(key=row["id"], group=row["id"], texts=(text,), image=row.image("file"))
"""

from __future__ import annotations

import copy
import hashlib
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from cfaug.core.errors import UserError
from cfaug.core.files import require_regular, visible_files
from cfaug.core.pixels import check_images_differ, content_digest
from cfaug.core.types import CounterfactualSet, Edit, Example, Member
from cfaug.data.captions import replaced_run
from cfaug.data.sources.caption_list import image_name, source_home
from cfaug.data.sources.columns import chosen_records
from cfaug.data.sources.folders import images_below
from cfaug.data.sources.lists import LISTS
from cfaug.data.sources.parquet import MAX_BYTES, cell_bytes, image_of, parquet_files, require_image
from cfaug.data.sources.parquet_splits import split_of
from cfaug.data.sources.photo_lists import find_photo
from cfaug.data.sources.row import (
    Description,
    ErrorCollector,
    Reader,
    caption,
    class_caption,
    files_identity,
    split_home,
)
from cfaug.data.sources.tars import TarReader


@dataclass(frozen=True)
class RowImage:
    """An image of a row: its encoded file."""

    data: bytes

    @property
    def digest(self) -> str:
        return content_digest(self.data).hex()

    def read(self) -> bytes:
        return self.data


class SourceRow(dict[str, Any]):
    """A row of a source, {column: value}; of a tar the fields of its json, ``.txt`` and ``.cls``.

    Attributes:
        where: the place of the row, for messages.
    """

    def __init__(
        self, values: Mapping[str, Any], where: str, open_image: Callable[[SourceRow, str], bytes]
    ) -> None:
        super().__init__(values)
        self.where, self._open_image = where, open_image

    def __missing__(self, column: str) -> Any:
        raise UserError(f"{self.where} has no column {column!r}; there are {', '.join(self)}")

    def image(self, column: str = "image") -> RowImage:
        """Return the image in a column, or in the file that it names; a tar's sample has one."""
        return RowImage(require_image(self._open_image(self, column), f"{self.where}: {column}"))


class RowReader(Reader):
    """A reader of rows that another class makes examples of, by its method ``read``.

    The source is a list (csv, tsv, json, jsonl), a folder with one, or a folder of parquet files or
    of tars; it is imported into shards, again when its files or the module of the class change.
    ``recognises`` may be overridden where only one of several sources is to be read so.
    """

    imported: ClassVar[bool] = True
    has_parts: ClassVar[bool] = True
    kind = "own_rows"
    form = "rows read by a class of your own"
    description = "a list, parquet or tars, by data.reader"
    image_roots: tuple[Path, ...] = ()

    def read(self, row: SourceRow) -> Example | Sequence[Example]:
        """Return the example of a row, or several: the members of one counterfactual set.

        The first of several is the original. An example without an image has the row's
        (``row.image()``), one without texts the caption of its label. No example leaves the row
        out. Keys are unique in the source.
        """
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{type(self).__module__}.{type(self).__qualname__}({vars(self)})"

    def with_roots(self, image_roots: Sequence[Path]) -> RowReader:
        reader = copy.copy(self)
        reader.image_roots = tuple(image_roots)
        return reader

    def recognises(self, path: Path) -> bool:
        return bool(self.files(path))

    def files(self, path: Path) -> list[Path]:
        """Return the list, or the files of parquet or the tars."""
        home = split_home(path)[0]
        if home.is_file():
            return [home] if home.suffix.lower() in LISTS else []
        lists = visible_files(f for f in home.glob("*.*") if f.suffix.lower() in LISTS)
        several = parquet_files(home) or TarReader().files(home)
        return several or (lists if len(lists) == 1 else [])

    def describe(self, path: Path) -> Description:
        return Description(notes=(f"read by {type(self).__module__}.{type(self).__qualname__}",))

    def identity(self, path: Path) -> Any:
        """Return what changes with the files, the images beside a list, and the class."""
        files = self.files(path)
        images = [] if files[0].suffix == ".tar" else images_below(source_home(path))
        module = Path(inspect.getfile(type(self))).read_bytes()
        return [repr(self), hashlib.sha256(module).hexdigest(), *files_identity([*files, *images])]

    def open(self, path: Path) -> Iterator[CounterfactualSet]:
        errors = ErrorCollector()
        for row in self._rows(path):
            with errors.collect():
                examples = self._read(row)
                if examples:
                    yield _set_of(examples, row)
        errors.report()

    def _read(self, row: SourceRow) -> list[Example]:
        try:
            examples = self.read(row)
            every = [examples] if isinstance(examples, Example) else list(examples)
        except Exception as error:  # of somebody's own code
            if isinstance(error, UserError) and str(error).startswith(row.where):
                raise
            raise UserError(
                f"{row.where}: {type(self).__name__}.read: {type(error).__name__}: {error}"
            ) from error
        wrong = next((example for example in every if not isinstance(example, Example)), None)
        if wrong is not None:
            raise UserError(f"{row.where}: {type(self).__name__}.read returned {wrong!r:.80}")
        return every

    def _rows(self, path: Path) -> Iterator[SourceRow]:
        first = self.files(path)[0]
        if first.suffix.lower() == ".tar":
            for sample in TarReader().samples(path):
                texts = [name for name in (".txt", ".cls") if name in sample.parts]
                values = sample.about() | {name: sample.text(name) for name in texts}
                yield SourceRow(values, sample.where, lambda *_, s=sample: s.image_bytes())
            return
        in_cells = first.suffix.lower() == ".parquet"
        records = split_of(path).records() if in_cells else chosen_records(path, first)
        for where, record in records:
            yield SourceRow(record, where, partial(self._open_image, source_home(path)))

    def _open_image(self, home: Path, row: SourceRow, column: str) -> bytes:
        """Return the image in a cell, or in the file that it names."""
        if isinstance(cell_bytes(row[column]), bytes):
            return image_of(row, column, row.where)
        name = image_name(row[column], row.where)
        file = find_photo(home, name, row.where, self.image_roots)
        with require_regular(file).open("rb") as handle:
            return handle.read(MAX_BYTES + 1)


def _set_of(examples: Sequence[Example], row: SourceRow) -> CounterfactualSet:
    """Return a row's examples as members of a set, each with its texts."""
    where, (first, *others) = row.where, examples
    images = {
        str(number): require_image((example.image or row.image()).read(), where)
        for number, example in enumerate(examples)
    }
    if others:
        check_images_differ([(f"image {name}", data) for name, data in images.items()], where)
    members: list[Member] = []
    for number, example in enumerate(examples):
        if not example.texts and example.label is None:
            raise UserError(f"{where}: the example {example.key!r} has neither a text nor a label")
        for text in example.texts or (class_caption(str(example.label)),):
            line = caption(text, where)
            if number and line == members[0].text:
                raise UserError(f"{where}: a counterfactual's caption is the original's, {line!r}")
            edit = Edit("text", *replaced_run(members[0].text, line)) if number else None
            members.append(
                Member(line, str(number), example.key, edit, example.label, example.extra)
            )
    return CounterfactualSet(
        first.key, first.group, tuple(members), images, provenance={"source": RowReader.kind}
    )
