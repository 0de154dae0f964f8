"""The editor: the edges of captions, batches that change nothing, the whole path in Hub form."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfaug.core.errors import UserError
from cfaug.core.protocols import Editor
from cfaug.core.types import Example
from cfaug.editing.filters import (
    KeyedChoice,
    LowestPerplexity,
    NotASibling,
    PartOfSpeech,
    SimilarityBand,
)
from cfaug.editing.protocols import Candidate, Fill
from cfaug.editing.sentence import Slot, TextBlobTagger, split
from cfaug.editing.substitution import Substitution
from tests.editing import tiny
from tests.properties import examples

TAGGER = TextBlobTagger()


class ListedWords:
    """A filler that gives the same list everywhere; ``None`` is an entry that is no word."""

    def __init__(self, *words):
        self.words = words

    def fill(self, blanks, top_k):
        return [[Fill(w, 0.5 ** (i + 1)) for i, w in enumerate(self.words[:top_k])] for _ in blanks]

    def describe(self):
        return {"filler": "list"}


def caption(text, **extra):
    return Example("c0", "photo", (text,), extra=extra)


def edit(text, filler, **options):
    ranker = options.pop("ranker", KeyedChoice())
    editor = Substitution(TAGGER, filler, ranker, **options)
    return editor.edit([caption(text)])[0]


def test_a_text_of_too_many_words_is_rejected_with_its_reason():
    """Its candidates are copies of the whole: 20,000 words took 24 GB."""
    editor = Substitution(TAGGER, ListedWords("cat"), KeyedChoice())
    short, long = caption("A dog on a bed"), caption("a dog " * 10_000)
    results = editor.edit([long, short, long])
    assert [result.rejected_by for result in results] == ["max_words", None, "max_words"]
    assert results[1] == editor.edit([short])[0]
    assert isinstance(editor, Editor)
    assert editor.edit([]) == []
    assert editor.describe()["filler"] == "list"


def test_long_texts_go_through_the_models_few_at_a_time():
    chunks = []

    class Recorder(TextBlobTagger):
        def tag(self, sentences):
            chunks.append([len(words) for words in sentences])
            return super().tag(sentences)

    editor = Substitution(Recorder(), ListedWords("cat"), KeyedChoice(), chunk=4)
    words = [5, 5, 5, 5, 5, 100, 100, 5, 119, 5]
    editor.edit([caption(" ".join(["dog"] * count)) for count in words])
    # Room for the candidates of four texts of 60 words: 4 x 3,600.
    assert chunks == [[5, 5, 5, 5], [5, 100], [100, 5], [119, 5]]


def candidates_of(text, filler, **options):
    """Every candidate's text, by asking for as many edits as there are."""
    left = [*edit(text, filler, **options).survivors.values()][-1]
    return set(edit(text, filler, edits=left, **options).proposals[0].texts[1:])


def test_each_noun_is_replaced_on_the_string_in_its_own_case():
    texts = candidates_of('A "Dog"  eats\n pizza, on a TV.', ListedWords("cat"))
    assert texts == {
        'A "Cat" eats pizza, on a TV.',
        'A "Dog" eats cat, on a TV.',
        'A "Dog" eats pizza, on a CAT.',
    }


def test_slots_that_are_no_word_or_the_original_are_lost_or_refilled():
    filler = ListedWords("Pizza", None, "cat", "Cat", "bread", "soup", "rice")
    lost = edit("he eats pizza", filler, top_k=3)
    assert lost.survivors == {"positions": 1, "masks": 3, "words": 1}
    assert candidates_of("he eats pizza", filler, top_k=3) == {"he eats cat"}
    refilled = edit("he eats pizza", filler, top_k=3, refill_to_k=True)
    assert refilled.survivors["words"] == 3
    assert candidates_of("he eats pizza", filler, top_k=3, refill_to_k=True) == {
        "he eats cat", "he eats bread", "he eats soup",
    }  # fmt: skip


def test_runs_of_nouns():
    text, filler = "a fire hydrant by the road", ListedWords("cat")
    assert candidates_of(text, filler) == {
        "a cat hydrant by the road", "a fire cat by the road", "a fire hydrant by the cat",
    }  # fmt: skip
    assert candidates_of(text, filler, noun_runs="head") == {
        "a fire cat by the road", "a fire hydrant by the cat",
    }  # fmt: skip
    assert candidates_of(text, filler, noun_runs="whole") == {
        "a cat by the road", "a fire hydrant by the cat",
    }  # fmt: skip
    whole = edit(text, filler, noun_runs="whole", edits=2).proposals[0]
    assert {e.before for e in whole.edits[1:]} == {"fire hydrant", "road"}


def test_adjectives_verbs_and_articles():
    filler = ListedWords("orange", "small")
    assert candidates_of("a red ball", filler, part_of_speech="adjective", repair_article=True) == {
        "an orange ball", "a small ball",
    }  # fmt: skip
    texts = candidates_of("a man is riding a horse", ListedWords("leading"), part_of_speech="verb")
    assert texts == {"a man is leading a horse"}


def test_filters_in_turn():
    filler = ListedWords("cat", "quickly", "house")
    filters = [PartOfSpeech(TAGGER), NotASibling()]
    editor = Substitution(TAGGER, filler, KeyedChoice(), filters, edits=1)
    result = editor.edit([caption("A dog", siblings=["a  cat"])])[0]
    assert list(result.survivors) == [
        "positions", "masks", "words", "part_of_speech", "sibling",
    ]  # fmt: skip
    assert list(result.survivors.values()) == [1, 3, 3, 2, 1]
    assert result.proposals[0].texts == ("A dog", "A house")


def test_a_caption_without_nouns_says_where_it_ended():
    assert edit("is running", ListedWords("cat")).rejected_by == "positions"
    assert edit("a dog", ListedWords()).rejected_by == "masks"
    assert edit("a dog", ListedWords("dog")).rejected_by == "words"
    assert edit("  ", ListedWords("cat")).proposals == ()
    none = edit("a dog", ListedWords("quickly"), filters=[PartOfSpeech(TAGGER)])
    assert none.rejected_by == "part_of_speech"
    assert edit("a dog", ListedWords("cat"), edits=2).rejected_by == "nothing chosen"


def test_the_record_tells_how_the_edit_was_found():
    proposal = Substitution(
        TAGGER, ListedWords(None, "cat"), KeyedChoice(), kind="subject"
    ).edit([caption(" A big  Dog", image_id="7")])[0].proposals[0]  # fmt: skip
    assert proposal.key == "c0"
    assert proposal.group == "photo"
    assert proposal.edits[1].kind == "subject"
    assert proposal.example.extra["image_id"] == "7"
    assert proposal.extra["raw"] == " A big  Dog"
    assert proposal.extra["edits"] == [
        {
            "span_0": [6, 9], "span_1": [6, 9], "word_0": "Dog", "word_1": "Cat", "tag": "NNP",
            "rank": 1, "probability": 0.25,
        }
    ]  # fmt: skip
    assert json.loads(json.dumps(dict(proposal.extra))) == dict(proposal.extra)


class Lengths:
    """A language model to which long texts are surprising; ties are possible."""

    def perplexity(self, texts):
        return np.array([float(len(text)) for text in texts])

    def describe(self):
        return {"causal_lm": "length"}


def test_the_lowest_perplexity_wins_then_the_rank_then_the_noun():
    filler = ListedWords("house", "cow", "pig")
    proposal = edit(
        "a dog and a rat", filler, ranker=LowestPerplexity(Lengths()), edits=6
    ).proposals[0]
    assert [e.after for e in proposal.edits[1:]] == ["cow", "cow", "pig", "pig", "house", "house"]
    assert [e.before for e in proposal.edits[1:]] == ["dog", "rat"] * 3
    assert proposal.extra["edits"][0]["perplexity_1"] == 15
    assert proposal.extra["edits"][4]["perplexity_1"] == 17
    assert proposal.extra["edits"][0]["perplexity_0"] == 15


class Angles:
    """Sentences on the unit circle, by the number a text ends with, in hundredths of a cosine."""

    def encode(self, texts):
        cosines = np.array([int("0" + "".join(filter(str.isdigit, t))) / 100 or 1 for t in texts])
        return np.stack([cosines, np.sqrt(1 - cosines**2)], 1)

    def describe(self):
        return {}


def test_the_band_is_open():
    x, slot = caption("x"), Slot(0, 0)
    given = [
        Candidate(0, x, split("x"), "noun", 0, slot, "NN", "", split(f"x {c}"), 0, 1)
        for c in (79, 80, 81, 90, 91, 92)
    ]
    kept = SimilarityBand(Angles(), 0.8, 0.91).keep(given)
    assert [c.edited.text for c in kept] == ["x 81", "x 90"]
    assert [c.notes["similarity"] for c in kept] == [0.81, 0.9]
    assert SimilarityBand(Angles()).keep([]) == []
    with pytest.raises(UserError, match="low < high"):
        SimilarityBand(Angles(), 0.9, 0.8)


@settings(max_examples=examples(25), deadline=None)
@given(st.lists(st.sampled_from(tiny.CAPTIONS), min_size=1, max_size=6), st.integers(1, 4))
def test_neighbours_and_chunks_change_nothing(texts, chunk):
    filler = ListedWords("cat", "streets", "red", "umbrella")
    every = [Example(f"k{i}", "g", (text,)) for i, text in enumerate(texts)]
    editor = Substitution(TAGGER, filler, KeyedChoice(3), [PartOfSpeech(TAGGER)], chunk=chunk)
    whole = Substitution(TAGGER, filler, KeyedChoice(3), [PartOfSpeech(TAGGER)])
    together = whole.edit(every)
    assert editor.edit(every) == together
    assert [whole.edit([example])[0] for example in every] == together


@pytest.mark.parametrize(
    ("options", "words"),
    [({"top_k": 0}, "top_k=0"), ({"filters": [NotASibling(), NotASibling()]}, "sibling, sibling")],
)
def test_mistakes_are_named(options, words):
    with pytest.raises(UserError, match=words):
        Substitution(TAGGER, ListedWords(), KeyedChoice(), **options)


def test_words_that_name_the_picture_stay_unless_asked():
    captions = [
        "a photo of a bird", "A close-up view of a man", "an image of a picture on the wall",
        "a man takes a photo", "a view of the beach",
    ]  # fmt: skip

    class Recorder(ListedWords):
        def fill(self, blanks, top_k):
            asked.extend(blank.word.lower() for blank in blanks)
            return super().fill(blanks, top_k)

    places = {}
    for keep in (True, False):
        editor = Substitution(TAGGER, Recorder(), KeyedChoice(), keep_frame=keep)
        places[keep] = []
        for text in captions:
            asked = []
            editor.edit([caption(text)])
            places[keep].append(set(asked))
    frames = [{"photo"}, {"view", "close-up"}, {"image"}, set(), {"view"}]
    for kept, every, frame in zip(places[True], places[False], frames, strict=True):
        assert every - kept <= frame
        assert kept == every - frame
    assert sum(map(len, places[True])) < sum(map(len, places[False]))
    assert "photo" in places[True][3]
    assert "picture" in places[True][2]


def test_the_same_word_in_other_letters_is_no_edit():
    """A ligature, or an accent of its own, which would also be left behind by an edit."""
    filler = ListedWords("fire", "caf\N{LATIN SMALL LETTER E WITH ACUTE}", "cat")
    for word, same in (
        ("\N{LATIN SMALL LIGATURE FI}re", "fire"),
        ("cafe\N{COMBINING ACUTE ACCENT}", filler.words[1]),
    ):
        expected = {f"he sees {name}" for name in filler.words if name != same}
        assert candidates_of(f"he sees {word}", filler) == expected
