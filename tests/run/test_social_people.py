"""What people, prompts and pronouns say of images: from the commands to the tables."""

from __future__ import annotations

import json

import pytest

from cfaug.annotation.assignment import items_of
from cfaug.data.index import open_index
from cfaug.report.items import read_items
from tests.annotation.test_annotation_page import data_of
from tests.annotation.test_assignment import ERRORS
from tests.grid_sets import every_grid_set, lay_grid_sets
from tests.visogender import lay_photos, oo_rows, op_rows, write_tsv

CLIP = ("weights=zoo:clip-0", "model=tiny_clip", "device=cpu")


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
