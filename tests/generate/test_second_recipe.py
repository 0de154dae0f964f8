"""The proof: a recipe unlike the first, in a folder of its own, runs through every script."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from cfaug.data.index import open_index
from cfaug.data.shards.shards import read_sets
from cfaug.report.items import read_items
from cfaug.report.results import read_results
from tests.data.making import noise_image
from tests.generate.tiny import card, contents

OWN = Path(__file__).parent / "own_recipe"
# In quotes: a folder of this path may have a comma in its name.
SEARCH = f'hydra.searchpath=["file://{OWN}"]'
CAPTIONS = [
    ("a.png", "a ball on the beach", "ball", "toy"),
    ("a.png", "something round", "ball", "toy"),
    ("b.png", "a house in the snow", "house", "place"),
    ("c.png", "nothing to see", "tree", "plant"),
    ("d.png", "a tree in the city", "tree", "plant"),
]


@pytest.fixture(scope="module")
def photos(tmp_path_factory) -> Path:
    """A folder of images and a list of their captions with a column that only this recipe reads."""
    folder = tmp_path_factory.mktemp("photos")
    for number, name in enumerate(dict.fromkeys(row[0] for row in CAPTIONS)):
        (folder / name).write_bytes(noise_image(number))
    with (folder / "captions.csv").open("w", newline="") as handle:
        csv.writer(handle).writerows([("image", "caption", "noun", "topic"), *CAPTIONS])
    return folder


@pytest.fixture(scope="module")
def run(photos, script, tmp_path_factory):
    """Return a function that runs generate.py with the recipe and returns its exit code."""
    worlds = tmp_path_factory.mktemp("worlds")

    def run(folder: Path, *words: str) -> int:
        texts = () if "stage=images" in words else ("shards.sets_per_shard=3",)
        return script("generate")(
            [
                SEARCH, "recipe=insertion", "force=true",
                f"data.source={photos}", f"paths.shards={folder}", f"paths.worlds={worlds}",
                *texts, *words,
            ]
        )  # fmt: skip

    return run


@pytest.fixture(scope="module")
def made(run, tmp_path_factory) -> Path:
    """The shards of all photos, made at once."""
    folder = tmp_path_factory.mktemp("made") / "out"
    assert run(folder) == 0
    return folder


def test_photos_become_shards_of_unchanged_photos_with_edited_captions(made, photos, tmp_path):
    about = card(made)
    assert (len(about["shards"]), about["sets"], about["members"]) == (2, 6, 6)
    assert (about["edits"]["rejected"], about["rejected"]) == ({"noun": 1}, {"likely": 3})
    sets = list(read_sets(made))
    # Two of each photo's three proposals are kept: the third has an unlikely word.
    texts = [[member.text for member in counterfactual.members] for counterfactual in sets]
    assert texts[:2] == [["a red ball on the beach"], ["a huge ball on the beach"]]
    assert [len({s.group for s in sets}), len({s.key for s in sets})] == [3, 6]
    for counterfactual in sets:
        [member] = counterfactual.members
        name = {"ball": "a.png", "house": "b.png", "tree": "d.png"}[member.edit.before]
        assert dict(counterfactual.images) == {"0": (photos / name).read_bytes()}
        assert member.extra["noun"] == member.edit.before
        assert member.extra["topic"] in {"toy", "place", "plant"}
        assert member.extra["kind"] == member.edit.kind
        assert set(counterfactual.scores) == {"words", "likely"}
    index = open_index(made, tmp_path / "cache")
    assert {"noun", "topic", "kind", "caption"} <= set(index.extra_names)


@pytest.mark.slow
def test_stages_and_parts_make_the_same_of_the_same_photos(run, made, photos, tmp_path, capfd):
    folder = tmp_path / "out"
    assert run(folder, "stage=captions") == 0
    before = (photos / "b.png").read_bytes()
    try:
        (photos / "b.png").write_bytes(noise_image(77))
        assert run(folder, "stage=images") == 2
    finally:
        (photos / "b.png").write_bytes(before)
    assert "another than when it was edited" in capfd.readouterr().err
    for part in (1, 0):
        assert run(folder, "stage=images", f"part={part}", "parts=2") == 0
    assert contents(folder) == contents(made)
    capfd.readouterr()
    assert run(folder) == 0
    assert "nothing to do" in capfd.readouterr().err


def test_it_runs_with_a_zoo_of_large_models(run, tmp_path):
    assert run(tmp_path, "zoo=paper", "limit=1") == 0


def test_a_benchmark_of_its_own_is_reported_by_part_in_its_own_direction(made, script, tmp_path):
    words = [
        SEARCH, "weights=zoo:clip-0", "benchmark=brittleness",
        f"benchmark.data={made}", "benchmark.name=own",
        f"paths.runs={tmp_path / 'runs'}", f"paths.shards={tmp_path / 'worlds'}",
    ]  # fmt: skip
    assert script("evaluate")(words) == 0
    [file] = (tmp_path / "runs").rglob("results.jsonl")
    rows = read_results(file)
    assert [(row.metric, dict(row.by), row.n) for row in rows] == [
        ("drop", {}, 6), ("drop", {"kind": "colour"}, 3), ("drop", {"kind": "size"}, 3),
    ]  # fmt: skip
    assert {(row.better, row.unit) for row in rows} == {("lower", "cosine")}
    items = read_items(file.parent, "own_brittleness")
    assert sum(items.columns["drop"]) / 6 == pytest.approx(rows[0].value)
    assert list(items.columns["kind"]).count("size") == 3
    assert len(set(items.columns["cluster"])) == 3
