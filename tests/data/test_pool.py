"""Rows that may be drawn: captions that were edited, and images that people validated."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfaug.core.errors import UserError
from cfaug.core.text import normalise_caption
from cfaug.data.index import open_index
from cfaug.data.mixture.pool import CHOICES, match_edited_rows, read_labels
from cfaug.data.shards.shards import write_shards
from tests.data.layouts import jsonl
from tests.data.making import Columns, pair
from tests.properties import examples


@dataclass(frozen=True, eq=False)
class Captions(Columns):
    """Columns with a caption a row."""

    texts: tuple[str, ...] = ()

    def text(self, row: int) -> str:
        return self.texts[row]

    def key(self, row: int) -> str:
        return f"key{self.sets[row]}_{row}"


def real_of(rows: list[tuple[int, str]]) -> Captions:
    columns = Columns.of((group, 1) for group, _ in rows)
    return Captions(**vars(columns), texts=tuple(text for _, text in rows))


def pairs_of(rows: list[tuple[int, str]]) -> Captions:
    columns = Columns.of((group, 2) for group, _ in rows)
    texts = [caption for _, text in rows for caption in (text, f"{text} edited")]
    return Captions(**vars(columns), texts=tuple(texts))


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("A man is in a kitchen making pizzas.", "a man is in a kitchen making pizzas", True),
        ("person with a shopping cart on a street ", "Person with a  shopping cart on a street",
         True),
        ("A man's hat", "a man s hat", True),
        ("cafe\u0301", "caf\u00e9", True),
        ("a cat, a dog", "a catadog", False),
        ("two cats", "two cat", False),
        ("5 cats", "6 cats", False),
    ],
)  # fmt: skip
def test_captions_are_compared_by_their_words(first, second, same):
    assert (normalise_caption(first) == normalise_caption(second)) == same


words = st.sampled_from(["A cat.", "a cat", "a dog", "A dog!", "two birds"])
rows = st.lists(st.tuples(st.integers(0, 3), words), min_size=1, max_size=14)


@settings(max_examples=examples(100), deadline=None)
@given(rows, rows)
def test_equals_the_slow_obvious_join(real, edited):
    def name(entry):
        return entry[0], entry[1].lower().strip(".!")

    left = Counter(map(name, edited))
    joined = []
    for row, entry in enumerate(real):
        if left[name(entry)]:
            left[name(entry)] -= 1
            joined.append(row)
    if not joined:
        with pytest.raises(UserError, match=r"no caption of data\.real"):
            match_edited_rows(real_of(real), pairs_of(edited))
        return
    join = match_edited_rows(real_of(real), pairs_of(edited))
    assert np.flatnonzero(join.rows).tolist() == joined
    known = set(map(name, real))
    assert [text for _, text in join.missed] == [
        text for group, text in edited if name((group, text)) not in known
    ]


# Labels of people.


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
    validated = written(file, lines).find_validated(index)
    assert validated[4 + member] == (votes > len(labels) - votes)
    assert validated.sum() == 1 + validated[4 + member]


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ({"member": 0, "label": "both"}, "key"),
        ({"key": "pair-00000", "label": "both"}, "member"),
        ({"key": "pair-00000", "member": -1, "label": "both"}, "member"),
        ({"key": "pair-00000", "member": "0.5", "label": "both"}, "member"),
        (answer(0, 0, "maybe"), "maybe"),
        (answer(0, 0, "both", annotator=0), "'0' answered"),
        ({"key": ["pair"], "member": [1], "label": {}}, "member"),
    ],
)
def test_a_line_that_cannot_be_used_is_named(tmp_path, line, named):
    lines = [answer(0, 0, "original", annotator=0), line]
    with pytest.raises(UserError, match=rf"(?s)line 2.*{named}"):
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
    first, second = (
        written(tmp_path / f"{label}.jsonl", [answer(0, 0, label)]).hash
        for label in ("both", "neither")
    )
    assert first != second
