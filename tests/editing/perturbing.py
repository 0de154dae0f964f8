"""Examples and models of variations for tests of instructed edits."""

from __future__ import annotations

from dataclasses import dataclass, field

from cfaug.core.types import Example
from cfaug.editing.protocols import CaptionEdit, Variations


def photo_of(label, text, key="k"):
    return Example(key, key, (text,), label=label)


def edit_of(label, caption, text, kind="adjective", **notes):
    return CaptionEdit(0, photo_of(label, caption), caption, text, kind, kind, notes)


@dataclass
class Said:
    """Answers from a table by the prompt's name, and remembers what it was asked."""

    answers: dict[str, tuple[str, ...]]
    asked: list = field(default_factory=list)

    def vary(self, requests):
        self.asked += requests
        return [
            Variations(
                tuple(
                    t.replace("*", request.caption)
                    for t in self.answers.get(request.prompt.name, ())
                )
            )
            for request in requests
        ]

    def describe(self):
        return {"perturber": "said"}
