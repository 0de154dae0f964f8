"""Captions as users have them: jsonl, csv, or a text file with one a line."""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from cfaug.data.sources.row import Culprits, caption, clean_key
from cfaug.errors import UserError
from cfaug.types import Caption

TEXT = ("caption", "text")
GROUP = ("image_id", "group")
FORMS = ".jsonl (caption, optional image_id and id), .csv or .tsv with such columns, .txt"


@dataclass(frozen=True)
class Captions:
    """What a file held.

    Attributes:
        captions: in the file's order, keys unique.
        duplicates: how many were left out: the same words about the same photo once more.
    """

    captions: tuple[Caption, ...]
    duplicates: int

    @property
    def digest(self) -> str:
        """The sha256 of keys, groups and texts: what a shard of them depends on."""
        return digest_of(self.captions)


def digest_of(captions: tuple[Caption, ...] | list[Caption]) -> str:
    """Return the sha256 of keys, groups and texts."""
    digest = hashlib.sha256()
    for one in captions:
        digest.update(json.dumps([one.key, one.group, one.text]).encode())
    return digest.hexdigest()


def read_captions(file: Path | str, limit: int | None = None) -> Captions:
    """Read captions, one line of text each, whitespace normalised.

    The group is the photo (``image_id``) where one is named, else the caption itself. The key is
    ``id``, or the photo's and the caption's number among its captions, or the line's number.

    Args:
        file: ``.jsonl``, ``.csv``, ``.tsv`` or ``.txt`` (one caption a line; empty lines are none).
        limit: only the first so many captions, duplicates not counted; ``None`` is all.

    Raises:
        UserError: naming file and line, for what is no caption, and for two equal ids.
    """
    path = Path(file).expanduser()
    if limit is not None and (isinstance(limit, bool) or limit < 1):
        raise UserError(f"limit={limit} should be at least 1, or null")
    reader = _Reader()
    culprits = Culprits()
    try:
        for where, record in _records(path):
            with culprits.noted():
                reader.add(record, where)
            if limit is not None and len(reader.found) == limit:
                break
    except OSError as error:
        raise UserError(f"data.captions={file} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"data.captions={file} is not UTF-8: {error}") from error
    culprits.report()
    if not reader.found:
        raise UserError(f"data.captions={file} holds no caption")
    return Captions(tuple(reader.found), reader.duplicates)


class _Reader:
    """Captions as they come, with what was seen before them."""

    def __init__(self) -> None:
        self.found: list[Caption] = []
        self.duplicates = 0
        self._said: set[tuple[str | None, str]] = set()
        self._of_photo: dict[str, Iterator[int]] = {}
        self._lines: dict[str, str] = {}

    def add(self, record: dict[str, Any], where: str) -> None:
        text = caption(next((record[n] for n in TEXT if record.get(n) is not None), None), where)
        photo = _name(record, GROUP, where)
        if (photo, text) in self._said:
            self.duplicates += 1
            return
        name = _name(record, ("id",), where)
        if name is None and photo is not None:
            name = f"{photo}-{next(self._of_photo.setdefault(photo, count()))}"
        key = clean_key(f"{len(self._said):08d}" if name is None else name)
        if key in self._lines:
            raise UserError(f"{where}: the id {name!r} comes twice, first in {self._lines[key]}")
        self._said.add((photo, text))
        self._lines[key] = where
        self.found.append(Caption(key, key if photo is None else photo, text))


def _name(record: dict[str, Any], fields: tuple[str, ...], where: str) -> str | None:
    field = next((f for f in fields if record.get(f) not in (None, "")), None)
    if field is None:
        return None
    value = record[field]
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise UserError(f"{where}: {field} should be a text or a whole number, not {value!r}")
    return str(value).strip() or None


def _records(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (place, fields) of every line that is not empty."""
    readers = {".jsonl": _jsonl, ".csv": _table, ".tsv": _table, ".txt": _lines}
    if path.suffix.lower() not in readers:
        raise UserError(f"data.captions={path} should be one of: {FORMS}")
    with path.open(encoding="utf-8-sig", newline="") as handle:
        yield from readers[path.suffix.lower()](path, handle)


def _jsonl(path: Path, lines: Iterator[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        where = f"{path}:{number}"
        try:
            record = json.loads(line)
        except ValueError as error:
            raise UserError(f"{where} is not JSON: {error}") from error
        if not isinstance(record, dict) or not set(TEXT) & record.keys():
            raise UserError(f"{where} should be an object with caption or text: {line[:80]!r}")
        yield where, record


def _table(path: Path, lines: Iterator[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    table = csv.DictReader(lines, delimiter="\t" if path.suffix.lower() == ".tsv" else ",")
    columns = table.fieldnames or []
    if not set(TEXT) & set(columns):
        raise UserError(f"{path}:1 should name a column caption or text; it names {columns}")
    try:
        for record in table:
            yield f"{path}:{table.line_num}", record
    except csv.Error as error:
        raise UserError(f"{path}:{table.line_num} is not csv: {error}") from error


def _lines(path: Path, lines: Iterator[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield f"{path}:{number}", {"text": line}
