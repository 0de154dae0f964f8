"""Random deletion: how many words go, and which."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfaug.core.errors import UserError
from cfaug.core.protocols import Editor
from cfaug.core.types import Edit, Example
from cfaug.editing.baselines import CheckListEdits, EasyDataAugmentation, RandomDeletion
from cfaug.editing.baselines.editor import MOST_WORDS, NO_CANDIDATE, NO_WORDS, TOO_LONG, Words
from cfaug.editing.wordnet import Senses, Synonyms


class NoSynonyms(Synonyms):
    """Knows no word."""

    def senses(self, word: str) -> Senses:
        return ()


CAPTION = "A man is in a kitchen making pizzas."


def example(text: str, key: str = "k") -> Example:
    return Example(key, "g", (text,))


@given(st.lists(st.sampled_from(["a", "dog", "it's", "T-shirt", "3"]), min_size=1, max_size=45))
def test_a_tenth_of_the_words_goes_and_the_rest_keeps_its_order(words: list[str]) -> None:
    (edited,) = RandomDeletion().edit([example(" ".join(words))])
    left = Words.read(edited.proposals[0].texts[1]).words
    gone = 0 if len(words) == 1 else max(int(0.1 * len(words)), 1)
    assert len(left) == len(words) - gone
    rest = iter(words)
    assert all(word in rest for word in left)


def test_every_word_is_as_likely_stop_words_too() -> None:
    examples = [example(CAPTION, f"k{i}") for i in range(2000)]
    counts = Counter(one.proposals[0].details[1]["changes"][0]["before"]
                     for one in RandomDeletion().edit(examples))  # fmt: skip
    assert set(counts) == set(Words.read(CAPTION).words)
    # Binomial(2000, 1/8): five standard deviations are 74.
    assert all(abs(count - 250) < 74 for count in counts.values())


def test_the_set_says_what_went() -> None:
    (edited,) = RandomDeletion(share=0.25, seed=3).edit([example(CAPTION)])
    (one,) = edited.proposals
    changes = one.details[1]["changes"]
    assert [change["operation"] for change in changes] == ["deletion", "deletion"]
    assert one.edits[1] is not None
    assert one.edits[1].kind == "deletion"
    for change in changes:
        assert change["after"] == ""
        assert change["before"] in CAPTION


def test_the_draw_depends_on_key_and_seed_alone() -> None:
    examples = [example(CAPTION, f"k{i}") for i in range(20)]
    together = RandomDeletion().edit(examples)
    assert together == [RandomDeletion().edit([one])[0] for one in examples]
    assert together != RandomDeletion(seed=1).edit(examples)


def test_what_cannot_lose_a_word_stays_with_its_reason() -> None:
    word, signs, empty = RandomDeletion().edit([example("Pizza."), example("?!"), example(" ")])
    assert word.proposals[0].texts == ("Pizza.", "Pizza.")
    assert word.proposals[0].details[1] == {"changes": [], "reason": NO_CANDIDATE}
    assert signs.proposals[0].details[1]["reason"] == NO_WORDS
    assert empty.proposals == ()
    assert RandomDeletion(keep_unchanged=False).edit([example("Pizza.")])[0].proposals == ()


def test_the_edit_is_the_words_that_went() -> None:
    (edited,) = RandomDeletion(seed=2).edit([example("red ball")])
    assert edited.proposals[0].edits[1] in (Edit("deletion", "red", ""),
                                            Edit("deletion", "ball", ""))  # fmt: skip


def test_settings_are_checked() -> None:
    assert isinstance(RandomDeletion(), Editor)
    with pytest.raises(UserError, match=r"share=1\.5 should be a number from 0 to 1"):
        RandomDeletion(share=1.5)
    with pytest.raises(UserError, match="keep_unchanged"):
        RandomDeletion(keep_unchanged="no")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "editor", [RandomDeletion(), EasyDataAugmentation(synonyms=NoSynonyms()), CheckListEdits()]
)
def test_a_text_far_longer_than_a_caption_stays_as_it_is(editor: Editor) -> None:
    """Of 100,000 words no change is looked for, which would take hours."""
    longest, longer = ("a dog " * (n // 2) + "3 cats" for n in (MOST_WORDS - 2, 200_000))
    examples = [Example("k", "g", (text,)) for text in (longest, longer)]
    first, second = (one.proposals[0] for one in editor.edit(examples))
    assert first.details[1].get("reason") != TOO_LONG
    assert second.texts[0] == second.texts[1] == longer
    assert second.details[1] == {"changes": [], "reason": TOO_LONG}
