"""CLARE's edits: the candidates of a plain transcription, each of them as likely."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from itertools import product

import hypothesis
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from cfaug.core.protocols import Editor
from cfaug.editing.baselines import ClareEdits
from cfaug.editing.baselines.clare import (
    CHOSEN_UNCHANGED,
    MERGED,
    TOO_LONG,
    UNIVERSAL,
    Likelihoods,
    WindowSimilarity,
    find_candidates,
    text_window,
)
from cfaug.editing.baselines.editor import Words
from cfaug.editing.language_models import MaskedLM
from cfaug.editing.protocols import Blank, Fill, round_digits
from cfaug.editing.sentence import TextBlobTagger
from cfaug.editing.word_lists import NLTK_STOP_WORDS
from tests.editing.tiny import real_captions
from tests.records import example

GUESSES = ("red", "dog", "big", "the", "ing", "runs")
TAGS = {"a": "DT", "the": "DT", "red": "JJ", "big": "JJ", "runs": "VBZ", "is": "VBZ", "on": "IN"}


class ContextFiller:
    """Guesses whose probabilities depend on what stands around the blank; "ing" is no word."""

    def fill(self, blanks: Sequence[Blank], top_k: int) -> list[list[Fill]]:
        return [
            self._fill(blank.text[: blank.start], blank.text[blank.end :])[:top_k]
            for blank in blanks
        ]

    def _fill(self, before: str, after: str) -> list[Fill]:
        def likely(word: str) -> int:
            asked = f"{before}|{word}|{after}".encode()
            return int.from_bytes(hashlib.blake2b(asked, digest_size=2).digest(), "little")

        fills = [Fill(None if w == "ing" else w, likely(w) / 2**22) for w in GUESSES]
        return sorted(fills, key=lambda fill: -fill.probability)

    def describe(self) -> dict[str, str]:
        return {"masked_lm": "by context"}


class ListTagger:
    """Tags by a list; whatever it lacks is a noun."""

    def tag(self, sentences: Sequence[Sequence[str]]) -> list[list[str]]:
        return [[TAGS.get(word, "NN") for word in words] for words in sentences]

    def describe(self) -> dict[str, str]:
        return {"tagger": "list"}


def editor(**settings) -> ClareEdits:
    return ClareEdits(ContextFiller(), ListTagger(), **settings)


def edited_texts(text: str, draws: int, **settings) -> Counter[str]:
    results = editor(**settings).edit([example(text, f"k{i}") for i in range(draws)])
    return Counter(result.proposals[0].texts[1] for result in results)


def slow_candidates(words: list[str], asked: Likelihoods) -> set[str]:
    """Return all texts that one change gives, of words with a full stop behind them."""
    filler, texts = ContextFiller(), set()

    def fill(before: list[str], after: list[str], stop: str, least: float, old: str) -> None:
        """Fill a blank with a space on each side, but at the ends of the text."""
        left = "".join(f"{word} " for word in before)
        right = "".join(f" {word}" for word in after) + stop
        for guess in filler._fill(left, right)[: asked.guesses]:
            if guess.word not in (None, old) and round_digits(guess.probability) >= least:
                texts.add(" ".join([*before, guess.word, *after]) + ".")

    tags = [UNIVERSAL.get(TAGS.get(w, "NN"), "VERB") for w in words]
    tags = ["" if TAGS.get(w) == "IN" else tag for w, tag in zip(words, tags, strict=True)]
    for i, word in enumerate(words):
        if word not in NLTK_STOP_WORDS:
            fill(words[:i], words[i + 1 :], ".", asked.replace, word)
        if i > 0:
            fill(words[:i], words[i:], "", asked.insert, word)
        if i < len(words) - 2 and tags[i + 1] in MERGED.get(tags[i], ()):
            fill(words[:i], words[i + 2 :], "", asked.merge, word)
    return texts


WORDS = st.lists(st.sampled_from(["a", "red", "dog", "is", "on", "runs", "sofa"]), min_size=1,
                 max_size=6)  # fmt: skip


@given(WORDS, st.integers(1, 6), st.floats(0, 0.02))
# A probability that equals the threshold in the digits that count.
@hypothesis.example(["a", "red", "on", "sofa", "dog", "sofa"], 1, 0.014648937228738371)
def test_the_candidates_are_those_of_a_plain_transcription(
    words: list[str], guesses: int, least: float
) -> None:
    asked = Likelihoods(replace=least, insert=0, merge=2 * least, guesses=guesses)
    text = Words.read(" ".join(words) + ".")
    (candidates,) = find_candidates([text], ContextFiller(), ListTagger(), asked)
    assert set(candidates) == slow_candidates(words, asked)


@pytest.mark.slow
def test_each_text_is_as_likely_the_caption_itself_too_and_what_was_done_is_said() -> None:
    words = ["a", "red", "dog", "runs"]
    texts = sorted(slow_candidates(words, Likelihoods()) | {"a red dog runs."})
    assert len(texts) > 20
    edited = editor().edit([example("a red dog runs.", f"k{i}") for i in range(1200)])
    counts = Counter(result.proposals[0].texts[1] for result in edited)
    assert set(counts) == set(texts)
    assert stats.chisquare([counts[text] for text in texts]).pvalue > 1e-3
    operations = {}
    for result in edited:
        about = result.proposals[0].details[1]
        if result.proposals[0].edits[1] is None:
            assert about == {"changes": [], "reason": CHOSEN_UNCHANGED}
            continue
        (change,) = about["changes"]
        operations[change["operation"]] = change
        assert change["before"] in {"", "red", "dog", "runs", "a red", "red dog"}
        assert change["after"] in Words.read(result.proposals[0].texts[1]).words
    assert set(operations) == {"replace", "insert", "merge"}
    assert operations["insert"]["before"] == ""
    assert len(operations["merge"]["before"].split()) == 2


def test_of_twenty_words_two_are_changed() -> None:
    """Unless one was inserted, which counts as two, or a change was merged away."""
    text = " ".join(["dog", "sofa"] * 10)
    results = editor().edit([example(text, f"k{i}") for i in range(40)])
    kinds = Counter(
        tuple(change["operation"] for change in result.proposals[0].details[1]["changes"])
        for result in results
    )
    first, second = ("replace", "merge"), ("replace", "insert", "merge")
    assert set(kinds) <= {("insert",), ("replace",), ("merge",), *product(first, second)}
    assert kinds["insert",] > 4
    assert sum(count for kind, count in kinds.items() if len(kind) == 2) > 10


def test_a_text_of_too_many_words_stays_as_it_is() -> None:
    [long] = editor(max_words=4).edit([example("a a a a a")])
    assert long.proposals[0].details[1]["reason"] == TOO_LONG


def test_real_captions_by_the_shipped_model_alone_or_together() -> None:
    some = [example(text, f"k{i}") for i, text in enumerate(real_captions()[:6])]
    edits = ClareEdits(MaskedLM("zoo:language/masked"), TextBlobTagger())
    assert isinstance(edits, Editor)
    together = edits.edit(some)
    assert [edits.edit([original])[0] for original in some[:2]] == together[:2]
    by_chunks = ClareEdits(MaskedLM("zoo:language/masked"), TextBlobTagger(), chunk=4).edit(some)
    assert by_chunks == together
    assert sum(result.survivors["changed"] for result in together) >= len(some) - 2
    assert together != ClareEdits(edits.filler, edits.tagger, seed=1).edit(some)


class BySecondWord:
    """A sentence encoder that hears whether "dog" is said."""

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        return np.array([[1.0, 0.0] if "dog" in text.split() else [0.0, 1.0] for text in texts])

    def describe(self) -> dict[str, str]:
        return {"sentence_encoder": "dog"}


def test_candidates_of_long_texts_stay_near_the_original() -> None:
    text = "one dog sits here"
    short = edited_texts(text, 200)
    assert any("dog" not in variant.split() for variant in short)
    near = WindowSimilarity(BySecondWord(), window=3)
    kept = edited_texts(text, 200, similarity=near)
    around = [t for t in kept if t != text]
    assert around
    for variant in around:
        changed = next(
            i for i, w in enumerate([*variant.split(), ""]) if w != [*text.split(), "", ""][i]
        )
        windows = [text_window(Words.read(t), changed, 3).split() for t in (text, variant)]
        assert ("dog" in windows[0]) == ("dog" in windows[1])
    wide = WindowSimilarity(BySecondWord(), window=15)
    assert edited_texts(text, 200, similarity=wide) == short  # fewer than 15 words: not asked
    assert "similarity sentence_encoder" in editor(similarity=near).describe()


@pytest.mark.parametrize("size", [1, 2, 3, 6, 15])
def test_windows_are_textattacks(size: int) -> None:
    words = Words.read("one, two three four five six seven.")
    count, half = 7, (size - 1) / 2
    for index in range(count):
        start, end = index - half, index + half
        if start < 0:
            first, last = 0, min(size - 1, count - 1)
        elif end >= count:
            first, last = max(0, count - size), count - 1
        else:
            first, last = int(np.floor(start)), int(np.floor(end))
        names = text_window(words, index, size).replace(",", "").split()
        assert names == list(words.words[first : last + 1])
