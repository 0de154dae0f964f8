"""What a source says beside captions and images: columns of its index, typed and mapped."""

from __future__ import annotations

import json
import pickle
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cfaug.core.errors import UserError
from cfaug.core.types import CounterfactualSet, Edit, Member
from cfaug.data.index import open_index
from cfaug.data.index.extra_columns import EXTRA, MOST_COLUMNS, ExtraColumns, GrowingExtra
from cfaug.data.shards.shards import write_shards
from tests.data.making import noise_image
from tests.properties import examples


def a_set(number: int, *extras: dict[str, Any]) -> CounterfactualSet:
    members = tuple(
        Member(
            f"text {number} {i}", str(i), "s", Edit("noun", "a", f"b{i}") if i else None, None, x
        )
        for i, x in enumerate(extras)
    )
    images = {str(i): noise_image(100 * number + i) for i in range(len(extras))}
    return CounterfactualSet(f"set{number}", f"group{number}", members, images)


SETS = [
    a_set(0, {"a1": "female", "age": 3, "score": 1, "boxes": [[0, 1]], "odd": 1}, {"a1": "male"}),
    a_set(1, {"score": 0.5, "seen": True, "odd": "x", "big": 2**70}, {"age": -(2**62)}, {}),
]


@pytest.fixture
def index(tmp_path):
    write_shards(SETS, tmp_path / "shards")
    return open_index(tmp_path / "shards", tmp_path / "cache")


def test_columns_are_typed(index):
    types = {name: index.extra(name).type for name in index.extra_names}
    assert types == {
        "a1": pa.string(), "age": pa.int64(), "score": pa.float64(), "boxes": pa.string(),
        "odd": pa.string(), "seen": pa.bool_(), "big": pa.string(), "edit_kind": pa.string(),
        "edit_before": pa.string(), "edit_after": pa.string(),
    }  # fmt: skip
    assert index.extra("age").to_pylist() == [3, None, None, -(2**62), None]
    assert index.extra("edit_kind").to_pylist() == [None, "noun", None, "noun", "noun"]
    assert json.loads(index.extra("boxes")[0].as_py()) == [[0, 1]]
    assert index.extra_row(0) == dict(SETS[0].members[0].extra)
    assert index.extra_row(2) == dict(SETS[1].members[0].extra)
    assert index.extra_row(4) == {"edit_kind": "noun", "edit_before": "a", "edit_after": "b2"}
    with pytest.raises(UserError, match="has no column 'a2': choose from a1, age"):
        index.extra("a2")


def test_they_are_mapped_not_copied_and_known_to_workers(index):
    before = pa.total_allocated_bytes()
    copy = pickle.loads(pickle.dumps(index))
    assert copy.extra_row(0) == index.extra_row(0)
    assert copy.extra("age").nbytes > pa.total_allocated_bytes() - before


def test_the_hash_knows_them_only_where_it_is_asked(tmp_path):
    hashes = {}
    for name, a1 in (("first", "x"), ("again", "x"), ("other", "y"), ("none", None)):
        write_shards([a_set(0, {"a1": a1, "b": 1}, {})], tmp_path / name)
        index = open_index(tmp_path / name, tmp_path / "cache")
        hashes[name] = index.hash, index.hash_with([]), index.hash_with(["a1"])
    assert len({plain for plain, _, _ in hashes.values()}) == 1
    assert all(plain == empty for plain, empty, _ in hashes.values())
    assert hashes["first"] == hashes["again"]
    assert len({with_a1 for _, _, with_a1 in hashes.values()}) == 3
    index = open_index(tmp_path / "first", tmp_path / "cache")
    assert index.hash_with(["a1", "b"]) == index.hash_with(["b", "a1", "b"])
    with pytest.raises(UserError, match="no column 'c'"):
        index.hash_with(["c"])


values = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(allow_nan=False),
    st.text(max_size=5), st.lists(st.integers(0, 3), max_size=2),
    st.dictionaries(st.text(max_size=2), st.booleans(), max_size=2),
)  # fmt: skip
records = st.dictionaries(st.sampled_from("abcd"), values)


@pytest.mark.slow
@settings(
    max_examples=examples(150),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.lists(records, min_size=1, max_size=12))
def test_what_was_said_is_read_again(tmp_path, said):
    growing = GrowingExtra()
    module = "cfaug.data.index.extra_columns"
    with mock.patch(f"{module}.ROWS_AT_ONCE", 4), mock.patch(f"{module}.ENCODED_AT_ONCE", 2):
        for row, record in enumerate(said):
            if record:
                growing.add(row, record, "here")
        (tmp_path / EXTRA).unlink(missing_ok=True)
        growing.save(tmp_path, len(said))
    wanted = [{name: v for name, v in record.items() if v is not None} for record in said]
    if not any(said):
        assert not (tmp_path / EXTRA).exists()
        return
    columns = ExtraColumns(tmp_path, len(said))
    read = [columns.row(row) for row in range(len(said))]
    assert read == wanted
    # Whether 1 is a whole number, a float or true: equal, and of the same type but for floats.
    for actual, expected in zip(read, wanted, strict=True):
        for name, value in actual.items():
            alike = type(value) is type(expected[name])
            assert alike or {type(value), type(expected[name])} == {int, float}


def test_half_a_character_is_refused_with_its_line(tmp_path):
    growing = GrowingExtra()
    growing.add(0, {"a": "x"}, "a.jsonl, line 1")
    growing.add(1, {"a": "\ud800"}, "a.jsonl, line 2")
    with pytest.raises(UserError, match="line 2: a text that is not Unicode"):
        growing.save(tmp_path, 2)


def test_a_table_with_very_many_columns_keeps_the_first_and_says_so(tmp_path):
    (tmp_path / "a.png").write_bytes(noise_image(1))
    record = {"image": "a.png", "caption": "x", **{f"c{i}": i for i in range(MOST_COLUMNS + 7)}}
    (tmp_path / "captions.jsonl").write_text(json.dumps(record))
    index = open_index(tmp_path, tmp_path / "cache")
    assert len(index.extra_names) == MOST_COLUMNS
    assert f"7 columns beyond the first {MOST_COLUMNS}" in index.reading.left_out


# What readers fill.


def test_columns_of_parquet(tmp_path):
    import datetime

    rows = [
        {
            "image": {"bytes": noise_image(i), "path": None}, "caption": f"text {i}", "width": i,
            "boxes": [[i, 1]], "when": datetime.date(2020, 1, 2), "depth": b"\x00",
        }
        for i in range(3)
    ]  # fmt: skip
    (tmp_path / "hub").mkdir()
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "hub" / "a.parquet")
    index = open_index(tmp_path / "hub", tmp_path / "cache")
    assert [index.extra_row(row) for row in range(3)] == [
        {"width": i, "boxes": [[i, 1]], "when": "2020-01-02"} for i in range(3)
    ]


# Damage, and indexes of other versions.


@pytest.mark.parametrize("name", [EXTRA, "group_names.arrow"])
def test_a_damaged_column_is_named_when_it_is_read(index, tmp_path, name):
    content = bytearray((index.folder / name).read_bytes())
    content[-1] ^= 4
    (index.folder / name).write_bytes(content)
    again = open_index(tmp_path / "shards", tmp_path / "cache")
    with pytest.raises(UserError, match=f"damaged .*{name} was changed since.*remove"):
        again.extra_row(0) if name == EXTRA else again.group_name(0)


@pytest.mark.parametrize(
    "table",
    [
        pa.table({"a": [1, 2, 3]}),
        pa.table({"a": pa.array([b"x"] * 5)}),
        pa.table({"a": pa.array(["x"] * 5).dictionary_encode()}),
        None,
    ],
)
def test_an_arrow_file_of_something_else_is_refused(tmp_path, table):
    if table is None:
        (tmp_path / EXTRA).write_bytes(b"ARROW1\0\0" + bytes(64))
    else:
        file = pa.OSFile(str(tmp_path / EXTRA), "wb")
        with file, pa.ipc.new_file(file, table.schema) as out:
            out.write_table(table)
    with pytest.raises(ValueError, match=r"extra\.arrow"):
        ExtraColumns(tmp_path, 5)


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
def test_a_compressed_file_is_refused_before_it_is_unpacked(tmp_path, codec):
    rows = 2**21
    table = pa.table({"a": pa.repeat(pa.scalar(0), rows), "b": pa.repeat(pa.scalar(True), rows)})
    options = pa.ipc.IpcWriteOptions(compression=codec)
    file = pa.OSFile(str(tmp_path / EXTRA), "wb")
    with file, pa.ipc.new_file(file, table.schema, options=options) as out:
        out.write_table(table)
    assert (tmp_path / EXTRA).stat().st_size < 2**20
    before = pa.total_allocated_bytes()
    with pytest.raises(ValueError, match=r"extra\.arrow is compressed"):
        ExtraColumns(tmp_path, rows)
    assert pa.total_allocated_bytes() - before < 2**20


def test_what_the_footer_says_is_not_read(tmp_path):
    """It may point at other bytes than were looked at; the rows are those of the stream."""
    growing = GrowingExtra()
    growing.add(0, {"a": "x"}, "x")
    growing.save(tmp_path, 1)
    content = (tmp_path / EXTRA).read_bytes()
    (tmp_path / EXTRA).write_bytes(content[: content.rindex(b"ARROW1") - 4])
    assert ExtraColumns(tmp_path, 1).row(0) == {"a": "x"}


@pytest.mark.parametrize("text", ["{", "[" * 100_000, ""])
def test_invalid_json_of_an_index_from_elsewhere_is_named(tmp_path, text):
    schema = pa.schema([pa.field("boxes", pa.string(), True, {b"cfaug": b"json"})])
    file = pa.OSFile(str(tmp_path / EXTRA), "wb")
    with file, pa.ipc.new_file(file, schema) as out:
        out.write_table(pa.table([["[1]", text]], schema=schema))
    extra = ExtraColumns(tmp_path, 2)
    assert extra.row(0) == {"boxes": [1]}
    with pytest.raises(UserError, match=r"column 'boxes' of extra\.arrow holds invalid JSON"):
        extra.row(1)


def test_a_source_without_any_has_none(tmp_path):
    plain = CounterfactualSet("a", "a", (Member("x", "0", "s"),), {"0": noise_image(1)})
    write_shards([plain], tmp_path / "shards")
    index = open_index(tmp_path / "shards", tmp_path / "cache")
    assert not (index.folder / EXTRA).exists()
    assert (index.extra_names, index.extra_row(0)) == ((), {})
    with pytest.raises(UserError, match="no column 'a1': it has none besides image"):
        index.extra("a1")
