"""Answers, those that are refused by line, what they say together, and the tables of them."""

from __future__ import annotations

import json
from collections import Counter
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfaug.annotation.answers import read_answers
from cfaug.annotation.assignment import Assignment
from cfaug.annotation.findings import Findings
from cfaug.annotation.record import Sorting, are_simulated, read_record, record_of
from cfaug.annotation.records import Answer, ImageItem
from cfaug.annotation.simulation import simulate_answers
from cfaug.core.errors import UserError
from cfaug.data.mixture.pool import read_labels
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
        (line(key="other"), r"line 2: 'other_1' is not an image of the pairs"),
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
        for name in WHICH.reported:
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
    for i, a in enumerate(WHICH.reported):
        for j, b in enumerate(WHICH.reported):
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


# The record and the labels that come of answers.


@pytest.fixture
def findings(items):
    return Findings(
        WHICH, items,
        answered(
            ("neither", "neither", "both"), "counterfactual", "both", "original",
            ("original",) * 3, "neither", *["original", "counterfactual"] * 3,
        ),
    )  # fmt: skip


def test_an_image_that_was_accepted_has_no_cause(findings, index):
    with pytest.raises(UserError, match=r"pair-0000_1.*same annotate\.answers"):
        record_of(findings, Sorting(WHY, [Answer(1, "1", "subject")]), "p", index.read_image)


def test_people_and_simulations_do_not_mix(items):
    answers = [Answer(0, "simulated-1", "both"), Answer(1, "1", "both")]
    with pytest.raises(UserError, match="simulated-1 are simulated"):
        are_simulated(Findings(WHICH, items, answers))


def test_a_record_that_is_none_is_refused(tmp_path):
    for text in ("[]", "{}", '{"source": 1', '{"agreement": {"matrix": [[1]]}}'):
        (tmp_path / "annotation.json").write_text(text)
        with pytest.raises(UserError, match="cfaug annotate read"):
            read_record(tmp_path / "annotation.json")


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
