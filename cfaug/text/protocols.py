"""What the parts of a caption editor promise each other. Everything takes and gives lists.

So masks, similarities and perplexities run in large batches across captions; what is said of one
item never depends on the others. No torch at import.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from cfaug.text.sentence import Sentence, Slot
    from cfaug.types import Example

TAGS = {"noun": "NN", "adjective": "JJ", "verb": "VB"}
"""What the Penn tags of a part of speech begin with."""


@dataclass(frozen=True)
class Blank:
    """A text and the characters ``start`` to ``end`` of it that are to be filled anew.

    White space is normalised; the words that go are still there, for fillers that look at them. A
    word is inserted where none goes and a space stands on either side: ``Blank("a  dog", 2, 2)``.
    """

    text: str
    start: int
    end: int

    @property
    def word(self) -> str:
        """What stands there now."""
        return self.text[self.start : self.end]


@dataclass(frozen=True)
class Fill:
    """One way to fill a blank; ``word`` is ``None`` where it is not a whole word of letters."""

    word: str | None
    probability: float


@dataclass(frozen=True, eq=False)
class Candidate:
    """One edit of one caption, as filters and the choice see it.

    Attributes:
        row: which caption of the call.
        example: the example whose caption is edited.
        original: its words.
        part_of_speech: what is replaced: noun, adjective or verb.
        position: number of the slot among the caption's slots, from 0.
        slot: the original words that go.
        tag: their (last word's) tag in the original.
        after: the word that comes.
        edited: the words of the edited caption; ``slot.first`` is the new word's place.
        rank: of the word among the filler's, from 0.
        probability: the filler's.
        notes: what filters and the choice found out: similarity, perplexity.
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
        """The words that go."""
        start, end = self.slot.span(self.original)
        return self.original.text[start:end]


def round_digits(value: float) -> float:
    """Round to five significant digits, so that what is compared and written is the same anywhere.

    A model's scores differ in their last bits with the batch they were computed in.
    """
    return float(f"{value:.5g}")


class Described(Protocol):
    """Something a card names."""

    def describe(self) -> dict[str, str]:
        """Return what the part is: names, revisions or hashes of weights; empty for plain rules."""
        ...


@runtime_checkable
class Tagger(Described, Protocol):
    """Parts of speech, as Penn Treebank tags: NN, NNS, JJ, VBG, ..."""

    def tag(self, sentences: Sequence[Sequence[str]]) -> list[list[str]]:
        """Return one tag a word of each sentence."""
        ...


@runtime_checkable
class MaskFiller(Described, Protocol):
    """What could stand in a blank, such as a masked language model's guesses."""

    def fill(self, blanks: Sequence[Blank], top_k: int) -> list[list[Fill]]:
        """Return each blank's ``top_k`` best fills, the best first; fewer if there are no more."""
        ...


@runtime_checkable
class SentenceEmbedder(Described, Protocol):
    """A sentence encoder; embeddings have unit length."""

    def encode(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Return embeddings (texts, dim)."""
        ...


@runtime_checkable
class CandidateFilter(Described, Protocol):
    """Lets candidates through or not; ``name`` is its stage in the report."""

    name: str

    def keep(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Return those that pass, in order, with notes added."""
        ...


@runtime_checkable
class Ranker(Described, Protocol):
    """Puts the candidates that are left in order."""

    def rank(self, groups: Sequence[Sequence[Candidate]]) -> list[list[Candidate]]:
        """Return each caption's candidates, none of them empty, the best first, notes added."""
        ...
