from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfaug.core.errors import UserError
from cfaug.data.index import open_index
from cfaug.data.mixture.pool import CHOICES, read_labels
from cfaug.data.shards.shards import write_shards
from tests.data.layouts import jsonl
from tests.data.making import pair


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    folder = tmp_path_factory.mktemp("labelled")
    write_shards([pair(i) for i in range(4)], folder / "cf")
    return open_index(folder / "cf", folder / "cache")


def written(file, lines):
    jsonl(file, lines)
    return read_labels(file)


def answer(number: int, member: int, label: str, **more: object) -> dict[str, object]:
    return {"key": f"pair-{number:05d}", "member": member, "label": label, **more}


def test_an_image_is_validated_by_the_choice_of_its_own_caption(tmp_path, index):
    lines = [
        answer(0, 0, "original"), answer(0, 1, "counterfactual"),
        answer(1, 0, "counterfactual"), answer(1, 1, "original"),
        answer(2, 0, "both"), answer(2, 1, "correct"),
        answer(3, 0, "A"),
    ]  # fmt: skip
    labels = written(tmp_path / "labels.jsonl", lines)
    assert labels.find_validated(index).tolist() == [
        True, True, False, False, False, True, True, False
    ]  # fmt: skip


def test_csv_and_the_names_of_a_release(tmp_path, index):
    (tmp_path / "labels.csv").write_text(
        "id,member,label,annotator\npair-00001,1,Second,x\nPair.1,0,first,x\n"
    )
    labels = read_labels(tmp_path / "labels.csv")
    assert labels.answers["pair-00001_1"] == (True,)
    with pytest.raises(UserError, match=r"labels 1 images .*pair-1-"):
        labels.find_validated(index)


@given(st.lists(st.sampled_from(sorted(CHOICES)), min_size=1, max_size=7), st.integers(0, 1))
def test_the_majority_decides(tmp_path_factory, index, labels, member):
    file = tmp_path_factory.mktemp("votes") / "labels.jsonl"
    lines = [answer(2, member, label, annotator=str(i)) for i, label in enumerate(labels)]
    lines += [answer(0, 0, "correct")]
    right = {0: {"0", "a", "first", "original", "correct"},
             1: {"1", "b", "second", "counterfactual", "correct"}}[member]  # fmt: skip
    votes = sum(label in right for label in labels)
    found = written(file, lines).find_validated(index)
    assert found[4 + member] == (votes > len(labels) - votes)
    assert found.sum() == 1 + found[4 + member]


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ({"member": 0, "label": "both"}, "key"),
        ({"key": "pair-00000", "label": "both"}, "member"),
        ({"key": "pair-00000", "member": -1, "label": "both"}, "member"),
        ({"key": "pair-00000", "member": "0.5", "label": "both"}, "member"),
        (answer(0, 0, "maybe"), "maybe"),
        (answer(0, 0, "both", annotator="ann"), "ann"),
        ({"key": ["pair"], "member": [1], "label": {}}, "member"),
    ],
)
def test_a_line_that_cannot_be_used_is_named(tmp_path, line, named):
    lines = [answer(0, 0, "original", annotator="ann"), line]
    with pytest.raises(UserError, match=rf"(?s)line 2.*{named}"):
        written(tmp_path / "labels.jsonl", lines)


def test_an_annotator_called_0_is_one(tmp_path):
    lines = [answer(0, 0, label, annotator=0) for label in ("original", "both")]
    with pytest.raises(UserError, match=r"(?s)line 2.*'0' answered"):
        written(tmp_path / "labels.jsonl", lines)


def test_what_a_spreadsheet_adds_does_not_count(tmp_path, index):
    file = tmp_path / "labels.csv"
    file.write_bytes(b"\xef\xbb\xbfkey,member,label\r\n pair-00001 , 1,Counterfactual \r\n")
    assert np.flatnonzero(read_labels(file).find_validated(index)).tolist() == [3]


def test_files_that_are_none(tmp_path, index):
    with pytest.raises(UserError, match="No such file"):
        read_labels(tmp_path / "labels.jsonl")
    with pytest.raises(UserError, match=r"\.jsonl, \.csv"):
        read_labels(tmp_path / "labels.pkl")
    (tmp_path / "broken.jsonl").write_text("{'key'")
    with pytest.raises(UserError, match=r"broken\.jsonl, line 1"):
        read_labels(tmp_path / "broken.jsonl")
    nothing = written(tmp_path / "none.jsonl", [answer(0, 0, "neither")])
    with pytest.raises(UserError, match="validates no image"):
        nothing.find_validated(index)


def test_the_hash_is_the_files(tmp_path):
    one, other = (
        written(tmp_path / f"{label}.jsonl", [answer(0, 0, label)]).hash
        for label in ("both", "neither")
    )
    assert one != other
