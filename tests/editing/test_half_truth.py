"""Half-truths: the short caption is true, the longer one has one wrong detail."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfaug.core.errors import UserError
from cfaug.core.types import CounterfactualSet, Member
from cfaug.editing.half_truth import OPPOSITES, HalfTruth
from cfaug.editing.sentence import TextBlobTagger, split
from cfaug.evaluation.choices.caption_choice import CaptionChoice
from cfaug.evaluation.inference import Pixels, embed_images, embed_texts
from cfaug.generate.captions import sibling_aware
from cfaug.worlds.shapescapes.parts import make_part
from cfaug.worlds.shapescapes.settings import WorldSettings
from cfaug.worlds.shapescapes.world import SHAPES
from tests.editing.tiny import real_captions
from tests.evaluation.caption_items import open_sets, world_pairs
from tests.properties import examples
from tests.records import example
from tests.worlds.shapescapes.read_compositional import shown

TAGGER = TextBlobTagger()


def texts(text, kind, **given):
    """The captions of one text's set; ``None`` without a set."""
    (result,) = HalfTruth(TAGGER, kinds=[kind], **given).edit([example(text)])
    return result.proposals[0].texts if result.proposals else None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A girl sitting on a chair in front of a pizza.", "A girl sitting under a chair."),
        ("a dog next to a red car", "a dog far from a red car"),
        ("A photo of a dog in front of a sofa", "A dog behind a sofa"),
        ("A woman in the park throwing a frisbee", "A woman outside the park"),
        ("a red ball left of a blue cube", "a red ball right of a blue cube"),
        ("Ducks walking down the stairs.", "Ducks walking up the stairs."),
        ("A man in black shirt.", None),  # the opposite of wearing is not outside
        ("a dog on a sunny day", None),
        ("a man riding a horse", None),
        ("a dog and a cat on a sofa", None),  # which of them?
        ("a dog while on a sofa", None),
        ("a dog not on a sofa", None),
        ("", None),
        ("on", None),
    ],
)
def test_the_opposite_of_a_place(text, expected):
    made = texts(text, "relation")
    assert (made and made[1]) == expected
    if made:
        assert made[1].startswith(made[0].rstrip("."))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A man riding a horse on the beach.", "A horse riding a man."),
        ("a dog under a sofa", "a sofa under a dog"),
        ("Ducks walking down the stairs", "The stairs walking down ducks"),
        ("A dog next to a cat", None),  # true as well
        ("A man standing with a dog", None),
        ("A man is riding two horses", None),  # two horses is
        ("A man holding his hat", None),
        ("A bird in the distance", None),
    ],
)
def test_two_things_exchanged(text, expected):
    made = texts(text, "swap")
    assert (made and made[1]) == expected


def test_the_control_says_what_the_caption_says():
    assert texts("A man riding a horse on the beach.", "full") == (
        "A man.", "A man riding a horse."
    )  # fmt: skip
    for number, text in enumerate(real_captions()):
        (result,) = HalfTruth(TAGGER, kinds=["full"]).edit([example(text, f"k{number}")])
        for proposal in result.proposals:
            short, longer = (part.rstrip(".").lower() for part in proposal.texts)
            assert short in longer
            assert longer in " ".join(text.lower().split())


def test_an_added_object_is_not_there():
    assert texts("A puppy on the beach.", "object", objects=["dog", "cat"]) == (
        "A puppy.", "A puppy and a cat."  # a puppy is a dog
    )  # fmt: skip
    given = [example("a sofa", "k0", "photo"), example("a cat asleep", "k1", "photo")]
    editor = HalfTruth(TAGGER, kinds=["object"], objects=["cat", "car"])
    (proposal,) = sibling_aware(editor, given).edit(given[:1])[0].proposals
    assert proposal.texts == ("a sofa", "a sofa and a car")
    boxes = example("a sofa", extra={"detections": [{"label": "car"}]})
    (proposal,) = editor.edit([boxes])[0].proposals
    assert proposal.texts[1] == "a sofa and a cat"
    assert texts("a cat and a car", "object", objects=["cat", "car"]) is None


def test_sets_say_their_kind():
    (result,) = HalfTruth(TAGGER, per="kind").edit([example("a dog under a sofa")])
    kinds = ["object", "relation", "swap"]
    assert [proposal.edits[1].kind for proposal in result.proposals] == kinds
    for kind, proposal in zip(kinds, result.proposals, strict=True):
        assert proposal.edits[0] is None
        assert proposal.details[0] == {"category": kind}
        assert proposal.details[1]["changes"][0]["operation"] == kind
    assert result.proposals[1].details[1]["changes"][0]["before"] == "under"


@pytest.mark.parametrize("given", [
    {"kinds": []}, {"kinds": ["attribute"]}, {"objects": []}, {"per": "photo"}, {"seed": -1},
])  # fmt: skip
def test_invalid_settings_are_refused(given):
    with pytest.raises(UserError):
        HalfTruth(TAGGER, **given)


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.sampled_from(real_captions()), min_size=2, max_size=6, unique=True),
       st.integers(0, 99), st.sampled_from(["caption", "kind"]))  # fmt: skip
def test_a_caption_is_edited_alike_in_any_company(captions, seed, per):
    given = [example(text, f"k{i}") for i, text in enumerate(captions)]
    editor = HalfTruth(TAGGER, per=per, seed=seed)
    together = editor.edit(given)
    assert [editor.edit([item])[0] for item in given] == together
    for result in together:
        for proposal in result.proposals:
            short, longer = proposal.texts
            assert len(split(longer).words) > len(split(short).words)


def test_the_oracle_of_the_world_knows_that_the_detail_is_wrong():
    """Shapes of a picture are looked up in its record."""
    world = WorldSettings(seed=3, image_size=8, style="drawing", compositional_pairs=66)
    records = {item.key: item.members[0] for item in make_part(world, "compositional_train")}
    given = [example(member.text, key) for key, member in records.items()]
    editor = HalfTruth(TAGGER, kinds=["object", "relation"], objects=SHAPES, per="kind")
    kinds = {"object": 0, "relation": 0}
    for result in editor.edit(given):
        for proposal in result.proposals:
            there = {thing["shape"] for thing in shown(records[proposal.example.key].extra)[0]}
            kind, change = proposal.edits[1].kind, proposal.details[1]["changes"][0]
            kinds[kind] += 1
            assert set(proposal.texts[0].rstrip(".").split()) & set(SHAPES) <= there
            if kind == "object":
                assert change["object"] not in there
            else:
                assert OPPOSITES[change["before"]] == change["after"]
                assert change["before"] in proposal.example.text
                assert change["after"] in proposal.texts[1]
    assert min(kinds.values()) > 0


def test_the_number_is_that_of_a_slow_count(encoder, tmp_path):
    """The share of photos that are more similar to the short truth than to the half-truth."""
    sets = []
    for number, pair in enumerate(world_pairs()):
        first = pair.members[0]
        given = example(f"{first.text} on a table", f"k{number}")
        (result,) = HalfTruth(TAGGER, seed=number).edit([given])
        (proposal,) = result.proposals
        members = [
            Member(text, first.image_name, f"{number}-{place}", edit, extra=dict(details))
            for place, (text, edit, details) in enumerate(
                zip(proposal.texts, proposal.edits, proposal.details, strict=True)
            )
        ]
        images = {first.image_name: pair.images[first.image_name]}
        sets.append(CounterfactualSet(f"k{number}", f"g{number}", tuple(members), images))
    index = open_sets(sets, tmp_path)
    evaluation = CaptionChoice(name="h", truth="first", blind=None).use(index).run(encoder)
    values = {(o.metric, *o.by.items()): o.value for o in evaluation.outcomes}
    hits: dict[str, list[bool]] = {}
    for row in range(0, len(index), 2):
        image = embed_images(encoder, Pixels(index, np.array([row])), 1)[0].astype(float)
        short, half = (
            embed_texts(encoder, [index.text(row + place)], 1)[0].astype(float) @ image
            for place in (0, 1)
        )
        hits.setdefault(index.extra_row(row)["category"], []).append(short > half)
    every = [hit for some in hits.values() for hit in some]
    assert values["accuracy",] == pytest.approx(sum(every) / len(every))
    for kind, some in hits.items():
        assert values["accuracy", ("category", kind)] == pytest.approx(sum(some) / len(some))
