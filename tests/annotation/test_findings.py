"""Answers, those that are refused by line, what they say together, and the tables of them."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import asdict, replace
from itertools import permutations
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfaug.annotation.answers import read_answers
from cfaug.annotation.assignment import Assignment
from cfaug.annotation.findings import Findings
from cfaug.annotation.page import sentences, write_report
from cfaug.annotation.record import Sorting, are_simulated, read_record, record_of, write_record
from cfaug.annotation.records import Answer, ImageItem
from cfaug.annotation.simulation import simulate_answers
from cfaug.core.errors import UserError
from cfaug.data.mixture.pool import read_labels
from cfaug.evaluation.label_frequency import altered_subjects
from cfaug.papers.coco_cf import figures as annotation_tables
from cfaug.papers.coco_cf.figures import CATEGORIES, OUTCOMES, AnnotationTable
from cfaug.papers.coco_cf.label_gains import AlteredSubjects, Subjects, count_subjects
from cfaug.papers.coco_cf.tables import published
from cfaug.report.arm_results import Runs
from cfaug.report.document import to_markdown
from tests.annotation.making import WHICH, WHY, answered, line, read, write_answers
from tests.properties import examples


def test_answers_come_back(items, tmp_path):
    file = write_answers(tmp_path / "a.jsonl", [line(), line(annotator="Ann B.", member=0), ""])
    assert read(file, items) == [Answer(3, "1", "both"), Answer(2, "Ann B.", "both")]
    table = tmp_path / "a.csv"
    table.write_text("key,member,annotator,label\npair-0001,1,1,both\n")
    assert read(table, items) == [Answer(3, "1", "both")]
    assert len(read_answers([file, table], items, field="label", choices=WHICH.labels)) == 2


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (line(label="maybe"), r"line 2: label='maybe': choose from original, counterfactual"),
        (line(key="other"), r"line 2: 'other_1' is not an image of data\.counterfactual"),
        (line(member="../1"), "is not an image"),
        (line(annotator="<b>x</b>"), "line 2: annotator='<b>x</b>'"),
        (line(annotator="a" * 65), "annotator="),
        (line(annotator=None), "line 2 lacks annotator"),
        ({"key": "pair-0001"}, "lacks member, annotator, label"),
        (line(label="original"), r"line 2: annotator '1' answers original.*both in .*line 1"),
        (line(member=0, texts="0123456789ab"), "line 2: pair-0001_0 had other captions"),
        ("[1, 2]", "line 2 should be a JSON object"),
        ("{not json", "line 2 is not JSON: Expecting property name .* character 2"),
        ("{" + " " * 20_000 + "}", "line 2 is longer than 10,000 bytes"),
    ],
)
def test_answers_that_cannot_be_used_name_their_line(items, tmp_path, bad, said):
    file = write_answers(tmp_path / "a.jsonl", [line(), bad])
    with pytest.raises(UserError, match=said):
        read(file, items)


def test_files_that_cannot_be_used_are_named(items, tmp_path):
    with pytest.raises(UserError, match=r"a\.jsonl cannot be read: No such file"):
        read(tmp_path / "a.jsonl", items)
    with pytest.raises(UserError, match=r"a\.pkl: answers are read from \.jsonl"):
        read(tmp_path / "a.pkl", items)
    (tmp_path / "deep.jsonl").write_text("[" * 9000 + "\n")
    with pytest.raises(UserError, match=r"deep\.jsonl"):
        read(tmp_path / "deep.jsonl", items)
    (tmp_path / "binary.jsonl").write_bytes(b"\xff\xfe\n")
    with pytest.raises(UserError, match=r"binary\.jsonl"):
        read(tmp_path / "binary.jsonl", items)
    with pytest.raises(UserError, match=r"annotate\.answers has no answers"):
        read_answers([], items, field="label", choices=WHICH.labels)


outcome = WHICH.outcome


answer_lists = st.lists(
    st.lists(st.sampled_from(WHICH.labels), min_size=0, max_size=4), min_size=1, max_size=12
)


@settings(max_examples=examples(60), deadline=None)
@given(answer_lists)
def test_the_findings_count_answers_one_by_one(given_):
    """An image with several answers counts once, in equal parts."""
    items = [ImageItem(f"p{i // 2}", i % 2, ("a man", "a kid"), i) for i in range(len(given_))]
    gathered = Findings(WHICH, items, answered(*map(tuple, given_)))
    seen = [(items[i], labels) for i, labels in enumerate(given_) if labels]
    for tally, members in zip(gathered.tallies(), ({0}, {1}, {0, 1}), strict=True):
        counted = [(item, labels) for item, labels in seen if item.member in members]
        assert tally.images == len(counted)
        assert tally.answers == sum(len(labels) for _, labels in counted)
        for name in OUTCOMES:
            expected = sum(
                sum(outcome(item, label) == name for label in labels) / len(labels)
                for item, labels in counted
            )
            assert tally.counts[name] == pytest.approx(expected)
            if counted:
                assert tally.share(name) == pytest.approx(expected / len(counted))
    agreed = gathered.agreement()
    couples: Counter = Counter()
    for item, labels in seen:
        for a, b in permutations(labels, 2):
            couples[outcome(item, a), outcome(item, b)] += 1 / (len(labels) - 1)
    for i, a in enumerate(OUTCOMES):
        for j, b in enumerate(OUTCOMES):
            assert agreed.matrix[i, j] == pytest.approx(couples[a, b])
    assert agreed.several == sum(len(labels) > 1 for _, labels in seen)
    assert agreed.disputed == sum(len(set(labels)) > 1 for _, labels in seen)
    errors = {
        item.name
        for item, labels in seen
        if 2 * labels.count(WHICH.captions[item.member]) <= len(labels)
    }
    assert {items[i].name for i in gathered.rejected} == errors


def test_agreement_takes_images_with_equally_many_answers(items):
    three = ("original", "original", "both")
    gathered = Findings(
        WHICH, items, answered(three, ("both",) * 3, ("both", "neither"), "original")
    )
    agreed = gathered.agreement()
    assert (agreed.raters, agreed.images, agreed.several, agreed.disputed) == (3, 2, 3, 2)
    assert agreed.labels == {"correct": 0.4, "incorrect": 0, "neither": 0.2, "both": 0.4}
    assert np.isnan(Findings(WHICH, items, answered("both", "both")).agreement().fleiss)


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
    assert listed == {subjects: 2 * n for subjects, n in Counter(altered_subjects(index)).items()}


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


# The record, the tables, the report and the labels that come of answers.


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
    back = read_record(file)
    assert np.array_equal(back.agreement.matrix, record.agreement.matrix)
    same = replace(record.agreement, matrix=back.agreement.matrix)
    shown = {name: count for name, count in back.categories.items() if count}
    assert shown == {"subject": 1.5, "count": 0.5}
    assert asdict(Subjects.read(back.extra)) == asdict(Subjects.read(record.extra))
    assert replace(back, agreement=same, extra={}) == replace(record, agreement=same, extra={})
    assert (back.sampled, back.validated, back.simulated) == (2, 8, False)
    assert [e.category for e in back.examples][:2] == ["subject", "count"]


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


def test_labels_are_those_that_training_reads(findings, index, tmp_path):
    file = tmp_path / "labels.jsonl"
    file.write_text("".join(json.dumps(label_line) + "\n" for label_line in findings.label_lines()))
    validated = read_labels(file).find_validated(index)
    expected = [i not in findings.rejected for i in range(len(index))]
    assert validated.tolist() == expected
    assert 0 < sum(expected) < len(expected)


def test_simulated_annotators_err_as_often_as_asked():
    items = [ImageItem(f"p{n:04d}", n % 2, ("a", "b"), n) for n in range(1000)]
    truth = ["neither"] * 1000
    plan = Assignment(3, seed=1)
    none = simulate_answers(WHICH, items, truth, plan, 0, 1)
    assert {answer["label"] for answers in none.values() for answer in answers} == {"neither"}
    some = simulate_answers(WHICH, items, truth, plan, 0.2, 1)
    labels = Counter(answer["label"] for answers in some.values() for answer in answers)
    assert labels.total() == 1200
    assert 0.16 < 1 - labels["neither"] / 1200 < 0.24
    assert min(labels[name] for name in WHICH.labels if name != "neither") > 60
    assert some == simulate_answers(WHICH, items, truth, plan, 0.2, 1)
    with pytest.raises(UserError, match="mistakes=2"):
        simulate_answers(WHICH, items, truth, plan, 2, 0)
