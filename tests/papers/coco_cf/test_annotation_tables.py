"""What annotators' answers say of altered subjects, and the tables and the report of them."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import asdict, replace
from types import SimpleNamespace

import numpy as np
import pytest

from cfaug.annotation.assignment import items_of
from cfaug.annotation.findings import Findings
from cfaug.annotation.page import sentences, write_report
from cfaug.annotation.record import Sorting, read_record, record_of, write_record
from cfaug.annotation.records import Answer
from cfaug.core.errors import UserError
from cfaug.evaluation.label_frequency import subjects_of_pairs
from cfaug.papers.coco_cf import figures as annotation_tables
from cfaug.papers.coco_cf.figures import CATEGORIES, OUTCOMES, AnnotationTable
from cfaug.papers.coco_cf.label_gains import AlteredSubjects, Subjects, count_subjects
from cfaug.papers.coco_cf.tables import published
from cfaug.report.arm_results import MissingError, Runs
from cfaug.report.document import to_markdown
from tests.annotation.making import WHICH, WHY, answered
from tests.annotation.test_question import TRUE


def test_altered_subjects_and_the_human_taxonomy(items):
    """COCO-CFs, A.3.2: the altered subject of the image's own caption is a human word."""
    gathered = Findings(WHICH, items, answered(*["both"] * 8, *["counterfactual"] * 4))
    assert list(count_subjects(gathered, 1).altered) == [
        ("man", "kid", 4), ("cat", "dog", 3), ("woman", "girl", 3)
    ]  # fmt: skip
    human = count_subjects(gathered, 1).human
    assert (human.images, human.errors, human.share) == (8, 7, 0.875)


def test_tables_6_and_10_name_the_same_subjects(items, index):
    """A full stop that one caption lacks is no part of its subject in either table."""
    gathered = Findings(WHICH, items, answered(*["both"] * 12))
    listed = {
        (before, after): count for before, after, count in count_subjects(gathered, 1).altered
    }
    assert listed == {subjects: 2 * n for subjects, n in Counter(subjects_of_pairs(index)).items()}


def test_errors_where_one_subject_is_a_kind_of_the_other(items):
    gathered = Findings(WHICH, items, answered(*["both"] * 8, *["counterfactual"] * 4))
    asked = []

    def related(before: str, after: str) -> bool:
        asked.append((before, after))
        return (before, after) == ("woman", "girl")

    kinds, others = count_subjects(gathered, 1, related).hyponymy
    assert (kinds.images, kinds.errors) == (4, 3)
    assert (others.images, others.errors) == (8, 7)
    assert sorted(asked) == [("cat", "dog"), ("man", "kid"), ("woman", "girl")]


def test_the_papers_own_numbers():
    """COCO-CFs: Tables 1, 7 and 10 and what the text says of them (methods, section 8.6)."""
    rows = {row["images"]: row["values"] for row in published("coco_cf_1")["rows"]}
    assert all(sum(values) == pytest.approx(100) for values in rows.values())
    original, counterfactual, everything = rows.values()
    # Equally many images of both kinds: 17,410 each.
    means = [(a + b) / 2 for a, b in zip(original, counterfactual, strict=True)]
    assert means == pytest.approx(everything, abs=0.011)
    assert means == pytest.approx([73.19, 13.30, 10.46, 3.06], abs=0.006)
    categories = {row["category"]: row["values"][0] for row in published("coco_cf_7")["rows"]}
    assert list(categories) == list(CATEGORIES.values())
    assert WHY.options == CATEGORIES
    assert WHICH.reported == list(OUTCOMES)
    (known,) = WHY.groups.values()
    assert tuple(known) == annotation_tables.DIFFUSION
    assert sum(categories.values()) == 100
    assert sum(categories[CATEGORIES[name]] for name in annotation_tables.DIFFUSION) == 66
    subjects = published("coco_cf_10")
    counts = [row["values"][0] for row in subjects["rows"]]
    assert len(counts) == 20
    assert min(counts) >= 20
    assert counts == sorted(counts, reverse=True)
    human = subjects["human"]
    rate = 100 * human["errors"] / human["images"]
    assert round(rate, 2) == 45.28 != human["printed"] == 44.3


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
    back = read_record(file)
    assert np.array_equal(back.agreement.matrix, record.agreement.matrix)
    same = replace(record.agreement, matrix=back.agreement.matrix)
    shown = {name: count for name, count in back.categories.items() if count}
    assert shown == {"subject": 1.5, "count": 0.5}
    assert asdict(Subjects.read(back.extra)) == asdict(Subjects.read(record.extra))
    assert replace(back, agreement=same, extra={}) == replace(record, agreement=same, extra={})
    assert (back.sampled, back.validated, back.simulated) == (2, 8, False)
    assert [e.category for e in back.examples][:2] == ["subject", "count"]


def test_altered_subjects_are_listed_from_one_error():
    with pytest.raises(UserError, match="at_least=0"):
        AlteredSubjects(at_least=0)


def test_keys_of_two_analyses_are_not_mixed_up(findings, sections, index):
    with pytest.raises(UserError, match="'at_least' is duplicated"):
        record_of(findings, Sorting(WHY), "pairs", index.read_image, [*sections, *sections])


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
    assert any(
        "known limits of text-to-image diffusion; in the paper 66 %" in sentence
        for sentence in more
    )
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
    assert not any("in the paper" in sentence for sentence in said)
    assert "says nothing about people" in said[-1]


def test_answers_to_another_question_fill_no_table(grid, tmp_path):
    items = items_of(grid, TRUE)
    findings = Findings(TRUE, items, answered(("yes", "yes"), ("no", "unsure"), "yes"))
    record = record_of(findings, Sorting(WHY), "grid", grid.read_image)
    write_record(record, tmp_path / annotation_tables.FOLDER)
    for number, shows, said in (
        (1, "labels", "answers to another question than the paper's"),
        (10, "subjects", "altered subjects were not counted"),
    ):
        table = AnnotationTable(name=f"coco_cf_{number}", title="T", paper="P", shows=shows)
        with pytest.raises(MissingError, match=said):
            table.build(Runs(tmp_path))
    with pytest.raises(UserError, match="not about pairs"):
        AlteredSubjects().analyse(findings, simulated=False)
