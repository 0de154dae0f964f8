"""Edits of failures: in both directions, of the right classes, the same whatever the batch."""

from __future__ import annotations

import json

import pytest

from cfaug.core.errors import UserError
from cfaug.core.types import Example
from cfaug.editing.label_guard import LabelGuard
from cfaug.papers.repair.edits import FailureEdits

SNOW = {"family": "stress", "kind": "background", "before": "on the beach", "after": "in the snow"}
RED = {"family": "stress", "kind": "adjective", "before": "red", "after": "orange", "effect": 0.2}


def write(tmp_path, *failures):
    file = tmp_path / "failures.jsonl"
    file.write_text("".join(f"{json.dumps(failure)}\n" for failure in failures))
    return str(file)


def photo(key, text, label=None):
    return Example(key, key, (text,), label=label)


def made(edited):
    return [
        (proposal.key, proposal.texts[1], proposal.edits[1].before, proposal.edits[1].after)
        for proposal in edited.proposals
    ]


def test_photos_are_edited_forward_and_in_reverse(tmp_path):
    editor = FailureEdits(write(tmp_path, {**SNOW, "labels": ["ball"]}), per_photo=None)
    beach, snow, cube, other = editor.edit(
        [
            photo("a", "a ball  on the Beach", "ball"),
            photo("b", "A cube in the snow.", "cube"),
            photo("c", "a cube on the beach", "cube"),
            photo("d", "a ball", "ball"),
        ]
    )
    assert made(beach) == [("a-000f", "a ball in the snow", "on the Beach", "in the snow")]
    assert made(snow) == [("b-000r", "A cube on the beach.", "in the snow", "on the beach")]
    assert made(cube) == [], "a failure of balls is repaired by balls"
    assert other.rejected_by == "words not found"
    (proposal,) = beach.proposals
    assert proposal.details == ({}, {"failure": 0, "direction": "forward"})
    assert proposal.texts[0] == "a ball on the Beach"


def test_what_training_lacks_is_brought_to_photos_of_all_classes_and_taken_from_none(tmp_path):
    file = write(tmp_path, {**SNOW, "labels": ["ball"], "cause": "coverage"})
    photos = [photo("a", "a ball on the beach", "ball"), photo("b", "a cube in the snow", "cube"),
              photo("c", "a cube on the beach", "cube")]  # fmt: skip
    assert [[key for key, *_ in made(each)] for each in FailureEdits(file).edit(photos)] == [
        ["a-000f"], [], ["c-000f"],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("before", "after", "text", "edited"),
    [
        ("", "at night", "a red ball.", "a red ball at night."),
        ("", "at night", "a red ball at night.", "a red ball."),
        ("red", "", "A red apple", "An apple"),
        ("red", "", "a ball", "a ball red"),
    ],
)
def test_words_are_added_and_removed(tmp_path, before, after, text, edited):
    failure = {**SNOW, "before": before, "after": after}
    (result,) = FailureEdits(write(tmp_path, failure)).edit([photo("a", text)])
    assert [proposal.texts[1] for proposal in result.proposals] == [edited]


def test_a_photo_is_edited_for_one_failure_drawn_by_importance(tmp_path):
    file = write(tmp_path, SNOW, RED)
    photos = [photo(f"p{i}", "a red ball on the beach") for i in range(300)]
    every = FailureEdits(file).edit(photos)
    first = [edited.proposals[0].extra["failure"] for edited in every]
    assert all(len(edited.proposals) == 1 for edited in every)
    assert 0.75 < first.count(0) / 300 < 0.91  # 1 to 0.2
    assert [FailureEdits(file).edit([single])[0] for single in photos[:20]] == every[:20]
    assert FailureEdits(file, seed=1).edit(photos) != every
    assert all(len(e.proposals) == 2 for e in FailureEdits(file, per_photo=2).edit(photos[:5]))


def test_equal_lines_are_drawn_equally_whatever_their_effect(tmp_path):
    """Three lines apply to every photo; a negative effect is a third of the draws, too."""
    lines = [SNOW, {**RED, "effect": -0.9, "shrunk": -0.5}, {**RED, "after": "pink", "effect": 0}]
    photos = [photo(f"p{i}", "a red ball on the beach") for i in range(300)]
    made_all = FailureEdits(write(tmp_path, *lines), weights="equal").edit(photos)
    first = [edited.proposals[0].extra["failure"] for edited in made_all]
    assert all(0.26 < first.count(number) / 300 < 0.41 for number in range(3))
    # Without equal weights only the first has any.
    by_effect = FailureEdits(write(tmp_path, *lines)).edit(photos)
    assert {edited.proposals[0].extra["failure"] for edited in by_effect} == {0}


def test_the_guard_keeps_labels_and_photos_without_one(tmp_path):
    file = write(tmp_path, {**SNOW, "kind": "subject", "before": "ball", "after": "cube"})
    editor = FailureEdits(file, guard=LabelGuard())
    ball, any_ball = editor.edit([photo("a", "a red ball", "ball"), photo("b", "a red ball")])
    assert ball.rejected_by == "label"
    assert made(any_ball)[0][1] == "a red cube"
    assert "label_guard" in editor.describe()


def test_files_without_targets_are_refused(tmp_path):
    with pytest.raises(UserError, match=r"needs data\.failures=FILE"):
        FailureEdits().check_source([])
    for failures in ((), ({**SNOW, "effect": 0},), ({**SNOW, "effect": -0.2},)):
        with pytest.raises(UserError, match="nothing to repair"):
            FailureEdits(write(tmp_path, *failures)).check_source([])
    editor = FailureEdits(write(tmp_path, {**SNOW, "labels": ["cat"]}))
    with pytest.raises(UserError, match=r"no photo of data\.source is of the classes cat"):
        editor.check_source([photo("a", "x", "dog")])
    editor.check_source([photo("a", "x", "cat")])


def test_rare_failures_are_drawn_by_importance_too(tmp_path):
    """Cells of 8 photos among 10,000: u ** (1 / importance) would be 0 for both."""
    file = write(
        tmp_path, *({**failure, "effect": 0.1, "prevalence": 8e-4} for failure in (SNOW, RED))
    )
    photos = [photo(f"p{i}", "a red ball on the beach") for i in range(200)]
    first = [edited.proposals[0].extra["failure"] for edited in FailureEdits(file).edit(photos)]
    assert 0.38 < first.count(0) / 200 < 0.62


def test_failures_in_both_directions_edit_a_photo_once(tmp_path):
    back = {**SNOW, "before": SNOW["after"], "after": SNOW["before"]}
    photos = [photo("a", "a ball on the beach"), photo("b", "a ball in the snow")]
    file = write(tmp_path, SNOW, back)
    beach, snow = FailureEdits(file, per_photo=None).edit(photos)
    assert made(beach) == [("a-000f", "a ball in the snow", "on the beach", "in the snow")]
    assert made(snow) == [("b-001f", "a ball on the beach", "in the snow", "on the beach")]
    for edited in FailureEdits(file, per_photo=2).edit(photos):
        assert len(edited.proposals) == 1
    # Photos of recipe=repair keep edits of both directions, which a failure needs.
    many = FailureEdits(file).edit([photo(str(n), "a ball on the beach") for n in range(40)])
    assert {edited.proposals[0].extra["direction"] for edited in many} == {"forward", "reverse"}
