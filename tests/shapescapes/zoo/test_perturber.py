"""The perturber of the embedded world: its rows, how it is made, and what is shipped."""

from __future__ import annotations

import itertools
import json
import shlex
from dataclasses import replace

import pytest
import torch

from cfaug.core.errors import UserError
from cfaug.core.weights import resolve
from cfaug.data.sources.lists import json_lines
from cfaug.editing.edit_prompts import EditFormat, group_rows
from cfaug.shapescapes.language import WorldVariations
from cfaug.shapescapes.zoo.perturber import __main__ as command
from cfaug.shapescapes.zoo.perturber import rows
from cfaug.shapescapes.zoo.perturber import rows as base
from cfaug.shapescapes.zoo.perturber.rows import PerturberSettings, RowSettings

ROWS = RowSettings(out="rows.jsonl", captions=40)


def test_rows_are_read_as_they_were_drawn(tmp_path, capsys):
    file = tmp_path / "rows.jsonl"
    assert rows.main([f"out={file}", "captions=40"]) == 0
    answers = rows.draw_answers(ROWS)
    assert group_rows(json_lines(file), EditFormat.short(), file) == answers
    assert "40 captions" in capsys.readouterr().out
    with pytest.raises(UserError, match="exists already"):
        rows.main([f"out={file}"])
    with pytest.raises(UserError, match="to draw from"):
        rows.draw_answers(replace(ROWS, captions=10**6))


def test_no_scene_that_is_held_out_is_trained_on():
    """Neither as a caption, nor as an edit, nor in the lists of the base model."""
    training, held = (set(side) for side in rows.split_scenes(0.2, 0))
    assert len(held) == round(0.2 * len(training | held))
    assert not training & held
    for one in rows.draw_answers(ROWS):
        assert {rows.scene_of(text) for text in (one.caption, *one.edits)} <= training
        assert len(one.edits) <= ROWS.variations
    lists = base.lists(PerturberSettings(out="x"))
    for text in itertools.islice(lists, 50):
        lines = [line.partition(". ")[2] or line for line in text.split("\n")]
        assert {rows.scene_of(line) for line in lines} <= training
    tested = base.held_out_captions(ROWS, 30)
    assert {rows.scene_of(text) for text in tested} <= held


def test_every_word_that_is_asked_or_answered_is_known():
    tokenizer = base.build_tokenizer()
    asked = EditFormat.short()
    for one in rows.draw_answers(replace(ROWS, captions=200)):
        text = asked.prompt(one.prompt, one.caption) + asked.response(one.edits)
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

    monkeypatch.setattr(base, "TunedModel", Oracle)
    found = base.evaluate("folder", base.held_out_captions(ROWS, 20))
    assert found["all"]["parse"] == found["all"]["kind"] == found["all"]["answered"] == 1
    assert {found[name]["label"] for name in ("adjective", "domain")} == {1}
    assert found["subject"]["label"] == 0


@pytest.fixture(scope="module")
def shipped():
    folder = resolve("zoo:perturber")
    return folder, json.loads((folder / "card.json").read_text())


def test_what_is_shipped_edits_captions_it_never_saw(shipped):
    torch.set_num_threads(1)
    folder, card = shipped
    tested = base.held_out_captions(RowSettings(out="x", **card_rows(card)), 4)
    found = base.evaluate(folder, tested)
    assert found["all"]["answered"] == 1
    assert found["all"]["kind"] > card["metrics"]["all"]["kind"] - 0.15


def card_rows(card):
    names = ("seed", "captions", "variations", "held_out")
    return {name: card["settings"][name] for name in names}


def test_the_card_tells_what_was_held_out_and_how_it_is_rebuilt(shipped):
    folder, card = shipped
    words = shlex.split(card["command"])[5:]
    assert {word.partition("=")[0] for word in words} == {"out", *card["settings"]}
    assert card["held_out_loss"]["after"]["all"]["loss"] < card["held_out_loss"]["before"]["loss"]
    assert EditFormat.read(folder) == EditFormat.short() == EditFormat.read(folder / "base")
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    assert size < 1.5 * 2**20
    assert {file.suffix for file in folder.rglob("*.*")} == {".json", ".safetensors"}


@pytest.mark.slow
def test_the_card_s_shares_are_those_of_the_shipped_weights(shipped):
    torch.set_num_threads(1)
    folder, card = shipped
    settings = RowSettings(out="x", **card_rows(card))
    tested = base.held_out_captions(settings, card["settings"]["tested"])
    found = base.evaluate(folder, tested, card["settings"]["seed"])
    for name, shares in card["metrics"].items():
        assert found[name] == pytest.approx(shares, abs=0.02), name


@pytest.mark.slow
def test_a_toy_is_built_twice_with_the_same_weights(tmp_path, capsys):
    torch.set_num_threads(1)
    words = ["captions=30", "base_steps=4", "tune_steps=4", "tested=2", "warmup=2"]
    for name in ("one", "two"):
        assert command.main([f"out={tmp_path / name}", *words]) == 0
    for file in ("model.safetensors", "base/model.safetensors", "edit_format.json"):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()
    card = json.loads((tmp_path / "one" / "card.json").read_text())
    assert set(card["metrics"]) == {*(p.name for p in rows.PROMPTS), "all"}
