"""What the parts of a world hold, how their shards are made, and which subjects can be seen."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cfaug.core.errors import UserError
from cfaug.core.types import CounterfactualSet
from cfaug.data.index import open_index
from cfaug.data.mixture.pool import read_labels
from cfaug.data.shards.shards import read_sets
from cfaug.worlds.shapescapes.labels import UNMATCHED, ensure_labels, visibility
from cfaug.worlds.shapescapes.parts import ensure, make_part, part_folder, part_size
from cfaug.worlds.shapescapes.settings import (
    COLOURS,
    PLACES,
    PROMPTS,
    SUBJECTS,
    WorldSettings,
    words,
)
from cfaug.worlds.shapescapes.world import World

TRAINING_PARTS = ("real", "more_real", "counterfactual", "matched", "unbiased")
TEST_PARTS = ("id", "id_retrieval", "ood", "ood_pairs", "counterfactual_test", "real_test")
SMALL = WorldSettings(
    seed=4,
    real_scenes=250,
    counterfactual_pairs=120,
    unbiased_scenes=250,
    id_scenes=100,
    ood_pairs=60,
)


@pytest.fixture(scope="module")
def world() -> dict[str, list[CounterfactualSet]]:
    return {part: list(make_part(SMALL, part)) for part in (*TRAINING_PARTS, *TEST_PARTS)}


def share_at_home(sets: list[CounterfactualSet], settings: WorldSettings = SMALL) -> float:
    home = World(settings).homes["background"]
    members = [item.members[0].extra for item in sets]
    return float(np.mean([home[m["subject"]] == m["background"] for m in members]))


def pixels(data: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB")).astype(int)


def pictures(sets: list[CounterfactualSet]) -> set[bytes]:
    return {data for item in sets for data in item.images.values()}


def test_sizes_are_known_before_anything_is_drawn(world):
    assert {part: len(sets) for part, sets in world.items()} == {
        part: part_size(SMALL, part) for part in world
    }


def test_no_scene_is_both_trained_and_tested_on(world):
    for trained in TRAINING_PARTS:
        for tested in TEST_PARTS:
            assert not pictures(world[trained]) & pictures(world[tested])
            seeds = [
                {member.extra["scene_seed"] for item in world[part] for member in item.members}
                for part in (trained, tested)
            ]
            assert not seeds[0] & seeds[1]


def test_every_scene_of_the_world_is_drawn_once(world):
    # "more_real" begins with the scenes of "real".
    keys = [item.key for part, sets in world.items() if part != "real" for item in sets]
    assert len(keys) == len(set(keys))
    for part, sets in world.items():
        assert len(pictures(sets)) == sum(len(item.images) for item in sets), part


@pytest.mark.parametrize("part", ["real", "counterfactual", "matched", "id"])
def test_training_and_id_scenes_are_biased(world, part):
    assert share_at_home(world[part]) == pytest.approx(SMALL.bias, abs=0.08)


def test_the_tests_off_home_and_the_control_have_the_background_they_should(world):
    assert share_at_home(world["ood"]) == share_at_home(world["ood_pairs"]) == 0
    assert share_at_home(world["unbiased"]) == pytest.approx(1 / len(PLACES), abs=0.06)
    assert share_at_home(world["id_retrieval"]) == pytest.approx(SMALL.bias, abs=0.01)


def test_a_pair_differs_in_its_subject_only(world):
    for part in ("counterfactual", "ood_pairs", "counterfactual_test"):
        for item in world[part]:
            before, after = item.members
            assert before.edit is None
            assert after.edit is not None
            assert after.edit.kind == "subject"
            assert before.text.replace(after.edit.before, after.edit.after) == after.text
            assert (before.label, after.label) == (after.edit.before, after.edit.after)
            difference = np.abs(pixels(item.images["0"]) - pixels(item.images["1"])).sum(axis=2)
            assert 0 < (difference > 0).mean() < 0.75


def test_matched_scenes_have_the_captions_of_the_pairs_and_other_pixels(world):
    for pair, matched in zip(world["counterfactual"], world["matched"], strict=True):
        assert [m.text for m in pair.members] == [m.text for m in matched.members]
        assert [m.label for m in pair.members] == [m.label for m in matched.members]
        assert all(m.edit is None for m in matched.members)
    assert not pictures(world["counterfactual"]) & pictures(world["matched"])


def test_ood_captions_are_unique_and_balanced(world):
    for part in ("ood", "id_retrieval"):
        texts = [item.members[0].text for item in world[part]]
        assert len(set(texts)) == len(texts)
    counts = Counter(item.members[0].label for item in world["ood"])
    assert set(counts.values()) == {len(COLOURS) * (len(PLACES) - 1)}
    assert len(counts) == 10


def test_captions_drop_words_as_asked(world):
    texts = [item.members[0].text for part in TRAINING_PARTS for item in world[part]]
    coloured = np.mean([any(c in text.split() for c in COLOURS) for text in texts])
    placed = np.mean([any(place in text for place in PLACES.values()) for text in texts])
    assert coloured == pytest.approx(0.7, abs=0.06)
    assert placed == pytest.approx(0.5, abs=0.06)
    full = replace(SMALL, drop_colour=0.0, drop_background=0.0, real_scenes=20)
    for item in make_part(full, "real"):
        text, extra = item.members[0].text, item.members[0].extra
        assert extra["colour"] in text
        assert PLACES[extra["background"]] in text


@pytest.mark.parametrize("kind", ["colour", "background"])
def test_other_edits_are_named_in_the_caption(kind: str) -> None:
    settings = replace(SMALL, edits=(kind,), counterfactual_pairs=40)
    for item in make_part(settings, "counterfactual"):
        before, after = item.members
        assert before.text != after.text
        assert after.edit is not None
        assert after.edit.kind == kind
        assert before.label == after.label


def test_another_seed_is_another_world() -> None:
    homes = [World(replace(SMALL, seed=seed)).homes["background"] for seed in range(3)]
    assert homes[0] != homes[1] != homes[2] != homes[0]
    assert all(set(home.values()) == set(PLACES) for home in homes)
    assert SMALL.content_hash() != replace(SMALL, seed=5).content_hash()
    assert SMALL.content_hash() == replace(SMALL, edits=["subject"]).content_hash()  # type: ignore[arg-type]


def test_prompts_and_captions_use_known_words_only(world):
    texts = {member.text for sets in world.values() for s in sets for member in s.members}
    texts |= {prompt.format(c=name) for prompt in PROMPTS for name in SUBJECTS}
    assert {word for text in texts for word in text.split()} <= set(words())


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"style": "oil"}, "drawing"),
        ({"edits": ("size",)}, "subject"),
        ({"shortcut": "texture"}, "background, colour, colour_and_background, style"),
        ({"shortcut": "style"}, "at least two domains"),
        ({"domains": ("photo", "statue")}, "sketch"),
        ({"domains": ("photo", "photo")}, "lists photo more than once"),
        ({"skewed": "shape"}, "colour, background, both"),
        ({"skewed_subjects": 11}, "from 1 to 10"),
        (
            {"colours": ("red",)},
            r"data\.world\.colours=\[red\] should be a list of 2 or more of these: red, orange",
        ),
        ({"colours": ("red", "red")}, "lists red more than once"),
        ({"backgrounds": ("beach", "moon")}, "curtain"),
    ],
)
def test_wrong_settings_are_named(wrong, named):
    with pytest.raises(UserError, match=named):
        WorldSettings(**wrong)


def test_an_unknown_part_and_a_missing_seed_are_named() -> None:
    with pytest.raises(UserError, match="counterfactual"):
        make_part(SMALL, "fake")
    with pytest.raises(UserError, match=r"data\.seed"):
        make_part(WorldSettings(), "real")


def test_the_counterfactual_test_shows_every_combination_once_beside_real_scenes(world):
    pairs, real = world["counterfactual_test"], world["real_test"]
    texts = [member.text for item in pairs for member in item.members]
    shown = {
        tuple(m.extra[k] for k in ("subject", "colour", "background"))
        for item in pairs
        for m in item.members
    }
    assert len(shown) == len(set(texts)) == len(texts) == 10 * len(COLOURS) * len(PLACES)
    assert [item.members[0].text for item in real] == [item.members[0].text for item in pairs]
    assert not pictures(real) & pictures(pairs)


def test_more_real_begins_with_the_real_scenes(world):
    real, more = world["real"], world["more_real"]
    assert more[: len(real)] == real
    assert len(more) == 250 + 2 * 120
    assert len(pictures(more)) == len(more)
    assert share_at_home(more) == pytest.approx(share_at_home(real), abs=0.06)


STORED = WorldSettings(seed=9, counterfactual_pairs=30)
COMMAND = """
import sys
from pathlib import Path
from cfaug.worlds.shapescapes.settings import WorldSettings
from cfaug.worlds.shapescapes.parts import ensure
print(ensure(WorldSettings(seed=9, counterfactual_pairs=int(sys.argv[2])), "counterfactual",
             Path(sys.argv[1])))
"""


def start(root: Path, pairs: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", COMMAND, str(root), str(pairs)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_the_shards_hold_the_part_and_are_made_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = ensure(STORED, "counterfactual", tmp_path)
    assert folder == part_folder(STORED, "counterfactual", tmp_path)
    assert folder.parent.name == f"shapescapes-{STORED.content_hash()}"
    assert "drawing 30 sets" in capsys.readouterr().err
    stored = list(read_sets(folder))
    drawn = list(make_part(STORED, "counterfactual"))
    assert [item.key for item in stored] == [item.key for item in drawn]
    assert [m.text for s in stored for m in s.members] == [m.text for s in drawn for m in s.members]
    assert [b for s in stored for b in s.images.values()] == [
        b for s in drawn for b in s.images.values()
    ]
    ensure(STORED, "counterfactual", tmp_path)
    assert capsys.readouterr().err == ""


@pytest.mark.slow
def test_many_processes_at_once_make_it_once(tmp_path: Path) -> None:
    running = [start(tmp_path, 200) for _ in range(6)]
    results = [process.communicate(timeout=120) for process in running]
    assert [process.returncode for process in running] == [0] * 6
    assert len({out for out, _ in results}) == 1
    assert sum("drawing 200 sets" in err for _, err in results) == 1
    folder = Path(results[0][0].strip())
    assert len(list(read_sets(folder))) == 200
    assert [path.name for path in folder.parent.iterdir() if path.suffix in {".new", ".old"}] == []


def test_a_killed_maker_leaves_nothing_half_made(tmp_path: Path) -> None:
    process = start(tmp_path, 100_000)
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob("*/.counterfactual.new")):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    killed = WorldSettings(seed=9, counterfactual_pairs=100_000)
    assert not part_folder(killed, "counterfactual", tmp_path).exists()
    # The same folder of another size: the one left behind is swept away by the next maker.
    left_behind = next(tmp_path.glob("*/.counterfactual.new"))
    target = part_folder(STORED, "counterfactual", tmp_path)
    target.parent.mkdir(parents=True)
    left_behind.rename(target.parent / left_behind.name)
    assert len(list(read_sets(ensure(STORED, "counterfactual", tmp_path)))) == 30
    assert list(target.parent.glob("*.new")) == []


def test_a_root_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    with pytest.raises(UserError, match="file"):
        ensure(STORED, "real", blocked)


LABELLED = WorldSettings(seed=5, counterfactual_pairs=60, real_scenes=3)


@pytest.mark.slow
def test_as_many_are_validated_as_in_the_paper_and_the_hidden_ones_are_not(tmp_path: Path) -> None:
    file = ensure_labels(LABELLED, "counterfactual", tmp_path)
    folder = ensure(LABELLED, "counterfactual", tmp_path)
    index = open_index(folder, tmp_path / "cache")
    mask = read_labels(file).find_validated(index)
    assert (~mask).sum() == round(UNMATCHED * 120) == 32
    seen = [visibility(m, LABELLED) for item in read_sets(folder) for m in item.members]
    assert max(np.array(seen)[~mask]) <= min(np.array(seen)[mask])
    # Both kinds of image are judged alike, so some pairs keep one member only.
    assert 0 < (mask[::2] != mask[1::2]).sum() < 60
    assert ensure_labels(LABELLED, "counterfactual", tmp_path / "again").read_bytes() == (
        file.read_bytes()
    )


def test_what_is_hard_to_see_looks_like_its_background(tmp_path: Path) -> None:
    """The images' own pixels, without the oracle's masks: hidden subjects vary the centre less."""
    labels = read_labels(ensure_labels(LABELLED, "counterfactual", tmp_path))
    spread: dict[bool, list[float]] = {True: [], False: []}
    for item in read_sets(ensure(LABELLED, "counterfactual", tmp_path)):
        for i, member in enumerate(item.members):
            pixels = np.asarray(Image.open(io.BytesIO(item.images[member.image_name])), float)
            centre, rim = pixels[12:20, 12:20].mean(axis=(0, 1)), pixels[:3].mean(axis=(0, 1))
            (seen,) = labels.answers[f"{item.key}_{i}"]
            spread[seen].append(float(np.linalg.norm(centre - rim)))
    assert np.mean(spread[True]) > 1.2 * np.mean(spread[False])


def test_a_part_without_pairs_has_no_labels(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not pairs"):
        ensure_labels(LABELLED, "real", tmp_path)
