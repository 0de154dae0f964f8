"""The parts of a caption editor: their protocols, and what passes between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from cfaug.core.types import Edit, Edited, Example, Proposal
from cfaug.data.captions import caption_changes, longest_change, replaced_run
from cfaug.editing.edit_prompts import EditPrompt
from cfaug.editing.sentence import normalise

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from cfaug.editing.sentence import Sentence, Slot


# All methods take and return lists, so that masks, similarities and perplexities run in large
# batches across captions; the result for one item never depends on the others. No torch at import.

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
        part_of_speech: the part of speech of the replaced words: noun, adjective or verb.
        position: the number of the slot among the caption's slots, from 0.
        slot: the place of the replaced words in the original.
        tag: the tag of the last of these words in the original.
        edited: the words of the edited caption; ``slot.first`` is the index of the new word.
        rank: the rank of the word among the filler's guesses, from 0.
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


CHANGES, REASON = "changes", "reason"
"""Keys of a changed text's details on disk: its changes, or the reason why there are none."""
EMPTY = "empty_text"
"""Reason of a text that is only white space, which has no proposal."""


def propose_change(
    example: Example,
    changed: str,
    kind: str,
    *,
    changes: Sequence[Mapping[str, Any]],
    reason: str,
    keep_unchanged: bool = True,
) -> Edited:
    """Return the proposal of two texts: an example's first text, and the changed text.

    White space is normalised in both. Texts that are then equal have no edit, even after a change
    such as the exchange of two equal words.

    Args:
        kind: the kind of the edit, such as ``deletion``.
        changes: the changes in order, each a JSON object.
        reason: the reason, in one word, why the text is unchanged; ignored if it is changed.
        keep_unchanged: whether an unchanged text still has a proposal, of the same text twice:
            tables over all captions also average over those.

    Returns:
        One proposal, or none, with the reason as the stage at which it was rejected.
    """
    original, changed = normalise(example.text), normalise(changed)
    if not original or not changed:
        return Edited((), {EMPTY: 0})
    same = original == changed
    if same and not keep_unchanged:
        return Edited((), {reason: 0})
    edit: Edit | None = None
    about: dict[str, Any] = {CHANGES: [], REASON: reason}
    if not same:
        before, after = replaced_run(original, changed)
        if not before and not after:  # the difference ignores case and the space between words
            before, after = original, changed
        edit = Edit(kind, before, after)
        about = {CHANGES: [dict(change) for change in changes]}
    proposal = Proposal(
        example,
        texts=(original, changed),
        edits=(None, edit),
        extra={"raw": example.text} if example.text != original else {},
        details=({}, about),
    )
    return Edited((proposal,), {"changed": int(not same)})


@dataclass(frozen=True)
class VariationRequest:
    """A request for variations of a caption.

    Attributes:
        caption: the caption with normalised white space; never empty.
        seed: the seed of everything random about the answer, only for this request.
    """

    caption: str
    prompt: EditPrompt
    count: int
    seed: int

    @property
    def kind(self) -> str:
        """The requested kind of edit."""
        return self.prompt.kind


@dataclass(frozen=True)
class Variations:
    """A model's answer to one request.

    Attributes:
        problem: the reason why there are none, a short text that is counted; empty on success.
        extra: further details as JSON: an excerpt of an answer that could not be parsed.
    """

    texts: tuple[str, ...] = ()
    problem: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)


@runtime_checkable
class VariationModel(Described, Protocol):
    """Writes variations of captions: rules, a local language model, or a server."""

    def vary(self, requests: Sequence[VariationRequest]) -> list[Variations]:
        """Return the answer to each request, in order, independent of the other requests."""
        ...


@dataclass(frozen=True)
class CaptionEdit:
    """One edited caption, as guards and checks see it.

    Attributes:
        row: the index of the caption in the call.
        caption: the caption before the edit, with normalised white space.
        prompt: the name of the prompt that requested the edit.
        notes: the findings of guards and checks, as JSON.
    """

    row: int
    example: Example
    caption: str
    text: str
    prompt: str
    kind: str
    notes: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def span(self) -> tuple[str, str]:
        """The longest run of replaced words, and of new words; see ``longest_change``."""
        return longest_change(self.caption, self.text)

    @property
    def edit(self) -> Edit:
        """The edit in the form that records store."""
        return Edit(self.kind, *self.span)

    def places(self) -> tuple[list[int], list[int]]:
        """Return the characters (start, end) from the first change to the last, on both sides."""
        changes = caption_changes(self.caption, self.text)
        first, last = changes[0], changes[-1]
        return [first.before[0], last.before[1]], [first.after[0], last.after[1]]


@dataclass(frozen=True)
class Verdict:
    """The verdict of a guard or a check on an edit.

    Attributes:
        reason: the reason why the edit is rejected, a short text that is counted; empty accepts it.
        notes: the findings as JSON, whether the edit is rejected or not.
    """

    reason: str = ""
    notes: Mapping[str, Any] = field(default_factory=dict)


@runtime_checkable
class EditGuard(Described, Protocol):
    """Judges edited captions; ``name`` is its stage in the report."""

    name: str

    def judge(self, edits: Sequence[CaptionEdit]) -> list[Verdict]:
        """Return the verdict on each edit, in order, independent of the other edits."""
        ...
