"""A caption during insertion, and its final record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from cfaug.core.detections import Detection, detections_of
from cfaug.core.messages import say
from cfaug.core.types import Edit, Edited, Example, Rejected
from cfaug.editing.changed_text import EMPTY, propose_change
from cfaug.editing.protocols import round_digits
from cfaug.editing.sentence import normalise
from cfaug.xmai.insertions.canvas import Canvas
from cfaug.xmai.insertions.guesses import Guess
from cfaug.xmai.insertions.image_text import BROKEN_PHOTO
from cfaug.xmai.insertions.mentions import Mention, Mentions

KIND = "insertion"

NAMED = 5
"""Number of blocked words that are named on the terminal."""

NO_DETECTIONS, NO_MENTION = "no_detections", "no_mention"
NO_GUESS, NO_CANDIDATE, BLOCKED = "no_guess", "no_candidate", "blocked"
MASK_IN_TEXT = "mask_in_text"
"""Reasons of captions without insertion: nothing was detected; no detected object is mentioned; no
mention is within the language model's length limit; none of its guesses is a candidate; all
candidates are blocked; or the caption contains the mask token."""


@dataclass(frozen=True)
class ScoredGuess:
    """A guess that may be inserted, with its scores."""

    guess: Guess
    similarity: float | None = None
    distance: float | None = None
    score: float = 0.0


@dataclass
class Draft:
    """A caption during insertion, with the state of its masks."""

    example: Example
    text: str
    detections: tuple[Detection, ...] = ()
    mentions: Mentions = field(default_factory=Mentions)
    canvas: Canvas | None = None
    reason: str = ""
    chosen: list[ScoredGuess | None] = field(default_factory=list)
    blocked: list[tuple[Mention, str, str]] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)
    guesses: int = 0
    candidates: int = 0

    @property
    def found(self) -> tuple[Mention, ...]:
        """The mentions, from left to right."""
        return self.mentions.found

    @classmethod
    def of(cls, example: Example, mask: str) -> Draft:
        """Return the draft of an example, with the reason if no word can be inserted.

        Raises:
            UserError: if the example has no list of detections, or an invalid one.
        """
        draft = cls(example, normalise(example.text))
        if not draft.text:
            draft.reason = EMPTY
            return draft
        every = detections_of(example)
        # A name without letters ("???", "12") is not a word that an encoder or a caption could
        # use.
        draft.ignored = sorted(
            {a.name for one in every for a in one.attributes if not _is_word(a.name)}
        )
        draft.detections = tuple(
            replace(one, attributes=tuple(a for a in one.attributes if _is_word(a.name)))
            for one in every
        )
        if not every:
            draft.reason = NO_DETECTIONS
        elif mask in draft.text:
            draft.reason = MASK_IN_TEXT
        return draft

    def place(self, mentions: Mentions) -> None:
        """Set the mentions; if there are none, this is the reason for no insertion."""
        self.mentions = mentions
        self.chosen = [None] * len(mentions.found)
        if not mentions.found:
            self.reason = NO_MENTION

    def nouns(self, mention: Mention) -> set[str]:
        """Return the noun of a mention, and the labels of its objects."""
        return {mention.noun, *(self.detections[number].label for number in mention.objects)}

    def attributes(self, mention: Mention) -> list[str]:
        """Return the distinct names of the attributes of a mention's objects."""
        numbers = mention.objects
        return list(
            dict.fromkeys(a.name for number in numbers for a in self.detections[number].attributes)
        )


def propose(draft: Draft, keep_unchanged: bool) -> Edited:
    """Return the result for a caption: the proposal with its change, and the rejected edits."""
    if draft.reason == BROKEN_PHOTO:
        return Edited((), {BROKEN_PHOTO: 0})
    changed, changes = _changes(draft)
    edited = propose_change(
        draft.example, changed, KIND, changes=changes,
        reason=draft.reason or _why_not(draft), keep_unchanged=keep_unchanged,
    )  # fmt: skip
    if not draft.text:
        return edited
    survivors = {
        "detections": len(draft.detections),
        "mentions": len(draft.found),
        "guesses": draft.guesses,
        "candidates": draft.candidates,
    }
    rejected = tuple(
        Rejected(text, Edit(KIND, "", word), BLOCKED, {"object": m.label, "noun": m.noun})
        for m, word, text in draft.blocked
    )
    proposals = (replace(p, details=_details(p.details, draft)) for p in edited.proposals)
    return Edited(tuple(proposals), {**survivors, **edited.survivors}, rejected)


def say_blocked(edited: Sequence[Edited]) -> None:
    """Name the blocked words on the terminal, the most frequent first."""
    words = Counter(lost.edit.after.lower() for one in edited for lost in one.rejected)
    if words:
        usual = ", ".join(f"{word} {count:,}" for word, count in words.most_common(NAMED))
        captions = sum(bool(one.rejected) for one in edited)
        say(
            f"blocked: {words.total():,} words in {captions:,} of {len(edited):,} captions "
            f"({usual}{', ...' if len(words) > NAMED else ''}); recipe.editor.block_list says which"
        )


def _changes(draft: Draft) -> tuple[str, list[dict[str, Any]]]:
    """Return the changed text, and the details of each insertion in it."""
    if draft.canvas is None:
        return draft.text, []
    text, starts = draft.canvas.result()
    changes = []
    for i, chosen in enumerate(draft.chosen):
        if chosen is not None:
            about = _change(draft, draft.found[i], chosen)
            word, start = chosen.guess.word, starts[i] or 0
            written = text[start : start + len(word)]
            # Capitalised at the beginning of the caption; a word piece keeps its marks.
            same = written.lower() == word.lower()
            changes.append({"word": written if same else word, **about, "start": start})
    return text, changes


def _why_not(draft: Draft) -> str:
    """Return the reason why a caption with mentions has no insertion."""
    if draft.blocked:
        return BLOCKED
    return NO_CANDIDATE if draft.guesses else NO_GUESS


def _details(details: Sequence[Mapping[str, Any]], draft: Draft) -> tuple[Mapping[str, Any], ...]:
    """Add blocked words and ignored attributes to the details of a changed text."""
    first, about = details
    more: dict[str, Any] = {}
    if not any(draft.chosen):
        more["reason"] = draft.reason or _why_not(draft)
    if draft.blocked:
        more["blocked"] = [
            {"word": w, "object": m.label, "noun": m.noun} for m, w, _ in draft.blocked
        ]
    if draft.ignored:
        more["ignored_attributes"] = draft.ignored
    return first, {**about, **more}


def _change(draft: Draft, mention: Mention, chosen: ScoredGuess) -> dict[str, Any]:
    """Return the details of an insertion, as JSON."""
    first = draft.detections[mention.objects[0]] if mention.objects else None
    return {
        "object": mention.label,
        "noun": mention.noun,
        "box": None if first is None or first.box is None else list(first.box),
        "attributes": draft.attributes(mention),
        "language": chosen.guess.probability,
        "similarity": chosen.similarity,
        "dissimilarity": chosen.distance,
        "score": round_digits(chosen.score),
        "rank": chosen.guess.rank,
    }


def _is_word(name: str) -> bool:
    return any(character.isalpha() for character in name)
