"""What the other captions of an image say, shown to an editor that must not repeat them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from cfaug.protocols import CaptionEditor, Edited
from cfaug.text.filters import NotASibling
from cfaug.text.substitution import Substitution
from cfaug.types import Caption

NAME = "siblings"


def sibling_aware(editor: CaptionEditor, captions: Sequence[Caption]) -> CaptionEditor:
    """Return the editor, shown each caption's siblings if ``NotASibling`` is among its filters.

    Args:
        editor: of captions.
        captions: every caption of the plan, whichever part or shard is edited: siblings may lie in
            different shards.
    """
    if not isinstance(editor, Substitution):
        return editor
    filters = editor.filters
    given = filters.values() if isinstance(filters, Mapping) else filters
    wanted = any(isinstance(one, NotASibling) for one in given)
    return SiblingAware(editor, captions) if wanted else editor


@dataclass(frozen=True)
class SiblingAware:
    """Edits captions that carry, for the time of the edit only, their siblings' texts.

    Siblings are the other captions of the same group. The records do not repeat them.

    Args:
        editor: reads ``caption.extra["siblings"]``.
        captions: all that may be siblings.
    """

    editor: CaptionEditor
    captions: Sequence[Caption]

    @cached_property
    def _texts(self) -> dict[str, dict[str, str]]:
        """Texts by group and key."""
        found: dict[str, dict[str, str]] = {}
        for one in self.captions:
            found.setdefault(one.group, {})[one.key] = one.text
        return found

    def edit(self, captions: Sequence[Caption]) -> list[Edited]:
        """Return what became of each caption, in order."""
        return [_plain(edited) for edited in self.editor.edit([self._shown(c) for c in captions])]

    def describe(self) -> dict[str, str]:
        """Return what the editor says of itself."""
        return self.editor.describe()

    def _shown(self, caption: Caption) -> Caption:
        group = self._texts.get(caption.group, {})
        others = [text for key, text in group.items() if key != caption.key]
        return replace(caption, extra={**caption.extra, NAME: others})


def _plain(edited: Edited) -> Edited:
    if edited.result is None:
        return edited
    extra = {name: value for name, value in edited.result.extra.items() if name != NAME}
    return replace(edited, result=replace(edited.result, extra=extra))
