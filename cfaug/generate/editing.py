"""Editing of a shard's examples by the recipe's editor, with checks of its results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cfaug.core.errors import UserError
from cfaug.core.protocols import Editor
from cfaug.core.types import Edited, Example
from cfaug.generate.failures import Attempt, attempt, check_json, check_results, say_some


def edit_captions(examples: Attempt[Example], editor: Editor) -> Attempt[Edited]:
    """Edit a shard's examples in one call; if it fails, one by one to find the failing examples.

    Args:
        examples: the annotated examples; those that failed are not edited.
        editor: the editor that proposes edits.

    Returns:
        The editor's results by place. An example that was rejected, here or by an annotator, has no
        proposal, and its reason is among the survivors.
    """
    places = sorted(examples.done)
    some = [examples.done[place] for place in places]

    def edit(asked: Sequence[Example]) -> list[Edited]:
        found = check_results(editor.edit(asked), asked, "recipe.editor")
        for example, one in zip(asked, found, strict=True):
            _check_edited(one, example)
        return found

    found = attempt(some, edit, lambda example: example.key)
    edited = {places[row]: one for row, one in found.done.items()}
    failed = {**examples.failed, **{places[row]: one for row, one in found.failed.items()}}
    rejected, failed = Attempt(edited, failed).split_rejections()
    for place, one in rejected.items():
        edited[place] = Edited((), {one.reason: 0})
    say_some([f"rejected: {one.key} ({one.reason}): {one.error}" for one in rejected.values()])
    return Attempt(edited, failed)


def _check_edited(edited: Any, example: Example) -> None:
    """Refuse an invalid result of an editor for an example.

    Raises:
        UserError: if the result is invalid; it names the example.
    """
    what = f"recipe.editor, example {example.key!r}"
    if not isinstance(edited, Edited):
        raise UserError(f"{what}: should be a cfaug.core.types.Edited, not {type(edited).__name__}")
    for name, left in edited.survivors.items():
        if isinstance(left, bool) or not isinstance(left, int):
            raise UserError(f"{what}: survivors[{name!r}] should be a whole number, not {left!r}")
    for one in edited.proposals:
        if one.example.key != example.key:
            raise UserError(f"{what}: the proposal {one.key!r} is of example {one.example.key!r}")
        for about in (one.extra, *one.details):
            check_json(about, f"{what}: what is known of the proposal {one.key!r}")
    for lost in edited.rejected:
        check_json(lost.extra, f"{what}: what is known of the rejected edit {lost.text!r}")
