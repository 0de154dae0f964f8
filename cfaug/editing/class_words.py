"""Names of classes: their own words, synonyms, and more general and more specific words."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import ClassVar

from cfaug.core.errors import UserError
from cfaug.core.files import require_regular
from cfaug.core.read_with import GIVEN, ReadWith
from cfaug.core.weights import sha256_text
from cfaug.editing.sentence import split
from cfaug.editing.wordnet import Synset, WordNet

WNID = re.compile(r"n(\d{8})")
"""ImageNet's name of a class: the offset of its sense in WordNet 3.0."""

SENSES = 2
"""Number of senses of a word that are considered, the most frequent first."""


@dataclass(frozen=True)
class ClassWords:
    """Finds the names of classes, and decides whether words of a caption name a class.

    Args:
        wordnet: the source of synonyms and kinds; ``None`` uses only a class's own name.
        file: the path of a JSON object of names by label, for labels that are not words; these
            names come before WordNet's. ``None`` for no file.
        kinds: whether a more general word (``animal`` for ``dog``), or a more specific one, also
            names the class; only with a WordNet.
    """

    wordnet: WordNet | None = None
    file: str | None = None
    kinds: bool = True

    read_with: ClassVar[ReadWith] = {"kinds": {"wordnet": GIVEN}}

    def names(self, label: str) -> tuple[str, ...]:
        """Return the names of a class, in lower case, the label's own words first.

        >>> ClassWords().names("dog_sled, dogsled")
        ('dog sled', 'dogsled')
        """
        given = self._file.get(label)
        own = [] if WNID.fullmatch(label) and self.wordnet is not None else label.split(",")
        names = [*own, *(given or ())]
        if self.wordnet is not None:
            names += [word for sense in self._senses(label) for word in sense.words]
        clean = (" ".join(name.replace("_", " ").lower().split()) for name in names)
        return tuple(dict.fromkeys(name for name in clean if name)) or (label.lower(),)

    def known(self, label: str) -> bool:
        """Return whether the vocabulary has the label; ``True`` without a vocabulary."""
        return label in self._file or self.wordnet is None or bool(self._senses(label))

    def overlap(self, words: str, label: str) -> float:
        """Return the share, from 0 to 1, of a class's name that some words cover.

        It is the largest share over the names of the class, and 1 if a noun among the words is a
        more general or a more specific word for the class.

        >>> ClassWords().overlap("two dogs", "dog sled")
        0.5
        """
        said = set(self.lemmas(words))
        shares = [
            len(said & set(lemmas)) / len(set(lemmas))
            for lemmas in map(self.lemmas, self.names(label))
            if lemmas
        ]
        best = max(shares, default=0.0)
        if best < 1 and self.kinds and self.wordnet is not None:
            best = 1.0 if self._of_a_kind(said, label) else best
        return best

    def mentioned(self, caption: str, label: str) -> bool:
        """Return whether a caption has one of the class's names, in singular or plural."""
        said = self.lemmas(caption)
        return any(_contains(said, lemmas) for lemmas in map(self.lemmas, self.names(label)))

    def lemmas(self, text: str) -> tuple[str, ...]:
        """Return the words of a text in their dictionary form."""
        return tuple(self._lemma(word) for word in _words(text))

    def _lemma(self, word: str) -> str:
        if self.wordnet is not None:
            return self.wordnet.base(word)
        return word[:-1] if len(word) > 3 and word.endswith("s") and word[-2] != "s" else word

    def _senses(self, label: str) -> list[Synset]:
        """Return the senses of a label: the most frequent one of each of its names."""
        found = WNID.fullmatch(label)
        if self.wordnet is None:
            return []
        if found is not None:
            return self.wordnet.at(int(found[1]))
        names = [*label.split(","), *self._file.get(label, ())]
        words = [name.strip().lower().replace(" ", "_") for name in names]
        return [sense for word in words if word for sense in self.wordnet.senses(word, 1)]

    def _of_a_kind(self, words: set[str], label: str) -> bool:
        assert self.wordnet is not None
        of_label = self._senses(label)
        above = self.wordnet.above(of_label)
        own = {sense.offset for sense in of_label}
        for word in words:
            senses = self.wordnet.senses(word, SENSES)
            if above & {sense.offset for sense in senses} or own & self.wordnet.above(senses[:1]):
                return True
        return False

    @cached_property
    def _file(self) -> Mapping[str, Sequence[str]]:
        if self.file is None:
            return {}
        path = Path(self.file).expanduser()
        try:
            content = json.loads(require_regular(path).read_text(encoding="utf-8"))
            found = {label: [n] if isinstance(n, str) else list(n) for label, n in content.items()}
            if not all(isinstance(name, str) for names in found.values() for name in names):
                raise TypeError("a name is not a text")
        except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
            raise UserError(
                f"{path} is invalid ({error}): it should be a JSON object with a name, or a list "
                "of names, for each label"
            ) from error
        return found

    def describe(self) -> dict[str, str]:
        """Return the sources of the names, with the hash of a file's content."""
        parts = ["the label's own words"]
        if self.file is not None:
            named = json.dumps(dict(self._file), sort_keys=True)
            parts.append(f"{Path(self.file).name} sha256:{sha256_text(named)[:16]}")
        parts += ["WordNet's synonyms"] if self.wordnet is not None else []
        parts += ["its kinds"] if self.wordnet is not None and self.kinds else []
        return {"class_words": ", ".join(parts)}


@lru_cache(maxsize=10_000)
def _words(text: str) -> tuple[str, ...]:
    return tuple(word.lower() for word in split(text).words if word[:1].isalnum())


def _contains(words: Sequence[str], run: Sequence[str]) -> bool:
    return bool(run) and any(
        tuple(words[i : i + len(run)]) == tuple(run) for i in range(len(words) - len(run) + 1)
    )
