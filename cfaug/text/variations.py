"""What the parts of an instructed editor say to each other: requests, answers, edits, verdicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

from cfaug.caption_difference import caption_changes, longest_change
from cfaug.text.edit_prompts import EditPrompt
from cfaug.text.protocols import Described
from cfaug.types import Edit, Example


@dataclass(frozen=True)
class VariationRequest:
    """A caption of which variations are wanted.

    Attributes:
        caption: white space normalised, never empty.
        prompt: says how it is to vary.
        count: the most variations that are wanted.
        seed: of whatever is random about the answer; of this request alone.
    """

    caption: str
    prompt: EditPrompt
    count: int
    seed: int

    @property
    def kind(self) -> str:
        """The kind of edit that is wanted."""
        return self.prompt.kind


@dataclass(frozen=True)
class Variations:
    """What a model answered to one request.

    Attributes:
        texts: whole captions, as the model wrote them; they may be wrong in any way.
        problem: why there are none, a short text that is counted; empty where all went well.
        extra: what else is known, JSON: an excerpt of an answer that could not be read.
    """

    texts: tuple[str, ...] = ()
    problem: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)


@runtime_checkable
class VariationModel(Described, Protocol):
    """Writes variations of captions: rules, a language model here, or a server."""

    def vary(self, requests: Sequence[VariationRequest]) -> list[Variations]:
        """Return the answer to each request, in order, independent of the other requests.

        Raises:
            UserError: if nothing can be answered at all, as when a server is gone.
        """
        ...


@dataclass(frozen=True)
class CaptionEdit:
    """One edited caption, as guards and checks see it.

    Attributes:
        row: which caption of the call.
        example: whose caption was edited.
        caption: before the edit, white space normalised.
        text: after it.
        prompt: the name of the prompt that asked for it.
        kind: of edit that was asked for.
        notes: what guards and checks found out, JSON.
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
        """The longest run of words that went, and that came; see ``longest_change``."""
        return longest_change(self.caption, self.text)

    @property
    def edit(self) -> Edit:
        """The edit as records have it."""
        return Edit(self.kind, *self.span)

    def places(self) -> tuple[list[int], list[int]]:
        """Return the characters (start, end) from the first change to the last, on both sides."""
        changes = caption_changes(self.caption, self.text)
        first, last = changes[0], changes[-1]
        return [first.before[0], last.before[1]], [first.after[0], last.after[1]]


@dataclass(frozen=True)
class Verdict:
    """What a guard or a check says of an edit.

    Attributes:
        reason: why it is rejected, a short text that is counted; empty lets it through.
        notes: what was found out, JSON, whether it is rejected or not.
    """

    reason: str = ""
    notes: Mapping[str, Any] = field(default_factory=dict)


@runtime_checkable
class EditGuard(Described, Protocol):
    """Judges edited captions; ``name`` is its stage in the report."""

    name: str

    def judge(self, edits: Sequence[CaptionEdit]) -> list[Verdict]:
        """Return what it says of each edit, in order, independent of the other edits."""
        ...
