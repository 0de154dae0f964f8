"""Other questions than the paper's: single images, other answers, a screening, and reviews."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from cfaug.annotation.answers import Screening, read_known
from cfaug.annotation.assignment import Assignment, items_of
from cfaug.annotation.findings import Findings
from cfaug.annotation.page import sentences, share_out, write_questions, write_report
from cfaug.annotation.question import AnnotationQuestion, QuestionReview
from cfaug.annotation.record import Sorting, read_record, record_of, write_record
from cfaug.annotation.records import Answer
from cfaug.annotation.simulation import read_truth
from cfaug.core.errors import UserError
from cfaug.core.questions import CATEGORY, QUESTION, AskedQuestion, details_of
from cfaug.core.types import CounterfactualSet, Member
from cfaug.data.export import export_questions
from cfaug.data.index import Index, open_index
from cfaug.data.shards.shards import read_sets, write_shards
from cfaug.data.sources.question_sets import read_questions
from cfaug.papers.coco_cf import figures as annotation_tables
from cfaug.papers.coco_cf.figures import AnnotationTable
from cfaug.papers.coco_cf.label_gains import AlteredSubjects
from cfaug.report.arm_results import MissingError, Runs
from tests.annotation.making import WHICH, WHY, answered, pairs, question, write_answers
from tests.data.question_files import encode_image
from tests.report.example import data_of, picture
from tests.settings import settings_file

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
    back = read_record(write_record(record, tmp_path / annotation_tables.FOLDER))
    assert (back.question, back.categories) == (TRUE.title, record.categories)
    text = write_report(record, findings, sorting, [], tmp_path).read_text()
    assert sentences(record, TRUE, WHY)[0] in text
    assert "66.7 % of 3 images were found to be described truly" in text
    assert "human_labels" not in text
    for number, shows, said in (
        (1, "labels", "answers to another question than the paper's"),
        (10, "subjects", "altered subjects were not counted"),
    ):
        table = AnnotationTable(name=f"coco_cf_{number}", title="T", paper="P", shows=shows)
        with pytest.raises(MissingError, match=said):
            table.build(Runs(tmp_path))
    with pytest.raises(UserError, match="not about pairs"):
        AlteredSubjects().analyse(findings, simulated=False)


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


CONF = settings_file("annotate/question/question_review")


def asked(number: int, verified: bool | None = False, **changes: Any) -> AskedQuestion:
    kind = "counterfactual" if number else "basic"
    extra = {} if verified is None else {"verified": verified}
    default = AskedQuestion(f"c{number}", kind, f"If {number}, who?", ("a dog", "a cat"), 1, extra)
    return replace(default, **changes)


def a_set(key: str, questions: Sequence[AskedQuestion], tone: int = 1) -> CounterfactualSet:
    members = tuple(
        Member(entry.text, "0", key, extra={CATEGORY: "count", QUESTION: details_of(entry)})
        for entry in questions
    )
    return CounterfactualSet(key, key, members, {"0": encode_image(tone)})


SETS = [
    a_set("one", [asked(0, None), asked(1, True), asked(2), asked(3)]),
    a_set("two", [asked(0, None), asked(1), asked(2, answer=None)], tone=2),
]


def index_of(folder: Path, sets: Sequence[CounterfactualSet]) -> Index:
    write_shards(sets, folder / "shards")
    return open_index(folder / "shards", folder / "cache")


def review(**changes: Any) -> QuestionReview:
    settings = yaml.safe_load(CONF.read_text())
    settings.pop("_target_")
    return QuestionReview(**settings | changes)


def test_what_nobody_verified_is_asked_about_with_its_options(tmp_path: Path) -> None:
    index = index_of(tmp_path, SETS)
    items = review().items(index)
    assert [item.name for item in items] == ["one_2", "one_3", "two_1", "two_2"]
    assert review().shown(items[0]) == {
        "c": ["If 2, who?"], "s": -1, "n": "Right answer: a cat. Wrong: a dog.",
    }  # fmt: skip
    assert items[3].note == "Options: a dog; a cat. No right answer is known."
    assert review().rows_shown(items[0]) == {2: "one_2"}
    assert review().accepts(items[0], "good")
    assert not review().accepts(items[0], "leak")
    everything = review(only_new=False).items(index)
    assert len(everything) == 7
    other = index_of(tmp_path / "other", [a_set("one", [asked(0), asked(1), asked(2, answer=0)])])
    hashes = {item.name: item.texts_hash for item in items}
    changed = review().items(other)[-1]
    # An answer is about a question of which this option is right.
    assert (changed.name, changed.texts_hash == hashes["one_2"]) == ("one_2", False)


def test_other_sets_and_answers_are_refused(tmp_path: Path) -> None:
    index = index_of(tmp_path / "pairs", pairs())
    with pytest.raises(UserError, match="holds no questions"):
        review().items(index)
    known = index_of(tmp_path / "known", [a_set("one", [asked(0, None), asked(1, True)])])
    with pytest.raises(UserError, match=r"annotate\.question\.only_new=false"):
        review().items(known)
    for options in ({"yes": "Yes", "no": "No"}, {"good": "Good", "bad": "Bad"}):
        with pytest.raises(UserError, match="good and some of wrong_answer"):
            review(options=options, accepted=[next(iter(options))])


def test_verdicts_verify_questions_or_leave_them_out(tmp_path: Path) -> None:
    folder = tmp_path / "sets"
    write_shards(SETS, folder)
    verdicts = {"one_2": True, "one_3": False, "two_1": False, "two_2": False, "none_1": True}
    assert export_questions(read_sets(folder), tmp_path / "out", verdicts) == 1
    (question_set,) = read_questions(tmp_path / "out")
    assert [q.text for q in question_set.questions] == ["If 0, who?", "If 1, who?", "If 2, who?"]
    assert [q.extra.get("verified") for q in question_set.questions] == [None, True, True]
    assert export_questions(read_sets(folder), tmp_path / "all") == 2
