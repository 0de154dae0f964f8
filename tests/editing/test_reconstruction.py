"""The control: each caption once more, unchanged, before the edits."""

from __future__ import annotations

import pytest

from cfaug.core.errors import UserError
from cfaug.core.protocols import Editor
from cfaug.core.types import Edit, Edited, Example, Proposal
from cfaug.editing.rule_edits import AddReconstruction, FixedEdit, is_control
from cfaug.generate.captions import edit_captions
from cfaug.generate.failures import Attempt

EDIT = Edit("domain", "photo", "sketch")


class Some:
    """Proposes as many edits as the example's group says."""

    def edit(self, examples):
        return [
            Edited(
                tuple(
                    Proposal(e, (e.text, f"{e.text}!"), (None, EDIT)) for _ in range(int(e.group))
                ),
                {"words": int(e.group)},
            )
            for e in examples
        ]

    def describe(self):
        return {"editor": "some"}


def test_the_control_is_first_and_changes_nothing():
    examples = [Example(f"k{n}", str(n), ("a photo  of a cat",)) for n in range(3)]
    editor = AddReconstruction(Some())
    assert isinstance(editor, Editor)
    assert editor.describe() == {"editor": "some"}
    for n, edited in enumerate(editor.edit(examples)):
        control, *rest = edited.proposals
        assert control.texts == ("a photo of a cat",) * 2
        assert control.edits == (None, Edit("reconstruction", "", ""))
        assert [is_control(one) for one in edited.proposals] == [True] + [False] * n
        assert len({one.key for one in edited.proposals}) == 1 + n
        assert [one.edits[1] for one in rest] == [EDIT] * n
        assert edited.survivors == {"words": n}
    # Keys are a shard's, and no editor's business.
    found = edit_captions(Attempt(dict(enumerate(examples)), {}), editor)
    assert not found.failed


def test_examples_without_edits_or_words_may_go_without():
    none, some = Example("k", "0", ("a cat",)), Example("l", "1", ("a cat",))
    edited = AddReconstruction(Some(), always=False).edit([none, some])
    assert [len(one.proposals) for one in edited] == [0, 2]
    silent = Example("m", "0", (" ",))
    assert AddReconstruction(Some()).edit([silent])[0].proposals == ()


@pytest.mark.parametrize("kind", ["original", "reconstruction"])
def test_no_edit_is_of_the_kind_of_what_is_not_edited(kind):
    editor = AddReconstruction(FixedEdit(kind, "painting"))
    with pytest.raises(UserError, match=f"edits of the kind '{kind}' would be taken for what is"):
        editor.edit([Example("k", "g", ("a photo",))])
