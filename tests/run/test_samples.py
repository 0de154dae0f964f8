"""Pairs for people to look at: a user's own are shown as the world's are."""

from __future__ import annotations

import csv
import io

import numpy as np
import pytest
from PIL import Image

from cfaug.data.mixture.settings import RatioData
from cfaug.report.gallery import contrast, show
from cfaug.run.evaluation_data import DataOpener

ROWS = (
    ("a", "a red ball", "a0.png", "a green ball", "a1.png"),
    ("b", "a cat", "b0.png", "a dog", "b1.png"),
    ("c", "a tree", "c0.png", "a house", "c1.png"),
)


@pytest.fixture
def pairs(tmp_path):
    folder = tmp_path / "pairs"
    folder.mkdir()
    with (folder / "pairs.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["key", "caption_0", "image_0", "caption_1", "image_1"])
        for number, (key, first, image, second, other) in enumerate(ROWS):
            writer.writerow([key, first, image, second, other])
            for place, name in enumerate((image, other)):
                grey = np.full((12, 12, 3), 100 + 10 * number + place, np.uint8)
                Image.fromarray(grey).save(folder / name)
    return folder


def opener(tmp_path):
    return DataOpener(tmp_path / "shards", tmp_path / "cache")


def test_pairs_of_a_list_are_shown_with_their_words_marked(pairs, tmp_path):
    data = RatioData(None, str(pairs), cf_ratio=1.0, seed=1)
    sets = opener(tmp_path).samples(data, 2)
    assert [[member.text for member in pair.members] for pair in sets] == [
        [first, second] for _, first, _, second, _ in ROWS[:2]
    ]
    for pair, (_, _, image, _, other) in zip(sets, ROWS, strict=False):
        shown = [pair.images[member.image_name] for member in pair.members]
        assert shown == [(pairs / name).read_bytes() for name in (image, other)]
    assert [member.caption for member in show(sets[0]).members] == [
        "a <mark>red</mark> ball", "a <mark>green</mark> ball",
    ]  # fmt: skip


def test_a_source_that_is_gone_or_has_single_images_has_no_samples(pairs, tmp_path):
    single = tmp_path / "single"
    single.mkdir()
    (single / "captions.csv").write_text("image,caption\na.png,a ball\n")
    Image.new("RGB", (8, 8)).save(single / "a.png")
    for folder in (single, tmp_path / "gone"):
        data = RatioData(None, str(folder), cf_ratio=1.0, seed=1)
        assert opener(tmp_path).samples(data, 8) == []


def test_pale_pictures_are_stretched_and_others_are_not(pairs, tmp_path):
    data = RatioData(None, str(pairs), cf_ratio=1.0, seed=1)
    samples = [show(pair) for pair in opener(tmp_path).samples(data, 3)]
    assert contrast(member for pair in samples for member in pair.members).on
    wide = np.linspace(0, 255, 12 * 12 * 3).reshape(12, 12, 3).astype(np.uint8)
    for number, image in enumerate(sorted(pairs.glob("*.png"))):
        file = io.BytesIO()
        Image.fromarray(np.roll(wide, number, axis=0)).save(file, "PNG")
        image.write_bytes(file.getvalue())
    samples = [show(pair) for pair in DataOpener(tmp_path, tmp_path / "c2").samples(data, 3)]
    assert len(samples) == len(ROWS)
    assert not contrast(member for pair in samples for member in pair.members).on
    assert not contrast([]).on
