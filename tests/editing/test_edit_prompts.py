"""Prompts as files, the words in which a tuned model is asked and answers, and rows of edits."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfaug.core.errors import UserError
from cfaug.data.sources.lists import json_lines
from cfaug.editing.edit_prompts import (
    ALPACA,
    EditAnswer,
    EditFormat,
    EditPrompt,
    caption_key,
    group_rows,
    parse_variations,
    read_prompts,
    split_by_caption,
    unique,
    write_rows,
)
from tests.properties import examples

NAMES = ["adjective", "background-location", "background-weather", "domain", "object", "subject"]


def test_the_shipped_prompts_are_the_papers_five_kinds_with_two_of_the_background():
    for where in ("examples", "plain"):
        prompts = read_prompts(where)
        assert [prompt.name for prompt in prompts] == NAMES
        assert [prompt.kind for prompt in prompts].count("background") == 2
    for shown, plain in zip(read_prompts("examples"), read_prompts("plain"), strict=True):
        # Table 5: the instructions of the tuned model are the same prompts without the examples.
        assert shown.text.startswith(plain.instruction)
        assert "For example: Change" in shown.text.replace("change", "Change")
        assert "example" not in plain.text


def test_the_domain_prompt_feeds_a_photo_of_the_caption_once():
    [domain] = read_prompts("examples", ["domain"])
    assert domain.say("a dog in the snow").endswith("A photo of a dog in the snow")
    for caption in ("a photo of a dog", "A photograph of a dog"):
        assert domain.say(caption).endswith("A photo of a dog")
    [subject] = read_prompts("examples", ["subject"])
    assert subject.say("a photo of a dog").endswith("\na photo of a dog")
    assert domain.input("a dog") == "A photo of a dog"
    assert subject.input("a dog") == "a dog"


def test_a_folder_of_ones_own_gives_kinds_of_ones_own(tmp_path):
    (tmp_path / "lighting.txt").write_text("Change only the light.\n<caption>\n")
    (tmp_path / "camera-angle.txt").write_text("Change the camera of: <caption>, please.")
    camera, lighting = read_prompts(tmp_path)
    assert [camera.kind, lighting.kind] == ["camera", "lighting"]
    assert camera.say("a {odd} <b>") == "Change the camera of: a {odd} <b>, please."
    assert read_prompts(tmp_path, ["lighting"]) == (lighting,)
    with pytest.raises(UserError, match="no prompt of the kind 'subject': choose kinds from camer"):
        read_prompts(tmp_path, ["subject"])


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("subject", "no place", "should have <caption> once"),
        ("subject", "<caption> <caption>", "should have <caption> once"),
        ("Sub ject", "<caption>", "name of a prompt.*is invalid"),
    ],
)
def test_an_invalid_prompt_or_folder_is_named(tmp_path, name, text, said):
    with pytest.raises(UserError, match="has no prompt: choose examples, plain"):
        read_prompts(tmp_path)
    (tmp_path / f"{name}.txt").write_text(text)
    with pytest.raises(UserError, match=said):
        read_prompts(tmp_path)
    with pytest.raises(UserError, match="is not a folder"):
        read_prompts(tmp_path / "missing")


def test_the_long_format_is_alpacas_with_the_header_of_the_released_code():
    text = EditFormat().prompt("background-weather", "a {dog}")
    assert text.startswith("Below is an instruction that describes a task")
    assert "### Instruction:\nGenerate all possible variations of the provided sentence by" in text
    assert text.endswith("### Input:\na {dog}\n\n### Variations:\n")
    domain = EditFormat().prompt("domain", "a dog")
    assert domain.endswith("### Input:\nA photo of a dog\n\n### Variations:\n")
    assert EditFormat().find("background").name == "background-location"
    with pytest.raises(UserError, match="not tuned for edits of the kind 'light': choose from adj"):
        EditFormat().prompt("light", "a dog")


def test_the_format_travels_with_the_weights(tmp_path):
    prompts = {"light-sun": EditPrompt("light-sun", "Change the light. <caption>")}
    for edit_format in (EditFormat(), EditFormat.short(), EditFormat(ALPACA, prompts)):
        edit_format.write(tmp_path)
        assert EditFormat.read(tmp_path) == edit_format
    (tmp_path / "edit_format.json").write_text('{"template": "no place"}')
    with pytest.raises(UserError, match=r"edit_format.*is invalid"):
        EditFormat.read(tmp_path)
    with pytest.raises(UserError, match="lance_perturber"):
        EditFormat.read(tmp_path / "elsewhere")


def test_answers_are_read_whatever_marks_their_lines():
    said = '1. a cat\n 2) "a dog"\n(3) a cow.\n- a pig\n* 7 ants\n\nA CAT\n### Input:\nno more\n'
    assert parse_variations(said) == ("a cat", "a dog", "a cow.", "a pig", "7 ants")
    assert parse_variations("  \n") == ()
    assert parse_variations("2 dogs in the snow") == ("2 dogs in the snow",)


@given(
    st.lists(
        st.text("ab 'dog-é1", min_size=1).filter(lambda t: t.strip() and t.strip()[0].isalpha())
    )
)
def test_what_a_response_says_is_read_back(variations):
    wanted = unique(text for text in variations if text.strip()[-1] != "'")
    assert parse_variations(EditFormat().response(wanted)) == wanted


ASKED = EditFormat.short()
ROW = {"caption": "a red ball", "kind": "adjective", "edit": "a blue ball"}


def read(tmp_path, *rows):
    file = tmp_path / "rows.jsonl"
    file.write_text(
        "".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows)
    )
    return group_rows(json_lines(file), ASKED, file)


def test_the_edits_of_a_caption_by_one_prompt_are_one_answer(tmp_path):
    rows = [
        ROW,
        {"caption": "a cat", "kind": "domain", "edit": "a sketch of a cat", "backend": "rules"},
        {**ROW, "kind": "background", "edit": "a red ball in the snow"},
        {**ROW, "caption": " A red  ball.", "edit": "a green ball"},
    ]
    answers = [
        EditAnswer("a red ball", "adjective", ("a blue ball", "a green ball")),
        EditAnswer("a cat", "domain", ("a sketch of a cat",)),
        EditAnswer("a red ball", "background-location", ("a red ball in the snow",)),
    ]
    assert read(tmp_path, *rows) == answers
    write_rows(tmp_path / "written.jsonl", answers)
    assert group_rows(json_lines(tmp_path / "written.jsonl"), ASKED, "it") == answers


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"caption": "a", "edit": "b"}, "'kind' is missing"),
        ({**ROW, "edit": None}, "'edit' is null, which is invalid"),
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
    sides = [{caption_key(answer.caption) for answer in side} for side in (training, held)]
    assert not sides[0] & sides[1]
    assert len(sides[1]) == aside
    assert sorted([*training, *held], key=answers.index) == answers
    assert (training, held) == split_by_caption(answers, share, seed)
