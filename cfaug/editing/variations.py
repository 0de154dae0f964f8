"""The data passed between the parts of an instructed editor: requests, answers, edits, verdicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

from cfaug.core.caption_difference import caption_changes, longest_change
from cfaug.core.types import Edit, Example
from cfaug.editing.edit_prompts import EditPrompt
from cfaug.editing.protocols import Described


@dataclass(frozen=True)
class VariationRequest:
    """A request for variations of a caption.

    Attributes:
        caption: the caption with normalised white space; never empty.
        prompt: the prompt that names the kind of edit.
        count: the largest number of variations.
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
        texts: whole captions, as the model wrote them, unchecked.
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
        """Return the answer to each request, in order, independent of the other requests.

        Raises:
            UserError: if no request can be answered, for example because a server is unreachable.
        """
        ...


@dataclass(frozen=True)
class CaptionEdit:
    """One edited caption, as guards and checks see it.

    Attributes:
        row: the index of the caption in the call.
        example: the example of the caption.
        caption: the caption before the edit, with normalised white space.
        text: the caption after the edit.
        prompt: the name of the prompt that requested the edit.
        kind: the requested kind of edit.
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
