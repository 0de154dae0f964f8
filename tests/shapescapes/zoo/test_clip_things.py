"""The tiny CLIP of several things: it goes on from one that knows one thing in each drawing."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from cfaug.shapescapes.compositional.edits import (
    EDITS,
    PictureDistribution,
    draw_picture,
    words_of_pictures,
)
from cfaug.shapescapes.settings import WorldSettings
from cfaug.shapescapes.world import World
from cfaug.shapescapes.zoo.clip_things import MAX_LENGTH, describe, evaluate_pairs, load_start, main
from tests.shapescapes.read_compositional import is_true
from tests.shapescapes.zoo.clips import compare_texts

FOLDER = Path(__file__).parents[3] / "cfaug" / "shapescapes" / "zoo" / "weights" / "clip-things"


def test_it_goes_on_from_a_model_whose_words_mean_what_they_did():
    old, _ = compare_texts(load_start, FOLDER, ["a red ball on the beach", "a photo of a cat"])
    assert old.unk_token_id in old("a ball left of a cube")["input_ids"]


def test_its_tokenizer_reads_the_longest_caption():
    from transformers import AutoTokenizer

    tokens = AutoTokenizer.from_pretrained(FOLDER)
    longest = "a picture of a ball that is red left of a cube that is blue in front of a brick wall"
    known = tokens(longest)["input_ids"]
    assert tokens.unk_token_id not in known
    assert tokens.unk_token_id not in tokens(" ".join(words_of_pictures()))["input_ids"]
    assert len(known) < MAX_LENGTH == tokens.model_max_length


def test_captions_are_true_whatever_they_leave_out():
    law = PictureDistribution(World(WorldSettings(seed=0)))
    said = set()
    for index in range(80):
        rng = np.random.default_rng(index)
        picture = draw_picture(rng, law, 1 + index % 2)
        text = describe(picture, rng, 0.3)
        assert is_true(text, picture.record(index)), text
        said |= set(text.split())
    assert {"that", "and", "left", "above"} <= said


@pytest.mark.slow
def test_the_card_is_true():
    from transformers import VisionTextDualEncoderModel

    card = json.loads((FOLDER / "card.json").read_text())
    model = VisionTextDualEncoderModel.from_pretrained(FOLDER, dtype=torch.float32).eval()
    settings = card["settings"]
    found = evaluate_pairs(model, settings["seed"], settings["held_out"])
    assert set(found) == set(EDITS)
    for name, scores in found.items():
        for metric, value in scores.items():
            told = card["metrics"][f"{name} {metric}"]
            assert value == pytest.approx(told, abs=0.025), (name, metric)  # float16 on disk
    assert sum(file.stat().st_size for file in FOLDER.iterdir()) < 1_200_000


@pytest.mark.slow
def test_the_command_writes_a_model_that_loads(tmp_path, capsys):
    from cfaug.models.specs import HFClip

    words = ["scenes=256", "steps=4", "held_out=16", f"out={tmp_path / 'made'}"]
    assert main(words) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert 0 <= found["swap_colour text_score"] <= 1
    loaded = HFClip(str(tmp_path / "made")).load()
    with torch.inference_mode():
        tokens = loaded.tokenize(["a red ball left of a blue cube in front of a brick wall"])
        assert np.isfinite(loaded.encode_text(tokens).numpy()).all()
