"""The candidates of CLARE's edits: the texts with one word replaced, inserted or merged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from cfaug.core.validation import Positive, Share, check_fields
from cfaug.editing.baselines.words import Words
from cfaug.editing.protocols import Blank, MaskFiller, Tagger, round_digits
from cfaug.editing.stop_words import NLTK_STOP_WORDS

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

    Raises:
        UserError: if a setting is invalid; it names the setting.
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
        text: the text.
        operation: ``replace``, ``insert`` or ``merge``.
        place: the index of the word that was replaced, inserted before, or merged with the next.
        word: the new word.
        modified: the number of changed words in the text, this one included.
    """

    text: str
    operation: Operation
    place: int
    word: str
    modified: int

    def apply(self, words: Words) -> Words:
        """Return the changed text, given the text for which the candidate was found."""
        if self.operation == "insert":
            return words.insert(self.place, self.word)
        if self.operation == "merge":
            words = words.replace(self.place + 1, "")
        return words.replace(self.place, self.word)

    def describe(self, words: Words) -> dict[str, str]:
        """Return the change as JSON."""
        behind = {"insert": 0, "replace": 1, "merge": 2}[self.operation]
        before = words.words[self.place : self.place + behind]
        return {"operation": self.operation, "before": " ".join(before), "after": self.word}


@dataclass(frozen=True, slots=True)
class _Blanked:
    """A blank of a text for the model, and the text before and after it in the result."""

    row: int
    operation: Operation
    place: int
    blank: Blank
    before: str
    after: str
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
    blanked = [
        one
        for row, (words, its) in enumerate(zip(texts, tags, strict=True))
        for one in _blanks(row, words, its)
    ]
    found: list[dict[str, ClareCandidate]] = [{} for _ in texts]
    fills_of = filler.fill([one.blank for one in blanked], likelihoods.guesses) if blanked else []
    for one, fills in zip(blanked, fills_of, strict=True):
        words = texts[one.row]
        least = getattr(likelihoods, one.operation)
        for fill in fills:
            if least and round_digits(fill.probability) < least:
                break
            word = fill.word
            if word is None or word == words.words[one.place]:
                continue
            text = f"{one.before}{word}{one.after}"
            if text not in found[one.row]:
                found[one.row][text] = ClareCandidate(
                    text, one.operation, one.place, word, one.modified
                )
    return found


def _blanks(row: int, words: Words, tags: Sequence[str]) -> Iterator[_Blanked]:
    """Yield the blanks of a text; of equal texts, the first in this order counts."""
    text, free, changed = words.text, words.unmodified, len(words.modified)
    for i in free:
        if words.words[i] not in NLTK_STOP_WORDS:
            start, end = words.spans[i]
            blank = Blank(text, start, end)
            yield _Blanked(row, "replace", i, blank, text[:start], text[end:], changed + 1)
    for i in free:
        if i > 0:
            start = words.spans[i][0]
            before, after = text[:start], f" {text[start:]}"
            shown = _shown(words, before, after)
            yield _Blanked(row, "insert", i, shown, before, after, changed + 2)
    for i in find_merges(words.words, tags):
        merged = words.replace(i + 1, "")
        start, end = merged.spans[i]
        before, after = merged.text[:start], merged.text[end:]
        modified = len(merged.modified | {i})
        yield _Blanked(row, "merge", i, _shown(merged, before, after), before, after, modified)


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
