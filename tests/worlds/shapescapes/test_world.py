"""What a world plants: shortcuts, skews; and what each setting changes."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfaug.core.errors import UserError
from cfaug.core.types import CounterfactualSet
from cfaug.core.worlds import world_family
from cfaug.worlds.shapescapes.drawing import scene_of
from cfaug.worlds.shapescapes.language import parse
from cfaug.worlds.shapescapes.parts import PARTS as WORLD_PARTS
from cfaug.worlds.shapescapes.parts import make_part
from cfaug.worlds.shapescapes.question_parts import PARTS, make_questions
from cfaug.worlds.shapescapes.settings import (
    COMPOSITIONAL,
    COMPOSITIONAL_PREFIX,
    DOMAINS,
    READ_BY,
    SHORTCUTS,
    SKEWED,
    SUBJECTS,
    CaptionWording,
    Factors,
    WorldSettings,
)
from cfaug.worlds.shapescapes.world import World

OLD = {
    WorldSettings(seed=108): "b6744d6ff460",
    WorldSettings(seed=111): "5ca324b6f950",
    WorldSettings(seed=110, style="drawing"): "02ba2e8d2c4b",
}
"""Folders that were made before a world had a shortcut or domains."""

BYTES = {
    "real": "cb1f75b9", "counterfactual": "610953c8", "unbiased": "b819d44c", "id": "155cb6b2",
    "ood": "7be559f2", "ood_pairs": "6c56717d",
}  # fmt: skip
"""sha256 of the first sets of parts, made before there were domains."""


def digest(sets: list[CounterfactualSet]) -> str:
    total = hashlib.sha256()
    for item in sets:
        said = [[m.text, m.label, str(m.edit), dict(m.extra)] for m in item.members]
        total.update(json.dumps([item.key, said]).encode())
        for name in sorted(item.images):
            total.update(item.images[name])
    return total.hexdigest()[:8]


def first(settings: WorldSettings, part: str, count: int) -> list[CounterfactualSet]:
    return [item for item, _ in zip(make_part(settings, part), range(count), strict=False)]


def test_worlds_of_before_keep_their_names() -> None:
    assert {world.content_hash() for world in OLD} == set(OLD.values())
    assert all(world.content_hash() == name for world, name in OLD.items())
    base = WorldSettings(seed=108)
    others = [replace(base, shortcut="colour"), replace(base, domains=("photo", "sketch"))]
    assert len({world.content_hash() for world in [base, *others]}) == 3


@pytest.mark.parametrize("part", sorted(BYTES))
def test_worlds_of_before_keep_their_bytes(part: str) -> None:
    assert digest(first(WorldSettings(seed=108), part, 6)) == BYTES[part]


def drawn(settings: WorldSettings, count: int = 600) -> list[Factors]:
    world = World(settings)
    return [world.draw_biased(world.stream("id-factors", i)) for i in range(count)]


@pytest.mark.parametrize("shortcut", sorted(SHORTCUTS))
def test_only_the_planted_factor_tells_the_subject(shortcut: str) -> None:
    settings = WorldSettings(seed=3, shortcut=shortcut, domains=DOMAINS, bias=0.9)
    homes = World(settings).homes
    scenes = drawn(settings)
    for kind, values in World(settings).values.items():
        share = np.mean([getattr(shown, kind) == homes[kind][shown.subject] for shown in scenes])
        expected = 0.9 if kind in SHORTCUTS[shortcut] else 1 / len(values)
        assert share == pytest.approx(expected, abs=0.06), kind
    assert set(Counter(shown.subject for shown in scenes)) == set(SUBJECTS)


def test_two_shortcuts_are_independent() -> None:
    """Both at home .81, one of them .18, none .01: the product of the two shares."""
    settings = WorldSettings(seed=3, shortcut="colour_and_background", bias=0.9)
    homes = World(settings).homes
    pairs = Counter(
        (shown.colour == homes["colour"][shown.subject],
         shown.background == homes["background"][shown.subject])
        for shown in drawn(settings, 2000)
    )  # fmt: skip
    for (colour, background), count in pairs.items():
        expected = (0.9 if colour else 0.1) * (0.9 if background else 0.1)
        assert count / 2000 == pytest.approx(expected, abs=0.025)


def test_every_value_is_the_home_of_some_subject() -> None:
    homes = World(WorldSettings(seed=3, domains=DOMAINS)).homes
    assert {kind: len(set(home.values())) for kind, home in homes.items()} == {
        "colour": 8, "background": 8, "domain": 5,
    }  # fmt: skip


def test_scenes_of_several_domains_are_labelled_and_described() -> None:
    settings = WorldSettings(seed=3, shortcut="style", domains=DOMAINS, id_scenes=30)
    sets = list(make_part(settings, "id"))
    assert len({item.members[0].extra.get("domain", "photo") for item in sets}) > 2
    for item in sets:
        [member] = item.members
        said = parse(member.text)
        assert said is not None
        assert said.agrees(scene_of(member.extra).factors)
        assert member.label == member.extra["subject"] == said.subject


def test_off_home_means_off_every_home() -> None:
    settings = WorldSettings(seed=3, shortcut="all", domains=DOMAINS)
    world = World(settings)
    strange = world.combinations(at_home=False)
    assert strange
    for factors in strange[::50]:
        assert all(getattr(factors, k) != home[factors.subject] for k, home in world.homes.items())
    assert len(world.combinations(at_home=True)) == len(SUBJECTS)
    for factors, other in world.ood_swaps(20):
        assert world.is_strange(factors)
        assert world.is_strange(replace(factors, subject=other))


def test_a_world_without_a_shortcut_has_no_home() -> None:
    settings = WorldSettings(seed=3, shortcut="none", domains=DOMAINS)
    with pytest.raises(UserError, match="no subject at home"):
        list(make_part(settings, "ood"))
    assert len(first(settings, "id", 2)) == 2


FEW_COLOURS, FEW_BACKGROUNDS = ("red", "yellow", "blue", "purple"), ("beach", "grass", "snow")
NEUTRAL = CaptionWording(colour=False, background=False)
PLAIN = WorldSettings(
    seed=5, shortcut="none", colours=FEW_COLOURS, backgrounds=FEW_BACKGROUNDS, real_scenes=60,
    image_size=8, drop_colour=0.7, drop_background=0.7,
)  # fmt: skip


def show_all(world: World, wording: CaptionWording, count: int = 1500) -> list[Factors]:
    """What training scenes of one wording show, without drawing them."""
    drawn = (world.draw_biased(world.stream("real", i)) for i in range(count))
    return [world.plant(shown, wording, "real", i) for i, shown in enumerate(drawn)]


@pytest.mark.parametrize("skewed", SKEWED)
@pytest.mark.parametrize("strength", [0.0, 0.4, 1.0])
def test_planted_subjects_show_their_label_as_often_as_the_strength_says(
    skewed: str, strength: float
) -> None:
    world = World(replace(PLAIN, skew=strength, skewed=skewed))
    kinds = SKEWED[skewed]
    labels = np.prod([len(world.values[kind]) for kind in kinds])
    scenes = [shown for shown in show_all(world, NEUTRAL) if shown.subject in world.planted]
    assert len(scenes) > 500
    hits = [
        all(getattr(shown, kind) == world.planted[shown.subject][kind] for kind in kinds)
        for shown in scenes
    ]
    assert np.mean(hits) == pytest.approx(strength + (1 - strength) / labels, abs=0.06)


def test_other_subjects_other_captions_and_a_strength_of_0_change_nothing() -> None:
    skewed, plain = World(replace(PLAIN, skew=1.0)), World(PLAIN)
    others = set(SUBJECTS) - set(skewed.planted)
    assert len(others) == 5
    before = show_all(plain, NEUTRAL)
    assert before == [plain.draw_biased(plain.stream("real", i)) for i in range(1500)]
    after = show_all(skewed, NEUTRAL)
    same = [a == b for a, b in zip(after, before, strict=True) if b.subject in others]
    assert all(same)
    assert not all(a == b for a, b in zip(after, before, strict=True))
    for named in (CaptionWording(colour=False), CaptionWording(background=False), CaptionWording()):
        assert show_all(skewed, named) == before


@given(st.tuples(*2 * [st.floats(0, 1)]).map(sorted), st.integers(0, 5))
def test_a_scene_planted_at_one_strength_is_planted_at_every_greater_one(
    strengths: list[float], seed: int
) -> None:
    weak, strong = (World(replace(PLAIN, seed=seed, skew=strength)) for strength in strengths)
    plain = World(replace(PLAIN, seed=seed))
    for a, b, c in zip(
        *(show_all(world, NEUTRAL, 25) for world in (plain, weak, strong)), strict=True
    ):
        assert b in (a, c)


def test_a_part_is_its_twin_without_a_skew_but_for_planted_scenes() -> None:
    plain, skewed = (list(make_part(replace(PLAIN, skew=skew), "real")) for skew in (0, 0.8))
    planted = World(PLAIN).planted
    changed = 0
    for twin, item in zip(plain, skewed, strict=True):
        [a], [b] = twin.members, item.members
        assert (a.text, a.label, a.extra["scene_seed"]) == (b.text, b.label, b.extra["scene_seed"])
        said = parse(b.text)
        if a.extra == b.extra:
            assert dict(twin.images) == dict(item.images)
            continue
        changed += 1
        assert said is not None
        assert (said.colour, said.background) == (None, None)
        assert {k: b.extra[k] for k in ("colour", "background")} == planted[b.label]
    assert changed > 5
    small = replace(
        PLAIN, drop_colour=1, drop_background=1, unbiased_scenes=20, counterfactual_pairs=20,
        id_scenes=20,
    )  # fmt: skip
    for part in ("unbiased", "counterfactual", "id"):
        few = [
            [dict(item.images) for item in make_part(replace(small, skew=strength), part)]
            for strength in (0, 1)
        ]
        assert few[0] == few[1], part


def test_which_labels_are_planted_follows_from_the_seed_and_is_no_matter_of_the_subject() -> None:
    assert World(PLAIN).planted == World(replace(PLAIN, skew=1)).planted
    counts = Counter(
        (subject, *label.values())
        for seed in range(400)
        for subject, label in World(replace(PLAIN, seed=seed, skewed="colour")).planted.items()
    )
    # 10 x 4 pairs in 2,000 draws: 50 of each expected, sd 7.
    assert len(counts) == 40
    assert min(counts.values()) > 20
    assert max(counts.values()) < 85
    every = World(replace(PLAIN, skewed="background", skewed_subjects=10)).planted
    assert sorted(Counter(label["background"] for label in every.values()).values()) == [3, 3, 4]


def test_scenes_are_drawn_with_the_colours_and_backgrounds_of_the_world() -> None:
    for shortcut in ("none", "colour"):
        settings = replace(PLAIN, shortcut=shortcut, unbiased_scenes=40, id_scenes=40)
        for part in ("real", "unbiased", "id"):
            shows = [item.members[0].extra for item in make_part(settings, part)]
            assert {extra["colour"] for extra in shows} <= set(FEW_COLOURS)
            assert {extra["background"] for extra in shows} <= set(FEW_BACKGROUNDS)
    edits = replace(PLAIN, edits=("colour", "background"), counterfactual_pairs=30)
    for pair in make_part(edits, "counterfactual"):
        assert pair.members[1].edit.after in (*FEW_COLOURS, *FEW_BACKGROUNDS)
    assert len(World(PLAIN).test_pairs()) == 5 * 12


def test_worlds_of_one_seed_have_folders_of_their_own() -> None:
    base = WorldSettings(seed=108)
    changed = [
        {"skew": 0.5}, {"skew": 1}, {"skewed": "colour"}, {"skewed_subjects": 4},
        {"colours": FEW_COLOURS}, {"backgrounds": FEW_BACKGROUNDS},
    ]  # fmt: skip
    hashes = {
        base.content_hash(),
        *(replace(base, **changes).content_hash() for changes in changed),
    }
    assert len(hashes) == 7
    assert base.content_hash() == "b6744d6ff460"
    assert replace(base, skew=1).content_hash() == replace(base, skew=1.0).content_hash()


SMALL = WorldSettings(
    image_size=16, style="clear", seed=5, real_scenes=30, counterfactual_pairs=10,
    unbiased_scenes=10, id_scenes=10, ood_pairs=6, ve_photos=12, ve_test_photos=6, vqa_pairs=6,
    vqa_test_pairs=6, compositional_pairs=11, compositional_test_pairs=11, skew=1.0,
    domains=("photo", "sketch"), shortcut="colour", colours=FEW_COLOURS,
    backgrounds=FEW_BACKGROUNDS,
)  # fmt: skip
CHANGED = {
    "image_size": 24, "bias": 0.2, "style": "fog", "seed": 6, "real_scenes": 31,
    "counterfactual_pairs": 11, "unbiased_scenes": 11, "id_scenes": 11, "ood_pairs": 7,
    "drop_colour": 0.9, "drop_background": 0.95, "edits": ("colour",), "shortcut": "none",
    "domains": ("photo", "painting"), "colours": ("red", "yellow", "green", "blue"),
    "backgrounds": ("beach", "grass", "brick"), "skew": 0,
    "skewed": "colour", "skewed_subjects": 2, "ve_photos": 18, "ve_test_photos": 12,
    "vqa_pairs": 12, "vqa_test_pairs": 12, "compositional_pairs": 22,
    "compositional_test_pairs": 22,
}  # fmt: skip


def parts(family: str) -> list[str]:
    named = [f"shapescapes:{name}" for name in WORLD_PARTS if not name.startswith(COMPOSITIONAL)]
    named += [f"shapescapes_vqa:{name}" for name in PARTS]
    inner = [
        name.removeprefix(COMPOSITIONAL) for name in WORLD_PARTS if name.startswith(COMPOSITIONAL)
    ]
    named += [COMPOSITIONAL_PREFIX + name for name in inner]
    return [name for name in named if world_family(name) == family]


def content(world: WorldSettings, source: str) -> str:
    digest = hashlib.sha256()
    prefix, _, part = source.partition(":")
    if world_family(source) == "questions":
        for image in make_questions(world, part):
            said = [
                (question.text, question.options, question.answer) for question in image.questions
            ]
            digest.update(repr(said).encode() + image.image.read())
        return digest.hexdigest()
    inner = COMPOSITIONAL + part if f"{prefix}:" == COMPOSITIONAL_PREFIX else part
    for item in make_part(world, inner):
        digest.update(repr([(member.text, member.label) for member in item.members]).encode())
        for name in sorted(item.images):
            digest.update(item.images[name])
    return digest.hexdigest()


def test_every_setting_is_tried():
    assert set(CHANGED) == {field.name for field in fields(WorldSettings)}


@pytest.mark.slow
@pytest.mark.parametrize("family", READ_BY)
def test_a_family_reads_the_settings_that_are_listed_and_no_others(family):
    before = {part: content(SMALL, part) for part in parts(family)}
    assert before
    for name, value in CHANGED.items():
        world = replace(SMALL, **{name: value})
        changes = any(content(world, part) != digest for part, digest in before.items())
        assert changes == (name in READ_BY[family]), name
