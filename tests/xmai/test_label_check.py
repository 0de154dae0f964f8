"""Whether an edit kept the right answer: by the oracle's scores, by people, by the data."""

from __future__ import annotations

import json

import pytest

from cfaug.core.errors import UserError
from cfaug.data.index import open_index
from cfaug.data.shards.shards import write_shards
from cfaug.xmai.text_pairs import check_labels, read_right_answers, read_text_pairs
from tests.evaluation.text_sets import text_set


@pytest.fixture
def read(tmp_path):
    def opened(sets):
        write_shards(sets, tmp_path / "sets")
        return read_text_pairs("m", open_index(tmp_path / "sets", tmp_path / "index"))

    return opened


@pytest.mark.parametrize(
    ("word", "scores", "expected"),
    [
        ("small", {"truth_0": 1.0, "truth_1": 1.0}, "kept"),
        ("small", {"truth_0": 1.0, "truth_1": 0.0}, "changed"),
        ("small", {"truth_0": 0.0, "truth_1": 0.0}, "kept"),
        ("small", {"truth_1": 0.0}, "changed"),  # a caption is true of its own photo
        ("small", {"truth_0": 1.0}, "unknown"),
        ("small", {}, "unknown"),
        ("", {}, "kept"),
        ("", {"truth_1": 0.0}, "kept"),
    ],
)
def test_truth(read, word, scores, expected):
    assert check_labels(read([text_set(0, word, scores=scores)]), "truth") == [expected]


@pytest.mark.parametrize(
    ("label", "scores", "expected"),
    [
        ("neutral", {"entailment_1": 1.0}, "kept"),
        ("neutral", {"entailment_1": 2.0}, "changed"),
        ("neutral", {"entailment_0": 0.0, "entailment_1": 0.0}, "kept"),  # before the data's label
        (None, {"entailment_1": 0.0}, "unknown"),
        ("neutral", {"truth_1": 1.0}, "unknown"),
    ],
)
def test_entailment(read, label, scores, expected):
    pairs = read([text_set(0, "small", label=label, scores=scores)])
    assert check_labels(pairs, "entailment") == [expected]


def answers_file(path, lines):
    rows = [
        {"key": f"caption-{key}", "member": member, "annotator": who, "label": label}
        for key, member, who, label in lines
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def test_people_go_before_the_oracle(read, tmp_path):
    true = {"truth_0": 1.0, "truth_1": 1.0}
    pairs = read([text_set(n, "small", scores=true if n < 4 else {}) for n in range(6)])
    file = answers_file(
        tmp_path / "labels.jsonl",
        [(0, 1, "a", "no"), (0, 1, "b", "no"), (0, 1, "c", "yes"), (1, 1, "a", "yes"),
         (2, 1, "a", "unsure"), (3, 1, "a", "no"), (3, 1, "b", "yes"), (3, 0, "a", "no"),
         (4, 1, "a", "no"), (4, 0, "a", "no")],
    )  # fmt: skip
    found = check_labels(pairs, "truth", read_right_answers(file, "truth"))
    # 0: most say no; 2: they cannot tell, the oracle can; 3: they disagree about the new text.
    assert found == ["changed", "kept", "kept", "changed", "kept", "unknown"]


def test_invalid_answers_are_refused(read, tmp_path):
    pairs = read([text_set(0, "small", scores={"truth_1": 0.4})])
    with pytest.raises(UserError, match=r"'caption-0': the score truth_1 is 0.4; .* one of 1, 0"):
        check_labels(pairs, "truth")
    with pytest.raises(UserError, match="question=colour: choose from truth, entailment"):
        check_labels(pairs, "colour")
    file = answers_file(tmp_path / "labels.jsonl", [(0, 1, "a", "maybe")])
    with pytest.raises(UserError, match="label='maybe' is invalid: choose from yes, no, unsure"):
        read_right_answers(file, "truth")
    strangers = answers_file(tmp_path / "other.jsonl", [(7, 1, "a", "yes")])
    with pytest.raises(UserError, match=r"has answers about 1 images.*caption-7_1"):
        check_labels(pairs, "truth", read_right_answers(strangers, "truth"))
    with pytest.raises(UserError, match="choose from entailment, neutral, contradiction, unsure"):
        read_right_answers(strangers, "entailment")
