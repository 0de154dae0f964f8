"""Folders of images per class as they are released; laid out by hand."""

from __future__ import annotations

import pytest

from cfaug.data.index import open_index
from cfaug.errors import UserError
from tests.data.making import noise_image


def put(folder, *names):
    for i, name in enumerate(names):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(noise_image(i))


def opened(folder, tmp_path):
    return open_index(folder, tmp_path / "index")


def labels(index):
    return [index.label(row) for row in range(len(index))]


def food(folder):
    put(folder, *(f"images/{c}/{i}.jpg" for c in ("apple_pie", "waffles") for i in (1, 2, 3)))
    (folder / "meta").mkdir()
    (folder / "meta/classes.txt").write_text("apple_pie\nwaffles\n")
    (folder / "meta/train.txt").write_text("apple_pie/1\napple_pie/3\nwaffles/1\nwaffles/2\n")
    (folder / "meta/test.txt").write_text("waffles/3\napple_pie/2\n")
    (folder / "README.txt").write_text("Food-101")
    return folder


@pytest.mark.parametrize("place", ["food101", "food101/food-101"])
def test_food_101_is_its_test_split(tmp_path, place):
    home = food(tmp_path / place)
    index = opened(tmp_path / "food101", tmp_path)
    assert index.kind == "food101"
    assert labels(index) == ["waffles", "apple_pie"]
    assert index.text(1) == "a photo of a apple pie"
    assert index.read_image(0) == (home / "images/waffles/3.jpg").read_bytes()


def test_a_line_of_food_101_that_cannot_be_read_is_named(tmp_path):
    home = food(tmp_path / "food101")
    (home / "meta/test.txt").write_text("waffles/3\nwaffles/4\n../../secret\n")
    with pytest.raises(
        UserError, match=r"test.txt, line 2: there is no image(.|\n)*line 3.*out of"
    ):
        opened(home, tmp_path)


def test_the_archives_own_folder_is_no_class(tmp_path):
    folder = tmp_path / "caltech101"
    put(folder, *(f"101_ObjectCategories/{c}/image_0001.jpg" for c in ("Faces", "ant")))
    (folder / "Annotations/ant").mkdir(parents=True)
    (folder / "Annotations/ant/annotation_0001.mat").write_text("no image")
    assert labels(opened(folder, tmp_path)) == ["Faces", "ant"]
    assert labels(opened(folder / "101_ObjectCategories", tmp_path)) == ["Faces", "ant"]


def test_one_class_with_its_images_is_a_class(tmp_path):
    put(tmp_path / "set", "dog/a.png", "dog/more/b.png")
    assert labels(opened(tmp_path / "set", tmp_path)) == ["dog", "dog"]


def test_splits_are_no_classes_however_deep(tmp_path):
    put(tmp_path / "set", "imagenet/train/n01440764/a.JPEG", "imagenet/val/n01440764/b.JPEG")
    with pytest.raises(UserError, match=r"name one of .*/imagenet/train, .*/imagenet/val"):
        opened(tmp_path / "set", tmp_path)
    put(tmp_path / "one", "val/n01440764/a.JPEG")
    with pytest.raises(UserError, match=r"name one of .*/one/val"):
        opened(tmp_path / "one", tmp_path)
    index = opened(tmp_path / "one/val", tmp_path)
    assert (index.label(0), index.text(0)) == ("n01440764", "a photo of a tench")
