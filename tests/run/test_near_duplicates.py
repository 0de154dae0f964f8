"""Near-duplicates from end to end: a planted copy is refused, left out, reported, and shown."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from cfaug.core.errors import UserError
from cfaug.core.perceptual_hash import perceptual_hash
from cfaug.data.mixture.leakage import Leaks
from cfaug.data.mixture.near_duplicates import NearDuplicates
from cfaug.data.mixture.settings import NearRule
from cfaug.report.results import read_results
from cfaug.run.evaluation_data import DataOpener
from tests.data.making import photo
from tests.run.conftest import commands_of, output_of, places_in, refusal
from tests.scripts import ROOT

PAGE = ROOT / "docs" / "data.md"
HOSTILE = "<script>alert(1)</script>"


def encode(picture: Image.Image, **options: object) -> bytes:
    content = io.BytesIO()
    picture.save(content, "JPEG", **options)
    return content.getvalue()


def lay(folder: Path, pictures: list[bytes]) -> None:
    """Write photos with captions that the tiny model can tell apart."""
    folder.mkdir()
    colours = ("black", "blue", "green", "orange", "red", "yellow")
    things = [f"a {c} {s}" for c, s in product(colours, ("ball", "cat", "cone", "cube", "star"))]
    with (folder / "captions.csv").open("w") as file:
        rows = csv.writer(file)
        rows.writerow(("image", "caption"))
        for number, picture in enumerate(pictures):
            (folder / f"{folder.name}-{number}.jpg").write_bytes(picture)
            rows.writerow((f"{folder.name}-{number}.jpg", f"{things[number]} {HOSTILE}"))


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """Photos for training, of which number 0 has a copy in the same folder; and a test."""
    monkeypatch.chdir(tmp_path)
    parts = []
    for name, column, row in product(("chelsea.png", "coffee.png"), range(4), range(4)):
        whole = photo(name)
        wide, high = whole.width // 4, whole.height // 4
        part = whole.crop((column * wide, row * high, (column + 1) * wide, (row + 1) * high))
        parts += [part] * bool(perceptual_hash(part))
    small = [part.resize((part.width // 2, part.height // 2)) for part in parts]
    # Every photo for training has a copy there, so that some are on either side of the holdout.
    lay(tmp_path / "PHOTOS", [encode(part) for part in [*parts[:12], *small[:12]]])
    lay(tmp_path / "TEST_PHOTOS", [encode(part, quality=50) for part in parts[8:20]])
    return tmp_path


def commands() -> tuple[list[str], list[str]]:
    """Return the words of the two commands of the section, in the order of the page."""
    some = [words for _, words in commands_of(PAGE) if any("near_dup" in word for word in words)]
    training, evaluation = some
    return training, evaluation


TINY = ["trainer.max_steps=1", "data.batch_size=4", "data.holdout=0.3", "optim.warmup=0"]


@pytest.mark.slow
def test_every_command_of_the_section_runs(folders, place):
    training, evaluation = commands()
    train, evaluate = place.script("train"), place.script("evaluate")
    words = [*training, *TINY, *place.paths]

    def with_action(action: str, words: list[str]) -> list[str]:
        return [re.sub(r"(?<=near_duplicates=)\w+", action, word) for word in words]

    said = refusal(train, with_action("refuse", words))
    assert "data.near_duplicates=leave_out leaves them out of the training" in said
    assert not (place.root / "near").exists()
    output_of(train, [*with_action("report", words), "arm=reported", "seed=1"])
    said = output_of(train, [*words, "arm=apart", "seed=1"])[1]
    shown = re.search(r"(\d+) of (\d+) training images \(.*\) nearly equal", said)
    assert shown is not None
    runs = {arm: place.root / f"near/{arm}/seed=1" for arm in ("apart", "reported")}
    records = {arm: json.loads((run / "run.json").read_text()) for arm, run in runs.items()}
    sizes = {arm: record["counts"]["train"] for arm, record in records.items()}
    assert sizes["apart"] < sizes["reported"]
    for arm, run in runs.items():
        lines = (run / "near_duplicates-training.jsonl").read_text().splitlines()
        pairs = [json.loads(line) for line in lines]
        assert len(pairs) == int(shown[1])
        assert {pair["left_out"] for pair in pairs} == {arm == "apart"}
        for pair in pairs:  # each with its copy, 12 photos before or after it
            numbers = [int(re.search(r"-(\d+)\.jpg", pair[s])[1]) for s in ("test", "training")]
            assert abs(numbers[0] - numbers[1]) == 12
            assert pair["distance"] <= 8
        page = (run / "near_duplicates-training.html").read_text()
        assert HOSTILE not in page
        assert page.count('"i":') == 2 * len(pairs)  # pictures

    said = refusal(evaluate, [*with_action("refuse", evaluation), *place.paths])
    assert "test images" in said
    assert "nearly equal" in said
    out, said = output_of(evaluate, [*evaluation, *place.paths])
    assert "near_duplicates-TEST_PHOTOS_retrieval.html" in re.sub(r"\s+", "", out)
    counts = {}
    for arm, run in runs.items():
        [line] = [line for line in said.splitlines() if f"near/{arm}/seed=1  TEST" in line]
        counts[arm] = int(re.search(r"(\d+) of 12 test images", line)[1])
        pairs = (run / "near_duplicates-TEST_PHOTOS_retrieval.jsonl").read_text().splitlines()
        assert len(pairs) == counts[arm] > 0
        near = json.loads((run / "leaks.json").read_text())["TEST_PHOTOS_retrieval"]["near"]
        assert near == {"images": counts[arm], "total": 12, "distance": 8, "left_out": False}
    assert "nearly equal" in (place.root / "near/report.html").read_text()
    assert not places_in(place.root, folders)

    output_of(evaluate, [*with_action("leave_out", evaluation), *place.paths])
    for arm, run in runs.items():
        rows = [row for row in read_results(run / "results.jsonl") if row.metric.endswith("R@1")]
        assert [row.n for row in rows] == [12 - counts[arm]] * 2
    plain = [word for word in evaluation if "near_" not in word]
    output_of(evaluate, [*plain, *place.paths])
    assert not list(place.root.rglob("near_duplicates-TEST*"))
    assert not [run for run in runs.values() if (run / "leaks.json").read_text().strip() != "{}"]


@pytest.mark.slow
def test_where_nothing_is_compared_the_setting_is_refused(folders, place):
    train, evaluate = place.script("train"), place.script("evaluate")
    near = "data.near_duplicates=report"
    words = ["data=folder", "data.real=PHOTOS", "data.cf_ratio=0", *place.paths]
    said = refusal(train, [*words, near, "data.holdout=0"])
    assert f"{near} would have no effect" in said
    assert "with data.holdout=..., or data.counterfactual_holdout=..." in said
    said = refusal(train, [*words, "data.near_distance=3"])
    assert "data.near_distance is read with data.near_duplicates" in said
    tested = ["benchmark=retrieval", "benchmark.data=TEST_PHOTOS", *place.paths]
    said = refusal(evaluate, ["weights=zoo:clip-0", near, *tested])
    assert "by an evaluation of finished runs (name=..., arm=..., runs=...), not by" in said
    said = refusal(evaluate, ["name=near", "data.near_duplicates=leaveout", *tested])
    assert "did you mean leave_out?" in said


def test_a_benchmark_without_images_to_compare_refuses_the_setting():
    rule = NearRule("report")
    opener = DataOpener(Path("shards"), Path("cache"), near=rule)
    none = np.empty(0, np.int64)
    without = Leaks(none, none, 0, 0, 0, 3)
    searched = replace(without, near=NearDuplicates((), 3, 0, rule, "test"))
    opener.check_near([SimpleNamespace(leaks=None), SimpleNamespace(leaks=searched)])
    for benchmarks in ([], [object()], [SimpleNamespace(leaks=None)]):
        with pytest.raises(UserError, match="=report would have no effect"):
            opener.check_near(benchmarks)
    DataOpener(Path("shards"), Path("cache")).check_near([object()])
