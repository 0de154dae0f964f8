"""The tiny captioner says what scenes show that it has not seen."""

from __future__ import annotations

import pytest
import torch

from cfaug.models.task_specs import ImageCaptioning
from cfaug.shapescapes.language import describe, parse
from cfaug.shapescapes.settings import FACTORS, words_of_domains
from cfaug.shapescapes.zoo.captioner import build_tokenizer, scenes, tokenize
from tests.shapescapes.zoo.cards import card


def test_shipped_weights_describe_scenes_they_have_not_seen() -> None:
    told = card("captioner")["metrics"]
    drawn = scenes(5, "test-captioner", 40)
    captioner = ImageCaptioning("zoo:captioner", max_new_tokens=24).load()
    assert captioner.transform.size == 32
    said = [parse(text) for text in captioner.caption(torch.from_numpy(drawn.pixels))]
    assert None not in said
    for name in FACTORS:
        pairs = zip(said, drawn.factors, strict=True)
        right = [getattr(a, name) == getattr(b, name) for a, b in pairs]
        assert sum(right) / len(right) == pytest.approx(told[f"{name}_acc1"], abs=0.2), name


def test_what_is_learnt_is_the_caption_and_its_end() -> None:
    factors = scenes(5, "test-captioner", 3).factors
    tokens = tokenize(factors)
    tokenizer = build_tokenizer()
    for row, one in enumerate(factors):
        ids, labels = tokens["input_ids"][row], tokens["labels"][row]
        assert (ids[:16] == tokenizer.convert_tokens_to_ids("<image>")).all()
        learnt = tokenizer.decode(labels[labels != -100])
        assert learnt == f"{describe(one)} <|endoftext|>"
        assert (labels[:16] == -100).all()
    assert all(tokenizer(word).input_ids != [1] for word in words_of_domains())
