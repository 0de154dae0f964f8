"""Files of items, each read as one table: lists, parquet, and logs of other evaluators.

A list is a csv, tsv, jsonl or json that any program wrote, one row per item; the released
``results/*.csv`` of BiVLC are examples. A parquet may be one of ``items/`` of an evaluated run.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from cfaug.core.errors import UserError
from cfaug.data.sources.lists import Record, list_records
from cfaug.data.sources.parquet import holds_images, open_parquet, records
from cfaug.report.item_lists.evaluator_logs import (
    ABOUT,
    TASK,
    read_log,
    sheet_records,
    unfold,
)

TRUE = ("true", "1", "1.0", "right", "correct")
FALSE = ("false", "0", "0.0", "wrong", "incorrect")
"""Spellings of right and wrong, in lower case."""
EMPTY = ("", "nan", "none", "null")
"""Spellings of an item that does not count, in lower case."""
ADDRESS = re.compile(r" at 0x[0-9A-Fa-f]+")
"""The address of an object in memory, as Python prints it: different in every file."""
WHOLE_NUMBER = re.compile(r"([+-]?\d+)\.0+")
"""A whole number as pandas writes it in a column with gaps."""


@dataclass(frozen=True)
class ItemColumns:
    """The roles of columns in files of items; the node ``columns``.

    Args:
        metrics: columns of right and wrong answers, or of numbers; ``None`` uses every column of
            only 0 and 1, or True and False.
        item: the column, or several together, that names an item; ``None`` uses one of ``NAMES`` if
            there is one, else rows are matched by their position.
        cluster: the column of clusters in which items were sampled, such as the image; ``None``
            uses ``cluster`` if there is one, else every item is its own cluster.
        by: columns whose combinations of values are also compared as parts.
        filter: the filter whose answers are compared, if a log of lm-evaluation-harness has
            several.
        ignore: columns that are not read: what the files say there may differ.
        common: whether the items that all files have are compared, where some lack others.
    """

    metrics: Sequence[str] | str | None = None
    item: Sequence[str] | str | None = None
    cluster: str | None = None
    by: Sequence[str] | str | None = None
    filter: str | None = None
    ignore: Sequence[str] | str | None = None
    common: bool = False


def listed(names: Sequence[str] | str | None) -> list[str]:
    """Return the names of a setting that takes one or several."""
    return [] if names is None else [names] if isinstance(names, str) else list(names)


@dataclass(frozen=True)
class ItemFileTable:
    """One file: one column per field, one row per item.

    Attributes:
        places: the location of each row, ``FILE, line N``.
        model: the model of an evaluator's log; ``None`` for a list.
        about: statements on all items of the file, such as its task.
        question: columns of a log that describe its items; ``None`` for a list, in which names of
            columns say so.
        prompts: columns of a log with the prompts of the items.
        unfinished: why items may be missing, and how they are added; empty if none are.
        remarks: sentences for the notes of a comparison.
        answers: the model's answer in each row of a log; empty if unknown.
        targets: the right answer of each row of a log, for a page; empty if a column has it.
    """

    file: Path
    columns: Mapping[str, list[Any]]
    places: Sequence[str]
    model: str | None = None
    about: Mapping[str, str] = field(default_factory=dict)
    question: frozenset[str] | None = None
    prompts: frozenset[str] = frozenset()
    unfinished: str = ""
    remarks: Sequence[str] = ()
    answers: Sequence[str] = ()
    targets: Sequence[str] = ()

    def __len__(self) -> int:
        return len(self.places)

    def column(self, name: str) -> list[Any]:
        """Return a column."""
        if name not in self.columns:
            raise UserError(f"{self.file} has no column {name!r}; it has {', '.join(self.columns)}")
        return self.columns[name]

    def texts(self, name: str) -> list[str]:
        """Return a column in the form in which files are compared; empty where it says nothing."""
        return [as_text(value) for value in self.column(name)]

    def without(self, names: Sequence[str]) -> ItemFileTable:
        """Return the table without some columns, or without what it says of all its items."""
        return replace(
            self,
            columns={name: rows for name, rows in self.columns.items() if name not in names},
            about={name: text for name, text in self.about.items() if name not in names},
        )

    def take(self, rows: Sequence[int]) -> ItemFileTable:
        """Return some rows, in the order given."""
        return replace(
            self,
            columns={name: [values[row] for row in rows] for name, values in self.columns.items()},
            places=[self.places[row] for row in rows],
            answers=[self.answers[row] for row in rows] if self.answers else (),
            targets=[self.targets[row] for row in rows] if self.targets else (),
        )

    def holds_scores(self, name: str) -> bool:
        """Return whether a column has right and wrong; in a log, parts of it (0.5) count too."""
        values = self.columns.get(name, ())
        if self.model is None or is_binary(values):
            return is_binary(values)
        numbers = {read_number(value) for value in values}
        counted = {number for number in numbers if number is None or number == number}
        return bool(counted) and all(number is not None and 0 <= number <= 1 for number in counted)

    def values(self, name: str) -> np.ndarray:
        """Return a metric, float64 (items,), ``nan`` where an item does not count."""
        numbers = [read_number(value) for value in self.column(name)]
        for number, value, where in zip(numbers, self.column(name), self.places, strict=True):
            if number is None:
                raise UserError(
                    f"{where}: {name} is {str(value)[:60]!r}: it should be 0 or 1, True or False, "
                    "or a number"
                )
        return np.array(numbers, np.float64)


def read_table(file: Path, log_filter: str | None = None) -> ItemFileTable:
    """Read a file of items: a list, or the log of an evaluator; ``log_filter`` is as in columns."""
    log = read_log(file, log_filter)
    about: Mapping[str, str] = {} if log is None else log.about
    rows: Iterator[Record]
    if log is not None:
        rows = iter(log.records)
    elif file.suffix.lower() == ".parquet":
        with open_parquet(file) as parquet:
            schema = parquet.schema_arrow
        metadata = {
            key.decode(errors="replace"): text.decode(errors="replace")
            for key, text in (schema.metadata or {}).items()
        }
        if metadata.keys() >= {"benchmark", "data"}:  # the items of a run of ours
            about = {TASK: metadata["benchmark"], "data": metadata["data"]}
        shown = [cell.name for cell in schema if not holds_images(cell.type)]
        rows = records([file], columns=shown)
    elif file.suffix.lower() == ".xlsx":
        rows = sheet_records(file)
    else:
        rows = list_records(file, 2**20)
    columns: dict[str, list[Any]] = {}
    places: list[str] = []
    names: set[str] = set()
    for where, record in rows:
        names = names or {*record}
        if log is None and record.keys() != names:
            odd = sorted(record.keys() ^ names)[0]
            raise UserError(
                f"{where}: not every row has the column {odd!r}: write it in all, empty "
                "where nothing is known"
            )
        for name, value in unfold(record).items():
            text = ADDRESS.sub("", value).strip() if isinstance(value, str) else value
            columns.setdefault(name, [None] * len(places)).append(text)
        places.append(where)
        for column in columns.values():
            column += [None] * (len(places) - len(column))
    if not places:
        raise UserError(f"{file} has no items: a header and one row per item are needed")
    if log is None:
        return ItemFileTable(file, columns, places, about=about)
    return ItemFileTable(
        file, columns, places, log.model, about, log.question, log.prompts, log.unfinished,
        log.remarks, log.answers, log.targets,
    )  # fmt: skip


def read_number(value: Any) -> float | None:
    """Return right or wrong as 1 or 0, a number as it is, ``nan`` if empty; ``None`` for others."""
    text = str(value).strip().lower()
    if text in TRUE or text in FALSE:
        return float(text in TRUE)
    if text in EMPTY:
        return math.nan
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def is_binary(values: Sequence[Any]) -> bool:
    """Return whether values are right, wrong or empty, and not all empty."""
    known = {str(value).strip().lower() for value in values} - {*EMPTY}
    return bool(known) and known <= {*TRUE, *FALSE}


def as_text(value: Any) -> str:
    """Return a value in one form, whichever program wrote it; empty if it says nothing.

    >>> as_text(2), as_text(2.0), as_text("2.0"), as_text(None), as_text(True), as_text(["a", 1])
    ('2', '2', '2', '', 'true', '["a", 1]')
    """
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, bool | np.bool_) or value in ("True", "False"):
        return str(value).lower()
    if isinstance(value, list | tuple | Mapping):
        return json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)
    text = str(value).strip()
    whole = WHOLE_NUMBER.fullmatch(text)
    return whole[1] if whole else text


def describes_item(name: str) -> bool:
    """Return whether a column of a log is of the item, and not of an answer to it."""
    return name.startswith(ABOUT)


def shown_names(files: Sequence[Path]) -> list[str]:
    """Return short names of files: with folders, or with suffixes, only where two are equal.

    >>> shown_names([Path("a/x.csv"), Path("b/x.csv"), Path("c/y.csv"), Path("c/y.tsv")])
    ['a/x', 'b/x', 'y.csv', 'y.tsv']
    """
    stems = [file.with_suffix("") for file in files]
    return shorten_paths(
        [f if stems.count(stem) > 1 else stem for f, stem in zip(files, stems, strict=True)]
    )


def shorten_paths(paths: Sequence[Path]) -> list[str]:
    """Return the shortest ends of paths that tell them apart.

    >>> shorten_paths([Path("logs/a"), Path("logs/b")]), shorten_paths([Path("x/r"), Path("y/r")])
    (['a', 'b'], ['x/r', 'y/r'])
    """
    names = []
    for path in paths:
        parts, others = path.parts, [other.parts for other in paths if other != path]
        depth = 1
        while depth < len(parts) and any(other[-depth:] == parts[-depth:] for other in others):
            depth += 1
        names.append(Path(*parts[-depth:]).as_posix())
    return names
