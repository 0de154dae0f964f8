"""Columns of items, declared once: checked when written, required when read, listed in docs."""

from __future__ import annotations

import re
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import yaml

from cfaug.core.errors import UserError
from cfaug.core.item_schema import ItemColumn, ItemSchema, to_json
from cfaug.evaluation.benchmark import SourceBenchmark
from tests.files_of_settings import settings_files

ROOT = Path(__file__).parents[1]
SCHEMA = ItemSchema(
    "thing",
    (
        ItemColumn("item", "the thing", "text", always=True),
        ItemColumn("score", "how well"),
        ItemColumn("text <k>", "of a caption"),
        ItemColumn("rank", "its place", "whole number"),
        ItemColumn("seen", "whether it was seen", "yes or no"),
        ItemColumn("options", "choices", "JSON"),
    ),
)
FITTING = {
    "item": ["a", None], "score": np.array([0.5, np.nan]), "text 12": [0.1, None],
    "rank": [1, 2], "seen": [True, None], "options": ["[]", None],
}  # fmt: skip


def test_declared_columns_may_be_written():
    SCHEMA.check(FITTING, "b: the items")
    SCHEMA.check({"item": np.array(["a"], object)}, "b: the items")
    SCHEMA.check({"item": [None], "score": np.array([None], object)}, "b: the items")


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"more": [1.0]}, "b: the items have a column 'more' that their schema lacks"),
        ({"text": [1.0]}, "a column 'text'"),
        ({"item": [1]}, "the column 'item' does not hold text"),
        ({"score": ["x"]}, "'score' does not hold number"),
        ({"rank": [0.5]}, "'rank' does not hold whole number"),
        ({"seen": [1]}, "'seen' does not hold yes or no"),
        ({"options": [["a"]]}, "'options' does not hold JSON"),
        ({"item": None}, "lack item, which their schema promises"),
    ],
)
def test_other_columns_are_refused(columns, says):
    items = {name: values for name, values in {**FITTING, **columns}.items() if values is not None}
    with pytest.raises(UserError, match=says):
        SCHEMA.check(items, "b: the items")


def test_tags_may_be_anything_and_an_extension_replaces():
    tagged = ItemSchema("thing", SCHEMA.columns, "tags of the source")
    tagged.check({**FITTING, "category": ["a", "b"]}, "b")
    longer = SCHEMA.extend("other", ItemColumn("score", "how badly", always=True))
    assert [column.name for column in longer.columns][-1] == "score"
    assert longer.find_lacking(["item"]) == ["score"]
    assert SCHEMA.find_lacking(["item"]) == []


def test_json_has_null_for_what_is_no_number():
    assert to_json([1.5, float("nan"), float("inf"), "é", 2]) == '[1.5, null, null, "é", 2]'


def shipped_benchmarks():
    """Yield the class of every benchmark in ``conf/benchmark``."""
    for file in settings_files("benchmark"):
        target = (yaml.safe_load(file.read_text()) or {}).get("_target_", "")
        module, _, name = target.rpartition(".")
        if module:
            yield getattr(import_module(module), name)


def test_the_page_of_columns_is_that_of_the_schemas(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    page = import_module("item_columns")
    message = "docs/items.md is out of date: run python tools/item_columns.py"
    choices = {file.stem for file in settings_files("benchmark")}
    head, *sections = page.PAGE.read_text(encoding="utf-8").split("\n## ")
    installed = [text for text in sections if re.match(r"`benchmark=(\w+)", text)[1] in choices]
    assert "\n## ".join([head, *installed]) == page.render(), message
    listed = [schema for _, schema in page.schemas()]
    schemas = [kind.item_schema for kind in shipped_benchmarks() if hasattr(kind, "item_schema")]
    assert len(schemas) > 5
    assert all(schema in listed for schema in schemas)
    sys.modules.pop("item_columns")


def test_every_benchmark_of_one_source_has_a_schema():
    kinds = [kind for kind in shipped_benchmarks() if issubclass(kind, SourceBenchmark)]
    assert len(kinds) > 5
    assert all(isinstance(kind.item_schema, ItemSchema) for kind in kinds)
