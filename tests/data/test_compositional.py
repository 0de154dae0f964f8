"""Compositional tests in the forms that their authors released, laid out by hand."""

from __future__ import annotations

import io
import json

import numpy as np
import pytest
from PIL import Image

from cfaug.core.errors import UserError
from cfaug.core.pixels import decode_image
from cfaug.data.index import open_index
from cfaug.data.index.index import Index
from cfaug.data.mixture.leakage import coco_ids
from cfaug.data.shards.shards import write_shards
from cfaug.data.sources.captioned_parquet import HUB_SETS
from cfaug.data.sources.compositional import ITEM_LISTS, ItemList
from tests.data.compositional import (
    BOXES,
    CAPTIONS,
    MMVP_TYPES,
    SUGARCREPE,
    TAGS,
    aro,
    aro_parquet,
    bivlc,
    cell,
    coco_name,
    coco_photos,
    edit_json,
    hard_positives,
    mmvp,
    naturalbench,
    photo,
    put,
    rgba,
    sugarcrepe,
    sugarcrepe_parquet,
    sugarcrepe_pp,
    table,
    trohn_img,
    trohn_text,
    vismin,
    vismin_rows,
    winoground,
    winoground_parquet,
)
from tests.data.hostile import assert_refused

SPLITS = (
    "add_obj", "add_att", "replace_obj", "replace_att", "replace_rel", "swap_obj", "swap_att",
)  # fmt: skip


def items(index: Index) -> list[list[int]]:
    """Return the rows of each item."""
    found: dict[int, list[int]] = {}
    for row, one in enumerate(index.sets.tolist()):
        found.setdefault(one, []).append(row)
    return list(found.values())


def texts(index: Index, rows: list[int]) -> tuple[str, ...]:
    return tuple(index.text(row) for row in rows)


def labels(index: Index, rows: list[int]) -> tuple[str | None, ...]:
    return tuple(index.label(row) for row in rows)


def test_sugarcrepe(tmp_path):
    index = open_index(sugarcrepe(tmp_path / "sugarcrepe"), tmp_path / "cache")
    assert index.kind == "sugarcrepe"
    found = items(index)
    wanted = [(name, key, i) for name in SPLITS for key, i in SUGARCREPE[name].items()]
    assert len(found) == len(wanted) == 10
    for rows, (name, key, number) in zip(found, wanted, strict=True):
        assert index.key(rows[0]) == f"{name}-{key}_0"
        assert texts(index, rows) == CAPTIONS[number]
        assert labels(index, rows) == ("true", "false")
        assert index.extra_row(rows[0]) == {"set": "sugarcrepe", "category": name}
        assert index.extra_row(rows[1]) == {}
        assert [index.read_image(row) for row in rows] == [photo(number)] * 2
        assert index.images[rows[0]] == index.images[rows[1]]
        assert coco_ids(index, np.array(rows)).tolist() == [100 + number] * 2


@pytest.mark.parametrize(
    "photos", ["", "val2017", "images", "coco/images/val2017", "../val2017", "../coco/val2017"]
)
def test_photos_are_found_inside_and_beside(tmp_path, photos):
    folder = sugarcrepe(tmp_path / "data" / "sugarcrepe", photos)
    assert len(open_index(folder, tmp_path / "cache")) == 20
    sugarcrepe(tmp_path / "repository" / "data", "coco/images/val2017")
    assert len(open_index(tmp_path / "repository", tmp_path / "cache")) == 20


def test_photos_elsewhere_are_named(tmp_path):
    folder = sugarcrepe(tmp_path / "sugarcrepe", "../far/away")
    with pytest.raises(
        UserError, match=r"10 of 10 items .* missing .*000000000102\.jpg.*benchmark\.images=FOLDER"
    ):
        open_index(folder, tmp_path / "cache")
    assert len(open_index(folder, tmp_path / "cache", [tmp_path / "far" / "away"])) == 20


def test_sugarcrepe_with_two_true_captions(tmp_path):
    index = open_index(sugarcrepe_pp(tmp_path / "pp"), tmp_path / "cache")
    assert index.kind == "sugarcrepe_pp"
    rows = items(index)[1]
    true, false = CAPTIONS[1]
    assert texts(index, rows) == (true, f"In other words: {true}", false)
    assert labels(index, rows) == ("true", "true", "false")
    assert len(items(index)) == 10


def test_winoground_as_images_and_a_list(tmp_path):
    index = open_index(winoground(tmp_path / "winoground"), tmp_path / "cache")
    assert index.kind == "winoground"
    found = items(index)
    assert [texts(index, rows) for rows in found] == list(CAPTIONS[:3])
    assert labels(index, found[0]) == (None, None)
    tag, second, collapsed = TAGS[1]
    assert index.extra_row(found[1][0]) == {
        "set": "winoground", "category": collapsed, "tag": tag, "secondary_tag": second,
        "num_main_preds": 1,
    }  # fmt: skip
    assert index.extra_row(found[2][0])["why_hard"] == ["ComplexReasoning", "UnusualText"]
    assert index.extra_row(found[0][0])["secondary_tag"] == ""
    assert len({int(group) for group in index.groups}) == 3


def test_transparency_is_left_out_as_by_convert_rgb(tmp_path):
    index = open_index(winoground(tmp_path / "winoground"), tmp_path / "cache")
    wanted = np.asarray(Image.open(io.BytesIO(rgba(7))).convert("RGB"))
    assert (np.asarray(decode_image(index.read_image(0), "image")) == wanted).all()


def test_winoground_as_parquet(tmp_path):
    index = open_index(winoground_parquet(tmp_path / "winoground"), tmp_path / "cache")
    assert index.kind == "winoground"
    found = items(index)
    assert [texts(index, rows) for rows in found] == list(CAPTIONS[:3])
    assert [index.read_image(row) for row in found[2]] == [photo(4), photo(5)]
    assert index.extra_row(found[1][0])["secondary_tag"] == "Pragmatics"
    assert index.extra_row(found[0][0])["category"] == "Object"
    assert [index.group_name(rows[0]) for rows in found] == ["0", "1", "2"]


def test_winoground_is_what_it_was_when_it_was_read_as_any_pairs(tmp_path):
    folder = winoground_parquet(tmp_path / "winoground")
    as_pairs = next(one for one in HUB_SETS if one.kind == "pairs")
    write_shards(as_pairs.open(folder), tmp_path / "before")
    before = open_index(tmp_path / "before", tmp_path / "cache")
    assert open_index(folder, tmp_path / "cache").hash == before.hash


def test_bivlc(tmp_path):
    index = open_index(bivlc(tmp_path / "bivlc"), tmp_path / "cache")
    assert index.kind == "bivlc"
    found = items(index)
    assert [texts(index, rows) for rows in found] == list(CAPTIONS)
    assert [index.read_image(row) for row in found[1]] == [photo(1), photo(11)]
    assert index.extra_row(found[1][0]).items() >= {
        "set": "bivlc", "category": "replace_att", "type": "replace", "subtype": "att",
        "image_kind": "real",
    }.items()  # fmt: skip
    assert index.extra_row(found[1][1])["image_kind"] == "synthetic"
    assert index.extra_row(found[3][0])["category"] == "replace"  # its subtype is empty
    assert [index.group_name(rows[0]) for rows in found] == ["100", "101", "102", "103"]


@pytest.mark.parametrize(
    ("lay_out", "kind", "categories"),
    [
        (vismin, "vismin", ["object", "attribute", "counting", "relation"]),
        (lambda x: table(x, vismin_rows()), "vismin",
         ["object", "attribute", "counting", "relation"]),
        (naturalbench, "naturalbench_retrieval", None),
    ],
)  # fmt: skip
def test_pairs_of_image_0_and_1(tmp_path, lay_out, kind, categories):
    index = open_index(lay_out(tmp_path / "set"), tmp_path / "cache")
    assert index.kind == kind
    found = items(index)
    assert [texts(index, rows) for rows in found] == list(CAPTIONS[: len(found)])
    assert [index.read_image(row) for row in found[2]] == [photo(4), photo(5)]
    if categories is not None:
        assert [index.extra_row(rows[0])["category"] for rows in found] == categories


@pytest.mark.parametrize("images", ["MLLM_VLM Images", "MMVP_VLM_Images"])
def test_mmvp_vlm(tmp_path, images):
    index = open_index(mmvp(tmp_path / "mmvp", images), tmp_path / "cache")
    assert index.kind == "mmvp_vlm"
    found = items(index)
    for rows, captions, numbers in zip(found, CAPTIONS[:2], ((1, 2), (3, 4)), strict=True):
        assert texts(index, rows) == tuple(f"a photo of {one}" for one in captions)
        assert [index.read_image(row) for row in rows] == [photo(one) for one in numbers]
    assert [index.extra_row(rows[0])["category"] for rows in found] == list(MMVP_TYPES)


def reader_of(kind: str) -> ItemList:
    return next(one for one in ITEM_LISTS if one.kind == kind)


@pytest.mark.parametrize(
    ("kind", "categories"),
    [
        ("aro_relation", ["on", "on", "behind"]),
        ("aro_attribution", ["brown_white", "brown_white", "old_young"]),
    ],
)
def test_aro_cuts_out_its_boxes(tmp_path, kind, categories):
    folder, cache = aro(tmp_path / "aro"), tmp_path / "cache"
    assert_refused(folder, cache, r"several tests: .*form=aro_relation or aro_attribution")
    index = open_index(folder, cache, reader=reader_of(kind))
    found = items(index)
    assert [texts(index, rows) for rows in found] == list(CAPTIONS[:3])
    assert [index.extra_row(rows[0])["category"] for rows in found] == categories
    for number, rows in enumerate(found):
        x, y, width, height = BOXES[number]
        whole = Image.open(io.BytesIO(photo(number // 2))).convert("RGB")
        wanted = np.asarray(whole.crop((x, y, x + width, y + height)))
        for row in rows:
            assert (np.asarray(decode_image(index.read_image(row), "image")) == wanted).all()
    # Two boxes of one photo are two images, of one group.
    digests = index.digests[index.images]
    assert len({bytes(one) for one in digests}) == 3
    assert index.groups[found[0][0]] == index.groups[found[1][0]] != index.groups[found[2][0]]
    assert (open_index(folder, cache, reader=reader_of(kind)).digests == index.digests).all()


def test_a_box_is_held_against_its_photo_and_its_own_checksum(tmp_path):
    folder, reader = aro(tmp_path / "aro"), reader_of("aro_relation")
    index = open_index(folder, tmp_path / "cache", reader=reader)
    (folder / "images" / "0.jpg").write_bytes(photo(5))
    with pytest.raises(UserError, match=r"0\.jpg .*changed since it was indexed"):
        index.read_image(0)
    (folder / "images" / "0.jpg").write_bytes(photo(0))
    file = open_index(folder, tmp_path / "again", reader=reader).folder / "boxes.npy"
    file.write_bytes(file.read_bytes()[:-1] + b"\x01")
    with pytest.raises(UserError, match="damaged"):
        open_index(folder, tmp_path / "again", reader=reader).read_image(0)


def test_an_index_without_boxes_has_no_such_file(tmp_path):
    index = open_index(sugarcrepe(tmp_path / "sugarcrepe"), tmp_path / "cache")
    assert not (index.folder / "boxes.npy").exists()


def test_hard_positives(tmp_path):
    index = open_index(hard_positives(tmp_path / "hp"), tmp_path / "cache")
    assert index.kind == "hard_positives"
    found = items(index)
    categories = [index.extra_row(rows[0])["category"] for rows in found]
    assert categories == ["swap"] * 3 + ["replace_att"] * 2 + ["replace_rel"]
    true, false = CAPTIONS[1]
    for rows in (found[1], found[4]):
        assert texts(index, rows) == (true, f"So: {true}", false)
        assert labels(index, rows) == ("true", "true", "false")
    assert decode_image(index.read_image(found[1][0]), "image").size == BOXES[1][2:]
    assert index.read_image(found[4][0]) == photo(1)


def test_paraphrases_with_a_false_caption_of_their_own(tmp_path):
    folder = hard_positives(tmp_path / "hp")
    edit_json(
        folder / "swapped_data" / "vl_checklist_relations.json",
        lambda found: found[0].update(false_caption="Another one."),
    )
    index = open_index(folder, tmp_path / "cache")
    rows = items(index)[-1]
    true, false = CAPTIONS[0]
    assert texts(index, rows) == (true, f"So: {true}", false, "Another one.")
    assert labels(index, rows) == ("true", "true", "false", "false")
    edit_json(folder / "swapped_data" / "vl_checklist_attributes.json", lambda found: found.pop())
    assert_refused(folder, tmp_path / "cache", "differ in length")


def test_parquet_of_sugarcrepe(tmp_path):
    index = open_index(sugarcrepe_parquet(tmp_path / "fmt"), tmp_path / "cache")
    assert index.kind == "sugarcrepe"
    found = items(index)
    assert [texts(index, rows) for rows in found] == list(CAPTIONS)
    assert labels(index, found[0]) == ("true", "false")
    assert index.images[found[0][0]] == index.images[found[0][1]]
    assert "category" not in index.extra_names


def test_parquet_of_aro_is_said_not_to_be_cropped(tmp_path):
    index = open_index(aro_parquet(tmp_path / "order"), tmp_path / "cache")
    assert "not cropped" in index.reading.line("test", "order")
    rows = items(index)[0]
    true, false = CAPTIONS[0]
    assert texts(index, rows) == (true, *(f"{n} {false}" for n in (1, 2, 3, 4)))
    assert labels(index, rows) == ("true", *["false"] * 4)


def test_a_training_table_with_negatives_is_read_as_before(tmp_path):
    """Captions with negatives of one's own are no test: their column is called image."""
    rows = [
        {"image": cell(i), "caption": true, "negative_caption": false}
        for i, (true, false) in enumerate(CAPTIONS)
    ]
    index = open_index(table(tmp_path / "own", rows), tmp_path / "cache")
    assert index.kind == "captioned_parquet"
    assert (index.text(1), index.negatives(1)) == (CAPTIONS[1][0], [CAPTIONS[1][1]])


def test_trohn_text(tmp_path):
    folder = trohn_text(tmp_path / "data" / "trohn_text")
    assert_refused(folder, tmp_path / "cache", r"several splits.*:train.*:validation")
    index = open_index(f"{folder}:train", tmp_path / "cache")
    assert (index.kind, len(index)) == ("trohn_text", 3)
    assert [index.text(row) for row in range(3)] == [true for true, _ in CAPTIONS[:3]]
    assert [index.negatives(row) for row in range(3)] == [[false] for _, false in CAPTIONS[:3]]
    assert [index.group_name(row) for row in range(3)] == ["100", "101", "100"]
    assert index.read_image(2) == photo(0)


def test_trohn_text_of_several_files(tmp_path):
    folder = trohn_text(tmp_path / "trohn_text")
    (folder / "data" / "validation-00000-of-00001.parquet").rename(
        folder / "data" / "train-00001-of-00002.parquet"
    )
    index = open_index(folder, tmp_path / "cache")
    assert [index.text(row) for row in range(len(index))] == [true for true, _ in CAPTIONS]
    assert index.reading.left_out == ()


def test_hard_positives_as_one_list(tmp_path):
    found = [
        {"image": f"{i}.jpg", "caption": true, "hard_positive": f"So: {true}", "negative": false,
         "category": "own"}
        for i, (true, false) in enumerate(CAPTIONS[:2])
    ]  # fmt: skip
    content = json.dumps(found).encode()
    photos = {f"images/{i}.jpg": photo(i) for i in range(2)}
    folder = put(tmp_path / "hp", {"hard_positives.json": content, **photos})
    index = open_index(folder, tmp_path / "cache")
    rows = items(index)[1]
    true, false = CAPTIONS[1]
    assert texts(index, rows) == (true, f"So: {true}", false)
    assert labels(index, rows) == ("true", "true", "false")
    assert index.extra_row(rows[0])["category"] == "own"


def test_trohn_img(tmp_path):
    index = open_index(trohn_img(tmp_path / "trohn_img"), tmp_path / "cache")
    assert index.kind == "trohn_img"
    found = items(index)
    assert [texts(index, rows) for rows in found] == list(CAPTIONS)
    assert [index.read_image(row) for row in found[3]] == [photo(1), photo(23)]
    assert [index.extra_row(row)["image_kind"] for row in found[0]] == ["real", "synthetic"]
    assert index.group_name(found[3][0]) == "101"


def test_trohn_img_without_its_photos(tmp_path):
    folder = trohn_img(tmp_path / "trohn_img")
    (folder / "train2017").rename(tmp_path / "elsewhere")
    assert_refused(folder, tmp_path / "cache", r"4 of 4 items .*missing")
    found = open_index(folder, tmp_path / "cache", [tmp_path / "elsewhere"])
    assert len(found) == 8


def test_a_photo_of_several_items_is_read_once(tmp_path, monkeypatch):
    from cfaug.data.sources.compositional import listed as photos

    seen = []
    digest = photos.file_digest
    monkeypatch.setattr(photos, "file_digest", lambda file: seen.append(file.name) or digest(file))
    open_index(sugarcrepe(tmp_path / "sugarcrepe"), tmp_path / "cache")
    assert sorted(seen) == [coco_name(i) for i in range(4)]


def test_the_index_knows_when_a_photo_changes(tmp_path):
    folder = sugarcrepe(tmp_path / "sugarcrepe")
    before = open_index(folder, tmp_path / "cache").hash
    coco_photos(folder / "val2017", 1)
    (folder / "val2017" / coco_name(0)).write_bytes(photo(9, (32, 32)))
    assert open_index(folder, tmp_path / "cache").hash != before
