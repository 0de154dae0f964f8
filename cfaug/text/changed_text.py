"""A caption beside one changed text of it: the proposal of editors that leave the image alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cfaug.caption_difference import replaced_run
from cfaug.text.sentence import normalise
from cfaug.types import Edit, Edited, Example, Proposal

CHANGES, REASON = "changes", "reason"
"""What a changed text's member on disk says of itself: the changes made, or why there are none."""

EMPTY = "empty_text"
"""Why a text of white space has no proposal."""


def propose_change(
    example: Example,
    changed: str,
    kind: str,
    *,
    changes: Sequence[Mapping[str, Any]],
    reason: str,
    keep_unchanged: bool = True,
) -> Edited:
    """Return the proposal of two texts: an example's first text, and what became of it.

    White space is normalised in both. Texts that then are equal differ by no edit, whatever was
    done on the way, as when two equal words were exchanged.

    Args:
        example: whose first text was changed.
        changed: the changed text.
        kind: of the edit, such as ``deletion``.
        changes: what was done, one JSON object a change, in order.
        reason: why the text is unchanged, in one word for counts; ignored where it is changed.
        keep_unchanged: whether a text that nothing could be done to still has its proposal, of the
            same text twice: tables over all captions average over those, too.

    Returns:
        One proposal, or none with the reason as the stage that nothing survived.
    """
    original, changed = normalise(example.text), normalise(changed)
    if not original or not changed:
        return Edited((), {EMPTY: 0})
    same = original == changed
    if same and not keep_unchanged:
        return Edited((), {reason: 0})
    about = {CHANGES: [], REASON: reason} if same else {CHANGES: [dict(one) for one in changes]}
    extra = {"raw": example.text} if example.text != original else {}
    proposal = Proposal(
        example,
        texts=(original, changed),
        edits=(None, None if same else _edit(kind, original, changed)),
        extra=extra,
        details=({}, about),
    )
    return Edited((proposal,), {"changed": int(not same)})


def _edit(kind: str, original: str, changed: str) -> Edit:
    """Return the edit: the run of words by which the texts differ, else the texts themselves."""
    before, after = replaced_run(original, changed)
    # Words that differ in case alone, or in the space between them, are equal to that difference.
    return Edit(kind, before, after) if before or after else Edit(kind, original, changed)
