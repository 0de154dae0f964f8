"""Measures of edits and their guards: LANCE's Table 3, for any writer of edits.

They count the notes that checks leave on every edit, proposed or rejected.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from cfaug.core.types import Edited
from cfaug.editing.edit_checks import KIND_CORRECT, LABEL_KEPT
from cfaug.editing.instructed_edit import TOO_LONG, UNCHANGED
from cfaug.editing.label_guard import CHANGES_LABEL

FAILED = (UNCHANGED, TOO_LONG)
"""Reasons of rejected edits that are unsuccessful without any check."""

OVERALL = "overall"


@dataclass(frozen=True)
class EditMeasures:
    """The counts of one kind of edit.

    Attributes:
        kind: the kind of edit, or ``overall``.
        edits: the number of judged edits: a model's distinct variations.
        correct: the number of edits of the requested kind.
        labelled: the number of edits that a check of the label judged.
        kept: the number of edits that keep the label.
        caught: the number of edits that change the label and were rejected for it.
        rejected: the number of edits that were rejected for the label.
    """

    kind: str
    edits: int = 0
    correct: int = 0
    labelled: int = 0
    kept: int = 0
    caught: int = 0
    rejected: int = 0

    @property
    def success(self) -> float | None:
        """The share of judged edits that are of the requested kind (Table 3, "Edit Success")."""
        return _share(self.correct, self.edits)

    @property
    def label_kept(self) -> float | None:
        """The share of edits that keep the label, before any guard."""
        return _share(self.kept, self.labelled)

    @property
    def precision(self) -> float | None:
        """The share of edits rejected for the label that change it (Table 3, "Filter prec.")."""
        return _share(self.caught, self.rejected)

    @property
    def recall(self) -> float | None:
        """The share of label-changing edits that were rejected for the label."""
        return _share(self.caught, self.labelled - self.kept)


def measure_edits(edited: Sequence[Edited]) -> list[EditMeasures]:
    """Return the measures of each kind, by name, and finally of all kinds together.

    Args:
        edited: the results of an ``InstructedEdit`` with checks. Edits without a check's note are
            not counted; if no edit has a note, the result is empty.
    """
    kinds: dict[str, list[_Judged]] = {}
    for one in edited:
        for judged in _judged(one):
            kinds.setdefault(judged.kind, []).append(judged)
    if not any(one.checked for some in kinds.values() for one in some):
        return []
    found = [_count(kind, some) for kind, some in sorted(kinds.items())]
    counts = (one.name for one in fields(EditMeasures) if one.name != "kind")
    sums = {name: sum(getattr(one, name) for one in found) for name in counts}
    return [*found, EditMeasures(OVERALL, **sums)]


def table_lines(measures: Sequence[EditMeasures]) -> list[str]:
    """Return the measures as rows of a Markdown table, in per cent; "-" if nothing was counted."""
    lines = [
        "| kind | edits | of that kind % | keep the label % | filter precision % | recall % |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for one in measures:
        shares = (one.success, one.label_kept, one.precision, one.recall)
        shown = " | ".join("-" if share is None else f"{100 * share:.1f}" for share in shares)
        lines.append(f"| {one.kind} | {one.edits:,} | {shown} |")
    return lines


@dataclass(frozen=True)
class _Judged:
    """An edit with its judgements."""

    kind: str
    reason: str
    notes: Mapping[str, Any]

    @property
    def checked(self) -> bool:
        return KIND_CORRECT in self.notes or LABEL_KEPT in self.notes

    @property
    def counts(self) -> bool:
        return KIND_CORRECT in self.notes or self.reason in FAILED


def _judged(edited: Edited) -> Iterator[_Judged]:
    for proposal in edited.proposals:
        edit, details = proposal.edits[-1], proposal.details
        if edit is not None and details:
            yield _Judged(edit.kind, "", details[-1])
    for lost in edited.rejected:
        if lost.text:
            yield _Judged(lost.edit.kind, lost.reason, lost.extra)


def _count(kind: str, edits: Sequence[_Judged]) -> EditMeasures:
    labelled = [one for one in edits if LABEL_KEPT in one.notes]
    # For a kind that no check judges, failed edits are not representative.
    judged = any(KIND_CORRECT in one.notes for one in edits)
    rejected = [one for one in labelled if one.reason == CHANGES_LABEL]
    return EditMeasures(
        kind,
        edits=sum(one.counts for one in edits) if judged else 0,
        correct=sum(one.notes.get(KIND_CORRECT) is True for one in edits),
        labelled=len(labelled),
        kept=sum(one.notes[LABEL_KEPT] is True for one in labelled),
        caught=sum(one.notes[LABEL_KEPT] is False for one in rejected),
        rejected=len(rejected),
    )


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
