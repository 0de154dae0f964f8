"""The control of a method that edits images: a proposal of every text, unchanged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from cfaug.core.errors import UserError
from cfaug.core.protocols import ChecksSource, Editor
from cfaug.core.types import ORIGINAL, RECONSTRUCTION, Edit, Edited, Example, Proposal


@dataclass(frozen=True)
class AddReconstruction:
    """Adds a proposal without any edit before the proposals of another editor.

    The image editor's result for it is the method's reconstruction of the source image, whose
    losses are not due to an edit (LANCE, Table 2, "Reconstructed").

    Args:
        editor: the editor of the other proposals.
        always: whether examples without proposals get the control, too; examples without any words
            never do.
    """

    editor: Editor
    always: bool = True

    def check_source(self, examples: Sequence[Example]) -> None:
        """Let the editor refuse settings that name an entry that no example has."""
        if isinstance(self.editor, ChecksSource):
            self.editor.check_source(examples)

    def edit(self, examples: Sequence[Example]) -> list[Edited]:
        """Return the editor's result for each example, in order, with the control first.

        Raises:
            UserError: if an edit has the kind of the control or of the original photos.
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
    """Return whether a proposal has several texts, all equal."""
    return len(proposal.texts) > 1 and len(set(proposal.texts)) == 1
