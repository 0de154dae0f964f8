"""WordNet 3.0 (Miller, 1995), read from its own files: hypernyms, sister terms and synonyms.

The files come with the package, without their glosses (``tools/pack_wordnet.py``), so that results
do not depend on what a machine has. NLTK's reader finds the same senses, but takes 2.5 s until its
first answer (NLTK 3.10), compared with 0.3 s here, and its files have to be downloaded, as the
database of ``wn`` has.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import chain
from pathlib import Path
from typing import ClassVar

from cfaug.core.errors import UserError
from cfaug.core.validation import Positive, check_fields
from cfaug.editing.protocols import Candidate

IRREGULAR: Mapping[str, str] = {
    "men": "man",
    "women": "woman",
    "people": "person",
    "children": "child",
    "policemen": "policeman",
    "firemen": "fireman",
}
"""{plural: singular} for plurals that WordNet also lists as nouns ("men": a work force)."""

_NOUN_ENDINGS = (
    ("s", ""), ("ses", "s"), ("xes", "x"), ("zes", "z"), ("ches", "ch"), ("shes", "sh"),
    ("men", "man"), ("ies", "y"),
)  # fmt: skip
_ENDINGS = {
    "noun": (*_NOUN_ENDINGS, ("ves", "f")),  # the last one is NLTK's
    "verb": (("s", ""), ("ies", "y"), ("es", "e"), ("es", ""), ("ed", "e"), ("ed", ""),
             ("ing", "e"), ("ing", "")),
    "adj": (("er", ""), ("est", ""), ("er", "e"), ("est", "e")),
    "adv": (),
}  # fmt: skip
"""WordNet's detachment rules by part of speech (morphy, section "Rules of Detachment")."""
PACKED = Path(__file__).with_name("wordnet.zip")
"""The files of all parts of speech without glosses, with their licence."""


@dataclass(frozen=True)
class Synset:
    """A sense with its words; ``up`` are the offsets of its hypernyms, ``down`` of its hyponyms."""

    offset: int
    words: tuple[str, ...]
    up: tuple[int, ...]
    down: tuple[int, ...]


@dataclass(frozen=True)
class WordNet:
    """The nouns of WordNet, read on first use.

    Args:
        folder: a folder with ``index.noun``, ``data.noun`` and ``noun.exc``, or a zip of it;
            ``None`` for those of the package.
    """

    folder: str | None = None

    def senses(self, word: str, limit: int | None = None) -> list[Synset]:
        """Return the first ``limit`` senses of a noun, the most frequent first; empty if unknown.

        Plurals are looked up as their singulars.
        """
        return [self.synset(offset) for offset in self._index.get(self.base(word), ())[:limit]]

    def base(self, word: str) -> str:
        """Return the form of a noun that WordNet lists: "man" for "men", "bus" for "buses"."""
        word = word.lower().replace(" ", "_")
        if word in IRREGULAR:
            return IRREGULAR[word]
        if word in self._exceptions:
            return self._exceptions[word]
        if word in self._index:
            return word
        forms = _detach(word, _NOUN_ENDINGS)
        return next((form for form in forms if form in self._index), word)

    def synset(self, offset: int) -> Synset:
        """Return the sense at an offset in bytes of ``data.noun``."""
        line = self._data[offset : self._data.index(b"\n", offset)].decode()
        fields = line.split(" | ")[0].split()
        words = int(fields[3], 16)
        pointers = fields[5 + 2 * words :]
        linked: dict[str, list[int]] = {"@": [], "~": []}  # hypernyms, hyponyms
        for i in range(int(fields[4 + 2 * words])):
            symbol, target, part, _ = pointers[4 * i : 4 * i + 4]
            if part == "n" and symbol in linked:
                linked[symbol].append(int(target))
        return Synset(
            offset,
            tuple(fields[4 + 2 * i] for i in range(words)),
            tuple(linked["@"]),
            tuple(linked["~"]),
        )

    def at(self, offset: int) -> list[Synset]:
        """Return the sense at an offset of WordNet 3.0; empty if there is none.

        ImageNet names classes by these offsets.
        """
        line = self._data[offset : offset + 9] if 0 <= offset < len(self._data) else b""
        return [self.synset(offset)] if line == f"{offset:08d} ".encode() else []

    def above(self, senses: Iterable[Synset]) -> set[int]:
        """Return the senses themselves and all their hypernyms, as offsets."""
        waiting, seen = list(senses), set()
        while waiting:
            sense = waiting.pop()
            if sense.offset not in seen:
                seen.add(sense.offset)
                waiting.extend(self.synset(offset) for offset in sense.up)
        return seen

    def sisters(self, word: str, senses: int) -> list[str]:
        """Return the distinct single words that share a hypernym with a singular noun.

        Args:
            senses: the number of senses of the noun, the most frequent first.
        """
        if self.base(word) != word:
            return []
        synsets = self.senses(word, senses)
        offsets = {sense.offset for sense in synsets}
        names = dict.fromkeys(
            name
            for sense in synsets
            for parent in sense.up
            for sister in self.synset(parent).down
            if sister not in offsets
            for name in self.synset(sister).words
            if name.isalpha() and name.islower()
        )
        return [name for name in names if name != word]

    @property
    def _data(self) -> bytes:
        return _read_nouns(self.folder)["data.noun"]

    @property
    def _index(self) -> dict[str, tuple[int, ...]]:
        return _index_nouns(self.folder)

    @cached_property
    def _exceptions(self) -> dict[str, str]:
        text = _read_nouns(self.folder)["noun.exc"].decode()
        return {plural: singular for plural, singular, *_ in map(str.split, text.splitlines())}


# Every editor has a WordNet of its own: what all of them read is read once in a process.


@lru_cache(maxsize=2)
def _read_nouns(folder: str | None) -> dict[str, bytes]:
    return read_files(("index.noun", "data.noun", "noun.exc"), folder)


@lru_cache(maxsize=2)
def _index_nouns(folder: str | None) -> dict[str, tuple[int, ...]]:
    """Return the offsets of each word's senses.

    A line is ``lemma n senses pointers [symbol ...] senses tagged offset ...`` (wndb(5WN)).
    """
    index = {}
    for line in _read_nouns(folder)["index.noun"].decode().splitlines():
        if not line.startswith(" "):  # the licence at the top
            word, _, count, *rest = line.split()
            index[word] = tuple(int(offset) for offset in rest[-int(count) :])
    return index


def _detach(word: str, endings: Iterable[tuple[str, str]]) -> list[str]:
    return [word.removesuffix(end) + rest for end, rest in endings if word.endswith(end)]


def read_files(names: Sequence[str], folder: str | None = None) -> dict[str, bytes]:
    """Return files of WordNet by name.

    Args:
        folder: their folder, or a zip of it; ``None`` for those of the package.
    """
    path = PACKED if folder is None else Path(folder)
    if path.is_dir() and all((path / name).is_file() for name in names):
        return {name: (path / name).read_bytes() for name in names}
    if path.suffix == ".zip" and path.is_file():
        with zipfile.ZipFile(path) as archive:
            members = {Path(name).name: name for name in archive.namelist()}
            if all(name in members for name in names):
                return {name: archive.read(members[name]) for name in names}
    raise UserError(
        f"{path} has no files of WordNet: {', '.join(names)} must be in this folder, or in a "
        "zip of it; without this setting, the package's own are read"
    )


@dataclass(frozen=True)
class Hyponymy:
    """Drops nouns that are synonyms, hyponyms or hypernyms of the original.

    15% of the errors that people found in COCO-Counterfactuals are such edits ("person" to "man":
    both captions fit the edited image; A.3.1). The authors propose the filter as future work; it is
    off in their recipe. Two senses catch 94% of the errors of table 10, one sense 76%; the filter
    also drops most edits between kinds of people. Words that WordNet lacks pass.

    Args:
        senses: the number of senses of each word, the most frequent first.
        wordnet: the folder or zip of WordNet's files; ``None`` for those of the package.
    """

    senses: Positive = 2
    wordnet: str | None = None
    name: ClassVar[str] = "hyponymy"

    def __post_init__(self) -> None:
        check_fields(self)

    def keep(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Return the candidates without such nouns; other parts of speech pass."""
        pairs = {
            (c.before.lower(), c.after.lower()) for c in candidates if c.part_of_speech == "noun"
        }
        related = {pair for pair in pairs if self.related(*pair)}
        return [c for c in candidates if (c.before.lower(), c.after.lower()) not in related]

    def related(self, word: str, other: str) -> bool:
        """Return whether a sense of one word is a sense of the other, or a kind of it."""
        first, second = (self._wordnet.senses(w, self.senses) for w in (word, other))
        return bool(
            self._wordnet.above(first) & {s.offset for s in second}
            or self._wordnet.above(second) & {s.offset for s in first}
        )

    @cached_property
    def _wordnet(self) -> WordNet:
        return WordNet(self.wordnet)

    def describe(self) -> dict[str, str]:
        return {"hyponymy": f"WordNet, {self.senses} senses"}


# Synonyms in WordNet's four parts of speech. The senses of a word and their order are those of
# NLTK's ``wordnet.synsets``: nouns, verbs, adjectives, adverbs, each with the base forms of
# morphy's rules.

Senses = tuple[tuple[str, ...], ...]
"""The words of each sense, the most frequent sense first."""
PARTS = ("noun", "verb", "adj", "adv")


@dataclass(frozen=True)
class Synonyms:
    """Synonyms of words, read on first use.

    Args:
        folder: a folder with WordNet's index, data and exception files of all parts of speech, or a
            zip of it; ``None`` for those of the package.
    """

    folder: str | None = None

    def senses(self, word: str) -> Senses:
        """Return the words of each sense of a word as WordNet writes them, with "_" for spaces."""
        word = word.lower()
        if word in self._senses:
            return self._senses[word]
        senses = []
        for part in PARTS:
            bases = self._exceptions[part].get(word, _detach(word, _ENDINGS[part]))
            data = self._files[f"data.{part}"]
            for form in dict.fromkeys([word, *bases]):
                if form not in self._index[part]:
                    continue
                _, count, *rest = self._index[part][form].split()
                for offset in map(int, rest[-int(count) :]):
                    fields = data[offset : data.index(b" | ", offset)].decode().split()
                    names = (fields[4 + 2 * i] for i in range(int(fields[3], 16)))
                    # Without the marker of an adjective's position, as in "galore(ip)".
                    senses.append(tuple(re.sub(r"\([a-z]+\)$", "", name) for name in names))
        self._senses[word] = tuple(senses)
        return self._senses[word]

    def single_words(self, word: str) -> frozenset[str]:
        """Return the synonyms that are single words, which METEOR matches.

        The word itself is among them if WordNet has a sense of it.
        """
        if word not in self._single:
            names = (name for sense in self.senses(word) for name in sense)
            self._single[word] = frozenset(name for name in names if "_" not in name)
        return self._single[word]

    @cached_property
    def _files(self) -> dict[str, bytes]:
        names = [(f"index.{part}", f"data.{part}", f"{part}.exc") for part in PARTS]
        return read_files(list(chain.from_iterable(names)), self.folder)

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
