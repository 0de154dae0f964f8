"""A caption and one changed text: the proposal of editors that leave the image alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cfaug.caption_difference import replaced_run
from cfaug.text.sentence import normalise
from cfaug.types import Edit, Edited, Example, Proposal

CHANGES, REASON = "changes", "reason"
"""Details of a changed text's member on disk: the changes made, or why there are none."""

EMPTY = "empty_text"
"""Reason of a text of white space, which has no proposal."""


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

    White space is normalised in both. Texts that are then equal have no edit, even if something was
    done, such as exchanging two equal words.

    Args:
        example: the example whose first text was changed.
        changed: the changed text.
        kind: kind of the edit, such as ``deletion``.
        changes: the changes in order, one JSON object each.
        reason: why the text is unchanged, in one word for counts; ignored if it is changed.
        keep_unchanged: whether a text that could not be changed still has a proposal, of the same
            text twice: tables over all captions average over those, too.

    Returns:
        One proposal, or none, with the reason as the stage at which it was rejected.
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
    # The difference ignores case and the space between words.
    return Edit(kind, before, after) if before or after else Edit(kind, original, changed)
