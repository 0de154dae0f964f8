"""Suites, matching and kept embeddings through evaluate.py, on a small world."""

from __future__ import annotations

import csv
import json
import shutil

import numpy as np
import pytest

from cfaug.core.weights import resolve
from cfaug.models.specs import HFClip
from cfaug.report.items import read_items
from cfaug.report.matching_gap import read_gaps
from cfaug.report.results import read_results
from cfaug.stats.matching import GAPS
from tests.run.conftest import SCENES


@pytest.fixture
def trained(place):
    assert place.train("data.cf_ratio=0.6", "seed=107", "data.counterfactual_holdout=0.3") == 0
    return place


def folder_of(place):
    return place.root / "main" / "run" / "seed=107"


def features(shards):
    return sorted((shards / "index/features").rglob("*.npy"))


@pytest.mark.slow
def test_the_counterfactual_suite_ends_in_results_pairs_and_a_page(trained, shards, capsys):
    assert trained.evaluate("benchmark=cf") == 0
    folder = folder_of(trained)
    rows = read_results(folder / "results.jsonl")
    assert list(dict.fromkeys(row.benchmark for row in rows)) == [
        "shapescapes_real_retrieval",
        "shapescapes_cf_retrieval",
        "shapescapes_cf_validated_retrieval",
        "shapescapes_cf_heldout_retrieval",
        "shapescapes_cf_matching",
    ]
    sizes = {row.benchmark: row.n for row in rows if row.metric == "text_to_image_R@1"}
    assert list(sizes.values()) == [320, 640, 468, 24]
    for name in dict.fromkeys(row.benchmark for row in rows):
        items = read_items(folder, name)
        for row in (row for row in rows if row.benchmark == name):
            values = items.metric(row.metric)
            assert (items.weights, items.data) == (row.weights, row.data)
            assert row.value == pytest.approx(np.nanmean(values), abs=1e-12)
            assert row.n == np.isfinite(values).sum()
    assert len(items) == 320
    assert items.columns["kind"][0] == "cosine x scale"
    shares = {row.metric: row.value for row in rows if row.benchmark == "shapescapes_cf_matching"}
    gaps = read_gaps(folder)["shapescapes_cf_matching"].gaps
    assert shares == {gap: sum(gaps[gap] > 0) / 320 for gap in GAPS}
    assert "<svg" in (folder / "matching.html").read_text()
    known = [file.stat().st_mtime_ns for file in features(shards)]
    assert known
    # Another folder of results, the same weights: nothing is embedded again.
    (folder / "results.jsonl").rename(folder / "before.jsonl")
    assert trained.evaluate("benchmark=cf", "benchmark.skip=[shapescapes_cf_matching]") == 0
    again = read_results(folder / "results.jsonl")
    assert again == [row for row in rows if row.benchmark != "shapescapes_cf_matching"]
    assert [file.stat().st_mtime_ns for file in features(shards)] == known
    capsys.readouterr()


def contents(folder):
    return {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.mark.slow
def test_items_that_were_removed_come_again_with_the_same_bytes(place, shards, capsys):
    words = [*SCENES, "weights=zoo:clip-0", "benchmark=cf"]
    words.append("benchmark.only=[shapescapes_cf_matching,shapescapes_cf_retrieval]")
    assert place.evaluate(*words) == 0
    folder = next(place.root.rglob("results.jsonl")).parent
    before = contents(folder)
    known = [kept.stat().st_mtime_ns for kept in features(shards)]

    def flip(file):
        """N40: a flipped byte was not noticed, a truncated file was."""
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.write_bytes(content)

    for harm in (lambda file: file.unlink(), lambda file: file.write_bytes(b"PAR1"), flip):
        for file in sorted(folder.glob("items/*.parquet")):
            harm(file)
            capsys.readouterr()
            assert place.evaluate(*words) == 0
            assert capsys.readouterr().out.count("(n=") == 1
            assert contents(folder) == before
    assert [kept.stat().st_mtime_ns for kept in features(shards)] == known
    assert place.evaluate(*words) == 0
    assert "already evaluated" in capsys.readouterr().out


@pytest.mark.slow
def test_results_from_before_items_were_kept_are_asked_again_on_request_only(place, capsys):
    words = [*SCENES, "weights=zoo:clip-0", "benchmark=cf"]
    words.append("benchmark.only=[shapescapes_cf_retrieval]")
    assert place.evaluate(*words) == 0
    folder = next(place.root.rglob("results.jsonl")).parent
    before = contents(folder)
    shutil.rmtree(folder / "items")
    capsys.readouterr()
    assert place.evaluate(*words) == 0
    assert "already evaluated" in capsys.readouterr().out
    assert not (folder / "items").exists()
    assert place.evaluate(*words, "items=all") == 0
    assert contents(folder) == before
    assert place.evaluate(*words, "items=some") == 2
    assert "items" in capsys.readouterr().err


def test_a_model_that_is_not_what_a_benchmark_needs_is_refused_before_any_is_asked(place, capsys):
    words = [*SCENES, "weights=zoo:vilt-0", "model=vilt", "benchmark=cf"]
    assert place.evaluate(*words) == 2
    said = capsys.readouterr().err
    assert "provides Matcher, but shapescapes_real_retrieval needs DualEncoder" in said
    assert "benchmark.skip=[shapescapes_real_retrieval,shapescapes_cf_retrieval," in said
    assert not list(place.root.rglob("results.jsonl"))


@pytest.mark.slow
def test_other_shifts_and_how_often_their_classes_were_altered(trained, capsys):
    words = ["benchmark=ood", "feature_cache=0"]
    some = "benchmark.only=[shapescapes_ood_classification,shapescapes_ood_solids_classification]"
    assert trained.evaluate(*words, some) == 0
    found = json.loads((folder_of(trained) / "label_frequency.json").read_text())
    assert found["pairs"] == 40
    assert found["frequency"]["shapescapes_ood_classification"] == 40
    assert 0 < found["frequency"]["shapescapes_ood_solids_classification"] < 40
    style = "benchmark.only=[shapescapes_ood_drawing_classification]"
    assert trained.evaluate(*words, style) == 0
    found = json.loads((folder_of(trained) / "label_frequency.json").read_text())
    assert len(found["frequency"]) == 3
    capsys.readouterr()
    assert trained.evaluate(*words, some) == 0
    assert "already evaluated" in capsys.readouterr().out
    assert trained.evaluate("label_frequency=letters") == 2
    assert ": choose from words, lemmas, null" in capsys.readouterr().err


def test_folders_that_are_missing_are_all_named_once(trained, tmp_path, capsys):
    shutil.copytree(folder_of(trained).parent, trained.root / "main" / "other")
    words = ["benchmark=in_domain", "benchmark.where=folders", f"paths.data={tmp_path}"]
    assert trained.evaluate(*words) != 0
    said = capsys.readouterr().err
    assert said.count("coco5k_retrieval: ") == 1
    assert said.count("seed=107: the same") == 1
    assert "benchmark.skip=[coco5k_retrieval,coco5k_clean_retrieval]" in said


@pytest.mark.slow
def test_a_checkpoint_on_another_world_is_asked_again(place, capsys):
    words = ["weights=zoo:clip-0", "benchmark=in_domain", "data.world.id_scenes=20"]
    assert place.evaluate(*words, "data.world.seed=5") == 0
    assert place.evaluate(*words, "data.world.seed=5") == 0
    assert "already evaluated" in capsys.readouterr().out
    assert place.evaluate(*words, "data.world.seed=6") == 0
    assert "already evaluated" not in capsys.readouterr().out


def test_a_feature_cache_is_a_number(place, capsys):
    assert place.evaluate("weights=zoo:clip-0", "feature_cache=much") == 2
    assert "feature_cache=much" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("told", ["+model.max_length=4", "+model.geometry=squash"])
def test_a_model_told_otherwise_is_another_model(place, capsys, told):
    ask = ["weights=zoo:clip-0", *SCENES, "benchmark.world.only=[shapescapes_ood_retrieval]"]
    assert place.evaluate(*ask) == 0
    assert place.evaluate(*ask) == 0
    assert "already evaluated" in capsys.readouterr().out
    assert place.evaluate(*ask, told) == 0
    assert "already evaluated" not in capsys.readouterr().out
    assert place.evaluate(*ask, told) == 0
    assert "already evaluated" in capsys.readouterr().out
    (file,) = (place.root / "weights").glob("*/seed=0/results.jsonl")
    values = {}
    for row in map(json.loads, file.read_text().splitlines()):
        values.setdefault(row["weights"], []).append(row["value"])
    plain, other = values.values()
    assert len(plain) == len(other) == 6
    assert (plain != other) == ("max_length" in told)  # the world's images are squares
    assert next(iter(values)) == HFClip("zoo:clip-0").weights_hash()  # as rows were named before


def test_weights_that_are_no_numbers_end_in_a_sentence(place, tmp_path, capsys):
    from safetensors.torch import load_file, save_file

    folder = shutil.copytree(resolve("zoo:clip-0"), tmp_path / "damaged")
    weights = load_file(folder / "model.safetensors")
    weights["visual_projection.weight"][0, 0] = float("nan")
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    for name in ("retrieval", "classification"):
        only = f"benchmark.world.only=[shapescapes_ood_{name}]"
        assert place.evaluate(f"weights={folder}", *SCENES, only) == 2
        said = capsys.readouterr().err
        assert "visual_projection.weight holds values that are infinite or not numbers" in said
        assert "Traceback" not in said


def test_two_checkpoints_are_compared_over_items(place, capsys):
    words = [*SCENES, "benchmark.world.only=[shapescapes_ood_classification]"]
    assert place.evaluate("weights=zoo:clip-0", "baseline=zoo:clip-1", *words) == 2
    said = capsys.readouterr().err
    assert "baseline=zoo-clip-1" in said
    assert "has no result of shapescapes_ood_classification" in said
    assert place.evaluate("weights=zoo:clip-1", *words) == 0
    capsys.readouterr()
    assert place.evaluate("weights=zoo:clip-0", "baseline=zoo:clip-1", *words) == 0
    assert "tested over items" in capsys.readouterr().out
    (folder,) = (place.root / "weights").glob("zoo-clip-0*/seed=*")
    lines = list(csv.DictReader((folder / "table.csv").open()))
    (acc1,) = (line for line in lines if line["metric"] == "acc1" and line["items_test"])
    arms = [line["arm"] for line in lines if line["metric"] == "acc1"]
    ours, theirs = (
        read_items(path, "shapescapes_ood_classification").metric("acc1")
        for path in (folder, next((place.root / "weights").glob("zoo-clip-1*/seed=*")))
    )
    assert len(arms) == 2
    assert float(acc1["diff"]) == pytest.approx(ours.mean() - theirs.mean())
    assert int(acc1["items"]) == len(ours)
    assert 0 < float(acc1["p_items"]) <= 1
    assert place.evaluate("weights=zoo:clip-0", "baseline=zoo:clip-0", *words) == 2
    assert "is the checkpoint itself" in capsys.readouterr().err


def test_an_unknown_checkpoint_is_refused_before_a_world_is_drawn(place, tmp_path, capsys):
    empty = tmp_path / "shards"
    for weights, said in (
        ("zoo:nope", "zoo:nope is not in the zoo"),
        (str(tmp_path), "no weights"),
    ):
        assert place.evaluate(f"weights={weights}", f"paths.shards={empty}") == 2
        assert said in capsys.readouterr().err
    assert not empty.exists()
