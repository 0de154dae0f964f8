"""One item of a compositional test in any file format: photos, captions, and which are true.

There are two kinds. A *pair* has two photos and two captions, caption i of photo i (Winoground). A
*choice* has one photo and several captions, each labelled ``true`` or ``false`` (SugarCrepe), or
one caption and several photos (SVO-Probes). All become a set of an index, with a member for each
caption of a photo, in the order of the file's columns, true ones first.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any, ClassVar

from cfaug.core.errors import UserError
from cfaug.core.files import require_regular
from cfaug.core.safety.json_text import json_file
from cfaug.data.sources.lists import list_records
from cfaug.data.sources.row import caption, captions, split_home, whole

TRUE, FALSE = "true", "false"
"""Labels of a choice's captions."""
SET, CATEGORY = "set", "category"
"""Extra columns of every item's first member: its test, and its part of the test."""
HEAD = 64 * 2**10
"""Number of bytes of a list that show whether it begins like the lists of a form."""
Box = tuple[int, int, int, int]
"""Left, top, right and bottom in pixels of the photo, the latter two excluded."""


@dataclass(frozen=True)
class Released:
    """The expected numbers of items of a test.

    Attributes:
        by_category: number of items of each part; empty if not counted.
        remark: differences of the paper or other copies, "" if there are none.
    """

    items: int
    by_category: Mapping[str, int] = field(default_factory=dict)
    remark: str = ""


@dataclass(frozen=True)
class ItemPhoto:
    """A photo in a record.

    Attributes:
        names: possible names of the photo's file, the first existing one of which is used; empty
            for a photo inside a table.
        data: the content of a table's cell: encoded bytes, or a struct of bytes and path.
        box: the visible part of the photo; ``None`` for all of it.
    """

    names: tuple[str, ...] = ()
    data: Any = None
    box: Box | None = None


@dataclass(frozen=True)
class Item:
    """One item.

    Attributes:
        name: the name of the item, unique in its source.
        photos: the photos: one for a choice of captions, two for a pair, one for each member for
            a choice of photos.
        texts: the caption of each member; a choice of photos repeats one.
        labels: ``true`` or ``false`` for each member; empty for a pair.
        group: the name of the item's group; if empty, the first photo names it.
        category: the part of the test; empty if the file names none.
        tags: further fields of the record, as JSON.
        of_members: further fields of each member, as JSON.
        negatives: captions that are wrong about the first photo and are not members, in training
            data.
    """

    name: str
    where: str
    photos: tuple[ItemPhoto, ...]
    texts: tuple[str, ...]
    labels: tuple[str, ...] = ()
    group: str = ""
    category: str = ""
    tags: Mapping[str, Any] = field(default_factory=dict)
    of_members: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    negatives: tuple[str, ...] = ()

    def photo_of(self, member: int) -> int:
        """Return the number of a member's photo."""
        return min(member, len(self.photos) - 1)

    def extra(self, kind: str, member: int) -> dict[str, Any]:
        """Return the extra values of a member: the first member has most of them."""
        extra = {name: values[member] for name, values in self.of_members.items()}
        if member:
            return extra
        category = {CATEGORY: self.category} if self.category else {}
        return {SET: kind, **category, **self.tags, **extra}

    def is_edit(self, member: int) -> bool:
        """Return whether a caption edits the first: a pair's second, a choice's false ones."""
        if self.chooses_photos:
            return False
        return self.labels[member] == FALSE if self.labels else self.photo_of(member) > 0

    @property
    def chooses_photos(self) -> bool:
        """Whether it asks which of several photos one caption is true of."""
        return bool(self.labels) and len(self.photos) > 1

    @property
    def repeats(self) -> bool:
        """Whether two of its captions are equal, so that there is no choice."""
        if self.chooses_photos:
            return False
        return len(set(self.texts)) < len(self.texts) or any(
            negative in self.texts for negative in self.negatives
        )


@dataclass(frozen=True)
class ItemRecord:
    """A record of a list, or several records that form one item.

    Attributes:
        name: the name of the entry, unique in its file.
        category: the category in the file's name; empty without one.
    """

    name: str
    where: str
    fields: Mapping[str, Any]
    category: str = ""

    def text(self, *columns: str) -> str:
        """Return the caption in the first existing one of some columns."""
        return caption(self.fields[self.column(*columns)], f"{self.where}: {self.column(*columns)}")

    def column(self, *columns: str) -> str:
        """Return the first of some columns that exists."""
        existing = next((name for name in columns if name in self.fields), None)
        if existing is None:
            there = ", ".join(map(repr, self.fields)) or "none"
            raise UserError(
                f"{self.where}: {' or '.join(map(repr, columns))} is missing; the columns are "
                f"{there}"
            )
        return existing

    def word(self, column: str) -> str:
        """Return a text or number as a text, "" if it is null or missing."""
        value = whole(self.fields.get(column))
        if value is None:
            return ""
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise UserError(f"{self.where}: {column!r} should be a text, not {value!r:.80}")
        return " ".join(str(value).split())

    def photo(self, *columns: str) -> ItemPhoto:
        """Return the photo in the first existing one of some columns: a file's name, or bytes."""
        column = self.column(*columns)
        value = self.fields[column]
        if isinstance(value, list) and len(value) == 1:
            (value,) = value  # MTEB's columns are lists of one image
        if isinstance(value, str):
            return ItemPhoto(self.file_names(value, column))
        if isinstance(value, dict | bytes):
            return ItemPhoto(data=value)
        raise UserError(f"{self.where}: {column!r} should be an image, not {value!r:.80}")

    def file_names(self, name: str, column: str) -> tuple[str, ...]:
        """Return the names by which a photo is searched: the record's path, and its file name."""
        plain = os.path.normpath(name.strip()) if name.strip() else ""
        if not plain or "\0" in plain:
            raise UserError(f"{self.where}: {column!r} should be the name of a file, not {name!r}")
        inside = not PurePath(plain).is_absolute() and ".." not in PurePath(plain).parts
        return (plain, *([PurePath(plain).name] if inside and PurePath(plain).parent.name else []))

    def texts(self, column: str) -> list[str]:
        """Return the captions in a column, one or a list of them."""
        return captions(self.fields[self.column(column)], f"{self.where}: {column}")

    def whole_number(self, column: str) -> int:
        """Return a whole number; a float without a fraction counts as one."""
        value = whole(self.fields[self.column(column)])
        if isinstance(value, bool) or not isinstance(value, int):
            raise UserError(f"{self.where}: {column!r} should be a whole number, not {value!r:.80}")
        return value


class ItemForm:
    """One form of released items; a subclass defines its files or columns and reads a record.

    ``Choice`` and ``Pair`` read a record by the names of its columns alone.

    Attributes:
        kind: the name of the form, in an index and in the extra column ``set``.
        get: the place to get the files, and the content that the folder needs.
        files: {category: the name of its list}, json, jsonl, csv or tsv; "" is no category.
        list_folders: folders in which the lists may be, the first that has any of them.
        needed: columns of the lists' first record, without which they are of another form.
        positions: names for the values of records that are lists, not objects.
        released: the numbers of items in the released files; ``None`` if they are not known.
        columns: required columns of a table with images, alternatives separated by ``|``; empty for
            a form that is not a table.
        folders: folders below that of the lists in which their photos may lie.
        beside: folders beside that of the lists, or beside its parent, in which photos may lie.
        is_choice: whether members include captions that are wrong about their image, so that they
            are not training data.
    """

    kind: str
    form: str
    description: str
    get: str = ""
    files: ClassVar[Mapping[str, str]] = {}
    list_folders: tuple[str, ...] = ("",)
    needed: tuple[str, ...] = ()
    positions: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    is_choice: bool = False
    released: Released | None = None

    def lists(self, path: Path) -> dict[str, Path]:
        """Return the lists of a folder by the category in their names; empty for another form."""
        return self.of_form(named_files(path, self.files, self.list_folders))

    def of_form(self, lists: dict[str, Path]) -> dict[str, Path]:
        """Return lists whose first record has the needed columns; empty for another form."""
        if not lists or not self.needed:
            return lists
        first_list = next(iter(lists.values()))
        try:
            if first_list.suffix == ".json" and not self.positions:
                # Somebody else's test.json may be huge: it is parsed if it begins like this form.
                with require_regular(first_list).open("rb") as handle:
                    head = handle.read(HEAD)
                if not all(f'"{column}"'.encode() in head for column in self.needed):
                    return {}
            first = next(list_entries(first_list, "", self.positions), None)
        except (OSError, UserError):
            return {}
        return lists if first is not None and set(self.needed) <= set(first.fields) else {}

    def notes(self, path: Path) -> list[Path]:
        """Return the files that say more about the entries of the lists, if there are any."""
        return []

    def entries(self, path: Path) -> Iterator[ItemRecord]:
        """Yield the entries of a folder's lists, in order."""
        for category, file in self.lists(path).items():
            yield from list_entries(file, category, self.positions)

    def is_used(self, entry: ItemRecord) -> bool:
        """Return whether the authors of the test use an entry of its lists."""
        return True

    def photos(self, path: Path) -> Iterator[tuple[ItemPhoto, str]]:
        """Yield (photo, place of its name) for every item; invalid entries are left out."""
        for entry in self.entries(path):
            with suppress(UserError):
                if not self.is_used(entry):
                    continue
                item = self.item(entry)
                yield from ((photo, item.where) for photo in item.photos)

    def item(self, entry: ItemRecord) -> Item:
        """Read an entry."""
        raise NotImplementedError

    def fits(self, names: Mapping[str, bool]) -> bool:
        """Return whether a table has the columns."""
        return bool(self.columns) and all(
            any(alternative in names for alternative in column.split("|"))
            for column in self.columns
        )


class PartForm(ItemForm):
    """A form of which each list is a part, ``FOLDER:PART``; of several one has to be named."""

    def lists(self, path: Path) -> dict[str, Path]:
        """Return the list of the part that is named, or the only one."""
        home, named = split_home(path)
        parts = named_files(home, self.files, self.list_folders)
        if named is None and len(parts) > 1:
            choices = ", ".join(f"{home}:{part}" for part in parts)
            raise UserError(f"{home} holds several lists of {self.form}: name one of {choices}")
        return self.of_form({
            part: file for part, file in parts.items() if named is None or part == named
        })  # fmt: skip


def list_entries(
    file: Path, category: str = "", positions: Sequence[str] = ()
) -> Iterator[ItemRecord]:
    """Yield the entries of a list, json (see ``file_entries``) or a format of ``list_records``."""
    if file.suffix == ".json":
        yield from file_entries(file, category, positions)
        return
    for number, (where, fields) in enumerate(list_records(file)):
        yield ItemRecord(str(number), where, fields, category)


def file_entries(
    file: Path, category: str = "", positions: Sequence[str] = ()
) -> Iterator[ItemRecord]:
    """Yield the entries of a json file: a list of objects, or an object of them by number.

    Numbers may be missing: the released files of SugarCrepe skip some.

    Args:
        positions: names for the values of entries that are lists of as many values.
    """
    content = json_file(file)
    if isinstance(content, dict):
        named = list(content.items())
    elif isinstance(content, list):
        named = [(str(number), entry) for number, entry in enumerate(content)]
    else:
        raise UserError(f"{file} should be a list of JSON objects, or an object of them by number")
    for name, fields in named:
        where = f"{file}, [{name}]"
        if positions:
            if not isinstance(fields, list) or len(fields) != len(positions):
                raise UserError(f"{where} should be a list of {', '.join(positions)}")
            fields = dict(zip(positions, fields, strict=True))
        if not isinstance(fields, dict):
            raise UserError(f"{where} should be a JSON object")
        yield ItemRecord(name, where, fields, category)


def named_files(path: Path, names: Mapping[str, str], folders: tuple[str, ...]) -> dict[str, Path]:
    """Return the existing ones of some files, in the first folder that has any of them.

    Args:
        names: {key of the result: name of the file}.
        folders: folders below ``path`` in which the files may be.
    """
    for folder in folders:
        files = {
            called: path / folder / name
            for called, name in names.items()
            if (path / folder / name).is_file()
        }
        if files:
            return files
    return {}
