"""``recipe=xmai``, ``make xmai``, and the benchmarks of insertions."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from functools import partial
from itertools import product

import pytest
import yaml

from cfaug.core.errors import UserError
from cfaug.data.shards.shards import write_shards
from cfaug.report.items import read_items
from cfaug.report.results import read_results
from cfaug.settings.settings_files import find_sweep
from tests.evaluation.text_sets import text_set
from tests.run.conftest import make_sets, refusal, stdout_of
from tests.test_conf import ROOT

SMALL = ("data.source=shapescapes:id", "data.world.image_size=16", "data.world.id_scenes=12",
         "limit=12")  # fmt: skip


@pytest.fixture
def make(tmp_path):
    """Run the recipe, and return its sets."""
    return partial(make_sets, tmp_path, "recipe=xmai")


@pytest.mark.slow
def test_captions_of_the_world_get_words_of_their_photos(make):
    pairs = make(*SMALL)
    assert len(pairs) == 12
    inserted = 0
    for pair in pairs:
        before, after = pair.members
        assert len(pair.images) == 1
        assert before.image_name == after.image_name
        assert before.edit is None
        for change in after.extra["changes"]:
            assert after.edit.kind == "insertion"
            assert after.text[change["start"] :].startswith(change["word"])
            assert change["dissimilarity"] is not None
            inserted += 1
        assert {"truth_0", "truth_1"} <= set(pair.scores)
    assert inserted >= 12


@pytest.mark.slow
def test_kept_answers_change_no_byte(make, tmp_path):
    cached = "recipe.editor.cache=${paths.cache}"
    runs = {"first": [cached], "again": [cached], "alone": [], "chunks": ["recipe.editor.chunk=5"]}
    for folder, words in runs.items():
        make(*SMALL, *words, folder=folder)
    assert len({(tmp_path / folder / "00000.tar").read_bytes() for folder in runs}) == 1


def test_texts_alone_need_no_clip_and_say_what_was_blocked(make, tmp_path):
    rows = [
        {"text": "A man with a dog on a table", "detections": [
            {"label": name, "attributes": ["young", "red"]} for name in ("man", "dog", "table")]},
        {"text": "a street", "detections": []},
    ]  # fmt: skip
    source = tmp_path / "captions.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ("zoo=captions", "stage=captions", f"data.source={source}", "data.extra=[detections]",
             "recipe.editor.k=1", "detections@recipe=source")  # fmt: skip
    make(*words, "recipe.editor.weights=[1,0,0]")
    folder = tmp_path / "out"
    lines = (folder / "captions" / "00000.jsonl").read_text().splitlines()
    first, second = (json.loads(line)["set"]["details"][1] for line in lines)
    assert [change["object"] for change in first["changes"]] == ["man", "dog", "table"]
    assert second == {"changes": [], "reason": "no_detections"}
    report = (folder / "captions" / "report.md").read_text()
    assert "blocked" in first
    assert "blocked" in report
    with pytest.raises(UserError, match=r"lambda_3, 5 .*image_text is missing"):
        make(*words, "recipe.editor.weights=[1,5,5]", folder="wrong")


# ``evaluate.py benchmark=insertion`` and ``benchmark=text_overlap`` on hand-laid sets.


WORDS = {"xmai": "small green", "eda": "tiny"}


def lay_sets(folder):
    """Write sets of two methods and return what names them."""
    for kind, word in WORDS.items():
        sets = [
            text_set(n, word, kind, scores={"truth_0": 1.0, "truth_1": float(n > 2)})
            for n in range(12)
        ]
        write_shards(sets, folder / kind)
    named = ", ".join(f"{kind}: {folder / kind}" for kind in WORDS)
    return f"benchmark.data={{{named}}}"


@pytest.mark.slow
def test_texts_alone_are_asked_without_a_model_or_a_run(place, tmp_path, capsys):
    words = ["benchmark=text_overlap", lay_sets(tmp_path / "sets"), "benchmark.synonyms=null"]
    assert place.evaluate(*words) == 0
    folder = place.root / "weights" / "no-model" / "seed=0"
    rows = read_results(folder / "results.jsonl")
    assert {row.by["method"] for row in rows} == set(WORDS)
    assert len(read_items(folder, "text_overlap")) == 24
    said = capsys.readouterr().out
    assert "text_overlap of no-model" in said
    assert " 12 items." in said
    assert place.evaluate(*words) == 0
    assert "already evaluated" in capsys.readouterr().out
    shutil.rmtree(tmp_path / "sets" / "eda")
    assert place.evaluate(*words) == 2
    assert "eda" in capsys.readouterr().err


@pytest.mark.slow
def test_a_model_is_asked_about_both_methods_and_again_with_the_same_bytes(place, tmp_path):
    data = lay_sets(tmp_path / "sets")
    words = ["benchmark=insertion", data, "model=tiny_clip", "device=cpu", "benchmark.page=4"]
    said = stdout_of(place.evaluate, *words)
    for kind in WORDS:
        assert f"insertion, {kind}: MRR" in said
    assert "3 of 12 judged texts are no longer as true as before; over the 9 that are" in said
    (results,) = place.root.rglob("results.jsonl")
    page, file = results.parent / "insertion.html", results.parent / "items" / "insertion.parquet"
    before = {path: path.read_bytes() for path in (file, results, page)}
    file.unlink()
    assert place.evaluate(*words) == 0  # from embeddings that were kept
    page.unlink()
    assert place.evaluate(*words) == 0  # from the items
    assert {path: path.read_bytes() for path in before} == before
    assert "already evaluated" in stdout_of(place.evaluate, *words)
    assert place.evaluate(*words, "benchmark.pairs_per_batch=5") == 0
    assert "mrr_batches" in results.read_text()
    said = refusal(place.evaluate, "benchmark=insertion", "model=tiny_clip")
    assert "benchmark=insertion needs benchmark.data=FOLDER" in said


# ``make xmai``: its sweeps compose, and every insertion of a detector without errors is true.


SWEEPS = ("xmai_methods", "xmai_methods_ve", "xmai_tradeoff", "xmai_errors")


def folders(name):
    """Return what a sweep writes, its placeholders filled by hand."""
    given = yaml.safe_load(find_sweep(f"{name}.yaml").read_text())["parameters"]
    choices = {k: v.get("values", [v.get("value")]) for k, v in given.items()}
    paths = []
    for values in product(*choices.values()):
        point = dict(zip(choices, values, strict=True))
        filled = {"recipe.name": point["recipe"], "zoo.name": "shapescapes"} | point
        filled |= {f"recipe.editor.weights[{i}]": w
                   for i, w in enumerate(point.get("recipe.editor.weights", ()))}  # fmt: skip
        path = point["paths.shards"]
        paths.append(re.sub(r"\$\{([^}]*)\}", lambda m, now=filled: str(now[m[1]]), path))
    return paths


def test_make_xmai_asks_about_every_folder_that_its_sweeps_make():
    for name in ("xmai_lambdas", "xmai_k", "xmai_thresholds"):
        assert len(set(folders(name))) == len(folders(name)) > 2
    made = [folder for name in SWEEPS for folder in folders(name)]
    assert len(made) == len(set(made)) == 5 + 5 + 12 + 4
    lines = subprocess.run(
        ["make", "-n", "-o", ".venv/.installed", "xmai"], cwd=ROOT, check=True, capture_output=True,
        text=True,
    ).stdout.splitlines()  # fmt: skip
    asked = [folder for line in lines for folder in re.findall(r"shards/xmai/[\w.-]+", line)]
    assert set(asked) == set(made)
    swept = [sweep for line in lines for sweep in re.findall(r"sweeps/(\w+)\.yaml", line)]
    assert swept == list(SWEEPS)


@pytest.mark.slow
def test_with_the_attributes_weighed_most_every_insertion_is_true_and_errors_change_that(tmp_path):
    def run(*words):
        weights = "recipe.editor.weights=[1,20,5]"
        folder = str(len(list(tmp_path.iterdir())))
        sets = make_sets(tmp_path, "recipe=xmai", "limit=40", weights, *words, folder=folder)
        assert len(sets) == 40
        return [pair.scores.get("inserted_true") for pair in sets]

    assert set(run()) == {1.0}
    wrong = run("zoo.detector.error_rate=1", "zoo.detector.errors=[attribute]")
    assert set(wrong) <= {0.0, 0.5}
    assert 0.0 in wrong
    assert set(run("zoo.detector.error_rate=1", "zoo.detector.errors=[missed]")) == {None}
