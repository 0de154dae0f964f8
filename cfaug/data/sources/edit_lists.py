"""Lists of photos and edits of them that were made elsewhere: photo, edit, label, kind, words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice
from pathlib import Path, PurePath, PurePosixPath
from typing import Any

from cfaug.core.errors import UserError, name_some
from cfaug.core.files import visible_files
from cfaug.core.known_names import nearest
from cfaug.core.pixels import IMAGES, UNREAD_IMAGES
from cfaug.core.types import RECONSTRUCTION
from cfaug.data.sources.caption_list import image_name, source_home
from cfaug.data.sources.class_folders import LABEL, NO_CLASSES
from cfaug.data.sources.columns import (
    EDIT,
    EDIT_LISTS,
    GROUP,
    IMAGE,
    PHOTO,
    choose_rows,
    chosen_records,
    find_captions,
    image_records,
    json_head,
    one_column,
    read_columns,
)
from cfaug.data.sources.edited_photos import (
    EDITED,
    NAMED,
    EditedPhoto,
    MadeEdit,
    describe_edits,
    edited_rows,
    read_kind,
)
from cfaug.data.sources.fields import version_of
from cfaug.data.sources.folders import images_below, locate
from cfaug.data.sources.lists import LISTS
from cfaug.data.sources.row import (
    Description,
    ErrorCollector,
    Reader,
    Row,
    caption,
    files_identity,
    group_name,
    is_null,
    keep_json,
    known,
    split_home,
    whole,
)

KIND = (
    "kind", "edit_kind", "edit_type", "corruption", "corruption_type", "perturbation", "operation",
    "transform",
)  # fmt: skip
BEFORE = ("edit_before", "before", "words_before")
AFTER = ("edit_after", "after", "words_after")
SEVERITY = ("severity", "level", "strength", "intensity")
RECONSTRUCTED = (RECONSTRUCTION, "reconstructed", "reconstruction_image")
SEARCHED = 50
"""Number of records in which columns of images are looked for: first photos may have no edit."""


@dataclass(frozen=True)
class EditColumns:
    """The columns of a list of edits.

    Attributes:
        edits: the columns of the images of edits, the kinds of which may be numbered as they are.
        listed: the column of a JSON list of edits.
    """

    photo: str
    edits: tuple[str, ...] = ()
    listed: str | None = None
    label: str | None = None
    kind: str | None = None
    kinds: Mapping[str, str] | None = None
    before: str | None = None
    after: str | None = None
    severity: str | None = None
    reconstruction: str | None = None
    captions: tuple[str | None, str | None] = (None, None)
    group: str | None = None

    @property
    def used(self) -> tuple[str, ...]:
        """Every column that is read."""
        names = (
            self.photo, *self.edits, self.listed, self.label, self.kind,
            *(self.kinds or {}).values(), self.before, self.after, self.severity,
            self.reconstruction, *self.captions, self.group,
        )  # fmt: skip
        return tuple(name for name in names if name is not None)


class EditList(Reader):
    """A list that names photos and their edits: photo, edit, label, and kind, before, after.

    A line is an edit, or a photo with several of them (``edit_1``, ``edit_2``, ``kind_1``, ...; in
    JSON a list ``edits``). Lines of one photo are a set. Without a column of classes, the folders
    of the photos are their classes. Lists of pairs with a caption for each image and no kind are
    read by ``CaptionList``.
    """

    has_parts = True
    kind = "edit_list"
    form = "a list of photos and their edits"
    description = (
        "edits.csv, .tsv, .jsonl or .json with columns photo, edit, label and, where known, kind, "
        "before, after, severity, reconstruction: edits of your own for benchmark=stress"
    )

    def __init__(self, image_roots: Sequence[Path] = ()) -> None:
        self.image_roots = tuple(image_roots)

    def with_roots(self, image_roots: Sequence[Path]) -> EditList:
        return type(self)(image_roots)

    def recognises(self, path: Path) -> bool:
        return bool(find_edit_lists(path))

    def files(self, path: Path) -> list[Path]:
        """Return every image that the list names."""
        return [
            file for photo in self.read(path)
            for file in (photo.file, *(edit.file for edit in photo.edits))
        ]  # fmt: skip

    def describe(self, path: Path) -> Description:
        """Return the columns that are read, and photos and edits by class and kind."""
        file = self._list(path)
        choice = choose_rows(path, file)
        there = dict.fromkeys(name for _, record in image_records(file) for name in record)
        columns = known(edit_columns(file))
        described = Description.of_columns((*columns.used, *choice.used), there)
        home, seen, left_out = source_home(path), {*self.files(path)}, []
        images = [image for image in images_below(home) if image not in seen]
        lists = [other for other in find_edit_lists(split_home(path)[0]) if other != file]
        for what, others in (("images", images), ("lists of edits", lists)):
            names = name_some((other.relative_to(home) for other in others), NAMED)
            left_out += [f"{len(others):,} other {what} ({names})"] if others else []
        # Columns that are not read, and called almost as one that is.
        roles = ("label", "kind", "before", "after", "severity", RECONSTRUCTION)
        lacking = [role for role in roles if getattr(columns, role) is None]
        pairs = [(name, nearest(name.lower(), lacking)) for name in described.unused]
        meant = [
            f"the column {name} is not read: did you mean {near}?" for name, near in pairs if near
        ]
        notes = (*meant, *choice.notes, *describe_edits(self.read(path)))
        return replace(described, left_out=tuple(left_out), notes=notes)

    def identity(self, path: Path) -> Any:
        return files_identity([self._list(path), *self.files(path)])

    def open(self, path: Path) -> Iterator[Row]:
        """Yield each photo with its edits, photos in the order in which the list names them."""
        errors = ErrorCollector()
        for photo in self.read(path):
            with errors.collect():
                yield from edited_rows(photo)
        errors.report()

    def read(self, path: Path) -> list[EditedPhoto]:
        """Return every photo of the chosen split with its edits; images are found, not opened."""
        file, home = self._list(path), source_home(path)
        columns = known(edit_columns(file))
        photos: dict[Path, EditedPhoto] = {}
        where_edited: dict[Path, str] = {}
        errors = ErrorCollector()
        for where, record in chosen_records(path, file):
            with errors.collect():
                name = image_name(record.get(columns.photo), where)
                stem = str(PurePosixPath(PurePath(name).as_posix()).with_suffix(""))
                file_of_photo = locate(home, name, where, self.image_roots)
                photo = photos.setdefault(file_of_photo, EditedPhoto(stem, file_of_photo, where))
                self._read_photo(photo, columns, record, where)
                for image, edit in _edits(columns, record, where):
                    made = locate(home, image_name(image, where), where, self.image_roots)
                    if made in where_edited or made in photos:
                        earlier = where_edited.get(made) or photos[made].where
                        raise UserError(
                            f"{where}: {image!r} is an edit here, and also in {earlier}: of which "
                            "photo is it an edit? Remove one of the two"
                        )
                    where_edited[made] = where
                    photo.edits.append(replace(edit, file=made))
        errors.report()
        also = next((made for made in where_edited if made in photos), None)
        if also is not None:
            raise UserError(
                f"{where_edited[also]}: {also} is an edit here, and a photo in "
                f"{photos[also].where}: which is it? Remove one of the two lines"
            )
        _check_names(photos.values())
        if columns.label is None:
            _label_by_folders(file, home, [*photos.values()])
        for photo in photos.values():
            photo.edits.sort(key=lambda edit: edit.kind != RECONSTRUCTION)
        return [*photos.values()]

    def _read_photo(
        self, photo: EditedPhoto, columns: EditColumns, record: Mapping[str, Any], where: str
    ) -> None:
        """Take class, group and caption of a photo from one of its lines."""
        label = _text(record, columns.label)
        if columns.label is not None and not label:
            raise UserError(
                f"{where}: the photo has no class ({columns.label!r} is empty): which is it?"
            )
        if label and photo.label not in (None, label):
            raise UserError(
                f"{where}: the class is {label!r} here and {photo.label!r} in {photo.where}, of "
                "one photo: which is right?"
            )
        photo.label = label or photo.label
        text = columns.captions[0]
        if text is not None and not photo.text and _text(record, text):
            photo.text = caption(record[text], where)
        if columns.group is not None and _text(record, columns.group):
            photo.group = group_name(record[columns.group])

    def _list(self, path: Path) -> Path:
        files = find_edit_lists(path)
        called = [file for file in files if file.stem.lower() == "edits"]
        if len(files) > 1 and len(called) != 1:
            raise UserError(
                f"{path} has several lists of edits, {name_some(f.name for f in files)}: which is "
                f"to be read? Name it, such as {files[0]}"
            )
        return (called or files)[0]


def find_edit_lists(path: Path) -> list[Path]:
    """Return the lists of edits of a folder, or the path if it is one itself."""
    path = split_home(path)[0]
    files = [path] if path.is_file() else path.glob("*.*") if path.is_dir() else ()
    endings = (*LISTS, ".parquet")
    lists = visible_files(file for file in files if file.suffix.lower() in endings)
    return [file for file in lists if file.is_file() and edit_columns(file) is not None]


def edit_columns(file: Path) -> EditColumns | None:
    """Return the meaning of a list's columns; ``None`` for a list of anything else."""
    return _edit_columns(file, version_of(file))


@lru_cache(maxsize=16)
def _edit_columns(file: Path, version: tuple[Any, ...]) -> EditColumns | None:
    if file.suffix.lower() == ".json":  # which is read whole, and may be anything
        head = json_head(file)
        keys = "|".join((*EDIT, *EDIT_LISTS, *IMAGE, "after"))
        if not re.match(r"\s*\[\s*\{", head) or not re.search(rf'"(?:{keys})"\s*:', head, re.I):
            return None
    try:
        records = [record for _, record in islice(image_records(file), SEARCHED)]
    except UserError:
        return None  # reported by the reader of whatever it is
    names = dict.fromkeys(name for record in records for name in record)
    images = [
        name for name in names
        if any(_is_image(record.get(name)) for record in records)
        and not any(_is_text(record.get(name)) for record in records)
    ]  # fmt: skip
    numbered = {
        int(match[2]): name for name in images
        if (match := re.fullmatch(rf"({'|'.join((*EDIT, *IMAGE))})_?(\d+)", name.lower()))
    }  # fmt: skip
    where = str(file)
    photo = one_column(images, PHOTO, "photo", where)
    edit = one_column(images, EDIT, "edit of the photo", where)
    plain = next((name for alias in IMAGE for name in images if name.lower() == alias), None)
    listed = next(
        (name for name in names if name.lower() in EDIT_LISTS
         and any(_is_edits(record.get(name)) for record in records)), None,
    )  # fmt: skip
    edits = tuple(numbered[number] for number in sorted(numbered))
    if photo is None and plain is not None and (edit or edits or listed):
        photo = plain
    elif edit is None and plain is not None and photo is not None:
        edit = plain
    if photo is None and len(edits) > 1:  # image_0 is the photo, and image_1 its first edit
        photo, edits = edits[0], edits[1:]
    sides = [next((n for n in images if n.lower() == name), None) for name in ("before", "after")]
    if photo is None and edit is None and None not in sides:
        photo, edit = sides
    if photo is None or not (edit or edits or listed):
        return None
    kind = one_column(names, KIND, "kind of the edit", where)
    label = one_column(names, LABEL, "class", where)
    try:
        captions = find_captions(tuple(names))
    except UserError:
        captions = (None, None)
    try:
        is_set = read_columns(tuple(names)).is_set
    except UserError:
        is_set = False
    if is_set and (kind is None or None in captions):
        return None  # pairs with a caption of each image, or sets of more
    if label is None and captions != (None, None):
        return None  # pairs one of whose captions is missing

    def first(aliases: Sequence[str]) -> str | None:
        there = [name for name in names if name not in sides]
        return next((name for alias in aliases for name in there if name.lower() == alias), None)

    return EditColumns(
        photo,
        (*([edit] if edit else ()), *(name for name in edits if name != photo)),
        listed,
        label,
        kind,
        _beside(edits, names, KIND),
        before=first(BEFORE),
        after=first(AFTER),
        severity=first(SEVERITY),
        reconstruction=first(RECONSTRUCTED),
        captions=captions,
        group=first(GROUP),
    )


def _beside(
    edits: Sequence[str], names: Mapping[str, None], wanted: Sequence[str]
) -> dict[str, str]:
    """Return the column of the same number for numbered columns of edits."""
    by_number = {
        match[2]: name for name in names
        if (match := re.fullmatch(rf"({'|'.join(wanted)})_?(\d+)", name.lower()))
    }  # fmt: skip
    numbers = {name: re.search(r"\d+$", name) for name in edits}
    return {
        name: by_number[number[0]] for name, number in numbers.items()
        if number is not None and number[0] in by_number
    }  # fmt: skip


def _is_image(value: object) -> bool:
    return isinstance(value, str) and value.strip().lower().endswith((*IMAGES, *UNREAD_IMAGES))


def _is_text(value: object) -> bool:
    return not is_null(value) and value != "" and not _is_image(value)


def _is_edits(value: object) -> bool:
    if not isinstance(value, list) or not value:
        return False
    first = value[0]
    return _is_image(first) or (
        isinstance(first, dict) and any(_is_image(part) for part in first.values())
    )


def _edits(
    columns: EditColumns, record: Mapping[str, Any], where: str
) -> Iterator[tuple[str, MadeEdit]]:
    """Yield the name of each edit's image, and the edit without its file."""
    kinds = columns.kinds or {}
    extra = keep_json(record, [name for name in record if name not in columns.used])
    base = MadeEdit(
        Path(), _kind(_text(record, columns.kind), where), _text(record, columns.before),
        _text(record, columns.after), _text(record, columns.severity),
        _text(record, columns.captions[1]), extra,
    )  # fmt: skip
    if columns.reconstruction is not None and _text(record, columns.reconstruction):
        yield _text(record, columns.reconstruction), MadeEdit(Path(), RECONSTRUCTION)
    for column in columns.edits:
        if _text(record, column):
            said = _text(record, kinds.get(column))
            yield _text(record, column), replace(base, kind=_kind(said, where)) if said else base
    given = None if columns.listed is None else record.get(columns.listed)
    if is_null(given) or given == "":
        return
    if not isinstance(given, list):
        raise UserError(f"{where}: {columns.listed} should be a list of edits, not {given!r:.80}")
    for number, entry in enumerate(given):
        place = f"{where}: {columns.listed}[{number}]"
        fields = {"image": entry} if isinstance(entry, str) else entry
        if not isinstance(fields, dict):
            raise UserError(f"{place} should be the name of an image, or an object with one")

        def pick(aliases: Sequence[str], fields: Mapping[str, Any] = fields) -> str:
            name = next((n for alias in aliases for n in fields if n.lower() == alias), None)
            return _text(fields, name)

        image = pick((*EDIT, *IMAGE))
        if not image:
            raise UserError(f"{place} names no image: there are {', '.join(fields) or 'no keys'}")
        kind = pick(KIND)
        yield image, MadeEdit(
            Path(), _kind(kind, place) if kind else base.kind, pick(BEFORE) or base.before,
            pick(AFTER) or base.after, pick(SEVERITY) or base.severity,
            pick(("caption", "text")) or base.text, extra,
        )  # fmt: skip


def _text(record: Mapping[str, Any], column: str | None) -> str:
    """Return a field as text, "" where there is none."""
    value = None if column is None else record.get(column)
    return "" if is_null(value) else " ".join(str(whole(value)).split())


def _kind(said: str, where: str) -> str:
    return read_kind(said, where) if said else EDITED


def _check_names(photos: Iterable[EditedPhoto]) -> None:
    """Refuse two photos whose names differ in the ending alone."""
    by_name: dict[str, EditedPhoto] = {}
    for photo in photos:
        other = by_name.setdefault(photo.name, photo)
        if other is not photo:
            raise UserError(
                f"{photo.where}: {photo.file.name} and {other.file.name} ({other.where}) differ in "
                "their ending alone: are they one photo? Name the same file in both lines, or "
                "rename one"
            )


def _label_by_folders(file: Path, home: Path, photos: Sequence[EditedPhoto]) -> None:
    """Take the classes of photos from the folders in which they lie, for a list without them."""
    folders = {photo.name: photo.file.parent.name for photo in photos}
    plain = {name.lower() for name in folders.values()}
    flat = any(photo.file.parent in (home, home / "images") for photo in photos)
    if flat or plain <= NO_CLASSES or plain & NO_CLASSES:
        raise UserError(
            f"{file}: the photos have no class, such as {photos[0].file}: no column of the list is "
            f"called {', '.join(LABEL)}, and their folders are not called by classes "
            f"({name_some(sorted(set(folders.values())))}). Which are they? Add a column label"
        )
    for photo in photos:
        photo.label = folders[photo.name]
