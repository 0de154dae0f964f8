"""Answers that come back, and those that are refused by line."""

from __future__ import annotations

import pytest

from cfaug.annotation.answers import Answer, read_answers
from cfaug.core.errors import UserError
from tests.annotation.making import WHICH, line, read, write_answers


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
        (line(label="<script>"), "label='<script>'"),
        (line(key="other"), r"line 2: 'other_1' is not an image of data\.counterfactual"),
        (line(member=7), "'pair-0001_7' is not an image"),
        (line(member="../1"), "is not an image"),
        (line(annotator="<b>x</b>"), "line 2: annotator='<b>x</b>'"),
        (line(annotator="=1+1"), "annotator="),
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
