"""A caption and one changed text: the proposal of editors that do not change the image."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cfaug.core.caption_difference import replaced_run
from cfaug.core.types import Edit, Edited, Example, Proposal
from cfaug.editing.sentence import normalise

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
        example: the example whose first text was changed.
        changed: the changed text.
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
    """Return the edit: the run of words by which the texts differ, or else the whole texts."""
    before, after = replaced_run(original, changed)
    # The difference ignores case and the space between words.
    return Edit(kind, before, after) if before or after else Edit(kind, original, changed)
