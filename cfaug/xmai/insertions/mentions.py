"""Mentions of detected objects in the caption of their image.

A caption mentions an object directly, or by a noun of similar meaning (Ramshetty et al., 2023,
section 3).
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from cfaug.core.detections import Detection
from cfaug.editing.pretrained import Pretrained
from cfaug.editing.protocols import TAGS, SentenceEmbedder, Tagger, round_digits
from cfaug.editing.sentence import Sentence, split
from cfaug.xmai.insertions.answer_cache import AnswerCache
from cfaug.xmai.insertions.switches import Switches

MASK = "[MASK] "
"""The released code's mark before a mention; here only to reproduce its search."""


@dataclass(frozen=True)
class Mention:
    """A noun before which a word is inserted.

    Attributes:
        start: the place of the insertion: the first character of the noun, or of its compound.
        end: the place after the noun's last character.
        noun: the noun as the caption spells it.
        label: the label of the detected object, the most similar one if there are several.
        objects: the numbers of the detections whose attributes describe the noun, in their order.
    """

    start: int
    end: int
    noun: str
    label: str
    objects: tuple[int, ...]


@dataclass(frozen=True)
class Mentions:
    """The mentions of a caption, from left to right, and the released code's lookup of attributes.

    Attributes:
        by_token: {word after a mask: numbers of detections}, for ``attributes=token``.
    """

    found: tuple[Mention, ...] = ()
    by_token: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class MentionFinder:
    """Finds the mentions in captions: in each independently, but with similarities in one batch.

    Args:
        switches: resolved switches; ``matching``, ``fallback`` and ``compounds`` are used.
        tagger: the part-of-speech tagger that finds nouns; ``None`` only if ``fallback`` is
            ``never``.
        similarity: the similarity of nouns and labels; ``None`` only if ``fallback`` is ``never``.
        threshold: the least similarity at which a noun mentions an object: t.
    """

    switches: Switches
    tagger: Tagger | None
    similarity: WordSimilarity | None
    threshold: float

    def find(
        self, texts: Sequence[str], detections: Sequence[Sequence[Detection]]
    ) -> list[Mentions]:
        """Return each caption's mentions of the objects in its image."""
        found = [
            Mentions() if self.switches.fallback == "only" else self._direct(text, objects)
            for text, objects in zip(texts, detections, strict=True)
        ]
        compare = [
            row for row, one in enumerate(found) if detections[row] and self._falls_back(one)
        ]
        move = [row for row, one in enumerate(found) if one.found and self._moves]
        rows = sorted({*compare, *(move if self.tagger is not None else ())})
        tagged = dict(zip(rows, self._tag([texts[row] for row in rows]), strict=True))
        if compare:
            labels = [list(dict.fromkeys(one.label for one in detections[row])) for row in compare]
            nouns = [self._nouns(tagged[row], found[row].found) for row in compare]
            self._learn(nouns, labels)
            for row, candidates, names in zip(compare, nouns, labels, strict=True):
                found[row] = self._similar(candidates, names, detections[row], found[row])
        if self._moves:
            for row, words in tagged.items():
                found[row] = replace(found[row], found=_before_compounds(found[row].found, *words))
        return found

    @property
    def _moves(self) -> bool:
        return self.switches.compounds == "before"

    def _tag(self, texts: Sequence[str]) -> list[tuple[Sentence, list[str]]]:
        """Return each caption's words and their tags; captions need a tagger."""
        if not texts:
            return []
        assert self.tagger is not None
        sentences = [split(text) for text in texts]
        tags = self.tagger.tag([one.words for one in sentences])
        return list(zip(sentences, tags, strict=True))

    def _learn(self, nouns: Sequence[Sequence[Mention]], labels: Sequence[Sequence[str]]) -> None:
        """Embed all nouns and labels to compare in one batch."""
        assert self.similarity is not None
        words = [self._key(noun.noun) for some in nouns for noun in some]
        self.similarity.learn([*words, *(label for some in labels for label in some)])

    def _falls_back(self, direct: Mentions) -> bool:
        if self.switches.fallback == "text":
            return not direct.found
        return self.switches.fallback != "never"

    def _direct(self, text: str, objects: Sequence[Detection]) -> Mentions:
        labels = [one.label for one in objects]
        return _by_words(text, labels) if self._by_words else _by_characters(text, labels)

    @property
    def _by_words(self) -> bool:
        return self.switches.matching == "words"

    def _nouns(
        self, tagged: tuple[Sentence, Sequence[str]], taken: Sequence[Mention]
    ) -> list[Mention]:
        """Return the distinct nouns that may mention an object, at their first places."""
        sentence, tags = tagged
        seen = {self._key(one.noun) for one in taken}
        found = []
        for word, span, tag in zip(sentence.words, sentence.spans, tags, strict=True):
            if not tag.startswith(TAGS["noun"]) or self._key(word) in seen:
                continue
            if self._by_words and not (word.replace("-", "").isalpha() and _free(span, taken)):
                continue
            seen.add(self._key(word))
            found.append(Mention(*span, word, "", ()))
        return found

    def _key(self, noun: str) -> str:
        """Return the form of a noun to compare: in the released code its letters, with case."""
        return noun.lower() if self._by_words else _letters(noun)

    def _similar(
        self,
        nouns: Sequence[Mention],
        labels: Sequence[str],
        objects: Sequence[Detection],
        direct: Mentions,
    ) -> Mentions:
        assert self.similarity is not None
        found, by_token = list(direct.found), dict(direct.by_token)
        cosines = self.similarity.cosines([self._key(noun.noun) for noun in nouns], labels)
        for noun, row in zip(nouns, cosines, strict=True):
            near = {label: cosine for label, cosine in zip(labels, row, strict=True)
                    if cosine >= self.threshold}  # fmt: skip
            if near:
                numbers = tuple(i for i, one in enumerate(objects) if one.label in near)
                best = max(near, key=lambda label: near[label])
                found.append(replace(noun, label=best, objects=numbers))
                by_token[self._key(noun.noun)] = numbers
        return Mentions(tuple(sorted(found, key=lambda one: one.start)), by_token)


def _by_words(text: str, labels: Sequence[str]) -> Mentions:
    """Return the first places of labels as whole words, ignoring case, longer labels first.

    A label within the words of another, "hydrant" in "fire hydrant", is not a separate mention.
    """
    numbers: dict[str, list[int]] = {}
    for i, label in enumerate(labels):
        numbers.setdefault(label.lower(), []).append(i)
    found: list[Mention] = []
    for label in sorted(numbers, key=lambda one: -len(one.split())):
        for match in _pattern(label).finditer(text):
            if _free(match.span(), found):
                found.append(
                    Mention(
                        *match.span(), match.group(), labels[numbers[label][0]],
                        tuple(numbers[label]),
                    )
                )  # fmt: skip
                break
    found.sort(key=lambda one: one.start)
    by_token: dict[str, tuple[int, ...]] = {}
    for one in found:
        by_token[one.noun.split()[0]] = one.objects
    return Mentions(tuple(found), by_token)


@lru_cache(maxsize=10_000)
def _pattern(label: str) -> re.Pattern[str]:
    words = r"\s+".join(map(re.escape, label.split()))
    return re.compile(rf"(?<![\w-]){words}(?![\w-])", re.IGNORECASE)


def _by_characters(text: str, labels: Sequence[str]) -> Mentions:
    """Return the matches of the released code (``mask_text``): first occurrences between spaces.

    Each label is searched in the text with the masks so far, so that a mask splits longer labels.
    """
    masked, keys = text, dict[str, list[int]]()
    labelled: dict[int, str] = {}  # by the number of characters of the caption before the label
    for i, label in enumerate(labels):
        if label in keys:
            keys[label.split()[0]].append(i)
            continue
        at = masked.find(label)
        after = masked[at + len(label) : at + len(label) + 1]
        if at <= 0 or masked[at - 1] != " " or after not in ("", " "):
            continue
        if masked[:at].endswith(MASK):
            continue
        keys[label.split()[0]] = [i]
        labelled[at - len(MASK) * masked.count(MASK, 0, at)] = label
        masked = masked[:at] + MASK + masked[at:]
    by_token = {key: tuple(numbers) for key, numbers in keys.items()}
    found = (
        Mention(at, at + len(label), label, label, by_token[label.split()[0]])
        for at, label in sorted(labelled.items())
    )
    return Mentions(tuple(found), by_token)


def _before_compounds(
    mentions: Sequence[Mention], sentence: Sentence, tags: Sequence[str]
) -> tuple[Mention, ...]:
    """Move mentions to the beginning of their compounds; keep the last mention of each."""
    places = {start: i for i, (start, _) in enumerate(sentence.spans)}
    found: dict[int, Mention] = {}
    for mention in mentions:
        i = places.get(mention.start)
        while i and tags[i - 1].startswith(TAGS["noun"]) and sentence.words[i - 1].isalpha():
            if sentence.text[sentence.spans[i - 1][1] : sentence.spans[i][0]] != " ":
                break
            i -= 1
        start = mention.start if i is None else sentence.spans[i][0]
        found[start] = replace(mention, start=start)
    return tuple(found[start] for start in sorted(found))


def _free(span: tuple[int, int], taken: Iterable[Mention]) -> bool:
    return all(span[1] <= one.start or one.end <= span[0] for one in taken)


def _letters(word: str) -> str:
    return "".join(character for character in word if character.isalpha())


# The similarity of words: cosines of their embeddings; each word is embedded once.


class WordSimilarity:
    """Cosines of words, rounded so that they are independent of the batch.

    Args:
        encoder: an encoder with embeddings of unit length, or zeros for an unknown word, whose
            cosines are 0.
        folder: the folder of cached embeddings; ``None`` caches no embeddings.
    """

    def __init__(self, encoder: SentenceEmbedder, folder: Path | None = None) -> None:
        self._encoder = encoder
        self._vectors: dict[str, np.ndarray] = {}
        # Only a model's answers are worth caching, and only a model describes everything that they
        # depend on.
        kept = folder if isinstance(encoder, Pretrained) else None
        self.cache = AnswerCache(kept, f"words {encoder.describe() if kept else ''}")

    def learn(self, words: Iterable[str]) -> None:
        """Embed words in one batch; known ones are not embedded again."""
        fresh = sorted(word for word in set(words) if word not in self._vectors)
        if not fresh:
            return
        if not self.cache.keeps:
            self._vectors.update(zip(fresh, self._encoder.encode(fresh), strict=True))
            return
        packed = self.cache.ask(
            fresh, lambda rows: [_pack(v) for v in self._encoder.encode([fresh[r] for r in rows])]
        )
        self._vectors.update((word, _unpack(one)) for word, one in zip(fresh, packed, strict=True))

    def cosines(self, words: Sequence[str], others: Sequence[str]) -> list[list[float]]:
        """Return the cosine of every word with each of the others."""
        if not words or not others:
            return [[] for _ in words]
        self.learn([*words, *others])
        right = np.stack([self._vectors[word] for word in others])
        return [
            [round_digits(float(cosine)) for cosine in right @ self._vectors[word]]
            for word in words
        ]


def _pack(vector: np.ndarray) -> str:
    """Return a vector as text, without loss: with four bytes for each number if they suffice.

    >>> _unpack(_pack(np.array([0.1, 2.0]))).tolist()
    [0.1, 2.0]
    """
    with np.errstate(over="ignore"):  # a number that overflows differs and is kept in eight bytes
        small = vector.astype("<f4")
    exact = small if (small == vector).all() else vector.astype("<f8")
    return f"{exact.dtype.itemsize}{b64encode(exact.tobytes()).decode()}"


def _unpack(text: str) -> np.ndarray:
    return np.frombuffer(b64decode(text[1:]), f"<f{text[0]}").astype(np.float64)
