"""Compositional tests whose files are damaged, incomplete or hostile."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from cfaug.compositional.pairs import count_items, describe_count
from cfaug.core.errors import UserError
from cfaug.core.pixels import decode_image
from cfaug.data.index import open_index
from cfaug.data.sources.compositional import FORMS, ITEM_LISTS, ItemList
from cfaug.data.sources.compositional.item import RELEASED
from tests.data.compositional import (
    CAPTIONS,
    aro,
    bivlc,
    cell,
    coco_name,
    edit_json,
    mmvp,
    naturalbench,
    photo,
    put,
    sugarcrepe,
    table,
    winoground,
    winoground_row,
)


def reader_of(kind: str, **settings: Any) -> ItemList:
    return ItemList(next(form for form in FORMS if form.kind == kind), **settings)


def refused(folder: Path, said: str, reader: ItemList | None = None) -> None:
    with pytest.raises(UserError, match=said):
        open_index(folder, folder.parent / "cache", reader=reader)


def left_out(folder: Path, reader: ItemList | None = None) -> tuple[str, ...]:
    reading = open_index(folder, folder.parent / "cache", reader=reader).reading
    return reading.left_out


def test_a_missing_photo_is_named_and_counted(tmp_path):
    folder = sugarcrepe(tmp_path / "sugarcrepe")
    (folder / "val2017" / coco_name(2)).unlink()
    refused(folder, r"2 of 10 items .*add_obj\.json, \[0\].*000000000102\.jpg.*missing=skip")
    reader = reader_of("sugarcrepe", without_missing=True)
    found = left_out(folder, reader)
    assert any(
        "2 items whose photo is missing" in one and "add_obj.json, [0]" in one for one in found
    )
    assert len(open_index(folder, tmp_path / "cache", reader=reader)) == 16


def huge_png():
    """Return a PNG whose header claims more pixels than are ever decoded."""
    content = io.BytesIO()
    Image.new("1", (20_000, 20_000)).save(content, "PNG")
    return content.getvalue()


@pytest.mark.parametrize(
    "content",
    [lambda: b"", lambda: b"no image", lambda: photo(2)[:100], lambda: photo(2)[:-40], huge_png],
    ids=["empty", "text", "header", "truncated", "huge"],
)
def test_an_unreadable_photo_is_as_one_that_is_missing(tmp_path, content):
    folder = sugarcrepe(tmp_path / "sugarcrepe")
    (folder / "val2017" / coco_name(2)).write_bytes(content())
    said = "pixels" if content is huge_png else r"missing or unreadable.*000000000102\.jpg"
    refused(folder, rf"2 of 10 items .*{said}")
    said, others = left_out(folder, reader_of("sugarcrepe", without_missing=True))
    assert "2 items whose photo is missing or unreadable" in said
    assert others == "1 other images"


def test_equal_captions_are_left_out_and_named(tmp_path):
    folder = sugarcrepe(tmp_path / "sugarcrepe")
    edit_json(
        folder / "swap_obj.json", lambda found: found["107"].update(negative_caption=CAPTIONS[1][0])
    )
    assert len(open_index(folder, tmp_path / "cache")) == 18
    (said,) = left_out(folder)
    assert "1 items of which two captions are equal (swap_obj.json, [107])" in said


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
        "1 items of which two captions are equal" in one and "row 1" in one
        for one in left_out(folder)
    )


def test_an_empty_list_is_said(tmp_path):
    folder = sugarcrepe(tmp_path / "sugarcrepe")
    (folder / "swap_obj.json").write_text("{}")
    assert any("1 lists without an item (swap_obj.json)" in one for one in left_out(folder))


def test_nothing_but_empty_lists(tmp_path):
    refused(put(tmp_path / "sugarcrepe", {"swap_obj.json": b"{}"}), "hold no item")


def test_an_empty_category_counts_in_no_part(tmp_path):
    index = open_index(bivlc(tmp_path / "bivlc"), tmp_path / "cache")
    assert index.extra_row(6)["category"] == "replace"
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
        ((30, 0, 5, 5), "left out"),
        ((0, 16, 5, 5), "left out"),
        ((-9, 0, 9, 5), "left out"),
        ((3, 3, 0, 5), "left out"),
        ((3, 3, 5, -1), "left out"),
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
        lambda found: found[1].update(zip(names, box, strict=True)),
    )
    index = open_index(folder, tmp_path / "cache", reader=reader)
    (said,) = (one for one in index.reading.left_out if "box" in one)
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
    return lambda found: found["107"].__setitem__(column, value)


RELATION, ATTRIBUTION = "visual_genome_relation.json", "visual_genome_attribution.json"


@pytest.mark.parametrize(
    ("lay_out", "list_name", "change", "said"),
    [
        (sugarcrepe, "swap_obj.json", change, rf"swap_obj\.json, \[107\].*{said}")
        for change, said in (
            (lambda found: found.update({"107": "text"}), "should be a JSON object"),
            (entry("caption", 3), "'?caption'?.* should be a text, not 3"),
            (entry("caption", "  "), "empty"),
            (entry("negative_caption", None), "should be a text, not None"),
            (entry("filename", 7), "'filename' should be an image, not 7"),
            (entry("filename", ""), "should be the name of a file"),
            (entry("filename", "a\0b.jpg"), "should be the name of a file"),
            (lambda found: found["107"].pop("negative_caption"), "'negative_caption' is missing"),
        )
    ]
    + [
        (sugarcrepe, "swap_att.json", lambda found, name=name: found["0"].update(filename=name),
         "leads out of")
        for name in ("../../secret.jpg", "/etc/secret.jpg", "val2017/../../../x.jpg")
    ]
    + [
        (aro, ATTRIBUTION, lambda found: found[0].update(attributes="red"),
         r"\[0\].*'attributes' should be a list"),
        (aro, RELATION, lambda found: found[2].update(bbox_w="12"),
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


def test_a_number_that_is_duplicated(tmp_path):
    folder = sugarcrepe(tmp_path / "sugarcrepe")
    entry = json.dumps(json.loads((folder / "swap_att.json").read_text())["0"])
    (folder / "swap_att.json").write_text(f'{{"0": {entry}, "0": {entry}}}')
    refused(folder, r"swap_att\.json: the name '0' is duplicated")


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


def test_naturalbench_without_a_photo(tmp_path):
    folder = naturalbench(tmp_path / "nb")
    (folder / "images" / "1_0.jpg").unlink()
    refused(folder, r"1 of 3 items .*1_0\.jpg")


def test_a_table_whose_image_is_broken(tmp_path):
    row = {**winoground_row(0), "image_0": cell(0), "image_1": {"bytes": b"no", "path": None}}
    refused(table(tmp_path / "winoground", [row]), r"row 1: image.* not an image")


def test_counts_beside_the_released_ones(tmp_path):
    index = open_index(sugarcrepe(tmp_path / "sugarcrepe"), tmp_path / "cache")
    said = describe_count(index)
    assert said.startswith(
        "SugarCrepe: 10 items, where the released files have 7,511 (add_obj 1 for"
    )
    assert "swap_obj 3 for 245" in said
    assert "the paper, and copies made of an earlier release, have 7,512" in said
    assert count_items(index)["swap_obj"] == 3


def test_released_counts_add_up():
    assert {one.kind for one in (*ITEM_LISTS,)} - set(RELEASED) == {
        "naturalbench_retrieval", "trohn_text"
    }  # fmt: skip
    for known in RELEASED.values():
        assert not known.by_category or sum(known.by_category.values()) == known.items
