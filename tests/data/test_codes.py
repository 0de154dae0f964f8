"""Equal texts found by codes: as a dictionary finds them, in a few bytes for each text."""

from __future__ import annotations

import tracemalloc
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from cfaug.data.index import codes
from cfaug.data.index.codes import TextCounts, find_repeated

TEXTS = st.lists(st.sampled_from(["", "a", "b", "ab", "A cat.", "été", "x" * 99]), max_size=30)


@given(TEXTS)
def test_texts_are_counted_as_they_come(texts):
    counts, before = TextCounts(), Counter[str]()
    for text in texts:
        assert counts.add(text) == before[text]
        before[text] += 1


def test_many_texts_are_counted():
    """Far more than the first table has room for."""
    counts, texts = TextCounts(), [str(number % 2500) for number in range(6000)]
    assert [counts.add(text) for text in texts] == [number // 2500 for number in range(6000)]


@given(TEXTS)
def test_repeated_texts_are_found_in_their_order(texts):
    assert find_repeated(lambda: texts) == [t for t, n in Counter(texts).items() if n > 1]


def test_other_texts_with_one_code_are_not_equal(monkeypatch):
    monkeypatch.setattr(codes, "group_code", len)
    assert find_repeated(lambda: ["ab", "cd", "e", "cd"]) == ["cd"]


def test_a_key_takes_some_bytes():
    """A dictionary took 200 for each: 2 GB of ten million."""
    number = 40_000
    tracemalloc.start()
    try:
        assert find_repeated(lambda: (f"{n:08d}" for n in range(number))) == []
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 60 * number
