"""COCO-Counterfactuals as released: examples.jsonl and images.zip, or parquet of the Hub."""

from __future__ import annotations

import pickle
import stat
import zipfile

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cfaug.data.index import open_index
from tests.data.released import (
    PAIRS,
    check_coco,
    coco_counterfactuals,
    edit_lines,
    image,
    jpeg,
    refused,
)


@pytest.mark.parametrize("compression", [zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED])
@pytest.mark.parametrize("inside", ["", "data"])
def test_coco_counterfactuals(tmp_path, compression, inside):
    folder = coco_counterfactuals(tmp_path / "coco", compression=compression)
    check_coco(folder / inside)


def test_coco_counterfactuals_unpacked(tmp_path):
    folder = coco_counterfactuals(tmp_path / "coco") / "data"
    with zipfile.ZipFile(folder / "images.zip") as archive:
        archive.extractall(folder)
    (folder / "images.zip").unlink()
    check_coco(folder)


def test_unpaired_ids_are_named(tmp_path):
    folder = coco_counterfactuals(tmp_path / "coco")

    def change(lines):
        lines[0]["image_1"] = "236308_0_img_9"
        del lines[2]["image_0"]

    edit_lines(folder, change)
    refused(folder, "line 1", "236308_0", "236308_0_img_9", "line 3", "397133_1", "image_0")


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"image_0": "../../etc/passwd"}, ["line 2", "etc/passwd", "no image"]),
        ({"image_0": 7.5}, ["line 2", "7.5"]),
        ({"caption_1": ""}, ["line 2", "236308_3", "empty"]),
        ({"caption_1": "two MEN  on skis"}, ["line 2", "236308_3", "same"]),
        ({"id": None}, ["line 2", "'id'"]),
        ({"id": "236308_0"}, ["line 2", "236308_0", "line 1"]),
    ],
)
def test_a_line_that_cannot_be_used(tmp_path, change, named):
    folder = coco_counterfactuals(tmp_path / "coco")
    edit_lines(folder, lambda lines: lines[1].update(change))
    refused(folder, "examples.jsonl", *named)


def test_a_line_that_is_no_json(tmp_path):
    folder = coco_counterfactuals(tmp_path / "coco")
    with (folder / "data" / "examples.jsonl").open("a") as handle:
        handle.write('{"id": "1", "image_0": \n')
    refused(folder, "examples.jsonl, line 4")


@pytest.mark.parametrize(
    "name", ["../x.jpg", "/etc/x.jpg", "images/../../x.jpg", "..\\x.jpg", "c:\\x.jpg"]
)
def test_a_zip_member_that_leads_out(tmp_path, name):
    assert "leads out" in refused(coco_counterfactuals(tmp_path / "coco", members={name: jpeg(0)}))


def test_a_zip_member_twice_or_linked(tmp_path):
    again = coco_counterfactuals(tmp_path / "a", members={"again/397133_1_img_0.jpg": jpeg(1)})
    refused(again, "images.zip", "397133_1_img_0")
    linked = coco_counterfactuals(tmp_path / "b")
    entry = zipfile.ZipInfo("images/shadow.jpg")
    entry.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(linked / "data" / "images.zip", "a") as archive:
        archive.writestr(entry, "/etc/shadow")
    refused(linked, "images.zip", "shadow.jpg", "link")


def test_a_zip_member_that_claims_too_much(tmp_path, monkeypatch):
    """Gigabytes of zeros are refused by their header: nothing is unpacked to find out."""
    folder = coco_counterfactuals(tmp_path / "coco", members={"images/bomb.jpg": bytes(65 << 20)})
    monkeypatch.setattr(zipfile.ZipFile, "open", lambda *_, **__: pytest.fail("was unpacked"))
    refused(folder, "images.zip", "bomb.jpg", "claims")


@pytest.mark.parametrize(
    "damage", ["truncated zip", "bad crc", "no zip", "no image", "short image"]
)
def test_a_damaged_zip(tmp_path, damage):
    victim = "images/397133_1_img_0.jpg"
    contents = {"no image": pickle.dumps([1]), "short image": jpeg(4)[:-40]}
    members = {victim: contents[damage]} if damage in contents else {}
    folder = coco_counterfactuals(tmp_path / "coco", compression=zipfile.ZIP_STORED)
    file = folder / "data" / "images.zip"
    if members:
        with zipfile.ZipFile(file) as archive:
            kept = {n: archive.read(n) for n in archive.namelist() if n != victim}
        with zipfile.ZipFile(file, "w") as archive:
            for name, content in (kept | members).items():
                archive.writestr(name, content)
    data = bytearray(file.read_bytes())
    if damage == "truncated zip":
        file.write_bytes(data[:-200])
    elif damage == "bad crc":
        at = data.index(jpeg(4)) + 200
        data[at] ^= 0xFF
        file.write_bytes(data)
    elif damage == "no zip":
        file.write_bytes(b"<html>please log in</html>" * 50)
    refused(folder, "images.zip", *(["397133_1"] if damage in (*contents, "bad crc") else []))


def test_pairs_in_parquet(tmp_path):
    rows = [
        {"id": name, "image_0": image(jpeg(2 * n)), "image_1": image(jpeg(2 * n + 1)),
         "caption_0": before, "caption_1": after}
        for n, (name, before, after, _) in enumerate(PAIRS)
    ]  # fmt: skip
    (tmp_path / "coco" / "data").mkdir(parents=True)
    file = tmp_path / "coco" / "data" / "test-00000-of-00001.parquet"
    pq.write_table(pa.Table.from_pylist(rows), file)
    check_coco(tmp_path / "coco")
    assert len(open_index(tmp_path / "coco", tmp_path / "cache2")) == 6
    rows[1]["image_1"] = image(None, "far/away.jpg")
    pq.write_table(pa.Table.from_pylist(rows), file)
    refused(tmp_path / "coco", file.name, "row 2", "image_1")
