"""Sets of two texts on one photo, compared over methods, and whether edits kept the answer."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from cfaug.core.errors import UserError
from cfaug.core.types import Edit, Edited, Member
from cfaug.data.index import open_index
from cfaug.data.shards.shards import read_scores, write_shards
from cfaug.generate.captions import write_captions
from cfaug.generate.failures import Attempt
from cfaug.xmai.text_pairs import (
    check_labels,
    holds_edited_captions,
    read_caption_list,
    read_edited_captions,
    read_right_answers,
    read_text_pairs,
    share_captions,
)
from tests.evaluation.joined import joined_sets, picture
from tests.evaluation.text_sets import text_set, text_sets
from tests.records import proposal


@pytest.fixture
def read(tmp_path):
    def opened(sets, name="sets", method=""):
        write_shards(sets, tmp_path / name)
        return read_text_pairs(method, open_index(tmp_path / name, tmp_path / "index"))

    return opened


def test_sets_are_read_as_pairs(read):
    sets = [text_set(0, "small", label="neutral", scores={"truth_1": 0.0}), text_set(1, "")]
    found = read(sets)
    assert (len(found), found.method) == (2, "insertion")
    assert found.keys == ("caption-0", "caption-1")
    assert found.originals == tuple(one.members[0].text for one in sets)
    assert found.changed[0] == "a photo of a small red ball on the beach"
    assert found.changed[1] == found.originals[1]
    assert found.clusters[0] == found.clusters[1]  # of one photo
    assert found.kinds == ("insertion", "")
    assert found.labels == ("neutral", "")
    assert found.is_changed.tolist() == [True, False]
    assert found.scores == ({"truth_1": 0.0}, {})
    assert found.rows.tolist() == [[0, 1], [2, 3]]


def test_a_method_is_called_as_its_only_kind_of_edit_or_its_folder(read):
    assert read(text_sets(2, kind="eda"), "one").method == "eda"
    assert read([text_set(0, "x", "eda"), text_set(1, "x", "clare")], "several").method == "several"
    assert read(text_sets(2, word=""), "none").method == "none"
    assert read(text_sets(2), "named", "XMAI").method == "XMAI"


def test_what_changes_a_text_changes_the_hash(read):
    first, same = read(text_sets(3), "a"), read(text_sets(3), "b")
    other, kind = read(text_sets(3, word="tiny"), "c"), read(text_sets(3, kind="eda"), "d")
    assert first.hash == same.hash
    assert len({first.hash, other.hash, kind.hash, first.choose([0, 1]).hash}) == 4


def test_sets_that_are_no_pairs_are_refused(read, tmp_path):
    with pytest.raises(UserError, match=r"7 of 9 sets do not have two members.*photo-1, photo-2"):
        read(joined_sets(), "joined")
    one = text_set(0, "small")
    moved = replace(one.members[1], image_name="1")
    apart = replace(one, members=(one.members[0], moved), images={**one.images, "1": picture(9)})
    with pytest.raises(UserError, match=r"1 of 2 sets do not have one image that both texts share"):
        read([apart, text_set(1)], "apart")
    third = replace(one, members=(*one.members, Member("x", "0", "k", Edit("eda", "", "x"))))
    with pytest.raises(UserError, match="1 of 1 sets do not have two members"):
        read([third], "three")
    index = open_index(tmp_path / "apart", tmp_path / "index")
    with pytest.raises(UserError, match="holds no set: generate some"):
        read_text_pairs("", index, np.empty(0, np.int64))


def test_methods_are_compared_on_the_captions_that_all_have(read, capsys):
    first = read(text_sets(5), "first")
    order = [text_set(n, "big", "eda") for n in (4, 2, 1, 7)]
    other = read(order, "other")
    one, two = share_captions([first, other])
    assert one.keys == two.keys == ("caption-1", "caption-2", "caption-4")
    assert two.changed[0] == "a photo of a big dog on the grass"
    assert [first.index.text(row) for row in one.rows[:, 1].tolist()] == list(one.changed)
    assert [other.index.text(row) for row in two.rows[:, 1].tolist()] == list(two.changed)
    said = capsys.readouterr().err
    assert "insertion: 2 of 5 captions are left out, which another method lacks" in said
    assert "eda: 1 of 4 captions are left out" in said


def test_methods_that_cannot_be_compared_are_refused(read):
    first = read(text_sets(2), "first")
    with pytest.raises(UserError, match=r"the method 'insertion' is duplicated: .*NAME: FOLDER"):
        share_captions([first, read(text_sets(2, "big"), "second")])
    with pytest.raises(UserError, match="no caption is common to all of"):
        share_captions([first, read([text_set(9, "big", "eda")], "third")])
    renamed = [replace(text_set(1, "x", "eda"), key="caption-0")]
    with pytest.raises(
        UserError, match=r"the caption caption-0 is 'a photo of a red ball.*and 'a "
    ):
        share_captions([first, read(renamed, "fourth")])
    moved = [text_set(0, "x", "eda", photo=3)]
    with pytest.raises(UserError, match="the photo caption-0 is"):
        share_captions([first, read(moved, "fifth")])


def test_lists_of_modified_captions_have_texts_alone(tmp_path, capsys):
    file = tmp_path / "eda.csv"
    file.write_text(
        "image_id,original,modified\n7,a dog,a big dog\n7,a cat,a cat\n7,a dog,a dog\n8,a dog,\n"
    )
    found = read_caption_list("", file)
    assert (found.method, found.keys) == ("eda", ("7-0", "7-1", "8-0"))
    assert found.changed == ("a big dog", "a cat", "")
    assert found.clusters == ("7", "7", "8")
    assert found.index is None
    assert found.scores == ({}, {}, {})
    assert found.choose([2]).keys == ("8-0",)
    assert "1 rows repeat a text of the same photo and are left out" in capsys.readouterr().err
    assert read_caption_list("x", file).hash == found.hash


def edited(folder, *proposals):
    """What ``stage=captions`` leaves of examples, each with its proposals."""
    folder.mkdir()
    made = {place: Edited((one,), {}) for place, one in enumerate(proposals)}
    write_captions([one.example for one in proposals], Attempt(made, {}), folder, 0, {"by": "hand"})
    return folder


def test_captions_that_were_only_edited_have_texts_alone(tmp_path):
    edit = Edit("eda", "", "big")
    first = proposal(["a dog", "a big dog"], [None, edit], "c0", "p0")
    second = proposal(["a cat", "a cat"], [None, None], "c1", "p0")
    folder = edited(tmp_path / "eda_run", first, second)
    assert holds_edited_captions(folder)
    found = read_edited_captions("", folder)
    assert (found.method, found.keys, found.clusters) == ("eda", ("c0", "c1"), ("p0", "p0"))
    assert (found.originals, found.changed) == (("a dog", "a cat"), ("a big dog", "a cat"))
    assert found.kinds == ("eda", "")
    assert found.index is None
    three = edited(tmp_path / "three", proposal(["a", "b", "c"], [None, edit, edit], "c0", "p0"))
    with pytest.raises(UserError, match=r"'c0' lacks two texts; the recipes xmai"):
        read_edited_captions("", three)
    write_shards(text_sets(2), tmp_path / "sets")
    assert not holds_edited_captions(tmp_path / "sets")


def test_scores_are_read_without_images(tmp_path):
    sets = [text_set(n, "x", scores={"truth_1": float(n), "inserted_true": 0.5}) for n in range(5)]
    write_shards(sets, tmp_path, sets_per_shard=2)
    assert read_scores(tmp_path) == {one.key: dict(one.scores) for one in sets}


@pytest.mark.parametrize(
    ("scores", "said"),
    [
        ('{"truth_1": true}', r"caption-0_0: the score 'truth_1' is True, not a number"),
        ('{"truth_1": "1"}', r"the score 'truth_1' is '1', not a number"),
        ("[1]", r"caption-0_0: the member's json cannot be used"),
    ],
)
def test_damaged_scores_are_named(tmp_path, scores, said):
    """A shard that others wrote may say anything, and keep its commit's length."""
    write_shards([text_set(0, "x", scores={"truth_1": 0.125})], tmp_path)
    tar = tmp_path / "00000.tar"
    content, sound = tar.read_bytes(), b'"scores": {"truth_1": 0.125}'
    assert content.count(sound) == 1
    changed = f'"scores": {scores}'.encode()
    tar.write_bytes(content.replace(sound, changed.ljust(len(sound))))
    with pytest.raises(UserError, match=said):
        read_scores(tmp_path)


@pytest.fixture
def read_sets(tmp_path):
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
def test_truth(read_sets, word, scores, expected):
    assert check_labels(read_sets([text_set(0, word, scores=scores)]), "truth") == [expected]


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
def test_entailment(read_sets, label, scores, expected):
    pairs = read_sets([text_set(0, "small", label=label, scores=scores)])
    assert check_labels(pairs, "entailment") == [expected]


def answers_file(path, lines):
    rows = [
        {"key": f"caption-{key}", "member": member, "annotator": who, "label": label}
        for key, member, who, label in lines
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def test_people_go_before_the_oracle(read_sets, tmp_path):
    true = {"truth_0": 1.0, "truth_1": 1.0}
    pairs = read_sets([text_set(n, "small", scores=true if n < 4 else {}) for n in range(6)])
    file = answers_file(
        tmp_path / "labels.jsonl",
        [(0, 1, "a", "no"), (0, 1, "b", "no"), (0, 1, "c", "yes"), (1, 1, "a", "yes"),
         (2, 1, "a", "unsure"), (3, 1, "a", "no"), (3, 1, "b", "yes"), (3, 0, "a", "no"),
         (4, 1, "a", "no"), (4, 0, "a", "no")],
    )  # fmt: skip
    found = check_labels(pairs, "truth", read_right_answers(file, "truth"))
    # 0: most say no; 2: they cannot tell, the oracle can; 3: they disagree about the new text.
    assert found == ["changed", "kept", "kept", "changed", "kept", "unknown"]


def test_invalid_answers_are_refused(read_sets, tmp_path):
    pairs = read_sets([text_set(0, "small", scores={"truth_1": 0.4})])
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
