r"""Lists of texts with a method's edit of each, as released by the authors of XMAI.

https://github.com/claws-lab/multimodal-robustness-xmai, ``paper_experiments/modified_captions``.
MS-COCO: ``image_id`` (a printed pandas Series, ``0    397133\nName: id, dtype: int64``),
``original``, ``modified``. SNLI-VE: ``label``, ``original`` (the caption, which is the premise),
``hypothesis``, ``modified``; no image. The released script calls its output ``augmented`` and adds
a column ``file``. A first column without a name, pandas' index, may come before them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cfaug.core.errors import UserError
from cfaug.core.pixels import Digest
from cfaug.core.types import Example
from cfaug.core.words import replaced_run
from cfaug.data.sources.folders import file_digest
from cfaug.data.sources.lists import LISTS, LONGEST_LINE, list_records, require_unicode
from cfaug.data.sources.photo_lists import PREMISE, PhotoList, PhotoText, rows_of
from cfaug.data.sources.row import ErrorCollector, Row, caption, clean_key, entailment_label

MODIFIED = ("modified", "augmented")
"""Columns of the edited text."""

HYPOTHESIS, ORIGINAL, PHOTO, FILE, LABEL = "hypothesis", "original", "image_id", "file", "label"
"""The other columns. If there is a hypothesis, it is the text that was modified, and the original
is its premise."""

SERIES = re.compile(r"\d+\s+(\d+)\s+Name: \w+, dtype: int64")
"""A printed pandas Series of one number: its index, then the number."""

LONGEST_NAME = 1000
"""Maximum number of characters in an image's name: a longer cell is the image itself."""


@dataclass(frozen=True)
class ModifiedCaption:
    """A text and a method's edit of it.

    Attributes:
        key: the key, unique in the file: the photo and the text's number among its texts, otherwise
            the row's number. The same text has the same key in every file with the same rows.
        group: the photo: COCO's id, or the name of its file; the premise if no photo is named.
        original: the text before the change, as in the file.
        modified: the text after the change, as in the file; empty if all words were deleted.
        label: ``entailment``, ``neutral`` or ``contradiction`` for a hypothesis; ``None`` without
            one.
        premise: the premise of a hypothesis; ``None`` without one.
        image: the name of the photo's file; ``None`` if unknown.
    """

    key: str
    group: str
    original: str
    modified: str
    label: str | None
    premise: str | None
    image: str | None
    where: str


@dataclass(frozen=True)
class ModifiedCaptions:
    """The modified captions of a file.

    Attributes:
        rows: the rows in the file's order, without duplicates.
        duplicates: number of rows left out because their photo (or premise) and text occurred
            before. The published tables leave them out too.
    """

    rows: tuple[ModifiedCaption, ...]
    duplicates: int


def is_modified(columns: Mapping[str, Any] | tuple[str, ...]) -> bool:
    """Return whether the columns of a list are an original and a modified text.

    >>> is_modified(("image_id", "original", "modified")), is_modified(("image", "modified"))
    (True, False)
    """
    return any(name in columns for name in MODIFIED) and (
        ORIGINAL in columns or HYPOTHESIS in columns
    )


class ModifiedPhotos(PhotoList):
    """Lists of modified captions beside the photos: a set is a text and its modification.

    Both members show the photo; if the second text differs, its extra values are those of an edit
    in our shards, ``edit_kind`` (``modified``), ``edit_before`` and ``edit_after``. Rows whose text
    was deleted completely are left out, because they have no text to show.
    """

    kind = "modified_captions"
    form = "captions and what was made of them"
    description = (
        "a csv with original and modified (augmented) texts and image_id or file, beside the photos"
    )

    used = (*MODIFIED, HYPOTHESIS, ORIGINAL, PHOTO, FILE, LABEL)

    def is_form(self, record: Mapping[str, Any]) -> bool:
        """Return whether a record has the columns, and names a photo."""
        return is_modified(record) and (PHOTO in record or FILE in record)

    def open(self, path: Path) -> Iterator[Row]:
        """Yield the text and the modified text of each row of the list, in its order."""
        found, errors, empty = read_modified_captions(self.list_of(path)), ErrorCollector(), 0
        digests: dict[Path, Digest] = {}
        for row in found.rows:
            with errors.collect():
                if not row.modified.strip():
                    empty += 1
                    continue
                if row.image is None:
                    raise UserError(f"{row.where} names no photo: it needs {PHOTO!r} or {FILE!r}")
                file = self.photo(path, row.image, row.where)
                if file not in digests:
                    digests[file] = file_digest(file)
                yield from rows_of(row.key, row.group, file, _members(row), digests[file])
        errors.report()
        self.left_out = {"duplicated rows": found.duplicates, "rows without any word left": empty}


def is_modified_list(file: Path) -> bool:
    """Return whether a file is a list of modified captions, with photos or without."""
    if file.suffix.lower() not in LISTS or not file.is_file():
        return False
    try:
        first = next(list_records(file, LONGEST_LINE), None)
    except UserError:
        return False
    return first is not None and is_modified(first[1])


def original_examples(found: ModifiedCaptions) -> tuple[Example, ...]:
    """Return the original texts, without their photos, with white space normalised."""
    return tuple(
        Example(
            row.key,
            row.group,
            (caption(row.original, row.where),),
            label=row.label,
            extra={} if row.premise is None else {PREMISE: caption(row.premise, row.where)},
        )
        for row in found.rows
    )


def _members(one: ModifiedCaption) -> tuple[PhotoText, PhotoText]:
    before, after = caption(one.original, one.where), caption(one.modified, one.where)
    known = {} if one.premise is None else {PREMISE: caption(one.premise, one.where)}
    edit = {}
    if before != after:
        gone, come = replaced_run(before, after)
        edit = {"edit_kind": "modified", "edit_before": gone, "edit_after": come}
    return (
        PhotoText(before, one.label, known),
        PhotoText(after, one.label, {**known, **edit}, edited=before != after),
    )


def read_modified_captions(file: Path | str) -> ModifiedCaptions:
    """Read a list of texts and their modifications.

    Args:
        file: ``.csv``, ``.tsv``, ``.jsonl`` or ``.json`` with the columns named above; every cell
            is a text, even ``None`` and ``nan``.
    """
    path, errors = Path(file).expanduser(), ErrorCollector()
    if path.suffix.lower() not in LISTS:
        raise UserError(f"{path} is not a list of modified texts: choose from {', '.join(LISTS)}")
    rows: list[ModifiedCaption] = []
    numbers: dict[str, int] = {}
    seen: set[tuple[str, str]] = set()
    duplicates = 0
    for line, (where, record) in enumerate(list_records(path, LONGEST_LINE)):
        with errors.collect():
            file_name = record.get(FILE)
            is_name = isinstance(file_name, str) and 0 < len(file_name) <= LONGEST_NAME
            image: str | None = file_name if is_name else None
            photo = photo_of(record, where)
            group, image = (image, image) if photo is None else (photo[0], image or photo[1])
            premise = None
            if HYPOTHESIS in record:
                original = _text(record, HYPOTHESIS, where)
                premise = _text(record, ORIGINAL, where) if record.get(ORIGINAL) else None
            else:
                original = _text(record, ORIGINAL, where)
            if not original.strip():
                raise UserError(f"{where}: the original text is empty; write one or remove the row")
            require_unicode(original, where)
            group = group or premise or original
            if (group, original) in seen:
                duplicates += 1
                continue
            seen.add((group, original))
            number = numbers[group] = numbers.get(group, -1) + 1
            key = f"{line:08d}" if image is None else clean_key(f"{group}-{number}")
            columns = [name for name in MODIFIED if name in record]
            if len(columns) != 1:
                raise UserError(
                    f"{where}: one column should be called {' or '.join(MODIFIED)}; the columns "
                    f"are {', '.join(map(repr, record))}"
                )
            modified = require_unicode(_text(record, columns[0], where), where)
            label = label_of(record, where)
            rows.append(
                ModifiedCaption(key, group, original, modified, label, premise, image, where)
            )
    errors.report()
    if not rows:
        raise UserError(f"{path} holds no modified caption")
    return ModifiedCaptions(tuple(rows), duplicates)


def label_of(record: Mapping[str, Any], where: str) -> str | None:
    """Return a record's label: one of three for a hypothesis, otherwise any text or ``None``."""
    if record.get(LABEL) in (None, ""):
        return None
    if HYPOTHESIS in record:
        return entailment_label(record[LABEL], where)
    return _text(record, LABEL, where)


def photo_of(record: Mapping[str, Any], where: str) -> tuple[str, str] | None:
    """Return the id of a record's photo, from ``image_id``, and COCO's name of its file."""
    found = record.get(PHOTO)
    if found in (None, ""):
        return None
    series = SERIES.fullmatch(str(found).strip())
    photo = series[1] if series else str(found).strip()
    if not photo.isascii() or not photo.isdigit() or len(photo) > 12 or isinstance(found, bool):
        raise UserError(
            f"{where}: {PHOTO} should be a number, or a pandas Series of one as it prints itself, "
            f"not {str(found)[:80]!r}"
        )
    return str(int(photo)), f"{int(photo):012d}.jpg"


def _text(record: Mapping[str, Any], column: str, where: str) -> str:
    if not isinstance(record.get(column), str):
        raise UserError(
            f"{where}: {column!r} should be a text, not {record.get(column)!r:.80}; the columns "
            f"are {', '.join(map(repr, record))}"
        )
    return str(record[column])
