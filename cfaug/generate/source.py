"""Reading captions from a table with a column of captions, or from a text file by lines."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
        captions: examples with unique keys, in the order of the file.
        duplicates: the number of captions left out because the same photo already has such a text.
    """

    captions: tuple[Example, ...]
    duplicates: int
    unused: tuple[str, ...] = ()

    def line(self, source: str) -> str:
        """Return one line that describes the captions read from a source."""
        groups = len({example.group for example in self.captions})
        photos = f" (of {groups:,} photos)" if groups < len(self.captions) else ""
        text = f"captions: {len(self.captions):,} of {source}{photos}"
        text += f"; first: {shorten(self.captions[0].text)}"
        return text + (f"; columns not used: {', '.join(self.unused)}" if self.unused else "")


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
            (empty lines are skipped).
        limit: the number of captions to read from the beginning, without duplicates; ``None`` for
            all.
        extra: the names of columns to keep in ``Example.extra``, if a line has them.
    """
    path = Path(file).expanduser()
    check(limit, Positive | None, "limit")
    kind = path.suffix.lower()
    if kind not in (".txt", *LISTS):
        raise UserError(f"data.source={path} should be one of: {FORMS}")
    records: Iterable[tuple[str, Mapping[str, Any]]]
    if kind == ".txt":
        records = ((where, {"text": line}) for where, line in text_lines(path) if line.strip())
    else:
        records = list_records(path)
    examples: list[Example] = []
    duplicates = 0
    used = {*TEXT, *GROUP, "id", *extra}
    unused = dict[str, None]()
    texts: set[tuple[str | None, str]] = set()
    of_photo: dict[str, Iterator[int]] = {}
    first: dict[str, str] = {}
    errors = ErrorCollector()
    for where, record in records:
        if not set(TEXT) & record.keys():
            there = ", ".join(map(repr, record))
            raise UserError(f"{where}: a list of captions has {COLUMNS}; this one has {there}")
        with errors.collect():
            unused |= dict.fromkeys(name for name in record if name not in used)
            given = [name for name, value in record.items() if value is not None]
            column = one_column(given, TEXT, "caption", where)
            text = caption(None if column is None else record[column], where)
            photo = _name(record, GROUP, where)
            if (photo, text) in texts:
                duplicates += 1
                continue
            name = _name(record, ("id",), where)
            if name is None and photo is not None:
                name = f"{photo}-{next(of_photo.setdefault(photo, count()))}"
            key = clean_key(f"{len(texts):08d}" if name is None else name)
            if key in first:
                raise UserError(f"{where}: the id {name!r} is duplicated, first in {first[key]}")
            texts.add((photo, text))
            first[key] = where
            further = {name: record[name] for name in extra if record.get(name) not in (None, "")}
            examples.append(Example(key, key if photo is None else photo, (text,), extra=further))
        if len(examples) == limit:
            break
    errors.report()
    if not examples:
        raise UserError(f"data.source={file} holds no caption")
    missing = [name for name in extra if not any(name in example.extra for example in examples)]
    if missing:
        there = ", ".join(unused) or "none beside those that are read"
        raise UserError(f"{file} has no column {missing[0]!r} (data.extra); there are: {there}")
    return Captions(tuple(examples), duplicates, tuple(unused))


def _name(record: Mapping[str, Any], fields: Sequence[str], where: str) -> str | None:
    field = next((f for f in fields if record.get(f) not in (None, "")), None)
    if field is None:
        return None
    value = record[field]
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise UserError(f"{where}: {field} should be a text or a whole number, not {value!r}")
    return str(value).strip() or None
