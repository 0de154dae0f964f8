"""The parts of a caption that rules use: its medium, its nouns, its place.

They are found by tags and a few words, not by a parser. This suffices for captions, which are short
and similar ("a man riding a wave on top of a surfboard"). ``edit_checks`` measures it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cfaug.editing.sentence import Sentence, Slot

MEDIUM = re.compile(
    r"^\W*(?P<article>an?|the|this|some)?\s*(?P<medium>(?:[\w-]+\s+){0,4}?(?:"
    r"photo|photograph|picture|image|painting|sketch|drawing|cartoon|illustration|sculpture|"
    r"rendering|render|print|poster|mosaic|embroidery|portrait|statue|selfie|snapshot|video|"
    r"model|animation|engraving|watercolor|watercolour|graffiti|mural|collage|etching|icon|logo|"
    r"stained glass window|comic|silhouette|close[- ]?up|view|shot))s?\s+of\b",
    re.IGNORECASE,
)
"""The medium of a picture at the beginning of its caption."""

PARTITIVES = frozenset(
    [
        "group", "couple", "pair", "bunch", "lot", "lots", "crowd", "herd", "flock", "row",
        "set", "piece", "pieces", "number", "variety", "side", "front", "back", "top",
        "bottom", "middle", "edge", "end", "slice", "kind", "type", "stack", "pile", "line",
        "collection", "assortment", "part", "view", "photo", "picture", "image", "close-up",
    ]
)  # fmt: skip
"""Nouns before "of" that count or locate another noun."""

QUANTIFIERS = frozenset(
    [
        "several", "many", "few", "some", "all", "both", "various", "other", "another",
        "multiple", "most", "more", "numerous", "different", "each", "every", "any", "no",
        "same",
    ]
)  # fmt: skip
"""Quantifiers that a tagger calls adjectives, with other adjectives after them."""

PREPOSITIONS = frozenset(
    [
        "in", "on", "at", "by", "near", "under", "over", "above", "behind", "beside",
        "below", "inside", "outside", "along", "across", "through", "around", "against",
        "beneath", "underneath", "between", "among", "atop", "onto", "into", "down", "up",
        "during", "with", "towards", "toward", "amid", "past",
    ]
)  # fmt: skip
COMPOUNDS = frozenset(["living", "dining", "waiting", "sitting", "parking", "washing", "bathing"])
"""Words that a tagger calls verbs, but which begin a compound directly before a noun: "living
room"."""

ROOMS = frozenset(["room", "rooms", "area", "lot", "lots", "meter", "meters", "machine", "suit"])

LOCATIVE = PREPOSITIONS - {"with", "up", "into", "onto", "during", "over", "between"}

WEATHER = re.compile(
    r"\b(?:(?:in|during|under|through) (?:the |an? )?(?:\w+ ){0,2}?"
    r"(?:rain|snow|fog|mist|storm|thunderstorm|snowstorm|blizzard|sunshine|sun|dark|drizzle|hail|"
    r"sky|skies|rainbow)|on an? (?:\w+ ){1,2}(?:day|night|morning|evening|afternoon)|"
    r"at (?:night|sunset|sunrise|dusk|dawn|noon|midnight))\b",
    re.IGNORECASE,
)
"""Phrases about the weather or the light."""

_INSIDE = ("DT", "JJ", "CD", "PRP$", "NN", "VBN", "RB", "POS")
"""Tags of the words within a noun phrase."""


@dataclass(frozen=True)
class Phrases:
    """The parts of a caption.

    Attributes:
        sentence: the words of the caption.
        tags: the tag of each word.
        start: the index of the word after the medium and its "of"; 0 without a medium.
        nouns: the runs of nouns from ``start`` on, without nouns that count or locate another.
    """

    sentence: Sentence
    tags: tuple[str, ...]
    start: int
    nouns: tuple[Slot, ...]

    @property
    def subject(self) -> Slot | None:
        """The first noun."""
        return next(iter(self.nouns), None)

    @property
    def object(self) -> Slot | None:
        """The noun after the first verb that has one; otherwise the second noun."""
        for slot in self.nouns[1:]:
            verbs = self._verbs_before(slot)
            if verbs and not self._words_between(verbs[-1], slot) & (PREPOSITIONS | {"to", "of"}):
                return slot
        return self.nouns[1] if len(self.nouns) > 1 else None

    def begin(self, noun: Slot) -> int:
        """Return the index of the first word of a noun's phrase after articles and numbers."""
        first = noun.first
        while first > self.start and self._adjective(first - 1):
            first -= 1
        return first

    def _adjective(self, word: int) -> bool:
        fits = self.tags[word].startswith(("JJ", "VBN"))
        return fits and self.sentence.words[word].lower() not in QUANTIFIERS

    def place(self, heads: frozenset[str]) -> Slot | None:
        """Return the last preposition with its noun, if the noun is a place.

        Args:
            heads: the nouns that are places, in lower case.
        """
        words = [word.lower() for word in self.sentence.words]
        for noun in reversed(self.nouns[1:]):
            run = " ".join(words[noun.first : noun.last + 1])
            first = noun.first
            while first > self.start and self.tags[first - 1].startswith(_INSIDE):
                first -= 1
            if (run in heads or words[noun.last] in heads) and words[first - 1] in LOCATIVE:
                return Slot(first - 1, noun.last)
        return None

    def weather(self) -> tuple[int, int] | None:
        """Return the characters (start, end) of a phrase about the weather or the light."""
        found = WEATHER.search(self.sentence.text)
        return None if found is None else found.span()

    def _verbs_before(self, slot: Slot) -> list[int]:
        first = self.nouns[0].last
        return [i for i in range(first + 1, slot.first) if self.tags[i].startswith("VB")]

    def _words_between(self, first: int, slot: Slot) -> set[str]:
        return {word.lower() for word in self.sentence.words[first + 1 : slot.first]}


def find_phrases(sentence: Sentence, tags: Sequence[str]) -> Phrases:
    """Find the parts of a caption.

    Args:
        sentence: the words of the caption.
        tags: the tag of each word, from a ``Tagger``.
    """
    medium = MEDIUM.match(sentence.text)
    end = 0 if medium is None else medium.end()
    start = sum(span[1] <= end for span in sentence.spans)
    fit = [
        i >= start and tag.startswith("NN") and word[:1].isalpha() and len(word) > 1
        for i, (word, tag) in enumerate(zip(sentence.words, tags, strict=True))
    ]
    for i, word in enumerate(sentence.words[:-1]):
        head = sentence.words[i + 1].lower()
        fit[i] = fit[i] or (fit[i + 1] and word.lower() in COMPOUNDS and head in ROOMS)
    return Phrases(sentence, tuple(tags), start, tuple(_runs(sentence, fit)))


def _runs(sentence: Sentence, fit: Sequence[bool]) -> Iterator[Slot]:
    """Yield the runs of nouns, without possessives and nouns that count or locate another."""
    words = [*(word.lower() for word in sentence.words), ""]
    first = None
    for i, is_noun in enumerate([*fit, False]):
        if is_noun and first is None:
            first = i
        if first is None or is_noun:
            continue
        possessive = words[i] in ("'s", "\u2019s")
        counts = words[i] == "of" and _stem(words[i - 1]) in PARTITIVES
        if not (possessive or counts):
            yield Slot(first, i - 1)
        first = None


def _stem(word: str) -> str:
    """Return a word without its plural ending, if that gives a partitive."""
    forms = (word, word.removesuffix("s"), word.removesuffix("es"))
    return next((form for form in forms if form in PARTITIVES), word)
