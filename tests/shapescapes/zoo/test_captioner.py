"""The tiny captioner says what scenes show that it has not seen."""

from __future__ import annotations

from cfaug.shapescapes.language import describe
from cfaug.shapescapes.settings import words_of_domains
from cfaug.shapescapes.zoo.captioner import build_tokenizer, scenes, tokenize


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
