"""Compositional tests in the forms that their authors released, laid out by hand."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from cfaug.core.errors import UserError
from cfaug.core.pixels import decode_image
from cfaug.data.index import open_index
from cfaug.data.index.index import Index
from cfaug.data.mixture.leakage import coco_ids
from cfaug.data.sources.compositional import FORMS, ItemList
from cfaug.evaluation.choices.pairs import count_items
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
    winoground_row,
)
from tests.data.hostile import assert_refused, huge_png

SPLITS = (
    "add_obj", "add_att", "replace_obj", "replace_att", "replace_rel", "swap_obj", "swap_att",
)  # fmt: skip


def items(index: Index) -> list[list[int]]:
    """Return the rows of each item."""
    rows: dict[int, list[int]] = {}
    for row, number in enumerate(index.sets.tolist()):
        rows.setdefault(number, []).append(row)
    return list(rows.values())


def texts(index: Index, rows: list[int]) -> tuple[str, ...]:
    return tuple(index.text(row) for row in rows)


def labels(index: Index, rows: list[int]) -> tuple[str | None, ...]:
    return tuple(index.label(row) for row in rows)


def test_sugarcrepe(tmp_path):
    index = open_index(sugarcrepe(tmp_path / "sugarcrepe"), tmp_path / "cache")
    assert index.kind == "sugarcrepe"
    item_rows = items(index)
    wanted = [(name, key, i) for name in SPLITS for key, i in SUGARCREPE[name].items()]
    assert len(item_rows) == len(wanted) == 10
    for rows, (name, key, number) in zip(item_rows, wanted, strict=True):
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
    item_rows = items(index)
    assert [texts(index, rows) for rows in item_rows] == list(CAPTIONS[:3])
    assert labels(index, item_rows[0]) == (None, None)
    tag, second, collapsed = TAGS[1]
    assert index.extra_row(item_rows[1][0]) == {
        "set": "winoground", "category": collapsed, "tag": tag, "secondary_tag": second,
        "num_main_preds": 1,
    }  # fmt: skip
    assert index.extra_row(item_rows[2][0])["why_hard"] == ["ComplexReasoning", "UnusualText"]
    assert index.extra_row(item_rows[0][0])["secondary_tag"] == ""
    assert len({int(group) for group in index.groups}) == 3
    # Transparency is left out as by convert("RGB").
    wanted = np.asarray(Image.open(io.BytesIO(rgba(7))).convert("RGB"))
    assert (np.asarray(decode_image(index.read_image(0), "image")) == wanted).all()


PAIR, CHOICE = (None, None), ("true", "false")
"""Labels of two captions of two images, and of one."""


@pytest.mark.parametrize(
    ("lay_out", "kind", "count", "of_members", "photos", "extra"),
    [
        (winoground_parquet, "winoground", 3, PAIR, lambda n: (2 * n, 2 * n + 1),
         {"category": "Both", "tag": "Both"}),
        (bivlc, "bivlc", 4, PAIR, lambda n: (n, 10 + n), {"set": "bivlc", "category": "swap_obj"}),
        (vismin, "vismin", 4, PAIR, lambda n: (2 * n, 2 * n + 1), {"category": "counting"}),
        (lambda x: table(x, vismin_rows()), "vismin", 4, PAIR, lambda n: (2 * n, 2 * n + 1),
         {"category": "counting"}),
        (naturalbench, "naturalbench_retrieval", 3, PAIR, lambda n: (2 * n, 2 * n + 1), {}),
        (trohn_img, "trohn_img", 4, PAIR, lambda n: (n % 2, 20 + n), {"image_kind": "real"}),
        (sugarcrepe_parquet, "sugarcrepe", 4, CHOICE, lambda n: (n, n), {}),
    ],
)  # fmt: skip
def test_items_of_two_captions(tmp_path, lay_out, kind, count, of_members, photos, extra):
    index = open_index(lay_out(tmp_path / "set"), tmp_path / "cache")
    assert index.kind == kind
    item_rows = items(index)
    assert [texts(index, rows) for rows in item_rows] == list(CAPTIONS[:count])
    for number, rows in enumerate(item_rows):
        assert labels(index, rows) == of_members
        assert [index.read_image(row) for row in rows] == list(map(photo, photos(number)))
    assert index.extra_row(item_rows[2][0]).items() >= extra.items()


def test_bivlc_says_what_its_images_and_categories_are(tmp_path):
    index = open_index(bivlc(tmp_path / "bivlc"), tmp_path / "cache")
    assert [index.extra_row(row)["image_kind"] for row in (2, 3)] == ["real", "synthetic"]
    categories = [index.extra_row(row)["category"] for row in (0, 2, 4, 6)]
    assert categories == ["add_obj", "replace_att", "swap_obj", "replace"]  # its subtype is empty
    assert [index.group_name(row) for row in (0, 2, 4, 6)] == ["100", "101", "102", "103"]


@pytest.mark.parametrize("images", ["MLLM_VLM Images", "MMVP_VLM_Images"])
def test_mmvp_vlm(tmp_path, images):
    index = open_index(mmvp(tmp_path / "mmvp", images), tmp_path / "cache")
    assert index.kind == "mmvp_vlm"
    item_rows = items(index)
    for rows, captions, numbers in zip(item_rows, CAPTIONS[:2], ((1, 2), (3, 4)), strict=True):
        assert texts(index, rows) == tuple(f"a photo of {caption}" for caption in captions)
        assert [index.read_image(row) for row in rows] == [photo(number) for number in numbers]
    assert [index.extra_row(rows[0])["category"] for rows in item_rows] == list(MMVP_TYPES)


def reader_of(kind: str, **settings: Any) -> ItemList:
    return ItemList(next(form for form in FORMS if form.kind == kind), **settings)


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
    item_rows = items(index)
    assert [texts(index, rows) for rows in item_rows] == list(CAPTIONS[:3])
    assert [index.extra_row(rows[0])["category"] for rows in item_rows] == categories
    for number, rows in enumerate(item_rows):
        x, y, width, height = BOXES[number]
        whole = Image.open(io.BytesIO(photo(number // 2))).convert("RGB")
        wanted = np.asarray(whole.crop((x, y, x + width, y + height)))
        for row in rows:
            assert (np.asarray(decode_image(index.read_image(row), "image")) == wanted).all()
    # Two boxes of one photo are two images, of one group.
    digests = index.digests[index.images]
    assert len({bytes(digest) for digest in digests}) == 3
    assert (
        index.groups[item_rows[0][0]]
        == index.groups[item_rows[1][0]]
        != index.groups[item_rows[2][0]]
    )
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


def test_hard_positives(tmp_path):
    index = open_index(hard_positives(tmp_path / "hp"), tmp_path / "cache")
    assert index.kind == "hard_positives"
    item_rows = items(index)
    categories = [index.extra_row(rows[0])["category"] for rows in item_rows]
    assert categories == ["swap"] * 3 + ["replace_att"] * 2 + ["replace_rel"]
    true, false = CAPTIONS[1]
    for rows in (item_rows[1], item_rows[4]):
        assert texts(index, rows) == (true, f"So: {true}", false)
        assert labels(index, rows) == ("true", "true", "false")
    assert decode_image(index.read_image(item_rows[1][0]), "image").size == BOXES[1][2:]
    assert index.read_image(item_rows[4][0]) == photo(1)


def test_paraphrases_with_a_false_caption_of_their_own(tmp_path):
    folder = hard_positives(tmp_path / "hp")
    edit_json(
        folder / "swapped_data" / "vl_checklist_relations.json",
        lambda entries: entries[0].update(false_caption="Another one."),
    )
    index = open_index(folder, tmp_path / "cache")
    rows = items(index)[-1]
    true, false = CAPTIONS[0]
    assert texts(index, rows) == (true, f"So: {true}", false, "Another one.")
    assert labels(index, rows) == ("true", "true", "false", "false")
    edit_json(
        folder / "swapped_data" / "vl_checklist_attributes.json", lambda entries: entries.pop()
    )
    assert_refused(folder, tmp_path / "cache", "differ in length")


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


def test_hard_positives_as_one_list(tmp_path):
    records = [
        {"image": f"{i}.jpg", "caption": true, "hard_positive": f"So: {true}", "negative": false,
         "category": "own"}
        for i, (true, false) in enumerate(CAPTIONS[:2])
    ]  # fmt: skip
    content = json.dumps(records).encode()
    photos = {f"images/{i}.jpg": photo(i) for i in range(2)}
    folder = put(tmp_path / "hp", {"hard_positives.json": content, **photos})
    index = open_index(folder, tmp_path / "cache")
    rows = items(index)[1]
    true, false = CAPTIONS[1]
    assert texts(index, rows) == (true, f"So: {true}", false)
    assert labels(index, rows) == ("true", "true", "false")
    assert index.extra_row(rows[0])["category"] == "own"


def test_trohn_img_without_its_photos(tmp_path):
    folder = trohn_img(tmp_path / "trohn_img")
    (folder / "train2017").rename(tmp_path / "elsewhere")
    assert_refused(folder, tmp_path / "cache", r"4 of 4 items .*missing")
    index = open_index(folder, tmp_path / "cache", [tmp_path / "elsewhere"])
    assert len(index) == 8


def test_the_index_knows_when_a_photo_changes(tmp_path):
    folder = sugarcrepe(tmp_path / "sugarcrepe")
    before = open_index(folder, tmp_path / "cache").hash
    coco_photos(folder / "val2017", 1)
    (folder / "val2017" / coco_name(0)).write_bytes(photo(9, (32, 32)))
    assert open_index(folder, tmp_path / "cache").hash != before


# Files that are damaged, incomplete or hostile.


def refused(folder: Path, said: str, reader: ItemList | None = None) -> None:
    with pytest.raises(UserError, match=said):
        open_index(folder, folder.parent / "cache", reader=reader)


def left_out(folder: Path, reader: ItemList | None = None) -> tuple[str, ...]:
    reading = open_index(folder, folder.parent / "cache", reader=reader).reading
    return reading.left_out


CONTENTS = {
    "gone": None,
    "empty": b"",
    "text": b"no image",
    "header": photo(2)[:100],
    "truncated": photo(2)[:-40],
    "huge": huge_png(),
}


@pytest.mark.parametrize("content", CONTENTS)
def test_a_photo_that_is_missing_or_unreadable_is_named_and_may_be_left_out(tmp_path, content):
    folder = sugarcrepe(tmp_path / "sugarcrepe")
    file = folder / "val2017" / coco_name(2)
    file.unlink()
    if CONTENTS[content] is not None:
        file.write_bytes(CONTENTS[content])
    said = "pixels" if content == "huge" else r"missing or unreadable.*000000000102\.jpg"
    refused(folder, rf"2 of 10 items .*{said}.*missing=skip")
    reader = reader_of("sugarcrepe", without_missing=True)
    said, *others = left_out(folder, reader)
    assert "2 items whose photo is missing or unreadable (add_obj.json, [0]" in said
    assert others == ([] if content == "gone" else ["1 other images"])
    assert len(open_index(folder, tmp_path / "cache", reader=reader)) == 16


def test_equal_captions_are_left_out_and_named(tmp_path):
    folder = sugarcrepe(tmp_path / "sugarcrepe")
    edit_json(
        folder / "swap_obj.json",
        lambda entries: entries["107"].update(negative_caption=CAPTIONS[1][0]),
    )
    assert len(open_index(folder, tmp_path / "cache")) == 18
    (said,) = left_out(folder)
    assert "1 items of which two captions are equal (swap_obj.json, [107])" in said


def test_an_empty_list_is_said(tmp_path):
    folder = sugarcrepe(tmp_path / "sugarcrepe")
    (folder / "swap_obj.json").write_text("{}")
    assert any("1 lists without an item (swap_obj.json)" in note for note in left_out(folder))
    refused(put(tmp_path / "none", {"swap_obj.json": b"{}"}), "hold no item")


def test_an_empty_category_counts_in_no_part(tmp_path):
    rows = [
        {**winoground_row(i), "image_0": cell(2 * i), "image_1": cell(2 * i + 1)} for i in (0, 1)
    ]
    rows[1]["collapsed_tag"] = None
    index = open_index(table(tmp_path / "winoground", rows), tmp_path / "cache")
    assert "category" not in index.extra_row(2)
    assert count_items(index) == {"Object": 1, "": 1}


@pytest.mark.parametrize(
    ("box", "outcome"),
    [
        ((0, 16, 5, 5), "left out"),
        ((-9, 0, 9, 5), "left out"),
        ((3, 3, 0, 5), "left out"),
        ((0, 0, 10**6, 10**6), "left out"),
        ((20, 10, 10, 10), "padded"),
        ((-2, -2, 10, 10), "padded"),
    ],
)
def test_boxes_outside_the_photo(tmp_path, box, outcome):
    folder, reader = aro(tmp_path / "aro"), reader_of("aro_relation")
    names = ("bbox_x", "bbox_y", "bbox_w", "bbox_h")
    edit_json(
        folder / "visual_genome_relation.json",
        lambda entries: entries[1].update(zip(names, box, strict=True)),
    )
    index = open_index(folder, tmp_path / "cache", reader=reader)
    (said,) = (note for note in index.reading.left_out if "box" in note)
    assert "visual_genome_relation.json, [1]" in said
    if outcome == "left out":
        assert "1 items whose box shows nothing of its photo" in said
        assert len(index) == 4
        return
    assert "1 boxes reach out of it: black" in said
    x, y, width, height = box
    whole = Image.open(io.BytesIO(photo(0))).convert("RGB")
    wanted = np.asarray(whole.crop((x, y, x + width, y + height)))
    assert (np.asarray(decode_image(index.read_image(2), "image")) == wanted).all()


def entry(column, value):
    return lambda entries: entries["107"].__setitem__(column, value)


RELATION, ATTRIBUTION = "visual_genome_relation.json", "visual_genome_attribution.json"


@pytest.mark.parametrize(
    ("lay_out", "list_name", "change", "said"),
    [
        (sugarcrepe, "swap_obj.json", change, rf"swap_obj\.json, \[107\].*{said}")
        for change, said in (
            (lambda entries: entries.update({"107": "text"}), "should be a JSON object"),
            (entry("caption", 3), "'?caption'?.* should be a text, not 3"),
            (entry("caption", "  "), "empty"),
            (entry("negative_caption", None), "negative_caption: the caption is missing"),
            (entry("filename", 7), "'filename' should be an image, not 7"),
            (entry("filename", ""), "should be the name of a file"),
            (entry("filename", "a\0b.jpg"), "should be the name of a file"),
            (lambda entries: entries["107"].pop("negative_caption"),
             "'negative_caption' is missing"),
        )
    ]
    + [
        (sugarcrepe, "swap_att.json", lambda entries, name=name: entries["0"].update(filename=name),
         "leads out of")
        for name in ("../../secret.jpg", "/etc/secret.jpg", "val2017/../../../x.jpg")
    ]
    + [
        (aro, ATTRIBUTION, lambda entries: entries[0].update(attributes="red"),
         r"\[0\].*'attributes' should be a list"),
        (aro, RELATION, lambda entries: entries[2].update(bbox_w="12"),
         r"\[2\].*'bbox_w' should be a whole number, not '12'"),
    ],
)  # fmt: skip
def test_an_entry_that_cannot_be_used_is_named(tmp_path, lay_out, list_name, change, said):
    folder = lay_out(tmp_path / "deep" / "set")
    put(tmp_path, {"secret.jpg": photo(3)})
    edit_json(folder / list_name, change)
    readers = {RELATION: "aro_relation", ATTRIBUTION: "aro_attribution"}
    refused(folder, said, reader_of(readers[list_name]) if list_name in readers else None)


@pytest.mark.parametrize("content", [b'{"0": {"filename": "x', b"", b"3", b"\xff\xfe", b"[[]]"])
def test_a_broken_list_is_named(tmp_path, content):
    folder = sugarcrepe(tmp_path / "sugarcrepe")
    (folder / "replace_rel.json").write_bytes(content)
    refused(folder, r"replace_rel\.json")


def test_an_id_of_winoground_that_is_duplicated(tmp_path):
    folder = winoground(tmp_path / "winoground")
    file = folder / "data" / "examples.jsonl"
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join([*lines, lines[0]]))
    refused(folder, "the key '0' is duplicated")


def test_rows_of_mmvp_that_are_no_pairs_or_lead_out(tmp_path):
    folder = mmvp(tmp_path / "mmvp")
    lines = (folder / "Questions.csv").read_text().splitlines()
    for changed, said in (
        (lines[:-1], "has no partner"),
        ([lines[0], *lines[2:], lines[1]], "should be odd"),
        ([line.replace("Texts", "../../x") for line in lines], "leads out of"),
    ):
        (folder / "Questions.csv").write_text("\n".join(changed))
        refused(folder, said)


def test_a_table_whose_image_is_broken(tmp_path):
    row = {**winoground_row(0), "image_0": cell(0), "image_1": {"bytes": b"no", "path": None}}
    refused(table(tmp_path / "winoground", [row]), r"row 1: image.* not an image")


def test_equal_captions_in_a_table(tmp_path):
    true, false = CAPTIONS[0]
    rows = [
        {"image": cell(i), "caption": true, "negative_caption": false if i else f" {true}  ",
         "negative_image": cell(9 + i), "type": "add", "subtype": "obj"}
        for i in range(2)
    ]  # fmt: skip
    folder = table(tmp_path / "bivlc", rows)
    assert len(open_index(folder, tmp_path / "cache")) == 2
    assert any(
        "1 items of which two captions are equal" in note and "row 1" in note
        for note in left_out(folder)
    )
