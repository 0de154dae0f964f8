"""Caption edits that repair failures: photos that have the words before, and those after."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

from cfaug.core.errors import UserError
from cfaug.core.rng import generator
from cfaug.core.types import Edit, Edited, Example, Proposal
from cfaug.core.validation import Positive, Seed, check_fields
from cfaug.editing.protocols import CaptionEdit, EditGuard
from cfaug.editing.rule_edits import NOT_THERE, find_words, replace_words
from cfaug.editing.sentence import normalise
from cfaug.evaluation.failures import ModelFailure, read_failures

Direction = Literal["forward", "reverse"]
FailureWeights = Literal["effect", "equal"]
"""What a failure weighs: its shrunk effect times its prevalence, or as much as every other."""
FAILURE, DIRECTION = "failure", "direction"
"""Names of the failure's number in the file, from 0, and of the direction of its edit: in the
``extra`` of proposals, and as columns of the sets."""
DRAWN = "drawn"
"""The stage that draws ``per_photo`` edits of a photo."""


def read_targets(file: str | None, weights: FailureWeights) -> tuple[ModelFailure, ...]:
    """Return the failures to repair, at least one.

    Raises:
        UserError: if no file is named, or it holds no failure with a weight.
    """
    if file is None:
        raise UserError(
            "recipe=repair needs data.failures=FILE, which python evaluate.py benchmark=stress ... "
            "failures=FILE writes"
        )
    failures = read_failures(file)
    if not any(importance(failure, weights) > 0 for failure in failures):
        raise UserError(
            f"data.failures={file} holds no failure{' with an effect above 0' * bool(failures)}: "
            "there is nothing to repair"
        )
    return failures


def importance(failure: ModelFailure, weights: FailureWeights) -> float:
    """Return the weight of a failure in the budget; without one above 0 it is not repaired."""
    return failure.size * failure.prevalence if weights == "effect" else 1.0


class _Applied(NamedTuple):
    """An edit of one example for one failure."""

    number: int
    direction: Direction
    text: str
    edit: Edit


@dataclass(frozen=True)
class FailureEdits:
    """An editor that makes the edits of failures, and their reverse.

    A photo whose caption has a failure's words before gets the words after, if it is of one of the
    failure's classes. A photo of any class that has the words after gets those before: under a
    shortcut, hardly any photo of the class itself has them. A failure of coverage is not one of its
    classes, since training lacks the words after: photos of any class get them, and none loses
    them.

    Args:
        failures: a file that ``read_failures`` reads.
        guard: a guard that rejects edits of labelled photos after which the label may be wrong;
            ``None`` rejects none.
        per_photo: the largest number of edits of a photo, drawn in proportion to the importance of
            their failures; ``None`` makes all.
        seed: the seed of these draws, which are keyed by photo.
        weights: the importance of a failure.
    """

    failures: str | None = None
    guard: EditGuard | None = None
    per_photo: Positive | None = 1
    seed: Seed = 0
    weights: FailureWeights = "effect"

    def __post_init__(self) -> None:
        check_fields(self, "recipe.editor")

    @cached_property
    def _targets(self) -> tuple[ModelFailure, ...]:
        return read_targets(self.failures, self.weights)

    def check_source(self, examples: Sequence[Example]) -> None:
        """Refuse a file without failures, and failures of classes without any photo."""
        there = {example.label for example in examples}
        wanted = {label for failure in self._targets for label in failure.labels}
        if wanted and wanted.isdisjoint(there):
            named = sorted(label for label in there if label is not None)[:5]
            raise UserError(
                f"data.failures={self.failures}: no photo of data.source is of the classes "
                f"{', '.join(sorted(wanted)[:5])}; there are {', '.join(named) or 'no classes'}"
            )

    def edit(self, examples: Sequence[Example]) -> list[Edited]:
        """Return the edits of each example's first text, at most ``per_photo``."""
        applied = [self._apply(example) for example in examples]
        kept = self._keep_labels(examples, applied)
        return [
            self._propose(example, edits, allowed)
            for example, edits, allowed in zip(examples, applied, kept, strict=True)
        ]

    def describe(self) -> dict[str, str]:
        """Return the hash of the failures, and the guard."""
        about = {} if self.guard is None else self.guard.describe()
        return {"failures": hash_failures(self.failures, self.weights), **about}

    def _apply(self, example: Example) -> list[_Applied]:
        text = normalise(example.text)
        edits = []
        for number, failure in enumerate(self._targets):
            if importance(failure, self.weights) <= 0:
                continue
            sides: dict[Direction, tuple[str, str]] = {
                "forward": (failure.before, failure.after),
                "reverse": (failure.after, failure.before),
            }
            lacking = failure.cause == "coverage"
            if lacking:
                del sides["reverse"]
            for direction, (before, after) in sides.items():
                of_class = lacking or not failure.labels or example.label in failure.labels
                if direction == "forward" and not of_class:
                    continue
                if not before.strip() and find_words(text, after) is not None:
                    continue  # what is to be added is there
                replaced = replace_words(text, before, after)
                if replaced is not None and replaced[0] != text and replaced[0].strip():
                    changed, old, new = replaced
                    edits.append(_Applied(number, direction, changed, Edit(failure.kind, old, new)))
        return edits

    def _keep_labels(
        self, examples: Sequence[Example], applied: Sequence[Sequence[_Applied]]
    ) -> list[list[_Applied]]:
        """Return the edits that the guard accepts; photos without a label have none to keep."""
        if self.guard is None:
            return [list(edits) for edits in applied]
        pairs = [
            (row, edit)
            for row, (example, edits) in enumerate(zip(examples, applied, strict=True))
            for edit in edits
            if example.label is not None
        ]
        verdicts = self.guard.judge(
            [
                CaptionEdit(
                    row, examples[row], normalise(examples[row].text), edit.text, edit.edit.kind,
                    edit.edit.kind,
                )
                for row, edit in pairs
            ]
        )  # fmt: skip
        rejected = {pair for pair, verdict in zip(pairs, verdicts, strict=True) if verdict.reason}
        return [
            [edit for edit in edits if (row, edit) not in rejected]
            for row, edits in enumerate(applied)
        ]

    def _propose(
        self, example: Example, edits: Sequence[_Applied], allowed: Sequence[_Applied]
    ) -> Edited:
        if not edits:
            return Edited((), {NOT_THERE: 0})

        def order(edit: _Applied) -> float:
            rng = generator(self.seed, "repair", example.key, edit.number, edit.direction)
            weight = importance(self._targets[edit.number], self.weights)
            # The logarithm of their u ** (1 / weight), which rounds to 0 for a rare failure.
            return -math.log(rng.random() or 1e-300) / weight

        # Drawn without replacement in proportion to importance (Efraimidis and Spirakis, 2006).
        if self.per_photo is None:
            drawn = sorted(allowed, key=lambda edit: (edit.direction == "reverse", edit.number))
        else:
            drawn = sorted(allowed, key=order)
        # The reverse of A -> B is the edit of B -> A, if both are failures: it is made once.
        once: dict[str, _Applied] = {}
        for edit in drawn:
            once.setdefault(edit.text, edit)
        chosen = sorted(list(once.values())[: self.per_photo], key=lambda edit: edit[:2])
        proposals = []
        for applied in chosen:
            about = {FAILURE: applied.number, DIRECTION: applied.direction}
            details: tuple[Mapping[str, Any], ...] = ({}, about)
            proposals.append(
                Proposal(
                    example, (normalise(example.text), applied.text), (None, applied.edit), about,
                    f"{example.key}-{applied.number:03d}{applied.direction[0]}", details,
                )
            )  # fmt: skip
        return Edited(tuple(proposals), {"label": len(allowed), DRAWN: len(chosen)})


def hash_failures(file: str | None, weights: FailureWeights) -> str:
    """Return the sha256 of a file of failures that ``read_targets`` reads."""
    read_targets(file, weights)
    return hashlib.sha256(Path(str(file)).expanduser().read_bytes()).hexdigest()
