"""The record, the tables, the report and the labels that come of answers."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import asdict, replace
from types import SimpleNamespace

import numpy as np
import pytest

from cfaug.annotation.answers import Answer, simulate_answers
from cfaug.annotation.assignment import Assignment
from cfaug.annotation.findings import Findings
from cfaug.annotation.page import sentences, write_report
from cfaug.annotation.question import ImageItem
from cfaug.annotation.record import Sorting, are_simulated, read_record, record_of, write_record
from cfaug.coco_cf import figures as annotation_tables
from cfaug.coco_cf.figures import AnnotationTable
from cfaug.coco_cf.label_gains import AlteredSubjects, Subjects
from cfaug.core.errors import UserError
from cfaug.data.mixture.pool import read_labels
from cfaug.report.arm_results import Runs
from cfaug.report.document import to_markdown
from tests.annotation.making import WHICH, WHY, answered


@pytest.fixture
def findings(items):
    return Findings(
        WHICH, items,
        answered(
            ("neither", "neither", "both"), "counterfactual", "both", "original",
            ("original",) * 3, "neither", *["original", "counterfactual"] * 3,
        ),
    )  # fmt: skip


@pytest.fixture
def sorting():
    return Sorting(
        WHY, [Answer(0, "1", "subject"), Answer(0, "2", "count"), Answer(2, "1", "subject")]
    )


@pytest.fixture
def sections(findings, monkeypatch):
    monkeypatch.setattr(
        "cfaug.editing.wordnet.Hyponymy",
        lambda senses: SimpleNamespace(related=lambda a, b: a == "man"),
    )
    return [AlteredSubjects(at_least=1, wordnet_senses=2).analyse(findings, simulated=False)]


@pytest.fixture
def record(findings, sorting, sections, index):
    return record_of(findings, sorting, "pairs", index.read_image, sections)


def test_the_record_comes_back(record, tmp_path):
    file = write_record(record, tmp_path)
    found = read_record(file)
    assert np.array_equal(found.agreement.matrix, record.agreement.matrix)
    same = replace(record.agreement, matrix=found.agreement.matrix)
    shown = {name: count for name, count in found.categories.items() if count}
    assert shown == {"subject": 1.5, "count": 0.5}
    assert asdict(Subjects.read(found.extra)) == asdict(Subjects.read(record.extra))
    assert replace(found, agreement=same, extra={}) == replace(record, agreement=same, extra={})
    assert (found.sampled, found.validated, found.simulated) == (2, 8, False)
    assert [e.category for e in found.examples][:2] == ["subject", "count"]


def test_an_image_that_was_accepted_has_no_cause(findings, index):
    with pytest.raises(UserError, match=r"pair-0000_1.*same annotate\.answers"):
        record_of(findings, Sorting(WHY, [Answer(1, "1", "subject")]), "p", index.read_image)
    with pytest.raises(UserError, match="at_least=0"):
        AlteredSubjects(at_least=0)


def test_keys_of_two_analyses_are_not_mixed_up(findings, sections, index):
    with pytest.raises(UserError, match="'at_least' is duplicated"):
        record_of(findings, Sorting(WHY), "pairs", index.read_image, [*sections, *sections])


def test_people_and_simulations_do_not_mix(items):
    answers = [Answer(0, "simulated-1", "both"), Answer(1, "1", "both")]
    with pytest.raises(UserError, match="simulated-1 are simulated"):
        are_simulated(Findings(WHICH, items, answers))


def test_a_record_that_is_none_is_refused(tmp_path):
    for text in ("[]", "{}", '{"source": 1', '{"agreement": {"matrix": [[1]]}}'):
        (tmp_path / "annotation.json").write_text(text)
        with pytest.raises(UserError, match="annotate=read"):
            read_record(tmp_path / "annotation.json")


@pytest.mark.parametrize(
    ("name", "shows", "said"),
    [
        ("coco_cf_1", "labels", "73.18%"), ("coco_cf_7", "categories", "27%"),
        ("coco_cf_8", "examples", "eating tray"), ("coco_cf_10", "subjects", "woman → girl"),
    ],
)  # fmt: skip
def test_tables_show_the_papers_numbers_apart_from_ours(record, tmp_path, name, shows, said):
    write_record(record, tmp_path / annotation_tables.FOLDER)
    document = AnnotationTable(name=name, title="Title", paper="The paper", shows=shows).build(
        Runs(tmp_path)
    )
    ours = [part for part in document.parts if part.ours]
    assert 0 < len(ours) < len(document.parts)
    assert all(part.title.startswith("pairs, 3 annotators") for part in ours)
    text = to_markdown(document)
    assert said in text
    assert "<script" not in text


def test_examples_that_are_not_there(record, tmp_path):
    write_record(record, tmp_path / annotation_tables.FOLDER)
    asked = {"name": "coco_cf_9", "title": "Title", "paper": "The paper"}
    document = AnnotationTable(**asked, shows="examples", first=3).build(Runs(tmp_path))
    assert document.pictures == ()
    assert "errors fell into 2 categories only" in to_markdown(document)
    with pytest.raises(UserError, match="labels, categories, examples, subjects"):
        AnnotationTable(**asked, shows="cats")


def read_tables(page):
    """The texts of every cell of every table of a page."""
    return [
        [
            [" ".join(re.sub(r"<[^>]+>", " ", cell).split()) for cell in re.findall(
                r"<t[hd]\b.*?</t[hd]>", row, re.DOTALL)]
            for row in re.findall(r"<tr\b.*?</tr>", table, re.DOTALL)
        ]
        for table in re.findall(r"<table\b.*?</table>", page, re.DOTALL)
    ]  # fmt: skip


def test_the_report_says_what_was_found(record, findings, sorting, sections, tmp_path):
    text = write_report(record, findings, sorting, sections, tmp_path).read_text()
    verdict, *more = sentences(record, WHICH, WHY, sections)
    assert verdict in text
    assert verdict.startswith("66.7 % of 12 images were matched to their own caption")
    assert "in the paper 73.18 % of 34,820" in verdict
    assert any("known limits of text-to-image diffusion; in the paper 66 %" in one for one in more)
    assert "<script" not in text
    assert "&lt;script&gt;" in text
    assert "man → kid" in text
    assert "Failure to generate subject/object" in text
    assert re.findall(r'(?:src|href)="(?!data:)', text) == []
    assert "kinds of each other (WordNet), 25.0 % of 4 images are errors; elsewhere" in text
    counted, people, *_ = read_tables(text)
    names = [f"{WHICH.wording(name)}, %" for name in WHICH.reported]
    assert counted[0] == ["image set", "images", "answers", *names]
    assert [row[:3] for row in counted[1:]] == [
        [tally.name, f"{tally.images}", f"{tally.answers}"] for tally in record.tallies
    ]
    assert counted[-1][3] == f"{100 * record.tallies[-1].share(WHICH.reported[0]):.2f}"
    assert [row[0] for row in people[1:]] == list(findings.annotators)
    for row in people[1:]:
        assert sum(map(float, row[2:])) == pytest.approx(100, abs=0.3)
    said = sentences(replace(record, simulated=True), WHICH, WHY)
    assert not any("in the paper" in one for one in said)
    assert "says nothing about people" in said[-1]


def test_labels_are_those_that_training_reads(findings, index, tmp_path):
    file = tmp_path / "labels.jsonl"
    file.write_text("".join(json.dumps(one) + "\n" for one in findings.label_lines()))
    validated = read_labels(file).find_validated(index)
    expected = [i not in findings.rejected for i in range(len(index))]
    assert validated.tolist() == expected
    assert 0 < sum(expected) < len(expected)


def test_simulated_annotators_err_as_often_as_asked():
    items = [ImageItem(f"p{n:04d}", n % 2, ("a", "b"), n) for n in range(1000)]
    truth = ["neither"] * 1000
    plan = Assignment(3, seed=1)
    none = simulate_answers(WHICH, items, truth, plan, 0, 1)
    assert {one["label"] for own in none.values() for one in own} == {"neither"}
    some = simulate_answers(WHICH, items, truth, plan, 0.2, 1)
    labels = Counter(one["label"] for own in some.values() for one in own)
    assert labels.total() == 1200
    assert 0.16 < 1 - labels["neither"] / 1200 < 0.24
    assert min(labels[name] for name in WHICH.labels if name != "neither") > 60
    assert some == simulate_answers(WHICH, items, truth, plan, 0.2, 1)
    with pytest.raises(UserError, match="mistakes=2"):
        simulate_answers(WHICH, items, truth, plan, 2, 0)
