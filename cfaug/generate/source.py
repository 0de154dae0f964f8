"""Reading captions from a table with a column of captions, or from a text file by lines."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

from cfaug.core.errors import UserError
from cfaug.core.types import Example
from cfaug.core.validation import Positive, check
from cfaug.data.index.reading import shorten
from cfaug.data.sources.columns import one_column
from cfaug.data.sources.lists import LISTS, list_records, text_lines
from cfaug.data.sources.row import ErrorCollector, caption, clean_key

TEXT = ("caption", "text")
GROUP = ("image_id", "group")
COLUMNS = "a column caption (or text), and optionally image_id (the photo's) and id"
FORMS = f".txt, a caption a line, or {', '.join(LISTS)} with {COLUMNS}"


@dataclass(frozen=True)
class Captions:
    """The captions of a file.

    Attributes:
        captions: the captions as examples with unique keys, in the order of the file.
        duplicates: the number of captions left out because the same photo already has such a text.
        unused: the names of columns of the file that were not read.
    """

    captions: tuple[Example, ...]
    duplicates: int
    unused: tuple[str, ...] = ()

    def line(self, source: str) -> str:
        """Return one line that describes the captions read from a source."""
        groups = len({example.group for example in self.captions})
        photos = f" (of {groups:,} photos)" if groups < len(self.captions) else ""
        said = f"captions: {len(self.captions):,} of {source}{photos}"
        said += f"; first: {shorten(self.captions[0].text)}"
        return said + (f"; columns not used: {', '.join(self.unused)}" if self.unused else "")


def digest_of(examples: Sequence[Example]) -> str:
    """Return the sha256 of the whole content of examples.

    For examples of one text each it is the sha256 of keys, groups and texts.
    """
    digest = hashlib.sha256()
    for example in examples:
        about: list[Any] = [
            example.key,
            example.group,
            example.text if len(example.texts) == 1 else example.texts,
        ]
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
        replace(some[0], key=clean_key(name), texts=tuple(t for one in some for t in one.texts))
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
            (empty lines are skipped).
        limit: the number of captions to read from the beginning, without duplicates; ``None`` for
            all.
        extra: the names of columns to keep in ``Example.extra``, if a line has them.
    """
    path = Path(file).expanduser()
    check(limit, Positive | None, "limit")
    reader = _Reader(extra)
    errors = ErrorCollector()
    for where, record in _records(path):
        with errors.collect():
            reader.add(record, where)
        if limit is not None and len(reader.found) == limit:
            break
    errors.report()
    if not reader.found:
        raise UserError(f"data.source={file} holds no caption")
    missing = [name for name in extra if not any(name in one.extra for one in reader.found)]
    if missing:
        there = ", ".join(reader.unused) or "none beside those that are read"
        raise UserError(f"{file} has no column {missing[0]!r} (data.extra); there are: {there}")
    return Captions(tuple(reader.found), reader.duplicates, tuple(reader.unused))


class _Reader:
    """Reads captions one by one, and remembers the earlier ones."""

    def __init__(self, extra: Sequence[str]) -> None:
        self.extra = extra
        self.found: list[Example] = []
        self.duplicates = 0
        self.unused = dict[str, None]()
        self._said: set[tuple[str | None, str]] = set()
        self._of_photo: dict[str, Iterator[int]] = {}
        self._lines: dict[str, str] = {}

    def add(self, record: Mapping[str, Any], where: str) -> None:
        used = (*TEXT, *GROUP, "id", *self.extra)
        self.unused.update(dict.fromkeys(name for name in record if name not in used))
        column = one_column([n for n, v in record.items() if v is not None], TEXT, "caption", where)
        text = caption(None if column is None else record[column], where)
        photo = _name(record, GROUP, where)
        if (photo, text) in self._said:
            self.duplicates += 1
            return
        name = _name(record, ("id",), where)
        if name is None and photo is not None:
            name = f"{photo}-{next(self._of_photo.setdefault(photo, count()))}"
        key = clean_key(f"{len(self._said):08d}" if name is None else name)
        if key in self._lines:
            raise UserError(f"{where}: the id {name!r} is duplicated, first in {self._lines[key]}")
        self._said.add((photo, text))
        self._lines[key] = where
        extra = {name: record[name] for name in self.extra if record.get(name) not in (None, "")}
        group = key if photo is None else photo
        self.found.append(Example(key, group, (text,), extra=extra))


def _name(record: Mapping[str, Any], fields: tuple[str, ...], where: str) -> str | None:
    field = next((f for f in fields if record.get(f) not in (None, "")), None)
    if field is None:
        return None
    value = record[field]
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise UserError(f"{where}: {field} should be a text or a whole number, not {value!r}")
    return str(value).strip() or None


def _records(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the place and the fields of every line that is not empty."""
    kind = path.suffix.lower()
    if kind not in (".txt", *LISTS):
        raise UserError(f"data.source={path} should be one of: {FORMS}")
    if kind == ".txt":
        yield from ((where, {"text": line}) for where, line in text_lines(path) if line.strip())
        return
    for where, record in list_records(path):
        if not set(TEXT) & record.keys():
            there = ", ".join(map(repr, record))
            raise UserError(f"{where}: a list of captions has {COLUMNS}; this one has {there}")
        yield where, record
