"""Annotation from the page to the tables: what is asked, what comes back, what it adds up to.

What a person does is done in headless Chromium, where there is one.
"""

from __future__ import annotations

import base64
import io
import json
import re
from collections import Counter
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from benchmarks.browser import Browser, find
from cfaug.data.index import open_index
from cfaug.data.labels import read_labels
from cfaug.data.shards import write_shards
from cfaug.errors import UserError
from cfaug.report.annotation import tables
from cfaug.report.annotation.answers import Answer, read_answers
from cfaug.report.annotation.findings import OUTCOMES, Findings, altered, outcome
from cfaug.report.annotation.page import (
    CATEGORIES,
    MAX_PAGE,
    QUESTION,
    Questions,
    which_caption,
    why_wrong,
    write_questions,
)
from cfaug.report.annotation.plan import CHOICES, Assignment, Item, items_of
from cfaug.report.annotation.record import read_record, record_of, said_of, write_record
from cfaug.report.annotation.report import sentences, write_report
from cfaug.report.annotation.simulate import Mistakes, simulated_answers
from cfaug.report.annotation.tables import AnnotationTable
from cfaug.report.paper.formats import to_csv, to_latex, to_markdown
from cfaug.report.paper.published import published
from cfaug.report.paper.runs import MissingError, Runs
from cfaug.types import CounterfactualSet, Edit, Member
from tests.report.example import picture

HOSTILE = "a man</script><script>document.title='owned'</script><img src=//x.example/y.png> &amp;"
WORDS = (("man", "kid"), ("cat", "dog"), ("woman", "girl"))


def pairs(count: int = 6) -> list[CounterfactualSet]:
    sets = []
    for n in range(count):
        before, after = WORDS[n % len(WORDS)]
        texts = (f"A {before} in room {n}", f"A {after} in room {n}.")
        if n == 0:
            texts = (HOSTILE, HOSTILE.replace("man", "kid"))
        sets.append(
            CounterfactualSet(
                key=f"pair-{n:04d}",
                group=f"g{n}",
                members=tuple(
                    Member(text, str(i), "s", Edit("noun", before, after) if i else None)
                    for i, text in enumerate(texts)
                ),
                images={"0": picture("ball", "red"), "1": picture("cube", "blue")},
            )
        )
    return sets


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pairs")
    write_shards(pairs(), folder / "shards")
    return open_index(folder / "shards", folder / "cache")


@pytest.fixture(scope="module")
def items(index):
    return items_of(index)


def data_of(file: Path) -> dict:
    (found,) = re.findall(
        r'<script type="application/json" id="data">(.*?)</script>', file.read_text(), re.DOTALL
    )
    return json.loads(found)


def answered(*labels: str | tuple[str, ...]) -> list[Answer]:
    """Return answers to the first images; several for one by different people."""
    return [
        Answer(i, str(who), label)
        for i, given_ in enumerate(labels)
        for who, label in enumerate((given_,) if isinstance(given_, str) else given_, 1)
    ]


# The page.


def test_every_image_is_asked_about(index, items):
    assert [(i.key, i.member) for i in items[:3]] == [
        ("pair-0000", 0), ("pair-0000", 1), ("pair-0001", 0),
    ]  # fmt: skip
    assert items[3].texts == ("A cat in room 1", "A dog in room 1.")
    assert (items[3].name, items[3].own, items[3].row) == ("pair-0001_1", "counterfactual", 3)


def test_what_is_no_pair_is_refused(tmp_path):
    one = pairs(2)[1]
    triple = replace(one, members=(*one.members, replace(one.members[1], text="A cow in room 1")))
    shared = replace(one, members=tuple(replace(m, image_name="0") for m in one.members))
    for n, bad in enumerate((triple, shared, replace(one, members=one.members[:1]))):
        write_shards([bad], tmp_path / str(n))
        with pytest.raises(UserError, match="'pair-0001' is no pair"):
            items_of(open_index(tmp_path / str(n), tmp_path / "cache"))


def test_the_page_asks_the_papers_question(index, items, tmp_path):
    plan = Assignment(3, 0.25, 2)
    questions = which_caption(items, plan, "Which?")
    file = write_questions(questions, tmp_path / "new" / "page.html", index.read_image)
    page, text = data_of(file), file.read_text()
    assert QUESTION in text
    assert "default-src 'none'" in text
    assert [len(page["people"][who]) for who in "123"] == [5, 5, 5]
    assert page["options"] == [["both", "Both"], ["neither", "Neither"]]
    task = page["tasks"][3]
    assert (task["k"], task["m"]) == ("pair-0001", 1)
    assert task["o"] == [["original", "A cat in room 1"], ["counterfactual", "A dog in room 1."]]
    shown = page["pictures"][task["p"][0]]
    image = Image.open(io.BytesIO(base64.b64decode(shown["i"]))).convert("RGB")
    original = Image.open(io.BytesIO(index.read_image(3))).convert("RGB")
    assert np.array_equal(np.asarray(image), np.asarray(original))
    swaps = [bool(swap) for who in "123" for _, swap in page["people"][who]]
    assert 0 < sum(swaps) < len(swaps)
    again = write_questions(questions, tmp_path / "again.html", index.read_image)
    assert again.read_bytes() == file.read_bytes()


def test_a_page_of_ones_own_holds_no_other_images(index, items, tmp_path):
    questions = which_caption(items, Assignment(3, 0.0), "Which?")
    file = write_questions(questions, tmp_path / "p.html", index.read_image, annotators=["2"])
    page = data_of(file)
    assert list(page["people"]) == ["2"]
    assert len(page["tasks"]) == len(page["people"]["2"]) == 4
    assert [place for place, _ in page["people"]["2"]] != sorted(
        place for place, _ in page["people"]["2"]
    )


def test_nothing_in_a_caption_is_live(index, items, tmp_path):
    questions = which_caption(items, Assignment(1, 0), f"Which? {HOSTILE}")
    text = write_questions(questions, tmp_path / "p.html", index.read_image).read_text()
    assert "<script>document" not in text
    assert "<img src=//" not in text
    assert data_of(tmp_path / "p.html")["tasks"][0]["o"][0][1] == HOSTILE


def test_pages_that_cannot_be_are_refused(index, items, tmp_path, monkeypatch):
    questions = which_caption(items, Assignment(1, 0), "Which?")
    with pytest.raises(UserError, match="side=5"):
        write_questions(questions, tmp_path / "p.html", index.read_image, side=5)
    with pytest.raises(UserError, match="nothing to ask"):
        write_questions(which_caption([], Assignment(1, 0), ""), tmp_path / "p.html", bytes)
    monkeypatch.setattr("cfaug.report.annotation.page.MAX_PAGE", 500)
    with pytest.raises(UserError, match=r"pages=each.*annotate\.side.*annotate\.sample"):
        write_questions(questions, tmp_path / "p.html", index.read_image)
    assert MAX_PAGE > 500
    assert not (tmp_path / "p.html").exists()


# The answers.


def write_answers(file: Path, lines: list[dict | str]) -> str:
    text = "".join((x if isinstance(x, str) else json.dumps(x)) + "\n" for x in lines)
    file.write_text(text)
    return str(file)


def line(**change) -> dict:
    return {"key": "pair-0001", "member": 1, "annotator": "1", "label": "both"} | change


def read(file, items, field="label", choices=CHOICES):
    return read_answers([file], items, field=field, choices=choices)


def test_answers_come_back(items, tmp_path):
    file = write_answers(tmp_path / "a.jsonl", [line(), line(annotator="Ann B.", member=0), ""])
    assert read(file, items) == [Answer(3, "1", "both"), Answer(2, "Ann B.", "both")]
    table = tmp_path / "a.csv"
    table.write_text("key,member,annotator,label\npair-0001,1,1,both\n")
    assert read(table, items) == [Answer(3, "1", "both")]
    assert len(read_answers([file, table], items, field="label", choices=CHOICES)) == 2


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (line(label="maybe"), r"line 2: label='maybe': choose from original, counterfactual"),
        (line(label="<script>"), "label='<script>'"),
        (line(key="other"), r"line 2: 'other_1' is no image of data\.counterfactual"),
        (line(member=7), "'pair-0001_7' is no image"),
        (line(member="../1"), "is no image"),
        (line(annotator="<b>x</b>"), "line 2: annotator='<b>x</b>'"),
        (line(annotator="=1+1"), "annotator="),
        (line(annotator="a" * 65), "annotator="),
        (line(annotator=None), "line 2 lacks annotator"),
        ({"key": "pair-0001"}, "lacks member, annotator, label"),
        (line(label="original"), r"line 2: annotator '1' answers original.*both in .*line 1"),
        ("[1, 2]", "line 2 should be a JSON object"),
        ("{not json", "line 2 cannot be read"),
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
        read_answers([], items, field="label", choices=CHOICES)


# What they add up to.


def test_table_1_counts_images(items):
    """An image with several answers counts once, in equal parts."""
    found = Findings(
        items, answered("original", "original", ("original", "both", "original"), "neither")
    )
    original, counterfactual, everything = found.table_1()
    assert (original.images, original.answers) == (2, 4)
    assert original.counts == {
        "correct": 1 + 2 / 3, "incorrect": 0, "neither": 0, "both": pytest.approx(1 / 3)
    }  # fmt: skip
    assert counterfactual.counts == {"correct": 0, "incorrect": 1, "neither": 1, "both": 0}
    assert everything.share("incorrect") == 0.25
    assert sum(everything.counts.values()) == pytest.approx(everything.images) == 4
    assert found.errors == [1, 3]
    assert said_of(found, 2) == "2 correct, 1 both"


answer_lists = st.lists(
    st.lists(st.sampled_from(CHOICES), min_size=0, max_size=4), min_size=1, max_size=12
)


@settings(max_examples=60, deadline=None)
@given(answer_lists)
def test_the_findings_count_answers_one_by_one(given_):
    items = [Item(f"p{i // 2}", i % 2, ("a man", "a kid"), i) for i in range(len(given_))]
    found = Findings(items, answered(*map(tuple, given_)))
    tally = found.table_1()[2]
    seen = [(items[i], labels) for i, labels in enumerate(given_) if labels]
    for name in OUTCOMES:
        expected = sum(
            sum(outcome(item, label) == name for label in labels) / len(labels)
            for item, labels in seen
        )
        assert tally.counts[name] == pytest.approx(expected)
    agreed = found.agreement()
    couples: Counter = Counter()
    for item, labels in seen:
        for a, b in permutations(labels, 2):
            couples[outcome(item, a), outcome(item, b)] += 1 / (len(labels) - 1)
    for i, a in enumerate(OUTCOMES):
        for j, b in enumerate(OUTCOMES):
            assert agreed.matrix[i, j] == pytest.approx(couples[a, b])
    assert agreed.several == sum(len(labels) > 1 for _, labels in seen)
    assert agreed.disputed == sum(len(set(labels)) > 1 for _, labels in seen)
    errors = {item.name for item, labels in seen if 2 * labels.count(item.own) <= len(labels)}
    assert {items[i].name for i in found.errors} == errors


def test_agreement_takes_images_with_equally_many_answers(items):
    three = ("original", "original", "both")
    found = Findings(items, answered(three, ("both",) * 3, ("both", "neither"), "original"))
    agreed = found.agreement()
    assert (agreed.raters, agreed.images, agreed.several, agreed.disputed) == (3, 2, 3, 2)
    assert agreed.labels == {"correct": 0.4, "incorrect": 0, "neither": 0.2, "both": 0.4}
    assert np.isnan(Findings(items, answered("both", "both")).agreement().fleiss)


def test_altered_subjects_and_the_human_taxonomy(items):
    """COCO-CFs, A.3.2: the altered subject of the image's own caption is a human word."""
    assert altered(("A man in a room", "A man in a hall.")) == ("room", "hall")
    assert altered(("Two kids by a fence", "Two girls by a fence")) == ("kids", "girls")
    found = Findings(items, answered(*["both"] * 8, *["counterfactual"] * 4))
    assert found.altered_in_errors() == [
        ("man", "kid", 4), ("cat", "dog", 3), ("woman", "girl", 3)
    ]  # fmt: skip
    human = found.human()
    assert (human.images, human.errors, human.rate) == (8, 7, 0.875)


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
    assert sum(categories.values()) == 100
    assert sum(categories[CATEGORIES[name]] for name in tables.DIFFUSION) == 66
    subjects = published("coco_cf_10")
    counts = [row["values"][0] for row in subjects["rows"]]
    assert len(counts) == 20
    assert min(counts) >= 20
    assert counts == sorted(counts, reverse=True)
    human = subjects["human"]
    rate = 100 * human["errors"] / human["images"]
    assert round(rate, 2) == 45.28 != human["printed"] == 44.3


# Kept, shown, and used.


@pytest.fixture
def findings(items):
    return Findings(
        items,
        answered(
            ("neither", "neither", "both"), "counterfactual", "both", "original",
            ("original",) * 3, "neither", *["original", "counterfactual"] * 3,
        ),
    )  # fmt: skip


@pytest.fixture
def record(findings, index):
    sorted_errors = [Answer(0, "1", "subject"), Answer(0, "2", "count"), Answer(2, "1", "subject")]
    return record_of(findings, sorted_errors, "pairs", 1, index.read_image)


def test_the_record_comes_back(record, tmp_path):
    file = write_record(record, tmp_path)
    found = read_record(file)
    assert np.array_equal(found.agreement.matrix, record.agreement.matrix)
    same = replace(record.agreement, matrix=found.agreement.matrix)
    shown = {name: count for name, count in found.categories.items() if count}
    assert shown == {"subject": 1.5, "count": 0.5}
    assert replace(found, agreement=same) == replace(record, agreement=same)
    assert (found.sampled, found.validated, found.simulated) == (2, 8, False)
    assert [e.category for e in found.examples][:2] == ["subject", "count"]


def test_an_error_that_is_none_is_refused(findings, index):
    with pytest.raises(UserError, match=r"pair-0000_1.*same annotate\.answers"):
        record_of(findings, [Answer(1, "1", "subject")], "pairs", 1, index.read_image)
    with pytest.raises(UserError, match="at_least=0"):
        record_of(findings, [], "pairs", 0, index.read_image)


def test_people_and_simulations_do_not_mix(items, index):
    answers = [Answer(0, "simulated-1", "both"), Answer(1, "1", "both")]
    with pytest.raises(UserError, match="simulated-1 are no people's"):
        record_of(Findings(items, answers), [], "pairs", 1, index.read_image)


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
    write_record(record, tmp_path / tables.FOLDER)
    document = AnnotationTable(name, "Title", "The paper", shows).build(Runs(tmp_path))
    theirs = [part for part in document.parts if not part.ours]
    ours = [part for part in document.parts if part.ours]
    assert theirs
    assert all(part.title.startswith("pairs, 3 annotators") for part in ours)
    assert ours
    text = to_markdown(document)
    assert said in text
    latex = to_latex(document)
    assert latex.count("\\begin{tabular}") == len(document.parts)
    assert "<script" not in text
    for row in to_csv(document).splitlines()[1:]:
        assert row.split(",")[0]


def test_a_table_without_answers_says_what_makes_them(tmp_path):
    table = AnnotationTable("coco_cf_1", "Title", "The paper", "labels")
    with pytest.raises(MissingError, match="annotate=read"):
        table.build(Runs(tmp_path))
    document = replace(table, partial=True).build(Runs(tmp_path))
    assert not any(part.ours for part in document.parts)
    with pytest.raises(UserError, match="labels, categories, examples, subjects"):
        replace(table, shows="cats")


def test_the_report_says_what_was_found(record, findings, tmp_path):
    text = write_report(record, findings, tmp_path).read_text()
    assert sentences(record)[0] in text
    assert sentences(record)[0].startswith("66.7 % of 12 images")
    assert "<script" not in text
    assert "document.title" in text
    assert "&lt;script&gt;" in text
    assert "man → kid" in text
    assert "Failure to generate subject/object" in text
    assert re.findall(r'(?:src|href)="(?!data:)', text) == []
    simulated = replace(record, simulated=True)
    assert not any("in the paper" in one for one in sentences(simulated))
    assert "says nothing of people" in sentences(simulated)[-1]


def test_labels_are_those_that_training_reads(findings, index, tmp_path):
    file = tmp_path / "labels.jsonl"
    file.write_text("".join(json.dumps(one) + "\n" for one in findings.label_lines()))
    validated = read_labels(file).validated(index)
    expected = [findings.is_validated(i) for i in range(len(index))]
    assert validated.tolist() == expected
    assert 0 < sum(expected) < len(expected)


def test_simulated_annotators_err_as_often_as_asked():
    items = [Item(f"p{n:04d}", n % 2, ("a", "b"), n) for n in range(2000)]
    truth = ["neither"] * 2000
    plan = Assignment(3, 0.1, 3, None, 1)
    none = simulated_answers(items, truth, plan, Mistakes(0, 1))
    assert {one["label"] for own in none.values() for one in own} == {"neither"}
    some = simulated_answers(items, truth, plan, Mistakes(0.2, 1))
    labels = Counter(one["label"] for own in some.values() for one in own)
    assert labels.total() == 2400
    assert 0.17 < 1 - labels["neither"] / 2400 < 0.23
    assert min(labels[name] for name in CHOICES if name != "neither") > 120
    assert some == simulated_answers(items, truth, plan, Mistakes(0.2, 1))
    with pytest.raises(UserError, match="mistakes=2"):
        Mistakes(2, 0)


# What a person does.


@pytest.fixture
def browser(tmp_path):
    if find() is None:
        pytest.skip("no browser")
    with Browser(tmp_path / "profile") as one:
        yield one


def open_page(browser, index, questions: Questions, file: Path) -> dict:
    browser.open(write_questions(questions, file, index.read_image))
    return data_of(file)


def test_a_person_answers_stops_and_goes_on(browser, index, items, tmp_path):
    file = tmp_path / "page.html"
    plan = Assignment(2, 0.5, 2)
    page = open_page(browser, index, which_caption(items, plan, "Which?"), file)
    count = "document.getElementById('count').textContent"
    assert browser.run(count) == ""
    choose = "const s = document.getElementById('who'); s.value = '2';"
    browser.run(f"(() => {{ {choose} s.dispatchEvent(new Event('change')); }})()")
    order = page["people"]["2"]
    assert browser.run(count) == f"0 of {len(order)} answered"
    for key in "12":
        browser.press(key)
    browser.press("ArrowLeft")
    browser.press("3")
    browser.open(file)  # the page is closed and opened again
    browser.run(f"(() => {{ {choose} s.dispatchEvent(new Event('change')); }})()")
    assert browser.run(count) == f"2 of {len(order)} answered"
    browser.run("[...document.querySelectorAll('#options button')].at(-1).click()")
    for _ in order[3:]:
        browser.press("1")
    assert browser.run("document.getElementById('end').hidden") is False
    saved = write_answers(tmp_path / "a.jsonl", browser.run("cfaugAnswers()").splitlines())
    found = read(saved, items)
    first = [page["tasks"][place]["o"][swap][0] for place, swap in order]
    assert [answer.label for answer in found] == [first[0], "both", "neither", *first[3:]]
    names = [f"{page['tasks'][place]['k']}_{page['tasks'][place]['m']}" for place, _ in order]
    assert [items[answer.item].name for answer in found] == names
    assert {answer.annotator for answer in found} == {"2"}
    assert browser.errors == []
    assert [url for url in browser.requests if not url.startswith(("file:", "data:"))] == []


def test_captions_are_shown_as_they_are(browser, index, items, tmp_path):
    errors = [(items[0], f"labelled {HOSTILE}"), (items[3], "labelled both")]
    questions = why_wrong(errors, HOSTILE)
    open_page(browser, index, questions, tmp_path / "page.html")
    shown = browser.run("[...document.querySelectorAll('figcaption')].map((f) => f.textContent)")
    assert shown[0] == HOSTILE
    assert browser.run("document.querySelectorAll('figure.about figcaption').length") == 1
    assert browser.run("document.title") == HOSTILE
    assert browser.run("document.querySelectorAll('#options button').length") == len(CATEGORIES)
    browser.press("8")
    browser.press("4")
    saved = write_answers(tmp_path / "c.jsonl", browser.run("cfaugAnswers()").splitlines())
    found = read(saved, items, "category", CATEGORIES)
    assert [(a.item, a.label) for a in found] == [(0, "attribute"), (3, "annotation")]
    assert browser.errors == []
    assert not any("x.example" in url for url in browser.requests)
