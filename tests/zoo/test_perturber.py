"""The perturber of the embedded world: its rows, how it is made, and what is shipped."""

from __future__ import annotations

import itertools
import shlex
from dataclasses import replace

import pytest

from cfaug.core.errors import UserError
from cfaug.core.weights import resolve
from cfaug.data.sources.lists import json_lines
from cfaug.editing.edit_prompts import EditFormat, group_rows
from cfaug.worlds.shapescapes.language import WorldVariations
from tests.zoo.cards import card
from zoo import perturber
from zoo.perturber import PerturberSettings, RowSettings

FOLDER = resolve("zoo:perturber")
ROWS = RowSettings(out="rows.jsonl", captions=40)


def test_rows_are_read_as_they_were_drawn(tmp_path, capsys):
    file = tmp_path / "rows.jsonl"
    assert perturber.main_rows([f"out={file}", "captions=40"]) == 0
    answers = perturber.draw_answers(ROWS)
    assert group_rows(json_lines(file), EditFormat.short(), file) == answers
    assert "40 captions" in capsys.readouterr().out
    with pytest.raises(UserError, match="already"):
        perturber.main_rows([f"out={file}"])
    with pytest.raises(UserError, match="to draw from"):
        perturber.draw_answers(replace(ROWS, captions=10**6))


def test_no_scene_that_is_held_out_is_trained_on():
    """Neither as a caption, nor as an edit, nor in the lists of the base model."""
    training, held = (set(side) for side in perturber.split_scenes(0.2, 0))
    assert len(held) == round(0.2 * len(training | held))
    assert not training & held
    for answer in perturber.draw_answers(ROWS):
        assert {perturber.scene_of(text) for text in (answer.caption, *answer.edits)} <= training
        assert len(answer.edits) <= ROWS.variations
    lists = perturber.lists(PerturberSettings(out="x"))
    for text in itertools.islice(lists, 50):
        lines = [line.partition(". ")[2] or line for line in text.split("\n")]
        assert {perturber.scene_of(line) for line in lines} <= training
    tested = perturber.held_out_captions(ROWS, 30)
    assert {perturber.scene_of(text) for text in tested} <= held


def test_every_word_that_is_asked_or_answered_is_known():
    tokenizer = perturber.build_tokenizer()
    asked = EditFormat.short()
    for drawn in perturber.draw_answers(replace(ROWS, captions=200)):
        text = asked.prompt(drawn.prompt, drawn.caption) + asked.response(drawn.edits)
        assert tokenizer.unk_token_id not in tokenizer(text)["input_ids"]
    answer = "1. a blue ball\n2. a sketch of a red ball"
    again = tokenizer.decode(tokenizer(answer)["input_ids"])
    assert [line.strip() for line in again.split("\n")] == answer.split("\n")


def test_the_vocabulary_s_own_variations_are_all_right(monkeypatch):
    """The measure itself: what the world writes of its captions is of its kind, all of it."""

    class Oracle:
        def __init__(self, folder):
            pass

        def vary(self, requests):
            return WorldVariations().vary(requests)

    monkeypatch.setattr(perturber, "TunedModel", Oracle)
    measured = perturber.evaluate("folder", perturber.held_out_captions(ROWS, 20))
    assert measured["all"]["parse"] == measured["all"]["kind"] == measured["all"]["answered"] == 1
    assert {measured[name]["label"] for name in ("adjective", "domain")} == {1}
    assert measured["subject"]["label"] == 0


def test_the_card_tells_what_was_held_out_and_how_it_is_rebuilt():
    shipped = card("perturber")
    words = shlex.split(shipped["command"])[4:]
    assert {word.partition("=")[0] for word in words} == {"out", *shipped["settings"]}
    assert set(shipped["metrics"]) == {*(prompt.name for prompt in perturber.PROMPTS), "all"}
    assert (
        shipped["held_out_loss"]["after"]["all"]["loss"]
        < shipped["held_out_loss"]["before"]["loss"]
    )
    assert EditFormat.read(FOLDER) == EditFormat.short() == EditFormat.read(FOLDER / "base")
    assert {file.suffix for file in FOLDER.rglob("*.*")} == {".json", ".safetensors"}


@pytest.mark.slow
def test_the_card_s_shares_are_those_of_the_shipped_weights():
    shipped = card("perturber")
    settings = PerturberSettings(out="x", **shipped["settings"])
    tested = perturber.held_out_captions(settings, settings.tested)
    measured = perturber.evaluate(FOLDER, tested, settings.seed)
    for name, shares in shipped["metrics"].items():
        assert measured[name] == pytest.approx(shares, abs=0.02), name
