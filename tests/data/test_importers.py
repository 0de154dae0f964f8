"""Released data as users have it on disk; the folders are laid out by hand, not by our exporter.

Layouts: COCO-Counterfactuals and SocialCounterfactuals as the Hub holds them, InstructPix2Pix as
its generate_img_dataset.py writes them.
"""

from __future__ import annotations

import io
import json
import pickle
import stat
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfaug.data import importing
from cfaug.data.importing import import_sets
from cfaug.data.index import open_index
from cfaug.data.shards import read_sets, write_shards
from cfaug.data.sources import parquet, released
from cfaug.data.sources.released import swapped
from cfaug.errors import UserError
from cfaug.types import Edit
from tests.data.making import noise_image

PAIRS = [
    ("236308_0", "A couple of people riding skis down a snow covered slope.",
     "A couple of people riding skis down a snow covered hill.", ("slope", "hill")),
    ("236308_3", "Two men on skis", "Two women on skis", ("men", "women")),
    ("397133_1", "A baker is working in the kitchen rolling dough.",
     "A chef is working in the kitchen rolling dough.", ("baker", "chef")),
]  # fmt: skip


def jpeg(number: int) -> bytes:
    return noise_image(number, (24, 16), "JPEG")


# COCO-Counterfactuals: data/examples.jsonl and data/images.zip.


def coco_counterfactuals(
    folder: Path,
    *,
    members: dict[str, bytes] | None = None,
    compression: int = zipfile.ZIP_DEFLATED,
) -> Path:
    (folder / "data").mkdir(parents=True)
    lines, images = [], {}
    for number, (name, before, after, _) in enumerate(PAIRS):
        stems = [f"{name}_img_{i}" for i in (0, 1)]
        lines.append({"id": name, "image_0": stems[0], "caption_0": before,
                      "image_1": stems[1], "caption_1": after})  # fmt: skip
        images |= {f"images/{stem}.jpg": jpeg(2 * number + i) for i, stem in enumerate(stems)}
    (folder / "data" / "examples.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
    with zipfile.ZipFile(folder / "data" / "images.zip", "w", compression) as archive:
        archive.writestr("images/", b"")
        for name, content in (images | (members or {})).items():
            archive.writestr(name, content)
    return folder


def edit_lines(folder: Path, change) -> None:
    file = folder / "data" / "examples.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    change(lines)
    file.write_text("\n".join(map(json.dumps, lines)))


def check_coco(folder: Path) -> None:
    found = list(import_sets(folder))
    assert [one.key for one in found] == [name for name, *_ in PAIRS]
    assert [one.group for one in found] == ["236308", "236308", "397133"]
    for number, (one, (name, before, after, words)) in enumerate(zip(found, PAIRS, strict=True)):
        assert [m.text for m in one.members] == [before, after]
        assert [m.edit for m in one.members] == [None, Edit("noun", *words)]
        assert [one.images[m.image_name] for m in one.members] == [
            jpeg(2 * number), jpeg(2 * number + 1)
        ]  # fmt: skip
        assert {m.source_id for m in one.members} == {name}


@pytest.mark.parametrize("compression", [zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED])
@pytest.mark.parametrize("inside", ["", "data"])
def test_coco_counterfactuals(tmp_path: Path, compression: int, inside: str) -> None:
    folder = coco_counterfactuals(tmp_path / "coco", compression=compression)
    check_coco(folder / inside)


def test_coco_counterfactuals_unpacked(tmp_path: Path) -> None:
    folder = coco_counterfactuals(tmp_path / "coco") / "data"
    with zipfile.ZipFile(folder / "images.zip") as archive:
        archive.extractall(folder)
    (folder / "images.zip").unlink()
    check_coco(folder)


def test_a_released_folder_is_a_source_and_is_imported_once(tmp_path: Path) -> None:
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


def test_imported_sets_are_shards_like_any_other(tmp_path: Path) -> None:
    folder = coco_counterfactuals(tmp_path / "coco")
    write_shards(import_sets(folder), tmp_path / "shards", sets_per_shard=2)
    assert list(read_sets(tmp_path / "shards")) == list(import_sets(folder))
    assert list(import_sets(tmp_path / "shards")) == list(import_sets(folder))


def test_a_cache_that_cannot_be_written(tmp_path: Path) -> None:
    folder = coco_counterfactuals(tmp_path / "coco")
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"shards of .*coco cannot be kept .*paths\.cache"):
        open_index(folder, tmp_path / "file" / "cache")


def test_a_killed_import_leaves_nothing_that_counts(tmp_path: Path, monkeypatch) -> None:
    folder, cache = coco_counterfactuals(tmp_path / "coco"), tmp_path / "cache"
    whole = open_index(folder, tmp_path / "other").hash
    with monkeypatch.context() as patch:
        patch.setattr(importing.shutil, "rmtree", lambda *_, **__: None)  # as a kill would leave it
        patch.setattr(Path, "rename", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            open_index(folder, cache)
    assert [f.name[:10] for f in cache.iterdir()] == [".imported-"]
    assert open_index(folder, cache).hash == whole


def refused(folder: Path, *named: str) -> str:
    """Check that a folder is refused by both ways in, and that nothing is kept of it."""
    with pytest.raises(UserError) as caught:
        list(import_sets(folder))
    message = str(caught.value)
    assert [name for name in named if name not in message] == []
    cache = folder.parent / "cache"
    with pytest.raises(UserError):
        open_index(folder, cache)
    assert not cache.exists() or not list(cache.iterdir())
    return message


def test_unpaired_ids_are_named(tmp_path: Path) -> None:
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
def test_a_line_that_cannot_be_used(tmp_path: Path, change: dict, named: list[str]) -> None:
    folder = coco_counterfactuals(tmp_path / "coco")
    edit_lines(folder, lambda lines: lines[1].update(change))
    refused(folder, "examples.jsonl", *named)


def test_a_line_that_is_no_json(tmp_path: Path) -> None:
    folder = coco_counterfactuals(tmp_path / "coco")
    with (folder / "data" / "examples.jsonl").open("a") as handle:
        handle.write('{"id": "1", "image_0": \n')
    refused(folder, "examples.jsonl, line 4")


@pytest.mark.parametrize(
    "name", ["../x.jpg", "/etc/x.jpg", "images/../../x.jpg", "..\\x.jpg", "c:\\x.jpg"]
)
def test_a_zip_member_that_leads_out(tmp_path: Path, name: str) -> None:
    assert "leads out" in refused(coco_counterfactuals(tmp_path / "coco", members={name: jpeg(0)}))


def test_a_zip_member_twice_or_linked(tmp_path: Path) -> None:
    again = coco_counterfactuals(tmp_path / "a", members={"again/397133_1_img_0.jpg": jpeg(1)})
    refused(again, "images.zip", "397133_1_img_0")
    linked = coco_counterfactuals(tmp_path / "b")
    entry = zipfile.ZipInfo("images/shadow.jpg")
    entry.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(linked / "data" / "images.zip", "a") as archive:
        archive.writestr(entry, "/etc/shadow")
    refused(linked, "images.zip", "shadow.jpg", "link")


def test_a_zip_member_that_claims_too_much(tmp_path: Path, monkeypatch) -> None:
    """Gigabytes of zeros are refused by their header: nothing is unpacked to find out."""
    folder = coco_counterfactuals(tmp_path / "coco", members={"images/bomb.jpg": bytes(65 << 20)})
    monkeypatch.setattr(zipfile.ZipFile, "open", lambda *_, **__: pytest.fail("was unpacked"))
    refused(folder, "images.zip", "bomb.jpg", "claims")


@pytest.mark.parametrize(
    "damage", ["truncated zip", "bad crc", "no zip", "no image", "short image"]
)
def test_a_damaged_zip(tmp_path: Path, damage: str) -> None:
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


WORDS = st.lists(
    st.sampled_from(["a", "cat", "dog", "runs", "on", "the", "fire-hose", "it's"]), max_size=8
)


@given(WORDS, WORDS, WORDS, WORDS)
def test_swapped_is_the_run_of_words_between_what_is_common(head, old, new, tail) -> None:
    before, after = (" ".join([*head, *middle, *tail]) for middle in (old, new))
    found = swapped(before, after)
    assert len(found[0].split()) <= len(old)
    assert len(found[1].split()) <= len(new)
    if before == after:
        assert found == ("", "")
    else:
        assert found[0] in before
        assert found[1] in after
        assert found[0] != found[1]


# Pairs in parquet, as the Hub converts COCO-Counterfactuals.


def image(data: bytes | None, path: str | None = None) -> dict[str, object]:
    return {"bytes": data, "path": path}


def test_pairs_in_parquet(tmp_path: Path) -> None:
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


# SocialCounterfactuals: a row per image, sets named by dataset_segment and counterfactual_set.

GENDERS, RACES = (
    ("male", "female"),
    ("White", "Black", "Indian", "Asian", "Middle Eastern", "Latino"),
)


def social_rows(subject: str, name: str, first: int) -> list[dict[str, object]]:
    return [
        {"image": image(jpeg(first + i), None), "dataset_segment": "race_gender",
         "a1_type": "race", "a2_type": "gender", "counterfactual_set": name,
         "caption": f"A photo of {'an' if a1[0] in 'AI' else 'a'} {a1} {a2} {subject}",
         "a1": a1, "a2": a2, "a1a2": f"{a1} {a2}"}
        for i, (a1, a2) in enumerate((a1, a2) for a1 in RACES for a2 in GENDERS)
    ]  # fmt: skip


def social(folder: Path, rows: list[dict[str, object]], files: int = 2) -> Path:
    folder.mkdir(parents=True)
    each = -(-len(rows) // files)
    for number in range(files):
        table = pa.Table.from_pylist(rows[number * each : (number + 1) * each])
        pq.write_table(
            table, folder / f"train-{number:05d}-of-{files:05d}.parquet", row_group_size=5
        )
    return folder


def test_social_counterfactuals(tmp_path: Path) -> None:
    """Three sets of 12, the second cut by the end of a file."""
    names = [("barber", "17"), ("software engineer", "18"), ("barber", "19")]
    rows = [r for n, (s, name) in enumerate(names) for r in social_rows(s, name, 100 * n)]
    found = list(import_sets(social(tmp_path / "social", rows)))
    assert [len(one.members) for one in found] == [12, 12, 12]
    assert [one.group for one in found] == ["barber", "software engineer", "barber"]
    assert len({one.key for one in found}) == 3
    middle = found[1]
    assert middle.members[0].text == "A photo of a White male software engineer"
    assert middle.members[0].edit is None
    assert middle.members[1].edit == Edit("gender", "male", "female")
    assert middle.members[8].edit == Edit("race", "White", "Middle Eastern")
    assert middle.members[11].edit == Edit("race+gender", "White male", "Latino female")
    assert dict(middle.members[11].extra) == {
        "dataset_segment": "race_gender", "counterfactual_set": "18", "a1_type": "race",
        "a2_type": "gender", "a1": "Latino", "a2": "female",
    }  # fmt: skip
    assert [middle.images[m.image_name] for m in middle.members] == [
        jpeg(100 + i) for i in range(12)
    ]
    index = open_index(tmp_path / "social", tmp_path / "cache")
    assert (index.kind, len(index)) == ("social_counterfactuals", 36)


def test_social_rows_that_lie_apart(tmp_path: Path, monkeypatch) -> None:
    sets = (social_rows("barber", "1", 0), social_rows("chef", "2", 50))
    rows = [row for pair in zip(*sets, strict=True) for row in pair]
    folder = social(tmp_path / "social", rows, files=3)
    assert [one.group for one in import_sets(folder)] == ["barber", "chef"]
    monkeypatch.setattr(parquet, "PENDING_BYTES", 5 * len(jpeg(0)))
    refused(folder, "sort", "counterfactual_set")


def test_a_social_image_that_is_broken(tmp_path: Path) -> None:
    rows = social_rows("barber", "17", 0)
    rows[7]["image"] = image(jpeg(7)[:-30])
    folder = social(tmp_path / "social", rows)
    refused(folder, "train-00001-of-00002.parquet, row 2")


def test_an_image_too_large_is_not_decoded(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(released, "MAX_BYTES", 100)
    refused(social(tmp_path / "social", social_rows("barber", "17", 0)), "row 1", "at most 100")


def test_a_truncated_parquet(tmp_path: Path) -> None:
    folder = social(tmp_path / "social", social_rows("barber", "17", 0))
    file = folder / "train-00000-of-00002.parquet"
    file.write_bytes(file.read_bytes()[:-100])
    refused(folder, file.name, "fetch it again")


# InstructPix2Pix: out/NNNNNNN/prompt.json, {seed}_0.jpg, {seed}_1.jpg, metadata.jsonl.

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
def test_instruct_pix2pix(tmp_path: Path, listed: bool, shard: str) -> None:
    folder = pix2pix(tmp_path / "ip2p", listed=listed, shard=shard)
    found = {one.members[0].extra["seed"]: one for one in import_sets(folder)}
    assert set(found) == {"3761796350", "12", "7"}
    one = found["3761796350"]
    if not shard:
        assert one.key == "0000000-3761796350"
    assert one.group == "photo 0 of a cat" == one.members[0].text
    assert one.members[1].edit == Edit("text", "cat", "dog")
    assert dict(one.members[1].extra) == {"seed": "3761796350", "p": 0.1, "cfg": 14.25}
    assert one.scores == {"sim_0": 0.25, "sim_1": 0.26, "sim_direction": 0.31, "sim_image": 0.8}
    assert dict(one.images) == {"0": jpeg(0), "1": jpeg(1)}
    assert found["12"].members[0].extra["p"] == 0.2
    assert found["7"].provenance["instruction"] == "make it a dog"


def test_instruct_pix2pix_is_read_where_it_lies(tmp_path: Path) -> None:
    folder, cache = pix2pix(tmp_path / "ip2p"), tmp_path / "cache"
    (folder / "prompts.jsonl").write_text('{"caption": "a", "output": "b"}\n')
    index = open_index(folder, cache)
    assert (index.kind, len(index)) == ("instruct_pix2pix", 6)
    assert list(cache.glob("imported-*")) == []
    by_hand = [(m.text, one.images[m.image_name], f"{one.key}_{i}")
               for one in import_sets(folder) for i, m in enumerate(one.members)]  # fmt: skip
    assert by_hand == [(index.text(r), index.read_image(r), index.key(r)) for r in range(6)]


def test_a_set_of_many_in_pix2pix_layout(tmp_path: Path) -> None:
    """SocialCounterfactuals' generator: output_1 ... output_N-1, {seed}_{index}.jpg."""
    here = tmp_path / "sets" / "0000000"
    here.mkdir(parents=True)
    texts = [f"a {a1} {a2} chef" for a1 in RACES for a2 in GENDERS]
    prompt = {"caption": texts[0], "filename": "race_chef"}
    prompt |= {f"output_{i}": text for i, text in enumerate(texts) if i}
    (here / "prompt.json").write_text(json.dumps(prompt))
    for i in range(12):
        (here / f"99_{i}.jpg").write_bytes(jpeg(i))
    (one,) = import_sets(tmp_path / "sets")
    assert [m.text for m in one.members] == texts
    assert one.members[10].edit == Edit("text", "White", "Latino")
    assert one.images["11"] == jpeg(11)


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
def test_a_pix2pix_folder_that_cannot_be_used(
    tmp_path: Path, file: str, content: bytes | None, named: list[str]
) -> None:
    folder = pix2pix(tmp_path / "ip2p")
    if content is None:
        (folder / file).unlink()
    else:
        (folder / file).write_bytes(content)
    refused(folder, *named)


def test_an_unknown_folder_lists_the_forms(tmp_path: Path) -> None:
    (tmp_path / "odd").mkdir()
    with pytest.raises(UserError, match=r"examples\.jsonl and images\.zip(?s:.*)SEED_0\.jpg"):
        import_sets(tmp_path / "odd")
    with pytest.raises(UserError, match="no folder"):
        import_sets(tmp_path / "nowhere")


def test_a_parquet_beside_shards_is_no_source(tmp_path: Path) -> None:
    """Candidate logs lie beside our shards, img2dataset's urls beside its tars."""
    folder = coco_counterfactuals(tmp_path / "coco")
    write_shards(import_sets(folder), tmp_path / "shards")
    buffer = io.BytesIO()
    pq.write_table(pa.table({"seed": [1], "accepted": [True]}), buffer)
    (tmp_path / "shards" / "00000.parquet").write_bytes(buffer.getvalue())
    assert open_index(tmp_path / "shards", tmp_path / "cache").kind == "shards"
