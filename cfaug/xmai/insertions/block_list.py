"""Words that are not inserted: demographic terms.

A third of the published insertions on SNLI-VE are "white" and "black", many of them before people.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from cfaug.core.errors import UserError
from cfaug.core.files import require_regular
from cfaug.core.weights import sha256_text
from cfaug.editing.word_lists import SHIPPED, list_lines
from cfaug.editing.wordnet import WordNet

NOUNS = "NOUNS"
LARGEST = 1_000_000
"""Largest size of a list in bytes."""


@dataclass(frozen=True)
class BlockList:
    """Decides whether a word may be inserted before a noun.

    Some words are blocked before every noun, others, such as colours, only before a noun for
    people: "a white man", but not "a white car". A noun is a noun for people if it, its last word
    or the label of its object is in the list's ``NOUNS``, or is a person in WordNet.

    Args:
        file: the path of a list in the form of ``cfaug/editing/word_lists/demographic_terms.txt``;
            ``None`` is that list.
        kinds: the kinds of words to block, such as ``gender``; ``None`` for all of the list.
        wordnet: the source for nouns that the list lacks; ``None`` uses only the list.
    """

    file: str | None = None
    kinds: Sequence[str] | None = None
    wordnet: WordNet | None = None

    def __post_init__(self) -> None:
        kinds = {kind for kind, _ in self._words} - {NOUNS}
        missing = sorted(set(self.kinds or ()) - kinds)
        if missing:
            raise UserError(
                f"recipe.editor.block_list.kinds: {missing[0]!r} is missing in {self._path}: "
                f"choose from {', '.join(sorted(kinds))}"
            )

    def blocks(self, word: str, nouns: Iterable[str]) -> bool:
        """Return whether a word is blocked.

        Args:
            nouns: the noun after it in the caption, and the labels of the detected objects.

        >>> block_list = BlockList()
        >>> block_list.blocks("white", ["man"]), block_list.blocks("white", ["car"])
        (True, False)
        >>> block_list.blocks("Female", ["figure"])
        True
        """
        everywhere, before_people = self._blocked
        if word.lower() in everywhere:
            return True
        return word.lower() in before_people and any(map(self.is_person, nouns))

    def is_person(self, noun: str) -> bool:
        """Return whether a noun is a noun for people."""
        words = noun.lower().split()
        listed = self._words.get((NOUNS, False), frozenset())
        if not words:
            return False
        if " ".join(words) in listed or words[-1] in listed:
            return True
        if self.wordnet is None:
            return False
        person = {sense.offset for sense in self.wordnet.senses("person", 1)}
        return bool(person & self.wordnet.above(self.wordnet.senses(words[-1], 1)))

    def describe(self) -> dict[str, str]:
        """Return the name of the list; for a user's list, also the hash of its content."""
        name = "demographic terms"
        if self.file is not None:
            name = f"{self._path.name} sha256:{sha256_text(self._text)[:16]}"
        if self.kinds is not None:
            name += f", {', '.join(self.kinds)}"
        return {"block_list": name + (", people by WordNet too" if self.wordnet else "")}

    @property
    def _path(self) -> Path:
        if self.file is None:
            return SHIPPED / "demographic_terms.txt"
        return Path(self.file).expanduser()

    @cached_property
    def _text(self) -> str:
        try:
            path = require_regular(self._path)
            if path.stat().st_size > LARGEST:
                raise ValueError(f"it has more than {LARGEST:,} bytes")
            return path.read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise UserError(f"the block list {self._path} cannot be read: {error}") from error

    @cached_property
    def _words(self) -> Mapping[tuple[str, bool], frozenset[str]]:
        """The words by kind, and by whether they are blocked only before people."""
        by_kind: dict[tuple[str, bool], frozenset[str]] = {}
        for line in list_lines(self._text):
            match = re.fullmatch(r"([\w -]+?)\s*(\(people\))?\s*:(.*)", line)
            words = {word.strip().lower() for word in match[3].split(",")} if match else set()
            if match is None or not words - {""}:
                raise UserError(
                    f"the block list {self._path}: {line[:80]!r} is invalid: it should be KIND: "
                    f"WORD, ... or KIND (people): WORD, ... or {NOUNS}: WORD, ..."
                )
            key = (match[1], match[2] is not None)
            by_kind[key] = by_kind.get(key, frozenset()) | (words - {""})
        return by_kind

    @cached_property
    def _blocked(self) -> tuple[frozenset[str], frozenset[str]]:
        """The words of the chosen kinds that are blocked everywhere, and only before people."""
        everywhere, before_people = (
            frozenset(
                word
                for (kind, only), words in self._words.items()
                if kind != NOUNS and only == people and (self.kinds is None or kind in self.kinds)
                for word in words
            )
            for people in (False, True)
        )
        return everywhere, before_people
