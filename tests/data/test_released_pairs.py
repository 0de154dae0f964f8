"""Released pairs: COCO-Counterfactuals, and InstructPix2Pix folders.

generate_img_dataset.py writes out/NNNNNNN/prompt.json, {seed}_0.jpg,
{seed}_1.jpg, metadata.jsonl.
"""

from __future__ import annotations

import json
import pickle
import stat
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cfaug.core.types import Edit
from cfaug.data.index import open_index
from cfaug.data.shards.shards import read_sets, write_shards
from cfaug.data.sources import find_reader, import_sets
from tests.data.hostile import assert_refused
from tests.data.released import (
    GENDERS,
    PAIRS,
    RACES,
    check_coco,
    coco_counterfactuals,
    edit_lines,
    image,
    jpeg,
    laid_out,
    members,
    refused,
)

SEEDS = {"0000000": [3761796350, 12], "0000002": [7]}


def pix2pix(folder: Path, *, shard: str = "", listed: bool = False) -> Path:
    for number, (name, seeds) in enumerate(SEEDS.items()):
        here = folder / shard / name
        here.mkdir(parents=True)
        prompt = {"caption": f"photo {number} of a cat", "output": f"photo {number} of a dog"}
        if number:
            prompt = {
                "input": prompt["caption"],
                "edit": "make it a dog",
                "output": prompt["output"],
            }
        (here / "prompt.json").write_text(json.dumps(prompt))
        lines = []
        for place, seed in enumerate(seeds):
            for i in (0, 1):
                (here / f"{seed}_{i}.jpg").write_bytes(jpeg(10 * number + 2 * place + i))
            lines += [{"seed": seed, "p2p_threshold": 0.1 * (place + 1), "cfg_scale": 14.25,
                       "clip_sim_0": 0.25, "clip_sim_1": 0.26, "clip_sim_dir": 0.31,
                       "clip_sim_image": 0.8 + again} for again in (0.1, 0.0)]  # fmt: skip
        (here / "metadata.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / shard / "0000001").mkdir()  # every candidate was rejected
    (folder / shard / "0000001" / "prompt.json").write_text('{"caption": "a", "output": "b"}')
    if listed:
        prefix = f"{shard}/" if shard else ""
        listing = [[prefix + name, [str(seed) for seed in seeds]] for name, seeds in SEEDS.items()]
        (folder / "seeds.json").write_text(json.dumps(listing))
    (folder / shard / "0000000" / "images.pkl").write_bytes(pickle.dumps([1]))
    return folder


@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize("shard", ["", "shard-00"])
def test_instruct_pix2pix(tmp_path, listed, shard):
    folder = pix2pix(tmp_path / "ip2p", listed=listed, shard=shard)
    by_seed = {cf_set.members[0].extra["seed"]: cf_set for cf_set in import_sets(folder)}
    assert set(by_seed) == {"3761796350", "12", "7"}
    cf_set = by_seed["3761796350"]
    if not shard:
        assert cf_set.key == "0000000-3761796350"
    assert cf_set.group == "photo 0 of a cat" == cf_set.members[0].text
    assert cf_set.members[1].edit == Edit("text", "cat", "dog")
    assert dict(cf_set.members[1].extra) == {"seed": "3761796350", "p": 0.1, "cfg": 14.25}
    assert cf_set.scores == {"sim_0": 0.25, "sim_1": 0.26, "sim_direction": 0.31, "sim_image": 0.8}
    assert dict(cf_set.images) == {"0": jpeg(0), "1": jpeg(1)}
    assert by_seed["12"].members[0].extra["p"] == 0.2
    assert by_seed["7"].provenance["instruction"] == "make it a dog"


def test_instruct_pix2pix_is_read_where_it_lies(tmp_path):
    folder, cache = pix2pix(tmp_path / "ip2p"), tmp_path / "cache"
    (folder / "prompts.jsonl").write_text('{"caption": "a", "output": "b"}\n')
    index = open_index(folder, cache)
    assert (index.kind, len(index)) == ("instruct_pix2pix", 6)
    assert list(cache.glob("imported-*")) == []
    by_hand = [(m.text, cf_set.images[m.image_name], f"{cf_set.key}_{i}")
               for cf_set in import_sets(folder) for i, m in enumerate(cf_set.members)]  # fmt: skip
    assert by_hand == [(index.text(r), index.read_image(r), index.key(r)) for r in range(6)]


def test_a_set_of_many_in_pix2pix_layout(tmp_path):
    """SocialCounterfactuals' generator: output_1 ... output_N-1, {seed}_{index}.jpg."""
    here = tmp_path / "sets" / "0000000"
    here.mkdir(parents=True)
    texts = [f"a {a1} {a2} chef" for a1 in RACES for a2 in GENDERS]
    prompt = {"caption": texts[0], "filename": "race_chef"}
    prompt |= {f"output_{i}": text for i, text in enumerate(texts) if i}
    (here / "prompt.json").write_text(json.dumps(prompt))
    for i in range(12):
        (here / f"99_{i}.jpg").write_bytes(jpeg(i))
    (cf_set,) = import_sets(tmp_path / "sets")
    assert [m.text for m in cf_set.members] == texts
    assert cf_set.members[10].edit == Edit("text", "White", "Latino")
    assert cf_set.images["11"] == jpeg(11)


@pytest.mark.parametrize(
    ("file", "content", "named"),
    [
        ("0000000/12_1.jpg", None, ["0000000", "seed 12", "12_1.jpg"]),
        ("0000002/7_0.jpg", jpeg(0)[:-9], ["7_0.jpg"]),
        ("0000002/prompt.json", b"{", ["0000002/prompt.json"]),
        ("0000002/prompt.json", b'{"input": "x"}', ["0000002/prompt.json", "output"]),
        ("0000002/metadata.jsonl", b"[1]", ["0000002/metadata.jsonl, line 1"]),
        ("seeds.json", b'[["../away", ["1"]]]', ["seeds.json", "../away", "leads out"]),
        ("seeds.json", b'[["gone", ["1"]]]', ["seeds.json", "gone"]),
        ("seeds.json", b'[["0000000", ["12", "5"]]]', ["0000000", "seed 5"]),
        ("seeds.json", b'{"a": 1}', ["seeds.json"]),
    ],
)
def test_a_pix2pix_folder_that_cannot_be_used(tmp_path, file, content, named):
    folder = pix2pix(tmp_path / "ip2p")
    if content is None:
        (folder / file).unlink()
    else:
        (folder / file).write_bytes(content)
    refused(folder, *named)


# COCO-Counterfactuals as released: examples.jsonl and images.zip, or parquet of the Hub.


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
    folder = coco_counterfactuals(
        tmp_path / "coco", members=members, compression=zipfile.ZIP_STORED
    )
    file = folder / "data" / "images.zip"
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


# Importing: once, whole or not at all, into shards like any other.


def test_half_a_character_in_a_line_is_named(tmp_path):
    folder = coco_counterfactuals(tmp_path / "coco")
    edit_lines(folder, lambda lines: lines[1].update(caption_1="two \ud800 on skis"))
    refused(folder, "examples.jsonl, line 2", "not Unicode")


def test_a_parquet_without_the_columns_of_its_first_file_is_named(tmp_path):
    folder = laid_out(tmp_path / "set", members({}))
    pq.write_table(pa.table({"id": ["b"]}), folder / "more.parquet")
    assert find_reader(folder).imported
    refused(folder, "more.parquet", "no column")


def test_a_released_folder_is_a_source_and_is_imported_once(tmp_path):
    folder, cache = coco_counterfactuals(tmp_path / "coco"), tmp_path / "cache"
    index = open_index(folder, cache)
    assert (index.kind, index.source, len(index)) == ("coco_counterfactuals", str(folder), 6)
    assert index.text(1) == PAIRS[0][2]
    assert index.read_image(5) == jpeg(5)
    assert index.groups[0] == index.groups[2] != index.groups[4]
    (imported,) = cache.glob("imported-*")
    assert list(read_sets(imported)) == list(import_sets(folder)) == list(import_sets(imported))
    written = (imported / "00000.tar").stat().st_mtime_ns
    assert open_index(folder, cache).hash == index.hash
    assert (imported / "00000.tar").stat().st_mtime_ns == written
    edit_lines(folder, lambda lines: lines.pop())
    assert len(open_index(folder, cache)) == 4


def test_an_import_that_cannot_be_kept_is_refused(tmp_path):
    folder = coco_counterfactuals(tmp_path / "coco")
    (tmp_path / "file").write_text("")
    said = r"shards of .*coco cannot be kept .*paths\.cache"
    assert_refused(folder, tmp_path / "file" / "cache", said)


def test_a_killed_import_leaves_nothing_that_counts(tmp_path, monkeypatch):
    folder, cache = coco_counterfactuals(tmp_path / "coco"), tmp_path / "cache"
    with monkeypatch.context() as patch:
        # As a kill would leave it.
        patch.setattr("cfaug.core.atomic_files.shutil.rmtree", lambda *_, **__: None)
        patch.setattr(Path, "rename", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            open_index(folder, cache)
    assert [f.name[:10] for f in cache.iterdir()] == [".imported-"]
    assert open_index(folder, cache).hash == open_index(folder, tmp_path / "other").hash


def test_a_parquet_beside_shards_is_no_source(tmp_path):
    """Candidate logs lie beside our shards, img2dataset's urls beside its tars."""
    write_shards(import_sets(coco_counterfactuals(tmp_path / "coco")), tmp_path / "shards")
    pq.write_table(pa.table({"seed": [1], "accepted": [True]}), tmp_path / "shards/00000.parquet")
    assert open_index(tmp_path / "shards", tmp_path / "cache").kind == "shards"
