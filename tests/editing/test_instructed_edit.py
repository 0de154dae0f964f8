"""Edits of named kinds, and of a random word: what is asked, kept, rejected and why."""

from __future__ import annotations

from collections import Counter

import pytest

from cfaug.core.errors import UserError
from cfaug.core.protocols import Editor
from cfaug.core.types import Edit, Example
from cfaug.editing.filters import caption_report
from cfaug.editing.instructed_edit import InstructedEdit, RandomWordEdit, RandomWords
from cfaug.editing.label_guard import LabelGuard
from cfaug.editing.protocols import Fill, VariationModel, Variations, Verdict
from cfaug.worlds.shapescapes.language import VocabularyFiller
from tests.editing.perturbing import Said, photo_of

ANSWERS = {
    "adjective": ("a red *", "a blue *", "a green *", "*", "A RED *."),
    "background-location": ("* on the beach", "* by the sea"),
    "background-weather": ("* in the rain", "* on the beach"),
    "domain": ("a sketch of *",),
    "object": (),
    "subject": ("a cat", "word " * 70),
}


def editor(model=None, **settings):
    model = model or Said(ANSWERS)
    settings = {"guards": {"label": LabelGuard()}, "per_kind": 2, **settings}
    return InstructedEdit(model, **settings)


def test_every_prompt_is_asked_for_every_caption_with_a_seed_of_its_own():
    model = Said(ANSWERS)
    examples = [photo_of("dog", "a  dog\n", "k"), photo_of("dog", "a dog", "l")]
    editor(model, ask_for=3).edit(examples)
    assert [request.prompt.name for request in model.asked[:6]] == sorted(ANSWERS)
    assert len(model.asked) == 12
    assert {(request.caption, request.count) for request in model.asked} == {("a dog", 3)}
    assert len({request.seed for request in model.asked}) == 12
    again = Said(ANSWERS)
    editor(again).edit(examples[1:])
    assert [request.seed for request in again.asked] == [
        request.seed for request in model.asked[6:]
    ]
    few = editor(per_kind=1).edit([photo_of("dog", "a dog", f"k{n}") for n in range(9)])
    assert len({result.proposals[0].texts for result in few}) > 1
    assert few[0] == editor(per_kind=1).edit([photo_of("dog", "a dog", "k0")])[0]


def test_each_kind_gives_at_most_so_many_edits_and_everything_else_has_its_reason():
    [edited] = editor().edit([photo_of("dog", "dog")])
    kinds = Counter(proposal.edits[1].kind for proposal in edited.proposals)
    assert kinds == {"adjective": 2, "background": 2, "domain": 1}
    for proposal in edited.proposals:
        assert proposal.texts[0] == "dog"
        assert proposal.edits[0] is None
        [known] = proposal.extra["edits"]
        assert proposal.details == ({}, {name: known[name] for name in proposal.details[1]})
        assert known["prompt"].startswith(proposal.edits[1].kind)
        start, end = known["span_1"]
        assert proposal.texts[1][start:end]
    reasons = Counter((rejected.reason, rejected.edit.kind) for rejected in edited.rejected)
    assert reasons == {
        ("same caption", "adjective"): 1, ("duplicated", "adjective"): 1,
        ("not drawn", "adjective"): 1, ("not drawn", "background"): 1,
        ("duplicated", "background"): 1, ("no variations", "object"): 1,
        ("changes the label", "subject"): 1, ("too long", "subject"): 1,
    }  # fmt: skip
    [lost] = [rejected for rejected in edited.rejected if rejected.reason == "changes the label"]
    assert (lost.text, lost.edit) == ("a cat", Edit("subject", "dog", "a cat"))
    assert lost.extra == {"prompt": "subject", "label_similarity": 1.0, "label_gone": True}
    assert edited.survivors == {"words": 1, "variations": 12, "changed": 8, "label": 7}
    answers = sum(map(len, ANSWERS.values()))
    assert len(edited.proposals) + len(edited.rejected) == answers + 1


def test_a_silent_captioner_a_silent_model_and_a_caption_as_it_came():
    class Broken(Said):
        def vary(self, requests):
            return [Variations(problem="no JSON", extra={"answer": "Sure!"}) for _ in requests]

    silent, dog = Example("k", "k", (" \n",), label="dog"), photo_of("dog", " a  dog ", "l")
    first, second = editor(Broken({}), kinds=["domain"]).edit([silent, dog])
    assert (first.rejected_by, first.rejected) == ("words", ())
    assert second.rejected_by == "variations"
    [lost] = second.rejected
    assert (lost.text, lost.edit, lost.reason) == ("", Edit("domain", "", ""), "no JSON")
    assert lost.extra == {"prompt": "domain", "answer": "Sure!"}
    [edited] = editor(kinds=["domain"]).edit([dog])
    assert edited.proposals[0].extra["raw"] == " a  dog "
    report = caption_report([[first, second, edited]])
    assert "1 of 3 captions have an edit" in report
    assert "| no JSON | 1 |" in report


def test_a_caption_of_too_many_words_is_rejected_with_its_reason():
    """Every variation is a copy of the whole: 10,000 words took a minute a photo."""
    short, long = photo_of("dog", "a dog on a bed"), photo_of("dog", "a dog " * 1_000, "l")
    said = Said(ANSWERS)
    editor = InstructedEdit(said, kinds=["background"])
    results = editor.edit([long, short])
    assert [result.rejected_by for result in results] == ["max_words", None]
    assert {request.caption for request in said.asked} == {"a dog on a bed"}
    assert results[1] == editor.edit([short])[0]


def test_kinds_and_their_numbers_are_chosen():
    examples = [photo_of("dog", "a dog")]
    [edited] = editor(kinds=["domain", "background"], per_kind={"background": 1, "domain": 1}).edit(
        examples
    )
    assert [proposal.edits[1].kind for proposal in edited.proposals] == ["domain", "background"]
    model = Said(ANSWERS)
    editor(model, per_kind={"background": 1}).edit(examples)
    assert [request.kind for request in model.asked] == ["background"] * 2


def test_a_folder_of_prompts_gives_kinds_of_ones_own(tmp_path):
    (tmp_path / "light.txt").write_text("Change the light: <caption>")
    light = editor(Said({"light": ("* at dawn",)}), prompts=str(tmp_path))
    assert isinstance(light, Editor)
    [edited] = light.edit([photo_of("dog", "a dog")])
    assert edited.proposals[0].edits[1] == Edit("light", "", "at dawn")
    before = light.describe()
    (tmp_path / "light.txt").write_text("Change the light of <caption>")
    after = editor(Said({}), prompts=str(tmp_path)).describe()
    assert before["prompts"] != after["prompts"]
    assert before["perturber"] == "said"
    assert before["label_guard"].startswith("fixed")


def test_checks_note_and_reject_nothing():
    class Doubt:
        name = "doubt"

        def judge(self, edits):
            return [Verdict("doubtful", {"doubt": len(edit.text)}) for edit in edits]

        def describe(self):
            return {"doubt": "length"}

    [edited] = editor(checks={"doubt": Doubt(), "none": None}).edit([photo_of("dog", "dog")])
    assert edited.survivors["label"] == 7
    for proposal in edited.proposals:
        assert proposal.details[1]["doubt"] == len(proposal.texts[1])
    early = ("same caption", "too long", "duplicated", "no variations")
    assert all("doubt" in lost.extra for lost in edited.rejected if lost.reason not in early)
    [rejected] = editor(guards={"doubt": Doubt()}).edit([photo_of("dog", "dog")])
    assert rejected.rejected_by == "doubt"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"kinds": ["light"]}, "no prompt of the kind 'light'"),
        ({"per_kind": {"light": 1}}, "per_kind names 'light'"),
        ({"per_kind": 0}, "no edit of any kind is wanted"),
        ({"ask_for": 0}, r"recipe\.editor\.ask_for=0 should be a whole number of at least 1"),
        ({"guards": {"a": LabelGuard(), "b": LabelGuard()}}, "two guards have one name"),
    ],
)
def test_invalid_settings_are_named(settings, said):
    with pytest.raises(UserError, match=said):
        editor(**settings)


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
    results = edit(["A small dog runs in the 2 parks."] * 60)
    edits = Counter()
    for result in results:
        [proposal] = result.proposals
        edits[proposal.edits[1].before] += 1
        assert proposal.edits[1].kind == "random"
        assert len(proposal.texts[1].split()) == len(proposal.texts[0].split())
    # The guesses for "dog" begin with the word itself.
    assert set(edits) == {"small", "dog", "runs", "parks"}
    assert max(edits.values()) < 30
    assert {p.edits[1].after for result in results for p in result.proposals} == {"dog", "owl"}


def test_articles_and_capitals_follow_and_words_of_a_caption_differ():
    [result] = edit(["a Dog sleeps"], Guess("owl"), edits=2)
    texts = {p.texts[1] for p in result.proposals}
    assert texts == {"an Owl sleeps", "a Dog owl"}
    assert {p.edits[1] for p in result.proposals} == {
        Edit("random", "dog", "owl"), Edit("random", "sleeps", "owl"),
    }  # fmt: skip


def test_captions_without_a_word_or_a_guess_are_counted():
    no_word, no_guess = edit(["it is on the", "a dog"], Guess("dog", "of"))
    assert [lost.reason for lost in no_word.rejected] == ["no word to replace"]
    assert [lost.reason for lost in no_guess.rejected] == ["no other word"]
    assert (no_word.proposals, no_guess.rejected_by) == ((), "variations")


def test_no_label_is_guarded_unless_asked():
    texts = ["a dog sleeps"] * 20
    plain = {p.edits[1].before for result in edit(texts, Guess("owl")) for p in result.proposals}
    assert plain == {"dog", "sleeps"}
    guarded = edit(texts, Guess("owl"), guards={"label": LabelGuard()})
    assert {p.edits[1].before for result in guarded for p in result.proposals} == {"sleeps"}
    assert all(len(result.proposals) == 1 for result in guarded)


def test_words_are_drawn_by_the_seed():
    texts = [f"a big dog runs and barks at {n} cats" for n in range(8)]
    together = edit(texts, Guess("owl"))
    assert isinstance(RandomWordEdit(Guess()), Editor)
    assert isinstance(RandomWords(Guess()), VariationModel)
    assert "guess" in RandomWordEdit(Guess()).describe().values()
    assert edit(texts[:3], Guess("owl")) == together[:3]
    assert edit(texts, Guess("owl"), seed=1) != together
    [world] = edit(["a red ball on the beach"], VocabularyFiller(), edits=2)
    assert {p.edits[1].before for p in world.proposals} == {"red", "ball"}
