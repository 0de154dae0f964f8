"""The tiny CLIP that knows the domains: it goes on from one that does not."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from cfaug.shapescapes.zoo.clip_domains import (
    DomainSettings,
    evaluate,
    load_start,
    main,
)
from tests.shapescapes.zoo.clips import compare_texts

FOLDER = Path(__file__).parents[3] / "cfaug" / "shapescapes" / "zoo" / "weights" / "clip-domains"


def test_it_goes_on_from_a_model_whose_words_mean_what_they_did():
    old, new = compare_texts(load_start, FOLDER, ["a red ball on the beach", "a photo of a cat"])
    assert old.unk_token_id in old("a sketch of a cat")["input_ids"]
    assert new.unk_token_id not in new("a sketch, painting, cartoon, mosaic")["input_ids"][1:2]


@pytest.mark.slow
def test_the_card_is_true():
    from transformers import VisionTextDualEncoderModel

    card = json.loads((FOLDER / "card.json").read_text())
    model = VisionTextDualEncoderModel.from_pretrained(FOLDER, dtype=torch.float32).eval()
    settings = DomainSettings(out="", **card["settings"])
    found = evaluate(model, settings)
    for metric, value in card["metrics"].items():
        assert found[metric] == pytest.approx(value, abs=0.005), metric  # float16 on disk
    assert sum(file.stat().st_size for file in FOLDER.iterdir()) < 1_200_000


@pytest.mark.slow
def test_the_command_writes_a_model_that_loads(tmp_path, capsys):
    from cfaug.models.specs import HFClip

    words = ["scenes=70", "steps=2", "held_out=8", f"out={tmp_path / 'made'}"]
    assert main(words) == 0
    assert 0 <= json.loads(capsys.readouterr().out.splitlines()[-1])["domain_acc1"] <= 1
    loaded = HFClip(str(tmp_path / "made")).load()
    with torch.inference_mode():
        tokens = loaded.tokenize(["a sketch of a ball"])
        assert np.isfinite(loaded.encode_text(tokens).numpy()).all()
