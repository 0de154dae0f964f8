"""Rows of an index are numbered as the items of a list, and a removed index is named."""

from __future__ import annotations

import pickle
import shutil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from cfaug.core.errors import UserError
from cfaug.data.index import open_index

ROWS = 5


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Five photos with captions, labels and a further column."""
    folder = tmp_path_factory.mktemp("photos")
    lines = ["image,caption,label,place"]
    for number in range(ROWS):
        Image.new("RGB", (8, 8), (number, 0, 0)).save(folder / f"{number}.png")
        lines.append(f"{number}.png,a photo of number {number},class {number},place {number}")
    (folder / "captions.csv").write_text("\n".join(lines) + "\n")
    return open_index(folder, tmp_path_factory.mktemp("cache"))


ACCESSORS = (
    "text", "key", "label", "negatives", "group_name", "extra_row", "file_name", "image_name",
    "read_image",
)  # fmt: skip


@pytest.mark.parametrize("name", ACCESSORS)
@given(row=st.integers(-2 * ROWS, 2 * ROWS))
def test_a_row_is_an_item_of_a_list(photos, name, row):
    """N8: text(-1) was empty, negatives(60) of 60 rows was [], and group_name(-1) a false error."""
    value = getattr(photos, name)
    every = [value(number) for number in range(len(photos))]
    try:
        expected = every[row]
    except IndexError:
        with pytest.raises(IndexError, match=f"row {row} is out of range: .* has {ROWS} rows"):
            value(row)
        return
    assert value(row) == value(np.int64(row)) == expected


@pytest.mark.parametrize("wrong", [1.0, "1", None])
@pytest.mark.parametrize("name", ACCESSORS)
def test_a_row_is_a_whole_number(photos, name, wrong):
    """N8."""
    with pytest.raises(TypeError):
        getattr(photos, name)(wrong)


def _read(index, name):
    """Read a property, or an accessor's first row."""
    value = getattr(index, name)
    return value(0) if callable(value) else value


@pytest.mark.parametrize("name", [*ACCESSORS, "has_negatives", "extra_names", "groups"])
def test_an_index_that_was_removed_is_named(photos, tmp_path, name):
    """N25: FileNotFoundError, and negatives and further columns were missing without a word.

    A worker opens the columns that it needs when it needs them.
    """
    opened = open_index(photos.source, tmp_path)
    sent = pickle.loads(pickle.dumps(opened))
    shutil.rmtree(opened.folder)
    with pytest.raises(UserError, match=r"was removed while it was in use: run the same command"):
        _read(sent, name)
