"""The emoji pack: what is in it, that no part sees another's names, and that anybody reads it."""

from __future__ import annotations

import hashlib
import io
import json
import re
from collections import Counter
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml
from PIL import Image

from cfaug.core import worlds
from cfaug.core.errors import UserError
from cfaug.core.plugins import Plugin
from cfaug.core.worlds import local_source
from cfaug.data.index import open_index
from cfaug.data.index.index import examples
from cfaug.planning.build import build
from cfaug.planning.examples import ExampleSettings, open_examples
from cfaug.report.training_table import declaration_text
from tests.files_of_settings import settings_file

PACK = Path(local_source("emoji:noto/train")).parents[1]
ARTISTS = ("noto", "fluent", "twemoji")
SINGLES = ("train", "more", "names")
PAIRS = ("pairs", "test_pairs")
PARTS = (*SINGLES, *PAIRS, "people")
CARD = json.loads((PACK / "card.json").read_text(encoding="utf-8"))


def rows(artist: str, part: str) -> list[dict[str, Any]]:
    return pq.read_table(PACK / artist / part / f"{part}.parquet").to_pylist()


def names(part: str, artist: str = "noto") -> list[str]:
    columns = ("caption", "cf_caption") if part in PAIRS else ("caption",)
    return [row[column] for row in rows(artist, part) for column in columns]


def words(name: str) -> list[str]:
    return name.lower().replace(":", " ").replace(",", " ").split()


def pictures(artist: str) -> dict[str, np.ndarray]:
    """Return {name: pixels} of every picture of an artist."""
    images = [
        (row[caption], row[image]["bytes"])
        for part in PARTS
        for row in rows(artist, part)
        for image, caption in (("image", "caption"), ("cf_image", "cf_caption"))
        if image in row
    ]
    return {name: np.asarray(Image.open(io.BytesIO(data))) for name, data in images}


def test_the_card_counts_what_is_there() -> None:
    for artist in ARTISTS:
        assert {part: len(rows(artist, part)) for part in PARTS} == CARD["parts"]
    every = list(chain.from_iterable(map(names, PARTS)))
    assert len(every) == CARD["kept"] == CARD["named"] - sum(CARD["left_out"].values())
    assert sum("face" in words(name) for name in every) == CARD["faces"]
    for part in PAIRS:
        assert Counter(row["kind"] for row in rows("noto", part)) == CARD["kinds"][part]


def test_every_artist_has_every_name_once() -> None:
    every = list(chain.from_iterable(map(names, PARTS)))
    assert len(set(every)) == len(every)
    for artist in ARTISTS[1:]:
        assert [names(part, artist) for part in PARTS] == [names(part) for part in PARTS]


def test_a_tested_name_has_only_words_that_train_has_twice() -> None:
    known = Counter(chain.from_iterable(set(words(name)) for name in names("train")))
    for part in ("names", "test_pairs"):
        assert not {word for name in names(part) for word in words(name) if known[word] < 2}


@pytest.mark.parametrize("part", PAIRS)
def test_the_names_of_a_pair_differ_in_the_word_it_says(part: str) -> None:
    for row in rows("noto", part):
        first, second = words(row["caption"]), words(row["cf_caption"])
        differing = [(a, b) for a, b in zip(first, second, strict=True) if a != b]
        assert differing == [(row["before"], row["after"])]
        assert len(first) > 1
        tones = {"light", "medium-light", "medium", "medium-dark", "dark"}
        assert (row["kind"] == "tone") == ({row["before"], row["after"]} <= tones)


def test_sets_of_people_are_complete() -> None:
    for artist in ARTISTS:
        sets = Counter(
            (row["counterfactual_set"], row["a1"], row["a2"]) for row in rows(artist, "people")
        )
        assert set(sets.values()) == {1}
        assert {(a1, a2) for _, a1, a2 in sets} == {
            (gender, tone)
            for gender in ("man", "woman")
            for tone in ("light", "medium-light", "medium", "medium-dark", "dark")
        }
        assert len(sets) == 10 * len({name for name, _, _ in sets}) == 190


def test_nothing_thin_or_insulting_is_in_it() -> None:
    for name in chain.from_iterable(map(names, PARTS)):
        assert not re.search(r"o’clock|-thirty|\bhair\b|\bbald\b|^flag:|middle finger", name)


@pytest.mark.slow
@pytest.mark.parametrize("artist", ARTISTS)
def test_no_two_pictures_look_alike(artist: str) -> None:
    """A slow twin without hashes: every two pictures, by the mean difference of their levels."""
    drawn = pictures(artist)
    assert {picture.shape for picture in drawn.values()} == {(64, 64, 3)}
    flat = np.stack([picture.reshape(-1) for picture in drawn.values()])
    small = flat.reshape(len(flat), 16, 4, 16, 4, 3).mean((2, 4)).reshape(len(flat), -1)
    near = []
    for i in range(len(small)):  # a mean over blocks differs by at most as much as its pixels do
        close = np.abs(small[i + 1 :] - small[i]).mean(1) < 0.5
        near += [
            (i, i + 1 + int(j))
            for j in np.flatnonzero(close)
            if np.abs(flat[i + 1 + j].astype(np.int16) - flat[i]).mean() < 0.5
        ]
    called = list(drawn)
    assert not [(called[i], called[j]) for i, j in near]


@pytest.mark.parametrize("artist", ARTISTS)
def test_the_pixels_are_those_of_the_card(artist: str) -> None:
    drawn = pictures(artist)
    digest = hashlib.sha256()
    for name in sorted(drawn):
        digest.update(drawn[name].tobytes())
    assert digest.hexdigest() == CARD["pixels_sha256"][artist]


def test_the_ordinary_readers_read_every_part(tmp_path: Path) -> None:
    for part in PARTS:
        index = open_index(local_source(f"emoji:twemoji/{part}"), tmp_path)
        read = [example.texts[0] for example in examples(index, "text")]
        assert sorted(read) == sorted(names(part))
        assert index.reading is not None
        sets = CARD["parts"][part] if part in PAIRS else 19 if part == "people" else 0
        assert index.reading.counterfactual_sets == sets


def test_recipes_and_python_read_it_by_name(tmp_path: Path) -> None:
    paths = {"cache": str(tmp_path), "worlds": str(tmp_path), "image_roots": None}
    settings = ExampleSettings(
        "emoji:fluent/names", None, (), "text", images=True, limit=3, seed=0, paths=paths
    )
    read = open_examples(settings)()
    assert [example.texts[0] for example in read] == names("names")[:3]
    assert [example.extra["artist"] for example in read] == ["fluent"] * 3


def test_a_part_that_is_not_there_is_named_with_those_that_are(tmp_path, monkeypatch) -> None:
    with pytest.raises(UserError, match=r"emoji has no part 'noto/tests'; choose fluent/more, "):
        local_source("emoji:noto/tests")
    with pytest.raises(UserError, match=r"emoji has no part '\.\./pack/noto/train'"):
        local_source("emoji:../pack/noto/train")
    monkeypatch.chdir(tmp_path)
    Path("emoji").mkdir()
    with pytest.raises(UserError, match=r"emoji is also a file or folder here: rename it, or"):
        local_source("emoji:noto/train")
    assert local_source("./emoji:noto/train") == "./emoji:noto/train"
    assert local_source("photos:train") == "photos:train"


TONES = ("light", "medium-light", "medium", "medium-dark", "dark")


def test_a_medium_light_tone_comes_with_fair_hair() -> None:
    """Grids of docs/emoji.md whose pictures get darker with each tone, and with the first step."""
    falls, first, others = {}, {}, {}
    for artist in ARTISTS:
        brightness: dict[tuple[str, str], dict[str, float]] = {}
        for row in rows(artist, "people"):
            grey = Image.open(io.BytesIO(row["image"]["bytes"])).convert("L")
            grid = brightness.setdefault((row["counterfactual_set"], row["a1"]), {})
            grid[row["a2"]] = float(np.asarray(grey, float).mean())
        steps = np.array([np.diff([grid[tone] for tone in TONES]) for grid in brightness.values()])
        assert len(steps) == 38
        falls[artist] = int((steps < 0).all(1).sum())
        first[artist] = int((steps[:, 0] > 0).sum())
        others[artist] = int((steps[:, 1:] < 0).all(1).sum())
    assert falls == {"noto": 14, "fluent": 11, "twemoji": 11}
    assert first == {"noto": 24, "fluent": 27, "twemoji": 27}
    assert set(others.values()) == {38}


def test_the_predictions_are_those_that_were_declared() -> None:
    """In the commit before the first run: what ``table=emoji declare=true`` writes."""
    table = build(yaml.safe_load(settings_file("table/emoji").read_text(encoding="utf-8")))
    declared = PACK.parent / "declared.json"
    assert declaration_text(table) == declared.read_text(encoding="utf-8")


def test_two_worlds_of_one_name_are_refused(tmp_path, monkeypatch) -> None:
    named = [Plugin("worlds", f"{owner}.toys", tmp_path / owner / "toys") for owner in ("a", "b")]
    for plugin in named:
        (plugin.folder / "pack/train").mkdir(parents=True)
    monkeypatch.setattr(worlds, "plugins", lambda: named)
    worlds._packs.cache_clear()
    try:
        with pytest.raises(UserError, match="two installed worlds are called toys"):
            local_source("toys:train")
    finally:
        worlds._packs.cache_clear()
