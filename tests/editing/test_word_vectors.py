"""Word vectors of text files, in the forms of GloVe and fastText."""

from __future__ import annotations

import numpy as np
import pytest

from cfaug.core.errors import UserError
from cfaug.editing.pretrained import WordVectors
from cfaug.editing.protocols import SentenceEmbedder

GLOVE = "the 1 0 0\nred 0 3 4\nDog 0 0 -2e0\ndog 0 1 0\nred 9 9 9\n"


def write(folder, text):
    file = folder / "vectors.txt"
    file.write_text(text, encoding="utf-8")
    return str(file)


@pytest.mark.parametrize("head", ["", "5 3\n"])
def test_words_are_looked_up_and_texts_are_their_mean(tmp_path, head):
    vectors = WordVectors(write(tmp_path, head + GLOVE))
    assert isinstance(vectors, SentenceEmbedder)
    found = vectors.encode(["red", "Red", "Dog", "the dog", "the zebra", "zebra", ""])
    half = 0.5**0.5
    expected = [[0, 0.6, 0.8], [0, 0.6, 0.8], [0, 0, -1], [half, half, 0], [1, 0, 0]]
    np.testing.assert_allclose(found[:5], expected, atol=1e-7)
    np.testing.assert_array_equal(found[5:], 0)
    assert "sha256:" in vectors.describe()["word_vectors"]


def test_only_the_first_words_are_read(tmp_path):
    found = WordVectors(write(tmp_path, GLOVE + "broken x\n"), words=2).encode(["red", "dog"])
    np.testing.assert_allclose(found, [[0, 0.6, 0.8], [0, 0, 0]], atol=1e-7)


def test_a_word_may_hold_a_space_that_is_no_space(tmp_path):
    found = WordVectors(write(tmp_path, "at\u00a0home 1 0\nhome 0 1\n")).encode(["home"])
    np.testing.assert_allclose(found, [[0, 1]])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has no word vectors"),
        ("a 1 2\nb 1\n", r"vectors.txt:2: 1 numbers follow 'b'; the lines before have 2"),
        ("a 1 x\n", r"vectors.txt:1: the values after 'a' are not numbers"),
        ("a 1 nan\n", "'a' is not followed by finite numbers"),
        ("word\n", "'word' is not followed by finite numbers"),
        ("a " + "1 " * 60_000, "the line is longer than 100,000 characters"),
    ],
)
def test_what_is_no_file_of_vectors_is_named(tmp_path, text, said):
    with pytest.raises(UserError, match=said):
        WordVectors(write(tmp_path, text)).encode(["a"])


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(UserError, match=r"none.txt cannot be read"):
        WordVectors(str(tmp_path / "none.txt")).encode(["a"])
    (tmp_path / "binary.bin").write_bytes(b"\xff\xfe\x00 1\n")
    with pytest.raises(UserError, match=r"binary.bin cannot be read"):
        WordVectors(str(tmp_path / "binary.bin")).encode(["a"])
    with pytest.raises(UserError, match="words=0"):
        WordVectors("x", words=0)
