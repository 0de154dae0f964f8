"""Negation: exactly one of two captions is true, and what differs is the negation alone."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfaug.core.errors import UserError
from cfaug.editing.absent_objects import NEGATIONS
from cfaug.editing.negation import Negate, deny
from cfaug.editing.sentence import TextBlobTagger, split
from cfaug.generate.captions import SiblingAware, sibling_aware
from cfaug.worlds.shapescapes.parts import make_part
from cfaug.worlds.shapescapes.settings import WorldSettings
from cfaug.worlds.shapescapes.world import SHAPES
from tests.editing.tiny import real_captions
from tests.properties import examples
from tests.records import example
from tests.worlds.shapescapes.read_compositional import shown

TAGGER = TextBlobTagger()


def denied(text):
    (tags,) = TAGGER.tag([split(text).words])
    return {denial for denial, _ in deny(split(text), tags)}


def pairs(text, kind, tries=40, **given):
    """The captions that some examples of one text give."""
    editor = Negate(TAGGER, kinds=[kind], **given)
    results = editor.edit([example(text, f"k{i}") for i in range(tries)])
    return {proposal.texts for result in results for proposal in result.proposals}


@pytest.mark.parametrize(
    ("text", "denials"),
    [
        ("A man riding a horse.", {"No man riding a horse.", "A man not riding a horse."}),
        ("There is a dog.", {"There is no dog."}),
        ("There are two dogs.", {"There are no dogs."}),
        ("there are people", {"there are no people"}),
        ("A cat is asleep.", {"No cat is asleep.", "A cat is not asleep."}),
        ("a room with a sink", {"no room with a sink", "a room without a sink"}),
        ("a room with two sinks", {"no room with two sinks", "a room without any sinks"}),
        ("a dog and a cat", {"no dog and a cat", "a dog and no cat"}),
        ("a dog and two cats", {"no dog and two cats", "a dog and no cats"}),
        ("A dog on the beach", {"No dog on the beach", "A dog not on the beach"}),
        ("a photo of a dog", {"a photo of no dog"}),
        ("A group of people.", {"No people."}),
        ("A couple of the dogs", {"No dogs"}),
        # "no covered with snow" and "no living room" with a verb would say something else.
        ("a roof covered with snow", {"no roof covered with snow"}),
        ("Mountains", set()),
        ("", set()),
        # What is denied already is said.
        ("a room without a sink", {"a room with a sink"}),
        ("a street with no cars", {"a street with some cars"}),
        ("No dog on the beach", {"A dog on the beach"}),
        ("A cat is not asleep", {"A cat is asleep"}),
        ("no dog and no cat", set()),
        ("they don't look", set()),
    ],
)
def test_denials(text, denials):
    assert denied(text) == denials


def test_a_denial_adds_or_drops_one_negation():
    for text in real_captions():
        before = sum(word.lower() in NEGATIONS for word in split(text).words)
        for denial in denied(text):
            after = sum(word.lower() in NEGATIONS for word in split(denial).words)
            assert abs(after - before) == 1, denial


def test_an_absent_object_is_truly_not_there_and_the_control_adds_the_same():
    text, objects = "A puppy on the beach.", ["dog", "cat"]
    assert pairs(text, "absent", objects=objects) == {  # a puppy is a dog
        ("A puppy on the beach and no cat.", "A puppy on the beach and a cat."),
        ("A puppy on the beach without a cat.", "A puppy on the beach with a cat."),
        ("A puppy on the beach but not a cat.", "A puppy on the beach and a cat."),
    }
    negated = Negate(TAGGER, kinds=["absent"])
    control = Negate(TAGGER, kinds=["affirmed"])
    given = [example(caption, f"k{i}") for i, caption in enumerate(real_captions())]
    results = zip(negated.edit(given), control.edit(given), given, strict=True)
    for edited, controlled, item in results:
        (first,), (second,) = edited.proposals, controlled.proposals
        assert first.texts[1] == second.texts[1]
        assert second.texts[0] == " ".join(item.text.split())
        assert first.edits[0] is None
        assert sum(w in NEGATIONS for w in split(first.texts[0]).words) >= 1
        assert first.details[0] == {"category": "absent"}


@pytest.mark.parametrize("captions", [
    ["a dog", "a brown cat asleep"], ["cats"], ["a kitten"], ["an animal"], ["a Siamese cat"],
])  # fmt: skip
def test_what_another_caption_names_is_there(captions):
    given = [example("a sofa", "k0", "photo")]
    given += [example(text, f"k{i}", "photo") for i, text in enumerate(captions, 1)]
    given += [example("a cat on a car", "k9", "another")]
    editor = sibling_aware(Negate(TAGGER, kinds=["absent"], objects=["cat", "car"]), given)
    assert isinstance(editor, SiblingAware)
    (proposal,) = editor.edit(given[:1])[0].proposals
    assert "cat" not in proposal.texts[0]
    assert "car" in proposal.texts[0]
    assert "siblings" not in proposal.example.extra


def test_detections_say_what_is_there():
    boxes = [{"label": "cat"}, {"label": "Sofa"}]
    there = example("a sofa", extra={"detections": boxes})
    for kind, texts in {
        "absent": ("a sofa and no car", "a sofa and a car"),
        "present": ("a sofa and a cat", "a sofa and no cat"),
    }.items():
        editor = Negate(TAGGER, kinds=[kind], objects=["cat", "car"], phrases=["no"])
        (proposal,) = editor.edit([there])[0].proposals
        assert proposal.texts == texts
        assert proposal.edits[1].kind == kind
    with pytest.raises(UserError, match="has no detections: the recipe needs them"):
        Negate(TAGGER, kinds=["present"]).edit([example("a sofa")])


def test_a_text_whose_objects_are_all_there_or_without_words_gives_no_set():
    assert pairs("a dog and a cat", "absent", objects=["dog", "cat"]) == set()
    editor = Negate(TAGGER)
    for text in ("", " ", "word " * 301):
        (result,) = editor.edit([example(text)])
        assert result.proposals == ()


@pytest.mark.parametrize("settings_", [
    {"kinds": []}, {"kinds": ["absence"]}, {"objects": []}, {"phrases": []},
    {"per": "photo"}, {"seed": -1},
])  # fmt: skip
def test_invalid_settings_are_refused(settings_):
    with pytest.raises(UserError):
        Negate(TAGGER, **settings_)


def test_every_kind_gives_a_set_of_its_own():
    kinds = ["statement", "absent", "affirmed"]
    (result,) = Negate(TAGGER, kinds=kinds, per="kind").edit([example("A dog on the beach")])
    assert [proposal.key for proposal in result.proposals] == ["k-0", "k-1", "k-2"]
    assert [proposal.edits[1].kind for proposal in result.proposals] == kinds
    assert result.survivors == dict.fromkeys(kinds, 1)


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.sampled_from(real_captions()), min_size=2, max_size=6, unique=True),
       st.integers(0, 99), st.sampled_from(["caption", "kind"]))  # fmt: skip
def test_a_caption_is_edited_alike_in_any_company(texts, seed, per):
    """Of all kinds, whatever the batch: draws depend on the seed and the example's key alone."""
    given = [example(text, f"k{i}") for i, text in enumerate(texts)]
    editor = Negate(TAGGER, per=per, seed=seed)
    together = editor.edit(given)
    mixed = list(range(len(given)))
    random.Random(seed).shuffle(mixed)
    alone = {i: editor.edit([given[i]])[0] for i in mixed}
    assert [alone[i] for i in range(len(given))] == together
    for result in together:
        for proposal in result.proposals:
            assert len(set(proposal.texts)) == 2


def test_the_oracle_of_the_world_knows_which_caption_is_true():
    """Every record of a picture is looked up; no caption of the world names what is not there."""
    world = WorldSettings(seed=3, image_size=8, style="drawing", compositional_pairs=66)
    records = {item.key: item.members[0] for item in make_part(world, "compositional_train")}
    given = [example(member.text, key) for key, member in records.items()]
    kinds = {"absent": 0, "statement": 0}
    editor = Negate(TAGGER, objects=SHAPES, phrases=["no"], per="kind")
    for result in editor.edit(given):
        for proposal in result.proposals:
            there = {thing["shape"] for thing in shown(records[proposal.example.key].extra)[0]}
            kinds[proposal.edits[1].kind] += 1
            if proposal.edits[1].kind == "absent":
                true, false = (set(text.split()) for text in proposal.texts)
                (named,) = (set(SHAPES) & true & false) - set(proposal.example.text.split())
                assert named not in there
                assert proposal.texts[0].endswith(f"and no {named}")
            else:
                assert proposal.texts[0] == proposal.example.text
    assert kinds == {"absent": 66, "statement": 66}
