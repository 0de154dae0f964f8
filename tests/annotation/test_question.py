"""Other questions than the paper's: single images, other answers, a screening, and reviews."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from cfaug.annotation.answers import Screening, read_known
from cfaug.annotation.assignment import Assignment, items_of
from cfaug.annotation.findings import Findings
from cfaug.annotation.page import sentences, share_out, write_questions, write_report
from cfaug.annotation.question import AnnotationQuestion
from cfaug.annotation.record import Sorting, read_record, record_of, write_record
from cfaug.annotation.records import Answer
from cfaug.annotation.simulation import read_truth
from cfaug.core.errors import UserError
from cfaug.core.types import CounterfactualSet, Member
from cfaug.data.index import open_index
from cfaug.data.shards.shards import write_shards
from tests.annotation.making import WHICH, WHY, answered, question, write_answers
from tests.report.example import data_of, picture

TRUE = question("caption_true")
COUNT = AnnotationQuestion(
    title="How many?", text="How many people are there?", options={"one": "1", "more": "2 or more"},
    accepted=["one"], reported=["more", "one"], groups={"shown as crowds": ["more"]},
    reference={"accepted": "elsewhere 90 %"}, accepted_as="seen alone",
)  # fmt: skip


@pytest.fixture(scope="module")
def grid(tmp_path_factory):
    """Return two sets: three captions of two images, and one image with one caption."""
    members = (Member("a doctor", "0", "s"), Member("a tall doctor", "0", "s"),
               Member("a nurse", "1", "s"))  # fmt: skip
    images = {"0": picture("ball", "red"), "1": picture("cube", "blue")}
    sets = [
        CounterfactualSet(key="grid", group="g", members=members, images=images),
        CounterfactualSet(key="one", group="h", members=(Member("a <b>judge</b>", "0", "s"),),
                          images={"0": images["1"]}),
    ]  # fmt: skip
    folder = tmp_path_factory.mktemp("grid")
    write_shards(sets, folder / "shards")
    return open_index(folder / "shards", folder / "cache")


def test_captions_are_asked_about_one_by_one_and_images_once(grid, tmp_path):
    items = items_of(grid, TRUE)
    assert [(i.name, i.text) for i in items] == [
        ("grid_0", "a doctor"), ("grid_1", "a tall doctor"), ("grid_2", "a nurse"),
        ("one_0", "a <b>judge</b>"),
    ]  # fmt: skip
    assert [i.name for i in items_of(grid, COUNT)] == ["grid_0", "grid_2", "one_0"]
    with pytest.raises(UserError, match="'grid' does not have 2 captions"):
        items_of(grid, WHICH)
    questions = share_out(TRUE, items, Assignment(2, 2, 0.5), "True?")
    page = data_of(write_questions(questions, tmp_path / "p.html", grid.read_image))
    assert page["options"] == [["yes", "Yes"], ["no", "No"], ["unsure", "Unsure"]]
    assert [(t["c"], t["s"], t["o"]) for t in page["tasks"]] == [([i.text], -1, []) for i in items]
    assert TRUE.text in (tmp_path / "p.html").read_text()
    alone = share_out(COUNT, items_of(grid, COUNT), Assignment(1, overlap_fraction=0), "?")
    page = data_of(write_questions(alone, tmp_path / "q.html", grid.read_image))
    assert not any("c" in task for task in page["tasks"])


def test_answers_findings_record_and_report(grid, tmp_path):
    items = items_of(grid, TRUE)
    findings = Findings(TRUE, items, answered(("yes", "yes"), ("no", "unsure"), "yes"))
    (tally,) = findings.tallies()
    assert dict(tally.counts) == {"yes": 2.0, "no": 0.5, "unsure": 0.5}
    assert findings.rejected == [1]
    assert findings.said_of(1) == "1 no, 1 unsure"
    assert findings.agreement().matrix.tolist() == [[2, 0, 0], [0, 0, 1], [0, 1, 0]]
    sorting = Sorting(replace(WHY, pictures="image"), [Answer(1, "1", "details")])
    record = record_of(findings, sorting, "grid", grid.read_image)
    assert record.examples[0].said == "1 no, 1 unsure"
    back = read_record(write_record(record, tmp_path))
    assert (back.question, back.categories) == (TRUE.title, record.categories)
    text = write_report(record, findings, sorting, [], tmp_path).read_text()
    assert sentences(record, TRUE, WHY)[0] in text
    assert "66.7 % of 3 images were found to be described truly" in text
    assert "human_labels" not in text


def test_sums_of_outcomes_and_references_are_stated(grid):
    items = items_of(grid, COUNT)
    findings = Findings(COUNT, items, answered("one", "more", "more"))
    record = record_of(findings, Sorting(WHY), "grid", grid.read_image)
    said = sentences(record, COUNT, WHY)
    assert said[0].startswith("33.3 % of 3 images were seen alone")
    assert "; elsewhere 90 %)" in said[0]
    assert "Of 3 answered images 67 % are shown as crowds." in said
    assert list(findings.tallies()[0].counts) == ["more", "one"]


def test_annotators_who_fail_the_screening_are_left_out(grid, tmp_path):
    items = items_of(grid, TRUE)
    gold = write_answers(
        tmp_path / "gold.jsonl",
        [{"key": "grid", "member": 0, "label": "yes"}, {"key": "one", "member": 0, "label": "no"}],
    )
    known = read_known(Path(gold), items, TRUE)
    assert known == {0: "yes", 3: "no"}
    answers = [
        Answer(0, "good", "yes"), Answer(3, "good", "no"), Answer(1, "good", "no"),
        Answer(0, "bad", "no"), Answer(3, "bad", "no"), Answer(2, "bad", "yes"),
        Answer(1, "absent", "yes"),
    ]  # fmt: skip
    kept, failed = Screening(known, 0.8).screen(answers)
    assert kept == [Answer(1, "good", "no")]
    assert failed == {"bad": 0.5, "absent": 0.0}
    assert len(Screening(known, 0.5).screen(answers)[0]) == 2
    with pytest.raises(UserError, match="2 of 2 annotators"):
        Screening(known, 1).screen(answers[3:])
    with pytest.raises(UserError, match="screening_minimum=2"):
        Screening(known, 2)
    for line, said in (
        ({"key": "x", "member": 0, "label": "yes"}, "'x_0' is not an image"),
        ({"key": "one", "member": 0, "label": "maybe"}, "label='maybe'"),
    ):
        bad = write_answers(tmp_path / "bad.jsonl", [line])
        with pytest.raises(UserError, match=said):
            read_known(Path(bad), items, TRUE)


def test_an_oracle_of_another_question_is_refused(grid, tmp_path):
    items = items_of(grid, TRUE)
    truth = tmp_path / "truth.jsonl"
    truth.write_text("".join(
        json.dumps({"key": i.key, "member": i.member, "label": "original"}) + "\n" for i in items
    ))  # fmt: skip
    with pytest.raises(UserError, match=r"\(original\) are not among .*yes, no, unsure"):
        read_truth(truth, items, TRUE)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"options": {"one": "1"}}, "labels"),
        ({"options": {"one": "1", "Two!": "2"}}, "labels"),
        ({"captions": ["one", "two"]}, "labels"),
        ({"accepted": ["two"]}, "accepted"),
        ({"reported": ["one"]}, "each once: one, more"),
        ({"groups": {"x": ["two"]}}, "x="),
        ({"pictures": "film"}, "image, set"),
        ({"pictures": "set", "show_caption": True}, "show_caption"),
        ({"field": "key"}, "field=key"),
    ],
)
def test_invalid_questions_name_the_setting(change, said):
    with pytest.raises(UserError, match=rf"('How many\?'|annotate\.question).*{said}"):
        replace(COUNT, **change)
