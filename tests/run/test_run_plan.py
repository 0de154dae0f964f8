"""The paper's data sets through ``train.py``, from indexes of the real sizes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from cfaug.core.pixels import Digest
from cfaug.data.index.disk_format import write_index
from cfaug.data.sources import Row

PAPER = {
    "coco_real": 13_928, "coco_base": 13_928, "coco_medium": 34_820, "coco_all": 41_784,
    "coco_human_validated": 34_313,
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


def made(folder: Path, found: Iterator[Row]) -> None:
    folder.mkdir()
    write_index(found, folder, kind="shards", source=str(folder))


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


@pytest.fixture
def dry_run(tmp_path: Path, script, capsys) -> Callable[..., dict]:
    def run(*words: str) -> dict:
        paths = [f"paths.runs={tmp_path}", f"paths.shards={tmp_path / 'shards'}"]
        assert script("train")(["dry_run=json", *paths, *words]) == 0
        return json.loads(capsys.readouterr().out.splitlines()[-1])

    return run


@pytest.mark.slow
@pytest.mark.parametrize("split", ["group", "random"])
@pytest.mark.parametrize("plan", PAPER)
def test_the_papers_counts_without_an_image(paper, dry_run, plan, split):
    words = [
        f"data={plan}", f"data.real={paper / 'val2017'}", f"data.counterfactual={paper / 'cf'}",
        "data.real_captions=edited", f"data.split={split}",
    ]  # fmt: skip
    if plan == "coco_human_validated":
        words.append(f"data.human_labels={paper / 'labels.jsonl'}")
    found = dry_run(*words)
    assert found["counts"]["train"] == PAPER[plan]
    assert found["real_captions"] == {"edited": 17_410, "missed": 0}
    assert found["sizes"]["real"] == CAPTIONS
    assert found["sizes"]["counterfactual"] == (None if plan == "coco_real" else 2 * PAIRS)


def test_misses_are_listed(paper, dry_run, tmp_path, capsys):
    made(tmp_path / "few", rows(17_400, 1))
    found = dry_run(
        "data=coco_real", f"data.real={tmp_path / 'few'}", f"data.counterfactual={paper / 'cf'}",
        "data.real_captions=edited",
    )  # fmt: skip
    assert found["counts"]["train"] == int(0.8 * 17_400)
    assert found["real_captions"] == {"edited": 17_400, "missed": 10}
    (file,) = (tmp_path / "shards" / "index").glob("missed-*.jsonl")
    missed = [json.loads(line) for line in file.read_text().splitlines()]
    assert missed[0] == {"key": "3480_0_0", "caption": "Caption 17400 of the photo."}
    assert len(missed) == 10


def test_images_without_a_label_are_said(paper, script, tmp_path, capsys):
    lines = (paper / "labels.jsonl").read_text().splitlines()
    (tmp_path / "some.jsonl").write_text("\n".join(lines[:100]))
    words = [f"data.real={paper / 'val2017'}", f"data.counterfactual={paper / 'cf'}",
             f"paths.runs={tmp_path}", f"paths.shards={tmp_path}", "dry_run=json",
             "data=coco_human_validated"]  # fmt: skip
    assert script("train")([*words, f"data.human_labels={tmp_path / 'some.jsonl'}"]) == 0
    said = capsys.readouterr().err
    assert "34,720 of 34,820 images" in said
    assert f"no label in {tmp_path / 'some.jsonl'}" in said
    assert script("train")([*words, f"data.human_labels={paper / 'labels.jsonl'}"]) == 0
    assert "no label" not in capsys.readouterr().err


def test_misses_are_said(paper, script, tmp_path, capsys):
    made(tmp_path / "few", rows(9, 1))
    words = [f"data.real={tmp_path / 'few'}", "data.real_captions=edited",
             f"data.counterfactual={paper / 'cf'}", f"paths.runs={tmp_path}",
             f"paths.shards={tmp_path}", "data.holdout=0", "dry_run=json"]  # fmt: skip
    assert script("train")(["--multirun", "data=folder", "seed=1,2", *words]) == 0
    said = capsys.readouterr().err
    assert said.count("9 captions of") == 1
    assert "17,401 of 17,410 originals" in said
    assert "1_4_0 'Caption 9 of the photo.'" in said


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["data=coco_medium", "data.cf_ratio=0.6"], "data.plan=medium determines"),
        (["data=coco_all", "data.size=100"], "data.size=100"),
        (["data=coco_base", "data.counterfactual_members=unedited"], "counterfactual_members"),
        (["data=coco_human_validated"], "data.human_labels=FILE"),
        (["data=coco_medium", "data.human_labels=/nowhere.csv"], "/nowhere.csv"),
    ],
)
def test_what_a_named_plan_refuses(paper, script, tmp_path, capsys, words, named):
    given = [f"data.real={paper / 'val2017'}", f"data.counterfactual={paper / 'cf'}",
             f"paths.runs={tmp_path}", "dry_run=json"]  # fmt: skip
    assert script("train")([*words, *given]) == 2
    assert named in capsys.readouterr().err


def test_a_plan_says_which_source_it_lacks(script, tmp_path, capsys):
    assert script("train")(["data=coco_medium", "data.real=/x", f"paths.runs={tmp_path}"]) == 2
    assert "data.plan=medium needs data.counterfactual=FOLDER" in capsys.readouterr().err


WORLD_PLANS = {
    # 80 real scenes and 40 pairs; the oracle matches all but 0.2682 x 80 images: 59.
    "plan@data.plan=coco_real": (64, 0), "plan@data.plan=coco_base": (32, 16),
    "plan@data.plan=coco_medium": (64, 48), "plan@data.plan=coco_all": (64, 64),
    "plan@data.plan=coco_human_validated data.human_labels=shapescapes:counterfactual": (64, 47),
    "plan@data.plan=coco_all data.control=real data.control_source=shapescapes:more_real": (128, 0),
    "data.cf_ratio=1 data.counterfactual_holdout=0.3": (0, 44),
    "data.cf_ratio=1 data.human_labels=shapescapes:counterfactual": (0, 47),
}  # fmt: skip


@pytest.mark.parametrize("asked", WORLD_PLANS)
def test_every_plan_runs_on_the_world(place, capsys, asked):
    assert place.train(*asked.split(), "dry_run=json") == 0
    counts = json.loads(capsys.readouterr().out.splitlines()[-1])["counts"]
    assert (counts["real"], counts["counterfactual"]) == WORLD_PLANS[asked]


def test_a_planned_run_is_recorded_and_tested_on_what_it_validated_on(place, capsys):
    labels = "data.human_labels=shapescapes:counterfactual"
    words = ["plan@data.plan=coco_human_validated", labels, "seed=107", "trainer.max_steps=0"]
    assert place.train(*words) == 0
    record = place.record()
    assert record["cf_ratio"] == round(47 / 111, 4)
    assert record["counts"]["train"] == 111
    assert len(record["identity"]["content.labels"]) == 64
    assert "data.human_labels" not in record["identity"]
    assert place.train(*words) == 0
    assert "already done" in capsys.readouterr().out
    assert place.evaluate("benchmark=heldout") == 0
    (file,) = place.root.glob("main/run/seed=107/results.jsonl")
    found = [json.loads(line) for line in file.read_text().splitlines()]
    assert {(row["benchmark"], row["n"]) for row in found} == {("validation_retrieval", 16)}


def test_labels_of_another_part_are_refused(place, capsys):
    words = ["data.cf_ratio=1", "data.human_labels=shapescapes:ood_pairs", "dry_run=json"]
    assert place.train(*words) == 2
    assert "ood_pairs-000000_0" in capsys.readouterr().err
