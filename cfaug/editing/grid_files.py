"""Reading of a caption grid's YAML file and its word lists, which are checked, never executed."""

from __future__ import annotations

import re
import reprlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any
from unicodedata import normalize

from cfaug.core.errors import UserError
from cfaug.core.files import require_regular
from cfaug.editing.sentence import normalise
from cfaug.editing.word_lists import SHIPPED, list_lines

KEYS = ("name", "subject_type", "subjects", "prefixes", "template", "neutral", "attributes")
REQUIRED = ("subject_type", "subjects", "template", "attributes")
RESERVED = ("prefix", "subject")
"""The placeholders that are not attributes."""

NAME = re.compile(r"[a-z][a-z0-9_]*")

MOST_BYTES = 16 * 2**20
"""Largest size of a grid's file or of a list in bytes; a million subjects need less."""

MOST_CHARACTERS = 200
"""Largest number of characters of a text, which becomes part of keys and of captions; models
truncate captions at about 70 words."""

ARROW = "->"
"""Separator, in a list, of a printed value from its corrected values."""


@dataclass(frozen=True)
class GridFile:
    """The content of a grid's file.

    Attributes:
        subject_type: the type of its subjects, such as "occupation".
        subjects: the subjects as printed, before corrections.
        corrections: {printed subject: corrected subjects} for misprints.
        neutral: the template without attributes; ``None`` if the file has none.
    """

    name: str
    subject_type: str
    subjects: tuple[str, ...]
    corrections: Mapping[str, tuple[str, ...]]
    prefixes: tuple[str, ...]
    template: str
    neutral: str | None
    attributes: Mapping[str, Mapping[str, str]]

    def corrected(self) -> tuple[str, ...]:
        """Return the subjects, with misprints corrected."""
        return tuple(
            s for subject in self.subjects for s in self.corrections.get(subject, (subject,))
        )


def read_grid_file(path: Path) -> GridFile:
    """Read the file of a grid."""
    found = _mapping(_load(path), str(path))
    unknown = [key for key in found if key not in KEYS]
    missing = [key for key in REQUIRED if found.get(key) is None]
    if unknown or missing:
        wrong = f"the key {unknown[0]!r} is unknown" if unknown else f"{missing[0]!r} is missing"
        raise UserError(f"{path}: {wrong}; a grid has {', '.join(KEYS)}")
    subjects, corrections = _words(found["subjects"], path, "subjects")
    _require_some(subjects, f"{path}: subjects")
    for correction in corrections.values():
        _require_some(correction, f"{path}: subjects")
    attributes = _mapping(found["attributes"], f"{path}: attributes")
    _require_some(list(attributes), f"{path}: attributes")
    name = _text(found.get("name", path.stem.lower()), f"{path}: name")
    if not NAME.fullmatch(name):
        raise UserError(
            f"{path}: the name {name!r} is invalid: use lower-case letters, digits and '_', and "
            "say another as `name: NAME` in the file"
        )
    neutral = found.get("neutral")
    return GridFile(
        name=name,
        subject_type=_text(found["subject_type"], f"{path}: subject_type"),
        subjects=subjects,
        corrections=corrections,
        prefixes=_prefixes(found.get("prefixes", [""]), path),
        template=_text(found["template"], f"{path}: template", braces=True),
        neutral=None if neutral is None else _text(neutral, f"{path}: neutral", braces=True),
        attributes=MappingProxyType(
            {_attribute(key, path): _values(value, path, key) for key, value in attributes.items()}
        ),
    )


def _load(path: Path) -> Any:
    """Return the content of a YAML file, which may have only plain values and distinct keys."""
    import yaml

    class Loader(yaml.SafeLoader):
        """The safe loader, without any tag that constructs an object."""

    def construct(loader: Loader, node: yaml.MappingNode) -> dict[Any, Any]:
        keys = Counter(one.value for one, _ in node.value if isinstance(one.value, str))
        twice = next((key for key, count in keys.items() if count > 1), None)
        if twice is not None:
            raise UserError(f"{path}: the key {twice!r} is duplicated")
        return loader.construct_mapping(node, deep=True)

    Loader.add_constructor("tag:yaml.org,2002:map", construct)
    try:
        return yaml.load(_read(path), Loader)  # a SafeLoader
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        where = " ".join(str(error).split())
        raise UserError(f"{path} is not valid YAML: {where:.300}") from error


def _read(path: Path) -> str:
    """Return the text of a file."""
    try:
        with require_regular(path).open("rb") as handle:
            content = handle.read(MOST_BYTES + 1)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from error
    if len(content) > MOST_BYTES:
        raise UserError(f"{path} is larger than {MOST_BYTES:,} bytes; it is not read")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 ({error}): save it as UTF-8") from error


def _mapping(found: Any, where: str) -> dict[Any, Any]:
    if not isinstance(found, dict):
        raise UserError(f"{where} should map names to values, not be {reprlib.repr(found)}")
    return found


def _text(found: Any, where: str, *, braces: bool = False) -> str:
    """Return a text on one line."""
    if not isinstance(found, str):
        raise UserError(
            f"{where} should be a text, not {reprlib.repr(found)}: put it in quotes if it is one"
        )
    text = normalize("NFC", normalise(found))  # accents have two encodings
    if not text:
        raise UserError(f"{where} is empty")
    if len(text) > MOST_CHARACTERS:
        raise UserError(
            f"{where} is longer than {MOST_CHARACTERS} characters: {reprlib.repr(text)}"
        )
    if not text.isprintable():
        raise UserError(f"{where} has a character that cannot be printed: {reprlib.repr(text)}")
    if not braces and ("{" in text or "}" in text):
        raise UserError(f"{where}: {reprlib.repr(text)} has braces, which only templates have")
    return text


def _require_some(found: Any, where: str) -> None:
    if not found:
        raise UserError(f"{where} is empty: give at least one")


def _unique(found: tuple[str, ...], where: str) -> tuple[str, ...]:
    lowered = Counter(one.lower() for one in found)
    twice = next((one for one in found if lowered[one.lower()] > 1), None)
    if twice is not None:
        raise UserError(f"{where}: {twice!r} is duplicated; capitals make no difference")
    return found


def _prefixes(found: Any, path: Path) -> tuple[str, ...]:
    where = f"{path}: prefixes"
    if not isinstance(found, list):
        raise UserError(f'{where} should be a list such as ["", A photo of]')
    _require_some(found, where)
    blank = [one for one in found if isinstance(one, str) and not one.strip()]
    return _unique(tuple("" if one in blank else _text(one, where) for one in found), where)


def _attribute(name: Any, path: Path) -> str:
    where = f"{path}: attributes: the name {reprlib.repr(name)}"
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise UserError(f"{where} is invalid: use lower-case letters, digits and '_'")
    if name in RESERVED:
        raise UserError(f"{where} is taken: choose another")
    return name


def _values(found: Any, path: Path, name: str) -> Mapping[str, str]:
    """Return the values of an attribute, and their words in captions."""
    where = f"{path}: attributes: {name}"
    if isinstance(found, dict):
        said = {
            _text(value, where): _text(words, f"{where}: {value}") for value, words in found.items()
        }
    else:
        words, corrections = _words(found, path, f"attributes: {name}")
        words = tuple(one for word in words for one in corrections.get(word, (word,)))
        said = dict(zip(_unique(words, where), words, strict=True))
    _require_some(said, where)
    _unique(tuple(said), where)
    _unique(tuple(said.values()), where)
    return MappingProxyType(said)


def _words(
    found: Any, path: Path, name: str
) -> tuple[tuple[str, ...], Mapping[str, tuple[str, ...]]]:
    """Return the words of a list, and the corrections of misprinted ones."""
    where = f"{path}: {name}"
    check = partial(_text, where=where)
    if isinstance(found, list):
        return tuple(check(one) for one in found), MappingProxyType({})
    named = _text(found, where)
    file = SHIPPED / f"{named}.txt"
    if named.lower().endswith(".txt"):
        file = path.parent / Path(named).expanduser()
        where = str(file)
    elif not NAME.fullmatch(named) or not file.is_file():
        raise UserError(
            f"{where}: there is no list {named!r}: write the values as a list, [a, b], or name a "
            "file FILE.txt with one a line"
        )
    words, corrections = [], {}
    for line in list_lines(_read(file)):
        printed, arrow, right = line.partition(ARROW)
        words.append(_text(printed, where))
        if arrow:
            corrections[words[-1]] = tuple(_text(one, where) for one in right.split(","))
    return tuple(words), MappingProxyType(corrections)
