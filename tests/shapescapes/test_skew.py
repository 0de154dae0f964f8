"""Worlds with a planted skew: what is planted, how strongly, and that nothing else changes."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfaug.shapescapes.language import parse
from cfaug.shapescapes.parts import make_part
from cfaug.shapescapes.settings import SKEWED, SUBJECTS, CaptionWording, Factors, WorldSettings
from cfaug.shapescapes.world import World

COLOURS, BACKGROUNDS = ("red", "yellow", "blue", "purple"), ("beach", "grass", "snow")
NEUTRAL = CaptionWording(colour=False, background=False)
PLAIN = WorldSettings(
    seed=5, shortcut="none", colours=COLOURS, backgrounds=BACKGROUNDS, real_scenes=60,
    image_size=8, drop_colour=0.7, drop_background=0.7,
)  # fmt: skip


def shown(world: World, wording: CaptionWording, count: int = 1500) -> list[Factors]:
    """What training scenes of one wording show, without drawing them."""
    drawn = (world.draw_biased(world.stream("real", i)) for i in range(count))
    return [world.plant(one, wording, "real", i) for i, one in enumerate(drawn)]


@pytest.mark.parametrize("skewed", SKEWED)
@pytest.mark.parametrize("strength", [0.0, 0.4, 1.0])
def test_planted_subjects_show_their_label_as_often_as_the_strength_says(
    skewed: str, strength: float
) -> None:
    world = World(replace(PLAIN, skew=strength, skewed=skewed))
    kinds = SKEWED[skewed]
    labels = np.prod([len(world.values[kind]) for kind in kinds])
    scenes = [one for one in shown(world, NEUTRAL) if one.subject in world.planted]
    assert len(scenes) > 500
    hits = [
        all(getattr(one, kind) == world.planted[one.subject][kind] for kind in kinds)
        for one in scenes
    ]
    assert np.mean(hits) == pytest.approx(strength + (1 - strength) / labels, abs=0.06)


def test_other_subjects_other_captions_and_a_strength_of_0_change_nothing() -> None:
    skewed, plain = World(replace(PLAIN, skew=1.0)), World(PLAIN)
    others = set(SUBJECTS) - set(skewed.planted)
    assert len(others) == 5
    before = shown(plain, NEUTRAL)
    assert before == [plain.draw_biased(plain.stream("real", i)) for i in range(1500)]
    after = shown(skewed, NEUTRAL)
    same = [a == b for a, b in zip(after, before, strict=True) if b.subject in others]
    assert all(same)
    assert not all(a == b for a, b in zip(after, before, strict=True))
    for named in (CaptionWording(colour=False), CaptionWording(background=False), CaptionWording()):
        assert shown(skewed, named) == before


@given(st.tuples(*2 * [st.floats(0, 1)]).map(sorted), st.integers(0, 5))
def test_a_scene_planted_at_one_strength_is_planted_at_every_greater_one(
    strengths: list[float], seed: int
) -> None:
    weak, strong = (World(replace(PLAIN, seed=seed, skew=one)) for one in strengths)
    plain = World(replace(PLAIN, seed=seed))
    for a, b, c in zip(*(shown(one, NEUTRAL, 25) for one in (plain, weak, strong)), strict=True):
        assert b in (a, c)


def test_a_part_is_its_twin_without_a_skew_but_for_planted_scenes() -> None:
    plain, skewed = (list(make_part(replace(PLAIN, skew=one), "real")) for one in (0, 0.8))
    planted = World(PLAIN).planted
    changed = 0
    for one, other in zip(plain, skewed, strict=True):
        [a], [b] = one.members, other.members
        assert (a.text, a.label, a.extra["scene_seed"]) == (b.text, b.label, b.extra["scene_seed"])
        said = parse(b.text)
        if a.extra == b.extra:
            assert dict(one.images) == dict(other.images)
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
            [dict(one.images) for one in make_part(replace(small, skew=strength), part)]
            for strength in (0, 1)
        ]
        assert few[0] == few[1], part


def test_which_labels_are_planted_follows_from_the_seed_and_is_no_matter_of_the_subject() -> None:
    assert World(PLAIN).planted == World(replace(PLAIN, skew=1)).planted
    found = Counter(
        (subject, *label.values())
        for seed in range(400)
        for subject, label in World(replace(PLAIN, seed=seed, skewed="colour")).planted.items()
    )
    # 10 x 4 pairs in 2,000 draws: 50 of each expected, sd 7.
    assert len(found) == 40
    assert min(found.values()) > 20
    assert max(found.values()) < 85
    every = World(replace(PLAIN, skewed="background", skewed_subjects=10)).planted
    assert sorted(Counter(one["background"] for one in every.values()).values()) == [3, 3, 4]


def test_scenes_are_drawn_with_the_colours_and_backgrounds_of_the_world() -> None:
    for shortcut in ("none", "colour"):
        settings = replace(PLAIN, shortcut=shortcut, unbiased_scenes=40, id_scenes=40)
        for part in ("real", "unbiased", "id"):
            shows = [one.members[0].extra for one in make_part(settings, part)]
            assert {one["colour"] for one in shows} <= set(COLOURS)
            assert {one["background"] for one in shows} <= set(BACKGROUNDS)
    edits = replace(PLAIN, edits=("colour", "background"), counterfactual_pairs=30)
    for one in make_part(edits, "counterfactual"):
        assert one.members[1].edit.after in (*COLOURS, *BACKGROUNDS)
    assert len(World(PLAIN).test_pairs()) == 5 * 12


def test_worlds_of_one_seed_have_folders_of_their_own() -> None:
    base = WorldSettings(seed=108)
    changed = [
        {"skew": 0.5}, {"skew": 1}, {"skewed": "colour"}, {"skewed_subjects": 4},
        {"colours": COLOURS}, {"backgrounds": BACKGROUNDS},
    ]  # fmt: skip
    hashes = {base.content_hash(), *(replace(base, **one).content_hash() for one in changed)}
    assert len(hashes) == 7
    assert base.content_hash() == "b6744d6ff460"
    assert replace(base, skew=1).content_hash() == replace(base, skew=1.0).content_hash()
