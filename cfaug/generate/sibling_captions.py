"""The other captions of an image, for editors that must not repeat them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from cfaug.core.protocols import Editor
from cfaug.core.types import Edited, Example
from cfaug.editing.filters import NotASibling
from cfaug.editing.substitution import Substitution

NAME = "siblings"


def sibling_aware(editor: Editor, examples: Sequence[Example]) -> Editor:
    """Return the editor; if ``NotASibling`` is among its filters, it sees each caption's siblings.

    Args:
        editor: the editor of captions.
        examples: all examples of the plan, whatever the part or shard: siblings may lie in
            different shards.
    """
    if not isinstance(editor, Substitution):
        return editor
    filters = editor.filters
    given = filters.values() if isinstance(filters, Mapping) else filters
    wanted = any(isinstance(one, NotASibling) for one in given)
    return SiblingAware(editor, examples) if wanted else editor


@dataclass(frozen=True)
class SiblingAware:
    """An editor that sees the siblings of each caption in ``example.extra["siblings"]``.

    Siblings are the other captions of the same group. They are not written to disk.

    Args:
        editor: the editor of captions, which reads the siblings.
        examples: all examples of the plan, among them the siblings of each caption.
    """

    editor: Editor
    examples: Sequence[Example]

    @cached_property
    def _texts(self) -> dict[str, dict[str, str]]:
        """Texts by group and key."""
        found: dict[str, dict[str, str]] = {}
        for one in self.examples:
            found.setdefault(one.group, {})[one.key] = one.text
        return found

    def edit(self, examples: Sequence[Example]) -> list[Edited]:
        """Return the editor's result for each example, in order."""
        edited = self.editor.edit([self._show(one) for one in examples])
        return [_hide(one, example) for one, example in zip(edited, examples, strict=True)]

    def describe(self) -> dict[str, str]:
        """Return the editor's description."""
        return self.editor.describe()

    def _show(self, example: Example) -> Example:
        group = self._texts.get(example.group, {})
        others = [text for key, text in group.items() if key != example.key]
        return replace(example, extra={**example.extra, NAME: others})


def _hide(edited: Edited, example: Example) -> Edited:
    """Return the result with the original example in place of the one with siblings."""
    proposals = tuple(replace(one, example=example) for one in edited.proposals)
    return replace(edited, proposals=proposals)
