"""How alike two texts are: against NLTK's BLEU and METEOR, and row by row."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nltk.tokenize import word_tokenize
from nltk.translate.bleu_score import SmoothingFunction, sentence_bleu
from nltk.translate.meteor_score import single_meteor_score

from cfaug.papers.xmai.text_overlap import bleu4, inserted_words, measure_overlap, meteor

MEANINGS = [{"dog", "hound", "domestic_dog"}, {"sit", "pose"}, {"dog", "frank"}, {"red", "scarlet"}]
WORDS = ["A", "a", "dog", "dogs", "hound", "sits", "sitting", "sit", "pose", "red", "Scarlet",
         "mat", "man's", "mat.", ",", "don't", "frank", "10"]  # fmt: skip

texts = st.lists(st.sampled_from(WORDS), max_size=9).map(" ".join)


def synonyms(word):
    return {name for sense in MEANINGS if word in sense for name in sense if "_" not in name}


class FakeWordNet:
    """What NLTK's METEOR asks of a WordNet."""

    def synsets(self, word):
        def lemma(name):
            return SimpleNamespace(name=lambda: name)

        def sense(names):
            return SimpleNamespace(lemmas=lambda: [lemma(name) for name in sorted(names)])

        return [sense(meaning) for meaning in MEANINGS if word in meaning]


@given(texts, texts)
def test_bleu_is_nltk_s(original, changed):
    first, second = (word_tokenize(text, preserve_line=True) for text in (original, changed))
    if not first or not second:  # NLTK divides by zero
        assert bleu4(original, changed) == 0.0
        return
    expected = sentence_bleu(
        [first], second, smoothing_function=SmoothingFunction().method4, auto_reweigh=True
    )
    assert bleu4(original, changed) == pytest.approx(expected, abs=1e-12)


@given(texts, texts)
def test_meteor_is_nltk_s(original, changed):
    expected = single_meteor_score(
        word_tokenize(original, preserve_line=True), word_tokenize(changed, preserve_line=True),
        wordnet=FakeWordNet(), alpha=0.9, beta=3.0, gamma=0.5,
    )  # fmt: skip
    assert meteor(original, changed, synonyms) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("original", "changed", "words"),
    [
        ("A dog sits.", "A small dog, sits", ["small"]),
        ("A dog", "A dog dog", []),
        ("A dog", "a dog", ["a"]),
        ("a well-known dog", "a wellknown dog", []),
        ("a dog", "red a red dog, big!", ["red", "big"]),
        ("a dog", "", []),
    ],
)
def test_inserted_words(original, changed, words):
    assert inserted_words(original, changed) == words


def test_many_texts_are_measured_row_by_row():
    originals = ["A dog sits", "A dog sits", "red"]
    changed = ["A hound sits", "A dog sits", "red hound"]
    columns = measure_overlap(originals, changed, synonyms)
    assert {name: values.dtype for name, values in columns.items()} == dict.fromkeys(
        ["bleu", "meteor", "inserted_words", "novel", "changed"], np.dtype(float)
    )
    for row, (before, after) in enumerate(zip(originals, changed, strict=True)):
        assert columns["bleu"][row] == bleu4(before, after)
        assert columns["meteor"][row] == meteor(before, after, synonyms)
    assert columns["inserted_words"].tolist() == [1, 0, 1]
    assert columns["changed"].tolist() == columns["novel"].tolist() == [1, 0, 1]
    assert "meteor" not in measure_overlap(originals, changed)
    with pytest.raises(ValueError, match="zip"):
        measure_overlap(originals, changed[:2])
