"""Mentions of detected objects in the caption of their image.

A caption mentions an object directly, or by a noun of similar meaning (Ramshetty et al., 2023,
section 3).
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Literal

import numpy as np

from cfaug.core.detections import Detection
from cfaug.editing.pretrained import Pretrained
from cfaug.editing.protocols import TAGS, SentenceEmbedder, Tagger, round_digits
from cfaug.editing.sentence import Sentence, split
from cfaug.xmai.insertions.guesses import AnswerCache

Fallback = Literal["noun", "text", "never", "only"]


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
class MentionFinder:
    """Finds the mentions in captions: in each independently, but with similarities in one batch.

    Args:
        fallback: the nouns to compare with the detected objects, see ``AttributeInsertion``.
        tagger: the part-of-speech tagger that finds nouns; ``None`` only if ``fallback`` is
            ``never``.
        similarity: the similarity of nouns and labels; ``None`` only if ``fallback`` is ``never``.
        threshold: the least similarity at which a noun mentions an object: t.
    """

    fallback: Fallback
    tagger: Tagger | None
    similarity: WordSimilarity | None
    threshold: float

    def find(
        self, texts: Sequence[str], detections: Sequence[Sequence[Detection]]
    ) -> list[tuple[Mention, ...]]:
        """Return each caption's mentions of the objects in its image, from left to right."""
        mentions = [
            ()
            if self.fallback == "only"
            else _match(text, [detection.label for detection in objects])
            for text, objects in zip(texts, detections, strict=True)
        ]
        # Other captions have nothing to compare, and nothing to move before a compound.
        compare = [
            row
            for row, direct in enumerate(mentions)
            if detections[row]
            and self.fallback != "never"
            and not (self.fallback == "text" and direct)
        ]
        move = [row for row, direct in enumerate(mentions) if direct and self.tagger is not None]
        rows = sorted({*compare, *move})
        if not rows:
            return mentions
        assert self.tagger is not None
        sentences = [split(texts[row]) for row in rows]
        tags = self.tagger.tag([sentence.words for sentence in sentences])
        tagged = dict(zip(rows, zip(sentences, tags, strict=True), strict=True))
        nouns = {row: _nouns(*tagged[row], mentions[row]) for row in compare}
        labels = {row: list(dict.fromkeys(d.label for d in detections[row])) for row in compare}
        if compare:
            assert self.similarity is not None
            words = [noun.noun.lower() for some in nouns.values() for noun in some]
            self.similarity.learn([*words, *(label for some in labels.values() for label in some)])
            for row in compare:
                lowered = [noun.noun.lower() for noun in nouns[row]]
                cosines = self.similarity.cosines(lowered, labels[row])
                similar = list(mentions[row])
                for noun, cosine in zip(nouns[row], cosines, strict=True):
                    near = {
                        label: value
                        for label, value in zip(labels[row], cosine, strict=True)
                        if value >= self.threshold
                    }
                    if near:
                        numbers = [
                            i
                            for i, detection in enumerate(detections[row])
                            if detection.label in near
                        ]
                        best = max(near, key=near.__getitem__)
                        similar.append(replace(noun, label=best, objects=tuple(numbers)))
                mentions[row] = tuple(sorted(similar, key=lambda mention: mention.start))
        for row, (sentence, its) in tagged.items():
            mentions[row] = _before_compounds(mentions[row], sentence, its)
        return mentions


def _nouns(sentence: Sentence, tags: Sequence[str], taken: Sequence[Mention]) -> list[Mention]:
    """Return the distinct nouns that may mention an object, at their first places."""
    seen = {mention.noun.lower() for mention in taken}
    mentions = []
    for word, span, tag in zip(sentence.words, sentence.spans, tags, strict=True):
        is_word = word.replace("-", "").isalpha()
        if tag.startswith(TAGS["noun"]) and is_word and _free(span, taken):
            if word.lower() not in seen:
                mentions.append(Mention(*span, word, "", ()))
            seen.add(word.lower())
    return mentions


def _match(text: str, labels: Sequence[str]) -> tuple[Mention, ...]:
    """Return the first places of labels as whole words, ignoring case, longer labels first.

    A label within the words of another, "hydrant" in "fire hydrant", is not a separate mention.
    """
    numbers: dict[str, list[int]] = {}
    for i, label in enumerate(labels):
        numbers.setdefault(label.lower(), []).append(i)
    mentions: list[Mention] = []
    for label in sorted(numbers, key=lambda name: -len(name.split())):
        for match in _pattern(label).finditer(text):
            if _free(match.span(), mentions):
                objects = tuple(numbers[label])
                mentions.append(Mention(*match.span(), match.group(), labels[objects[0]], objects))
                break
    return tuple(sorted(mentions, key=lambda mention: mention.start))


@lru_cache(maxsize=10_000)
def _pattern(label: str) -> re.Pattern[str]:
    words = r"\s+".join(map(re.escape, label.split()))
    return re.compile(rf"(?<![\w-]){words}(?![\w-])", re.IGNORECASE)


def _before_compounds(
    mentions: Sequence[Mention], sentence: Sentence, tags: Sequence[str]
) -> tuple[Mention, ...]:
    """Move mentions to the beginning of their compounds; keep the last mention of each."""
    places = {start: i for i, (start, _) in enumerate(sentence.spans)}
    moved: dict[int, Mention] = {}
    for mention in mentions:
        i = places.get(mention.start)
        while i and tags[i - 1].startswith(TAGS["noun"]) and sentence.words[i - 1].isalpha():
            if sentence.text[sentence.spans[i - 1][1] : sentence.spans[i][0]] != " ":
                break
            i -= 1
        start = mention.start if i is None else sentence.spans[i][0]
        moved[start] = replace(mention, start=start)
    return tuple(moved[start] for start in sorted(moved))


def _free(span: tuple[int, int], taken: Iterable[Mention]) -> bool:
    return all(span[1] <= mention.start or mention.end <= span[0] for mention in taken)


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
        self._vectors.update(
            (word, _unpack(vector)) for word, vector in zip(fresh, packed, strict=True)
        )

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
