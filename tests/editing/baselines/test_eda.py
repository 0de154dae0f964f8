"""Easy data augmentation: each text as often as an enumeration of the published rules says."""

from __future__ import annotations

from collections import Counter
from itertools import product

import pytest
from scipy import stats

from cfaug.editing.baselines import EasyDataAugmentation
from cfaug.editing.baselines.editor import Words, count_changes
from cfaug.editing.word_lists import NLTK_STOP_WORDS
from cfaug.editing.wordnet import Senses, Synonyms
from tests.editing.tiny import real_captions
from tests.records import example

FEW = {
    "a": (("a", "vitamin_A"), ("angstrom",)),
    "dog": (("dog", "domestic_dog", "Canis"), ("dog", "chase")),
    "sits": (("sit", "sit_down"),),
    "red": (("red", "reddish-brown"),),
}


class FewSynonyms(Synonyms):
    """Four words' synonyms, in WordNet's form."""

    def senses(self, word: str) -> Senses:
        return FEW.get(word.lower(), ())


def single(word: str) -> set[str]:
    """Return the single words among all names of a word's senses but the word itself."""
    names = {name for sense in FEW.get(word.lower(), ()) for name in sense}
    return {name for name in names if "_" not in name and name != word}


def slow_shares(words: list[str]) -> Counter[str]:
    """Return how likely each text is, of words that all have synonyms and of which one changes."""
    at = range(len(words))

    def joined(i: int, came: list[str], gone: int = 1) -> str:
        return " ".join([*words[:i], *came, *words[i + gone :]])

    replaced = [
        joined(i, [s]) for i in at if words[i] not in NLTK_STOP_WORDS for s in single(words[i])
    ]
    deleted = [joined(i, []) for i in at]
    swapped = []
    for i, j in product(at, at):
        if i != j:
            other = list(words)
            other[i], other[j] = words[j], words[i]
            swapped.append(" ".join(other))
    inserted: Counter[str] = Counter()
    for i, source in product(at, words):
        letters = [s for s in single(source) if s.isalpha()]
        for name in letters:
            inserted[joined(i, [name], 0)] += 1 / (len(words) ** 2 * len(letters))
    shares: Counter[str] = Counter()
    for r, d, s, (i, likely) in product(replaced, deleted, swapped, inserted.items()):
        texts = {r, d, s, i}
        for text in texts:
            shares[text] += likely / (len(replaced) * len(deleted) * len(swapped) * len(texts))
    return shares


def test_every_text_is_as_likely_as_the_rules_say() -> None:
    """Chi-square over all texts, of a fixed seed: a wrong rule is far beyond one in ten million."""
    words = ["a", "dog", "sits"]
    shares = slow_shares(words)
    assert sum(shares.values()) == pytest.approx(1)
    draws = 2000
    editor = EasyDataAugmentation(synonyms=FewSynonyms())
    edited = editor.edit([example(" ".join(words), f"k{i}") for i in range(draws)])
    counts = Counter(result.proposals[0].texts[1] for result in edited)
    assert set(counts) <= set(shares)
    texts = sorted(shares)
    fit = stats.chisquare([counts[t] for t in texts], [draws * shares[t] for t in texts])
    assert fit.pvalue > 1e-3


def test_stop_words_keep_their_place_but_a_capital_letter_frees_them() -> None:
    editor = EasyDataAugmentation(synonyms=FewSynonyms())
    replaced = Counter(
        change["before"]
        for result in editor.edit([example("A a dog", f"k{i}") for i in range(400)])
        for change in result.proposals[0].details[1].get("changes", [])
        if change["operation"] == "synonym"
    )
    assert set(replaced) == {"A", "dog"}


def test_a_swap_or_an_insertion_counts_as_two_words() -> None:
    """Of ten words two are changed: one swap, one insertion, but two synonyms, two deletions."""
    text = "a red dog sits a red dog sits a red"
    editor = EasyDataAugmentation(synonyms=FewSynonyms())
    lengths: dict[str, set[int]] = {}
    for result in editor.edit([example(text, f"k{i}") for i in range(400)]):
        changes = result.proposals[0].details[1]["changes"]
        if result.proposals[0].edits[1] is not None:
            lengths.setdefault(changes[0]["operation"], set()).add(len(changes))
    assert lengths["insertion"] == {1}
    assert lengths["deletion"] == lengths["synonym"] == {2}
    assert lengths["swap"] <= {1, 2}  # of equal words none is changed, and one more step is made


def test_without_synonyms_words_are_still_deleted_and_swapped() -> None:
    editor = EasyDataAugmentation(synonyms=FewSynonyms())
    edited = editor.edit([example("blue cat", f"k{i}") for i in range(60)])
    assert {result.proposals[0].texts[1] for result in edited} == {
        "blue", "cat", "cat blue", "blue cat",
    }  # fmt: skip


@pytest.mark.slow
def test_shares_on_real_captions_are_the_published_ones() -> None:
    """Of 25,010 MS-COCO captions: 25.7, 24.8, 24.5 and 24.8 % (the authors' released file)."""
    synonyms = Synonyms()
    texts = list(enumerate(real_captions()))
    examples = [example(text, f"k{i}-{n}") for n in range(5) for i, text in texts]
    counts: Counter[str] = Counter()
    for original, edited in zip(examples, EasyDataAugmentation(synonyms=synonyms).edit(examples),
                           strict=True):  # fmt: skip
        before, after = (Words.read(text).words for text in edited.proposals[0].texts)
        if after == before:
            continue
        change = edited.proposals[0].details[1]["changes"][0]["operation"]
        counts[change] += 1
        if change == "deletion":
            assert len(before) - len(after) == count_changes(0.2, len(before))
        elif change == "swap":
            assert sorted(before) == sorted(after)
        assert (len(after) > len(before)) == (change == "insertion"), original.text
    shares = [counts[name] / len(examples) for name in ("synonym", "deletion", "swap", "insertion")]
    # Binomial(1000, 1/4): three standard deviations are 0.041.
    assert shares == pytest.approx([0.257, 0.248, 0.245, 0.248], abs=0.041)
