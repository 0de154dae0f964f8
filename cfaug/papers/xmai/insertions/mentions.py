"""Mentions of detected objects in the caption of their image, and the words guessed for them.

A caption mentions an object directly, or by a noun of similar meaning (Ramshetty et al., 2023,
section 3). Answers of models are cached by question, so that ablations repeat none:
``<cache>/insertion/<model>/`` holds those of one model with its weights and settings. A file is
written atomically, has its checksum in its name and is never changed, so that processes share a
cache without coordination, and any file may be deleted at any time.
"""

from __future__ import annotations

import json
import re
import string
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np

from cfaug.core.errors import UserError, say
from cfaug.core.files import advise
from cfaug.core.kept_records import KeptRecords
from cfaug.core.weights import sha256_text
from cfaug.data.captions import copy_article_case, indefinite_article
from cfaug.data.detections import Detection
from cfaug.editing.language_models import MaskedLM
from cfaug.editing.pretrained import Pretrained
from cfaug.editing.protocols import TAGS, Blank, MaskFiller, SentenceEmbedder, Tagger, round_digits
from cfaug.editing.sentence import Sentence, split

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
        for row, (sentence, sentence_tags) in tagged.items():
            mentions[row] = _before_compounds(mentions[row], sentence, sentence_tags)
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


class AnswerCache:
    """The answers of one model.

    Args:
        folder: the folder of all models' answers; ``None`` keeps no answers, neither on disk nor in
            memory.
        identity: the model's weights and every setting that changes an answer, as a text.
    """

    def __init__(self, folder: Path | None, identity: str) -> None:
        name = sha256_text(identity)[:32]
        self._folder = None if folder is None else folder / "insertion" / name
        self._fresh: dict[str, str] = {}
        self.misses = 0

    @property
    def keeps(self) -> bool:
        """Whether answers are kept."""
        return self._folder is not None

    def ask(
        self, questions: Sequence[Any], answer: Callable[[list[int]], Sequence[Any]]
    ) -> list[Any]:
        """Return the answer to each question; the model answers equal questions once.

        Args:
            answer: a function that asks the model the questions at some places, and returns a JSON
                value for each; ``None`` stands for an unreadable image, and is not kept because it
                may differ next time.
        """
        keys = [sha256_text(json.dumps(question)) for question in questions]
        kept = self._kept if self.keeps else KeptRecords(None)
        first: dict[str, int] = {}
        for position, key in enumerate(keys):
            if key not in kept and key not in self._fresh:
                first.setdefault(key, position)
        self.misses += len(first)
        answers = answer(list(first.values())) if first else []
        # In the form that the next process will read: a tuple becomes a list.
        new = {key: json.dumps(value) for key, value in zip(first, answers, strict=True)}
        texts = self._fresh | new
        if self.keeps:
            self._fresh = {key: text for key, text in texts.items() if text != "null"}
        return [json.loads(texts[key]) if key in texts else kept[key] for key in keys]

    def write(self) -> None:
        """Write the new answers."""
        if not self._fresh:
            return
        try:
            self._kept.add({key: json.loads(text) for key, text in self._fresh.items()})
        except OSError as error:
            raise UserError(
                f"answers of models cannot be kept in {self._folder} ({error.strerror}): "
                f"{advise(error, 'paths.cache')}, or set recipe.editor.cache=null"
            ) from error
        self._fresh = {}

    @cached_property
    def _kept(self) -> KeptRecords:
        kept = KeptRecords(self._folder)
        if kept.damaged:
            say(
                f"{kept.damaged} files in {self._folder} were damaged; "
                "their questions are asked again"
            )
        return kept


@dataclass(frozen=True)
class Guess:
    """One of a language model's guesses, and the scores of one that may be inserted.

    Attributes:
        probability: the probability over the whole vocabulary, rounded.
        rank: the rank among the guesses, from 0.
    """

    word: str
    probability: float
    rank: int
    similarity: float | None = None
    distance: float | None = None
    score: float = 0.0


@dataclass(frozen=True)
class Guesser:
    """Returns a language model's guesses for masks, with all masks of a step in batches.

    Args:
        count: the number of its guesses; the first k candidates among them are taken.
    """

    filler: MaskFiller
    count: int
    cache: AnswerCache

    @property
    def mask(self) -> str:
        """The language model's mask token, or a replacement if it has none."""
        if isinstance(self.filler, MaskedLM):
            return str(self.filler.tokenizer.mask_token)
        return "[MASK]"

    def ask(self, masks: Sequence[tuple[str, str]]) -> list[list[Guess]]:
        """Return the guesses for each mask, the best first; none beyond the length limit.

        Args:
            masks: the text before and the text after each mask.
        """

        def fill(rows: list[int]) -> list[Any]:
            """Return the guesses for blanks: a space on either side, except at the beginning."""
            blanks = []
            for before, after in (masks[row] for row in rows):
                blanks.append(Blank(f"{before} {after}", len(before), len(before)))
            return [
                [
                    [fill.word, round_digits(fill.probability), rank]
                    for rank, fill in enumerate(fills)
                    if fill.word is not None
                ]
                for fills in self.filler.fill(blanks, self.count)
            ]

        answers = self.cache.ask([list(mask) for mask in masks], fill)
        return [[Guess(*guess) for guess in guesses] for guesses in answers]


Context = Literal["sequential", "alone"]
NEAR = 3
"""Number of words next to a mask that are not candidates: the "3-hop neighborhood"
(section 3)."""
PIECE = "##"
"""WordPiece's prefix of the continuation of a word."""


class Canvas:
    """A caption whose masks are filled from left to right; the rest keeps its characters.

    Args:
        mentions: the mentions, from left to right, each with a mask before it.
        context: the text that the language model reads to the left of a mask.
    """

    def __init__(self, text: str, mentions: Sequence[Mention], context: Context) -> None:
        self._text, self._mentions, self._context = text, mentions, context
        self._words: list[str | None] = [None] * len(mentions)

    def surroundings(self, i: int) -> tuple[str, str]:
        """Return the text before the mention, with its insertions, and the text from there on."""
        start = self._mentions[i].start
        before, _ = self._compose([*self._earlier(i), *[None] * (len(self._mentions) - i)], start)
        return before, self._text[start:]

    def unwanted(self, i: int) -> frozenset[str]:
        """Return the mention's words and those near it, in lower case."""
        noun = self._mentions[i]
        words = (
            *split(self.surroundings(i)[0]).words[-NEAR:],
            *split(self._text[noun.start : noun.end]).words,
            *split(self._text[noun.end :]).words[:NEAR],
        )
        return frozenset(word.lower() for word in words)

    def candidate(self, i: int, word: str) -> str:
        """Return the caption with mask ``i`` replaced by a word."""
        later = [None] * (len(self._words) - i - 1)
        return self._compose([*self._earlier(i), word, *later])[0]

    def fill(self, i: int, word: str | None) -> None:
        """Replace mask ``i`` by a word, or remove it."""
        self._words[i] = word

    def result(self) -> tuple[str, list[int | None]]:
        """Return the caption, and the place of the first character of each mask's word."""
        return self._compose(self._words)

    def _earlier(self, i: int) -> list[str | None]:
        """Return the replacements of the masks before mask ``i`` while it is filled."""
        return [None] * i if self._context == "alone" else self._words[:i]

    def _compose(
        self, words: Sequence[str | None], end: int | None = None
    ) -> tuple[str, list[int | None]]:
        """Return the text up to ``end`` with words before their mentions, and the words' starts."""
        text, at = "", 0
        starts: list[int | None] = []
        for mention, word in zip(self._mentions, words, strict=True):
            if word is None:
                starts.append(None)
                continue
            text += self._text[at : mention.start]
            at = mention.start
            piece = word.startswith(PIECE) and len(word) > len(PIECE)
            if piece or word in string.punctuation:
                text = text.rstrip(" ")
                word = word.removeprefix(PIECE) if piece else word
            else:
                article = re.search(r"(?<![\w'’-])(an?) $", text, re.IGNORECASE)
                right = indefinite_article(word)
                if article is not None and article[1].lower() != right:
                    text = f"{text[: article.start()]}{copy_article_case(right, article[1])} "
                if not text.strip() and mention.noun[:1].isupper():
                    word = word[:1].upper() + word[1:]
            starts.append(len(text))
            text += f"{word} "
        return text + self._text[at:end], starts
