"""SNLI-VE as parquet of the Hub: an image, a hypothesis and its label in each row.

Columns as ``datasets`` has them of ``HuggingFaceM4/SNLI-VE`` and ``Multimodal-Fatima/SNLI-VE_*``:
``image``, ``filename``, ``premise``, ``hypothesis``, ``label`` (a ClassLabel, -1 or ``-`` if the
annotators did not agree). For a folder with several splits, name ``FOLDER:SPLIT``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from cfaug.core.errors import UserError
from cfaug.core.types import CounterfactualSet, Member
from cfaug.data.sources.captioned_parquet import split_files, split_home
from cfaug.data.sources.image_check import content_digest
from cfaug.data.sources.labelled import class_names_of
from cfaug.data.sources.parquet import (
    Record,
    column_names,
    image_of,
    open_parquet,
    parquet_files,
    records,
)
from cfaug.data.sources.row import Description, ErrorCollector, files_identity
from cfaug.data.sources.snli_ve import PREMISE, UNDECIDED
from cfaug.data.sources.values import caption, entailment_label

IMAGE, HYPOTHESIS, LABEL, FILE = "image", "hypothesis", "label", "filename"
NO_LABEL = (-1, None, UNDECIDED)


class EntailmentParquet:
    """Reads images with hypotheses; adjacent rows with the same image are a set."""

    kind = "entailment_parquet"
    form = "parquet of images, hypotheses and labels"
    description = "*.parquet with image, hypothesis, label, and premise (SNLI-VE on the Hub)"

    def __init__(self) -> None:
        self._undecided = 0

    def recognises(self, path: Path) -> bool:
        """Return whether there are parquet files with the columns."""
        files = parquet_files(split_home(path)[0])
        return bool(files) and {IMAGE, HYPOTHESIS, LABEL} <= set(column_names(files[0]))

    def selects(self, path: Path) -> bool:
        """Return whether this is ``FOLDER:SPLIT`` of such a folder, and no folder itself."""
        return ":" in path.name and not path.exists() and self.recognises(path)

    def describe(self, path: Path) -> Description:
        """Return which columns are read, and the number of rows without a label."""
        used = (IMAGE, HYPOTHESIS, LABEL, PREMISE, FILE)
        found = Description.of_columns(used, column_names(split_files(path)[0]))
        left = (f"{self._undecided:,} pairs without a gold label",) if self._undecided else ()
        return Description(found.used, found.unused, left)

    def identity(self, path: Path) -> Any:
        """Return names, sizes and times of the split's files.

        Raises:
            UserError: if no split is named and there are several, or there is no such split.
        """
        return files_identity(split_files(path))

    def sets(self, path: Path) -> Iterator[CounterfactualSet]:
        """Yield the hypotheses of each image together.

        Raises:
            UserError: if a value is missing or invalid, naming file and row.
        """
        files, errors, self._undecided = split_files(path), ErrorCollector(), 0
        classes = class_names_of(open_parquet(files[0]).schema_arrow.metadata or {}, LABEL)
        together = groupby(records(files, needed=(IMAGE, HYPOTHESIS, LABEL)), _image)
        for number, (_, rows) in enumerate(together):
            with errors.collect():
                some = list(rows)
                decided = [row for row in some if row[1][LABEL] not in NO_LABEL]
                self._undecided += len(some) - len(decided)
                if decided:
                    yield _set(decided, classes, f"{number:08d}")
        errors.report()


def _image(row: Record) -> Any:
    image = row[1][IMAGE]
    return image.get("bytes") if isinstance(image, dict) else image


def _set(rows: Sequence[Record], classes: Sequence[str] | None, key: str) -> CounterfactualSet:
    where, first = rows[0]
    image = image_of(first, IMAGE, where)
    file = first.get(FILE)
    return CounterfactualSet(
        key=key,
        group=file if isinstance(file, str) and file else content_digest(image).hex(),
        members=tuple(_member(record, classes, key, place) for place, record in rows),
        images={IMAGE: image},
        provenance={"source": EntailmentParquet.kind},
    )


def _member(record: dict[str, Any], classes: Sequence[str] | None, key: str, where: str) -> Member:
    label = record[LABEL]
    if isinstance(label, int) and not isinstance(label, bool):
        if classes is None or not 0 <= label < len(classes):
            raise UserError(
                f"{where}: the label {label} has no name: the file's schema names "
                f"{', '.join(classes or ()) or 'no classes'}"
            )
        label = classes[label]
    premise = record.get(PREMISE)
    return Member(
        caption(record[HYPOTHESIS], where),
        IMAGE,
        key,
        label=entailment_label(label, where),
        extra={} if not premise else {PREMISE: caption(premise, f"{where}: {PREMISE}")},
    )
