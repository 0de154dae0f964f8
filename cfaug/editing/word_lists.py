"""Word lists for the rules that edit captions: shipped files, or your own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from pathlib import Path

from cfaug.core.errors import UserError
from cfaug.core.files import require_regular
from cfaug.core.weights import sha256_text

SHIPPED = Path(str(files("cfaug"))) / "editing" / "word_lists"
"""The folder of the shipped lists."""
FILES = (
    "nouns", "adjectives", "locations", "weather", "domains", "places",
    "first_names", "last_names", "countries", "cities", "contractions",
)  # fmt: skip


@dataclass(frozen=True)
class NounKind:
    """Nouns of one kind, which can replace each other in a caption.

    Attributes:
        above: the words whose first sense in WordNet is the kind, or a part of it.
    """

    name: str
    above: tuple[str, ...]
    plurals: Mapping[str, str]


@dataclass(frozen=True)
class AdjectiveSet:
    """Adjectives that can replace each other, for ``kinds`` of nouns, or for ``any``."""

    kinds: tuple[str, ...]
    words: tuple[str, ...]


@dataclass(frozen=True)
class WordLists:
    """The lists, read on first use.

    Args:
        folder: a folder with some of the files that ``FILES`` names, such as ``nouns.txt``, in the
            form of the shipped ones, which replace missing files; ``None`` uses only the shipped
            ones.
    """

    folder: str | None = None

    def __post_init__(self) -> None:
        if self.folder is not None and not any(self._own(name).is_file() for name in FILES):
            named = ", ".join(f"{name}.txt" for name in FILES)
            raise UserError(f"word lists: {self.folder} has none of {named}")

    def _own(self, name: str) -> Path:
        return Path(str(self.folder)).expanduser() / f"{name}.txt"

    def lines(self, name: str) -> list[str]:
        """Return the lines of a list, without empty lines and comments."""
        from_user = self.folder is not None and self._own(name).is_file()
        file = self._own(name) if from_user else SHIPPED / f"{name}.txt"
        try:
            text = require_regular(file).read_text(encoding="utf-8-sig")
        except (OSError, ValueError) as error:
            raise UserError(f"{file} cannot be read: {error}") from error
        return list_lines(text)

    def describe(self) -> str:
        """Return the name of the shipped lists, with a hash of the content of the user's."""
        if self.folder is None:
            return "word lists"
        lists = {name: self.lines(name) for name in FILES if self._own(name).is_file()}
        return f"word lists sha256:{sha256_text(json.dumps(lists, sort_keys=True))[:16]}"

    @cached_property
    def nouns(self) -> tuple[NounKind, ...]:
        """The nouns by kind."""
        kinds = []
        for line in self.lines("nouns"):
            head, words = _halves(line, "nouns")
            name, _, above = head.partition("(")
            pairs = (word.partition("/") for word in words)
            plurals = {singular: plural or f"{singular}s" for singular, _, plural in pairs}
            kinds.append(NounKind(name.strip(), _listed(above.rstrip(") ")), plurals))
        return tuple(kinds)

    @cached_property
    def adjectives(self) -> tuple[AdjectiveSet, ...]:
        """The adjectives, in the order in which rules try them."""
        parts = [_halves(line, "adjectives") for line in self.lines("adjectives")]
        return tuple(AdjectiveSet(_listed(kinds), words) for kinds, words in parts)

    @cached_property
    def places(self) -> frozenset[str]:
        """Nouns of places."""
        return frozenset(word for line in self.lines("places") for word in _listed(line))

    @cached_property
    def singulars(self) -> Mapping[str, str]:
        """The singular of every plural."""
        return {many: singular for kind in self.nouns for singular, many in kind.plurals.items()}


def list_lines(text: str) -> list[str]:
    r"""Return the lines of a list, without comments after ``#`` and empty lines.

    >>> list_lines("# jobs\nbus  driver # one\n\nCEO")
    ['bus driver', 'CEO']
    """
    lines = (" ".join(line.split("#")[0].split()) for line in text.splitlines())
    return [line for line in lines if line]


def _halves(line: str, name: str) -> tuple[str, tuple[str, ...]]:
    head, colon, rest = line.partition(":")
    words = _listed(rest)
    if not colon or not words:
        raise UserError(f"{name}.txt: {line!r} is invalid: it should be KIND: WORD, WORD, ...")
    return head, words


def _listed(text: str) -> tuple[str, ...]:
    return tuple(word for word in (part.strip() for part in text.split(",")) if word)


def list_words(name: str) -> frozenset[str]:
    """Return the single words of a shipped list, which has several in a line."""
    lines = list_lines((SHIPPED / f"{name}.txt").read_text(encoding="utf-8"))
    return frozenset(word for line in lines for word in line.split())


NLTK_STOP_WORDS = list_words("stop_words")
"""NLTK's 179 English stop words of 2022, in lower case, as used by TextAttack 0.3.8 and XMAI.

The "A" at the beginning of a caption is not one of them: both compare words with their case.
"""
