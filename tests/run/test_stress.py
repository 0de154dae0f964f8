"""``evaluate.py benchmark=stress`` on hand-laid shards, with models as each library saves them."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from cfaug.data.shards.shards import write_shards
from cfaug.report.items import read_items
from cfaug.report.results import read_results
from tests.evaluation.joined import joined_sets, random_sets
from tests.models import tiny
from tests.run.conftest import stdout_of


def lay_sets(root):
    write_shards(joined_sets(), root / "lance")
    write_shards(random_sets(), root / "lance_r")
    return root


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return lay_sets(tmp_path_factory.mktemp("stress"))


def asked(data, *words):
    return ["benchmark=stress", f"benchmark.data={data / 'lance'}",
            f"benchmark.random={data / 'lance_r'}", "device=cpu", *words]  # fmt: skip


def only_folder(root):
    (folder,) = (file.parent for file in root.rglob("results.jsonl"))
    return folder


def save_timm(folder):
    import timm
    import torch

    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = timm.create_model("test_convnext2", num_classes=4)
    names = {"label_names": ["ring", "star", "cube", "ball"]}
    timm.models.save_for_hf(model, folder, model_config=names, safe_serialization=True)
    return folder


@pytest.mark.slow
def test_a_classifier_of_the_hub_is_asked_by_its_name_alone(data, place, tmp_path):
    folder = tiny.save_classifier(tmp_path / "vit")
    words = asked(data, "model=classifier", f"model.weights={folder}")
    said = stdout_of(place.evaluate, *words)
    lines = [" ".join(line.split()) for line in said.splitlines()]
    assert any(line.startswith("lance_stress of") for line in lines)
    assert any(line.startswith("set=original ") for line in lines)
    assert "more numbers are in" in " ".join(lines)
    assert re.search(r"wrote \S+stress\.html, \S+stress\.md, \S+insights\.json", said)
    results = only_folder(place.root)
    rows = read_results(results / "results.jsonl")
    items = read_items(results, "lance_stress")
    assert (results / "stress.md").read_text().startswith("## ")
    assert {"edited", "random", "original", "reconstruction"} == set(items.columns["set"])
    by = {(row.metric, json.dumps(dict(row.by))): row for row in rows}
    chosen = np.array(items.columns["set"]) == "edited"
    row = by["paired_drop1", '{"set": "edited"}']
    assert row.value == pytest.approx(items.metric("paired_drop1")[chosen].mean())
    assert (row.better, row.n) == ("lower", 16)
    before = {f: f.read_bytes() for f in results.rglob("*") if f.is_file()}
    assert "already evaluated" in stdout_of(place.evaluate, *words)
    for lost in ("items/lance_stress.parquet", "insights.json", "stress.html"):
        (results / lost).unlink()
        assert "already evaluated" not in stdout_of(place.evaluate, *words)
        assert {f: f.read_bytes() for f in results.rglob("*") if f.is_file()} == before


@pytest.mark.slow
def test_several_models_are_asked_in_one_command(data, place, tmp_path, capsys):
    """One of timm, and a dual encoder prompted with the names of the test's classes."""
    folder = save_timm(tmp_path / "timm")
    assert place.evaluate(*asked(data, "model=timm", f"model.weights={folder}")) == 0
    assert place.evaluate(*asked(data, "-m", "model=tiny_clip,tiny_flava")) == 0
    names = sorted(file.parent.parent.name for file in place.root.rglob("results.jsonl"))
    assert [name.split("-")[0] == "zoo" for name in names] == [False, True, True]
    (timm_names,) = (name for name in names if name.endswith("timm"))
    timm = read_items(place.root / "weights" / timm_names / "seed=0", "lance_stress")
    numbers = dict(zip(timm.columns["class"], timm.columns["class_number"], strict=True))
    assert numbers == {"ball": 3, "cube": 2, "star": 1}
    clip = read_items(place.root / "weights" / "zoo-clip-0" / "seed=0", "lance_stress")
    assert set(clip.columns["class_name"]) == {"ball", "cube", "star"}
    assert "top4" not in clip.columns
    assert "acc5" not in clip.columns
