"""Notes about a source whose rows are read as they are, and may not be meant so."""

from __future__ import annotations

import io
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from cfaug.core.pixels import ORIENTATION, is_turned, open_image
from cfaug.data.index import open_index
from cfaug.data.index.reading import ScanReport
from cfaug.data.shards.shards import write_shards
from tests.data.layouts import CAPTIONED, TEXTS, edited, images, sides, table
from tests.data.making import noise_image, pair
from tests.properties import examples


def reading(folder, tmp_path):
    return open_index(folder, tmp_path / "cache").reading


def photo(orientation, kind="JPEG"):
    exif = Image.Exif()
    if orientation is not None:
        exif[ORIENTATION] = orientation
    buffer = io.BytesIO()
    pixels = Image.open(io.BytesIO(noise_image(orientation or 0))).convert("RGB")
    pixels.save(buffer, kind, exif=exif)
    return buffer.getvalue()


def test_duplicated_rows_are_counted(tmp_path):
    """N36: every row of captions.csv twice was "24 images with 48 captions", without a word."""
    images(tmp_path / "set")
    rows = CAPTIONED
    table(tmp_path / "set" / "captions.csv", ["image", "caption"], rows + rows[:2] + rows[:1])
    found = reading(tmp_path / "set", tmp_path)
    assert (found.rows, found.images) == (6, 3)
    assert "; note: 3 of 6 rows repeat image and caption of another row" in found.line("test", "s")
    assert ScanReport.of_json(json.loads(json.dumps(found.json()))) == found


def test_copies_of_an_image_under_one_caption_are_duplicates(tmp_path):
    """N36: the row is what is learned from, whatever its image is called."""
    images(tmp_path / "set" / "dog")
    images(tmp_path / "set" / "cat", start=1)  # its first two images are also called dog
    (tmp_path / "set" / "dog" / "copy.png").write_bytes(noise_image(0))
    assert reading(tmp_path / "set", tmp_path).notes[0].startswith("1 of 7 rows repeat")


def test_an_original_of_several_counterfactuals_is_no_duplicate(tmp_path):
    """N36: only a whole set that occurs again is one."""
    sides(tmp_path / "set", "a", "b")
    names = ["image", "caption", "cf_image", "cf_caption"]
    rows = [("a/a.png", "a", f"b/{n}.jpg", edited(t)) for n, t in TEXTS.items()]
    table(tmp_path / "set" / "pairs.csv", names, rows)
    assert reading(tmp_path / "set", tmp_path).notes == ()
    table(tmp_path / "set" / "pairs.csv", names, [*rows, rows[1]])
    assert reading(tmp_path / "set", tmp_path).notes[0].startswith("2 of 8 rows repeat")


def test_a_reading_without_notes_is_recorded_as_before(tmp_path):
    """Records of runs keep their bytes where nothing is to be said."""
    write_shards([pair(0), pair(1)], tmp_path / "set")
    found = reading(tmp_path / "set", tmp_path)
    assert "notes" not in found.json()
    assert "note" not in found.line("real", "set")


@pytest.mark.parametrize("kind", ["JPEG", "WEBP"])
def test_turned_photos_are_counted(tmp_path, kind):
    """N37: phone photos are trained sideways, as by CLIP's own transform; it is said."""
    (tmp_path / "set").mkdir()
    for number, orientation in enumerate((None, 1, 3, 6, 8)):
        (tmp_path / "set" / f"{number}.{kind.lower()}").write_bytes(photo(orientation, kind))
        (tmp_path / "set" / f"{number}.txt").write_text(f"photo {number}\nthe same {number}")
    [note] = reading(tmp_path / "set", tmp_path).notes
    assert note.startswith("3 images with an EXIF orientation, which is ignored")


@settings(max_examples=examples(200), deadline=None)
@given(st.sampled_from([b"", b"Exif\0\0II*\0\x08\0\0\0"]), st.binary(max_size=60))
def test_damaged_exif_data_are_no_error(head, data):
    image = open_image(noise_image(0, kind="JPEG"), "it")
    image.info["exif"] = head + data
    assert is_turned(image) in (True, False)
