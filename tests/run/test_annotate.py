"""``cfaug annotate`` from the page to the tables, on a small world."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from tests.run.conftest import SCENES, refusal, stdout_of


@pytest.fixture
def annotate(place):
    def run(mode: str, *words: str) -> int:
        if not any(word.startswith("pairs=") for word in words):
            scenes = (word.removeprefix("data.") for word in SCENES)
            words = (*words, "pairs=shapescapes:counterfactual", *scenes)
        return place.annotate(mode, *words)

    return run


def lines(file):
    return [json.loads(line) for line in file.read_text().splitlines()]


@pytest.mark.slow
def test_from_simulated_people_to_the_report(place, annotate):
    """80 images, a tenth answered by three: 96 answers."""
    folder = place.root / "annotation"
    assert annotate("simulate", "annotate.mistakes=0.1") == 0
    files = sorted(folder.glob("answers-*.jsonl"))
    assert [file.name for file in files] == [f"answers-simulated-{n}.jsonl" for n in (1, 2, 3)]
    answers = [line for file in files for line in lines(file)]
    times = Counter(Counter((a["key"], a["member"]) for a in answers).values())
    assert times == {1: 72, 3: 8}
    out = stdout_of(annotate, "read")
    assert "of 80 images were matched to their own caption" in out
    assert "says nothing about people" in out
    assert len(lines(folder / "labels.jsonl")) == 96
    assert (folder / "annotation.html").stat().st_size > 5000
    before = {file: file.read_bytes() for file in folder.iterdir()}
    assert annotate("simulate", "annotate.mistakes=0.1") == 0
    assert annotate("read") == 0
    assert {file: file.read_bytes() for file in folder.iterdir()} == before


@pytest.mark.slow
def test_pages_for_people(place, annotate):
    folder = place.root / "annotation"
    words = ["annotate.pages=each", "annotate.assignment.annotators=4"]
    said = stdout_of(annotate, "export", *words, "annotate.assignment.seed=1")
    assert "96 questions about 80 images, 8 of them to 3 people" in said
    pages = sorted(folder.glob("*.html"))
    assert [page.name for page in pages] == [f"annotate-{n}.html" for n in (1, 2, 3, 4)]
    words = ["annotate.assignment.sample=10", "annotate.assignment.overlap_fraction=0"]
    said = stdout_of(annotate, "export", *words)
    assert "10 questions about 10 images" in said
    assert annotate("simulate") == 0
    assert "5 of " in stdout_of(annotate, "taxonomy", "annotate.sample=5")
    assert "Failure to bind attribute" in (folder / "errors.html").read_text()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["export", "annotate.pages=many"], "annotate.pages=many: choose from one, each"),
        (["export", "annotate.out=page.txt"], "an .html file"),
        (["export", "annotate.out=/dev/null/page.html"], "/dev/null/page.html cannot be written"),
        (["simulate", "annotate.out=/dev/null/x"], "answers-simulated-1.jsonl cannot be written"),
        (
            ["export", "annotate.assignment.annotators_per_item=5"],
            "annotators_per_item=5 is invalid",
        ),
        (["export", "annotate/question=what"], "caption_true"),
        (["export", "pairs=null"], "pairs=FOLDER is missing"),
        (["read"], "annotation/answers-*.jsonl: put the files that annotators downloaded there"),
        (["read", "annotate.answers=[nowhere.jsonl]"], "nowhere.jsonl cannot be read"),
        (["taxonomy"], "no file of answers matches "),
        (["reed"], "export"),
    ],
)
def test_mistakes_are_named(annotate, words, said):
    assert said in refusal(annotate, *words)


def test_a_tilde_is_the_home_folder(annotate, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "page.html").write_text("of somebody")
    assert f"{tmp_path}/page.html is there" in refusal(
        annotate, "export", "annotate.out=~/page.html"
    )


@pytest.mark.slow
def test_the_oracle_knows_the_world_only(place, annotate, shards):
    assert annotate("simulate") == 0
    folder = next(shards.glob("shapescapes-*/counterfactual"))
    assert "knows nothing of" in refusal(annotate, "simulate", f"pairs={folder}")
    assert annotate("export", f"pairs={folder}") == 0
    text = (place.root / "annotation" / "annotate.html").read_text()
    assert "<title>Which caption? counterfactual</title>" in text
    assert str(folder) not in text


@pytest.mark.slow
def test_another_question_from_the_page_to_the_report(place, annotate, shards):
    folder, words = place.root / "annotation", ["annotate/question=caption_true"]
    alone = ["annotate.assignment.annotators=1", "annotate.assignment.overlap_fraction=0"]
    assert "80 questions about 80 images" in stdout_of(annotate, "export", *words, *alone)
    assert "<title>Is the caption true? shapescapes" in (folder / "annotate.html").read_text()
    assert "let people answer it" in refusal(annotate, "simulate", *words)
    name = next(iter(json.loads(line) for line in _truth(shards)))
    answers = [{"key": name["key"], "member": m, "annotator": "Ann", "label": label}
               for m, label in enumerate(["no", "yes"])]  # fmt: skip
    (folder / "answers-1.jsonl").write_text("".join(json.dumps(a) + "\n" for a in answers))
    out = stdout_of(annotate, "read", *words)
    assert "50.0 % of 2 images were found to be described truly" in out
    gold = folder / "gold.jsonl"
    gold.write_text(json.dumps({"key": name["key"], "member": 0, "label": "yes"}) + "\n")
    said = refusal(annotate, "read", *words, f"annotate.screening={gold}")
    assert "no answers are left after screening" in said
    assert "; 1 to everyone" in stdout_of(annotate, "export", *words, f"annotate.screening={gold}")


def _truth(shards):
    file, *_ = shards.glob("shapescapes-*/counterfactual-labels.jsonl")
    return file.read_text().splitlines()
