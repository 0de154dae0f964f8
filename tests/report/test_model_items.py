"""The answers of one model: the columns that a benchmark promises, and texts."""

from __future__ import annotations

import numpy as np
import pytest

from cfaug.core.errors import UserError
from cfaug.core.item_schema import ItemColumn, ItemSchema
from cfaug.report.gallery import read_own, require_same_items
from cfaug.report.items import Items, ModelItems, write_items


class Own(ModelItems):
    """Answers of a made-up benchmark."""

    schema = ItemSchema(
        "thing",
        (
            ItemColumn("item", "the thing", "text", always=True),
            ItemColumn("cluster", "its group", "text", always=True),
            ItemColumn("said", "what was said", "text", always=True),
            ItemColumn("score", "how well", always=True),
        ),
    )
    ASKED_BY = "made_up"


def items(names=("a", "b"), **columns) -> Items:
    texts = np.array(names, object)
    own = {"item": texts, "cluster": texts, "said": np.array(["x", None], object)[: len(names)]}
    return Items("own", "weights", "data", {**own, "score": np.ones(len(names)), **columns})


def test_a_missing_column_is_named_with_the_benchmark_that_writes_it():
    few = {name: own for name, own in items().columns.items() if name != "score"}
    with pytest.raises(UserError, match=r"own lack score: .* benchmark=made_up.*own.parquet"):
        Own("m", Items("own", "weights", "data", few))


def test_texts_of_an_item_without_one_are_empty():
    own = Own("m", items())
    assert own.texts("said") == ["x", ""]
    assert len(own) == 2


def test_models_that_were_asked_about_other_items_are_refused():
    require_same_items([Own("m", items()), Own("n", items())], "captions", "ask both")
    with pytest.raises(UserError, match=r"m and n answered different captions .*: ask both"):
        require_same_items([Own("m", items()), Own("n", items(["a", "c"]))], "captions", "ask both")


def test_a_run_without_items_says_what_asks_its_model(tmp_path):
    with pytest.raises(UserError, match=r"no items of own: run evaluate.py benchmark=made_up"):
        read_own(tmp_path, "m", "own", Own)
    write_items(tmp_path, items())
    own = read_own(tmp_path, "m", "own", Own)
    assert own.model == "m"
    assert own.texts("item") == ["a", "b"]
