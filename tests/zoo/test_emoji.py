"""How the emoji pack is made: names, pairs and parts beside slow twins, drawings, packages."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfaug.core.errors import UserError
from zoo.emoji.names import Emoji, leave_out, minimal_pairs, people
from zoo.emoji.packages import GROUPS, fetch, read_json
from zoo.emoji.parts import SEEN, drop_alike, split
from zoo.emoji.pictures import look_alike, mean_difference, perceptual_hash, render

WORD = st.sampled_from(["red", "blue", "man", "woman", "circle", "heart", "light", "dark", "tone"])
NAMES = st.lists(st.lists(WORD, min_size=1, max_size=3).map(" ".join), max_size=40, unique=True)


def emoji(names: list[str], group: str = "symbols") -> list[Emoji]:
    return [Emoji(f"{i:04x}", name, group, "heart", i, {}) for i, name in enumerate(names)]


@given(NAMES)
def test_minimal_pairs_are_all_that_differ_in_one_word(names: list[str]) -> None:
    expected = {
        (a, b)
        for a, b in combinations(names, 2)
        if len(a.split()) == len(b.split()) > 1
        and sum(x != y for x, y in zip(a.split(), b.split(), strict=True)) == 1
    }
    pairs = minimal_pairs(emoji(names))
    assert {(pair.first.name, pair.second.name) for pair in pairs} == expected
    assert len(pairs) == len(expected)
    kinds = {("dark", "light"): "tone", ("man", "woman"): "gender"}
    for pair in pairs:
        words = min(pair.before, pair.after), max(pair.before, pair.after)
        assert pair.kind == kinds.get(words, "other")


def test_pairs_are_of_one_group_and_people_of_one_subgroup() -> None:
    face, cow = (
        Emoji(str(i), f"{word} face", group, "", i, {})
        for i, (word, group) in enumerate(
            [("sleeping", "smileys-emotion"), ("cow", "animals-nature")]
        )
    )
    assert not minimal_pairs([face, cow])
    nose, cook = (
        Emoji(str(i), f"{word}: light skin tone", "people-body", sub, i, {})
        for i, (word, sub) in enumerate([("nose", "body-parts"), ("cook", "role")])
    )
    assert not minimal_pairs([nose, cook])
    assert len(minimal_pairs([nose, replace(cook, subgroup="body-parts")])) == 1


@given(NAMES)
def test_no_name_is_in_two_parts_and_every_tested_word_is_known(names: list[str]) -> None:
    parts = split(emoji(names), [])
    paired = [
        item for pair in (*parts.pairs, *parts.test_pairs) for item in (pair.first, pair.second)
    ]
    every = [*parts.train, *parts.more, *parts.names, *paired]
    assert sorted(item.name for item in every) == sorted(names)
    tested = [*parts.names, *(item for p in parts.test_pairs for item in (p.first, p.second))]
    for word in {word for item in tested for word in item.words}:
        assert sum(word in item.words for item in parts.train) >= SEEN


def test_of_two_that_look_alike_the_first_is_kept_and_an_occupation_goes_whole() -> None:
    every = emoji(["a circle", "b circle", "c circle"])
    kept, _, _ = drop_alike(every, [], [("0000", "0001"), ("0001", "0002")])
    assert [item.name for item in kept] == ["a circle", "c circle"]
    tones = ("light", "medium-light", "medium", "medium-dark", "dark")
    roles = [f"{who}cook: {tone} skin tone" for who in ("", "man ", "woman ") for tone in tones]
    crew = [replace(item, subgroup="person-role") for item in emoji(roles, "people-body")]
    sets = people(crew)
    assert len(sets) == 10
    assert people(crew[1:]) != sets, "a tone without its neutral name is no member"
    same = (sets[0].emoji.code, sets[5].emoji.code)
    assert drop_alike(crew, sets, [same]) == (crew[:5], [], ["cook"])
    neutral = (crew[0].code, crew[5].code)
    kept, left, same_roles = drop_alike(crew, sets, [neutral])
    assert kept == crew[1:]
    assert left == sets
    assert same_roles == []


def test_rules_leave_out_and_count() -> None:
    named = [
        Emoji("1f1e9-1f1ea", "flag: Germany", "flags", "", 0, {}),
        Emoji("1f550", "one o’clock", "travel-places", "time", 1, {}),
        Emoji("1f468-200d-1f9b0", "man: red hair", "people-body", "person", 2, {}),
        Emoji("1f595-1f3fb", "middle finger: light skin tone", "people-body", "", 3, {}),
        Emoji("1f468-1f3fb-200d-1f91d-200d-1f468-1f3ff", "men", "people-body", "", 4, {}),
        Emoji("1f34e", "red apple", "food-drink", "food-fruit", 5, {}),
    ]
    kept, counts = leave_out(named)
    assert [item.name for item in kept] == ["red apple"]
    assert list(counts.values()) == [1, 1, 1, 1, 1]


def test_a_drawing_is_rendered_on_white() -> None:
    half = (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 2 2">'
        '<rect width="1" height="2" fill="#f00"/></svg>'
    )
    picture = render(half)
    assert picture.shape == (64, 64, 3)
    assert (picture[:, :32] == (255, 0, 0)).all()
    assert (picture[:, 32:] == 255).all()


def test_pictures_that_look_alike_have_like_hashes_and_like_colours() -> None:
    rng = np.random.default_rng(0)
    first = rng.integers(0, 256, (64, 64, 3), dtype=np.uint8)
    near, red = first.copy(), first.copy()
    near[0, 0] ^= 1
    red[..., 0] = np.minimum(first[..., 0].astype(int) + 40, 255)
    grey = np.asarray(first @ [0.299, 0.587, 0.114])
    blocks = np.stack([
        [column.mean() for column in np.array_split(row, 9, axis=1)]
        for row in np.array_split(grey, 8)
    ])  # fmt: skip
    slow = (blocks[:, :-1] > blocks[:, 1:]).reshape(-1)
    assert (slow == perceptual_hash(first)).mean() > 0.8  # blocks of 7 or 8 columns, not 7.1
    assert look_alike({"a": first, "b": near, "c": red, "d": first[::-1]}) == [("a", "b")]
    assert mean_difference(first, near) == pytest.approx(np.abs(first.astype(int) - near).mean())


def test_an_archive_that_is_another_one_is_refused_and_nothing_of_it_is_unpacked(tmp_path) -> None:
    archive = tmp_path / f"{GROUPS.name}-{GROUPS.version}.tgz"
    data = json.dumps({"groups": {}}).encode()
    with tarfile.open(archive, "w:gz") as tar:
        entry = tarfile.TarInfo("package/meta/groups.json")
        entry.size = len(data)
        tar.addfile(entry, io.BytesIO(data))
    with pytest.raises(UserError, match=r"is not emojibase-data 17\.0\.0 as it was published"):
        fetch(GROUPS, tmp_path)
    known = replace(GROUPS, sha256=hashlib.sha256(archive.read_bytes()).hexdigest())
    assert read_json(fetch(known, tmp_path), "meta/groups.json") == {"groups": {}}
    assert list(tmp_path.iterdir()) == [archive]


def test_an_artist_whose_licence_is_not_known_is_refused(
    tmp_path: Path, monkeypatch, capsys
) -> None:
    from zoo import main

    monkeypatch.chdir(tmp_path)
    assert main(["emoji", "out=pack", "downloads=here", "artists=noto,apple"]) == 2
    assert "artists=apple: choose among noto, fluent, twemoji, openmoji" in capsys.readouterr().err
    assert not Path("pack").exists()
