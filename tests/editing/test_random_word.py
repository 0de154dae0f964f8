"""LANCE-R: a random word, guessed anew."""

from __future__ import annotations

from collections import Counter

import pytest

from cfaug.core.errors import UserError
from cfaug.core.protocols import Editor
from cfaug.core.types import Edit
from cfaug.editing.instructed_edit import STOP_WORDS, RandomWordEdit, RandomWords
from cfaug.editing.label_guard import LabelGuard
from cfaug.editing.language_models import MaskedLM
from cfaug.editing.protocols import Fill, VariationModel
from cfaug.shapescapes.language import VocabularyFiller
from tests.editing import tiny
from tests.editing.perturbing import photo_of


class Guess:
    """Guesses the same few words, and remembers what was hidden."""

    def __init__(self, *words):
        self.words, self.hidden = words, []

    def fill(self, blanks, top_k):
        self.hidden += [blank.word for blank in blanks]
        return [[Fill(word, 0.1) for word in self.words[:top_k]] for _ in blanks]

    def describe(self):
        return {"filler": "guess"}


def edit(texts, filler=None, **settings):
    examples = [photo_of("dog", text, f"k{i}") for i, text in enumerate(texts)]
    return RandomWordEdit(filler or Guess("dog", None, "the", "owl"), **settings).edit(examples)


def test_one_content_word_is_replaced_by_the_best_guess_that_is_another():
    found = edit(["A small dog runs in the 2 parks."] * 60)
    edits = Counter()
    for one in found:
        [proposal] = one.proposals
        edits[proposal.edits[1].before] += 1
        assert proposal.edits[1].kind == "random"
        assert len(proposal.texts[1].split()) == len(proposal.texts[0].split())
    # The guesses for "dog" begin with the word itself.
    assert set(edits) == {"small", "dog", "runs", "parks"}
    assert max(edits.values()) < 30
    assert {p.edits[1].after for one in found for p in one.proposals} == {"dog", "owl"}


def test_articles_and_capitals_follow_and_words_of_a_caption_differ():
    [one] = edit(["a Dog sleeps"], Guess("owl"), edits=2)
    texts = {p.texts[1] for p in one.proposals}
    assert texts == {"an Owl sleeps", "a Dog owl"}
    assert {p.edits[1] for p in one.proposals} == {
        Edit("random", "dog", "owl"), Edit("random", "sleeps", "owl"),
    }  # fmt: skip


def test_captions_without_a_word_or_a_guess_are_counted():
    no_word, no_guess = edit(["it is on the", "a dog"], Guess("dog", "of"))
    assert [one.reason for one in no_word.rejected] == ["no word to replace"]
    assert [one.reason for one in no_guess.rejected] == ["no other word"]
    assert (no_word.proposals, no_guess.rejected_by) == ((), "variations")


def test_no_label_is_guarded_unless_asked():
    texts = ["a dog sleeps"] * 20
    plain = {p.edits[1].before for one in edit(texts, Guess("owl")) for p in one.proposals}
    assert plain == {"dog", "sleeps"}
    guarded = edit(texts, Guess("owl"), guards={"label": LabelGuard()})
    assert {p.edits[1].before for one in guarded for p in one.proposals} == {"sleeps"}
    assert all(len(one.proposals) == 1 for one in guarded)


def test_it_depends_on_the_key_and_the_seed_alone():
    texts = [f"a big dog runs and barks at {n} cats" for n in range(8)]
    together = edit(texts, Guess("owl"))
    assert isinstance(RandomWordEdit(Guess()), Editor)
    assert isinstance(RandomWords(Guess()), VariationModel)
    assert edit(texts, Guess("owl")) == together
    assert edit(texts[:3], Guess("owl")) == together[:3]
    assert edit(texts, Guess("owl"), seed=1) != together
    with pytest.raises(UserError, match=r"edits=0 should be a whole number of at least 1"):
        RandomWordEdit(Guess(), edits=0)


def test_real_fillers_guess(tmp_path):
    roberta = MaskedLM(str(tiny.save_roberta(tmp_path / "roberta")))
    editor = RandomWordEdit(roberta, top_k=50)
    found = editor.edit([photo_of("dog", text, f"k{i}") for i, text in enumerate(tiny.CAPTIONS)])
    edits = [p.edits[1] for one in found for p in one.proposals]
    assert edits
    assert all(e.before not in STOP_WORDS and e.after not in STOP_WORDS for e in edits)
    assert "sha256:" in editor.describe()["perturber masked_lm"]
    [world] = edit(["a red ball on the beach"], VocabularyFiller(), edits=2)
    assert {p.edits[1].before for p in world.proposals} == {"red", "ball"}
