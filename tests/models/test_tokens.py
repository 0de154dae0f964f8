"""Kept tokens are what the tokenizer gives for the whole batch."""

from __future__ import annotations

import random

import pytest
import torch
from transformers import AutoTokenizer, CLIPTokenizer

from cfaug.core.errors import say_once
from cfaug.core.weights import resolve
from cfaug.models import encoder
from cfaug.models.encoder import Tokenizer
from tests.models import tiny

WORDS = ["a", "red", "dog", "in", "the snow,", "circle;", "2", "Ärzte", "\N{DOG}", "the", "the"]


@pytest.fixture
def tokenizer():
    return AutoTokenizer.from_pretrained(resolve("zoo:clip-0", None))


def captions(seed, count):
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=draw.randrange(0, 30))) for _ in range(count)]


@pytest.mark.parametrize("names", [["input_ids", "attention_mask"], ["input_ids"]])
def test_batches_are_those_of_the_tokenizer(tokenizer, names):
    tokenizer.model_input_names = names
    ours = Tokenizer(tokenizer, 16)
    padding = "longest" if "attention_mask" in names else "max_length"
    for seed in (1, 2, 1):
        texts = captions(seed, 9)
        expected = tokenizer(
            texts, padding=padding, truncation=True, max_length=16, return_tensors="pt"
        )
        found = ours(texts)
        assert found.keys() == set(expected)
        for name, ids in found.items():
            assert ids.dtype == torch.int64
            assert torch.equal(ids, expected[name])


def test_a_caption_is_tokenised_once_in_a_process_up_to_a_bound(tokenizer, monkeypatch):
    monkeypatch.setattr(encoder, "_KEPT", {})
    texts = captions(3, 6)
    first = Tokenizer(tokenizer, 16)
    before = first(texts)
    again = AutoTokenizer.from_pretrained(resolve("zoo:clip-0", None))
    asked = []

    class Watched(type(again)):
        def __call__(self, texts, **options):
            asked.extend(texts)
            return super().__call__(texts, **options)

    monkeypatch.setattr(encoder, "KEEP_CAPTIONS", len(set(texts)))
    second = Tokenizer(again, 16)
    again.__class__ = Watched
    assert torch.equal(second(texts)["input_ids"], before["input_ids"])
    assert asked == []
    second(["one more"])
    second(["one more"])
    assert asked == ["one more"] * 2
    Tokenizer(tokenizer, 8)(texts)  # another length is another tokenizer
    assert {len(kept) for kept in encoder._KEPT.values()} == {len(set(texts))}


def test_what_is_saved_is_the_same_where_every_caption_is_kept(tmp_path):
    """Of two runs in one process the second tokenises nothing."""
    for name in ("first", "second"):
        own = tiny.tokenizer()  # its file says nothing of truncation
        Tokenizer(own, 12)(["a red ball", "the beach"])
        own.save_pretrained(tmp_path / name)
    first, second = ((tmp_path / n / "tokenizer.json").read_bytes() for n in ("first", "second"))
    assert first == second
    assert b'"max_length": 12' in first


@pytest.mark.parametrize(
    ("text", "warned"), [("Two bicyclists near a river", True), ("a red ball on the beach", False)]
)
def test_a_model_that_knows_few_of_the_words_is_told(tokenizer, capsys, text, warned):
    say_once.cache_clear()
    ours = Tokenizer(tokenizer, 16)
    ours([text])
    assert ("does not know 80% of the words" in capsys.readouterr().err) == warned
    ours(["Two bicyclists again"])
    assert capsys.readouterr().err == ""  # the first captions tell


def test_a_text_that_only_tells_tokenizers_apart_is_not_taken_for_a_caption(tokenizer, capsys):
    """An evaluation's first text: no warning is about it, and the captions after it are checked."""
    say_once.cache_clear()
    ours = Tokenizer(tokenizer, 16)
    ours([encoder.PROBE, "a"])
    assert capsys.readouterr().err == ""
    ours(["Two bicyclists near a river"])
    assert "such as 'Two bicyclists near a river'" in capsys.readouterr().err


def test_an_unknown_token_that_also_ends_texts_counts_nothing(capsys):
    """CLIP's, whose pieces spell any word."""
    vocabulary = {"a</w>": 0, "<|startoftext|>": 1, "<|endoftext|>": 2}
    ours = Tokenizer(CLIPTokenizer(vocab=vocabulary, merges=[], model_max_length=77), 16)
    assert ours.tokenizer.unk_token_id == ours.tokenizer.eos_token_id
    ours(["Zyxw vuts"])
    assert capsys.readouterr().err == ""
