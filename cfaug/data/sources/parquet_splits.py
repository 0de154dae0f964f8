"""The splits of a folder of parquet files, by the names of its files and by a column."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from cfaug.core.errors import UserError
from cfaug.data.sources.fields import version_of
from cfaug.data.sources.parquet import (
    ParquetRecord,
    column_kinds,
    holds_images,
    parquet_files,
    records,
)
from cfaug.data.sources.row import split_home
from cfaug.data.sources.splits import (
    SplitChoice,
    SplitSurvey,
    choose_split,
    may_be_split,
    split_kind,
)

SPLIT = re.compile(
    r"(train|training|validation|valid|val|test|dev|[a-z]\w*(?=-\d{5}-of-\d{5}))[-.].*"
)


@dataclass(frozen=True)
class ParquetSplit:
    """The part of a folder of parquet files that is read.

    Attributes:
        files: the files of the split, all with the same columns.
        choice: the rows that are read, if a column says the split.
    """

    files: list[Path]
    choice: SplitChoice

    def records(
        self, columns: Sequence[str] | None = None, needed: Collection[str] = ()
    ) -> Iterator[ParquetRecord]:
        """Yield the rows of the split; see ``cfaug.data.sources.parquet.records``."""
        if self.choice.chosen is None:
            yield from records(self.files, columns, needed)
            return
        further = [name for name in self.choice.used if columns is not None and name not in columns]
        wanted = None if columns is None else [*columns, *further]
        for where, record in records(self.files, wanted, needed):
            if self.choice.reads(record):
                yield where, {k: v for k, v in record.items() if k not in further}


def split_files(path: Path) -> list[Path]:
    """Return the parquet files of a folder, or of the split that ``FOLDER:SPLIT`` names."""
    return split_of(path).files


def split_of(path: Path) -> ParquetSplit:
    """Return the part of a folder of parquet files that is read.

    The names of files and a column may both say the split. Where the files name one at most, as
    ``load_dataset`` calls whatever it is given ``train``, the column counts; where they name
    several, both must agree. A file whose name has no split is a part of its own by that name.
    """
    home, named = split_home(path)
    files = parquet_files(home)
    if parts := [file for file in files if file.stem == named and not SPLIT.fullmatch(file.name)]:
        return ParquetSplit(parts, SplitChoice())
    splits: dict[str | None, list[Path]] = {}
    for file in files:
        match = SPLIT.fullmatch(file.name.lower())
        splits.setdefault(None if match is None else match[1], []).append(file)
    surveys = {name: survey_files(there) for name, there in splits.items()}
    if len(splits) == 1:
        (survey,) = surveys.values()
        by_file = named in splits and not survey.columns()
        if by_file or named is None or survey.columns() or survey.named_columns():
            return ParquetSplit(files, choose_split(home if by_file else path, survey))
    for name, survey in surveys.items():
        _check_column(home, name, survey, [other for other in splits if other != name])
    choices = ", ".join(
        f"{home}:{split} ({len(there)} file{'s' * (len(there) != 1)})"
        for split, there in splits.items()
        if split is not None
    )
    if named is None:
        raise UserError(f"{home} has several splits; name one: {choices}")
    if named in splits:
        survey = surveys[named]
        choice = SplitChoice() if survey.columns() else choose_split(home, survey)
        return ParquetSplit(splits[named], choice)
    whole = survey_files(files)
    if whole.columns():  # such as restval, in files that are called train
        return ParquetSplit(files, choose_split(path, whole))
    raise UserError(f"{home} has no split {named!r}: {choices or 'its files name none'}")


def survey_files(files: Sequence[Path]) -> SplitSurvey:
    """Count what the rows of some files say of their split, reading the columns that may."""
    return _survey_of(tuple((file, version_of(file)) for file in files))


@lru_cache(maxsize=8)
def _survey_of(versions: tuple[tuple[Path, tuple[Any, ...]], ...]) -> SplitSurvey:
    files = [file for file, _ in versions]
    kinds = column_kinds(files[0])
    plain = [name for name, kind in kinds.items() if not holds_images(kind)]
    structs = [(name, kind) for name, kind in kinds.items() if isinstance(kind, dict)]
    objects = [name for name, parts in structs if any(map(may_be_split, parts))]
    # A column of another name may be one of splits if its first value is a name of one.
    first = next((row for _, row in records(files[:1], plain)), {}) if plain else {}
    names = [name for name in plain if may_be_split(name) or split_kind(str(first.get(name)))]
    names += [name for name in objects if name not in names]
    return SplitSurvey.of(record for _, record in (records(files, names) if names else ()))


def _check_column(
    home: Path, split: str | None, survey: SplitSurvey, others: Sequence[str | None]
) -> None:
    """Refuse files of a split whose column says that rows are of the split of other files."""
    for column in survey.columns():
        kinds = {split_kind(other): other for other in others if other is not None}
        for value, count in survey.counts(column).items():
            kind = split_kind(value)
            if kind in kinds and kind != (None if split is None else split_kind(split)):
                raise UserError(
                    f"{home}: the column {column!r} says {value!r} in {count:,} rows of the files "
                    f"of {split or 'no split'}, and there are files of {kinds[kind]}: give the "
                    "files names without a split, so that the column counts, or remove the column"
                )
