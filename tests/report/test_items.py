"""Items on disk: what every test item was answered, as parquet."""

from __future__ import annotations

import math
import os
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfaug.core.errors import UserError
from cfaug.core.item_schema import ItemColumn, ItemSchema
from cfaug.report import items
from cfaug.report.gallery import read_own, require_same_items
from cfaug.report.items import (
    Items,
    ModelItems,
    benchmarks_with_items,
    has_items,
    items_file,
    read_items,
    write_items,
)
from tests.properties import examples

COLUMNS = {
    "item": ["b", "a", "c"],
    "cluster": np.array(["x", "x", "y"], dtype=object),
    "acc1": np.array([1.0, np.nan, 0.25]),
    "tied": np.array([0, 2, 7]),
    "anchor": ["one", None, "two"],
    "sure": np.array([0.1, 0.2, 0.3], np.float32),
}
ONE = Items("own/test", "w", "d", COLUMNS)


def test_items_come_back_in_order_with_what_they_are_of(tmp_path):
    file = write_items(tmp_path, ONE)
    assert file == items_file(tmp_path, "own/test")
    assert file.parent == tmp_path / "items"
    read = read_items(tmp_path, "own/test")
    assert (read.benchmark, read.weights, read.data, len(read)) == ("own/test", "w", "d", 3)
    assert list(read.columns) == list(COLUMNS)
    assert list(read.columns["item"]) == ["b", "a", "c"]
    assert list(read.columns["anchor"]) == ["one", None, "two"]
    np.testing.assert_array_equal(read.metric("acc1"), [1.0, np.nan, 0.25])
    np.testing.assert_array_equal(read.metric("tied"), [0.0, 2.0, 7.0])
    np.testing.assert_array_equal(read.metric("sure"), COLUMNS["sure"].astype(float))
    assert pq.read_table(file)["acc1"].null_count == 1
    assert benchmarks_with_items(tmp_path) == ["own/test"]
    assert benchmarks_with_items(tmp_path / "elsewhere") == []


def test_equal_items_are_equal_bytes_and_replace_earlier_ones(tmp_path):
    first = write_items(tmp_path, ONE).read_bytes()
    write_items(tmp_path, Items("own/test", "v", "d", COLUMNS))
    assert read_items(tmp_path, "own/test").weights == "v"
    assert write_items(tmp_path, ONE).read_bytes() == first
    assert sorted(file.name for file in (tmp_path / "items").iterdir()) == [
        ".own%2Ftest.parquet.crc32",
        "own%2Ftest.parquet",
    ]


@given(
    st.one_of(
        st.lists(st.text(st.characters(exclude_categories=["Cs"]))),
        st.lists(st.floats()),
        st.lists(st.integers(-(2**63), 2**63 - 1)),
        st.lists(st.booleans()),
        st.lists(st.floats()).map(lambda values: np.array(values, np.float64)),
        st.lists(st.floats(width=32)).map(lambda values: np.array(values, np.float32)),
        st.lists(st.integers(0, 255)).map(lambda values: np.array(values, np.uint8)),
        st.lists(st.booleans()).map(lambda values: np.array(values, bool)),
        st.lists(st.one_of(st.none(), st.text("ab"))),
    )
)
@settings(max_examples=examples(80), deadline=None)
def test_columns_are_those_that_pyarrow_makes(values):
    ours = items._column(values, "a column")
    if isinstance(values, np.ndarray) and values.dtype.kind == "f":
        theirs = pa.array(values.astype(np.float64), from_pandas=True)
    else:
        theirs = pa.array(values.tolist() if isinstance(values, np.ndarray) else values)
    ours.validate(full=True)
    assert ours.type == theirs.type
    assert ours.null_count == theirs.null_count
    for a, b in zip(ours.to_pylist(), theirs.to_pylist(), strict=True):
        assert a == b or (math.isnan(a) and math.isnan(b))


def test_writing_items_imports_no_pandas(tmp_path):
    code = (
        "import sys, numpy as np; from pathlib import Path; "
        "from cfaug.report.items import Items, write_items; "
        "columns = {'item': ['a', 'b'], 'cluster': ['a', 'a'], 'right': np.array([1.0, np.nan]), "
        "'rank': np.array([0, 3]), 'sure': [0.5, 1.0], 'tied': [True, False]}; "
        f"write_items(Path({str(tmp_path)!r}), Items('own', 'w', 'd', columns)); "
        "print('pandas' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_items_of_other_weights_or_data_are_not_there(tmp_path):
    assert not has_items(tmp_path, "own/test", "w", "d")
    write_items(tmp_path, ONE)
    assert has_items(tmp_path, "own/test", "w", "d")
    assert not has_items(tmp_path, "own/test", "v", "d")
    assert not has_items(tmp_path, "own/test", "w", "e")
    assert not has_items(tmp_path, "own", "w", "d")


@pytest.mark.parametrize("content", [b"", b"PAR1", b"no parquet at all"])
def test_a_damaged_file_is_named_and_is_not_there(tmp_path, content):
    file = write_items(tmp_path, ONE)
    file.write_bytes(content)
    assert not has_items(tmp_path, "own/test", "w", "d")
    with pytest.raises(UserError, match=r"own%2Ftest\.parquet cannot be read.*evaluate\.py"):
        read_items(tmp_path, "own/test")


def test_a_parquet_of_something_else_is_no_items(tmp_path):
    content = write_items(tmp_path, ONE).read_bytes()
    items_file(tmp_path, "other").write_bytes(content)
    with pytest.raises(UserError, match=f"holds the items of {ONE.benchmark}, not of other"):
        read_items(tmp_path, "other")
    pq.write_table(pa.table({"a": [1]}), items_file(tmp_path, "b"))
    with pytest.raises(UserError, match="does not hold the items"):
        read_items(tmp_path, "b")
    assert read_items(tmp_path, "c") is None


def test_what_cannot_be_kept_is_refused(tmp_path):
    with pytest.raises(UserError, match="items are duplicated"):
        write_items(tmp_path, Items("b", "w", "d", {"item": ["a", "a"], "cluster": ["a", "b"]}))
    with pytest.raises(UserError, match=r"no values of 'anchor'; they have acc1, tied, sure"):
        ONE.metric("anchor")
    with pytest.raises(UserError, match="infinite values of 'loss'"):
        Items("b", "w", "d", {**COLUMNS, "loss": np.array([1.0, np.inf, 0.0])}).metric("loss")
    (tmp_path / "elsewhere").mkdir()
    os.symlink(tmp_path / "elsewhere", tmp_path / "items")
    with pytest.raises(UserError, match="is a link, and links are not written through"):
        write_items(tmp_path, ONE)
    assert not list((tmp_path / "elsewhere").iterdir())


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"item": ["a", "a"], "cluster": ["a", "b"]}, "items are duplicated"),
        ({"item": ["a", None], "cluster": ["a", "b"]}, "'item' of an item is missing"),
        ({"item": ["a", "b"], "cluster": ["a", None]}, "'cluster' of an item is missing"),
        ({"item": [["a"], ["b"]], "cluster": ["a", "b"]}, "'item' of an item is missing or no"),
    ],
)
def test_items_from_elsewhere_are_checked(tmp_path, columns, says):
    file = write_items(tmp_path, ONE)
    metadata = pq.read_schema(file).metadata
    checksum_of(file).unlink()
    pq.write_table(pa.table(columns).replace_schema_metadata(metadata), file)
    with pytest.raises(UserError, match=f"{says}.*; remove it, and evaluate.py writes it again"):
        read_items(tmp_path, ONE.benchmark)


def checksum_of(file):
    return file.with_name(f".{file.name}.crc32")


def test_any_flipped_byte_is_noticed(tmp_path):
    """N40: only a truncated file was; one byte flipped within it changed answers in silence."""
    file = write_items(tmp_path, ONE)
    content = file.read_bytes()
    for at in range(0, len(content), 31):
        file.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        assert not has_items(tmp_path, "own/test", "w", "d")
        with pytest.raises(UserError, match=r"damaged since it .*; remove it, and evaluate\.py"):
            read_items(tmp_path, "own/test")
    file.write_bytes(content)
    assert has_items(tmp_path, "own/test", "w", "d")
    # Without a checksum they count: there was none before, or hidden files were not copied.
    checksum_of(file).unlink()
    assert has_items(tmp_path, "own/test", "w", "d")
    assert len(read_items(tmp_path, "own/test")) == 3


def test_the_checksum_is_no_part_of_what_others_read(tmp_path):
    """N40: the parquet has the bytes that it had, and a folder of parquet is read as one."""
    write_items(tmp_path, ONE)
    write_items(tmp_path, Items("other", "w", "d", COLUMNS))
    assert pq.read_table(tmp_path / "items").num_rows == 6
    assert set(pq.read_schema(items_file(tmp_path, "other")).metadata) == {
        b"format", b"benchmark", b"weights", b"data",
    }  # fmt: skip
    assert benchmarks_with_items(tmp_path) == ["other", "own/test"]


@pytest.mark.parametrize("said", [b"", b"zz", b"00000000\n", b"0" * 100])
def test_a_damaged_checksum_has_the_items_written_again(tmp_path, said):
    file = write_items(tmp_path, ONE)
    checksum_of(file).write_bytes(said)
    assert not has_items(tmp_path, "own/test", "w", "d")
    write_items(tmp_path, ONE)
    assert has_items(tmp_path, "own/test", "w", "d")


def test_an_interrupted_write_leaves_items_that_are_written_again(tmp_path, monkeypatch):
    """N40: killed between the checksum and the items, old items remain under the new checksum."""
    write_items(tmp_path, ONE)
    write = items.write_file

    def die(path, content):
        if path.suffix == ".parquet":
            raise KeyboardInterrupt
        write(path, content)

    monkeypatch.setattr(items, "write_file", die)
    with pytest.raises(KeyboardInterrupt):
        write_items(tmp_path, Items("own/test", "v", "d", COLUMNS))
    monkeypatch.undo()
    assert not has_items(tmp_path, "own/test", "w", "d")
    assert not has_items(tmp_path, "own/test", "v", "d")


@pytest.mark.parametrize("values", [[object()] * 3, [1, "a", 2]])
def test_a_column_of_several_types_is_refused_by_name(tmp_path, values):
    with pytest.raises(UserError, match=r"own/test: the items' column 'odd' should hold values"):
        write_items(tmp_path, Items("own/test", "w", "d", {**COLUMNS, "odd": values}))
    assert not items_file(tmp_path, "own/test").exists()


# The answers of one model: the columns that a benchmark promises, and texts.


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
    BENCHMARK = "made_up"


def made_items(names=("a", "b"), **columns) -> Items:
    texts = np.array(names, object)
    base = {"item": texts, "cluster": texts, "said": np.array(["x", None], object)[: len(names)]}
    return Items("own", "weights", "data", {**base, "score": np.ones(len(names)), **columns})


def test_a_missing_column_is_named_with_the_benchmark_that_writes_it():
    few = {name: values for name, values in made_items().columns.items() if name != "score"}
    with pytest.raises(UserError, match=r"own lack score: .* benchmark=made_up.*own.parquet"):
        Own("m", Items("own", "weights", "data", few))


def test_texts_of_an_item_without_one_are_empty():
    answers = Own("m", made_items())
    assert answers.texts("said") == ["x", ""]
    assert len(answers) == 2


def test_models_that_were_asked_about_other_items_are_refused():
    require_same_items([Own("m", made_items()), Own("n", made_items())], "captions", "ask both")
    with pytest.raises(UserError, match=r"m and n answered different captions .*: ask both"):
        require_same_items(
            [Own("m", made_items()), Own("n", made_items(["a", "c"]))], "captions", "ask both"
        )


def test_a_run_without_items_says_what_asks_its_model(tmp_path):
    with pytest.raises(UserError, match=r"no items of own: run evaluate.py benchmark=made_up"):
        read_own(tmp_path, "m", "own", Own)
    write_items(tmp_path, made_items())
    answers = read_own(tmp_path, "m", "own", Own)
    assert answers.model == "m"
    assert answers.texts("item") == ["a", "b"]
