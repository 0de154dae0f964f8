"""What every baseline promises; how TextAttack 0.3.8 counts words; random deletion."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfaug.core.errors import UserError
from cfaug.core.protocols import Editor
from cfaug.core.types import Edit, Example
from cfaug.editing.baselines import (
    CheckListEdits,
    ClareEdits,
    EasyDataAugmentation,
    NegclipSwaps,
    RandomDeletion,
)
from cfaug.editing.baselines.editor import (
    MOST_WORDS,
    NO_CANDIDATE,
    NO_WORDS,
    TOO_LONG,
    Words,
    count_changes,
    word_spans,
)
from cfaug.editing.paraphrase import Paraphrase
from cfaug.editing.protocols import EMPTY, propose_change
from cfaug.editing.sentence import TextBlobTagger
from cfaug.editing.word_lists import NLTK_STOP_WORDS
from tests.editing.baselines.test_clare import ContextFiller, ListTagger
from tests.editing.baselines.test_eda import FewSynonyms
from tests.records import example

TAGGER = TextBlobTagger()
EDITORS = {
    "deletion": RandomDeletion,
    "eda": lambda **settings: EasyDataAugmentation(synonyms=FewSynonyms(), **settings),
    "checklist": CheckListEdits,
    "clare": lambda **settings: ClareEdits(ContextFiller(), ListTagger(), **settings),
    "negclip": lambda **settings: NegclipSwaps(TAGGER, **settings),
    "paraphrase": lambda **settings: Paraphrase(TAGGER, **settings),
}
WITH_CONTROL = ("deletion", "eda", "checklist", "clare")
"""Editors that keep unchanged texts, with their reason."""


@pytest.mark.parametrize("name", EDITORS)
def test_the_draw_depends_on_key_and_seed_alone(name):
    text = "a red dog and three cats" if name == "checklist" else "a red dog on the grass"
    text = "the red horse is eating and the old zebra is drinking" if name == "negclip" else text
    examples = [example(text, f"k{i}") for i in range(20)]
    editor = EDITORS[name]()
    assert isinstance(editor, Editor)
    together = editor.edit(examples)
    assert together == [editor.edit([original])[0] for original in examples]
    assert together != EDITORS[name](seed=1).edit(examples)
    assert len({result.proposals[0].texts for result in together}) > 2


@pytest.mark.parametrize("name", WITH_CONTROL)
def test_texts_to_which_nothing_can_be_done_stay_with_their_reason(name):
    signs, empty, word = EDITORS[name]().edit([example("?!"), example(" "), example("the")])
    for result, reason in ((signs, NO_WORDS), (word, NO_CANDIDATE)):
        [proposal] = result.proposals
        assert proposal.texts[0] == proposal.texts[1]
        assert proposal.details[1] == {"changes": [], "reason": reason}
    assert empty.proposals == ()
    left_out = EDITORS[name](keep_unchanged=False).edit([example("the"), example("?!")])
    assert [result.proposals for result in left_out] == [(), ()]


@pytest.mark.parametrize("name", WITH_CONTROL[:3])
def test_a_text_far_longer_than_a_caption_stays_as_it_is(name):
    """Of 100,000 words no change is looked for, which would take hours."""
    longest, longer = ("a cow " * (n // 2) + "3 cats" for n in (MOST_WORDS - 2, 200_000))
    first, second = EDITORS[name]().edit([example(longest), example(longer)])
    assert first.proposals[0].details[1].get("reason") != TOO_LONG
    assert second.proposals[0].texts == (longer, longer)
    assert second.proposals[0].details[1] == {"changes": [], "reason": TOO_LONG}


@pytest.mark.parametrize(
    ("name", "settings", "words"),
    [
        ("deletion", {"share": 1.5}, r"share=1\.5 should be a number from 0 to 1"),
        ("eda", {"share": -1}, "share=-1 should be a number from 0 to 1"),
        ("checklist", {"replacements": 0}, "replacements=0 should be a whole number of at least"),
        ("clare", {"chunk": 0}, "chunk=0 should be a whole number of at least 1"),
        ("negclip", {"kinds": []}, r"recipe\.editor\.kinds=.* 1 or more of these: \w"),
        ("paraphrase", {"kinds": ["pronoun"]}, r"recipe\.editor\.kinds.*=.* choose from \w"),
    ],
)
def test_settings_are_checked(name, settings, words):
    with pytest.raises(UserError, match=words):
        EDITORS[name](**settings)


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
    counts = Counter(result.proposals[0].details[1]["changes"][0]["before"]
                     for result in RandomDeletion().edit(examples))  # fmt: skip
    assert set(counts) == set(Words.read(CAPTION).words)
    # Binomial(2000, 1/8): five standard deviations are 74.
    assert all(abs(count - 250) < 74 for count in counts.values())


def test_the_set_says_what_went() -> None:
    (edited,) = RandomDeletion(share=0.25, seed=3).edit([example(CAPTION)])
    (proposal,) = edited.proposals
    changes = proposal.details[1]["changes"]
    assert [change["operation"] for change in changes] == ["deletion", "deletion"]
    assert proposal.edits[1].kind == "deletion"
    for change in changes:
        assert change["after"] == ""
        assert change["before"] in CAPTION
    [[short]] = [result.proposals for result in RandomDeletion(seed=2).edit([example("red ball")])]
    assert short.edits[1] in (Edit("deletion", "red", ""), Edit("deletion", "ball", ""))


CHANGE = {"operation": "replace", "before": "red", "after": "blue"}


def proposed(text: str, changed: str, **settings):
    example = Example("k", "g", (text,))
    return propose_change(example, changed, "kind", changes=[CHANGE], reason="why", **settings)


def test_a_changed_text_has_an_edit_and_its_changes() -> None:
    edited = proposed("  a red\n ball ", "a blue  ball")
    (proposal,) = edited.proposals
    assert proposal.texts == ("a red ball", "a blue ball")
    assert proposal.edits == (None, Edit("kind", "red", "blue"))
    assert proposal.details == ({}, {"changes": [CHANGE]})
    assert proposal.extra == {"raw": "  a red\n ball "}
    assert edited.survivors == {"changed": 1}


def test_a_text_without_a_change_has_none_and_one_of_case_alone_has_an_edit() -> None:
    (same,) = proposed("a red ball", " a red ball").proposals
    assert (same.edits, same.details[1]) == ((None, None), {"changes": [], "reason": "why"})
    assert proposed("a red ball", "a red ball", keep_unchanged=False).rejected_by == "why"
    for text, changed in ((" \n", "a"), ("a", " ")):
        assert proposed(text, changed).rejected_by == EMPTY
    (recased,) = proposed("A cat on a mat", "a cat on A mat").proposals
    assert recased.edits[1] == Edit("kind", "A cat on a mat", "a cat on A mat")


SIGNS = "'-_*@"
TEXTS = st.text(alphabet="ab C1'-_*@.,! \"`é", max_size=30)


def slow_words(text: str) -> list[str]:
    """Return the words as ``textattack.shared.utils.words_from_text`` has them."""
    words = []
    for part in " ".join(text.split()).split():
        for word in re.findall(r"[\w`'\-_\*@]+", part.lstrip(SIGNS)):
            if word.lstrip(SIGNS):
                words.append(word.lstrip(SIGNS))
    return words


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
