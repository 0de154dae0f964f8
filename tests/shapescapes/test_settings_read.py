"""READ_BY is true: a setting of a world changes a family's parts if and only if it is listed."""

from __future__ import annotations

import hashlib
from dataclasses import fields, replace

import pytest

from cfaug.core.weights import COMPOSITIONAL, COMPOSITIONAL_PREFIX, world_family
from cfaug.shapescapes.parts import PARTS as WORLD_PARTS
from cfaug.shapescapes.parts import make_part
from cfaug.shapescapes.question_parts import PARTS, make_questions
from cfaug.shapescapes.settings import READ_BY, WorldSettings

SMALL = WorldSettings(
    image_size=16, style="clear", seed=5, real_scenes=30, counterfactual_pairs=10,
    unbiased_scenes=10, id_scenes=10, ood_pairs=6, ve_photos=12, ve_test_photos=6, vqa_pairs=6,
    vqa_test_pairs=6, compositional_pairs=22, compositional_test_pairs=22, skew=0.6,
    domains=("photo", "sketch"), shortcut="colour",
)  # fmt: skip
CHANGED = {
    "image_size": 24, "bias": 0.2, "style": "fog", "seed": 6, "real_scenes": 31,
    "counterfactual_pairs": 11, "unbiased_scenes": 11, "id_scenes": 11, "ood_pairs": 7,
    "drop_colour": 0.9, "drop_background": 0.95, "edits": ("colour",), "shortcut": "none",
    "domains": ("photo", "painting"), "colours": ("red", "orange", "yellow", "green", "blue"),
    "backgrounds": ("beach", "grass", "night", "snow", "brick"), "skew": 0.95,
    "skewed": "colour", "skewed_subjects": 2, "ve_photos": 18, "ve_test_photos": 12,
    "vqa_pairs": 12, "vqa_test_pairs": 12, "compositional_pairs": 33,
    "compositional_test_pairs": 33,
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
            said = [(one.text, one.options, one.answer) for one in image.questions]
            digest.update(repr(said).encode() + image.image.read())
        return digest.hexdigest()
    inner = COMPOSITIONAL + part if f"{prefix}:" == COMPOSITIONAL_PREFIX else part
    for one in make_part(world, inner):
        digest.update(repr([(member.text, member.label) for member in one.members]).encode())
        for name in sorted(one.images):
            digest.update(one.images[name])
    return digest.hexdigest()


def test_every_setting_is_tried():
    assert set(CHANGED) == {one.name for one in fields(WorldSettings)}


@pytest.mark.slow
@pytest.mark.parametrize("family", READ_BY)
def test_a_family_reads_the_settings_that_are_listed_and_no_others(family):
    before = {part: content(SMALL, part) for part in parts(family)}
    assert before
    for name, value in CHANGED.items():
        world = replace(SMALL, **{name: value})
        changes = any(content(world, part) != digest for part, digest in before.items())
        assert changes == (name in READ_BY[family]), name
