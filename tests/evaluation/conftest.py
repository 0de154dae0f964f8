"""The shipped model, and parts of a small world, for every test of a benchmark."""

from __future__ import annotations

from itertools import islice

import pytest

from cfaug.core.protocols import Matcher
from cfaug.data.index import open_index
from cfaug.data.shards.shards import write_shards
from cfaug.models.specs import HFClip
from cfaug.shapescapes import WorldSettings
from cfaug.shapescapes.parts import make_part
from tests.models import tiny

WORLD = WorldSettings(seed=3, style="drawing", id_scenes=40, ood_pairs=14)
SETS = {"id": 40, "ood_pairs": 14, "counterfactual_test": 9, "real_test": 12}


@pytest.fixture(scope="session")
def encoder():
    return HFClip("zoo:clip-0").load()


PEOPLE = ("an", "photo", "of", "male", "female", "person", "man", "woman", "lady", "his", "her",
          "their", "and", "teacher", "doctor", "student", "patient", "board", "clipboard", "orange",
          "engineer", "nurse", "pilot", "in", "snow")  # fmt: skip
"""Words of the captions of people, none of which the shipped model knows."""


@pytest.fixture(scope="session")
def people_encoder(tmp_path_factory):
    """A random CLIP that tells the words of captions of people apart."""
    folder = tmp_path_factory.mktemp("weights") / "people"
    tiny.save_clip(folder, seed=2, words=[*tiny.WORDS, *PEOPLE])
    return HFClip(str(folder)).load()


@pytest.fixture(scope="session")
def matcher():
    return HFClip("zoo:clip-0").load(Matcher)


@pytest.fixture(scope="session")
def opened(tmp_path_factory):
    """Indexes of the first sets of parts of the world, by part."""
    root = tmp_path_factory.mktemp("world")
    for part, count in SETS.items():
        write_shards(islice(make_part(WORLD, part), count), root / part)
    return {part: open_index(root / part, root / "index") for part in SETS}
