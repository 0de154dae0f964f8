"""Items about texts before and after a change, and the paired tests over them."""

from __future__ import annotations

import numpy as np
import pytest

from cfaug.core.errors import UserError
from cfaug.report.items import Items
from cfaug.stats.significance import holm
from cfaug.xmai.text_pair_items import (
    InsertionItems,
    TextPairItems,
    compare_changes,
    compare_methods,
)
from tests.report.insertion_example import METHODS, insertion_items


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
    found = {one.method: one for one in compare_changes([insertion_items()], "mrr_original", "mrr")}
    answers = insertion_items()
    drops = {m: answers.items.metric("mrr_drop")[answers.rows(m)] for m in METHODS}
    for method, one in found.items():
        assert one.test.mean.mean == pytest.approx(drops[method].mean())
        assert (one.keys, one.left_out, one.test.mean.clusters) == (24, 0, 12)
        assert one.other == ""
    assert found["xmai"].is_significant
    assert not found["checklist"].is_significant
    assert [one.p_holm for one in found.values()] == holm([f.p for f in found.values()]).tolist()


def test_methods_are_compared_on_the_texts_that_both_changed():
    answers = insertion_items(left_out={"clare": ["p0-0", "p5-1"], "xmai": ["p1-0"]})
    found = {one.other: one for one in compare_methods([answers], "mrr", "xmai")}
    assert found.keys() == METHODS.keys() - {"xmai"}
    ours, theirs = (answers.by_key("mrr", name) for name in ("xmai", "clare"))
    shared = [key for key in ours if key in theirs]
    mean = np.mean([ours[key] - theirs[key] for key in shared])
    assert found["clare"].test.mean.mean == pytest.approx(mean)
    assert (found["clare"].keys, found["clare"].left_out) == (21, 3)
    assert found["checklist"].left_out == 1
    assert found["deletion"].test.mean.mean < 0


def test_kept_texts_alone_are_fewer():
    (own,) = compare_changes([insertion_items()], "mrr_original", "mrr", ["xmai"], kept_only=True)
    assert own.keys == 12


def test_checkpoints_are_averaged_text_by_text_and_tested_over_seeds():
    seeds = [insertion_items(name) for name in ("a", "bb", "ccc")]
    (own,) = compare_changes(seeds, "mrr_original", "mrr", ["xmai"])
    values = [one.by_key("mrr_drop", "xmai") for one in seeds]
    assert own.test.mean.mean == pytest.approx(np.mean([list(one.values()) for one in values]))
    assert own.over_seeds.n == 3
    assert own.over_seeds.mean == pytest.approx(own.test.mean.mean)
    assert own.p_seeds < 0.05
    single = compare_changes(seeds[:1], "mrr_original", "mrr", ["xmai"])[0]
    assert single.over_seeds is None
    assert np.isnan(single.p_seeds)


def test_a_method_without_values_is_not_tested():
    nothing = np.full(len(insertion_items()), np.nan)
    answers = with_column(insertion_items(), "mrr_batches", nothing)
    assert compare_changes([answers], "mrr_original_batches", "mrr_batches") == []
    assert compare_methods([answers], "mrr_batches", "xmai") == []
