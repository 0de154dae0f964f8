"""Compositional tests in the forms that their authors released, laid out by hand."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cfaug.data.index import open_index
from cfaug.data.index.index import Index
from cfaug.data.planning.coco_ids import coco_ids
from cfaug.errors import UserError
from cfaug.pixels import decode_image
from tests.data.compositional import (
    CAPTIONS,
    SUGARCREPE,
    TAGS,
    coco_name,
    coco_photos,
    photo,
    rgba,
    sugarcrepe,
    sugarcrepe_pp,
    winoground,
    winoground_parquet,
)

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


def test_sugarcrepe(tmp_path: Path) -> None:
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
    "photos",
    ["", "val2017", "images", "coco/images/val2017", "../val2017", "../coco/val2017"],
)
def test_photos_are_found_inside_and_beside(tmp_path: Path, photos: str) -> None:
    folder = sugarcrepe(tmp_path / "data" / "sugarcrepe", photos)
    assert len(open_index(folder, tmp_path / "cache")) == 20


def test_photos_elsewhere_are_named(tmp_path: Path) -> None:
    folder = sugarcrepe(tmp_path / "sugarcrepe", "../far/away")
    with pytest.raises(
        UserError, match=r"10 of 10 items .* missing .*000000000102\.jpg.*benchmark\.images=FOLDER"
    ):
        open_index(folder, tmp_path / "cache")
    assert len(open_index(folder, tmp_path / "cache", [tmp_path / "far" / "away"])) == 20


def test_lists_lie_in_data_as_in_the_repository(tmp_path: Path) -> None:
    sugarcrepe(tmp_path / "sugar-crepe" / "data", "coco/images/val2017")
    index = open_index(tmp_path / "sugar-crepe", tmp_path / "cache")
    assert (index.kind, len(index)) == ("sugarcrepe", 20)


def test_sugarcrepe_with_two_true_captions(tmp_path: Path) -> None:
    index = open_index(sugarcrepe_pp(tmp_path / "pp"), tmp_path / "cache")
    assert index.kind == "sugarcrepe_pp"
    rows = items(index)[1]
    true, false = CAPTIONS[1]
    assert texts(index, rows) == (true, f"In other words: {true}", false)
    assert labels(index, rows) == ("true", "true", "false")
    assert len(items(index)) == 10


def test_winoground_as_images_and_a_list(tmp_path: Path) -> None:
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
    assert "secondary_tag" not in index.extra_row(found[0][0])
    assert len({int(group) for group in index.groups}) == 3


def test_transparency_is_left_out_as_by_convert_rgb(tmp_path: Path) -> None:
    index = open_index(winoground(tmp_path / "winoground"), tmp_path / "cache")
    wanted = np.asarray(Image.open(io.BytesIO(rgba(7))).convert("RGB"))
    assert (np.asarray(decode_image(index.read_image(0), "image")) == wanted).all()


def test_winoground_as_parquet(tmp_path: Path) -> None:
    index = open_index(winoground_parquet(tmp_path / "winoground"), tmp_path / "cache")
    assert index.kind == "winoground"
    found = items(index)
    assert [texts(index, rows) for rows in found] == list(CAPTIONS[:3])
    assert [index.read_image(row) for row in found[2]] == [photo(4), photo(5)]
    assert index.extra_row(found[1][0])["secondary_tag"] == "Pragmatics"
    assert index.extra_row(found[0][0])["category"] == "Object"
    assert [index.group_name(rows[0]) for rows in found] == ["0", "1", "2"]


def test_a_photo_of_several_items_is_read_once(tmp_path: Path, monkeypatch) -> None:
    from cfaug.data.sources.compositional import photos

    seen = []
    digest = photos.file_digest
    monkeypatch.setattr(photos, "file_digest", lambda file: seen.append(file.name) or digest(file))
    open_index(sugarcrepe(tmp_path / "sugarcrepe"), tmp_path / "cache")
    assert sorted(seen) == [coco_name(i) for i in range(4)]


def test_the_index_knows_when_a_photo_changes(tmp_path: Path) -> None:
    folder = sugarcrepe(tmp_path / "sugarcrepe")
    before = open_index(folder, tmp_path / "cache").hash
    coco_photos(folder / "val2017", 1)
    (folder / "val2017" / coco_name(0)).write_bytes(photo(9, (32, 32)))
    assert open_index(folder, tmp_path / "cache").hash != before
