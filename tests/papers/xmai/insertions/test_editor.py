"""Insertions as they should be: what is inserted where, why nothing is, and what is said of it."""

from __future__ import annotations

import json
import re
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfaug.core.errors import UserError
from cfaug.core.protocols import Editor
from cfaug.core.types import Edit, Example
from cfaug.editing.language_models import MaskedLM
from cfaug.editing.protocols import Fill
from cfaug.editing.sentence import normalise
from cfaug.papers.xmai.insertions import AttributeInsertion, BlockList
from cfaug.papers.xmai.insertions.mentions import Context, Fallback
from cfaug.papers.xmai.insertions.scores import Normalise
from tests.papers.xmai.insertions.parts import (
    ADJECTIVES,
    NOUNS,
    OTHERS,
    HashedVectors,
    ListTagger,
    captioned,
    changed,
    details,
    detection,
    photo,
)
from tests.records import Photo


class Words:
    """A filler whose guesses are the same words everywhere; it notes what it was asked."""

    def __init__(self, *words, probability=0.5):
        self.words, self.probability, self.asked = words, probability, []

    def fill(self, blanks, top_k):
        self.asked += blanks
        fills = [Fill(word, self.probability / 2**i) for i, word in enumerate(self.words)]
        return [fills[:top_k] for _ in blanks]

    def describe(self):
        return {}


def editor(*words, **changes):
    """An editor of which language alone decides, and the first guess is the best."""
    defaults = {"weights": (1, 0, 0), "tagger": ListTagger(), "word_encoder": HashedVectors()}
    return AttributeInsertion(Words(*words), **{**defaults, "fallback": "never", **changes})


def test_it_is_an_editor_and_says_what_it_is_made_of(parts):
    made = parts.editor()
    assert isinstance(made, Editor)
    said = made.describe()
    assert "lambda 1, 5, 5" in said["insertion"]
    assert "sha256:" in said["image_text"]
    assert said["block_list"] == "demographic terms"
    assert "fallback=noun" in said["insertion"]


def test_a_set_is_the_caption_and_its_change(parts):
    example = captioned("a dog  on a\n table", detection("dog", "brown"))
    [edited] = editor("brown").edit([example])
    [proposal] = edited.proposals
    assert proposal.texts == ("a dog on a table", "a brown dog on a table")
    assert proposal.edits == (None, Edit("insertion", "", "brown"))
    assert proposal.key == "k"
    assert proposal.extra == {"raw": "a dog  on a\n table"}
    assert edited.survivors == {
        "detections": 1, "mentions": 1, "guesses": 1, "candidates": 1, "changed": 1,
    }  # fmt: skip


def test_every_insertion_keeps_its_provenance(parts):
    detections = [
        detection("dog", "brown", "wet", box=[1, 2, 30, 31]),
        detection("DOG", "old", box=[3, 4, 5, 6]),
        detection("table", "wooden"),
    ]
    [edited] = parts.editor(block_list=None).edit([captioned("A dog on the table", *detections)])
    [first, second] = details(edited)["changes"]
    text = changed(edited)
    for change, noun in ((first, "dog"), (second, "table")):
        start = change["start"]
        assert text[start:].startswith(f"{change['word']} {noun}")
        assert change["noun"] == noun
    assert first["box"] == [1, 2, 30, 31]
    assert second["box"] is None
    assert first["attributes"] == ["brown", "wet", "old"]
    assert first["object"] == "dog"
    assert set(first) == {
        "word", "object", "noun", "start", "box", "attributes",
        "language", "similarity", "dissimilarity", "score", "rank",
    }  # fmt: skip
    assert 0 < first["language"] < 1
    assert 0 < first["dissimilarity"] < 2
    assert 0 <= first["rank"] < 20
    json.dumps(first, allow_nan=False)


def test_later_masks_read_what_was_inserted_and_nothing_else():
    made = editor("wet")
    made.edit([captioned("a dog on a table", detection("dog"), detection("table"))])
    texts = [(blank.text, blank.start, blank.end) for blank in made.filler.asked]
    assert texts == [("a  dog on a table", 2, 2), ("a wet dog on a  table", 15, 15)]


def test_captions_are_asked_about_together_at_the_same_mask():
    made = editor("wet")
    calls = []
    fill = made.filler.fill
    made.filler.fill = lambda blanks, top_k: calls.append(len(blanks)) or fill(blanks, top_k)
    two_masks = captioned("a dog on a table", detection("dog"), detection("table"))
    one_mask = captioned("a man", detection("man"), key="one")
    made.edit([two_masks, one_mask, captioned("a goal", detection("ball"), key="none")])
    assert calls == [2, 1]


@pytest.mark.parametrize(
    ("text", "labels", "reason"),
    [
        ("a dog", [], "no_detections"),
        ("a dog", ["table"], "no_mention"),
        ("a hotdog", ["dog"], "no_mention"),
        ("a dog", ["dog"], "no_candidate"),
        ("[MASK] dog", ["dog"], "mask_in_text"),
    ],
)
def test_a_caption_without_an_insertion_is_a_set_that_says_why(text, labels, reason):
    example = captioned(text, *map(detection, labels))
    [edited] = editor("the", "dog").edit([example])
    [proposal] = edited.proposals
    assert proposal.texts == (text, text)
    assert proposal.edits == (None, None)
    assert details(edited) == {"changes": [], "reason": reason}
    [left_out] = editor("the", "dog", keep_unchanged=False).edit([example])
    assert left_out.proposals == ()
    assert left_out.survivors[reason] == 0


def test_an_empty_caption_has_no_proposal_and_one_word_gets_its_insertion():
    empty, dog = editor("wet").edit([captioned(" \n"), captioned("dog", detection("dog"), key="b")])
    assert (empty.proposals, empty.survivors) == ((), {"empty_text": 0})
    assert changed(dog) == "wet dog"


def test_a_caption_that_is_longer_than_the_model_reads(parts):
    long = "a man in the " * 40 + "dog"
    made = parts.editor(weights=(1, 5, 0), threshold=2, block_list=None)
    [edited] = made.edit([captioned(long, detection("dog"))])
    assert details(edited)["reason"] == "no_guess"


def test_missing_detections_and_images_name_the_example(parts):
    with pytest.raises(UserError, match=r"'k' has no detections.*detections@recipe=file"):
        editor("wet").edit([Example("k", "g", ("a dog",))])
    example = Example("k", "g", ("a dog",), extra={"detections": [detection("dog")]})
    with pytest.raises(UserError, match=r"'k' has no image.*lambda_3, 5.*weights=\[1,5,0\]"):
        parts.editor().edit([example])
    assert changed(*editor("wet").edit([example])) == "a wet dog"


def test_a_broken_photo_is_rejected_and_the_others_go_on(parts, capsys):
    broken = captioned("a dog", detection("dog"), key="b", image=Photo(b"no image"))
    whole = captioned("a dog", detection("dog"))
    kept, lost = parts.editor(block_list=None).edit([whole, broken])
    assert lost.proposals == ()
    assert lost.survivors == {"photo_broken": 0}
    assert changed(kept) != "a dog"
    assert "photo_broken" in capsys.readouterr().err


def test_attributes_that_are_no_words_are_left_out_and_named():
    dog = detection("dog", "???", "12", "wet")
    [edited] = editor("old").edit([captioned("a dog", dog)])
    assert details(edited)["ignored_attributes"] == ["12", "???"]
    assert details(edited)["changes"][0]["attributes"] == ["wet"]


def test_blocked_words_are_counted_and_the_next_guess_is_taken(capsys):
    made = editor("white", "wet", "black", "old", k=1)
    man, table = (captioned(f"a {noun}", detection(noun), key=noun) for noun in ("man", "table"))
    first, second = made.edit([man, table])
    assert (changed(first), changed(second)) == ("a wet man", "a white table")
    assert details(first)["blocked"] == [{"word": "white", "object": "man", "noun": "man"}]
    [lost] = first.rejected
    assert (lost.reason, lost.edit, lost.text) == (
        "blocked", Edit("insertion", "", "white"), "a white man",
    )  # fmt: skip
    assert "blocked" not in details(second)
    assert "blocked: 1 words in 1 of 2 captions (white 1);" in capsys.readouterr().err
    [only] = editor("white").edit([man])
    assert details(only)["reason"] == "blocked"
    [free] = editor("white", block_list=None).edit([man])
    assert changed(free) == "a white man"


def test_what_an_object_is_called_says_that_a_noun_is_of_people():
    made = editor("white", fallback="only", threshold=-1)
    [edited] = made.edit([captioned("a Cat", detection("man"))])
    assert details(edited)["reason"] == "blocked"


def test_lambda_decides_what_counts(parts):
    """Each score alone chooses its own greatest, and the least where its weight is negative."""
    example = captioned("a dog on the beach", detection("dog", "brown"))
    by_rank = {}
    for place, key in enumerate(("language", "similarity", "dissimilarity")):
        alone = tuple(float(i == place) for i in range(3))
        every = []
        for k in range(1, 5):
            made = parts.editor(weights=alone, k=k, threshold=2, block_list=None)
            every.append(details(*made.edit([example]))["changes"][0])
        values = [change[key] for change in every]
        assert values == sorted(values)
        opposite = tuple(-weight for weight in alone)
        against = parts.editor(weights=opposite, k=4, threshold=2, block_list=None)
        assert details(*against.edit([example]))["changes"][0][key] < values[-1]
        by_rank[key] = every[-1]["rank"]
    assert len(set(by_rank.values())) > 1


def test_without_a_clip_lambda_3_must_be_0(parts):
    with pytest.raises(UserError, match=r"lambda_3, 5.*image_text is missing.*weights=\[1,5,0\]"):
        parts.editor(image_text=None)
    [edited] = parts.editor(image_text=None, weights=(1, 5, 0)).edit(
        [captioned("a dog", detection("dog"))]
    )
    assert details(edited)["changes"][0]["dissimilarity"] is None


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"k": 0}, "recipe.editor.k=0"),
        ({"weights": (1, 5)}, "weights=.* should be three numbers"),
        ({"weights": (1, 5, float("nan"))}, r"weights\[2\]=nan should be a number"),
        ({"guesses": 0}, "recipe.editor.guesses=0"),
        ({"context": "masks"}, r"recipe\.editor\.context=masks: choose from sequential, alone"),
        ({"word_encoder": None}, "lambda_2, 5 .*word_encoder is missing"),
        ({"tagger": None}, "fallback=noun .*tagger"),
        ({"word_encoder": None, "weights": (1, 0, 5)}, "fallback=never"),
    ],
)
def test_invalid_settings_are_named(parts, changes, said):
    with pytest.raises(UserError, match=said):
        parts.editor(**changes)


def test_attributes_may_have_an_encoder_of_their_own(parts):
    class Same(HashedVectors):
        def encode(self, texts):
            return super().encode(["x"] * len(texts))

    made = parts.editor(attribute_encoder=Same(), threshold=2)
    [edited] = made.edit([captioned("a dog", detection("dog", "wet"))])
    assert details(edited)["changes"][0]["similarity"] == 1
    assert "attributes encoder" in made.describe()


def test_a_language_model_without_word_pieces_is_read_alike(parts, tmp_path):
    from tests.editing import tiny

    filler = MaskedLM(str(tiny.save_roberta(tmp_path / "roberta")))
    [edited] = parts.editor(filler=filler).edit([captioned("a dog", detection("dog"))])
    assert details(edited)["changes"] or details(edited)["reason"] == "no_candidate"


TEXT = st.lists(st.sampled_from((*NOUNS, *ADJECTIVES, *OTHERS)), min_size=1, max_size=8).map(
    " ".join
)


@settings(max_examples=20, deadline=None)
@given(TEXT, st.sampled_from(get_args(Normalise)), st.sampled_from(get_args(Context)),
       st.sampled_from(get_args(Fallback)))  # fmt: skip
def test_any_choice_can_be_made_by_itself(parts, text, normalise, context, fallback):
    made = parts.editor(normalise=normalise, context=context, fallback=fallback, threshold=0.2)
    detections = [detection(noun, "wet") for noun in ("dog", "man", "fire hydrant", "t")]
    [edited] = made.edit([captioned(text, *detections)])
    [proposal] = edited.proposals
    about = details(edited)
    for change in about["changes"]:
        assert proposal.texts[1][change["start"] :].startswith(change["word"])
    assert not {c["word"].lower() for c in about["changes"]} & {"a", "an", "the", "some"}


@settings(max_examples=20, deadline=None)
@given(st.text(max_size=30), st.lists(st.text(min_size=1, max_size=6), max_size=3))
def test_captions_and_labels_of_any_characters(parts, text, labels):
    """Nothing is lost: without the insertions the caption is what it was, but for an article."""
    detections = [detection(label) for label in (*labels, *text.split()[:2]) if label.strip()]
    made = parts.editor(weights=(1, 0, 0), block_list=None, threshold=0.2)
    [edited] = made.edit([captioned(text, *detections)])
    if not edited.proposals:
        assert not text.split()
        return
    [proposal] = edited.proposals
    assert proposal.texts[0] == normalise(text)
    left = without(proposal.texts[1], details(edited)["changes"])
    assert without_articles(left) == without_articles(normalise(text))


def without_articles(text):
    return re.sub(r"(?<![\w'’-])an? ", "a ", text, flags=re.IGNORECASE)


def without(text, changes):
    """Take the insertions out again."""
    for change in reversed(changes):
        start = change["start"]
        text = text[:start] + text[start + len(change["word"]) + 1 :]
    return text


def test_batches_chunks_and_order_change_nothing(parts):
    detections = [detection("dog", "brown"), detection("table", "wet"), detection("man", "old")]
    texts = ["a dog on a table", "The man with a dog", "a table", "dogs in the goal", "man"]
    examples = [
        captioned(text, *detections, key=f"k{i}", image=photo(i % 2))
        for i, text in enumerate(texts)
    ]
    together = parts.editor(threshold=0.3).edit(examples)
    apart = [parts.editor(threshold=0.3, chunk=1).edit([example])[0] for example in examples]
    assert together == apart
    assert parts.editor(threshold=0.3, chunk=2).edit(examples[::-1]) == together[::-1]


def test_articles_and_beginnings_are_written_as_the_word_wants_it():
    texts = {"a dog": "an old dog", "A dog": "An old dog", "Dog in a man": "Old Dog in an old man"}
    for text, expected in texts.items():
        [edited] = editor("old").edit([captioned(text, detection("dog"), detection("man"))])
        if "man" in text:  # age words are blocked before people
            expected = "Old Dog in a man"
        assert changed(edited) == expected
    assert BlockList().blocks("old", ["man"])
