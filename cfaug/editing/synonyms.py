"""Synonyms in WordNet's four parts of speech (Miller, 1995), read from its own files.

The senses of a word and their order are those of NLTK's ``wordnet.synsets``: nouns, verbs,
adjectives, adverbs, each with the base forms of morphy's rules. NLTK's reader is not used, for the
reasons given in ``cfaug.editing.wordnet``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from cfaug.editing.wordnet import read_files

Senses = tuple[tuple[str, ...], ...]
"""The words of each sense, the most frequent sense first."""

PARTS = ("noun", "verb", "adj", "adv")

# WordNet's detachment rules (morphy), with NLTK's "ves".
_SYNONYM_ENDINGS = {
    "noun": (("s", ""), ("ses", "s"), ("ves", "f"), ("xes", "x"), ("zes", "z"), ("ches", "ch"),
             ("shes", "sh"), ("men", "man"), ("ies", "y")),
    "verb": (("s", ""), ("ies", "y"), ("es", "e"), ("es", ""), ("ed", "e"), ("ed", ""),
             ("ing", "e"), ("ing", "")),
    "adj": (("er", ""), ("est", ""), ("er", "e"), ("est", "e")),
    "adv": (),
}  # fmt: skip
_MARKER = re.compile(r"\([a-z]+\)$")
"""The marker of an adjective's position, as in "galore(ip)"."""


@dataclass(frozen=True)
class Synonyms:
    """Synonyms of words, read on first use.

    Args:
        folder: a folder with WordNet's index, data and exception files of all parts of speech, or a
            zip of it; ``None`` searches the folders of NLTK and Debian.
    """

    folder: str | None = None

    def senses(self, word: str) -> Senses:
        """Return the words of each sense of a word as WordNet writes them, with "_" for spaces.

        Raises:
            UserError: if there is no WordNet on this machine.
        """
        word = word.lower()
        found = self._senses.get(word)
        if found is None:
            found = self._senses[word] = tuple(
                self._words_at(part, offset)
                for part in PARTS
                for form in self._forms(word, part)
                for offset in self._offsets(form, part)
            )
        return found

    def single_words(self, word: str) -> frozenset[str]:
        """Return the synonyms that are single words, which METEOR matches.

        The word itself is among them if WordNet has a sense of it.
        """
        found = self._single.get(word)
        if found is None:
            found = self._single[word] = frozenset(
                name for sense in self.senses(word) for name in sense if "_" not in name
            )
        return found

    def _forms(self, word: str, part: str) -> list[str]:
        """Return a word and its possible base forms, if WordNet lists them."""
        bases = self._exceptions[part].get(word)
        if bases is None:
            bases = [
                word.removesuffix(end) + rest
                for end, rest in _SYNONYM_ENDINGS[part]
                if word.endswith(end)
            ]
        return [form for form in dict.fromkeys([word, *bases]) if form in self._index[part]]

    def _offsets(self, form: str, part: str) -> list[int]:
        """Return the offsets of the senses of a listed word (wndb(5WN))."""
        _, count, *rest = self._index[part][form].split()
        return [int(offset) for offset in rest[-int(count) :]]

    def _words_at(self, part: str, offset: int) -> tuple[str, ...]:
        data = self._files[f"data.{part}"]
        fields = data[offset : data.index(b" | ", offset)].decode().split()
        names = (fields[4 + 2 * i] for i in range(int(fields[3], 16)))
        return tuple(_MARKER.sub("", name) for name in names)

    @cached_property
    def _files(self) -> dict[str, bytes]:
        names = [
            name for part in PARTS for name in (f"index.{part}", f"data.{part}", f"{part}.exc")
        ]
        return read_files(names, self.folder)

    @cached_property
    def _index(self) -> dict[str, dict[str, str]]:
        """The index entry of each word, by part of speech; parsed on demand."""
        return {
            part: {
                word: rest
                for line in self._files[f"index.{part}"].decode().splitlines()
                if not line.startswith(" ")  # the licence at the top
                for word, _, rest in [line.partition(" ")]
            }
            for part in PARTS
        }

    @cached_property
    def _exceptions(self) -> dict[str, dict[str, list[str]]]:
        return {
            part: {
                word: bases
                for line in self._files[f"{part}.exc"].decode().splitlines()
                if line.strip()
                for word, *bases in [line.split()]
            }
            for part in PARTS
        }

    @cached_property
    def _senses(self) -> dict[str, Senses]:
        return {}

    @cached_property
    def _single(self) -> dict[str, frozenset[str]]:
        return {}
