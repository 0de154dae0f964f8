"""Which nouns of a caption name an object, where a word is inserted, and how alike words are."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from cfaug.core.detections import Detection
from cfaug.editing.language_models import SentenceEncoder
from cfaug.xmai.insertions.mentions import MentionFinder, WordSimilarity, _pack, _unpack
from tests.xmai.insertions.parts import NOUNS, HashedVectors, ListTagger


class Pairs:
    """An encoder to which two words are alike if a list says so."""

    def __init__(self, *pairs):
        self.names = {word: i for i, pair in enumerate(pairs) for word in pair}
        self.asked = []

    def encode(self, texts):
        import numpy as np

        self.asked.append(list(texts))
        found = np.zeros((len(texts), len(self.names) + 1))
        for row, text in enumerate(texts):
            found[row, self.names.get(text, len(self.names))] = text in self.names
        return found

    def describe(self):
        return {}


def find(text, labels, *, similar=(), fallback="noun", threshold=0.7, tagger=None):
    similarity = WordSimilarity(Pairs(*similar))
    finder = MentionFinder(fallback, tagger, similarity, threshold)
    [mentions] = finder.find([text], [[Detection(label) for label in labels]])
    for one in mentions:
        assert text[one.end - len(one.noun) : one.end] == one.noun
    return [(one.start, one.noun, one.label, one.objects) for one in mentions]


@pytest.mark.parametrize(
    ("text", "labels", "found"),
    [
        ("Dog, a DOG.", ["dog"], [(0, "Dog", "dog", (0,))]),
        ("a hotdog and dog-food", ["dog"], []),
        ("the dog's ball", ["ball", "dog"], [(4, "dog", "dog", (1,)), (10, "ball", "ball", (0,))]),
        ("a fire hydrant", ["hydrant", "fire hydrant"], [(2, *["fire hydrant"] * 2, (1,))]),
        ("a dog", ["dog", "Dog", "dog"], [(2, "dog", "dog", (0, 1, 2))]),
        ("a dog and a dog", ["dog"], [(2, "dog", "dog", (0,))]),
        ("a man table", ["table"], [(2, "table", "table", (0,))]),
        ("a man table", ["man", "table"], [(2, "table", "table", (1,))]),
        ("man, table", ["table"], [(5, "table", "table", (0,))]),
    ],
)  # fmt: skip
def test_a_label_is_matched_as_whole_words_and_stands_before_its_compound(text, labels, found):
    assert find(text, labels, fallback="never", tagger=ListTagger()) == found


@pytest.mark.parametrize(
    ("fallback", "nouns"),
    [("noun", ["dog", "table"]), ("text", ["dog"]), ("never", ["dog"]), ("only", ["table"])],
)
def test_which_nouns_are_compared(fallback, nouns):
    similar = [("table", "desk")]
    found = find(
        "a dog on a table", ["dog", "desk"], similar=similar, tagger=ListTagger(), fallback=fallback
    )
    assert [noun for _, noun, _, _ in found] == nouns


def test_a_noun_takes_the_attributes_of_every_similar_object_and_the_nearest_label():
    similar = [("table", "desk", "shelf")]
    [only] = find(
        "tables on a table",
        ["shelf", "dog", "desk"],
        similar=similar,
        tagger=ListTagger(),
        fallback="only",
    )
    assert only == (12, "table", "shelf", (0, 2))


def test_every_noun_counts_once_in_whatever_case():
    similar = [("dog", "wolf")]
    found = find("a Dog with a dog", ["wolf"], similar=similar, tagger=ListTagger())
    assert [(start, noun) for start, noun, _, _ in found] == [(2, "Dog")]


def test_nothing_is_compared_without_detections_and_words_are_encoded_together_once():
    encoder = Pairs(("table", "desk"))
    finder = MentionFinder("noun", ListTagger(), WordSimilarity(encoder), 0.7)
    texts = ["a table", "a dog", "a table on a beach"]
    found = finder.find(texts, [[Detection("desk")], [], [Detection("desk"), Detection("man")]])
    assert [len(one) for one in found] == [1, 0, 1]
    assert encoder.asked == [["beach", "desk", "man", "table"]]


LABELS = st.lists(st.sampled_from((*NOUNS, "fire hydrant", "red dog", "Man")), max_size=5)
TEXT = st.lists(st.sampled_from((*NOUNS, "fire hydrant", "a", "red", "DOG", "man,")), max_size=8)


@given(TEXT.map(" ".join), LABELS)
def test_direct_mentions_are_found_as_a_search_word_by_word_finds_them(text, labels):
    """Longer labels first, each where its words first stand untaken."""
    words = [word.lower() for word in re.findall(r"\w+", text)]
    spans = [match.span() for match in re.finditer(r"\w+", text)]
    taken: set[int] = set()
    expected = []
    distinct = list(dict.fromkeys(label.lower() for label in labels))
    for label in sorted(distinct, key=lambda one: -len(one.split())):
        parts = label.split()
        for i in range(len(words) - len(parts) + 1):
            places = set(range(i, i + len(parts)))
            between = text[spans[i][0] : spans[i + len(parts) - 1][1]]
            if words[i : i + len(parts)] == parts and not places & taken and "," not in between:
                taken |= places
                numbers = tuple(n for n, one in enumerate(labels) if one.lower() == label)
                expected.append((spans[i][0], between, numbers))
                break
    found = find(text, labels, fallback="never")
    assert [(start, noun, numbers) for start, noun, _, numbers in found] == sorted(expected)


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
