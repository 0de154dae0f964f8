"""Sets of two texts on one photo: how they are read, compared and judged."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from cfaug.core.errors import UserError
from cfaug.core.types import Edit, Edited, Member
from cfaug.data.index import open_index
from cfaug.data.shards.shards import read_scores, write_shards
from cfaug.evaluation.text_pairs.text_pair_items import (
    InsertionItems,
    TextPairItems,
    compare_changes,
    compare_methods,
)
from cfaug.evaluation.text_pairs.text_pairs import (
    check_labels,
    holds_edited_captions,
    read_caption_list,
    read_edited_captions,
    read_right_answers,
    read_text_pairs,
    share_captions,
)
from cfaug.generate.captions import write_captions
from cfaug.generate.failures import Attempt
from cfaug.report.items import Items
from cfaug.stats.significance import holm
from tests.evaluation.joined import joined_sets, picture
from tests.evaluation.text_sets import text_set, text_sets
from tests.records import proposal
from tests.report.insertion_example import METHODS, insertion_items


@pytest.fixture
def read(tmp_path):
    def opened(sets, name="sets", method=""):
        write_shards(sets, tmp_path / name)
        return read_text_pairs(method, open_index(tmp_path / name, tmp_path / "index"))

    return opened


def test_sets_are_read_as_pairs(read):
    sets = [text_set(0, "small", label="neutral", scores={"truth_1": 0.0}), text_set(1, "")]
    pairs = read(sets)
    assert (len(pairs), pairs.method) == (2, "insertion")
    assert pairs.keys == ("caption-0", "caption-1")
    assert pairs.originals == tuple(pair.members[0].text for pair in sets)
    assert pairs.changed[0] == "a photo of a small red ball on the beach"
    assert pairs.changed[1] == pairs.originals[1]
    assert pairs.clusters[0] == pairs.clusters[1]  # of one photo
    assert pairs.kinds == ("insertion", "")
    assert pairs.labels == ("neutral", "")
    assert pairs.is_changed.tolist() == [True, False]
    assert pairs.scores == ({"truth_1": 0.0}, {})
    assert pairs.rows.tolist() == [[0, 1], [2, 3]]


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
    pair = text_set(0, "small")
    moved = replace(pair.members[1], image_name="1")
    apart = replace(pair, members=(pair.members[0], moved), images={**pair.images, "1": picture(9)})
    with pytest.raises(UserError, match=r"1 of 2 sets do not have one image that both texts share"):
        read([apart, text_set(1)], "apart")
    third = replace(pair, members=(*pair.members, Member("x", "0", "k", Edit("eda", "", "x"))))
    with pytest.raises(UserError, match="1 of 1 sets do not have two members"):
        read([third], "three")
    index = open_index(tmp_path / "apart", tmp_path / "index")
    with pytest.raises(UserError, match="holds no set: generate some"):
        read_text_pairs("", index, np.empty(0, np.int64))


def test_methods_are_compared_on_the_captions_that_all_have(read, capsys):
    first = read(text_sets(5), "first")
    order = [text_set(n, "big", "eda") for n in (4, 2, 1, 7)]
    other = read(order, "other")
    of_first, of_other = share_captions([first, other])
    assert of_first.keys == of_other.keys == ("caption-1", "caption-2", "caption-4")
    assert of_other.changed[0] == "a photo of a big dog on the grass"
    assert [first.index.text(row) for row in of_first.rows[:, 1].tolist()] == list(of_first.changed)
    assert [other.index.text(row) for row in of_other.rows[:, 1].tolist()] == list(of_other.changed)
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
    pairs = read_caption_list("", file)
    assert (pairs.method, pairs.keys) == ("eda", ("7-0", "7-1", "8-0"))
    assert pairs.changed == ("a big dog", "a cat", "")
    assert pairs.clusters == ("7", "7", "8")
    assert pairs.index is None
    assert pairs.scores == ({}, {}, {})
    assert pairs.choose([2]).keys == ("8-0",)
    assert "1 rows repeat a text of the same photo and are left out" in capsys.readouterr().err
    assert read_caption_list("x", file).hash == pairs.hash


def edited(folder, *proposals):
    """What ``stage=captions`` leaves of examples, each with its proposals."""
    folder.mkdir()
    made = {place: Edited((proposed,), {}) for place, proposed in enumerate(proposals)}
    write_captions(
        [proposed.example for proposed in proposals], Attempt(made, {}), folder, 0, {"by": "hand"}
    )
    return folder


def test_captions_that_were_only_edited_have_texts_alone(tmp_path):
    edit = Edit("eda", "", "big")
    first = proposal(["a dog", "a big dog"], [None, edit], "c0", "p0")
    second = proposal(["a cat", "a cat"], [None, None], "c1", "p0")
    folder = edited(tmp_path / "eda_run", first, second)
    assert holds_edited_captions(folder)
    pairs = read_edited_captions("", folder)
    assert (pairs.method, pairs.keys, pairs.clusters) == ("eda", ("c0", "c1"), ("p0", "p0"))
    assert (pairs.originals, pairs.changed) == (("a dog", "a cat"), ("a big dog", "a cat"))
    assert pairs.kinds == ("eda", "")
    assert pairs.index is None
    three = edited(tmp_path / "three", proposal(["a", "b", "c"], [None, edit, edit], "c0", "p0"))
    with pytest.raises(UserError, match=r"'c0' lacks two texts; the recipes deletion"):
        read_edited_captions("", three)
    write_shards(text_sets(2), tmp_path / "sets")
    assert not holds_edited_captions(tmp_path / "sets")


def test_scores_are_read_without_images(tmp_path):
    sets = [text_set(n, "x", scores={"truth_1": float(n), "inserted_true": 0.5}) for n in range(5)]
    write_shards(sets, tmp_path, sets_per_shard=2)
    assert read_scores(tmp_path) == {pair.key: dict(pair.scores) for pair in sets}


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


@pytest.mark.parametrize(
    ("question", "word", "label", "scores", "expected"),
    [
        ("truth", "small", None, {"truth_0": 1.0, "truth_1": 1.0}, "kept"),
        ("truth", "small", None, {"truth_0": 1.0, "truth_1": 0.0}, "changed"),
        ("truth", "small", None, {"truth_0": 0.0, "truth_1": 0.0}, "kept"),
        ("truth", "small", None, {"truth_1": 0.0}, "changed"),  # true of its own photo before
        ("truth", "small", None, {"truth_0": 1.0}, "unknown"),
        ("truth", "small", None, {}, "unknown"),
        ("truth", "", None, {"truth_1": 0.0}, "kept"),
        ("entailment", "small", "neutral", {"entailment_1": 1.0}, "kept"),
        ("entailment", "small", "neutral", {"entailment_1": 2.0}, "changed"),
        # The score before the change goes before the data's label.
        ("entailment", "small", "neutral", {"entailment_0": 0.0, "entailment_1": 0.0}, "kept"),
        ("entailment", "small", None, {"entailment_1": 0.0}, "unknown"),
        ("entailment", "small", "neutral", {"truth_1": 1.0}, "unknown"),
    ],
)
def test_scores_say_whether_the_right_answer_was_kept(
    read, question, word, label, scores, expected
):
    pairs = read([text_set(0, word, label=label, scores=scores)])
    assert check_labels(pairs, question) == [expected]


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
    labels = check_labels(pairs, "truth", read_right_answers(file, "truth"))
    # 0: most say no; 2: they cannot tell, the oracle can; 3: they disagree about the new text.
    assert labels == ["changed", "kept", "kept", "changed", "kept", "unknown"]


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


def with_column(answers: InsertionItems, name: str, values) -> InsertionItems:
    columns = {**answers.items.columns, name: values}
    return InsertionItems(answers.model, Items("own_insertion", "w", "data", columns))


def test_methods_their_folders_and_values_by_key():
    answers = insertion_items()
    assert answers.methods == tuple(METHODS)
    assert answers.sources("xmai") == ("shards/xmai",)
    values = answers.by_key("mrr", "xmai")
    assert list(values) == [f"p{p}-{c}" for p in range(12) for c in range(2)]
    rows = answers.rows("xmai")
    assert list(values.values()) == answers.items.metric("mrr")[rows].tolist()
    assert answers.clusters["p3-1"] == "p3"
    kept = answers.by_key("mrr", "xmai", kept_only=True)
    assert len(kept) == len(values) // 2
    assert kept.items() <= values.items()


def test_values_that_are_missing_are_no_keys():
    values = insertion_items().items.metric("mrr").copy()
    values[:3] = np.nan
    answers = with_column(insertion_items(), "mrr", values)
    assert len(answers.by_key("mrr", "deletion")) == 21
    assert answers.has("mrr")
    assert not with_column(answers, "mrr", np.full(len(values), np.nan)).has("mrr")
    assert not answers.has("meteor_of_something")


def test_invalid_methods_labels_and_duplicated_keys_are_named():
    answers = insertion_items()
    with pytest.raises(UserError, match="no method 'eda'; there are deletion, checklist"):
        answers.rows("eda")
    odd = with_column(answers, "label_kept", np.array(["maybe"] * len(answers), object))
    with pytest.raises(UserError, match="label_kept='maybe' is invalid: choose from kept"):
        odd.rows("xmai", kept_only=True)
    same = with_column(answers, "key", np.array(["a"] * len(answers), object))
    with pytest.raises(UserError, match="keys of xmai are duplicated"):
        same.by_key("mrr", "xmai")
    columns = {n: v for n, v in answers.items.columns.items() if n != "label_kept"}
    bare = TextPairItems("clip", Items("own_insertion", "w", "data", columns))
    with pytest.raises(UserError, match="lack label_kept: nothing says"):
        bare.rows("xmai", kept_only=True)


def test_a_method_that_lowers_ranks_does_so_beyond_chance_and_one_that_does_not_is_not_found():
    by_method = {
        test.method: test for test in compare_changes([insertion_items()], "mrr_original", "mrr")
    }
    answers = insertion_items()
    drops = {m: answers.items.metric("mrr_drop")[answers.rows(m)] for m in METHODS}
    for method, test in by_method.items():
        assert test.test.mean.mean == pytest.approx(drops[method].mean())
        assert (test.keys, test.left_out, test.test.mean.clusters) == (24, 0, 12)
        assert test.other == ""
    assert by_method["xmai"].is_significant
    assert not by_method["checklist"].is_significant
    assert [test.p_holm for test in by_method.values()] == holm(
        [f.p for f in by_method.values()]
    ).tolist()


def test_methods_are_compared_on_the_texts_that_both_changed():
    answers = insertion_items(left_out={"clare": ["p0-0", "p5-1"], "xmai": ["p1-0"]})
    by_other = {test.other: test for test in compare_methods([answers], "mrr", "xmai")}
    assert by_other.keys() == METHODS.keys() - {"xmai"}
    ours, theirs = (answers.by_key("mrr", name) for name in ("xmai", "clare"))
    shared = [key for key in ours if key in theirs]
    mean = np.mean([ours[key] - theirs[key] for key in shared])
    assert by_other["clare"].test.mean.mean == pytest.approx(mean)
    assert (by_other["clare"].keys, by_other["clare"].left_out) == (21, 3)
    assert by_other["checklist"].left_out == 1
    assert by_other["deletion"].test.mean.mean < 0


def test_kept_texts_alone_are_fewer():
    (kept,) = compare_changes([insertion_items()], "mrr_original", "mrr", ["xmai"], kept_only=True)
    assert kept.keys == 12


def test_checkpoints_are_averaged_text_by_text_and_tested_over_seeds():
    seeds = [insertion_items(name) for name in ("a", "bb", "ccc")]
    (change,) = compare_changes(seeds, "mrr_original", "mrr", ["xmai"])
    values = [answers.by_key("mrr_drop", "xmai") for answers in seeds]
    assert change.test.mean.mean == pytest.approx(
        np.mean([list(drops.values()) for drops in values])
    )
    assert change.over_seeds.n == 3
    assert change.over_seeds.mean == pytest.approx(change.test.mean.mean)
    assert change.p_seeds < 0.05
    single = compare_changes(seeds[:1], "mrr_original", "mrr", ["xmai"])[0]
    assert single.over_seeds is None
    assert np.isnan(single.p_seeds)


def test_a_method_without_values_is_not_tested():
    nothing = np.full(len(insertion_items()), np.nan)
    answers = with_column(insertion_items(), "mrr_batches", nothing)
    assert compare_changes([answers], "mrr_original_batches", "mrr_batches") == []
    assert compare_methods([answers], "mrr_batches", "xmai") == []
