"""One intervention on all captions, and the control: each caption once more, unchanged."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfaug.core.errors import UserError
from cfaug.core.protocols import Editor
from cfaug.core.types import Edit, Edited, Example, Proposal
from cfaug.editing.filters import is_control
from cfaug.editing.rule_edits import NOT_THERE, OTHER_CLASS, AddReconstruction, FixedEdit
from cfaug.generate.captions import edit_captions
from cfaug.generate.failures import Attempt
from cfaug.generate.job import Job, generate
from cfaug.generate.recipe import Recipe, RunSettings
from tests.editing.perturbing import photo_of


def edited(editor: FixedEdit, text: str, label: str | None = None):
    return editor.edit([Example("k", "g", (text,), label=label)])[0]


@pytest.mark.parametrize(
    ("settings", "text", "wanted", "words"),
    [
        ({"after": "painting", "before": "photo"}, "a photo of a dog", "a painting of a dog",
         ("photo", "painting")),
        ({"after": "oil painting", "before": "photo"}, "A photo of a dog.",
         "An oil painting of a dog.", ("photo", "oil painting")),
        ({"after": "sketch", "before": "photo"}, "Photo of a photo", "Sketch of a photo",
         ("Photo", "Sketch")),
        ({"after": "in the snow", "before": "on the beach"}, "a ball on the Beach",
         "a ball in the snow", ("on the Beach", "in the snow")),
        ({"after": "at night"}, "a ball on the beach.", "a ball on the beach at night.",
         ("", "at night")),
        ({"after": "a sketch of", "where": "start"}, "a ball", "a sketch of a ball",
         ("", "a sketch of")),
    ],
)  # fmt: skip
def test_the_intervention_is_made(settings, text, wanted, words):
    result = edited(FixedEdit("domain", **settings), text)
    (proposal,) = result.proposals
    assert proposal.texts == (text, wanted)
    assert proposal.edits == (None, Edit("domain", *words))
    assert proposal.details[1]["intervention"]


def test_what_it_does_not_fit_is_counted_by_reason():
    editor = FixedEdit("domain", "painting", "photo", labels=["dog"])
    assert edited(editor, "a photo", "cat").rejected_by == OTHER_CLASS
    assert edited(editor, "a photo", None).rejected_by == OTHER_CLASS
    assert edited(editor, "a picture of photos", "dog").rejected_by == NOT_THERE
    assert edited(editor, "a photo", "dog").proposals


@given(st.text(alphabet="ab. ", max_size=20), st.sampled_from(["ab", "b", "a b"]))
def test_everything_but_the_words_stays(text, before):
    if not text.strip():
        return
    result = edited(FixedEdit("object", "zz", before), text)
    if result.proposals:
        old, new = result.proposals[0].texts
        start = next(i for i in range(len(new)) if new[i : i + 2] == "zz")
        gone = len(old) - len(new) + 2
        assert old[:start] == new[:start]
        assert old[start + gone :] == new[start + 2 :]
        assert " ".join(old[start : start + gone].split()) == before
    else:
        assert result.rejected_by == NOT_THERE


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"after": " "}, "needs a kind and the new words"),
        ({"after": "Photo", "before": "photo"}, "is what recipe.editor.editor.before says"),
    ],
)
def test_invalid_settings_are_named(settings, said):
    with pytest.raises(UserError, match=said):
        FixedEdit("domain", **settings)


def test_a_class_that_no_photo_is_of_is_refused_before_anything_is_made(tmp_path):
    photos = [photo_of(label, "a photo", label) for label in ("ball", "cube")]

    def asked(*labels):
        editor = AddReconstruction(FixedEdit("domain", "painting", labels=labels))
        return Job(tmp_path, Recipe("fixed", editor), lambda: photos, RunSettings(stage="captions"))

    with pytest.raises(UserError, match=r"is of the class 'bal'; among the 2 classes .* 'ball'"):
        generate(asked("bal", "cube"))
    assert not list(tmp_path.iterdir())
    assert generate(asked("ball")).sets == 3


EDIT = Edit("domain", "photo", "sketch")


class Some:
    """Proposes as many edits as the example's group says."""

    def edit(self, examples):
        results = []
        for example in examples:
            count = int(example.group)
            some = [
                Proposal(example, (example.text, f"{example.text}!"), (None, EDIT))
                for _ in range(count)
            ]
            results.append(Edited(tuple(some), {"words": count}))
        return results

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
        assert [is_control(proposal) for proposal in edited.proposals] == [True] + [False] * n
        assert len({proposal.key for proposal in edited.proposals}) == 1 + n
        assert [proposal.edits[1] for proposal in rest] == [EDIT] * n
        assert edited.survivors == {"words": n}
    # Keys are a shard's, and no editor's business.
    attempt = edit_captions(Attempt(dict(enumerate(examples)), {}), editor)
    assert not attempt.failed


def test_examples_without_edits_or_words_may_go_without():
    none, some = Example("k", "0", ("a cat",)), Example("l", "1", ("a cat",))
    edited = AddReconstruction(Some(), always=False).edit([none, some])
    assert [len(result.proposals) for result in edited] == [0, 2]
    silent = Example("m", "0", (" ",))
    assert AddReconstruction(Some()).edit([silent])[0].proposals == ()


@pytest.mark.parametrize("kind", ["original", "reconstruction"])
def test_no_edit_is_of_the_kind_of_what_is_not_edited(kind):
    editor = AddReconstruction(FixedEdit(kind, "painting"))
    with pytest.raises(UserError, match=f"edits of the kind '{kind}' would be taken for what is"):
        editor.edit([Example("k", "g", ("a photo",))])
