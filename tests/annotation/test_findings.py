"""Answers that come back, those that are refused by line, and what they say together."""

from __future__ import annotations

from collections import Counter
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfaug.annotation.answers import Answer, read_answers
from cfaug.annotation.findings import Findings
from cfaug.annotation.question import ImageItem
from cfaug.coco_cf import figures as annotation_tables
from cfaug.coco_cf.figures import CATEGORIES, OUTCOMES
from cfaug.coco_cf.label_frequency import altered_subjects
from cfaug.coco_cf.label_gains import count_subjects
from cfaug.coco_cf.tables import published
from cfaug.core.errors import UserError
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
    found = Findings(WHICH, items, answered(*map(tuple, given_)))
    seen = [(items[i], labels) for i, labels in enumerate(given_) if labels]
    for tally, members in zip(found.tallies(), ({0}, {1}, {0, 1}), strict=True):
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
    errors = {
        item.name
        for item, labels in seen
        if 2 * labels.count(WHICH.captions[item.member]) <= len(labels)
    }
    assert {items[i].name for i in found.rejected} == errors


def test_agreement_takes_images_with_equally_many_answers(items):
    three = ("original", "original", "both")
    found = Findings(WHICH, items, answered(three, ("both",) * 3, ("both", "neither"), "original"))
    agreed = found.agreement()
    assert (agreed.raters, agreed.images, agreed.several, agreed.disputed) == (3, 2, 3, 2)
    assert agreed.labels == {"correct": 0.4, "incorrect": 0, "neither": 0.2, "both": 0.4}
    assert np.isnan(Findings(WHICH, items, answered("both", "both")).agreement().fleiss)


def test_altered_subjects_and_the_human_taxonomy(items):
    """COCO-CFs, A.3.2: the altered subject of the image's own caption is a human word."""
    found = Findings(WHICH, items, answered(*["both"] * 8, *["counterfactual"] * 4))
    assert list(count_subjects(found, 1).altered) == [
        ("man", "kid", 4), ("cat", "dog", 3), ("woman", "girl", 3)
    ]  # fmt: skip
    human = count_subjects(found, 1).human
    assert (human.images, human.errors, human.share) == (8, 7, 0.875)


def test_tables_6_and_10_name_the_same_subjects(items, index):
    """A full stop that one caption lacks is no part of its subject in either table."""
    found = Findings(WHICH, items, answered(*["both"] * 12))
    listed = {(before, after): count for before, after, count in count_subjects(found, 1).altered}
    assert listed == {subjects: 2 * n for subjects, n in Counter(altered_subjects(index)).items()}


def test_errors_where_one_subject_is_a_kind_of_the_other(items):
    found = Findings(WHICH, items, answered(*["both"] * 8, *["counterfactual"] * 4))
    asked = []

    def related(before: str, after: str) -> bool:
        asked.append((before, after))
        return (before, after) == ("woman", "girl")

    kinds, others = count_subjects(found, 1, related).hyponymy
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
