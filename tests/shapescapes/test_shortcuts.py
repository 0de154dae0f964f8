"""Worlds with another planted shortcut; worlds of before keep their names and their bytes."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from cfaug.core.errors import UserError
from cfaug.core.types import CounterfactualSet
from cfaug.shapescapes.drawing import scene_of
from cfaug.shapescapes.language import parse
from cfaug.shapescapes.parts import make_part
from cfaug.shapescapes.settings import DOMAINS, SHORTCUTS, SUBJECTS, Factors, WorldSettings
from cfaug.shapescapes.world import World

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
    for one in sets:
        said = [[m.text, m.label, str(m.edit), dict(m.extra)] for m in one.members]
        total.update(json.dumps([one.key, said]).encode())
        for name in sorted(one.images):
            total.update(one.images[name])
    return total.hexdigest()[:8]


def first(settings: WorldSettings, part: str, count: int) -> list[CounterfactualSet]:
    return [one for one, _ in zip(make_part(settings, part), range(count), strict=False)]


def test_worlds_of_before_keep_their_names() -> None:
    assert {world.content_hash() for world in OLD} == set(OLD.values())
    assert all(world.content_hash() == name for world, name in OLD.items())
    base = WorldSettings(seed=108)
    others = [replace(base, shortcut="colour"), replace(base, domains=("photo", "sketch"))]
    assert len({one.content_hash() for one in [base, *others]}) == 3


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
    found = drawn(settings)
    for kind, values in World(settings).values.items():
        share = np.mean([getattr(one, kind) == homes[kind][one.subject] for one in found])
        expected = 0.9 if kind in SHORTCUTS[shortcut] else 1 / len(values)
        assert share == pytest.approx(expected, abs=0.06), kind
    assert set(Counter(one.subject for one in found)) == set(SUBJECTS)


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
    assert len({one.members[0].extra.get("domain", "photo") for one in sets}) > 2
    for one in sets:
        [member] = one.members
        said = parse(member.text)
        assert said is not None
        assert said.agrees(scene_of(member.extra).factors)
        assert member.label == member.extra["subject"] == said.subject


def test_off_home_means_off_every_home() -> None:
    settings = WorldSettings(seed=3, shortcut="all", domains=DOMAINS)
    world = World(settings)
    strange = world.combinations(at_home=False)
    assert strange
    for one in strange[::50]:
        assert all(getattr(one, k) != home[one.subject] for k, home in world.homes.items())
    assert len(world.combinations(at_home=True)) == len(SUBJECTS)
    for factors, other in world.ood_swaps(20):
        assert world.is_strange(factors)
        assert world.is_strange(replace(factors, subject=other))


def test_a_world_without_a_shortcut_has_no_home() -> None:
    settings = WorldSettings(seed=3, shortcut="none", domains=DOMAINS)
    with pytest.raises(UserError, match="no subject at home"):
        list(make_part(settings, "ood"))
    assert len(first(settings, "id", 2)) == 2
