r"""Lists as released by the authors of XMAI: edited captions, and captions with objects.

https://github.com/claws-lab/multimodal-robustness-xmai. ``paper_experiments/modified_captions``
has a method's edit of each text. MS-COCO: ``image_id`` (a printed pandas Series,
``0    397133\nName: id, dtype: int64``), ``original``, ``modified``. SNLI-VE: ``label``,
``original`` (the caption, which is the premise), ``hypothesis``, ``modified``; no image. The
released script calls its output ``augmented`` and adds a column ``file``. A first column without a
name, pandas' index, may come before them.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path, PurePath
from typing import Any

from cfaug.core.errors import UserError
from cfaug.core.pixels import Digest, content_digest
from cfaug.core.text import require_unicode
from cfaug.core.types import CounterfactualSet, Example, Member
from cfaug.data.captions import replaced_run
from cfaug.data.detections import DETECTIONS, Attribute, Detection, detections_to_json
from cfaug.data.sources.coco import photo_key
from cfaug.data.sources.folders import file_digest
from cfaug.data.sources.lists import LISTS, LONGEST_LINE, is_list_of_texts, list_records, read_texts
from cfaug.data.sources.parquet import MAX_BYTES, require_image
from cfaug.data.sources.photo_lists import PREMISE, PhotoList, PhotoText, rows_of
from cfaug.data.sources.row import (
    ErrorCollector,
    Row,
    caption,
    clean_key,
    entailment_label,
    group_name,
)
from cfaug.data.sources.splits import SplitChoice

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
        return is_modified(record) and (PHOTO in record or FILE in record)

    def open(self, path: Path) -> Iterator[Row]:
        """Yield the text and the modified text of each row of the list, in its order."""
        modified = read_modified_captions(self.list_of(path), self.choose(path))
        errors, empty = ErrorCollector(), 0
        digests: dict[Path, Digest] = {}
        for row in modified.rows:
            with errors.collect():
                if not row.modified.strip():
                    empty += 1
                    continue
                if row.image is None:
                    raise UserError(f"{row.where} names no photo: it needs {PHOTO!r} or {FILE!r}")
                file = self.photo(path, row.image, row.where)
                if file not in digests:
                    digests[file] = file_digest(file)
                before, after = caption(row.original, row.where), caption(row.modified, row.where)
                about = {} if row.premise is None else {PREMISE: caption(row.premise, row.where)}
                edit = {}
                if before != after:
                    gone, come = replaced_run(before, after)
                    edit = {"edit_kind": "modified", "edit_before": gone, "edit_after": come}
                texts = (
                    PhotoText(before, row.label, about),
                    PhotoText(after, row.label, {**about, **edit}, edited=before != after),
                )
                yield from rows_of(row.key, row.group, file, texts, digests[file])
        errors.report()
        self.left_out = {
            "duplicated rows": modified.duplicates,
            "rows without any word left": empty,
        }


def is_modified_list(file: Path) -> bool:
    """Return whether a file is a list of modified captions, with photos or without."""
    if file.suffix.lower() not in LISTS or not file.is_file():
        return False
    try:
        first = next(list_records(file, LONGEST_LINE), None)
    except UserError:
        return False
    return first is not None and is_modified(first[1])


def original_examples(modified: ModifiedCaptions) -> tuple[Example, ...]:
    """Return the original texts, without their photos, with white space normalised."""
    return tuple(
        Example(
            row.key,
            row.group,
            (caption(row.original, row.where),),
            label=row.label,
            extra={} if row.premise is None else {PREMISE: caption(row.premise, row.where)},
        )
        for row in modified.rows
    )


def read_modified_captions(file: Path | str, choice: SplitChoice | None = None) -> ModifiedCaptions:
    """Read a list of texts and their modifications.

    Args:
        file: ``.csv``, ``.tsv``, ``.jsonl`` or ``.json`` with the columns named above; every cell
            is a text, even ``None`` and ``nan``.
        choice: the rows to read, if a column says the split; ``None`` for all.
    """
    path, errors = Path(file).expanduser(), ErrorCollector()
    if path.suffix.lower() not in LISTS:
        raise UserError(f"{path} is not a list of modified texts: choose from {', '.join(LISTS)}")
    rows: list[ModifiedCaption] = []
    numbers: dict[str, int] = {}
    seen: set[tuple[str, str]] = set()
    duplicates = 0
    for line, (where, record) in enumerate(list_records(path, LONGEST_LINE)):
        if choice is not None and not choice.reads(record):
            continue
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
    photo_id = record.get(PHOTO)
    if photo_id in (None, ""):
        return None
    series = SERIES.fullmatch(str(photo_id).strip())
    photo = series[1] if series else group_name(str(photo_id).strip())
    if not photo.isascii() or not photo.isdigit() or len(photo) > 12 or isinstance(photo_id, bool):
        raise UserError(
            f"{where}: {PHOTO} should be a number, or a pandas Series of one as it prints itself, "
            f"not {str(photo_id)[:80]!r}"
        )
    return str(int(photo)), f"{int(photo):012d}.jpg"


def _text(record: Mapping[str, Any], column: str, where: str) -> str:
    if not isinstance(record.get(column), str):
        raise UserError(
            f"{where}: {column!r} should be a text, not {record.get(column)!r:.80}; the columns "
            f"are {', '.join(map(repr, record))}"
        )
    return str(record[column])


# Captions with the objects of their photos: a csv with columns ``objects`` and ``attributes``,
# lists of equal length as Python prints them; a text (``hypothesis``, else ``original``, ``text``
# or ``caption``), and the photo, by the name of its file (``file``) or as base64 in the cell.
# Beside a hypothesis the ``original`` is its premise, and ``label`` its label.

OBJECTS, ATTRIBUTES = "objects", "attributes"

TEXTS = (HYPOTHESIS, ORIGINAL, "text", "caption")
"""Columns of the text; the first existing one is used."""

FILES = (FILE, "image", "file_name", "filename", "image_path", "path")
"""Columns of the photo; the first existing one is used."""

NO_ATTRIBUTE = "__no_attribute__"
"""Bottom-up attention's name of its first class of attributes."""


def _read_line(record: Mapping[str, Any], where: str) -> tuple[str, str, str, PhotoText]:
    """Return the photo, its group, the text as in the list, and the text with all about it.

    The photo is the name of its file, or base64; its group is its name in every source, COCO's id
    or the name of its file, and empty if the cell contains the photo itself.
    """
    column = next((name for name in TEXTS if name in record), TEXTS[-1])
    labels = read_texts(record[OBJECTS], f"{where}, {OBJECTS}")
    attributes = read_texts(record[ATTRIBUTES], f"{where}, {ATTRIBUTES}")
    if len(labels) != len(attributes):
        raise UserError(
            f"{where}: {len(labels)} objects and {len(attributes)} attributes: each object should "
            f"have one ('{NO_ATTRIBUTE}' is none)"
        )
    detections = []
    try:
        for label, attribute in zip(labels, attributes, strict=True):
            is_known = attribute.strip() and attribute != NO_ATTRIBUTE
            properties = (Attribute(attribute),) if is_known else ()
            detections.append(Detection(label, attributes=properties))
    except UserError as error:
        raise UserError(f"{where}: {error}") from error
    extra: dict[str, Any] = {DETECTIONS: detections_to_json(detections)}
    if column == HYPOTHESIS and record.get(ORIGINAL):
        extra[PREMISE] = caption(record[ORIGINAL], f"{where}, {ORIGINAL}")
    text = PhotoText(caption(record.get(column), where), label_of(record, where), extra)
    known = photo_of(record, where)
    photo = _photo(record)
    if photo is None:
        if known is None:
            raise UserError(f"{where} names no photo: it needs {FILE!r} or {PHOTO!r}")
        photo = known[1]
    group = "" if _is_encoded(photo) else photo if known is None else known[0]
    return photo, group, str(record[column]), text


def _photo(record: Mapping[str, Any]) -> str | None:
    file = next((record[name] for name in FILES if record.get(name)), None)
    return file if isinstance(file, str) else None


def _is_encoded(photo: str | None) -> bool:
    return photo is not None and len(photo) > LONGEST_NAME


class DetectedCaptions(PhotoList):
    """Captions with detections, photos by the names of their files; a set is a photo.

    A repeated caption of a photo is left out, as in the published tables.
    """

    kind = "detected_captions"
    form = "captions with objects and attributes"
    description = (
        "a csv with objects, attributes, a text and file (or image_id) beside the photos (XMAI)"
    )

    used = (OBJECTS, ATTRIBUTES, PHOTO, LABEL, *TEXTS, *FILES)

    def is_form(self, record: Mapping[str, Any]) -> bool:
        return _has_objects(record) and not _is_encoded(_photo(record))

    def open(self, path: Path) -> Iterator[Row]:
        """Yield the captions of each photo together, photos as the list first names them."""
        errors = ErrorCollector()
        photos: dict[str, tuple[str, str, list[PhotoText]]] = {}
        seen: set[tuple[str, str]] = set()
        duplicates = 0
        for where, record in self.chosen_records(path):
            with errors.collect():
                photo, group, raw, text = _read_line(record, where)
                if (group, raw) in seen:
                    duplicates += 1
                    continue
                seen.add((group, raw))
                photos.setdefault(group, (where, photo, []))[2].append(text)
        errors.report()
        self.left_out = {f"duplicated caption{'s' * (duplicates != 1)}": duplicates}
        for group, (where, photo, texts) in photos.items():
            with errors.collect():
                name = str(PurePath(group).with_suffix(""))
                # COCO's ids have the form of its file names.
                key = photo_key(group) if group.isdigit() else clean_key(name)
                yield from rows_of(key, group, self.photo(path, photo, where), texts)
        errors.report()


def _has_objects(record: Mapping[str, Any]) -> bool:
    return (
        all(is_list_of_texts(record.get(name)) for name in (OBJECTS, ATTRIBUTES))
        and any(name in record for name in TEXTS)
        and (PHOTO in record or _photo(record) is not None)
    )


class EncodedCaptions(DetectedCaptions):
    """Captions with detections, the photo as base64 in each line: imported into shards.

    Adjacent lines with the same photo are a set.
    """

    imported = True
    has_parts = True
    kind = "encoded_captions"
    form = "captions with objects and attributes, photos in the list"
    description = (
        "a csv with objects, attributes, a text and file, a photo as base64 (XMAI's SNLI-VE)"
    )

    def is_form(self, record: Mapping[str, Any]) -> bool:
        return _has_objects(record) and _is_encoded(_photo(record))

    def files(self, path: Path) -> list[Path]:
        """Return nothing: there are no photos beside the list."""
        return []

    def open(self, path: Path) -> Iterator[Any]:
        """Yield the captions of each photo together, as a set."""
        errors = ErrorCollector()
        together = groupby(self.chosen_records(path), lambda r: _photo(r[1]))
        for number, (_, rows) in enumerate(together):
            with errors.collect():
                lines = list(rows)
                parsed = [_read_line(record, where) for where, record in lines]
                image = decode_base64(parsed[0][0], lines[0][0])
                key = f"{number:08d}"
                yield CounterfactualSet(
                    key=key,
                    group=content_digest(image).hex(),
                    members=tuple(
                        Member(text.text, "image", key, None, text.label, text.extra)
                        for *_, text in parsed
                    ),
                    images={"image": image},
                    provenance={"source": self.kind},
                )
        errors.report()


def decode_base64(cell: str, where: str) -> bytes:
    """Return the image in a cell, in either alphabet of base64."""
    if len(cell) > MAX_BYTES * 4 // 3 + 4:
        raise UserError(f"{where}: an image of {len(cell):,} characters is too large")
    try:
        data = base64.b64decode(cell.strip().translate(str.maketrans("-_", "+/")), validate=True)
    except (binascii.Error, ValueError) as error:
        raise UserError(
            f"{where}: the photo is neither a file's name nor base64: {error}"
        ) from error
    return require_image(data, f"{where}: the photo")
