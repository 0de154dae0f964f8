"""The proof: a recipe unlike the first, in a folder of its own, runs through every script."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from cfaug.data.index import open_index
from cfaug.data.shards.shards import read_sets
from cfaug.report.items import read_items
from cfaug.report.results import read_results
from tests.data.making import noise_image
from tests.run.conftest import files

OWN = Path(__file__).parent / "own_recipe"
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


@pytest.fixture
def make(photos, tmp_path, script, capfd):
    """Run generate.py with the recipe; return its code, the JSON of its last line, and stderr."""

    def run(*words: str, folder: str = "out"):
        texts = () if "stage=images" in words else ("shards.sets_per_shard=3",)
        code = script("generate")(
            [
                f"hydra.searchpath=[file://{OWN}]", "recipe=insertion", "force=true",
                f"data.source={photos}",
                f"paths.shards={tmp_path / folder}", f"paths.worlds={tmp_path / 'worlds'}",
                *texts, *words,
            ]
        )  # fmt: skip
        out, err = capfd.readouterr()
        return code, json.loads(out.splitlines()[-1]) if code == 0 else None, err

    return run


def test_photos_become_shards_of_unchanged_photos_with_edited_captions(make, photos, tmp_path):
    code, summary, _ = make()
    assert code == 0
    assert (summary["shards"], summary["sets"], summary["members"]) == (2, 6, 6)
    assert summary["rejected"] == {"noun": 1, "likely": 3}
    sets = list(read_sets(tmp_path / "out"))
    # Two of each photo's three proposals are kept: the third has an unlikely word.
    texts = [[member.text for member in one.members] for one in sets]
    assert texts[:2] == [["a red ball on the beach"], ["a huge ball on the beach"]]
    assert [len({one.group for one in sets}), len({one.key for one in sets})] == [3, 6]
    for one in sets:
        [member] = one.members
        name = {"ball": "a.png", "house": "b.png", "tree": "d.png"}[member.edit.before]
        assert dict(one.images) == {"0": (photos / name).read_bytes()}
        assert member.extra["noun"] == member.edit.before
        assert member.extra["topic"] in {"toy", "place", "plant"}
        assert member.extra["kind"] == member.edit.kind
        assert set(one.scores) == {"words", "likely"}
    index = open_index(tmp_path / "out", tmp_path / "cache")
    assert {"noun", "topic", "kind", "caption"} <= set(index.extra_names)


def test_parts_stages_and_a_second_run_make_the_same(make, tmp_path):
    assert make()[0] == 0
    first = files(tmp_path / "out")
    assert "nothing to do" in make()[2]
    for part in (1, 0):
        assert make(f"part={part}", "parts=2", folder="parts")[0] == 0
    assert files(tmp_path / "parts") == first
    assert make("stage=captions", folder="stages")[0] == 0
    assert make("stage=images", folder="stages")[0] == 0
    assert files(tmp_path / "stages") == first


def test_another_image_than_was_edited_is_not_taken(make, photos, tmp_path):
    assert make("stage=captions")[0] == 0
    before = (photos / "b.png").read_bytes()
    try:
        (photos / "b.png").write_bytes(noise_image(77))
        code, _, said = make("stage=images")
    finally:
        (photos / "b.png").write_bytes(before)
    assert code == 2
    assert "another than when it was edited" in said


@pytest.mark.parametrize("zoo", ["captions", "paper", "shapescapes"])
def test_it_runs_with_every_zoo(make, zoo):
    assert make(f"zoo={zoo}", "limit=1")[0] == 0


def test_a_benchmark_of_its_own_is_reported_by_part_in_its_own_direction(make, script, tmp_path):
    assert make()[0] == 0
    words = [
        f"hydra.searchpath=[file://{OWN}]", "weights=zoo:clip-0", "benchmark=brittleness",
        f"benchmark.data={tmp_path / 'out'}", "benchmark.name=own",
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
