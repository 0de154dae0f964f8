"""Released data that is damaged, or holds other types than it should: a sentence, never a crash."""

from __future__ import annotations

import contextlib
import io
import json
import random
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cfaug.core.errors import UserError
from cfaug.data.index import open_index
from cfaug.data.shards.shards import read_sets, write_shards
from cfaug.data.sources import find_reader, import_sets
from tests.data.making import noise_image, pair
from tests.data.released import PAIRS, coco_counterfactuals, edit_lines, image, jpeg, refused
from tests.properties import examples

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(st.characters(codec=None), max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=4,
)
"""Anything that ``json`` writes and reads, lone surrogates included."""


def read(folder: Path, place: Path) -> None:
    """Read a source as training does; anything but a UserError fails the test."""
    try:
        open_index(folder, place)
    except UserError as error:
        assert len(str(error)) < 20_000  # noqa: PT017  # a sentence, not the data


def members(changes: dict[str, Any]) -> pa.Table:
    """Return a set of two as our own export has it, columns of its second row changed."""
    own = [
        {"image_name": str(i), "source_id": "s", "edit": None, "label": None, "extra": {}}
        for i in (0, 1)
    ]
    about = json.dumps({"members": own, "scores": {}, "provenance": {}})
    rows = [
        {"id": "a", "group": "g", "member": i, "image": image(noise_image(i)),
         "caption": f"caption {i}", "about": about}
        for i in (0, 1)
    ]  # fmt: skip
    rows[1] |= changes
    return pa.table({name: [row[name] for row in rows] for name in rows[0]})


def with_column(name: str, value: Any) -> pa.Table:
    """Return the set with one value in both rows of a column."""
    table = members({})
    return table.set_column(table.schema.get_field_index(name), name, pa.array([value, value]))


def laid_out(folder: Path, table: pa.Table) -> Path:
    folder.mkdir(parents=True)
    pq.write_table(table, folder / "all.parquet")
    return folder


def test_the_export_that_is_changed_here_is_read_as_it_is(tmp_path):
    assert len(open_index(laid_out(tmp_path / "set", members({})), tmp_path / "cache")) == 2


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"member": None}, "'member' should be a whole number"),
        ({"member": 0}, "member 1 of 'a' is missing or duplicated"),
        ({"member": 7}, "member 1 of 'a' is missing or duplicated"),
        ({"id": None}, "row 1: the row is invalid"),
        ({"caption": None}, "row 2: 'caption' should be a text"),
    ],
)
def test_a_row_of_our_export_with_another_value(tmp_path, changes, named):
    refused(laid_out(tmp_path / "set", members(changes)), "all.parquet", named)


@pytest.mark.parametrize("name", ["member", "about", "id", "group", "caption", "image"])
@pytest.mark.parametrize("value", [None, {"a": 1}, 2.5, b"\xff", [1], True, "1"])
def test_a_column_of_our_export_of_another_type(tmp_path, name, value):
    folder = laid_out(tmp_path / "set", with_column(name, value))
    read(folder, tmp_path / "cache")
    if name == "about" and value in (None, {"a": 1}):
        refused(folder, "row 1", "about")


@pytest.mark.slow
@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(["members", "scores", "provenance"]), JSON)
def test_any_json_in_about(name, value):
    about = json.loads(members({})["about"][0].as_py()) | {name: value}
    table = with_column("about", json.dumps(about))
    with tempfile.TemporaryDirectory() as place:
        read(laid_out(Path(place) / "set", table), Path(place) / "cache")


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(["image_name", "source_id", "edit", "label", "extra", "more"]), JSON)
def test_any_json_in_a_member(name, value):
    about = json.loads(members({})["about"][0].as_py())
    about["members"][1][name] = value
    table = with_column("about", json.dumps(about))
    with tempfile.TemporaryDirectory() as place:
        read(laid_out(Path(place) / "set", table), Path(place) / "cache")


def test_half_a_character_in_a_line(tmp_path):
    folder = coco_counterfactuals(tmp_path / "coco")
    edit_lines(folder, lambda lines: lines[1].update(caption_1="two \ud800 on skis"))
    refused(folder, "examples.jsonl, line 2", "not Unicode")


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(["id", "caption_0", "caption_1", "image_0", "image_1"]), JSON)
def test_any_json_in_a_line_of_coco_counterfactuals(name, value):
    with tempfile.TemporaryDirectory() as place:
        folder = coco_counterfactuals(Path(place) / "coco")
        edit_lines(folder, lambda lines: lines[1].update({name: value}))
        read(folder, Path(place) / "cache")


def damaged(data: bytes, chance: random.Random) -> bytes:
    """Cut a file short or change up to four of its bytes."""
    if chance.random() < 0.3:
        return data[: chance.randrange(len(data))]
    changed = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        changed[chance.randrange(len(changed))] = chance.randrange(256)
    return bytes(changed)


def pairs_parquet(folder: Path) -> Path:
    row = {"id": "7_0", "image_0": image(noise_image(0)), "image_1": image(noise_image(1)),
           "caption_0": "a cat", "caption_1": "a dog"}  # fmt: skip
    return laid_out(folder, pa.Table.from_pylist([row])) / "all.parquet"


def lzma_zip(folder: Path) -> Path:
    return coco_counterfactuals(folder, compression=zipfile.ZIP_LZMA) / "data" / "images.zip"


def bz2_zip(folder: Path) -> Path:
    return coco_counterfactuals(folder, compression=zipfile.ZIP_BZIP2) / "data" / "images.zip"


def deflated_zip(folder: Path) -> Path:
    return coco_counterfactuals(folder) / "data" / "images.zip"


def examples_file(folder: Path) -> Path:
    return coco_counterfactuals(folder) / "data" / "examples.jsonl"


def our_parquet(folder: Path) -> Path:
    return laid_out(folder, members({})) / "all.parquet"


@pytest.mark.slow
@pytest.mark.parametrize(
    "make", [pairs_parquet, our_parquet, deflated_zip, lzma_zip, bz2_zip, examples_file]
)
def test_a_damaged_file_ends_in_a_sentence(tmp_path, make):
    file = make(tmp_path / "set")
    whole = file.read_bytes()
    for seed in range(80):
        file.write_bytes(damaged(whole, random.Random(seed)))
        read(tmp_path / "set", tmp_path / f"cache{seed}")


def test_a_corrupt_lzma_member(tmp_path):
    file = lzma_zip(tmp_path / "coco")
    with zipfile.ZipFile(file) as archive:
        entry = archive.getinfo("images/397133_1_img_0.jpg")
    data = bytearray(file.read_bytes())
    # After the member's local header and LZMA's own, which has a length of 4 and 5 bytes.
    at = entry.header_offset + 30 + len(entry.filename) + 9
    data[at : at + 40] = b"\xff" * 40
    file.write_bytes(data)
    refused(tmp_path / "coco", "397133_1", "images.zip")


@settings(max_examples=examples(60), deadline=None)
@given(st.sampled_from(["set", "group", "image_name", "source_id", "edit", "label", "extra"]), JSON)
def test_any_json_in_a_shard_of_ours(name, value):
    """A shard that somebody else wrote, read set by set."""
    import io
    import tarfile

    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_shards([pair(0)], folder)
        with tarfile.open(folder / "00000.tar") as tar:
            files = [(e.name, tar.extractfile(e).read()) for e in tar]  # type: ignore[union-attr]
        with tarfile.open(folder / "00000.tar", "w") as tar:
            for file, content in files:
                if file.endswith("_1.json"):
                    content = json.dumps(json.loads(content) | {name: value}).encode()
                entry = tarfile.TarInfo(file)
                entry.size = len(content)
                tar.addfile(entry, io.BytesIO(content))
        commit = json.loads((folder / "00000.json").read_text())
        commit["bytes"] = (folder / "00000.tar").stat().st_size
        (folder / "00000.json").write_text(json.dumps(commit))
        with contextlib.suppress(UserError):
            list(read_sets(folder))
        read(folder, folder / "cache")


def test_a_parquet_without_the_columns_of_its_first_file(tmp_path):
    folder = laid_out(tmp_path / "set", members({}))
    pq.write_table(pa.table({"id": ["b"]}), folder / "more.parquet")
    assert find_reader(folder).imported
    refused(folder, "more.parquet", "no column")


# Importing released data: once, whole or not at all, into shards like any other.


def test_a_released_folder_is_a_source_and_is_imported_once(tmp_path):
    folder, cache = coco_counterfactuals(tmp_path / "coco"), tmp_path / "cache"
    index = open_index(folder, cache)
    assert (index.kind, index.source, len(index)) == ("coco_counterfactuals", str(folder), 6)
    assert index.text(1) == PAIRS[0][2]
    assert index.read_image(5) == jpeg(5)
    assert index.groups[0] == index.groups[2] != index.groups[4]
    (imported,) = cache.glob("imported-*")
    written = (imported / "00000.tar").stat().st_mtime_ns
    assert open_index(folder, cache).hash == index.hash
    assert (imported / "00000.tar").stat().st_mtime_ns == written
    edit_lines(folder, lambda lines: lines.pop())
    assert len(open_index(folder, cache)) == 4


def test_imported_sets_are_shards_like_any_other(tmp_path):
    folder = coco_counterfactuals(tmp_path / "coco")
    write_shards(import_sets(folder), tmp_path / "shards", sets_per_shard=2)
    assert list(read_sets(tmp_path / "shards")) == list(import_sets(folder))
    assert list(import_sets(tmp_path / "shards")) == list(import_sets(folder))


def test_a_cache_that_cannot_be_written(tmp_path):
    folder = coco_counterfactuals(tmp_path / "coco")
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"shards of .*coco cannot be kept .*paths\.cache"):
        open_index(folder, tmp_path / "file" / "cache")


def test_a_killed_import_leaves_nothing_that_counts(tmp_path, monkeypatch):
    folder, cache = coco_counterfactuals(tmp_path / "coco"), tmp_path / "cache"
    whole = open_index(folder, tmp_path / "other").hash
    with monkeypatch.context() as patch:
        # As a kill would leave it.
        patch.setattr("cfaug.core.files.shutil.rmtree", lambda *_, **__: None)
        patch.setattr(Path, "rename", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            open_index(folder, cache)
    assert [f.name[:10] for f in cache.iterdir()] == [".imported-"]
    assert open_index(folder, cache).hash == whole


def test_an_unknown_folder_lists_the_forms(tmp_path):
    (tmp_path / "odd").mkdir()
    with pytest.raises(UserError, match=r"examples\.jsonl and images\.zip(?s:.*)SEED_0\.jpg"):
        import_sets(tmp_path / "odd")
    with pytest.raises(UserError, match="no folder"):
        import_sets(tmp_path / "nowhere")


def test_a_parquet_beside_shards_is_no_source(tmp_path):
    """Candidate logs lie beside our shards, img2dataset's urls beside its tars."""
    folder = coco_counterfactuals(tmp_path / "coco")
    write_shards(import_sets(folder), tmp_path / "shards")
    buffer = io.BytesIO()
    pq.write_table(pa.table({"seed": [1], "accepted": [True]}), buffer)
    (tmp_path / "shards" / "00000.parquet").write_bytes(buffer.getvalue())
    assert open_index(tmp_path / "shards", tmp_path / "cache").kind == "shards"
