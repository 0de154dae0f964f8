"""The control of a method that edits images: every text again, unchanged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from cfaug.errors import UserError
from cfaug.protocols import ChecksSource, Editor
from cfaug.types import ORIGINAL, RECONSTRUCTION, Edit, Edited, Example, Proposal


@dataclass(frozen=True)
class AddReconstruction:
    """Puts a proposal without any edit before those of another editor.

    The image editor's result is the method's reconstruction of the source image, whose losses are
    not due to an edit (LANCE, Table 2, "Reconstructed").

    Args:
        editor: the editor whose proposals follow.
        always: also for examples without proposals; examples without any words get none.
    """

    editor: Editor
    always: bool = True

    def check_source(self, examples: Sequence[Example]) -> None:
        """Let the editor refuse settings that name something that no example has."""
        if isinstance(self.editor, ChecksSource):
            self.editor.check_source(examples)

    def edit(self, examples: Sequence[Example]) -> list[Edited]:
        """Return the editor's result for each example, in order, the control first.

        Raises:
            UserError: if an edit is of the control's kind, or of the kind that photos are of.
        """
        return [
            self._add(example, edited)
            for example, edited in zip(examples, self.editor.edit(examples), strict=True)
        ]

    def _add(self, example: Example, edited: Edited) -> Edited:
        kinds = {edit.kind for one in edited.proposals for edit in one.edits if edit is not None}
        for taken in kinds & {ORIGINAL, RECONSTRUCTION}:
            raise UserError(
                f"recipe.editor: edits of the kind {taken!r} would be taken for what is not "
                "edited: choose another name for the kind"
            )
        text = " ".join(example.text.split())
        if not text or not (edited.proposals or self.always):
            return edited
        key = f"{example.key}-{RECONSTRUCTION}"
        nothing = Edit(RECONSTRUCTION, "", "")
        control = Proposal(example, (text, text), (None, nothing), key=key)
        return replace(edited, proposals=(control, *edited.proposals))

    def describe(self) -> dict[str, str]:
        """Return the editor's description."""
        return dict(self.editor.describe())


def is_control(proposal: Proposal) -> bool:
    """Return whether a proposal of several texts changes none of them."""
    return len(proposal.texts) > 1 and len(set(proposal.texts)) == 1
