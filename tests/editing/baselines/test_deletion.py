"""Random deletion: how many words go, and which."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from cfaug.core.types import Edit
from cfaug.editing.baselines import RandomDeletion
from cfaug.editing.baselines.editor import Words
from tests.records import example

CAPTION = "A man is in a kitchen making pizzas."


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


def test_the_edit_is_the_words_that_went() -> None:
    (edited,) = RandomDeletion(seed=2).edit([example("red ball")])
    assert edited.proposals[0].edits[1] in (Edit("deletion", "red", ""),
                                            Edit("deletion", "ball", ""))  # fmt: skip
