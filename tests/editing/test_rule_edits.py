"""Variations by rules and word lists, and the rules that judge anyone's edits of any caption."""

from __future__ import annotations

import pytest

from cfaug.core.errors import UserError
from cfaug.core.types import Edited, Rejected
from cfaug.editing.edit_checks import EditMeasures, StructureCheck, measure_edits, table_lines
from cfaug.editing.edit_prompts import EditPrompt, read_prompts
from cfaug.editing.filters import caption_report
from cfaug.editing.instructed_edit import InstructedEdit
from cfaug.editing.paraphrase import find_phrases
from cfaug.editing.protocols import EditGuard, VariationModel, VariationRequest
from cfaug.editing.rule_edits import RuleEdits
from cfaug.editing.sentence import TextBlobTagger, split
from cfaug.editing.word_lists import FILES, WordLists
from cfaug.editing.wordnet import WordNet
from tests.editing import tiny
from tests.editing.perturbing import Said, edit_of, photo_of

PROMPTS = {prompt.name: prompt for prompt in read_prompts("plain")}


def vary(text, name, *, model=None, count=500, seed=0):
    model = model or RuleEdits(TextBlobTagger())
    prompt = PROMPTS.get(name, EditPrompt(name, "<caption>"))
    [variations] = model.vary([VariationRequest(text, prompt, count, seed)])
    return variations


def phrases(text):
    sentence = split(text)
    return find_phrases(sentence, TextBlobTagger().tag([sentence.words])[0])


def words(parsed, slot):
    return None if slot is None else " ".join(parsed.sentence.words[slot.first : slot.last + 1])


@pytest.mark.parametrize(
    ("text", "subject", "thing"),
    [
        ("A man riding a wave on top of a surfboard", "man", "wave"),
        ("a photo of a dog on a sofa", "dog", "sofa"),
        ("A group of people standing in a kitchen", "people", "kitchen"),
        ("Two bunches of bananas on a wooden table.", "bananas", "table"),
        ("A black and white photo of a fire hydrant", "fire hydrant", None),
        ("A child's room", "room", None),
        ("walking slowly", None, None),
    ],
)
def test_the_subject_and_the_object_are_found(text, subject, thing):
    parsed = phrases(text)
    assert (words(parsed, parsed.subject), words(parsed, parsed.object)) == (subject, thing)


def test_nouns_give_way_to_others_of_their_kind_in_their_number():
    dogs = vary("Two dogs run in the snow.", "subject")
    assert "Two sheep run in the snow." in dogs.texts
    assert "Two cats run in the snow." in dogs.texts
    assert all(t.endswith(" run in the snow.") and "dog" not in t for t in dogs.texts)
    apple = vary("A man eats an apple", "object")
    assert "A man eats a banana" in apple.texts
    assert "A man eats an orange" in apple.texts
    hot_dogs = vary("Two hot dogs on a bun", "subject").texts
    assert "Two pizzas on a bun" in hot_dogs
    assert not any("hot" in text for text in hot_dogs)
    assert vary("Paper", "subject").problem == "nothing to change"
    assert "Women sit" in vary("People sit", "subject").texts


def test_wordnet_knows_more_nouns(tmp_path):
    lists = tmp_path / "lists"
    lists.mkdir()
    (lists / "nouns.txt").write_text(
        "animal (animal): dog, ox/oxen\nvehicle (vehicle): bus/buses, van\n"
    )
    wordnet = WordNet(str(tiny.save_wordnet(tmp_path / "files")))
    model = RuleEdits(TextBlobTagger(), wordnet, WordLists(str(lists)))
    assert set(vary("a puppy runs", "subject", model=model).texts) == {"a dog runs", "an ox runs"}
    # A coach is a bus: that would change nothing.
    assert vary("a coach", "subject", model=model).texts == ("a van",)
    plain = RuleEdits(TextBlobTagger(), lists=WordLists(str(lists)))
    assert vary("a puppy runs", "subject", model=plain).problem == "nothing to change"


def test_adjectives_are_added_in_front_or_exchanged_within_their_set():
    car = vary("An old red car on a street", "adjective").texts
    assert "An old blue car on a street" in car
    assert "A shiny red car on a street" in car
    assert "A small old red car on a street" in car
    assert "An old red car on a wooden street" in car
    assert not any("elderly" in text for text in car)
    person = vary("Several women sit", "adjective").texts
    assert "Several elderly women sit" in person
    # What suits things says of people what it should not.
    assert not any(w in text for text in person for w in ("black", "white", "rusty"))
    assert "A plastic pot" in vary("A metal pot", "adjective").texts
    assert "A wooden living room" in vary("A living room", "adjective").texts
    racket = vary("Posed to swing his racket", "adjective").texts
    assert racket
    assert all(text.startswith("Posed to swing his ") for text in racket)
    assert "Muddy dogs run" in vary("Dogs run", "adjective").texts


def test_places_and_weather_are_exchanged_or_added_at_the_end():
    beach = vary("A dog runs on the grass.", "background-location").texts
    assert "A dog runs in a desert." in beach
    assert not any("grass." in text for text in beach)
    assert "A dog runs in a desert" in vary("A dog runs", "background").texts
    rain = vary("A dog runs in the snow with a ball.", "background-weather").texts
    assert "A dog runs in the rain with a ball." in rain
    assert "A dog runs at night." in vary("A dog runs.", "background-weather").texts


def test_the_medium_is_renamed_or_put_before():
    assert "A painting of a dog" in vary("A photo of a dog", "domain").texts
    assert "a sketch of a dog" in vary("a dog", "domain").texts
    assert "An oil painting of two dogs." in vary("There are two dogs.", "domain").texts
    assert "A painting of a dog" not in vary("A painting of a dog", "domain").texts
    assert "A sketch of TV sets" in vary("TV sets", "domain").texts


def test_as_many_as_are_asked_for_are_drawn_by_the_seed():
    some = {vary("A dog runs", "domain", count=3, seed=seed).texts for seed in range(9)}
    assert len(some) > 5
    assert {len(texts) for texts in some} == {3}
    assert vary("A dog", "light").problem == "no rule"
    assert isinstance(RuleEdits(TextBlobTagger()), VariationModel)


def test_word_lists_of_ones_own_take_the_place_of_the_shipped(tmp_path):
    (tmp_path / "domains.txt").write_text("# mine\nfresco\n\n")
    model = RuleEdits(TextBlobTagger(), lists=WordLists(str(tmp_path)))
    assert vary("a dog", "domain", model=model).texts == ("a fresco of a dog",)
    assert "a cat" in vary("a dog", "subject", model=model).texts
    assert RuleEdits(TextBlobTagger()).describe()["perturber"] == "rules, word lists"
    before = model.describe()
    (tmp_path / "domains.txt").write_text("etching\n")
    assert model.describe() != before  # other edits come of them
    with pytest.raises(UserError, match=r"has none of nouns.txt, adj"):
        WordLists(str(tmp_path / "elsewhere"))
    (tmp_path / "nouns.txt").write_text("dog cat\n")
    with pytest.raises(UserError, match=r"nouns.txt: 'dog cat' is invalid"):
        vary("a dog", "subject", model=RuleEdits(TextBlobTagger(), lists=WordLists(str(tmp_path))))
    for name in FILES:
        assert WordLists().lines(name)


CAPTION = "A man walking a brown dog on grass"


@pytest.mark.parametrize(
    ("kind", "after", "correct"),
    [
        ("subject", "A woman walking a brown dog on grass", True),
        ("subject", "A man walking a brown horse on grass", False),
        ("object", "A man walking a brown horse on grass", True),
        ("object", "A man walking a black dog on grass", False),
        ("adjective", "A tall man walking a brown dog on grass", True),
        ("adjective", "A man walking a black dog on grass", True),
        ("adjective", "A man walking a cheerful brown dog on grass", True),
        ("adjective", "A man walking a brown dog on grass in the rain", False),
        ("adjective", "An old man walking a black dog on grass", False),
        ("background", "A man walking a brown dog by the beach", True),
        ("background", "A man walking a brown dog on grass with mountains", True),
        ("background", "On a rainy day, a man walking a brown dog on grass", True),
        ("background", "A woman walking a brown dog on grass", False),
        ("domain", "A painting of a man walking a brown dog on grass", True),
        ("domain", "A watercolour tapestry of a man walking a brown dog on grass.", True),
        ("domain", "A painting of a woman walking a brown dog on grass", False),
        ("domain", "A man walking a brown dog on grass, painted", False),
    ],
)
def test_an_edit_is_of_its_kind_if_it_changes_what_the_kind_names_and_nothing_else(
    kind, after, correct
):
    check = StructureCheck(TextBlobTagger())
    assert isinstance(check, EditGuard)
    [verdict] = check.judge([edit_of("dog", CAPTION, after, kind)])
    assert (verdict.reason, verdict.notes) == ("", {"kind_correct": correct})
    strict = StructureCheck(TextBlobTagger(), reject=True)
    assert strict.judge([edit_of("dog", CAPTION, after, kind)])[0].reason == (
        "" if correct else "another kind"
    )


def test_kinds_of_ones_own_are_not_judged_and_a_renamed_medium_is():
    cases = [
        (CAPTION, "a dog", "light", {}),
        ("A photo of a dog", "A sketch of a dog", "domain", {"kind_correct": True}),
        ("A photo of a dog", "A photo of a cat", "domain", {"kind_correct": False}),
        ("There are two dogs", "A sketch of two dogs", "domain", {"kind_correct": True}),
    ]
    edits = [edit_of("dog", *case[:3]) for case in cases]
    verdicts = StructureCheck(TextBlobTagger()).judge(edits)
    assert [dict(verdict.notes) for verdict in verdicts] == [case[3] for case in cases]


def test_the_measures_are_those_of_table_3():
    texts = ["a blue dog", "a red cow", "a  red dog", "w " * 70]
    editor = InstructedEdit(
        Said({"adjective": tuple(texts), "subject": ("a red cat",)}),
        checks={"structure": StructureCheck(TextBlobTagger())},
    )
    edited = editor.edit([photo_of("dog", "a red dog")])
    *_, overall = measured = measure_edits(edited)
    # Of the adjective's variations one is right, one another kind, one the same, one too long.
    assert [(measures.kind, measures.edits, measures.correct) for measures in measured] == [
        ("adjective", 4, 1), ("subject", 1, 1), ("overall", 5, 2),
    ]  # fmt: skip
    assert (overall.success, overall.label_kept, overall.precision) == (0.4, None, None)
    report = caption_report([edited])
    assert "| adjective | 4 | 25.0 | - | - | - |" in report
    assert measure_edits([Edited((), {}, (Rejected("x", edited[0].rejected[0].edit, "y"),))]) == []


def test_precision_and_recall_are_of_rejections_for_the_label():
    def lost(reason, kept):
        edit = edit_of("dog", "a dog", "a cow", "subject").edit
        return Rejected("a cow", edit, reason, {"label_kept": kept, "kind_correct": True})

    some = [lost("changes the label", False)] * 3 + [lost("changes the label", True)]
    some += [lost("not drawn", False)] + [lost("not drawn", True)] * 5
    [_, overall] = measure_edits([Edited((), {}, tuple(some))])
    assert overall == EditMeasures("overall", 10, 10, 10, 6, 3, 4)
    assert (overall.precision, overall.recall, overall.label_kept) == (0.75, 0.75, 0.6)
    assert table_lines([overall])[-1] == "| overall | 10 | 100.0 | 60.0 | 75.0 | 75.0 |"


def test_captions_that_are_odd_get_an_answer():
    check = StructureCheck(TextBlobTagger())
    for text in ("", ".", "of of", "A 's", "photo of", "!!!", "日本語の犬", "a" * 500):
        for name in PROMPTS:
            variations = vary(text, name, count=2)
            assert variations.texts or variations.problem
            edits = [edit_of("dog", text, t, PROMPTS[name].kind) for t in variations.texts]
            assert len(check.judge(edits)) == len(edits)
