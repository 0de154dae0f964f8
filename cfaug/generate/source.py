"""Reading captions from a table with a column of captions, or from a text file by lines."""

from __future__ import annotations

import hashlib
import json
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, overload

import numpy as np

from cfaug.core.errors import UserError
from cfaug.core.safety.json_text import load_json
from cfaug.core.types import Example
from cfaug.core.validation import Positive, check
from cfaug.data.index.disk_format import GrowingStrings, TextCounts, code_texts
from cfaug.data.index.extra_columns import Strings
from cfaug.data.index.reading import shorten
from cfaug.data.sources.columns import one_column
from cfaug.data.sources.lists import LISTS, list_records, text_lines
from cfaug.data.sources.row import (
    ErrorCollector,
    caption,
    clean_key,
    group_name,
    split_home,
    whole,
)
from cfaug.data.sources.splits import (
    SplitChoice,
    SplitSurvey,
    choose_split,
    may_be_split,
    split_kind,
)

TEXT = ("caption", "text")
GROUP = ("image_id", "group")
COLUMNS = "a column caption (or text), and optionally image_id (the photo's) and id"
FORMS = f".txt, a caption a line, or {', '.join(LISTS)} with {COLUMNS}"


@dataclass(frozen=True)
class CaptionTable(Sequence[Example]):
    """Examples of one text each, made when they are read from columns of Arrow.

    A row takes the bytes of its texts and 32 more, where an example takes 800.

    Attributes:
        groups: the groups, empty where the group is the key.
        extras: ``Example.extra`` as JSON, empty where it is.
    """

    keys: Strings
    groups: Strings
    texts: Strings
    extras: Strings

    def __len__(self) -> int:
        return len(self.keys)

    @overload
    def __getitem__(self, row: int) -> Example: ...

    @overload
    def __getitem__(self, row: slice) -> tuple[Example, ...]: ...

    def __getitem__(self, row: int | slice) -> Example | tuple[Example, ...]:
        if isinstance(row, slice):
            return tuple(map(self.__getitem__, range(len(self))[row]))
        number = range(len(self))[row]
        return _example(*(column[number] for column in self._columns))

    def __iter__(self) -> Iterator[Example]:
        return map(_example, *self._columns)

    @property
    def _columns(self) -> tuple[Strings, Strings, Strings, Strings]:
        return self.keys, self.groups, self.texts, self.extras


def _example(key: str, group: str, text: str, extra: str) -> Example:
    return Example(key, group or key, (text,), extra=load_json(extra) if extra else {})


@dataclass(frozen=True)
class Captions:
    """The captions of a file.

    Attributes:
        captions: examples with unique keys, in the order of the file.
        duplicates: the number of captions left out because the same photo already has such a text.
    """

    captions: CaptionTable
    duplicates: int
    unused: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def line(self, source: str) -> str:
        """Return one line that describes the captions read from a source."""
        groups = len(np.unique(code_texts(example.group for example in self.captions)))
        photos = f" (of {groups:,} photos)" if groups < len(self.captions) else ""
        text = f"captions: {len(self.captions):,} of {source}{photos}"
        text += f"; first: {shorten(self.captions[0].text)}"
        text += f"; columns not used: {', '.join(self.unused)}" if self.unused else ""
        return text + "".join(f"; note: {note}" for note in self.notes)


def digest_of(examples: Sequence[Example]) -> str:
    """Return the sha256 of the whole content of examples.

    For examples of one text each it is the sha256 of keys, groups and texts.
    """
    digest = hashlib.sha256()
    for example in examples:
        texts = example.text if len(example.texts) == 1 else example.texts
        about: list[Any] = [example.key, example.group, texts]
        if example.image is not None or example.label is not None or example.extra:
            image = None if example.image is None else example.image.digest
            about += [image, example.label, dict(example.extra)]
        digest.update(json.dumps(about).encode())
    return digest.hexdigest()


def group_by_image(examples: Sequence[Example]) -> tuple[Example, ...]:
    """Return one example for each group, with the texts of all its examples.

    The order of groups and their other fields are those of their first examples.
    """
    of: dict[str, list[Example]] = {}
    for example in examples:
        of.setdefault(example.group, []).append(example)
    return tuple(
        replace(
            some[0], key=clean_key(name), texts=tuple(t for example in some for t in example.texts)
        )
        for name, some in of.items()
    )


def read_captions(
    file: Path | str, limit: int | None = None, extra: Sequence[str] = ()
) -> Captions:
    """Read captions, with white space normalised.

    The group is the photo (``image_id``) if the file names it, otherwise the caption itself. The
    key is ``id``, or the photo with the caption's number among its captions, or the line's number.

    Args:
        file: a table that ``cfaug.data.sources.lists`` reads, with a column ``caption`` and
            optionally ``image_id`` and ``id``, or a ``.txt`` file with one caption in each line
            (empty lines are skipped). Of a table with a column of splits one must be named,
            ``FILE:train``.
        limit: the number of captions to read from the beginning, without duplicates; ``None`` for
            all.
        extra: the names of columns to keep in ``Example.extra``, if a line has them.
    """
    path, split = split_home(Path(file).expanduser())
    check(limit, Positive | None, "limit")
    kind = path.suffix.lower()
    if kind not in (".txt", *LISTS):
        raise UserError(f"data.source={path} should be one of: {FORMS}")

    choice = SplitChoice()

    def records() -> Iterable[tuple[str, Mapping[str, Any]]]:
        if kind != ".txt":
            return (line for line in list_records(path) if choice.reads(line[1]))
        return ((where, {"text": line}) for where, line in text_lines(path) if line.strip())

    def first_place(key: str) -> str | None:
        for before, number in zip(keys.column(), numbers, strict=True):
            if before == key:
                return next(where for where, _ in islice(records(), number, None))
        return None

    _, fields = next(iter(records()), ("", {}))
    if split is not None or any(may_be_split(k) or split_kind(str(v)) for k, v in fields.items()):
        survey = SplitSurvey.of(record for _, record in records())
        choice = choose_split(path if split is None else Path(file).expanduser(), survey)
    columns = tuple(GrowingStrings() for _ in range(4))  # of a CaptionTable
    keys = columns[0]
    numbers = array("q")  # of the records that were kept
    used = {*TEXT, *GROUP, "id", *choice.used, *extra}
    unused, kept = dict[str, None](), set[str]()
    texts, photos, names = TextCounts(), TextCounts(), TextCounts()
    duplicates = 0
    errors = ErrorCollector()
    for number, (where, record) in enumerate(records()):
        if not set(TEXT) & record.keys():
            there = ", ".join(map(repr, record))
            raise UserError(f"{where}: a list of captions has {COLUMNS}; this one has {there}")
        with errors.collect():
            unused |= dict.fromkeys(name for name in record if name not in used)
            given = [name for name, value in record.items() if value is not None]
            column = one_column(given, TEXT, "caption", where)
            text = caption(None if column is None else record[column], where)
            photo = _name(record, GROUP, where)
            photo = None if photo is None else group_name(photo)
            if texts.add(repr((photo, text))):
                duplicates += 1
                continue
            name = _name(record, ("id",), where)
            if name is None and photo is not None:
                name = f"{photo}-{photos.add(photo)}"
            key = clean_key(f"{len(keys):08d}" if name is None else name)
            if names.add(key) and (first := first_place(key)) is not None:
                raise UserError(f"{where}: the id {name!r} is duplicated, first in {first}")
            further = {name: record[name] for name in extra if record.get(name) not in (None, "")}
            kept |= further.keys()
            row = key, photo or "", text, json.dumps(further) if further else ""
            for values, value in zip(columns, row, strict=True):
                values.append(value)
            numbers.append(number)
        if len(keys) == limit:
            break
    errors.report()
    if not len(keys):
        raise UserError(f"data.source={file} holds no caption")
    missing = [name for name in extra if name not in kept]
    if missing:
        there = ", ".join(unused) or "none beside those that are read"
        raise UserError(f"{file} has no column {missing[0]!r} (data.extra); there are: {there}")
    table = CaptionTable(*(values.column() for values in columns))
    return Captions(table, duplicates, tuple(unused), choice.notes)


def _name(record: Mapping[str, Any], fields: Sequence[str], where: str) -> str | None:
    given = (f for f in fields if record.get(f) not in (None, "") and record[f] == record[f])
    field = next(given, None)  # NaN, which differs from itself, is no name
    if field is None:
        return None
    value = whole(record[field])
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise UserError(f"{where}: {field} should be a text or a whole number, not {value!r}")
    return str(value).strip() or None
