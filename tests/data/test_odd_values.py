"""Any JSON, any type and any byte in any place of what a reader reads: read, or a sentence."""

from __future__ import annotations

import datetime
import decimal
import gzip
import json
import random
import shutil
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cfaug.core.errors import UserError
from cfaug.data.index import open_index
from cfaug.data.shards.shards import write_shards
from cfaug.data.sources import find_reader, import_sets
from tests.data.making import noise_image, pair, write_tar
from tests.data.released import coco_counterfactuals, laid_out, members, refused
from tests.data.test_coco import lay_out_coco, lay_out_karpathy
from tests.data.test_layouts import (
    coco_like,
    flickr_results,
    json_list,
    json_names,
    llava,
    pairs_jsonl,
    pairs_listed,
)
from tests.data.test_released_pairs import pix2pix
from tests.properties import examples

MANY = settings(
    max_examples=examples(15), deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)  # fmt: skip
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


def shards(folder: Path) -> None:
    write_shards([pair(0)], folder)


def tar_of_others(folder: Path) -> None:
    shards(folder)
    for name in ("00000.json", "card.json"):
        (folder / name).unlink()


LAYOUTS: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "coco": (lay_out_coco, "annotations/captions_val2017.json", ""),
    "karpathy": (lambda x: lay_out_karpathy(x, coco=False), "dataset_flickr30k.json", ":test"),
    "coco-like": (coco_like, "annotations.json", ""),
    "list": (json_list, "captions.json", ""),
    "names": (json_names, "captions.json", ""),
    "llava": (llava, "blip_laion_3.json", ""),
    "pairs": (pairs_jsonl, "pairs.jsonl", ""),
    "sets": (pairs_listed, "sets.jsonl", ""),
    "prompt": (pix2pix, "0000000/prompt.json", ""),
    "metadata": (pix2pix, "0000000/metadata.jsonl", ""),
    "seeds": (lambda x: pix2pix(x, listed=True), "seeds.json", ""),
    "coco counterfactuals": (coco_counterfactuals, "data/examples.jsonl", ""),
    "commit": (shards, "00000.json", ""),
    "card": (shards, "card.json", ""),
}
"""{name: what lays the folder out, the file that is changed, how the source is named}."""


@pytest.fixture(scope="module", params=LAYOUTS)
def layout(request, tmp_path_factory):
    lay_out, file, named = LAYOUTS[request.param]
    folder = tmp_path_factory.mktemp("layout") / "x"
    lay_out(folder)
    assert len(open_index(f"{folder}{named}", folder.parent / "cache"))
    return folder, file, named


def with_any(about: Any, seed: int, value: Any) -> Any:
    """Return JSON with a value in one place of it, or in place of all of it."""

    def places(container: Any) -> Iterator[tuple[Any, Any]]:
        for key in range(len(container)) if isinstance(container, list) else list(container):
            yield container, key
            if isinstance(container[key], list | dict):
                yield from places(container[key])

    whole = {"whole": about}
    container, key = random.Random(seed).choice(list(places(whole)))
    container[key] = value
    return whole["whole"]


def read(source: Path | str, place: Path | str) -> None:
    """Read a source in every way; anything but a UserError fails the test."""
    for way in (lambda: open_index(source, Path(place) / "cache"),
                lambda: list(import_sets(Path(str(source))))):  # fmt: skip
        try:
            way()
        except UserError as error:
            assert len(str(error)) < 20_000  # noqa: PT017  # a sentence, not the data


@MANY
@given(seed=st.integers(0, 2**32), value=JSON)
def test_any_json_in_any_place(layout, seed, value):
    folder, file, named = layout
    text = (folder / file).read_text()
    if file.endswith("l"):
        records = with_any([json.loads(line) for line in text.splitlines()], seed, value)
        lines = records if isinstance(records, list) else [records]
    else:
        lines = [with_any(json.loads(text), seed, value)]
    with tempfile.TemporaryDirectory() as place:
        copy = Path(place) / folder.name
        shutil.copytree(folder, copy)
        (copy / file).write_text("\n".join(map(json.dumps, lines)))
        read(f"{copy}{named}", place)


NAMES = ("set", "member", "group", "label", "edit", "caption", "image_name", "source_id", "extra",
         "x")  # fmt: skip


@pytest.mark.parametrize("committed", [True, False])
@MANY
@given(name=st.sampled_from(NAMES), value=JSON)
def test_any_json_in_a_member_of_a_tar(committed, name, value):
    """Of a shard that says it is one of ours, and of a tar of others."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "x"
        shards(folder) if committed else tar_of_others(folder)
        with tarfile.open(folder / "00000.tar") as tar:
            files = {entry.name: tar.extractfile(entry).read() for entry in tar}
        about = json.loads(files["pair-00000_1.json"]) | {name: value}
        files["pair-00000_1.json"] = json.dumps(about).encode()
        if name == "caption":
            del files["pair-00000_1.txt"]
        size = write_tar(folder / "00000.tar", files).stat().st_size
        if committed:
            commit = json.loads((folder / "00000.json").read_text()) | {"bytes": size}
            (folder / "00000.json").write_text(json.dumps(commit))
        read(folder, place)


def with_column(name: str, value: Any) -> pa.Table:
    """Return a set of our export with one value in both rows of a column."""
    table = members({})
    return table.set_column(table.schema.get_field_index(name), name, pa.array([value, value]))


@MANY
@given(seed=st.integers(0, 2**32), value=JSON)
def test_any_json_in_what_our_export_says_of_a_set(seed, value):
    about = with_any(json.loads(members({})["about"][0].as_py()), seed, value)
    with tempfile.TemporaryDirectory() as place:
        read(laid_out(Path(place) / "set", with_column("about", json.dumps(about))), place)


IMAGE = [{"bytes": noise_image(i), "path": None} for i in (0, 1)]
COLUMNS: dict[str, dict[str, list[Any]]] = {
    "labelled": {"image": IMAGE, "label": ["a", "b"], "text": ["x", "y"]},
    "captioned": {"image": IMAGE, "caption": ["x", "y"], "group": ["1", "2"]},
    "pairs": {"id": ["a", "b"], "image_0": IMAGE, "image_1": IMAGE, "caption_0": ["x", "y"],
              "caption_1": ["v", "w"], "about": [None, None]},
    "social": {"image": IMAGE, "dataset_segment": ["s", "s"], "counterfactual_set": ["1", "1"],
               "a1_type": ["r", "r"], "a2_type": ["g", "g"], "caption": ["A p q r", "A t q r"],
               "a1": ["p", "t"], "a2": ["q", "q"]},
    "members": members({}).to_pydict(),
}  # fmt: skip
VALUES = (
    None, True, 3, float("nan"), b"\xff\xfe", "", "x", ["x", None], [], {"a": 1},
    {"bytes": None, "path": "a.png"}, {"bytes": b"no image", "path": None},
    datetime.datetime(1, 1, 1), decimal.Decimal("1.5"),
)  # fmt: skip
"""Also of types that JSON does not know."""


@pytest.mark.slow
@pytest.mark.parametrize("form", COLUMNS)
def test_a_column_of_another_type(tmp_path, form):
    columns = COLUMNS[form]
    source = laid_out(tmp_path / "whole", pa.table(columns))
    assert find_reader(source).imported
    assert len(open_index(source, tmp_path / "cache")) >= 2
    for name in columns:
        tables = [pa.table(columns | {name: pa.array([value, value])}) for value in VALUES]
        tables.append(pa.table(columns | {name: [columns[name][0], None]}))
        for number, table in enumerate(tables):
            folder = tmp_path / f"{name}{number}"
            read(laid_out(folder / "x", table), folder)


@pytest.mark.parametrize(
    ("table", "named"),
    [
        (members({"member": None}), "'member' should be a whole number"),
        (members({"member": 0}), "member 1 of 'a' is missing or duplicated"),
        (members({"id": None}), "row 1: the row is invalid"),
        (members({"caption": None}), "row 2: 'caption' should be a text"),
        (with_column("about", None), "row 1"),
        (with_column("about", {"a": 1}), "row 1"),
    ],
)
def test_a_row_of_our_export_with_another_value_is_named(tmp_path, table, named):
    refused(laid_out(tmp_path / "set", table), "all.parquet", named)


def damaged(data: bytes, chance: random.Random) -> bytes:
    """Cut a file short or change up to four of its bytes."""
    if chance.random() < 0.3:
        return data[: chance.randrange(len(data))]
    changed = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        changed[chance.randrange(len(changed))] = chance.randrange(256)
    return bytes(changed)


def zipped(compression: int) -> Callable[[Path], Path]:
    return lambda folder: coco_counterfactuals(folder, compression=compression)


FILES: dict[str, tuple[Callable[[Path], object], str]] = {
    "pairs": (lambda x: laid_out(x, pa.table(COLUMNS["pairs"])), "all.parquet"),
    "our export": (lambda x: laid_out(x, members({})), "all.parquet"),
    "deflated": (zipped(zipfile.ZIP_DEFLATED), "data/images.zip"),
    "lzma": (zipped(zipfile.ZIP_LZMA), "data/images.zip"),
    "bz2": (zipped(zipfile.ZIP_BZIP2), "data/images.zip"),
    "lines": (coco_counterfactuals, "data/examples.jsonl"),
    "csv": (flickr_results, "results.csv"),
    "shard": (shards, "00000.tar"),
    "tar": (tar_of_others, "00000.tar"),
}
"""{name: what lays the folder out, the file that is damaged}."""


@pytest.mark.parametrize("name", FILES)
def test_a_damaged_file_ends_in_a_sentence(tmp_path, name):
    lay_out, file = FILES[name]
    lay_out(tmp_path / "x")
    whole = (tmp_path / "x" / file).read_bytes()
    for seed in range(15):
        (tmp_path / "x" / file).write_bytes(damaged(whole, random.Random(seed)))
        read(tmp_path / "x", tmp_path / f"place{seed}")


def test_a_corrupt_lzma_member_is_named(tmp_path):
    file = zipped(zipfile.ZIP_LZMA)(tmp_path / "coco") / "data" / "images.zip"
    with zipfile.ZipFile(file) as archive:
        entry = archive.getinfo("images/397133_1_img_0.jpg")
    data = bytearray(file.read_bytes())
    # After the member's local header and LZMA's own, which has a length of 4 and 5 bytes.
    at = entry.header_offset + 30 + len(entry.filename) + 9
    data[at : at + 40] = b"\xff" * 40
    file.write_bytes(data)
    refused(tmp_path / "coco", "397133_1", "images.zip")


def test_a_set_called_by_a_number(tmp_path):
    about = json.dumps({"set": 7, "member": 0}).encode()
    files = {"a_0.png": noise_image(0), "a_0.json": about, "a_0.txt": b"a cat"}
    write_tar(tmp_path / "x" / "00000.tar", files)
    assert open_index(tmp_path / "x", tmp_path / "cache").key(0) == "7_0"


@pytest.mark.parametrize("number", [0, "0", 0.0])
def test_a_group_called_zero_is_a_group(tmp_path, number):
    lines = [{"image": f"{i}.png", "caption": "a cat", "group": number} for i in (1, 2)]
    (tmp_path / "list").mkdir()
    for i in (1, 2):
        (tmp_path / "list" / f"{i}.png").write_bytes(noise_image(i))
    (tmp_path / "list" / "captions.json").write_text(json.dumps(lines))
    about = json.dumps({"group": number}).encode()
    write_tar(
        tmp_path / "tar" / "00000.tar", {"a.png": noise_image(0), "a.json": about, "a.txt": b"a"}
    )
    for folder in ("list", "tar"):
        index = open_index(tmp_path / folder, tmp_path / "cache")
        assert {index.group_name(row) for row in range(len(index))} == {"0"}


def test_a_mark_of_byte_order_is_no_part_of_a_text(tmp_path):
    mark, text = "\ufeff", "a cat\u2028in the sun"
    folder = tmp_path / "beside"
    folder.mkdir()
    (folder / "a.png").write_bytes(noise_image(0))
    (folder / "a.txt").write_text(f"{mark}{text}\r\na dog", encoding="utf-8")
    about = f'{mark}{{"x": 1}}'.encode()
    sample = {"a.png": noise_image(0), "a.txt": f"{mark}{text}".encode(), "a.json": about}
    write_tar(tmp_path / "tar" / "00000.tar", {**sample, "b.png": noise_image(1), "b.cls": b"0"})
    (tmp_path / "tar" / "classnames.txt").write_text(f"{mark}cow", encoding="utf-8")
    for name, other in (("beside", "a dog"), ("tar", "a photo of a cow")):
        index = open_index(tmp_path / name, tmp_path / "cache")
        assert [index.text(row) for row in range(2)] == ["a cat in the sun", other]


def test_a_line_about_no_image_of_two_folders_is_refused(tmp_path):
    for i, side in enumerate(("real", "cf")):
        (tmp_path / "x" / side).mkdir(parents=True)
        (tmp_path / "x" / side / "a.png").write_bytes(noise_image(i))
    lines = "image,caption,cf_caption\na.png,a cat,a dog\nb.png,a cow,a pig\n"
    (tmp_path / "x" / "captions.csv").write_text(lines)
    with pytest.raises(UserError, match=r"captions\.csv, line 3: there is no image 'b'"):
        open_index(tmp_path / "x", tmp_path / "cache")


def test_edited_captions_alone_are_no_source_and_say_what_draws_them(tmp_path):
    (tmp_path / "x" / "captions").mkdir(parents=True)
    (tmp_path / "x" / "captions" / "00000.jsonl").write_text("{}\n")
    with pytest.raises(UserError, match=r"generate\.py stage=images paths\.shards="):
        open_index(tmp_path / "x", tmp_path / "cache")


def test_equal_keys_in_parquet_are_refused_by_the_name_of_the_source(tmp_path):
    images = [{"bytes": noise_image(i), "path": f"{i}.png"} for i in range(4)]
    columns = {"image": images[:2], "cf_image": images[2:], "id": [5, 5]}
    table = pa.table({**columns, "caption": ["a", "b"], "cf_caption": ["c", "d"]})
    (tmp_path / "x").mkdir()
    pq.write_table(table, tmp_path / "x" / "pairs.parquet")
    with pytest.raises(UserError) as caught:
        open_index(tmp_path / "x", tmp_path / "cache")
    assert str(caught.value).startswith(f"{tmp_path / 'x'}: the set key '5'")


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet"])
def test_ids_that_pandas_made_floats_are_whole_numbers_and_nan_is_none(tmp_path, kind):
    """A photo of a list with gaps is that of a list without: the holdout goes by group."""
    groups = []
    for name, ids in (("whole", (7, 7, None)), ("floats", (7.0, 7.0, float("nan")))):
        folder = tmp_path / name
        folder.mkdir()
        for i in range(3):
            (folder / f"{i}.png").write_bytes(noise_image(i))
        rows = [
            {"image": f"{i}.png", "caption": f"a cat {i}", "image_id": of}
            for i, of in enumerate(ids)
        ]
        if kind == "jsonl":
            (folder / "captions.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
        elif kind == "csv":
            first, second = ids[:2]  # pandas leaves the cell of a missing id empty
            lines = f"0.png,a cat 0,{first}\n1.png,a cat 1,{second}\n2.png,a cat 2,\n"
            (folder / "captions.csv").write_text(f"image,caption,image_id\n{lines}")
        else:
            images = [{"bytes": noise_image(i), "path": None} for i in range(3)]
            table = pa.table({"image": images, "text": ["a", "b", "c"], "image_id": list(ids)})
            pq.write_table(table, folder / "all.parquet")
        groups.append(open_index(folder, tmp_path / "cache").groups.tolist())
    assert groups[0] == groups[1]
    assert len({*groups[0]}) == 2


def test_released_ids_that_pandas_made_floats(tmp_path):
    folder = coco_counterfactuals(tmp_path / "released")
    file = folder / "data" / "examples.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    file.write_text("".join(json.dumps({**line, "id": 7.0}) + "\n" for line in lines[:1]))
    assert [cf_set.key for cf_set in import_sets(folder)] == ["7"]


@pytest.mark.parametrize("name", ["captions.jsonl.gz", "train.CSV.GZ", "captions.tsv.zst"])
@pytest.mark.parametrize("sidecar", [False, True])
def test_a_compressed_list_is_not_passed_over(tmp_path, name, sidecar):
    images = tmp_path / "images"
    images.mkdir()
    for number in range(2):
        (images / f"{number}.png").write_bytes(noise_image(number))
        if sidecar:
            (images / f"{number}.txt").write_text(f"photo {number}")
    (images / name).write_bytes(gzip.compress(b"image,caption\n0.png,a dog\n"))
    for source in (images, images / name):
        with pytest.raises(UserError, match=rf"{name} is compressed, .*: unpack or remove it"):
            find_reader(source)


@pytest.mark.parametrize("listed", ["CAFE\u0301.png", "caf\u00e9", "caf\u00e9.jpg"])
def test_a_photo_of_nearly_the_listed_name_is_named(tmp_path, listed):
    (tmp_path / "cafe\u0301.png").write_bytes(noise_image(0))
    (tmp_path / "captions.csv").write_text(f"image,caption\n{listed},a dog\n")
    with pytest.raises(UserError, match=r"no image.*'cafe\u0301.png' differs from it in case"):
        open_index(tmp_path, tmp_path / "cache")
