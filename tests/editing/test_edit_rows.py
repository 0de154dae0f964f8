"""Rows of caption edits: what is refused, how they are grouped, which captions are held out."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfaug.core.errors import UserError
from cfaug.data.sources.lists import json_lines
from cfaug.editing.edit_prompts import (
    EditAnswer,
    EditFormat,
    caption_key,
    group_rows,
    split_by_caption,
    write_rows,
)
from tests.properties import examples

ASKED = EditFormat.short()
ROW = {"caption": "a red ball", "kind": "adjective", "edit": "a blue ball"}


def read(tmp_path, *rows):
    file = tmp_path / "rows.jsonl"
    file.write_text(
        "".join(f"{one if isinstance(one, str) else json.dumps(one)}\n" for one in rows)
    )
    return group_rows(json_lines(file), ASKED, file)


def test_the_edits_of_a_caption_by_one_prompt_are_one_answer(tmp_path):
    rows = [
        ROW,
        {"caption": "a cat", "kind": "domain", "edit": "a sketch of a cat", "backend": "rules"},
        {**ROW, "kind": "background", "edit": "a red ball in the snow"},
        {**ROW, "caption": " A red  ball.", "edit": "a green ball"},
    ]
    assert read(tmp_path, *rows) == [
        EditAnswer("a red ball", "adjective", ("a blue ball", "a green ball")),
        EditAnswer("a cat", "domain", ("a sketch of a cat",)),
        EditAnswer("a red ball", "background-location", ("a red ball in the snow",)),
    ]


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"caption": "a", "edit": "b"}, "'kind' is missing"),
        ({**ROW, "edit": None}, "'edit' is null, which is invalid"),
        ({**ROW, "caption": "  "}, "'caption' is .* invalid"),
        ({**ROW, "kind": "colour"}, "kind 'colour' is invalid: .*choose from adjective"),
        ({**ROW, "edit": "A  red ball. "}, "the edit is the caption itself"),
        ({**ROW, "edit": "A blue ball"}, "duplicated: .*line 1 has the same"),
        ('{"caption": 1', "not JSON"),
        ("[1]", "should be a JSON object"),
    ],
)  # fmt: skip
def test_an_invalid_row_is_named_by_its_line(tmp_path, row, words):
    with pytest.raises(UserError, match=rf"rows\.jsonl, line 3.*{words}"):
        read(tmp_path, ROW, "", row)


def test_a_file_without_rows_says_what_a_row_is(tmp_path):
    with pytest.raises(UserError, match=r'rows\.jsonl has no row: a row is \{"caption"'):
        read(tmp_path, "")


ARTICLES = ("a", "A", "a photo of a", "A photo of a")
CAPTIONS = st.lists(
    st.sampled_from([f"{a} {b}" for a in ARTICLES for b in "xyzuv"]), min_size=1, max_size=20
)


@given(CAPTIONS, st.floats(0, 0.95), st.integers(0, 99))
@settings(max_examples=examples(60), deadline=None)
def test_no_caption_is_on_both_sides(captions, share, seed):
    answers = [EditAnswer(text, "domain", (f"{text} {i}",)) for i, text in enumerate(captions)]
    keys = {caption_key(text) for text in captions}
    aside = max(1, round(share * len(keys))) if share else 0
    if aside >= len(keys):
        with pytest.raises(UserError, match="to train on"):
            split_by_caption(answers, share, seed)
        return
    training, held = split_by_caption(answers, share, seed)
    sides = [{caption_key(one.caption) for one in side} for side in (training, held)]
    assert not sides[0] & sides[1]
    assert len(sides[1]) == aside
    assert sorted([*training, *held], key=answers.index) == answers
    assert (training, held) == split_by_caption(answers, share, seed)


def test_what_is_written_is_read_again(tmp_path):
    answers = [EditAnswer("a cat", "domain", ("a sketch of a cat", "a painting of a cat"))]
    write_rows(tmp_path / "a.jsonl", answers)
    assert group_rows(json_lines(tmp_path / "a.jsonl"), ASKED, "a") == answers
