"""Embeddings of words are kept exactly, and a model is asked about a word once."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from cfaug.editing.language_models import SentenceEncoder
from cfaug.xmai.insertions.mentions import WordSimilarity, _pack, _unpack
from tests.xmai.insertions.parts import HashedVectors

NUMBERS = st.floats(allow_nan=False, allow_infinity=False)


@given(vector=arrays.arrays(np.float64, st.integers(1, 5), elements=NUMBERS))
def test_kept_numbers_are_exact(vector):
    assert _unpack(_pack(vector)).tolist() == vector.tolist()


def test_a_second_process_asks_about_new_words_only(tmp_path, monkeypatch):
    encoder = SentenceEncoder("zoo:language/sentence")
    words, others = ["dog", "table"], ["red", "wooden"]
    expected = WordSimilarity(encoder).cosines(words, others)
    first = WordSimilarity(encoder, tmp_path)
    assert first.cosines(words, others) == expected
    first.cache.write()
    asked = []
    encode = SentenceEncoder.encode
    monkeypatch.setattr(
        SentenceEncoder, "encode", lambda self, texts: asked.append(texts) or encode(self, texts)
    )
    second = WordSimilarity(encoder, tmp_path)
    assert second.cosines(words, others) == expected
    assert asked == []
    assert second.cosines(["dog"], ["blue"]) == WordSimilarity(encoder).cosines(["dog"], ["blue"])
    assert asked[0] == ["blue"]


def test_what_is_no_model_is_not_kept(tmp_path):
    similarity = WordSimilarity(HashedVectors(), tmp_path)
    assert not similarity.cache.keeps
    similarity.cosines(["a"], ["b"])
    similarity.cache.write()
    assert not list(tmp_path.iterdir())
