"""What models, prompts and pronouns say of images of people: from the commands to the tables."""

from __future__ import annotations

import json

import pytest

from cfaug.annotation.assignment import items_of
from cfaug.data.index import open_index
from cfaug.report.document import read_document
from cfaug.report.items import read_items
from cfaug.report.results import read_results
from tests.annotation.test_assignment import ERRORS
from tests.grid_sets import every_grid_set, lay_grid_sets
from tests.report.example import data_of
from tests.run.conftest import stdout_of
from tests.visogender import lay_photos, oo_rows, op_rows, write_tsv

QUICK = ["device=cpu", "max_indistinct=1", "benchmark.permutations=199", "benchmark.resamples=20"]


@pytest.mark.slow
def test_a_model_is_asked_who_it_retrieves_and_again_with_the_same_bytes(place, tmp_path):
    folder = lay_grid_sets(tmp_path / "sets", every_grid_set(sets=3))
    words = ["benchmark=skew", f"benchmark.data={folder}", "model=tiny_clip", *QUICK]
    said = stdout_of(place.evaluate, *words)
    assert "race_gender by race_gender, K=6: mean MaxSkew" in said
    assert "subjects stand out after correction (Holm, p <= 0.05)" in said
    assert "under a condition (race|gender=male and 4 more)" in said
    (results,) = place.root.rglob("results.jsonl")
    assert {row.n for row in read_results(results)} == {4}
    file = results.parent / "items" / "sets_skew.parquet"
    rankings = results.parent / "rankings" / "sets_skew.parquet"
    before = {one: one.read_bytes() for one in (file, rankings, results)}
    for removed in (file, rankings):
        removed.unlink()
        assert place.evaluate(*words) == 0  # from embeddings that were kept
        assert {one: one.read_bytes() for one in before} == before
    assert "already evaluated" in stdout_of(place.evaluate, *words)
    page = results.parent / "sets_skew.html"
    text = page.read_text()
    assert "mean MaxSkew@6 over 4 subjects, race_gender" in text
    page.unlink()
    assert place.evaluate(*words, "benchmark.page=null") == 0
    assert not page.exists()
    assert place.evaluate(*words) == 0  # from the items
    assert page.read_text() == text
    assert place.evaluate(*words, "benchmark.k=[3,labels]", "benchmark.labellings=[gender]") == 0
    assert {row.by["k"] for row in read_results(results)} == {"6", "3", "2"}


# What people, prompts and pronouns say of images: from the commands to the tables.


CLIP = ("weights=zoo:clip-0", "model=tiny_clip", "device=cpu", "max_indistinct=1")


@pytest.mark.slow
def test_people_judge_images_and_prompts_are_judged_by_them(place, tmp_path, capsys):
    """24 images, 2 of each of the 6 labels asked about."""
    sets = lay_grid_sets(tmp_path / "sets", every_grid_set(("doctor", "nurse")))
    words = ("data=folder", f"data.counterfactual={sets}", "annotate/question=social_errors")
    page = place.root / "annotation/annotate.html"
    assert place.evaluate(
        "annotate=export", *words, "annotate.question.strata.each=2",
        "annotate.assignment.annotators=1", "annotate.assignment.overlap_fraction=0",
    ) == 0  # fmt: skip
    assert "12 questions about 12 images" in capsys.readouterr().out
    tasks = data_of(page)["tasks"]
    known = {item.name: item for item in items_of(open_index(sets, tmp_path / "index"), ERRORS)}
    lines = []
    for number, task in enumerate(tasks):
        item = known[f"{task['k']}_{task['m']}"]
        label = ("good", "unclear", "not_female", "not_male")[number % 4]
        label = "good" if label in task["x"] else label
        assert task["c"] == [item.text]
        lines.append({"key": item.key, "member": item.member, "annotator": "1", "label": label,
                      "seconds": 1.0, "texts": item.texts_hash})  # fmt: skip
    (page.parent / "answers-x-1.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
    assert place.evaluate("annotate=read", *words) == 0
    said = capsys.readouterr()
    assert "were found to show what their captions ask for" in said.out
    assert "altered_subjects is left out" in said.err
    assert "By what the captions asked for" in (page.parent / "annotation.html").read_text()
    for number in (1, 2, 3):
        assert place.evaluate(f"table=social_{number}") == 0
        text = (place.root / f"tables/social_{number}.md").read_text()
        assert "sets, 1 annotators" in text
        assert "The paper" in text
    asked = ("benchmark=attribute_detector", f"benchmark.data={sets}")
    labels = page.parent / "labels.jsonl"
    told = "benchmark.prompts={male: a red ball, female: a blue cube}"  # words the model knows
    assert place.evaluate(*CLIP, *asked, told, f"benchmark.labels={labels}") == 0
    unclear = sum(line["label"] == "unclear" for line in lines)
    assert f"{48 - 12 + unclear} images are left out" in capsys.readouterr().err
    assert place.evaluate("table=social_4") == 0
    assert f"{12 - unclear} images; {36 + unclear} more are left out" in capsys.readouterr().out


@pytest.mark.slow
def test_visogender_is_asked_by_one_command(place, tmp_path, capsys):
    files = [write_tsv(tmp_path / "OO.tsv", oo_rows()), write_tsv(tmp_path / "OP.tsv", op_rows())]
    photos = lay_photos(tmp_path / "photos", [*oo_rows(), *op_rows()])
    asked = (*CLIP, "benchmark=visogender", f"benchmark.images={photos}", "benchmark.ks=[3]",
             f"benchmark.data=[{files[0]},{files[1]}]")  # fmt: skip
    assert place.evaluate(*asked) == 0
    said = capsys.readouterr()
    assert "photos read as VisoGender's annotations of photos" in said.err
    assert "visogender_resolution (n=60): overall_accuracy" in said.out
    (folder,) = place.root.glob("weights/*/seed=0")
    assert len(read_items(folder, "visogender_resolution")) == 60
    items = read_items(folder, "visogender_retrieval")
    assert len(items) == 6
    assert place.evaluate("table=visogender") == 0
    assert "Single person" in capsys.readouterr().out
    assert place.evaluate(*asked) == 0
    assert "already evaluated" in capsys.readouterr().out
    assert place.evaluate(*asked, "benchmark.zeros=one") == 0
    assert "visogender_retrieval" in capsys.readouterr().out
    next(photos.glob("OO_images/OO_4.png")).unlink()
    assert place.evaluate(*asked) == 2
    assert "1 of 36 photos are missing" in capsys.readouterr().err
    assert place.evaluate(*asked, "benchmark.without_missing=true") == 0
    assert "test: 35 images of" in capsys.readouterr().err


# ``make social`` at the smallest size: worlds with and without a skew, the question, the table.


SMALL = ["data.world.real_scenes=40", "data.batch_size=16", "trainer.max_steps=2"]


@pytest.mark.slow
def test_models_of_skewed_worlds_are_asked_and_tabled(script, tmp_path):
    paths = [f"paths.runs={tmp_path / 'runs'}", f"paths.shards={tmp_path / 'shards'}"]
    for folder, shuffled in (("social_debias", "false"), ("social/shuffled", "true")):
        words = ["recipe=social_oracle", "recipe.draws.candidates=1", "limit=30"]
        words += [f"recipe.image_editor.shuffled={shuffled}", "recipe.image_editor.image_size=32"]
        assert script("generate")([*words, f"paths.shards={tmp_path / 'shards' / folder}"]) == 0
    planted = ["experiment=social/planted", "arm=both-1", "data.world.skew=1", "-m", "seed=0,1"]
    assert script("train")([*planted, *SMALL, *paths]) == 0
    nothing = ["experiment=social/nothing", "seed=0"]
    assert script("train")([*nothing, *SMALL, *paths]) == 0
    for name in ("social", "social_nothing"):
        asked = [f"name={name}", "benchmark=social", "benchmark.skip=[generated_skew]"]
        assert script("evaluate")([*asked, *paths]) == 0
    run = tmp_path / "runs" / "social" / "both-1" / "seed=1"
    items = read_items(run, "oracle_skew")
    assert len(items) == 3 * 10
    assert set(items.columns["k"]) == {12}
    assert set(items.columns["n_sets"]) == {3}
    metrics = {row.metric for row in read_results(run / "results.jsonl")}
    assert {"max_skew", "max_skew_excess", "rank_gap"} <= metrics
    assert not (run / "oracle_skew.html").exists()
    said = stdout_of(script("evaluate"), ["table=social_oracle", *paths])
    assert "is a planted skew found?" in said
    document = read_document(tmp_path / "runs" / "tables" / "social_oracle.json")
    recovery, order, alarms = document.parts
    assert [labels for labels, _ in recovery.rows] == [("both", "0", "1"), ("both", "1", "2")]
    assert order.groups == (("Oracle sets", 3),)
    assert {labels[0] for labels, _ in alarms.rows} == {"Oracle sets", "Shuffled sets"}
    [curve] = document.curves
    assert curve.title.startswith("Oracle sets, planted labels: both")
