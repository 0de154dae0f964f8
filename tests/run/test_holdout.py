"""Own data from end to end: every arm is asked one held-out set that no arm has seen."""

from __future__ import annotations

import csv
import re
from types import SimpleNamespace

import numpy as np
import pytest

from cfaug.data.mixture.records import HeldOutTest
from cfaug.data.mixture.settings import RatioData
from cfaug.planning.sources import report_held_out
from cfaug.report.results import read_results
from tests.data.layouts import table
from tests.data.making import noise_image
from tests.run.conftest import lay_photos, output_of, places_in, refusal, stderr_of

PHOTOS, EDITED = 60, 40
COLOURS = ("black", "blue", "green", "orange", "pink", "purple", "red", "yellow")
SUBJECTS = ("ball", "cat", "cone", "cube", "fish", "heart", "house", "ring", "star", "tree")
THINGS = [f"a {colour} {subject}" for colour in COLOURS for subject in SUBJECTS]
"""Captions that the tiny model can tell apart."""


@pytest.fixture(scope="module")
def own_data(tmp_path_factory):
    """Photos with captions, and pairs of two thirds of them with their edits."""
    root = tmp_path_factory.mktemp("own")
    real, pairs = root / "photos", root / "pairs"
    lay_photos(real, [f"{thing} on the grass" for thing in THINGS[:PHOTOS]])
    lines = []
    for i, thing in enumerate(THINGS[:EDITED]):
        (pairs / f"{i}.png").parent.mkdir(exist_ok=True)
        (pairs / f"{i}.png").write_bytes(noise_image(i))
        (pairs / f"{i}-cf.png").write_bytes(noise_image(1000 + i))
        lines.append((f"{i}.png", f"{thing} on the grass", f"{i}-cf.png", f"{thing} on the snow"))
    table(pairs / "pairs.csv", ("image", "caption", "cf_image", "cf_caption"), lines)
    return root


@pytest.fixture
def words(own_data, place):
    return [
        *place.paths, "data=folder", f"data.real={own_data / 'photos'}",
        f"data.counterfactual={own_data / 'pairs'}", "data.batch_size=8", "trainer.max_steps=1",
    ]  # fmt: skip


def rows_of(experiment):
    return {
        folder.parent.name: read_results(folder / "results.jsonl")
        for folder in sorted(experiment.glob("*/seed=1"))
    }


@pytest.mark.parametrize(
    ("images", "said"),
    [
        (1, "recall at 1, at 5 and at 10 among so few is always 1"),
        (5, "recall at 5 and at 10 among so few is always 1"),
        (6, "recall at 10 among so few is always 1"),
        (11, None),
    ],
)
def test_every_recall_that_says_nothing_is_named(images, said, capsys):
    source = SimpleNamespace(images=np.arange(100), source=f"{images} of 100 photos")
    held = HeldOutTest(source, np.arange(images), images, (0, 0, 0), 0)
    report_held_out(held, RatioData("photos", None, seed=2, holdout=0.1))
    line = capsys.readouterr().err
    assert (f"; {said}: a larger data.holdout" in line) == (said is not None)
    assert ("is always 1" in line) == (said is not None)


@pytest.mark.slow
def test_identical_models_are_asked_the_same_and_none_of_them_wins(place, words, own_data):
    arms = ["data.cf_ratio=0,0.9", "seed=1,2", "name=fp", "optim.lr=1e-12"]
    said = stderr_of(place.script("train"), ["--multirun", *words, *arms])
    assert "held out as the test set of every arm (data.holdout=0.1): " in said
    assert said.count("held out as") == 2  # without counterfactuals, and with them
    assert "differ in their number of training examples" in said
    folder = place.root / "fp"
    for benchmark, why in (([], "the same weights"), (["benchmark=heldout"], "other test data")):
        out, err = output_of(place.evaluate, "name=fp", *benchmark)
        assert re.search(
            r"have the same weights at every seed: no comparison|is not one test for all arms",
            " ".join(out.split()),
        )
        report = (folder / "report.html").read_text()
        assert "was not compared with" in report
        with (folder / "table.csv").open() as handle:
            rows = [row for row in csv.DictReader(handle) if row["arm"] != row["baseline"]]
        assert {row["reason"] for row in rows} <= {"the same weights", why}
        assert {row["p_paired"] + row["p_welch"] + row["p_holm"] for row in rows} == {""}
        # Arms are called by what sets them apart.
        assert {row["label"].partition(",")[0] for row in rows} == {"cf_ratio=0.9"}
        for text in (out, err, report, (folder / "table.md").read_text()):
            assert not re.search(r"(rises|falls) by|>reached<|  reached", text)
            assert benchmark or "different test data" not in text
        if not benchmark:
            first, second = rows_of(folder).values()
            assert {row.benchmark for row in first} == {"heldout_retrieval"}
            assert [(r.metric, r.data, r.n, r.value) for r in first] == [
                (r.metric, r.data, r.n, r.value) for r in second
            ]
    assert "real: photos\n" in report
    assert places_in(folder, place.root, own_data) == {}


@pytest.mark.slow
def test_no_arm_was_trained_on_an_image_that_is_asked(place, words, plan):
    asked = {}
    for ratio, more in ((0, []), (0.5, ["data.size=30"]), (1, ["data.split=random"])):
        run = ["name=x", f"arm=a{ratio}", f"data.cf_ratio={ratio}", "seed=1", *more]
        assert place.script("train")([*words, *run]) == 0
        record = place.record(f"a{ratio}", seed=1, name="x")
        assert record["counts"]["held_out_images"] == record["counts"]["held_out"] > 1
        assert record["identity"]["data.holdout"] == 0.1
        [described], _ = plan(*words, *run)
        assert described["state"] == "done"
        asked[ratio] = described["held_out"]["images"]
        assert described["held_out"]["examples"] == record["counts"]["held_out"]
    assert len(set(asked.values())) == 1
    assert place.evaluate("name=x") == 0
    data = {row.data for rows in rows_of(place.root / "x").values() for row in rows}
    assert len(data) == 1
    card = (place.root / "x/a0.5/seed=1/checkpoint/README.md").read_text()
    assert f"Held out as a test set: {asked[0.5]} images" in card


@pytest.mark.slow
def test_without_a_held_out_set_auto_says_what_to_give(place, words, capsys):
    run = ["name=x", "arm=old", "data.cf_ratio=0", "seed=1", "data.holdout=0"]
    assert place.script("train")([*words, *run]) == 0
    assert "benchmark=retrieval benchmark.data=TEST_PHOTOS\n" in capsys.readouterr().err
    assert place.evaluate("name=x") == 2
    said = capsys.readouterr().err
    assert "benchmark=retrieval benchmark.data=FOLDER, or train with data.holdout=0.1" in said
    assert "Traceback" not in said
    assert place.evaluate("name=x", "benchmark=heldout") == 0
    printed = capsys.readouterr()
    assert "validation_retrieval of old" in printed.out
    assert "Percent; 12 items." in printed.out
    assert "its checkpoint was chosen by them" in printed.err


@pytest.mark.slow
def test_a_checkpoint_is_asked_the_same_set(place, own_data, words):
    run = ["name=x", "arm=a", "data.cf_ratio=0", "seed=1"]
    assert place.script("train")([*words, *run]) == 0
    assert place.evaluate("name=x", "evaluate_initial=true") == 0
    node = ["data=folder", f"data.real={own_data / 'photos'}"]
    assert place.evaluate("weights=zoo:clip-1", *node) == 0
    files = place.root.rglob("results.jsonl")
    assert len({row.data for file in files for row in read_results(file)}) == 1
    assert "give data.real=FOLDER" in refusal(place.evaluate, "weights=zoo:clip-1", "data=folder")
