"""``data.fields``: a source whose columns have names of its own is that with the usual ones."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfaug.core.errors import UserError
from cfaug.data.index import Index, open_index
from cfaug.data.sources import class_folders, columns, edit_lists, xmai
from cfaug.data.sources.fields import ALSO, IGNORED, KNOWN, FieldNames, read_fields, reading_by
from cfaug.data.sources.splits import may_be_split
from cfaug.generate.source import read_captions
from tests.data import edits, layouts
from tests.data.making import noise_image, write_tar
from tests.properties import examples
from tests.scripts import ROOT

Record = dict[str, Any]
Write = Callable[[Path, Sequence[Record]], Path]
SPLITS = ("train", "test", "test", "train")


def pictures(folder: Path) -> None:
    for number in range(8):
        edits.put(folder, f"{number}.png")


def as_table(ending: str, mark: str = ",") -> Write:
    def write(folder: Path, records: Sequence[Record]) -> Path:
        pictures(folder)
        lines = [[str(value) for value in record.values()] for record in records]
        layouts.table(folder / f"list{ending}", list(records[0]), lines, mark)
        return folder / f"list{ending}"

    return write


def as_lines(folder: Path, records: Sequence[Record]) -> Path:
    pictures(folder)
    layouts.jsonl(folder / "list.jsonl", records)
    return folder / "list.jsonl"


def as_json(folder: Path, records: Sequence[Record]) -> Path:
    pictures(folder)
    (folder / "list.json").write_text(json.dumps(records))
    return folder / "list.json"


def as_parquet_list(folder: Path, records: Sequence[Record]) -> Path:
    pictures(folder)
    pq.write_table(pa.Table.from_pylist(list(records)), folder / "list.parquet")
    return folder / "list.parquet"


def as_parquet(folder: Path, records: Sequence[Record]) -> Path:
    folder.mkdir(exist_ok=True)
    pq.write_table(pa.Table.from_pylist(list(records)), folder / "rows.parquet")
    return folder


def as_tar(folder: Path, records: Sequence[Record]) -> Path:
    members = {}
    for number, record in enumerate(records):
        members[f"{number:05d}.png"] = noise_image(number)
        members[f"{number:05d}.json"] = json.dumps(record).encode()
    folder.mkdir(exist_ok=True)
    write_tar(folder / "00000.tar", members)
    return folder


def cell(number: int) -> Record:
    return {"bytes": noise_image(number), "path": f"{number}.png"}


TEXTS = ("a dog", "a red bus, parked", "two cats", "a hat")
CAPTIONED = [
    {"image": f"{n}.png", "caption": text, "group": f"p{n // 2}", "split": split, "note": n}
    for n, (text, split) in enumerate(zip(TEXTS, SPLITS, strict=True))
]
LABELLED = [
    {"image": f"{n}.png", "label": ("cat", "dog")[n % 2], "split": SPLITS[n]} for n in range(4)
]
PAIRED = [
    {"image_0": f"{n}.png", "caption_0": TEXTS[n], "image_1": f"{n + 4}.png",
     "caption_1": f"{TEXTS[n]} at night", "id": f"s{n}", "split": SPLITS[n]}
    for n in range(4)
]  # fmt: skip
CHANGED = [
    {"image": f"{n}.png", "caption": TEXTS[n], "cf_image": f"{n + 4}.png",
     "cf_caption": f"{TEXTS[n]} at night", "neg_caption": "a hat", "split": SPLITS[n]}
    for n in range(3)
]  # fmt: skip
EDITED = [
    {"photo": f"{n}.png", "edit": f"{n + 4}.png", "kind": "fog", "label": ("cat", "dog")[n % 2],
     "before": "sun", "after": "fog", "severity": n, "split": SPLITS[n]}
    for n in range(4)
]  # fmt: skip
IN_CELLS = [{**r, "image": cell(n)} for n, r in enumerate(CAPTIONED)]
CLASSES_IN_CELLS = [{**r, "image": cell(n)} for n, r in enumerate(LABELLED)]
PAIRS_IN_CELLS = [
    {**r, "image_0": cell(n), "image_1": cell(n + 4), "group": "g"} for n, r in enumerate(PAIRED)
]
IN_TARS = [{k: v for k, v in r.items() if k != "image"} for r in CAPTIONED]
CLASSES_IN_TARS = [{k: v for k, v in r.items() if k != "image"} for r in LABELLED]
FLAT = {"csv": as_table(".csv"), "tsv": as_table(".tsv", "\t"), "bars": as_table(".csv", "|")}
NESTED = {"jsonl": as_lines, "json": as_json, "parquet_list": as_parquet_list}
ROWS = {"captions": CAPTIONED, "changed": CHANGED, "edits": EDITED}
FORMS: dict[str, tuple[Write, Sequence[Record], bool]] = {
    **{f"{name}-{kind}": (write, rows, False) for name, write in FLAT.items()
       for kind, rows in {**ROWS, "labels": LABELLED, "pairs": PAIRED}.items()},
    **{f"{name}-{kind}": (write, rows, True) for name, write in NESTED.items()
       for kind, rows in ROWS.items()},
    "jsonl-labels": (as_lines, LABELLED, True),
    "jsonl-pairs": (as_lines, PAIRED, True),
    "parquet-captions": (as_parquet, IN_CELLS, True),
    "parquet-labels": (as_parquet, CLASSES_IN_CELLS, True),
    "parquet-pairs": (as_parquet, PAIRS_IN_CELLS, True),
    "tar-captions": (as_tar, IN_TARS, True),
    "tar-labels": (as_tar, CLASSES_IN_TARS, True),
}  # fmt: skip
"""{form: what writes it, its records under the usual names, whether objects may lie inside}."""


def content(index: Index) -> list[tuple[object, ...]]:
    of = (index.key, index.group_name, index.text, index.label, index.extra_row, index.read_image)
    return [tuple(part(row) for part in of) for row in range(len(index))]


def under_own_names(record: Mapping[str, Any], fields: Mapping[str, str]) -> Record:
    """Return a record whose values lie where ``fields`` say, in objects if there are dots."""
    moved: Record = {}
    for name, value in record.items():
        *outer, last = fields.get(name, name).split(".")
        inside = moved
        for part in outer:
            inside = inside.setdefault(part, {})
        inside[last] = value
    return moved


def opened(source: Path, fields: Mapping[str, Any] | None, cache: Path) -> Index:
    with reading_by(fields):
        return open_index(source, cache)


WORDS = st.text("abyzéß_- XY0", min_size=1, max_size=8).map(lambda text: f"my {text.strip()}x")


@st.composite
def own_names(draw: st.DrawFn, standard: Sequence[str], nested: bool) -> dict[str, str]:
    some = draw(st.lists(st.sampled_from(standard), min_size=1, unique=True))
    words = draw(st.lists(WORDS, min_size=len(some), max_size=len(some), unique=True))
    outer = [draw(st.sampled_from(["", "", "meta.", "meta.deep."])) if nested else "" for _ in some]
    return {name: f"{o}{word}" for name, o, word in zip(some, outer, words, strict=True)}


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_own_names_give_the_index_of_the_usual_ones(form):
    write, records, nested = FORMS[form]

    @settings(max_examples=examples(12), deadline=None)
    @given(own_names([name for name in records[0] if name != "note"], nested), st.booleans())
    def check(fields: dict[str, str], named: bool) -> None:
        with tempfile.TemporaryDirectory() as folder:
            home = Path(folder).resolve()
            usual = write(home / "usual", records)
            source = write(home / "own", [under_own_names(record, fields) for record in records])
            part = ":test" if named else ":train+test"
            cache = home / "cache"
            expected = open_index(usual.with_name(usual.name + part), cache)
            index = opened(source.with_name(source.name + part), fields, cache)
            assert content(index) == content(expected)
            assert index.kind == expected.kind
            assert len(index) > 0
            assert index.reading is not None
            assert set(index.reading.renamed) == {f"{n}={c}" for n, c in fields.items()}
            assert {*fields.values()} <= {*index.reading.columns}
            again = opened(source.with_name(source.name + part), fields, cache)
            assert again.folder == index.folder
            assert again.reading == index.reading

    check()


def plain(records: Sequence[Record], fields: Mapping[str, str], write: Write, home: Path) -> Path:
    return write(home / "own", [under_own_names(record, fields) for record in records])


@pytest.mark.parametrize(("form", "fields"), [
    ("csv-captions", {"caption": "headline", "image": "picture", "group": "who", "split": "part"}),
    ("jsonl-captions", {"text": "about.headline", "image": "about.picture"}),
    ("parquet-labels", {"label": "about.species", "image": "picture"}),
    ("tar-captions", {"caption": "about.headline", "split": "about.part"}),
    ("jsonl-pairs", {"image_0": "one", "caption_0": "two", "image_1": "x.three", "caption_1": "f"}),
    ("csv-edits", {"edit_kind": "what", "before": "was", "after": "is", "photo": "one"}),
])  # fmt: skip
def test_a_list_of_somebody(form, fields, tmp_path):
    write, records, _ = FORMS[form]
    moved = {ALSO.get(name, name): column for name, column in fields.items()}
    source = plain(records, moved, write, tmp_path)
    usual = write(tmp_path / "usual", records)
    cache = tmp_path / "cache"
    expected = open_index(usual.with_name(f"{usual.name}:test"), cache)
    assert content(opened(source.with_name(f"{source.name}:test"), fields, cache)) == content(
        expected
    )


def test_classes_by_number_have_the_names_of_the_schema(tmp_path):
    rows = [{"about": {"species": n % 2}, "picture": cell(n)} for n in range(4)]
    features = {"about": {"species": {"names": ["ant", "bee"], "_type": "ClassLabel"}}}
    table = pa.Table.from_pylist(rows).replace_schema_metadata(
        {"huggingface": json.dumps({"info": {"features": features}})}
    )
    pq.write_table(table, tmp_path / "test.parquet")
    fields = {"label": "about.species", "image": "picture"}
    index = opened(tmp_path, fields, tmp_path / "cache")
    assert [index.label(row) for row in range(4)] == ["ant", "bee", "ant", "bee"]


def test_columns_that_are_ignored_are_as_if_they_were_not_there(tmp_path):
    records = [{**record, "text": "of another model", "title": 3} for record in CAPTIONED]
    source = as_lines(tmp_path / "own", records)
    usual = as_lines(tmp_path / "usual", CAPTIONED)
    part = ":test"
    expected = open_index(usual.with_name(usual.name + part), tmp_path / "cache")
    fields = {IGNORED: ["text", "title"]}
    index = opened(source.with_name(source.name + part), fields, tmp_path / "cache")
    assert content(index) == content(expected)
    assert index.reading is not None
    assert index.reading.renamed == ("ignored=text", "ignored=title")


def test_of_a_sample_with_a_text_the_named_field_is_read_if_the_text_is_ignored(tmp_path):
    about = json.dumps({"re_caption": "a better text"}).encode()
    members = {"0.png": noise_image(0), "0.txt": b"a text", "0.json": about}
    write_tar(tmp_path / "tars/0.tar", members)
    fields = {"caption": "re_caption"}
    with pytest.raises(
        UserError, match=r"0\.tar has 're_caption', .*and '\.txt' beside it"
    ) as error:
        opened(tmp_path / "tars", fields, tmp_path / "cache")
    assert str(error.value).count("which is meant") == 1
    index = opened(tmp_path / "tars", {**fields, IGNORED: ".txt"}, tmp_path / "cache")
    assert index.text(0) == "a better text"
    assert open_index(tmp_path / "tars", tmp_path / "cache").text(0) == "a text"


def test_two_columns_may_change_places(tmp_path):
    rows = [{**r, "caption": r["note"], "note": r["caption"]} for r in CAPTIONED]
    source = as_lines(tmp_path, [{**r, "caption": f"number {r['caption']}"} for r in rows])
    fields = {"caption": "note", IGNORED: "caption"}
    index = opened(source.with_name(f"{source.name}:test"), fields, tmp_path / "cache")
    assert [index.text(row) for row in range(2)] == ["a red bus, parked", "two cats"]
    swapped = {"original": "modified", "modified": "original"}
    record = {"original": "a", "modified": "b"}
    assert FieldNames(swapped).apply(record, source) == {"modified": "a", "original": "b"}


@pytest.mark.parametrize(("form", "write"), [
    ("csv", as_table(".csv")), ("jsonl", as_lines), ("parquet", as_parquet_list), ("tar", as_tar),
])  # fmt: skip
@pytest.mark.parametrize("beside", ["caption", "Caption", "text"])
def test_a_column_that_also_has_its_usual_name_is_asked_about(form, write, beside, tmp_path):
    rows = [{"image": r["image"], "headline": r["caption"], beside: "x"} for r in CAPTIONED]
    source = write(tmp_path / "own", rows)
    expected = rf"has 'headline', which data.fields reads as caption, and '{beside}' beside it"
    with pytest.raises(UserError, match=expected) as error:
        opened(source, {"caption": "headline"}, tmp_path / "cache")
    assert f"add ignored: {beside}" in str(error.value)
    fields = {"caption": "headline", IGNORED: beside}
    assert opened(source, fields, tmp_path / "cache").text(0) == TEXTS[0]


def test_columns_of_different_lines_count_as_well(tmp_path):
    rows = [{"image": "0.png", "headline": "a"}, {"image": "1.png", "caption": "b"}]
    source = as_lines(tmp_path, rows)
    with pytest.raises(UserError, match="and 'caption' beside it: which is meant"):
        opened(source, {"caption": "headline"}, tmp_path / "cache")


@pytest.mark.parametrize(("fields", "message"), [
    ({"captoin": "title"}, "knows a column 'captoin': did you mean caption?"),
    ({"kindd": "x"}, "did you mean kind?"),
    ({"image_x": "a"}, "knows a column 'image_x'"),
    ({"caption": "a", "text": "b"}, "names caption twice"),
    ({"caption": ["a", "b"]}, "should be the name of one column"),
    ({"caption": "a", IGNORED: ["a"]}, "a is both read and ignored"),
])  # fmt: skip
def test_fields_that_mean_nothing_are_refused(fields, message):
    with pytest.raises(UserError, match=message):
        read_fields(fields)


def test_an_error_names_the_missing_column_and_those_there_are_the_nearest_first(tmp_path):
    rows = [{"foto": r["image"], "size": 3, "headline": r["caption"]} for r in CAPTIONED]
    source = as_table(".csv")(tmp_path / "own", rows)
    with pytest.raises(UserError) as error:
        opened(source, {"caption": "hedline", "image": "foto"}, tmp_path / "cache")
    first, second = str(error.value).split("\n")
    assert first == (
        f"data.fields: no column 'hedline' (did you mean headline?); {source} has headline, "
        "foto, size"
    )
    assert "none of the columns caption" in second
    assert second.endswith("(read with data.fields: image=foto)")


def test_every_name_is_one_that_a_reader_knows():
    special = {"objects", "attributes", "hypothesis", "premise", "detections", IGNORED}
    known = {
        *columns.IMAGE, *columns.CAPTION, *columns.GROUP, *columns.SETS, *columns.PHOTO,
        *columns.EDIT, *columns.EDIT_LISTS, *class_folders.LABEL, *edit_lists.KIND,
        *edit_lists.BEFORE, *edit_lists.AFTER, *edit_lists.SEVERITY, *edit_lists.RECONSTRUCTED,
        "id", *special,
    }  # fmt: skip
    for name in (*KNOWN, *ALSO):
        place = columns._place(name, columns.IMAGE) or columns._place(name, columns.CAPTION)
        in_source = name in Path(xmai.__file__).read_text()
        assert name in known or place or may_be_split(name) or in_source, name


def test_the_page_lists_every_name():
    text = (ROOT / "docs/data.md").read_text().partition("## Columns with other names")[2]
    table = text.partition("| usual names |")[2].partition("\n\n")[0]
    assert {*KNOWN, *ALSO} - {"class"} <= set(re.findall(r"`(\w+)[`:]", table))


def test_an_object_that_is_null_is_a_column_that_is_null(tmp_path):
    rows = [{"about": {"text": "a dog"}, "image": "0.png"}, {"about": None, "image": "1.png"}]
    for write in (as_lines, as_parquet_list):
        source = write(tmp_path / write.__name__, rows)
        with pytest.raises(UserError, match=r"(line|row) 2: the caption is missing"):
            opened(source, {"caption": "about.text"}, tmp_path / "cache")


def test_every_entailment_parquet_of_somebody(tmp_path):
    rows = [
        {"picture": cell(0), "says": {"hypothesis": text, "gold": label}}
        for text, label in (("a dog", "entailment"), ("a cat", "contradiction"))
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "test.parquet")
    fields = {"image": "picture", "hypothesis": "says.hypothesis", "label": "says.gold"}
    index = opened(tmp_path, fields, tmp_path / "cache")
    assert index.kind == "entailment_parquet"
    assert [index.label(row) for row in range(2)] == ["entailment", "contradiction"]


def test_a_list_with_special_columns_of_somebody(tmp_path):
    edits.put(tmp_path, "7.png")
    lines = [("7.png", "A dog runs.", "A wet dog runs.")]
    layouts.table(tmp_path / "eda.csv", ("pic", "was", "is"), lines)
    fields = {"file": "pic", "original": "was", "modified": "is"}
    index = opened(tmp_path / "eda.csv", fields, tmp_path / "cache")
    assert index.kind == "modified_captions"
    assert [index.text(row) for row in range(2)] == ["A dog runs.", "A wet dog runs."]


def test_one_column_may_have_two_names(tmp_path):
    rows = [{"file": r["image"], "words": r["caption"]} for r in CAPTIONED]
    fields = {"image": "file", "group": "file", "caption": "words"}
    index = opened(as_lines(tmp_path, rows), fields, tmp_path / "cache")
    assert [index.group_name(row) for row in range(2)] == ["0.png", "1.png"]


def test_without_fields_caches_and_records_are_those_of_before(tmp_path):
    source = as_lines(tmp_path / "own", CAPTIONED)
    source = source.with_name(f"{source.name}:test")
    index = open_index(source, tmp_path / "cache")
    assert index.folder == opened(source, None, tmp_path / "cache").folder
    assert index.reading is not None
    assert not {"renamed", "columns"} & index.reading.json().keys()
    with reading_by({"label": "no such column"}):
        other = open_index(source, tmp_path / "cache")
    assert other.folder != index.folder
    assert content(other) == content(index)


def test_imported_shards_are_read_by_our_names(tmp_path):
    source = as_parquet(
        tmp_path / "own", [under_own_names(r, {"caption": "set"}) for r in IN_CELLS]
    )
    source = source.with_name("own:test")
    first = opened(source, {"caption": "set", "group": "group"}, tmp_path / "cache")
    assert [first.text(row) for row in range(2)] == ["a red bus, parked", "two cats"]
    assert first.reading is not None
    assert first.reading.renamed == ("caption=set", "group=group")


def test_a_list_of_captions_for_generation(tmp_path):
    file = tmp_path / "captions.jsonl"
    layouts.jsonl(file, [{"says": {"en": text}, "photo": f"p{n}"} for n, text in enumerate(TEXTS)])
    with reading_by({"caption": "says.en", "group": "photo"}) as names:
        captions = read_captions(file).captions
    assert [example.text for example in captions] == list(TEXTS)
    assert captions[1].group == "p1"
    assert names.renamed == ("caption=says.en", "group=photo")


def test_the_renamed_record_is_that_of_a_plain_copy(tmp_path):
    """Compare with the slow rule: move each value by its path, then drop emptied objects."""
    keys = st.sampled_from(["a", "b", "a.b", "c"])
    values = st.recursive(
        st.integers(), lambda v: st.dictionaries(keys, v, max_size=3), max_leaves=6
    )

    @settings(max_examples=examples(200), deadline=None)
    @given(st.dictionaries(keys, values, max_size=4), st.sampled_from(["a", "b", "a.b", "c.a.b"]))
    def check(record: Record, column: str) -> None:
        renamed = FieldNames({"caption": column}).apply(record, tmp_path)
        value, path = find(record, column)
        if path is None:
            assert renamed == record
            return
        assert renamed["caption"] == value
        assert {k: v for k, v in renamed.items() if k != "caption"} == drop(record, path)

    check()


def find(record: Any, column: str) -> tuple[Any, tuple[str, ...] | None]:
    if column in record:
        return record[column], (column,)
    for key, inner in record.items():
        if isinstance(inner, dict) and column.startswith(f"{key}."):
            value, path = find(inner, column.removeprefix(f"{key}."))
            if path is not None:
                return value, (key, *path)
    return None, None


def drop(record: Record, path: tuple[str, ...]) -> Record:
    first, *rest = path
    kept = dict(record)
    if not rest:
        del kept[first]
        return kept
    kept[first] = drop(kept[first], tuple(rest))
    if not kept[first]:
        del kept[first]
    return kept
