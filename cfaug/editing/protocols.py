"""Protocols of the parts of a caption editor.

All methods take and return lists, so that masks, similarities and perplexities run in large batches
across captions; the result for one item never depends on the others. No torch at import.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from cfaug.core.types import Example
    from cfaug.editing.sentence import Sentence, Slot

TAGS = {"noun": "NN", "adjective": "JJ", "verb": "VB"}
"""{part of speech: prefix of its Penn tags}."""


@dataclass(frozen=True)
class Blank:
    """A text, and the range of its characters to replace, from ``start`` to ``end``.

    White space is normalised; the text still has the replaced words, for fillers that use them. An
    empty range between two spaces inserts a word: ``Blank("a  dog", 2, 2)``.
    """

    text: str
    start: int
    end: int

    @property
    def word(self) -> str:
        """The current text of the range."""
        return self.text[self.start : self.end]


@dataclass(frozen=True)
class Fill:
    """A fill of a blank; ``word`` is ``None`` if it is not a whole word of letters."""

    word: str | None
    probability: float


@dataclass(frozen=True, eq=False)
class Candidate:
    """One edit of one caption, as filters and rankers see it.

    Attributes:
        row: the index of the caption in the call.
        example: the example of the caption.
        original: the words of the caption.
        part_of_speech: the part of speech of the replaced words: noun, adjective or verb.
        position: the number of the slot among the caption's slots, from 0.
        slot: the place of the replaced words in the original.
        tag: the tag of the last of these words in the original.
        after: the new word.
        edited: the words of the edited caption; ``slot.first`` is the index of the new word.
        rank: the rank of the word among the filler's guesses, from 0.
        probability: the filler's probability of the word.
        notes: the measurements of filters and rankers, such as similarity and perplexity.
    """

    row: int
    example: Example
    original: Sentence
    part_of_speech: str
    position: int
    slot: Slot
    tag: str
    after: str
    edited: Sentence
    rank: int
    probability: float
    notes: Mapping[str, float | str] = field(default_factory=dict)

    @property
    def before(self) -> str:
        """The replaced words."""
        start, end = self.slot.span(self.original)
        return self.original.text[start:end]


def round_digits(value: float) -> float:
    """Round to five significant digits, so that compared and written scores are reproducible.

    A model's scores differ in their last bits with the batch they were computed in.
    """
    return float(f"{value:.5g}")


class Described(Protocol):
    """A part that a card names."""

    def describe(self) -> dict[str, str]:
        """Return the part's names, revisions or hashes of weights; empty for plain rules."""
        ...


@runtime_checkable
class Tagger(Described, Protocol):
    """Parts of speech, as Penn Treebank tags: NN, NNS, JJ, VBG, ..."""

    def tag(self, sentences: Sequence[Sequence[str]]) -> list[list[str]]:
        """Return one tag for each word of each sentence."""
        ...


@runtime_checkable
class MaskFiller(Described, Protocol):
    """Proposes words for blanks, such as a masked language model."""

    def fill(self, blanks: Sequence[Blank], top_k: int) -> list[list[Fill]]:
        """Return up to ``top_k`` fills of each blank, the best first."""
        ...


@runtime_checkable
class SentenceEmbedder(Described, Protocol):
    """A sentence encoder; embeddings have unit length."""

    def encode(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Return embeddings (texts, dim)."""
        ...


@runtime_checkable
class CandidateFilter(Described, Protocol):
    """Keeps or drops candidates; ``name`` is its stage in the report."""

    name: str

    def keep(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Return the candidates that pass, in order, with notes added."""
        ...


@runtime_checkable
class Ranker(Described, Protocol):
    """Orders the remaining candidates."""

    def rank(self, groups: Sequence[Sequence[Candidate]]) -> list[list[Candidate]]:
        """Return each caption's candidates, the best first, with notes added; no group is empty."""
        ...
