"""Compositional parts: what is called true is true, what is called false is not."""

from __future__ import annotations

import io
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from PIL import Image

from cfaug.evaluation.choices.caption_scores import BlindLanguage
from cfaug.worlds.shapescapes.compositional_edits import (
    CLAIMS,
    EDITS,
    PictureDistribution,
    draw_picture,
    words_of_pictures,
)
from cfaug.worlds.shapescapes.compositional_parts import (
    BIASED,
    PARTS,
    TEST,
    TRAINING,
    CaptionReader,
)
from cfaug.worlds.shapescapes.parts import make_part, part_size
from cfaug.worlds.shapescapes.settings import WorldSettings
from cfaug.worlds.shapescapes.world import World
from tests.worlds.shapescapes.read_compositional import is_true, is_true_with_negation, shown

SETTINGS = WorldSettings(
    seed=6, image_size=8, style="drawing", shortcut="colour", compositional_pairs=66,
    compositional_test_pairs=48,
)  # fmt: skip
ITEMS = 48


@pytest.fixture(scope="module")
def parts():
    return {part: list(make_part(SETTINGS, f"compositional_{part}")) for part in PARTS}


def pixels(data):
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB")).astype(int)


def test_every_part_has_as_many_sets_as_the_world_says(parts):
    for part, sets in parts.items():
        assert len(sets) == part_size(SETTINGS, f"compositional_{part}")
        assert len(sets) == (66 if part in TRAINING else 48)
        assert len({item.key for item in sets}) == len(sets)


@pytest.mark.parametrize(
    "part", ["pairs", "biased_pairs", "single_pairs", "counterfactual", "single_counterfactual"]
)
def test_each_caption_of_a_pair_is_true_of_its_own_picture_alone(parts, part):
    for pair in parts[part]:
        first, second = pair.members
        for member, other in ((first, second), (second, first)):
            assert is_true(member.text, member.extra), (member.text, member.extra)
            assert not is_true(member.text, other.extra), (member.text, other.extra)
        assert first.edit is None
        assert second.edit.kind == first.extra["category"]


@pytest.mark.parametrize(
    "part", ["choice", "biased_choice", "single_choice", "claims", "paraphrases"]
)
def test_labels_say_which_caption_is_true_of_the_one_picture(parts, part):
    for item in parts[part]:
        assert len(item.images) == 1
        for member in item.members:
            assert is_true(member.text, member.extra) == (member.label == "true"), member
        wanted = ["true", "true", "false"] if part == "paraphrases" else ["true", "false"]
        assert [member.label for member in item.members] == wanted
        assert len({member.text for member in item.members}) == len(wanted)


def test_a_longer_caption_is_true_of_one_of_two_pictures(parts):
    for item, claim in zip(parts["claims_images"], parts["claims"], strict=True):
        assert len(item.images) == 2
        assert [member.label for member in item.members] == ["true", "false"]
        true, false = item.members
        assert true.text == false.text == claim.members[1].text
        assert is_true(true.text, true.extra)
        assert not is_true(false.text, false.extra)
        assert item.images[false.image_name] == claim.images["0"]  # that of the text side
        assert is_true(claim.members[0].text, true.extra)  # the short caption fits both
        assert true.extra["category"] == claim.members[0].extra["category"]


def test_labels_of_negation_are_those_of_a_slow_reader(parts):
    kinds = Counter()
    for item in parts["negation"]:
        assert len(item.images) == 1
        assert [member.label for member in item.members] == ["true", "false"]
        for member in item.members:
            truth = is_true_with_negation(member.text, member.extra)
            assert truth == (member.label == "true"), member
        true, false = (member.text for member in item.members)
        kind = item.members[0].extra["category"]
        kinds[kind] += 1
        assert (" no " in true, " no " in false) == {
            "absent": (True, False), "present": (False, True), "which": (True, True)
        }[kind]  # fmt: skip
        words, others = true.split(), false.split()
        if kind == "which":
            assert sorted(words) == sorted(others)
        else:
            assert sum(a != b for a, b in zip(words, others, strict=True)) == 1
    assert kinds == dict.fromkeys(("absent", "present", "which"), ITEMS // 3)


def test_every_training_caption_is_true(parts):
    for part in TRAINING:
        for item in parts[part]:
            assert all(is_true(member.text, member.extra) for member in item.members), part


@pytest.mark.parametrize(("form", "law"), [("choice", ""), ("biased_choice", "biased_")])
def test_a_choice_shows_the_first_picture_of_its_pair(parts, form, law):
    for choice, pair in zip(parts[form], parts[f"{law}pairs"], strict=True):
        assert [m.text for m in choice.members] == [m.text for m in pair.members]
        assert choice.images["0"] == pair.images["0"]


def test_categories_come_in_equal_shares(parts):
    def count(part):
        return Counter(item.members[0].extra["category"] for item in parts[part])

    assert count("pairs") == dict.fromkeys(EDITS, ITEMS // len(EDITS))
    assert count("claims") == dict.fromkeys(CLAIMS, ITEMS // len(CLAIMS))
    assert set(count("biased_pairs")) == set(BIASED)
    assert set(count("counterfactual").values()) == {6}
    assert set(count("paraphrases")) == {"frame", "colour_after", "place_first", "turned"}


def test_plain_texts_say_nothing_of_which_is_true():
    """Of either text the part has as many that are true as that are false, but for chance."""
    many = WorldSettings(seed=1, image_size=8, style="drawing", compositional_test_pairs=400)
    longer, at_home, homes = 0, 0, World(many).homes["colour"]
    for choice in make_part(many, "compositional_choice"):
        true, false = choice.members
        if true.extra["category"] == "add_subject":
            longer += len(true.text) > len(false.text)
        else:
            at_home += home_share(true.text, homes) - home_share(false.text, homes)
    assert 13 <= longer <= 37  # of 50: four standard deviations
    assert abs(at_home) <= 60


def home_share(text, homes):
    words = text.split()
    return sum(homes.get(word) == before for before, word in pairwise(words))


def test_biased_items_leave_home_and_training_seldom_does(parts):
    homes = World(SETTINGS).homes["colour"]

    def strange(member):
        return [
            thing for thing in shown(member.extra)[0] if homes[thing["shape"]] != thing["colour"]
        ]

    for pair in parts["biased_pairs"]:
        first, second = pair.members
        assert not strange(first)
        assert strange(second)
        assert home_share(first.text, homes) == len(shown(first.extra)[0])
    things = [
        thing for sets in parts["train"] for thing in shown(sets.members[0].extra)[0]
    ]  # fmt: skip
    share = np.mean([homes[thing["shape"]] == thing["colour"] for thing in things])
    assert 0.8 <= share <= 0.98


def test_training_parts_have_the_same_originals(parts):
    for part in ("counterfactual", "paraphrased"):
        for train, other in zip(parts["train"], parts[part], strict=True):
            assert train.members[0].text == other.members[0].text
            assert train.images["0"] == other.images["0"]
    for pair, matched in zip(parts["counterfactual"], parts["matched"], strict=True):
        assert [m.text for m in pair.members] == [m.text for m in matched.members]
        assert all(member.edit is None for member in matched.members)
        seeds = {m.extra["scene_seed"] for item in (pair, matched) for m in item.members}
        assert len(seeds) == 3


def test_no_test_scene_is_trained_on(parts):
    seen = {
        m.extra["scene_seed"] for part in TRAINING for item in parts[part] for m in item.members
    }
    asked = {m.extra["scene_seed"] for part in TEST for item in parts[part] for m in item.members}
    assert not seen & asked


def test_an_edit_changes_the_cells_of_what_it_is_about_only():
    large = WorldSettings(seed=2, image_size=32, style="drawing", compositional_test_pairs=24)
    for pair in make_part(large, "compositional_pairs"):
        first, second = pair.members
        kind = first.extra["category"]
        before, after = (pixels(pair.images[member.image_name]) for member in (first, second))
        changed = (before != after).any(axis=2)
        assert changed.any()
        if kind == "replace_place":
            continue
        cells = {
            (thing["column"], thing["row"])
            for thing in [*first.extra["things"], *second.extra["things"]]
            if (thing in first.extra["things"]) != (thing in second.extra["things"])
        }
        for column in range(2):
            for row in range(2):
                part = changed[16 * row : 16 * row + 16, 16 * column : 16 * column + 16]
                assert part.any() == ((column, row) in cells), (kind, column, row)


def test_captions_have_known_words_only(parts):
    known = {*words_of_pictures(), "no"}  # which the shipped models do not know
    for sets in parts.values():
        for item in sets:
            assert all(set(member.text.split()) <= known for member in item.members)


def test_a_world_of_two_colours_is_drawn_all_the_same():
    few = WorldSettings(seed=0, colours=("red", "blue"), shortcut="colour")
    law = PictureDistribution(World(few), 1.0)
    picture = draw_picture(np.random.default_rng(0), law, 2)
    assert {thing.colour for thing in picture.things} == {"red", "blue"}


READER_WORLD = WorldSettings(seed=3, shortcut="colour", compositional_pairs=600)


@pytest.fixture(scope="module")
def reader():
    return CaptionReader(READER_WORLD)


def accuracy(reader, part, category=None, count=200):
    world = World(READER_WORLD)
    drawn = [PARTS[part].items.draw(world, index) for index in range(count)]
    texts = [text for each in drawn if category in (None, each.category) for text in each.captions]
    likely = reader.log_likelihood(texts).reshape(-1, 2)
    return float(np.mean(likely[:, 0] > likely[:, 1]))


def test_likely_captions_are_found_without_an_image_and_plain_ones_are_not(reader):
    assert accuracy(reader, "biased_choice") > 0.9
    assert accuracy(reader, "biased_choice", "swap_colour") > 0.9
    assert accuracy(reader, "claims", "add_place") > 0.9
    assert 0.38 <= accuracy(reader, "choice") <= 0.62  # 200 items: three and a half deviations


def test_likelihoods_are_of_the_words_counted_by_hand():
    small = CaptionReader(WorldSettings(seed=3, shortcut="colour", compositional_pairs=2), 1.0)
    world, part = World(small.world), PARTS["train"]
    captions = [part.items.draw(world, index).captions[0] for index in (0, 1)]
    first = f". {captions[0]} .".split()
    both = [f". {caption} .".split() for caption in captions]
    expected = 1.0
    for before, after in pairwise(first):
        follow = sum(
            words[i : i + 2] == [before, after] for words in both for i in range(len(words) - 1)
        )
        times = sum(words[:-1].count(before) for words in both)
        expected *= (follow + 1) / (times + 46 + 1)
    assert small.log_likelihood(captions[:1]) == pytest.approx([np.log(expected)])
    assert small.perplexity(captions[:1]) == pytest.approx([expected ** (-1 / (len(first) - 1))])


def test_an_unknown_word_is_unlikely_and_no_error(reader):
    likely, unlikely = reader.log_likelihood(["a red ball", "a mauve zebra"])
    assert np.isfinite(unlikely)
    assert unlikely < likely


def test_readers_of_other_captions_are_others():
    other = WorldSettings(seed=4, shortcut="colour", compositional_pairs=600)
    assert CaptionReader(READER_WORLD).identity() != CaptionReader(other).identity()
    assert CaptionReader(READER_WORLD).identity() != CaptionReader(READER_WORLD, 1.0).identity()


def test_a_choice_takes_it_as_its_blind_judge(reader):
    both = np.asarray(BlindLanguage(reader).log_likelihoods(["a red ball", "a cube"]))
    sums = reader.log_likelihood(["a red ball", "a cube"])
    assert both == pytest.approx(np.stack([sums, sums / [4, 3]], axis=1), rel=1e-6)
