"""Masks of edits: a folder of pictures, and PIE-Bench's layout."""

from __future__ import annotations

import json

import numpy as np
import pytest
from PIL import Image

from cfaug.core.errors import UserError
from cfaug.evaluation.edit_masks import MaskFolder, decode_runs


def lay_pie_bench(folder, masks):
    """Write PIE-Bench's data: {path of a photo: runs}; ids are the names of the files."""
    listed = {}
    for path, runs in masks.items():
        file = folder / "annotation_images" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (512, 512)).save(file)
        listed[file.stem] = {
            "image_path": path, "original_prompt": "a [red] ball", "mask": runs,
            "editing_prompt": "a [blue] ball", "editing_instruction": "make it blue",
            "editing_type_id": "6", "blended_word": "ball ball",
        }  # fmt: skip
    (folder / "mapping_file.json").write_text(json.dumps(listed))
    return folder


def slow_runs(runs, side):
    """One pixel at a time."""
    mask = np.zeros((side, side), bool)
    for start, length in zip(runs[::2], runs[1::2], strict=True):
        for at in range(start, min(start + length, side * side)):
            mask[at // side, at % side] = True
    for at in range(side):
        mask[0, at] = mask[-1, at] = mask[at, 0] = mask[at, -1] = True
    return mask


@pytest.mark.parametrize("seed", range(5))
def test_runs_are_decoded_row_by_row_with_the_border(seed):
    rng = np.random.default_rng(seed)
    runs = rng.integers(0, 100, 8).tolist()
    assert np.array_equal(decode_runs(runs, 10), slow_runs(runs, 10))


def test_pie_benchs_masks_are_found_by_path_and_by_id_in_the_size_of_the_photo(tmp_path):
    path = "6_change_attribute_color_40/1_artificial/1_animal/611000000000.jpg"
    runs = [100 * 512 + 50, 30, 101 * 512 + 50, 31]
    masks = MaskFolder(lay_pie_bench(tmp_path / "data", {path: runs}))
    whole = masks.find(path.removesuffix(".jpg"), "edit_1", (512, 512))
    assert np.array_equal(whole, slow_runs(runs, 512))
    assert np.array_equal(masks.find("611000000000", "edit_1", (512, 512)), whole)
    half = masks.find("611000000000", "edit_1", (256, 256))
    assert half.shape == (256, 256)
    assert 0 < half[1:-1, 1:-1].sum() < 31
    with pytest.raises(UserError, match="has no mask of 'other'"):
        masks.find("other", "edit_1", (512, 512))


def test_a_mask_of_one_edit_goes_before_that_of_its_photo(tmp_path):
    (tmp_path / "dogs").mkdir()
    Image.new("L", (8, 4), 255).save(tmp_path / "dogs" / "1.png")
    left = Image.new("L", (8, 4), 0)
    left.paste(255, (0, 0, 2, 4))
    left.save(tmp_path / "dogs-1_2.png")
    masks = MaskFolder(tmp_path)
    assert masks.find("dogs/1", "dogs-1_1", (4, 8)).all()
    assert masks.find("dogs/1", "dogs-1_2", (8, 16)).mean(axis=0).tolist() == [1] * 4 + [0] * 12
    with pytest.raises(UserError, match="proportions differ"):
        masks.find("dogs/1", "dogs-1_1", (8, 8))
    before = masks.hash()
    (tmp_path / "dogs" / "1.png").rename(tmp_path / "dogs" / "2.png")
    assert MaskFolder(tmp_path).hash() != before


def test_folders_without_masks_are_refused(tmp_path):
    with pytest.raises(UserError, match="there is no folder"):
        MaskFolder(tmp_path / "nothing")
    with pytest.raises(UserError, match="holds no masks"):
        MaskFolder(tmp_path)
    for wrong in ([1], {"1": "text"}, {"1": {"image_path": "1.jpg", "mask": [3]}}):
        (tmp_path / "mapping_file.json").write_text(json.dumps(wrong))
        with pytest.raises(UserError, match=r"PIE-Bench's|a list of starts"):
            MaskFolder(tmp_path).find("1", "1", (4, 4))
