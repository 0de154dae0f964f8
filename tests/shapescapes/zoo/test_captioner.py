"""The tiny captioner: it says what scenes show that it has not seen; a command rebuilds it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from cfaug.core.weights import resolve
from cfaug.models.task_specs import ImageCaptioning
from cfaug.shapescapes.language import describe, parse
from cfaug.shapescapes.oracle import FACTORS
from cfaug.shapescapes.settings import words_of_domains
from cfaug.shapescapes.zoo.captioner import build_tokenizer, evaluate, main, scenes, tokenize

ZOO = "zoo:captioner"


def card() -> dict:
    return json.loads((resolve(ZOO) / "card.json").read_text())


def test_shipped_weights_describe_scenes_they_have_not_seen() -> None:
    told = card()["metrics"]
    pixels, factors = scenes(5, "test-captioner", 40, 1)
    captioner = ImageCaptioning(ZOO, max_new_tokens=24).load()
    assert captioner.transform.size == 32
    texts = captioner.caption(torch.from_numpy(pixels))
    said = [parse(text) for text in texts]
    assert all(one is not None for one in said)
    for name in FACTORS:
        right = [getattr(a, name) == getattr(b, name) for a, b in zip(said, factors, strict=True)]
        assert sum(right) / len(right) == pytest.approx(told[f"{name}_acc1"], abs=0.2), name
    size = sum(file.stat().st_size for file in resolve(ZOO).iterdir())
    assert size < 2_500_000


@pytest.mark.slow
def test_the_card_is_recomputed_from_the_weights() -> None:
    told = card()
    found = evaluate(resolve(ZOO), told["settings"]["seed"], told["settings"]["held_out"])
    for metric, value in told["metrics"].items():
        assert found[metric] == pytest.approx(value, abs=0.02), metric


def test_what_is_learnt_is_the_caption_and_its_end() -> None:
    _, factors = scenes(5, "test-captioner", 3, 1)
    tokens = tokenize(factors)
    tokenizer = build_tokenizer()
    for row, one in enumerate(factors):
        ids, labels = tokens["input_ids"][row], tokens["labels"][row]
        assert (ids[:16] == tokenizer.convert_tokens_to_ids("<image>")).all()
        learnt = tokenizer.decode(labels[labels != -100])
        assert learnt == f"{describe(one)} <|endoftext|>"
        assert (labels[:16] == -100).all()
    assert all(tokenizer(word).input_ids != [1] for word in words_of_domains())


@pytest.mark.slow
def test_the_command_rebuilds_the_same_bytes(tmp_path: Path) -> None:
    arguments = ["scenes=20", "steps=2", "batch_size=4", "held_out=5", "seed=4"]
    for name in ("a", "b"):
        assert main([*arguments, f"out={tmp_path / name}"]) == 0
    files = [tmp_path / name / "model.safetensors" for name in ("a", "b")]
    assert files[0].read_bytes() == files[1].read_bytes()
    assert (
        len(ImageCaptioning(str(tmp_path / "a")).load().caption(torch.zeros(2, 3, 32, 32).byte()))
        == 2
    )
    assert json.loads((tmp_path / "a" / "card.json").read_text())["metrics"]["n"] == 5
