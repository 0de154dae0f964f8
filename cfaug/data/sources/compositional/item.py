"""One item of a compositional test, whatever file it came from: photos, captions, which are true.

There are two kinds. A *pair* has two photos and two captions, caption i of photo i (Winoground). A
*choice* has one photo and several captions, each labelled ``true`` or ``false`` (SugarCrepe). Both
become a set of an index, a member a caption, the members in the order of the file's columns and the
true ones first.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

from cfaug.data.sources.lists import json_file
from cfaug.data.sources.values import caption
from cfaug.errors import UserError

TRUE, FALSE = "true", "false"
"""Labels of a choice's captions."""

SET, CATEGORY = "set", "category"
"""Extra columns of every item's first member: which test it is of, and which part of that."""

Box = tuple[int, int, int, int]
"""Left, top, right and bottom in pixels of the photo, the latter two excluded."""


@dataclass(frozen=True)
class ItemPhoto:
    """A photo as a record has it.

    Attributes:
        names: of its file, the first that is there counts; empty of one inside a table.
        data: what a table holds: encoded bytes, or a struct of them and a path.
        box: what is shown of it; ``None`` is all.
    """

    names: tuple[str, ...] = ()
    data: Any = None
    box: Box | None = None


@dataclass(frozen=True)
class Item:
    """One item.

    Attributes:
        name: unique in its source.
        where: its record lies, for messages.
        photos: one of a choice, two of a pair.
        texts: the captions, each as one line.
        labels: of each caption ``true`` or ``false``; empty of a pair.
        group: what it was sampled with; empty is the first photo.
        category: the part of the test; empty where the file names none.
        tags: what else the record says, JSON.
        of_members: what it says of each member, JSON.
        negatives: captions that are wrong about the first photo and no members: of training data.
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
        """Return the extra values of a member: most are the first one's."""
        found = {name: values[member] for name, values in self.of_members.items()}
        if member:
            return found
        category = {CATEGORY: self.category} if self.category else {}
        return {SET: kind, **category, **self.tags, **found}

    def is_edit(self, member: int) -> bool:
        """Say whether a caption is an edit of the first one: a pair's second, a choice's false."""
        return self.labels[member] == FALSE if self.labels else member > 0

    @property
    def repeats(self) -> bool:
        """Whether two of its captions are equal, so that there is nothing to choose."""
        return len(set(self.texts)) < len(self.texts) or any(
            one in self.texts for one in self.negatives
        )


@dataclass(frozen=True)
class Entry:
    """A record of a list, or of several that belong together.

    Attributes:
        name: of the entry, unique in its file.
        where: it lies, for messages.
        fields: by column.
        category: what the file's name says, or "".
    """

    name: str
    where: str
    fields: Mapping[str, Any]
    category: str = ""

    def text(self, *columns: str) -> str:
        """Return the caption in the first of some columns that is there.

        Raises:
            UserError: naming the entry, if none is there or it is not text.
        """
        return caption(self.fields[self.column(*columns)], f"{self.where}: {self.column(*columns)}")

    def column(self, *columns: str) -> str:
        """Return the first of some columns that is there.

        Raises:
            UserError: naming the entry and what is there, if none is.
        """
        found = next((name for name in columns if name in self.fields), None)
        if found is None:
            there = ", ".join(map(repr, self.fields)) or "none"
            raise UserError(
                f"{self.where}: {' or '.join(map(repr, columns))} is missing; the columns are "
                f"{there}"
            )
        return found

    def word(self, column: str) -> str:
        """Return a text or number as a text, "" where it is null or not there.

        Raises:
            UserError: naming the entry, if it is anything else.
        """
        value = self.fields.get(column)
        if value is None:
            return ""
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise UserError(f"{self.where}: {column!r} should be a text, not {value!r:.80}")
        return " ".join(str(value).split())

    def photo(self, *columns: str, box: Box | None = None) -> ItemPhoto:
        """Return the photo in the first of some columns that is there: a file's name, or bytes.

        Raises:
            UserError: naming the entry, if none is there or it is empty.
        """
        column = self.column(*columns)
        value = self.fields[column]
        if isinstance(value, list) and len(value) == 1:
            (value,) = value  # MTEB's columns are lists of one image
        if isinstance(value, str):
            return ItemPhoto(self.file_names(value, column), box=box)
        if isinstance(value, dict | bytes):
            return ItemPhoto(data=value, box=box)
        raise UserError(f"{self.where}: {column!r} should be an image, not {value!r:.80}")

    def file_names(self, name: str, column: str) -> tuple[str, ...]:
        """Return the names by which a photo is looked for: as the record has it, and its file's.

        Raises:
            UserError: naming the entry, if it is not a name of a file.
        """
        plain = os.path.normpath(name.strip()) if name.strip() else ""
        if not plain or "\0" in plain:
            raise UserError(f"{self.where}: {column!r} should be the name of a file, not {name!r}")
        inside = not PurePath(plain).is_absolute() and ".." not in PurePath(plain).parts
        return (plain, *([PurePath(plain).name] if inside and PurePath(plain).parent.name else []))

    def whole_number(self, column: str) -> int:
        """Return a whole number; a float without a fraction counts as one.

        Raises:
            UserError: naming the entry, if it is none.
        """
        value = self.fields[self.column(column)]
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise UserError(f"{self.where}: {column!r} should be a whole number, not {value!r:.80}")
        return value


class ItemForm:
    """One form of released items; a subclass names its files or columns and reads a record.

    Attributes:
        kind: its name, in an index and as the extra column ``set``.
        form: what a report calls it.
        description: what a folder of this form holds.
        get: where its files are, and what a folder should hold, for who has none.
        columns: those that a table with images must have, alternatives separated by ``|``; empty
            of a form that is not a table.
        folders: below the folder of the lists, in which their photos may lie.
        beside: folders beside it, or beside that, in which they may lie as well.
        is_choice: whether captions are members that are wrong about their image: no training data.
    """

    kind: str
    form: str
    description: str
    get: str = ""
    columns: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    is_choice: bool = False

    def lists(self, path: Path) -> dict[str, Path]:
        """Return the lists of a folder by what their names say; empty for another form."""
        return {}

    def entries(self, path: Path) -> Iterator[Entry]:
        """Yield the entries of a folder's lists, in order.

        Raises:
            UserError: naming the file that cannot be read.
        """
        for category, file in self.lists(path).items():
            yield from file_entries(file, category)

    def photos(self, path: Path) -> Iterator[tuple[ItemPhoto, str]]:
        """Yield (photo, where it is named) of every item; entries that are invalid are left out."""
        for entry in self.entries(path):
            with suppress(UserError):
                item = self.item(entry)
                yield from ((photo, item.where) for photo in item.photos)

    def item(self, entry: Entry) -> Item:
        """Read an entry.

        Raises:
            UserError: naming it, for what is missing or invalid.
        """
        raise NotImplementedError

    def fits(self, names: Mapping[str, bool]) -> bool:
        """Say whether a table has the columns.

        Args:
            names: of its columns, each with whether it holds images.
        """
        return bool(self.columns) and all(
            any(one in names for one in column.split("|")) for column in self.columns
        )


def file_entries(file: Path, category: str = "") -> Iterator[Entry]:
    """Yield the entries of a json file: a list of objects, or an object of them by number.

    Numbers may be missing: the released files of SugarCrepe skip some.

    Raises:
        UserError: naming the file, or the entry that is not an object.
    """
    found = json_file(file)
    if isinstance(found, dict):
        named = list(found.items())
    elif isinstance(found, list):
        named = [(str(number), one) for number, one in enumerate(found)]
    else:
        raise UserError(f"{file} should be a list of JSON objects, or an object of them by number")
    for name, fields in named:
        where = f"{file}, [{name}]"
        if not isinstance(fields, dict):
            raise UserError(f"{where} should be a JSON object")
        yield Entry(name, where, fields, category)


def named_files(path: Path, names: Mapping[str, str], folders: tuple[str, ...]) -> dict[str, Path]:
    """Return those of some files that lie in the first folder that has any of them.

    Args:
        path: the source's folder.
        names: {what it is called here: name of the file}.
        folders: below it, in which the files may lie.
    """
    for folder in folders:
        found = {
            called: path / folder / name
            for called, name in names.items()
            if (path / folder / name).is_file()
        }
        if found:
            return found
    return {}
