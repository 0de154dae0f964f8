"""Paraphrases by rules: another frame or word order, true whenever the caption is true.

They are hard positives: a model that learnt from similar but wrong captions tends to reject right
captions that look different (Kamath et al., 2024, The Hard Positive Truth about Vision-Language
Compositionality). Therefore such captions serve as a control, and as a test.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Annotated, Literal

from annotated_types import MinLen

from cfaug.core.types import Edited, Example
from cfaug.core.validation import Seed, check_fields
from cfaug.data.captions import right_articles
from cfaug.editing.baselines.editor import edit_by_kind
from cfaug.editing.protocols import Tagger
from cfaug.editing.sentence import Sentence, Slot
from cfaug.editing.word_lists import NLTK_STOP_WORDS
from cfaug.editing.wordnet import Synonyms
from cfaug.settings.read_if import ReadIf

Kind = Literal["frame", "order", "synonym"]
"""The kinds of paraphrase."""
FRAMES = ("a photo of {}", "a picture of {}", "this is {}", "an image of {}", "here is {}")
"""Frames for a caption that begins with its subject."""
PHOTOS = re.compile(
    r"^(?P<article>an?|the|this) (?P<medium>photo|photograph|picture|image) of (?=\w)", re.I
)
"""Frames that name the picture, which can replace each other."""
STATED = re.compile(r"^(?:this is|here is|there is) (?=an? )", re.I)
"""Frames that state the content, which can replace each other before "a"."""


@dataclass(frozen=True)
class Paraphrase:
    """Paraphrases a caption: its meaning stays, its wording changes.

    The rules are few and careful: a caption to which none applies gives no set.

    - ``frame``: "a dog on the grass" becomes "a photo of a dog on the grass", "a photo of a dog"
      becomes "this is a dog". It applies only to captions that begin with an article and are not a
      whole sentence.
    - ``order``: "a dog on the grass" becomes "on the grass, a dog", if the caption ends with its
      only place; "a dog and a cat" becomes "a cat and a dog", if they are the whole caption.
    - ``synonym``: a noun with a single sense in WordNet becomes another word of that sense. The
      rule is off by default, because it needs WordNet.

    Args:
        per: ``caption`` makes one set of a caption, by one of the applicable rules with equal
            probability; ``kind`` makes one set for every applicable rule.
        synonyms: the synonyms from WordNet, for ``synonym``; ``None`` searches for WordNet.
    """

    tagger: Tagger
    """the tagger of parts of speech"""
    kinds: Annotated[Sequence[Kind], MinLen(1)] = ("frame", "order")
    """the rewritings to make: another frame, another order, a synonym"""
    per: Literal["caption", "kind"] = "caption"
    synonyms: Annotated[Synonyms | None, ReadIf({"kinds": ("synonym",)})] = None
    seed: Seed = 0
    """the seed of what is drawn"""

    def __post_init__(self) -> None:
        check_fields(self, "recipe.editor")

    def edit(self, examples: Sequence[Example]) -> list[Edited]:
        return edit_by_kind(
            examples, self.tagger, "paraphrase", self.seed, self.kinds, self._say,
            only_one=self.per == "caption",
        )  # fmt: skip

    def describe(self) -> dict[str, str]:
        """Return the description of the tagger, and the source of synonyms."""
        more = {"synonyms": "WordNet"} if "synonym" in self.kinds else {}
        return {**self.tagger.describe(), **more}

    def _say(
        self, kind: Kind, sentence: Sentence, tags: Sequence[str]
    ) -> Iterator[tuple[str, dict[str, str]]]:
        if kind == "frame":
            texts = frames_of(sentence.text, tags)
        elif kind == "order":
            texts = orders_of(sentence, tags)
        else:
            texts = self._synonyms_in(sentence, tags)
        return ((text, {"operation": kind}) for text in texts)

    def _synonyms_in(self, sentence: Sentence, tags: Sequence[str]) -> Iterator[str]:
        known = self.synonyms or Synonyms()
        for word, tag, (start, end) in zip(sentence.words, tags, sentence.spans, strict=True):
            if tag != "NN" or word.lower() in NLTK_STOP_WORDS | PARTITIVES or not word.islower():
                continue
            senses = known.senses(word)
            if len(senses) == 1:  # a word with several senses may mean something else here
                for name in sorted(name for name in set(senses[0]) - {word} if name.isalpha()):
                    yield right_articles(f"{sentence.text[:start]}{name}{sentence.text[end:]}")


def frames_of(text: str, tags: Sequence[str]) -> Iterator[str]:
    """Yield a caption in other frames, unless it is a whole sentence or has an unknown beginning.

    >>> list(frames_of("A photo of a cat.", ["DT", "NN", "IN", "DT", "NN", "."]))[0]
    'A picture of a cat.'
    """
    capital = text[:1].isupper()
    bare = PHOTOS.sub("", text) if PHOTOS.match(text) else STATED.sub("", text)
    if not re.match(r"an? \w", bare, re.I):
        return
    if bare == text:
        sentence = any(tag in ("VBZ", "VBP", "VBD", "MD") for tag in tags)
        if sentence or MEDIUM.match(text):  # a sketch must not be called a photo
            return
    bare = bare[:1].lower() + bare[1:]
    for frame in FRAMES:
        framed = frame.format(bare)
        if framed.lower() != text.lower():
            yield framed[:1].upper() + framed[1:] if capital else framed


def orders_of(sentence: Sentence, tags: Sequence[str]) -> Iterator[str]:
    """Yield a caption in other orders: with the place first, or with two things exchanged.

    >>> from cfaug.editing.sentence import split
    >>> list(orders_of(split("a dog on the grass"), ["DT", "NN", "IN", "DT", "NN"]))
    ['on the grass, a dog']
    >>> list(orders_of(split("a dog and a cat"), ["DT", "NN", "CC", "DT", "NN"]))
    ['a cat and a dog']
    """
    words = [word.lower() for word in sentence.words]
    stop = sentence.text[-1:] if words and words[-1] == "." else ""
    end = len(words) - bool(stop)
    if end < 3 or words[0] not in ("a", "an", "the") or any(w in ",;:" for w in words[:end]):
        return
    inner = range(1, end)
    places = [i for i in inner if words[i] in LOCATIVE and tags[i].startswith(("IN", "TO", "RP"))]
    joints = [i for i in inner if words[i] == "and"]
    others = [i for i in inner if tags[i].startswith(("IN", "VB", "TO", "MD", "W", "CC"))]
    if len(places) == 1 and others == places:
        phrase = tags[places[0] + 1 : end]
        # A noun with its modifiers; "its tow" may refer to something before it.
        inside = ("DT", "JJ", "NN", "CD", "VBG", "VBN")
        if phrase and phrase[-1].startswith("NN") and all(t.startswith(inside) for t in phrase):
            yield _turn(sentence, places[0], end, ", ", stop)
    if len(joints) == 1 and others == joints and words[joints[0] + 1] in ("a", "an"):
        yield _turn(sentence, joints[0] + 1, end, " and ", stop, without=1)


def _turn(sentence: Sentence, at: int, end: int, joint: str, stop: str, *, without: int = 0) -> str:
    """Move the words from ``at`` to ``end`` to the front; drop ``without`` words before them."""
    text, spans = sentence.text, sentence.spans
    last = text[spans[at][0] : spans[end - 1][1]]
    first = text[: spans[at - 1 - without][1]]
    if first[:1].isupper():
        last, first = last[:1].upper() + last[1:], first[:1].lower() + first[1:]
    return f"{last}{joint}{first}{stop}"


# The parts of a caption that rules use: its medium, its nouns, its place.
#
# They are found by tags and a few words, not by a parser. This suffices for captions, which are
# short and similar ("a man riding a wave on top of a surfboard"). ``edit_checks`` measures it.

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
            between = range(self.nouns[0].last + 1, slot.first)
            verbs = [i for i in between if self.tags[i].startswith("VB")]
            if verbs:
                behind = {word.lower() for word in self.sentence.words[verbs[-1] + 1 : slot.first]}
                if not behind & (PREPOSITIONS | {"to", "of"}):
                    return slot
        return self.nouns[1] if len(self.nouns) > 1 else None

    def begin(self, noun: Slot) -> int:
        """Return the index of the first word of a noun's phrase after articles and numbers."""
        first = noun.first
        while (
            first > self.start
            and self.tags[first - 1].startswith(("JJ", "VBN"))
            and self.sentence.words[first - 1].lower() not in QUANTIFIERS
        ):
            first -= 1
        return first

    def phrase(self, noun: Slot) -> Slot:
        """Return a noun with the articles, numbers and adjectives before it."""
        first = noun.first
        while first > self.start and self.tags[first - 1].startswith(_INSIDE):
            first -= 1
        return Slot(first, noun.last)

    def place(self, heads: frozenset[str]) -> Slot | None:
        """Return the last preposition with its noun, if the noun is a place.

        Args:
            heads: the nouns that are places, in lower case.
        """
        words = [word.lower() for word in self.sentence.words]
        for noun in reversed(self.nouns[1:]):
            run = " ".join(words[noun.first : noun.last + 1])
            first = self.phrase(noun).first
            if (run in heads or words[noun.last] in heads) and words[first - 1] in LOCATIVE:
                return Slot(first - 1, noun.last)
        return None

    def weather(self) -> tuple[int, int] | None:
        """Return the characters (start, end) of a phrase about the weather or the light."""
        match = WEATHER.search(self.sentence.text)
        return None if match is None else match.span()


def find_phrases(sentence: Sentence, tags: Sequence[str]) -> Phrases:
    """Find the parts of a caption, given the tag of each word from a ``Tagger``."""
    medium = MEDIUM.match(sentence.text)
    end = 0 if medium is None else medium.end()
    start = sum(span[1] <= end for span in sentence.spans)
    words = [word.lower() for word in sentence.words]
    fit = [
        i >= start and tag.startswith("NN") and word[:1].isalpha() and len(word) > 1
        for i, (word, tag) in enumerate(zip(sentence.words, tags, strict=True))
    ]
    for i, (word, head) in enumerate(pairwise(words)):
        fit[i] = fit[i] or (fit[i + 1] and word in COMPOUNDS and head in ROOMS)
    nouns = []
    for is_noun, run in groupby(range(len(words)), key=fit.__getitem__):
        places = list(run)
        first, last = places[0], places[-1]
        behind = words[last + 1] if last + 1 < len(words) else ""
        forms = {words[last], words[last].removesuffix("s"), words[last].removesuffix("es")}
        counts = behind == "of" and forms & PARTITIVES
        if is_noun and not counts and behind not in ("'s", "\u2019s"):
            nouns.append(Slot(first, last))
    return Phrases(sentence, tuple(tags), start, tuple(nouns))
