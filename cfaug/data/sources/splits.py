"""The splits of a source: columns, keys and folders that say train, val or test.

A list that says of each row to which split it belongs is read by its splits: ``FOLDER:test`` names
one, ``FOLDER:train+val`` several. Without a name it is refused if there are several, so that no
test is trained on by accident.
"""

from __future__ import annotations

import math
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path, PurePath
from typing import Any, Self

from cfaug.core.errors import UserError, name_some
from cfaug.data.sources.row import is_null, split_home

COLUMNS = {
    "datasetsplit", "datasplit", "datasubset", "fold", "imageset", "partition", "phase", "set",
    "setname", "split", "splitname", "splits", "subset", "subsetname", "traintest",
    "traintestsplit", "trainvaltest", "usage",
}  # fmt: skip
"""Names of columns of splits, letters only, whatever their values. A column of another name is one
if it holds nothing but names of splits, two or more."""
CODED = {"datasplit", "partition", "split", "splits", "traintestsplit"}
"""Names among them of columns whose numbers are splits."""
CODES = {"0": "train", "1": "val", "2": "test"}
"""What the numbers mean in CelebA's partition and in the lists of Waterbirds and WILDS."""
FLAGS = {
    "intrain": "train", "istrain": "train", "istraining": "train", "istrainingimage": "train",
    "train": "train", "training": "train", "istest": "test", "test": "test", "testing": "test",
    "isval": "val", "isvalid": "val", "isvalidation": "val", "val": "val", "validation": "val",
}  # fmt: skip
"""Names of columns of yes and no."""
YES, NO = {"1", "true", "yes"}, {"0", "false", "no"}
CONTENT = {
    "caption", "captions", "category", "class", "classname", "comment", "file", "filename",
    "filepath", "group", "id", "image", "imageid", "imagename", "imagepath", "img", "label",
    "labels", "path", "raw", "sentence", "sentences", "text", "title", "url",
}  # fmt: skip
"""Names of columns of images, captions and classes: these are never splits."""
KINDS = {
    "train": r"train(?:ing)?",
    "val": r"val(?:id(?:ation)?)?|dev(?:el(?:opment)?)?",
    "test": r"test(?:ing)?|publictest|privatetest",
    "trainval": r"train[ _+&-]?val(?:idation)?",
    "restval": r"(?:train[ _+&-]?)?rest[ _-]?val",
    "minival": r"mini[ _-]?val",
    "holdout": r"(?:hold|held)[ _-]?out",
    "eval": r"eval(?:uation)?",
    "unlabeled": r"unlabell?ed",
}
"""The splits, and the forms of their names, in lower case."""
SUFFIX = (
    r"(?:[ _-]?(?:set|split|data|images?|imgs?|part))?"
    r"(?:[ _-]?(?:a|b|c|all|balanced|challenge|clean|core|dev|full|mini|other|private|public|"
    r"reserve|seen|small|standard|std|unseen))?(?:[ _-]?\d{1,4})?"
)
NO_SPLIT = "(none)"
"""The name of rows that say no split, in counts."""
MOST = 1000
"""Number of different values of a column that are counted."""
SHOWN = 5
"""Number of values that a note names."""
SEVERAL = re.compile(r"\s*[;,|+&]\s*")
"""What separates several splits in one cell."""
IN_FOLDER = "folder of the image"
IN_LISTS = "lists beside the folders"
IN_FILES = "names of its files"
ELSEWHERE = (IN_FOLDER, IN_LISTS, IN_FILES)
"""Where the split of an image is said, if not in a column of a list."""


@lru_cache(maxsize=4096)
def plain_name(name: str) -> str:
    """Return the letters of a column's name, in lower case.

    >>> plain_name("Data Split"), plain_name("is_training_image")
    ('datasplit', 'istrainingimage')
    """
    return re.sub(r"[^a-z]", "", name.rpartition(".")[2].lower())


@lru_cache(maxsize=4096)
def split_kind(value: str) -> str | None:
    """Return which split a value names; ``None`` for any other text.

    >>> [split_kind(name) for name in ("Training", "valid", "dev", "test2017", "restval", "testA")]
    ['train', 'val', 'val', 'test', 'restval', 'test']
    >>> [split_kind(name) for name in ("A", "trainer", "0", "set-1", "train station", "")]
    [None, None, None, None, None, None]
    """
    text = value.strip().lower()
    for kind, form in KINDS.items() if len(text) <= 40 else ():
        if re.fullmatch(f"(?:{form}){SUFFIX}", text):
            return kind
    return None


def folder_split(image: str) -> str | None:
    """Return the first folder of an image's path that is called as a split is.

    >>> folder_split("coco/train2017/0001.jpg"), folder_split("images/test.jpg")
    ('train2017', None)
    """
    return _split_among(os.path.dirname(image))


@lru_cache(maxsize=4096)
def _split_among(folder: str) -> str | None:
    return next((name for name in PurePath(folder).parts if split_kind(name) is not None), None)


def values_of(cell: object) -> tuple[str, ...]:
    """Return the names of splits in a cell: one, several in a list, or none in an empty cell.

    >>> values_of("train"), values_of("train;val"), values_of(["test"]), values_of(2.0)
    (('train',), ('train', 'val'), ('test',), ('2',))
    >>> values_of("A;B"), values_of(None), values_of(" ")
    (('A;B',), (), ())
    """
    if isinstance(cell, str):
        return _values_in(cell)
    if is_null(cell):
        return ()
    if isinstance(cell, list | tuple):
        return tuple(name for part in cell for name in values_of(part))
    if isinstance(cell, float) and math.isfinite(cell) and cell.is_integer():
        cell = int(cell)
    return (str(cell),) if isinstance(cell, int) else ()


@lru_cache(maxsize=4096)
def _values_in(cell: str) -> tuple[str, ...]:
    text = cell.strip()
    parts = tuple(part for part in SEVERAL.split(text.strip("[]")) if part)
    parts = tuple(part.strip("'\" ") for part in parts)
    if len(parts) > 1 and all(split_kind(part) for part in parts):
        return parts
    return (text,) if text else ()


def flat(record: Mapping[str, Any]) -> Iterable[tuple[str, object]]:
    """Yield the fields of a record, and those of its objects, as ``extra.NAME``."""
    for name, value in record.items():
        if isinstance(value, dict):
            yield from ((f"{name}.{inner}", cell) for inner, cell in value.items())
        else:
            yield name, value


@lru_cache(maxsize=4096)
def may_be_split(name: str) -> bool:
    """Return whether a column is called as one of splits is."""
    plain = plain_name(name)
    return name in (IN_LISTS, IN_FILES) or plain in COLUMNS or plain in FLAGS


def has_split_key(record: Mapping[str, Any]) -> bool:
    """Return whether a record has a field that is called as one of splits is."""
    return any(may_be_split(name) for name, _ in flat(record))


@dataclass
class SplitSurvey:
    """Counts what the rows of a source say of their splits, before any is read."""

    rows: int = 0
    _counts: dict[str, Counter[str]] = field(default_factory=dict)
    _said: Counter[str] = field(default_factory=Counter)
    _others: set[str] = field(default_factory=set)

    @classmethod
    def of(
        cls,
        records: Iterable[Mapping[str, Any]],
        image_of: Callable[[Mapping[str, Any]], str] = lambda record: "",
    ) -> Self:
        """Count all rows of a source; ``image_of`` returns the path of a row's image."""
        survey = cls()
        for record in records:
            survey.add(record, image_of(record))
        return survey

    def add(self, record: Mapping[str, Any], image: str = "") -> None:
        """Count a row.

        Args:
            image: the path of its image, whose folders may be called as splits; "" for none.
        """
        self.rows += 1
        for name, cell in flat(record):
            if name in self._others:
                continue
            by_name = may_be_split(name)
            if not by_name and plain_name(name) in CONTENT:
                self._others.add(name)
                continue
            names = values_of(cell)
            by_value = all(map(split_kind, names))
            if not by_name and not by_value:
                self._others.add(name)
                self._counts.pop(name, None)
                continue
            self._count(name, names)
        if image and (folder := folder_split(image)) is not None:
            self._count(IN_FOLDER, (folder,))

    def _count(self, column: str, names: Sequence[str]) -> None:
        counts = self._counts.setdefault(column, Counter())
        if names and (len(counts) < MOST or all(name in counts for name in names)):
            self._said[column] += 1
            counts.update(names)

    def counts(self, column: str) -> dict[str, int]:
        """Return the number of rows of each split that a column names, and of none."""
        counts = dict(sorted(self._counts[column].items()))
        without = self.rows - self._said[column]
        return counts | ({NO_SPLIT: without} if without else {})

    def named_columns(self) -> list[str]:
        """Return the columns that are called as those of splits are, whatever their values."""
        return [
            name
            for name, counts in self._counts.items()
            if counts and name != IN_FOLDER and may_be_split(name)
        ]

    def columns(self) -> list[str]:
        """Return the columns that say the split, the one that counts first."""
        columns = [name for name in self._counts if name != IN_FOLDER and self._is_split(name)]
        return sorted(columns, key=lambda name: plain_name(name) != "split")

    def has_folders(self, *, alone: bool = False) -> bool:
        """Return whether the images lie in folders of several splits.

        Args:
            alone: whether folders of one split count, too.
        """
        return len({*map(split_kind, self._counts.get(IN_FOLDER, ()))}) > (0 if alone else 1)

    def _is_split(self, column: str) -> bool:
        values, plain = self._counts[column], plain_name(column)
        kinds = {split_kind(value) for value in values}
        if plain in FLAGS:
            return bool(values) and {value.lower() for value in values} <= YES | NO
        if plain in COLUMNS or column in ELSEWHERE:
            return bool(kinds - {None}) or self.is_coded(column)
        return None not in kinds and len(kinds) > 1

    def is_coded(self, column: str) -> bool:
        """Return whether a column of splits holds numbers."""
        values = self._counts[column]
        numbers = all(value.isdigit() for value in values)
        return plain_name(column) in CODED and numbers and 1 < len(values) <= 2 * SHOWN


@dataclass(frozen=True)
class SplitChoice:
    """The rows of a source that are read, by their split.

    Attributes:
        column: the column that says the split; ``None`` if every row is read.
        chosen: the values of the rows that are read; ``None`` for all.
        notes: sentences about the choice, and about columns that are only called as splits are.
    """

    column: str | None = None
    chosen: frozenset[str] | None = None
    notes: tuple[str, ...] = ()

    def reads(self, record: Mapping[str, Any], image: str = "") -> bool:
        """Return whether a row belongs to the chosen splits."""
        if self.chosen is None or self.column is None:
            return True
        if self.column == IN_FOLDER:
            return folder_split(image) in self.chosen
        cell = next((cell for name, cell in flat(record) if name == self.column), None)
        return not self.chosen.isdisjoint(values_of(cell))

    @property
    def used(self) -> tuple[str, ...]:
        """The column that is read, if it is one of the list."""
        return () if self.column in (None, *ELSEWHERE) else (str(self.column),)


def choose_split(path: Path, survey: SplitSurvey) -> SplitChoice:
    """Return which rows of a source are read.

    Args:
        path: the source, or ``SOURCE:SPLIT``, ``SOURCE:SPLIT+SPLIT``.

    Raises:
        UserError: if there are several splits and none is named, or the named one is not there.
    """
    home, named = split_home(path)
    columns = survey.columns()
    notes = [_kept_note(name, survey) for name in survey.named_columns() if name not in columns]
    if not columns and survey.has_folders(alone=named is not None):
        columns = [IN_FOLDER]
    if not columns and named is not None:  # any value of such a column can be named
        parts = {*named.split("+")}
        columns = [c for c in survey.named_columns() if parts <= {*survey.counts(c)}][:1]
        notes = [] if columns else notes
    if not columns:
        if named is not None:
            raise UserError(
                f"{home} has no split {named!r}: there is no folder {home / named}, and nothing "
                "in its list says the split of a row" + (f" ({'; '.join(notes)})" if notes else "")
            )
        return SplitChoice(notes=tuple(notes))
    _check_agreement(home, columns, survey)
    column = columns[0]
    counts, flag = survey.counts(column), FLAGS.get(plain_name(column))
    place = f"the {column}" if column in ELSEWHERE else f"its column {column!r}"
    meanings = _meanings(column, survey)
    choices = _choices(home, counts, meanings)
    if named is None and len(counts) > 1:
        every = "+".join(name for name in counts if name != NO_SPLIT)
        raise UserError(
            f"{home} has several splits, by {place}, and all would be mixed: name one in place of "
            f"{home}: {choices}; or several, {home}:{every}"
        )
    if named is None:
        (value,) = counts
        split_name = value if flag is None else f"{column}={value}"
        rows = "the only row is" if survey.rows == 1 else f"all {survey.rows:,} rows are"
        notes.insert(0, f"{rows} of one split, {split_name!r}, by {place}")
        return SplitChoice(column, None, tuple(notes))
    # A part is the name of a value, in any case, or the kind of a single one.
    said = [value for value in counts if value != NO_SPLIT]
    values = set[str]()
    for part in named.split("+"):
        exact = [value for value in said if value == part]
        exact = exact or [value for value in said if value.lower() == part.strip().lower()]
        kind = split_kind(part)
        alike = [v for v in said if kind is not None and kind == (meanings.get(v) or split_kind(v))]
        if not exact and len(alike) != 1 and not (alike and meanings):
            raise UserError(f"{home} has no split {part!r}: choose from {choices}")
        values.update(exact or alike)
    others = [
        "rows without one" if name == NO_SPLIT else f"{name} ({count:,})"
        for name, count in counts.items()
        if name not in values
    ]
    read = " and ".join(
        value if value not in meanings else f"{value} ({meanings[value]})"
        for value in sorted(values)
    )
    if others:
        verb = "is" if len(values) == 1 else "are"
        notes.insert(0, f"of the splits by {place}, {read} {verb} read; not {name_some(others, 8)}")
    return SplitChoice(column, frozenset(values), tuple(notes))


def _check_agreement(home: Path, columns: Sequence[str], survey: SplitSurvey) -> None:
    """Refuse two columns of splits that differ, unless one is called ``split``."""
    if plain_name(columns[0]) == "split" or len(columns) < 2:
        return

    def shares(column: str) -> list[tuple[str, int]]:
        shares = Counter[str]()
        meanings = _meanings(column, survey)
        for value, count in survey.counts(column).items():
            shares[meanings.get(value) or split_kind(value) or value] += count
        return sorted(shares.items())

    flags = all(plain_name(column) in FLAGS for column in columns)
    if flags or any(shares(column) != shares(columns[0]) for column in columns[1:]):
        raise UserError(
            f"{home}: the columns {', '.join(columns)} each say the split, and not the same: keep "
            "one, called split, and rename or remove the others"
        )


def _meanings(column: str, survey: SplitSurvey) -> dict[str, str]:
    """Return the splits that a column's values mean where they do not name them."""
    counts = survey.counts(column)
    flag = FLAGS.get(plain_name(column))
    if column != IN_FOLDER and flag is not None:
        other = "test" if flag == "train" else "train"
        return {
            value: flag if value.lower() in YES else other for value in counts if value != NO_SPLIT
        }
    if column != IN_FOLDER and survey.is_coded(column) and {*counts} - {NO_SPLIT} == {*CODES}:
        return dict(CODES)
    return {}


def _choices(home: Path, counts: Mapping[str, int], meanings: Mapping[str, str]) -> str:
    return ", ".join(
        f"{home}:{name} ({f'{meanings[name]}, ' if name in meanings else ''}{_rows(count)})"
        if name != NO_SPLIT
        else f"{_rows(count)} without one"
        for name, count in counts.items()
    )


def _rows(count: int) -> str:
    return f"{count:,} row{'s' * (count != 1)}"


def _kept_note(column: str, survey: SplitSurvey) -> str:
    counts = survey.counts(column)
    counts.pop(NO_SPLIT, None)
    most = sorted(counts, key=lambda value: -counts[value])
    values = name_some([f"{value!r:.40} ({_rows(counts[value])})" for value in most], SHOWN)
    return (
        f"the column {column!r} is kept as a column and chooses no rows: its values are no names "
        f"of splits ({values})"
    )
