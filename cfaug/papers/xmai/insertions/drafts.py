"""A caption during insertion: its objects, their mentions, and what was chosen for each."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from cfaug.core.types import Example
from cfaug.data.detections import Detection, detections_of
from cfaug.editing.protocols import EMPTY
from cfaug.editing.sentence import normalise
from cfaug.papers.xmai.insertions.mentions import Canvas, Guess, Mention

NO_DETECTIONS, NO_MENTION, MASK_IN_TEXT = "no_detections", "no_mention", "mask_in_text"
"""Reasons of captions without insertion: nothing was detected; no detected object is mentioned; or
the caption contains the mask token."""


@dataclass
class Draft:
    """A caption during insertion, with the state of its masks."""

    example: Example
    text: str
    detections: tuple[Detection, ...] = ()
    mentions: tuple[Mention, ...] = ()
    canvas: Canvas | None = None
    reason: str = ""
    chosen: list[Guess | None] = field(default_factory=list)
    blocked: list[tuple[Mention, str, str]] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)
    guesses: int = 0
    candidates: int = 0

    @classmethod
    def of(cls, example: Example, mask: str) -> Draft:
        """Return the draft of an example, with the reason if no word can be inserted."""
        draft = cls(example, normalise(example.text))
        if not draft.text:
            draft.reason = EMPTY
            return draft
        every = detections_of(example)
        # A name without letters ("???", "12") is not a word that an encoder or a caption could
        # use.
        draft.ignored = sorted(
            {a.name for detection in every for a in detection.attributes if not _is_word(a.name)}
        )
        draft.detections = tuple(
            replace(
                detection, attributes=tuple(a for a in detection.attributes if _is_word(a.name))
            )
            for detection in every
        )
        if not every:
            draft.reason = NO_DETECTIONS
        elif mask in draft.text:
            draft.reason = MASK_IN_TEXT
        return draft

    def place(self, mentions: tuple[Mention, ...]) -> None:
        """Set the mentions, from left to right; if there are none, this is the reason."""
        self.mentions = mentions
        self.chosen = [None] * len(mentions)
        if not mentions:
            self.reason = NO_MENTION

    def attributes(self, mention: Mention) -> list[str]:
        """Return the distinct names of the attributes of a mention's objects."""
        objects = (self.detections[number] for number in mention.objects)
        return list(
            dict.fromkeys(
                attribute.name for detection in objects for attribute in detection.attributes
            )
        )


def _is_word(name: str) -> bool:
    return any(character.isalpha() for character in name)
