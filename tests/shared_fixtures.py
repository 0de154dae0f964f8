"""Fixtures of all tests: the shipped model, parts of a small world, a browser."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest

SETS = {"id": 40, "ood_pairs": 14, "counterfactual_test": 9, "real_test": 12}


@pytest.fixture(scope="session")
def encoder():
    from cfaug.models.specs import HFClip

    return HFClip("zoo:clip-0").load()


PEOPLE = ("an", "photo", "of", "male", "female", "person", "man", "woman", "lady", "his", "her",
          "their", "and", "teacher", "doctor", "student", "patient", "board", "clipboard", "orange",
          "engineer", "nurse", "pilot", "in", "snow")  # fmt: skip
"""Words of the captions of people, none of which the shipped model knows."""


@pytest.fixture(scope="session")
def people_encoder(tmp_path_factory):
    """A random CLIP that tells the words of captions of people apart."""
    from cfaug.models.specs import HFClip
    from tests.models import tiny

    folder = tmp_path_factory.mktemp("weights") / "people"
    tiny.save_clip(folder, seed=2, words=[*tiny.WORDS, *PEOPLE])
    return HFClip(str(folder)).load()


@pytest.fixture(scope="session")
def saved_models(tmp_path_factory):
    """Return {kind: a folder of a tiny model}; a test that changes one copies it first."""
    from tests.editing import tiny as language
    from tests.models import tiny

    shelf = tmp_path_factory.mktemp("saved")
    return {
        "clip": tiny.save_clip(shelf / "clip"),
        "dual": tiny.save_dual_encoder(shelf / "dual"),
        "open_clip": tiny.save_open_clip(shelf / "open_clip"),
        "text": language.save_roberta(shelf / "text"),
    }


@pytest.fixture(scope="session")
def matcher():
    from cfaug.core.protocols import Matcher
    from cfaug.models.specs import HFClip

    return HFClip("zoo:clip-0").load(Matcher)


@pytest.fixture(scope="session")
def opened(tmp_path_factory):
    """Indexes of the first sets of parts of the world, by part."""
    from cfaug.data.index import open_index
    from cfaug.data.shards.shards import write_shards
    from cfaug.worlds.shapescapes import WorldSettings
    from cfaug.worlds.shapescapes.parts import make_part

    world = WorldSettings(seed=3, style="drawing", id_scenes=40, ood_pairs=14)
    root = tmp_path_factory.mktemp("world")
    for part, count in SETS.items():
        write_shards(islice(make_part(world, part), count), root / part)
    return {part: open_index(root / part, root / "index") for part in SETS}


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from benchmarks.browser import Browser, find
    from tests import skips

    if find() is None:
        skips.skip("browser")
    with Browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture
def watched(browser: Any) -> Iterator[Any]:
    """A browser whose page must meet no error and ask for nothing outside this machine."""
    browser.errors.clear()
    browser.requests.clear()
    browser.view(1200, 900)
    yield browser
    assert browser.errors == []
    assert [url for url in browser.requests if not url.startswith(("file:", "data:"))] == []
