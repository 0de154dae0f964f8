"""What a run of a data set of the paper would train on, from settings alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from cfaug.core.pixels import Digest
from cfaug.data.index.disk_format import write_index
from cfaug.data.sources import Row
from tests.run.conftest import Plan, stdout_of
from tests.run.test_readings import classes, photos
from tests.run.test_readings import pairs as lay_pairs

PAPER = {
    "real": 13_928, "base": 13_928, "medium": 34_820, "all": 41_784, "human_validated": 34_313,
}  # fmt: skip
CAPTIONS, PAIRS, VALIDATED = 25_014, 17_410, 25_482


def rows(sets: int, members: int) -> Iterator[Row]:
    """Sets of photos with up to five captions each; the images are nowhere."""
    for number in range(sets):
        for member in range(members):
            edited = " edited" * member
            yield Row(
                set=f"{number // 5}_{number % 5}", member=member, group=str(number // 5),
                text=f"Caption {number} of the photo{edited}.", label=None, image_id=str(member),
                file="/nowhere/00000.tar", offset=0, length=1, where="here",
                digest=Digest.of(f"{members} {number} {member}".encode()),
            )  # fmt: skip


def made(folder: Path, index_rows: Iterator[Row]) -> None:
    folder.mkdir()
    write_index(index_rows, folder, kind="shards", source=str(folder))


@pytest.fixture(scope="module")
def paper(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Indexes of the paper's sizes, and labels that validate as many images as people did."""
    root = tmp_path_factory.mktemp("paper")
    made(root / "val2017", rows(CAPTIONS, 1))
    made(root / "cf", rows(PAIRS, 2))
    images = [(f"{n // 5}_{n % 5}", member) for n in range(PAIRS) for member in (0, 1)]
    right = set(np.random.default_rng(0).permutation(len(images))[:VALIDATED].tolist())
    labels = ("original", "counterfactual")
    lines = [
        json.dumps({"key": k, "member": m, "label": labels[m] if i in right else "neither"})
        for i, (k, m) in enumerate(images)
    ]
    (root / "labels.jsonl").write_text("\n".join(lines))
    return root


def given(paper: Path, real: Path | None = None) -> list[str]:
    return [f"data.real={real or paper / 'val2017'}", f"data.counterfactual={paper / 'cf'}"]


@pytest.mark.slow
@pytest.mark.parametrize("named", PAPER)
def test_the_papers_counts_without_an_image(paper, plan, named):
    words = ["data=coco_cf", f"data.plan.name={named}", "data.real_captions=edited"]
    if named == "human_validated":
        words += [f"data.human_labels={paper / 'labels.jsonl'}", "data.split=random"]
    (described,), _ = plan(*given(paper), *words)
    assert described["counts"]["train"] == PAPER[named]
    assert described["real_captions"] == {"edited": 17_410, "missed": 0}
    assert described["sizes"]["real"] == CAPTIONS
    assert described["sizes"]["counterfactual"] == (None if named == "real" else 2 * PAIRS)


@pytest.mark.slow
def test_misses_are_listed(paper, plan, tmp_path):
    made(tmp_path / "few", rows(17_400, 1))
    words = given(paper, tmp_path / "few")
    (described,), _ = plan(
        "data=coco_cf", "data.plan.name=real", *words, "data.real_captions=edited"
    )
    assert described["counts"]["train"] == int(0.8 * 17_400)
    assert described["real_captions"] == {"edited": 17_400, "missed": 10}
    (file,) = (tmp_path / "shards" / "index").glob("missed-*.jsonl")
    missed = [json.loads(line) for line in file.read_text().splitlines()]
    assert missed[0] == {"key": "3480_0_0", "caption": "Caption 17400 of the photo."}
    assert len(missed) == 10


@pytest.mark.slow
def test_misses_are_said_once_a_sweep_and_images_without_a_label(paper, plan, tmp_path):
    made(tmp_path / "few", rows(9, 1))
    words = [*given(paper, tmp_path / "few"), "data.real_captions=edited", "data.holdout=0"]
    _, said = plan("--multirun", "data=folder", "seed=1,2", *words)
    assert said.count("9 captions of") == 1
    assert "17,401 of 17,410 originals" in said
    assert "1_4_0 'Caption 9 of the photo.'" in said
    lines = (paper / "labels.jsonl").read_text().splitlines()
    (tmp_path / "some.jsonl").write_text("\n".join(lines[:100]))
    words = [*given(paper), "data=coco_cf", "data.plan.name=human_validated"]
    _, said = plan(*words, f"data.human_labels={tmp_path / 'some.jsonl'}")
    assert "34,720 of 34,820 images" in said
    assert f"no label in {tmp_path / 'some.jsonl'}" in said


@pytest.mark.parametrize(
    ("name", "words", "said"),
    [
        ("medium", ["data.cf_ratio=0.6"], "data.cf_ratio is a setting of data.mixture="),
        ("all", ["data.size=100"], "not of a paper's data.mixture"),
        ("base", ["data.counterfactual_members=unedited"], "counterfactual_members is a setting"),
        (
            "base",
            ["data.negatives=text"],
            "a setting of data.mixture=negatives, not of",
        ),
        ("human_validated", [], "data.human_labels=FILE"),
        ("medium", ["data.human_labels=/nowhere.csv"], "/nowhere.csv"),
        (
            "medium",
            ["data.counterfactual=null"],
            "data.plan=medium needs data.counterfactual=FOLDER",
        ),
    ],
)
def test_what_a_named_plan_refuses(paper, plan, name, words, said):
    typed = {word.partition("=")[0] for word in words}
    sources = [word for word in given(paper) if word.partition("=")[0] not in typed]
    assert said in plan.refused("data=coco_cf", f"data.plan.name={name}", *words, *sources)


PLAN = "data.mixture=coco_cf"
WORLD_PLANS = {
    # 80 real scenes and 40 pairs; the oracle matches all but 0.2682 x 80 images: 59.
    f"{PLAN} data.plan.name=real": (64, 0),
    f"{PLAN} data.plan.name=base": (32, 16),
    f"{PLAN} data.plan.name=medium": (64, 48),
    f"{PLAN} data.plan.name=all": (64, 64),
    f"{PLAN} data.plan.name=human_validated data.human_labels=shapescapes:counterfactual": (64, 47),
    f"{PLAN} data.plan.name=all data.control=real data.control_source=shapescapes:more_real": (
        128, 0,
    ),
}  # fmt: skip


@pytest.mark.parametrize("asked", WORLD_PLANS)
def test_every_plan_runs_on_the_world(place, asked):
    counts = place.plan(*asked.split())["counts"]
    assert (counts["real"], counts["counterfactual"]) == WORLD_PLANS[asked]


@pytest.mark.slow
def test_a_planned_run_is_recorded_and_tested_on_what_it_validated_on(place):
    labels = "data.human_labels=shapescapes:counterfactual"
    words = [*PLAN.split(), "data.plan.name=human_validated", labels]
    words += ["seed=107", "trainer.max_steps=0"]
    assert place.train(*words) == 0
    record = place.record()
    assert record["cf_ratio"] == round(47 / 111, 4)
    assert record["counts"]["train"] == 111
    assert len(record["identity"]["content.labels"]) == 64
    assert "data.human_labels" not in record["identity"]
    assert "already done" in stdout_of(place.train, *words)
    assert place.evaluate("benchmark=heldout") == 0
    (file,) = place.root.glob("main/run/seed=107/results.jsonl")
    results = [json.loads(line) for line in file.read_text().splitlines()]
    assert {(row["benchmark"], row["n"]) for row in results} == {("validation_retrieval", 16)}


def test_a_control_of_counterfactuals_without_pairs_is_refused(plan: Plan, tmp_path: Path) -> None:
    real, cf, other = photos(tmp_path / "real"), lay_pairs(tmp_path / "cf"), classes(tmp_path / "c")
    words = [f"data.real={real}", f"data.counterfactual={cf}", "data.mixture=coco_cf"]
    words.append("data.plan.name=medium")
    control = ["data.control=counterfactual", f"data.control_source={other}"]
    said = plan.refused(*words, *control)
    assert f"data.control_source={other} holds no counterfactual pairs" in said
