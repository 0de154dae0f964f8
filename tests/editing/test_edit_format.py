"""Prompts as files, and the words in which a tuned model is asked and answers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfaug.core.errors import UserError
from cfaug.editing.edit_prompts import (
    ALPACA,
    EditFormat,
    EditPrompt,
    parse_variations,
    read_prompts,
    unique,
)

NAMES = ["adjective", "background-location", "background-weather", "domain", "object", "subject"]


def test_the_shipped_prompts_are_the_papers_five_kinds_with_two_of_the_background():
    for where in ("examples", "plain"):
        prompts = read_prompts(where)
        assert [one.name for one in prompts] == NAMES
        assert [one.kind for one in prompts].count("background") == 2
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
def test_an_invalid_prompt_is_named(tmp_path, name, text, said):
    (tmp_path / f"{name}.txt").write_text(text)
    with pytest.raises(UserError, match=said):
        read_prompts(tmp_path)


def test_a_folder_without_prompts_or_none_at_all_is_an_error(tmp_path):
    with pytest.raises(UserError, match="has no prompt: choose examples, plain"):
        read_prompts(tmp_path)
    with pytest.raises(UserError, match="is not a folder"):
        read_prompts(tmp_path / "missing")


def test_the_long_format_is_alpacas_with_the_header_of_the_released_code():
    text = EditFormat().prompt("background-weather", "a {dog}")
    assert text.startswith("Below is an instruction that describes a task")
    assert "### Instruction:\nGenerate all possible variations of the provided sentence by" in text
    assert text.endswith("### Input:\na {dog}\n\n### Variations:\n")
    assert (
        EditFormat()
        .prompt("domain", "a dog")
        .endswith("### Input:\nA photo of a dog\n\n### Variations:\n")
    )
    assert EditFormat().find("background").name == "background-location"
    with pytest.raises(UserError, match="not tuned for edits of the kind 'light': choose from adj"):
        EditFormat().prompt("light", "a dog")


def test_the_format_travels_with_the_weights(tmp_path):
    own = {"light-sun": EditPrompt("light-sun", "Change the light. <caption>")}
    for one in (EditFormat(), EditFormat.short(), EditFormat(ALPACA, own)):
        one.write(tmp_path)
        assert EditFormat.read(tmp_path) == one
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
    wanted = unique(one for one in variations if one.strip()[-1] != "'")
    assert parse_variations(EditFormat().response(wanted)) == wanted
