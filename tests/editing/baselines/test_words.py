"""How TextAttack 0.3.8 counts and changes words, against a slow transcription of its rules."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfaug.editing.baselines.editor import Words, count_changes, word_spans
from cfaug.editing.word_lists import NLTK_STOP_WORDS

SIGNS = "'-_*@"
TEXTS = st.text(alphabet="ab C1'-_*@.,! \"`é", max_size=30)


def slow_words(text: str) -> list[str]:
    """Return the words as ``textattack.shared.utils.words_from_text`` has them."""
    found = []
    for part in " ".join(text.split()).split():
        for one in re.findall(r"[\w`'\-_\*@]+", part.lstrip(SIGNS)):
            if one.lstrip(SIGNS):
                found.append(one.lstrip(SIGNS))
    return found


def slow_replace(text: str, modified: set[int], index: int, new: str) -> tuple[str, set[int]]:
    """Return what ``AttackedText.generate_new_attacked_text`` makes of one replaced word."""
    words = slow_words(text)
    given_words = [new if i == index else word for i, word in enumerate(words)]
    built, rest, changed, at = "", text, set(modified), 0
    for i, (word, came) in enumerate(zip(words, given_words, strict=True)):
        start = rest.index(word)
        built, rest = built + rest[:start], rest[start + len(word) :]
        count = len(slow_words(came))
        if count != 1:
            changed = {m if m < i else m + count - 1 for m in changed if m != i}
        for _ in range(count):
            if word != came:
                changed.add(at)
            at += 1
        if count == 0 and rest:
            if i == 0:
                rest = rest[1:] if rest[0] == " " else rest
            elif built[-1:] == " ":
                built = built[:-1]
        built += came
    return built + rest, changed


@given(TEXTS)
def test_words_are_those_of_textattack(text: str) -> None:
    assert [text[start:end] for start, end in word_spans(text)] == slow_words(text)


@given(TEXTS, st.data())
def test_replacing_is_textattacks(text: str, data: st.DataObject) -> None:
    words = Words.read(text)
    modified: set[int] = set()
    for _ in range(3):
        if not words.spans:
            return
        index = data.draw(st.integers(0, len(words.spans) - 1))
        new = data.draw(st.sampled_from(["", "x", "big dog", words.words[index]]))
        wanted, modified = slow_replace(words.text, modified, index, new)
        words = words.replace(index, new)
        assert words.text == wanted
        assert words.modified == modified
        assert list(words.words) == slow_words(wanted)


def test_a_word_inserted_counts_with_the_one_behind_it() -> None:
    words = Words.read("a dog sits").insert(1, "big")
    assert words.text == "a big dog sits"
    assert words.modified == {1, 2}
    assert words.unmodified == [0, 3]


@pytest.mark.parametrize(
    ("share", "words", "wanted"), [(0.1, 0, 1), (0.1, 9, 1), (0.1, 20, 2), (0.2, 14, 2), (1, 3, 3)]
)
def test_a_share_is_rounded_down_and_at_least_one(share: float, words: int, wanted: int) -> None:
    assert count_changes(share, words) == wanted


def test_stop_words_are_nltks_179() -> None:
    assert len(NLTK_STOP_WORDS) == 179
    assert {"the", "don't", "shan", "ourselves"} <= NLTK_STOP_WORDS
    assert "A" not in NLTK_STOP_WORDS
