"""Any JSON in any place of any file that a reader reads: read or refused by a sentence."""

from __future__ import annotations

import json
import random
import shutil
import tempfile
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
from tests.data.test_coco import lay_out_coco, lay_out_karpathy
from tests.data.test_damaged_imports import JSON
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

SLOW = settings(
    max_examples=examples(30), deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)  # fmt: skip

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
}


@pytest.fixture(scope="module", params=LAYOUTS)
def layout(request, tmp_path_factory):
    lay_out, file, named = LAYOUTS[request.param]
    folder = tmp_path_factory.mktemp(request.param) / "x"
    folder.mkdir()
    if lay_out in (coco_like, json_list, json_names, llava, pairs_jsonl, pairs_listed, pix2pix):
        folder.rmdir()
    lay_out(folder)
    return folder, file, named


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield (container, key) of everything in a JSON value."""
    for key in range(len(value)) if isinstance(value, list) else list(value):
        yield value, key
        if isinstance(value[key], list | dict):
            yield from places(value[key])


def read(source: Path | str, place: str) -> None:
    """Read a source in every way; anything but a UserError fails the test."""
    for way in (lambda: open_index(source, Path(place) / "cache"),
                lambda: list(import_sets(Path(str(source))))):  # fmt: skip
        try:
            way()
        except UserError as error:
            assert len(str(error)) < 20_000  # noqa: PT017  # a sentence, not the data


@SLOW
@given(seed=st.integers(0, 2**32), value=JSON)
def test_any_json_in_any_place(layout, seed, value):
    folder, file, named = layout
    text = (folder / file).read_text()
    records = [json.loads(line) for line in text.splitlines()] if file.endswith("l") else None
    about = json.loads(text) if records is None else records
    container, key = random.Random(seed).choice(list(places(about)))
    container[key] = value
    with tempfile.TemporaryDirectory() as place:
        copy = Path(place) / folder.name
        shutil.copytree(folder, copy, symlinks=True)
        lines = about if isinstance(about, list) and file.endswith("l") else [about]
        (copy / file).write_text("\n".join(map(json.dumps, lines)))
        read(f"{copy}{named}", place)


@SLOW
@given(
    name=st.sampled_from(["set", "member", "group", "label", "edit", "caption", "x"]), value=JSON
)
def test_any_json_in_a_tar_of_others(name, value):
    with tempfile.TemporaryDirectory() as place:
        about = json.dumps({"set": "a", "member": 0, name: value}).encode()
        files = {"a_0.png": noise_image(0), "a_0.json": about, "a_0.txt": b"a cat"}
        if name == "caption":
            del files["a_0.txt"]
        write_tar(Path(place) / "x" / "00000.tar", files)
        read(Path(place) / "x", place)


@SLOW
@given(file=st.sampled_from(["00000.json", "card.json"]), seed=st.integers(0, 2**32), value=JSON)
def test_any_json_in_a_commit_or_card(file, seed, value):
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "x"
        write_shards([pair(0)], folder)
        about = {"whole": json.loads((folder / file).read_text())}
        container, key = random.Random(seed).choice(list(places(about)))
        container[key] = value
        (folder / file).write_text(json.dumps(about["whole"]))
        read(folder, place)


IMAGE = [{"bytes": noise_image(i), "path": None} for i in (0, 1)]
COLUMNS: dict[str, dict[str, list[Any]]] = {
    "labelled": {"image": IMAGE, "label": ["a", "b"], "text": ["x", "y"]},
    "captioned": {"image": IMAGE, "caption": ["x", "y"], "group": ["1", "2"]},
    "pairs": {"id": ["a", "b"], "image_0": IMAGE, "image_1": IMAGE, "caption_0": ["x", "y"],
              "caption_1": ["v", "w"], "about": [None, None]},
    "social": {"image": IMAGE, "dataset_segment": ["s", "s"], "counterfactual_set": ["1", "1"],
               "a1_type": ["r", "r"], "a2_type": ["g", "g"], "caption": ["A p q r", "A t q r"],
               "a1": ["p", "t"], "a2": ["q", "q"]},
}  # fmt: skip
VALUES = (
    None, True, 3, -1, 2.5, float("nan"), b"\xff\xfe", "", " ", "x", [1], ["x", None], [], {"a": 1},
    {"bytes": None, "path": "a.png"}, {"bytes": b"no image", "path": None},
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("form", COLUMNS)
def test_a_column_of_another_type(tmp_path, form):
    """Also types that JSON does not know, and a first row that is as it should be."""
    import datetime
    import decimal

    more = (datetime.datetime(1, 1, 1), decimal.Decimal("1.5"), datetime.timedelta(1))
    number = 0
    for name in COLUMNS[form]:
        for value in (*VALUES, *more):
            number += 1
            folder = tmp_path / str(number)
            folder.mkdir()
            table = pa.table(COLUMNS[form] | {name: pa.array([value, value])})
            pq.write_table(table, folder / "all.parquet")
            read(folder, str(tmp_path / f"place{number}"))
        with_null = pa.table(COLUMNS[form] | {name: [COLUMNS[form][name][0], None]})
        pq.write_table(with_null, folder / "all.parquet")
        read(folder, str(tmp_path / f"null{number}"))


def test_what_is_changed_here_is_read_as_it_is(tmp_path):
    for form, columns in COLUMNS.items():
        (tmp_path / form).mkdir()
        pq.write_table(pa.table(columns), tmp_path / form / "all.parquet")
        assert find_reader(tmp_path / form).imported
        assert len(open_index(tmp_path / form, tmp_path / "cache")) >= 2
    for name, (lay_out, _, named) in LAYOUTS.items():
        (tmp_path / name / "x").mkdir(parents=True)
        (tmp_path / name / "x").rmdir() if lay_out is pix2pix else None
        lay_out(tmp_path / name / "x")
        assert len(open_index(f"{tmp_path / name / 'x'}{named}", tmp_path / "cache"))


def test_rows_of_a_csv_with_odd_values(tmp_path):
    flickr_results(tmp_path / "x")
    file = tmp_path / "x" / "results.csv"
    whole = file.read_bytes()
    for seed in range(100):
        chance, changed = random.Random(seed), bytearray(whole)
        for _ in range(3):
            changed[chance.randrange(len(changed))] = chance.randrange(256)
        file.write_bytes(changed)
        read(tmp_path / "x", str(tmp_path / f"place{seed}"))


def test_bytes_of_a_tar_that_flip(tmp_path):
    write_shards([pair(0)], tmp_path / "x")
    file = tmp_path / "x" / "00000.tar"
    whole = file.read_bytes()
    for others in (False, True):
        if others:
            (tmp_path / "x" / "00000.json").unlink()
            (tmp_path / "x" / "card.json").unlink()
        for seed in range(60):
            chance, changed = random.Random(seed), bytearray(whole)
            for _ in range(3):
                changed[chance.randrange(len(changed))] = chance.randrange(256)
            file.write_bytes(changed)
            read(tmp_path / "x", str(tmp_path / f"place{others}{seed}"))


def test_a_set_called_by_a_number(tmp_path):
    about = json.dumps({"set": 7, "member": 0}).encode()
    files = {"a_0.png": noise_image(0), "a_0.json": about, "a_0.txt": b"a cat"}
    write_tar(tmp_path / "x" / "00000.tar", files)
    assert open_index(tmp_path / "x", tmp_path / "cache").key(0) == "7_0"
