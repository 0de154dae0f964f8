"""The rows of a question set in any file format: fields, columns, and images on demand."""

from __future__ import annotations

import re
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import accumulate, islice
from pathlib import Path
from typing import Any

from cfaug.core.errors import UserError, say_once
from cfaug.core.files import check_links, require_regular, visible_files
from cfaug.core.pixels import content_digest
from cfaug.core.types import SourceImage
from cfaug.data.questions import BASIC, COUNTERFACTUAL, NO_OPTION, QuestionImage, SourceQuestion
from cfaug.data.sources.folders import IMAGE_FOLDERS
from cfaug.data.sources.lists import LISTS, list_records
from cfaug.data.sources.parquet import (
    DAMAGE,
    MAX_BYTES,
    ROWS_AT_ONCE,
    column_names,
    holds_images,
    image_of,
    open_parquet,
    parquet_files,
    records,
    require_image,
    text_field,
)
from cfaug.data.sources.parquet_splits import ParquetSplit, split_of
from cfaug.data.sources.photo_lists import find_photo
from cfaug.data.sources.row import ErrorCollector, clean_key, split_home
from cfaug.data.sources.splits import SplitChoice, SplitSurvey, choose_split

STREAM_FOLDERS = ("", "data", "test", "data/test")
"""Folders in which ``save_to_disk`` puts the files of a set, and of its split ``test``."""


@dataclass(frozen=True)
class SetRow:
    """A row of a question set.

    Attributes:
        fields: {column: value}, without columns that hold images.
        embedded: a function that returns the image in a column; ``None`` if images are named files.
    """

    where: str
    fields: Mapping[str, Any]
    photos: PhotoFiles
    embedded: Callable[[str], SourceImage] | None = None

    def text(self, name: str) -> str:
        """Return a text or whole number as one line."""
        line = " ".join(text_field(dict(self.fields), name, self.where).split())
        if not line:
            raise UserError(f"{self.where}: {name!r} is empty")
        return line

    def image(self, name: str) -> SourceImage:
        """Return the image in a column, or the file that it names."""
        if self.embedded is not None:
            return self.embedded(name)
        return self.photos.find(self.text(name), self.where)


@dataclass(frozen=True)
class SetTable:
    """A file or folder of rows.

    Attributes:
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
    """
    home, named = split_home(path)
    if home.is_dir():
        check_links(home, roots)
    kind = path.suffix.lower()
    if home.is_file() and home.suffix.lower() in LISTS:
        return [_list_table(home, named, roots)]
    if path.is_file() and kind == ".arrow":
        return [_stream_table(path, [path])]
    if path.is_file() and kind == ".parquet":
        return [_parquet_table(path, ParquetSplit([path], SplitChoice()))]
    if path.is_file():
        raise UserError(
            f"{path} is not a readable question set: choose from {', '.join(LISTS)}, "
            ".parquet and .arrow"
        )
    for folder in STREAM_FOLDERS if path.is_dir() else ():
        if streams := sorted((path / folder).glob("data-*.arrow")):
            return [_stream_table(path, streams)]
    if parquet_files(home):
        return [_parquet_table(path, split_of(path))]
    if not home.is_dir():
        raise UserError(f"there is no file or folder {path}")
    lists = [file for file in visible_files(home.iterdir()) if file.suffix.lower() in LISTS]
    return [_list_table(file, named, roots) for file in lists if file.is_file()]


def _embedded_row(
    where: str, fields: Mapping[str, Any], columns: Mapping[str, Any], row: int
) -> SetRow:
    def embedded(name: str) -> SourceImage:
        return EmbeddedImage(f"{where}: {name}", partial(_load, columns[name], row, name, where))

    return SetRow(where, fields, PhotoFiles(Path("/")), embedded)


def _load(column: Any, row: int, name: str, where: str) -> bytes:
    return image_of({name: column[row]}, name, where)


def _list_table(file: Path, split: str | None, roots: Sequence[Path]) -> SetTable:
    def read(folders: Sequence[str]) -> Iterator[SetRow]:
        photos = PhotoFiles(file.parent.absolute(), tuple(roots), tuple(folders))
        survey = SplitSurvey.of(fields for _, fields in list_records(file))
        named = file if split is None else file.with_name(f"{file.name}:{split}")
        choice = choose_split(named, survey)
        _say_notes(file, choice)
        for where, fields in list_records(file):
            if choice.reads(fields):
                yield SetRow(where, fields, photos)

    first = next((fields for _, fields in islice(list_records(file), 1)), {})
    return SetTable(file, tuple(first), read)


def _say_notes(source: Path, choice: SplitChoice) -> None:
    for note in choice.notes:
        say_once(f"{source}: {note}")


def _parquet_table(source: Path, split: ParquetSplit) -> SetTable:
    files, choice = split.files, split.choice
    names = column_names(files[0])
    with open_parquet(files[0]) as table:
        texts = [column.name for column in table.schema_arrow if not holds_images(column.type)]

    def read(folders: Sequence[str]) -> Iterator[SetRow]:
        _say_notes(source, choice)
        for file in files:
            columns = {name: ParquetColumn(file, name) for name in names if name not in texts}
            for row, (where, fields) in enumerate(records([file], texts)):
                if choice.reads(fields):
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


YES_NO = ("yes", "no")
"""Options of yes-or-no questions, in this order."""


@dataclass(frozen=True)
class QuestionForm:
    """One form of question sets.

    Attributes:
        read: a function that makes the images of all rows; errors of single rows go to the
            collector.
        folders: folders beside the list in which its images may be after unpacking.
    """

    name: str
    columns: tuple[str, ...]
    read: Callable[[Iterable[SetRow], ErrorCollector], list[QuestionImage]]
    folders: tuple[str, ...] = ()


def read_each(
    read: Callable[[SetRow], Iterable[QuestionImage]],
) -> Callable[[Iterable[SetRow], ErrorCollector], list[QuestionImage]]:
    """Return a reader of rows for a form in which rows are independent."""

    def read_all(rows: Iterable[SetRow], errors: ErrorCollector) -> list[QuestionImage]:
        images: list[QuestionImage] = []
        for row in rows:
            with errors.collect():
                images += read(row)
        return images

    return read_all


def yes_or_no(row: SetRow, name: str) -> int:
    """Return the number of a column's ``yes`` or ``no`` among ``YES_NO``."""
    answer = row.text(name).lower().rstrip(".")
    if answer not in YES_NO:
        raise UserError(
            f"{row.where}: {name}={answer!r} is invalid: choose from {', '.join(YES_NO)}"
        )
    return YES_NO.index(answer)


def split_options(text: str, letters: Sequence[str], mark: str) -> list[str]:
    """Return the options that follow their letters in a text, empty if it is not such a list.

    >>> split_options("(a) Open (b) Not open", "ab", "({})")
    ['Open', 'Not open']

    Args:
        letters: the letters of all possible options; the text has the first ones, at least two.
        mark: the format of a letter, with ``{}`` for the letter.
    """
    places = []
    at = 0
    for letter in letters:
        match = re.compile(rf"(?<!\w){re.escape(mark.format(letter))}").search(text, at)
        if match is None:
            break
        places.append(match.span())
        at = match.end()
    if len(places) < 2 or text[: places[0][0]].strip():
        return []
    ends = [start for start, _ in places[1:]] + [len(text)]
    return [text[s:e].strip(" ;,") for (_, s), e in zip(places, ends, strict=True)]


USED = ("id", "image", "group", "category", "basic", "counterfactuals")


def _read(row: SetRow) -> Iterable[QuestionImage]:
    image = row.image("image")
    group = next((n for n in ("group", "coco_id") if row.fields.get(n) not in (None, "")), "image")
    further = row.fields.get("counterfactuals")
    if not isinstance(further, list):
        raise UserError(f"{row.where}: 'counterfactuals' should be a list of questions")
    named = [("basic", BASIC, row.fields.get("basic"))]
    named += [(f"c{i}", COUNTERFACTUAL, question) for i, question in enumerate(further, 1)]
    yield QuestionImage(
        key=clean_key(row.text("id")),
        group=row.text(group),
        image=image,
        category=row.text("category"),
        questions=tuple(
            read_question(name, kind, question, f"{row.where}: {name}")
            for name, kind, question in named
        ),
        extra={name: value for name, value in row.fields.items() if name not in USED},
    )


def read_question(name: str, kind: str, record: object, where: str) -> SourceQuestion:
    """Read a question of the form, ``{q, options, answer, ...}``."""
    if not isinstance(record, Mapping):
        raise UserError(f"{where}: a question should be {{q, options, answer}}, not {record!r:.80}")
    given = record.get("options")
    if not isinstance(given, list):
        raise UserError(f"{where}: 'options' should be a list of texts, not {given!r:.80}")
    options = [
        " ".join(text_field({f"option {i}": option}, f"option {i}", where).split())
        for i, option in enumerate(given)
    ]
    extra = {n: value for n, value in record.items() if n not in ("q", "options", "answer")}
    if "answer" not in record:
        raise UserError(f"{where}: 'answer' is missing: the number of the right option, from 0")
    answer: Any = record["answer"]
    if isinstance(answer, str):
        extra["answer"] = answer
        line = " ".join(answer.split())
        if not any(map(_is_mark, options)) and _is_mark(line):
            raise UserError(
                f"{where}: 'answer' is {answer!r}, which is not one of the options "
                f"{', '.join(options)}: write the number of the right option, from 0, without "
                "quotes, or its text"
            )
        answer = options.index(line) if line in options else NO_OPTION
    if isinstance(answer, bool) or not isinstance(answer, int | None):
        raise UserError(
            f"{where}: 'answer' should be the number of the right option, from 0, not {answer!r}"
        )
    text = " ".join(text_field(dict(record), "q", where).split())
    try:
        return SourceQuestion(name, kind, text, tuple(options), answer, extra)
    except UserError as error:
        raise UserError(f"{where}: {error}") from error


def _is_mark(text: str) -> bool:
    """Return whether a text is a letter or number such as options are marked with: B, (c), 2."""
    return re.fullmatch(r"\(?(?:[A-Ha-h]|\d)[).]?", text) is not None


OWN = QuestionForm("jsonl of basic and counterfactual questions", USED[:2] + USED[3:],
                   read_each(_read))  # fmt: skip


# Columns of encoded images in parquet and in Arrow streams, read a few rows at a time.


class ParquetColumn:
    """One column of a parquet file; reading rows in order reads the file once."""

    def __init__(self, file: Path, name: str) -> None:
        self.file, self.name = file, name
        self._lock = threading.Lock()
        self._batches: Iterator[Any] = iter(())  # of a row group
        self._batch: Any = ()
        self._first, self._group = 0, -1

    @cached_property
    def _table(self) -> Any:
        return open_parquet(self.file)

    @cached_property
    def _ends(self) -> list[int]:
        about = self._table.metadata
        return list(accumulate(about.row_group(i).num_rows for i in range(about.num_row_groups)))

    def __getitem__(self, row: int) -> Any:
        """Return a value as a Python object."""
        import pyarrow as pa

        with self._lock:
            try:
                group = bisect_right(self._ends, row)
                if group != self._group or row < self._first:
                    self._batches = self._table.iter_batches(
                        batch_size=ROWS_AT_ONCE, row_groups=[group], columns=[self.name]
                    )
                    self._group, self._batch = group, ()
                    self._first = self._ends[group - 1] if group else 0
                while row >= self._first + len(self._batch):
                    self._first += len(self._batch)
                    self._batch = next(self._batches)
                return self._batch.column(0)[row - self._first].as_py()
            except (pa.ArrowException, StopIteration, *DAMAGE) as error:
                raise UserError(
                    f"{self.file}, row {row + 1}: {self.name!r} cannot be read ({error}); fetch "
                    "the file again"
                ) from error


class ArrowStream:
    """An Arrow stream written by ``datasets.save_to_disk``, memory-mapped and checked.

    Args:
        file: the file of the stream, such as ``data-00000-of-00003.arrow``.
    """

    def __init__(self, file: Path) -> None:
        import pyarrow as pa

        self._file = file
        try:
            batches = list(pa.ipc.open_stream(pa.memory_map(str(require_regular(file)))))
            for batch in batches:
                batch.validate(full=True)  # mainly offsets beyond the end of the file
            schema = list(batches[0].schema) if batches else []
            self.names = tuple(column.name for column in schema)
            self.images = tuple(column.name for column in schema if holds_images(column.type))
            self._table: Any = pa.Table.from_batches(batches) if batches else None
        except (pa.ArrowException, *DAMAGE) as error:
            raise UserError(
                f"{file} is not a readable Arrow stream ({error}); fetch it again"
            ) from error
        if self._table is None:
            raise UserError(f"{file} holds no row")

    def records(self, names: Sequence[str]) -> Iterator[dict[str, Any]]:
        """Yield the values of some columns for every row."""
        # A batch of the file may be half a gigabyte.
        for batch in self._table.select(list(names)).to_batches(ROWS_AT_ONCE):
            yield from batch.to_pylist()

    def column(self, name: str) -> _ArrowColumn:
        """Return a column whose values are copied from the file on demand."""
        return _ArrowColumn(self._table.column(name), name, self._file)


@dataclass(frozen=True)
class _ArrowColumn:
    values: Any
    name: str
    file: Path

    def __getitem__(self, row: int) -> Any:
        try:
            return self.values[row].as_py()
        except DAMAGE as error:  # for the name of a part that is not text
            raise UserError(
                f"{self.file}, row {row + 1}: {self.name!r} cannot be read ({error}); fetch the "
                "file again"
            ) from error


@dataclass(frozen=True)
class FileImage:
    """An image in its own file: a ``cfaug.core.types.SourceImage``."""

    file: Path

    @cached_property
    def digest(self) -> str:
        """The digest of all bytes, hexadecimal; the file is read once."""
        return content_digest(self._load()).hex()

    def read(self) -> bytes:
        data = self._load()
        digest = content_digest(data).hex()
        if self.__dict__.setdefault("digest", digest) != digest:
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
        return require_image(self.load(), self.name)


@dataclass(frozen=True)
class PhotoFiles:
    """Finds the files of images that a list names.

    Attributes:
        folders: folders below ``home`` or a root that are searched as well.
    """

    home: Path
    roots: tuple[Path, ...] = ()
    folders: tuple[str, ...] = ()

    def find(self, name: str, where: str) -> FileImage:
        """Return an image, which must exist, without reading it."""
        folders = (*IMAGE_FOLDERS, *self.folders)
        return FileImage(find_photo(self.home, name, where, self.roots, folders))
