"""CLARE's edits (Li et al., 2021) in TextAttack's fast form: random edits that fit the text.

A masked language model replaces words, inserts words and merges two words into one. Every word with
a sufficient probability is a candidate, and all different texts are equally likely: no model is
attacked.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from annotated_types import Interval

from cfaug.core.annotations import NO_RESULT
from cfaug.core.rng import derive
from cfaug.core.types import Edited, Example
from cfaug.core.validation import Positive, Seed, Share, check_fields
from cfaug.editing.baselines.editor import NO_CANDIDATE, NO_WORDS, TOO_LONG, Words, count_changes
from cfaug.editing.protocols import (
    Blank,
    MaskFiller,
    SentenceEmbedder,
    Tagger,
    propose_change,
    round_digits,
)
from cfaug.editing.sentence import normalise
from cfaug.editing.word_lists import NLTK_STOP_WORDS

Operation = Literal["replace", "insert", "merge"]
UNIVERSAL: Mapping[str, str] = {
    "NN": "NOUN", "NNS": "NOUN", "JJ": "ADJ", "JJR": "ADJ", "JJS": "ADJ", "RB": "ADV",
    "RBR": "ADV", "RBS": "ADV", "DT": "DET", "PDT": "DET", "CD": "NUM", "PRP": "PRON",
    "PRP$": "PRON", "WP": "PRON", "WP$": "PRON",
}  # fmt: skip
"""Universal part of speech by Penn tag, for the tags that can be merged.

Every tag that begins with VB is a verb, auxiliaries too: every sixth merge in XMAI's released
captions is of "is" or "are" with a verb.
"""
MERGED: Mapping[str, tuple[str, ...]] = {
    "NOUN": ("NOUN",),
    "ADJ": ("NOUN", "NUM", "ADJ", "ADV"),
    "ADV": ("ADJ", "VERB"),
    "VERB": ("ADV", "VERB", "NOUN", "ADJ"),
    "DET": ("NOUN", "ADJ"),
    "PRON": ("NOUN", "ADJ"),
    "NUM": ("NUM", "NOUN"),
}
"""{part of speech of a word: those of the next word that it can be merged with} (TextAttack)."""


@dataclass(frozen=True)
class Likelihoods:
    """The thresholds for guesses to become candidates.

    Args:
        replace: the least probability of a word that replaces another.
        insert: the least probability of an inserted word.
        merge: the least probability of a word that two are merged into.
        guesses: the number of the most probable guesses for each blank, among them guesses that are
            not words.
    """

    replace: Share = 5e-4
    insert: Share = 0.0
    merge: Share = 5e-3
    guesses: Positive = 50

    def __post_init__(self) -> None:
        check_fields(self, "recipe.editor.likelihoods")


class ClareCandidate(NamedTuple):
    """One changed text; a caption has about a thousand of them.

    Attributes:
        place: the index of the word that was replaced, inserted before, or merged with the next.
        modified: the number of changed words in the text, this one included.
    """

    operation: Operation
    place: int
    word: str
    modified: int


def find_candidates(
    texts: Sequence[Words], filler: MaskFiller, tagger: Tagger, likelihoods: Likelihoods
) -> list[dict[str, ClareCandidate]]:
    """Return the candidates of each text, by their texts; all blanks form one batch.

    Words that were changed before are not replaced, and no word is inserted before them; stop words
    are not replaced. Any two words with matching parts of speech can be merged. If two candidates
    are the same text, the first one counts, in the order replace, insert, merge.

    No word is inserted before the first word, and the last two words are not merged: for these two
    operations TextAttack shows the model the text from its first word to its last one, so that a
    mask at either end loses its bracket and gets no guesses. XMAI's released captions confirm this.
    """
    tags = tagger.tag([words.words for words in texts])
    blanks: list[Blank] = []
    # What each blank is for: its text and operation, its place, the text before and after it in the
    # result, and the number of changed words.
    uses: list[tuple[int, Operation, int, str, str, int]] = []
    for row, (words, text_tags) in enumerate(zip(texts, tags, strict=True)):
        text, changed = words.text, len(words.modified)
        for i in words.unmodified:
            if words.words[i] not in NLTK_STOP_WORDS:
                start, end = words.spans[i]
                blanks.append(Blank(text, start, end))
                uses.append((row, "replace", i, text[:start], text[end:], changed + 1))
        for i in words.unmodified:
            if i > 0:
                before, after = text[: words.spans[i][0]], f" {text[words.spans[i][0] :]}"
                blanks.append(_shown(words, before, after))
                uses.append((row, "insert", i, before, after, changed + 2))
        for i in find_merges(words.words, text_tags):
            merged = words.replace(i + 1, "")
            start, end = merged.spans[i]
            before, after = merged.text[:start], merged.text[end:]
            blanks.append(_shown(merged, before, after))
            uses.append((row, "merge", i, before, after, len(merged.modified | {i})))
    candidates: list[dict[str, ClareCandidate]] = [{} for _ in texts]
    every = filler.fill(blanks, likelihoods.guesses) if blanks else []
    for (row, operation, index, before, after, modified), fills in zip(uses, every, strict=True):
        least = getattr(likelihoods, operation)
        for fill in fills:
            if least and round_digits(fill.probability) < least:
                break
            if fill.word is not None and fill.word != texts[row].words[index]:
                candidate = ClareCandidate(operation, index, fill.word, modified)
                candidates[row].setdefault(f"{before}{fill.word}{after}", candidate)
    return candidates


def _shown(words: Words, before: str, after: str) -> Blank:
    """Return an empty blank between two parts of a text, without the text outside its words."""
    first = words.spans[0][0]
    behind = len(words.text) - words.spans[-1][1]
    before, after = before[first:], after[: len(after) - behind]
    return Blank(before + after, len(before), len(before))


def find_merges(words: Sequence[str], tags: Sequence[str]) -> list[int]:
    """Return the indices of words that may be merged with the next one, except the last two.

    >>> find_merges(["a", "red", "ball", "is", "rolling", "away"], "DT JJ NN VBZ VBG RB".split())
    [0, 1, 3]
    """
    kinds = ["VERB" if tag.startswith("VB") else UNIVERSAL.get(tag, "") for tag in tags]
    return [i for i in range(len(words) - 2) if kinds[i + 1] in MERGED.get(kinds[i], ())]


KIND = "clare"
CHOSEN_UNCHANGED = "chosen_unchanged"
"""Reason of a text that is unchanged because it was itself drawn from its candidates."""
Changes = tuple[dict[str, Any], ...]


@dataclass(frozen=True)
class ClareEdits:
    """Replaces, inserts or merges words of a caption with a masked language model's guesses.

    TextAttack treats subword pieces ("ing") as words; here only whole words, according to the
    filler, are candidates.

    Args:
        filler: the model that guesses words for a blank (distilroberta-base in XMAI's notebook).
        likelihoods: the least probability of candidates, and their number for each blank.
        similarity: the constraint that drops candidates too far from the text; ``None`` for no
            constraint. XMAI's setting ignores texts of fewer than 15 words, which are 95 % of
            MS-COCO's captions.
        share: the share of the words to change, rounded down, at least one word: a single one in
            captions of fewer than 20 words. An inserted word counts together with the one after it.
        keep_unchanged: whether an unchanged text still has a proposal; see ``propose_change``. The
            text itself is among the candidates, and is as likely as any of them.
        chunk: the number of captions that go through the models together; it bounds memory without
            changing results.
        max_words: the largest number of words of a text to change: the work grows with the square
            of its length.
    """

    filler: MaskFiller
    tagger: Tagger
    """the tagger of parts of speech"""
    likelihoods: Likelihoods = field(default_factory=Likelihoods)
    similarity: WindowSimilarity | None = None
    share: Share = 0.1
    keep_unchanged: bool = True
    seed: Seed = 0
    """the seed of what is drawn"""
    chunk: Annotated[Positive, NO_RESULT] = 500
    max_words: Positive = 300

    def __post_init__(self) -> None:
        check_fields(self, "recipe.editor")

    def edit(self, examples: Sequence[Example]) -> list[Edited]:
        """Return one proposal for the first text of each example, in order."""
        edited = []
        for start in range(0, len(examples), self.chunk):
            some = examples[start : start + self.chunk]
            drafts = []
            for example in some:
                words = Words.read(normalise(example.text))
                count = len(words.spans)
                wanted = count_changes(self.share, count) if 0 < count <= self.max_words else 0
                drafts.append(ClareDraft(words, wanted, derive(self.seed, KIND, example.key)))
            while going := [draft for draft in drafts if draft.is_open]:
                texts = [draft.current for draft in going]
                proposed = find_candidates(texts, self.filler, self.tagger, self.likelihoods)
                if self.similarity is not None:
                    proposed = self.similarity.keep([draft.original for draft in going], proposed)
                for draft, candidates in zip(going, proposed, strict=True):
                    draft.take(candidates)
            for example, draft in zip(some, drafts, strict=True):
                words, changes = draft.choose()
                fits = len(draft.original.spans) <= self.max_words
                edited.append(
                    propose_change(
                        example, words.text, KIND,
                        changes=changes,
                        reason=draft.reason if fits else TOO_LONG,
                        keep_unchanged=self.keep_unchanged,
                    )
                )  # fmt: skip
        return edited

    def describe(self) -> dict[str, str]:
        """Return the models that guess, tag and compare."""
        described = {**self.tagger.describe(), **self.filler.describe()}
        return described | ({} if self.similarity is None else self.similarity.describe())


class ClareDraft:
    """The rounds of one text, as in TextAttack's ``Augmenter`` with ``fast_augment``.

    In every round, all texts with enough changed words join the pool; one of the others, if there
    are any, enters the next round. In the end one text of the pool is chosen. The pool also
    contains the text that entered the last round: for a short text, the text itself.

    Args:
        wanted: the number of words to change; 0 leaves the text unchanged.
        salt: the salt of all draws. The text with the smallest hash is drawn, so that an additional
            or missing candidate, which may depend on the batch if probabilities are equal, hardly
            ever changes the choice.
    """

    def __init__(self, original: Words, wanted: int, salt: int) -> None:
        self.original = self.current = original
        self._wanted, self._salt = wanted, salt
        self._count = 0
        self._changes: Changes = ()
        self._pool: dict[str, tuple[ClareCandidate, int]] = {}
        self._rounds: list[tuple[Words, Changes]] = []
        self.is_open = wanted > 0

    def take(self, candidates: Mapping[str, ClareCandidate]) -> None:
        """Add the candidates of the current text."""
        number = len(self._rounds)
        self._rounds.append((self.current, self._changes))
        going_on = {}
        for text, candidate in candidates.items():
            if text not in self._pool:
                if candidate.modified >= self._wanted:
                    self._pool[text] = candidate, number
                else:
                    going_on[text] = candidate
        self.is_open = False
        if going_on:
            self.current, self._changes = self._finish(going_on[self._draw(going_on)], number)
            self._count = max(len(self.current.modified), self._count + 1)
            self.is_open = self._count < self._wanted

    def choose(self) -> tuple[Words, Changes]:
        """Return the chosen text, and the changes that led to it."""
        text = self._draw([self.current.text, *self._pool])
        if text == self.current.text:
            return self.current, self._changes
        return self._finish(*self._pool[text])

    def _finish(self, chosen: ClareCandidate, number: int) -> tuple[Words, Changes]:
        """Return the text of a candidate of a round, and all changes that led to it."""
        words, changes = self._rounds[number]
        operation, index, word, _ = chosen
        replaced = {"insert": 0, "replace": 1, "merge": 2}[operation]
        before = " ".join(words.words[index : index + replaced])
        change = {"operation": operation, "before": before, "after": word}
        if operation == "insert":
            return words.insert(index, word), (*changes, change)
        if operation == "merge":
            words = words.replace(index + 1, "")
        return words.replace(index, word), (*changes, change)

    @property
    def reason(self) -> str:
        """The reason why the text is unchanged; meaningless if it is changed."""
        if not self.original.spans:
            return NO_WORDS
        return CHOSEN_UNCHANGED if self._pool else NO_CANDIDATE

    def _draw(self, texts: Iterable[str]) -> str:
        """Return one of several equally likely texts."""
        key = f"{self._salt} {len(self._rounds)}".encode()
        return min(
            texts, key=lambda text: hashlib.blake2b(text.encode(), digest_size=8, key=key).digest()
        )


# TextAttack's constraint on long texts: the text around a change stays similar to the original.


@dataclass(frozen=True)
class WindowSimilarity:
    """Drops candidates that differ too much from the original in the words around the change.

    TextAttack uses the Universal Sentence Encoder; here any sentence encoder can be used.

    Args:
        least: the least cosine of the two windows, inclusive.
        window: the number of words to compare; texts of fewer words pass.
    """

    encoder: SentenceEmbedder
    least: Annotated[float, Interval(ge=-1, le=1)] = 0.7
    window: Positive = 15

    def __post_init__(self) -> None:
        check_fields(self, "recipe.editor.similarity")

    def keep(
        self, originals: Sequence[Words], proposed: Sequence[Mapping[str, ClareCandidate]]
    ) -> list[dict[str, ClareCandidate]]:
        """Return the candidates of each original that are similar to it, by their texts."""
        pairs: dict[tuple[int, str], tuple[str, str]] = {}
        for row, (original, candidates) in enumerate(zip(originals, proposed, strict=True)):
            for text, candidate in candidates.items():
                changed = Words.read(text)
                if len(changed.spans) >= self.window:
                    before, after = (
                        text_window(words, candidate.place, self.window)
                        for words in (original, changed)
                    )
                    pairs[row, text] = before, after
        texts = list(dict.fromkeys(text for pair in pairs.values() for text in pair))
        far = set()
        if texts:
            rows = {text: i for i, text in enumerate(texts)}
            vectors = self.encoder.encode(texts)
            left, right = (vectors[[rows[p[side]] for p in pairs.values()]] for side in (0, 1))
            cosines = np.einsum("nd,nd->n", left, right)
            far = {
                key
                for key, cosine in zip(pairs, cosines, strict=True)
                if not round_digits(float(cosine)) >= self.least
            }
        return [
            {text: candidate for text, candidate in candidates.items() if (row, text) not in far}
            for row, candidates in enumerate(proposed)
        ]

    def describe(self) -> dict[str, str]:
        return {f"similarity {name}": value for name, value in self.encoder.describe().items()}


def text_window(words: Words, index: int, size: int) -> str:
    """Return the text of ``size`` words around one word, as in TextAttack.

    >>> text_window(Words.read("one two three four five, six."), 3, 3)
    'three four five'
    >>> text_window(Words.read("one two three four five, six."), 5, 3)
    'four five, six'
    """
    count, half = len(words.spans), (size - 1) / 2
    if index - half < 0:
        first, last = 0, min(size, count) - 1
    elif index + half >= count:
        first, last = max(0, count - size), count - 1
    else:
        first, last = index - math.ceil(half), index + math.floor(half)
    return words.text[words.spans[first][0] : words.spans[last][1]]
