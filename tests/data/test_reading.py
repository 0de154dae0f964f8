"""What a reader says it recognised, of a fresh scan and of a cached index alike."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from cfaug.core.errors import UserError
from cfaug.core.pixels import ORIENTATION, is_turned, open_image
from cfaug.core.types import CounterfactualSet, Edit, Member
from cfaug.data.index import open_index
from cfaug.data.index.reading import ScanReport
from cfaug.data.shards.shards import read_sets, write_shards
from cfaug.data.sources import import_sets
from tests.data.hostile import assert_refused
from tests.data.layouts import CAPTIONED, TEXTS, cells, edited, images, parquet, sides, table
from tests.data.making import noise_image, pair, write_tar
from tests.data.released import coco_counterfactuals, edit_lines
from tests.properties import examples

TEXT = st.text(max_size=5)
SEVERAL = st.lists(TEXT, max_size=3).map(tuple)
COUNT = st.integers(0, 10**9)
READINGS = st.builds(ScanReport, TEXT, TEXT, *[COUNT] * 6, *[SEVERAL] * 4, kept=SEVERAL)


def reading(folder: Path, cache: Path) -> ScanReport:
    """Return what was recognised, after a look that the cached index says the same."""
    scanned = open_index(folder, cache).reading
    assert scanned is not None
    assert open_index(folder, cache).reading == scanned
    return scanned


def test_captions_with_columns_that_are_kept(tmp_path):
    images(tmp_path / "x")
    rows = [(f"{n}.png", text, "8") for n, t in TEXTS.items() for text in (t, f"{t} again")]
    table(tmp_path / "x" / "captions.csv", ["image", "caption", "width"], rows)
    report = reading(tmp_path / "x", tmp_path / "cache")
    assert (report.rows, report.images, report.sets) == (6, 3, 3)
    assert (report.counterfactual_sets, report.classes) == (0, 0)
    assert (report.used, report.unused) == (("image", "caption"), ())
    assert report.kept == ("width",) == open_index(tmp_path / "x", tmp_path / "cache").extra_names
    assert report.line("real", "x") == (
        "real: 3 images with 6 captions of x read as a list of images and captions; "
        "first: 'a dog, running'; other columns kept: width"
    )


def test_pairs_show_both_captions(tmp_path):
    sides(tmp_path / "x", "a", "b")
    rows = [(f"a/{n}.png", t, f"b/{n}.jpg", edited(t)) for n, t in TEXTS.items()]
    table(tmp_path / "x" / "pairs.csv", ["image", "caption", "cf_image", "cf_caption"], rows)
    report = reading(tmp_path / "x", tmp_path / "cache")
    assert (report.rows, report.images, report.sets, report.counterfactual_sets) == (6, 6, 3, 3)
    assert report.example == ("a dog, running", "a dog, running at night")
    assert report.line("counterfactual", "x") == (
        "counterfactual: 6 images of x read as a list of images and captions (3 counterfactual "
        "sets); first: 'a dog, running' / 'a dog, running at night'"
    )


def test_a_set_of_many_shows_the_first_captions(tmp_path):
    write_shards([pair(1, members=12), pair(2, members=4)], tmp_path / "x")
    line = reading(tmp_path / "x", tmp_path / "cache").line("test", "x")
    assert "first: 'scene 1 as version 0' / 'scene 1 as version 1' / " in line
    assert line.endswith("/ 'scene 1 as version 3' / ... (12)")


def test_an_import_is_called_by_its_own_form_and_columns(tmp_path):
    folder = coco_counterfactuals(tmp_path / "coco")
    edit_lines(folder, lambda lines: [line.update(url="x") for line in lines])
    report = reading(folder, tmp_path / "cache")
    assert (report.kind, report.form) == ("coco_counterfactuals", "COCO-Counterfactuals")
    assert (report.counterfactual_sets, report.unused) == (3, ("url",))
    parquet(tmp_path / "p" / "all.parquet", {
        "image": [{"bytes": noise_image(i), "path": None} for i in (1, 2)],
        "label": ["ant", "bee"], "text": ["an ant", "a bee"], "width": [8, 8],
    })  # fmt: skip
    report = reading(tmp_path / "p", tmp_path / "cache")
    assert (report.classes, report.unused, report.kept) == (2, ("width",), ())
    assert report.example == ("an ant",)
    assert "; columns not used: width" in report.line("real", "p")


def test_sets_of_ours_and_the_images_they_share(tmp_path):
    """Captions of one photo are no counterfactuals; an edit of the caption alone is."""

    def shared(key: str, edit: Edit | None) -> CounterfactualSet:
        members = (Member("a", "i", "s"), Member("b", "i", "s", edit))
        return CounterfactualSet(key, key, members, {"i": noise_image(3)})

    single = CounterfactualSet("c", "c", (Member("a", "i", "s"),), {"i": noise_image(4)})
    sets = [shared("a", None), shared("b", Edit("noun", "a", "b")), single, pair(1)]
    write_shards(sets, tmp_path / "x")
    report = reading(tmp_path / "x", tmp_path / "cache")
    assert (report.rows, report.images, report.sets, report.counterfactual_sets) == (7, 5, 4, 2)
    assert report.example == ("a", "b")
    assert "(2 classes, 2 counterfactual sets, 2 single ones)" in report.line("counterfactual", "x")


def test_parts_of_a_sample_that_are_not_used(tmp_path):
    files = {"a.jpg": noise_image(0, kind="JPEG"), "a.txt": b"a", "a.flac": b"x"}
    write_tar(tmp_path / "x" / "00000.tar", files)
    report = reading(tmp_path / "x", tmp_path / "cache")
    assert (report.used, report.unused) == ((".jpg", ".txt"), (".flac",))


def test_a_single_class_without_captions_is_refused_in_every_form(tmp_path):
    files = {}
    for i in range(2):
        files |= {f"{i}.jpg": noise_image(i, kind="JPEG"), f"{i}.cls": b"dog"}
    write_tar(tmp_path / "x" / "00000.tar", files)
    assert_refused(
        tmp_path / "x", tmp_path / "cache", r"2 images read as WebDataset tars, all of one class"
    )
    assert not list((tmp_path / "cache").iterdir())
    files["1.txt"] = b"a dog runs"
    write_tar(tmp_path / "x" / "00000.tar", files)
    assert len(open_index(tmp_path / "x", tmp_path / "cache")) == 2


@given(READINGS)
def test_a_record_gives_back_the_reading(report):
    assert ScanReport.of_json(json.loads(json.dumps(report.json()))) == report


@pytest.mark.parametrize("change", [{"rows": "3"}, {"example": "a"}, {"unused": [3]}, {"kind": 1}])
def test_a_record_of_another_type_is_no_reading(change):
    record = ScanReport("k", "f", 1, 1, 1, 0, 0, 0, ("a",)).json()
    with pytest.raises(TypeError):
        ScanReport.of_json(record | change)
    with pytest.raises(KeyError):
        ScanReport.of_json({name: value for name, value in record.items() if name not in change})


def test_a_shard_that_the_card_counts_and_nobody_committed_is_missed(tmp_path):
    write_shards([pair(i) for i in range(6)], tmp_path / "x", sets_per_shard=2)
    whole = open_index(tmp_path / "x", tmp_path / "cache").hash
    commit = (tmp_path / "x" / "00001.json").read_text()
    (tmp_path / "x" / "00001.json").unlink()
    ways = (lambda x: open_index(x, tmp_path / "cache"), lambda x: list(read_sets(x)), import_sets)
    for way in ways:
        with pytest.raises(UserError, match=r"card.json counts 1 of its shards \(00001.tar\)"):
            way(tmp_path / "x")
    (tmp_path / "x" / "card.json").unlink()
    report = reading(tmp_path / "x", tmp_path / "cache")
    assert (report.sets, report.left_out) == (4, ("00001.tar, which has no commit",))
    (tmp_path / "x" / "00001.json").write_text(commit)
    assert open_index(tmp_path / "x", tmp_path / "cache").hash == whole


def test_a_generation_that_is_not_finished_says_so(tmp_path):
    write_shards([pair(i) for i in range(4)], tmp_path / "x", sets_per_shard=2)
    card = json.loads((tmp_path / "x" / "card.json").read_text())
    (tmp_path / "x" / "card.json").write_text(json.dumps(card | {"of": 5}))
    report = reading(tmp_path / "x", tmp_path / "cache")
    assert report.left_out == ("3 of 5 shards, which are not made yet",)


@pytest.mark.parametrize("text", ["", "[]", "{}", "null", '{"kind": "cfaug-shards"}', "{"])
def test_a_card_that_says_nothing_of_use(tmp_path, text):
    write_shards([pair(0)], tmp_path / "x")
    (tmp_path / "x" / "card.json").write_text(text)
    if text in ("", "{"):
        assert_refused(tmp_path / "x", tmp_path / "cache", r"card.json cannot be read")
    else:
        assert len(open_index(tmp_path / "x", tmp_path / "cache")) == 2


@pytest.mark.parametrize("layout", ["one file", "copies", "sides", "parquet"])
def test_a_counterfactual_without_an_image_of_its_own_is_refused(tmp_path, layout):
    """Its caption would be trained on as the caption of the original."""
    x, columns = tmp_path / "x", ["image", "caption", "cf_image", "cf_caption"]
    if layout == "parquet":
        texts = list(TEXTS.values())
        values = (cells(), texts, cells(), [edited(text) for text in texts])
        parquet(x / "all.parquet", dict(zip(columns, values, strict=True)))
    elif layout == "sides":
        images(x / "original")
        images(x / "counterfactual")
        rows = [(f"{n}.png", t, edited(t)) for n, t in TEXTS.items()]
        table(x / "captions.csv", ["image", "caption", "cf_caption"], rows)
    else:
        other = "a" if layout == "one file" else "b"
        images(x / "a")
        images(x / "b")
        rows = [(f"a/{n}.png", t, f"{other}/{n}.png", edited(t)) for n, t in TEXTS.items()]
        table(x / "pairs.csv", columns, rows)
    assert_refused(x, tmp_path / "cache", "shows the same image as another member")


def test_copies_of_one_image_are_no_counterfactual_sets(tmp_path):
    texts = list(TEXTS.values())
    parquet(tmp_path / "x" / "all.parquet", {
        "id": list("abc"), "image_0": cells(), "image_1": cells(), "caption_0": texts,
        "caption_1": [edited(text) for text in texts],
    })  # fmt: skip
    report = reading(tmp_path / "x", tmp_path / "cache")
    assert (report.sets, report.counterfactual_sets) == (3, 0)


def test_one_caption_of_all_images_is_told(tmp_path):
    images(tmp_path / "x")
    table(tmp_path / "x" / "captions.csv", ["image", "caption"], [(f"{n}.png", "a") for n in TEXTS])
    report = reading(tmp_path / "x", tmp_path / "cache")
    assert report.one_caption
    assert "warning: all images have this one caption" in report.line("real", "x")


# Notes about rows that are read as they are, and may not be meant so.


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
    report = reading(tmp_path / "set", tmp_path / "cache")
    assert (report.rows, report.images) == (6, 3)
    assert "; note: 3 of 6 rows repeat image and caption of another row" in report.line("test", "s")


def test_an_original_of_several_counterfactuals_is_no_duplicate(tmp_path):
    """N36: only a whole set that occurs again is one."""
    sides(tmp_path / "set", "a", "b")
    names = ["image", "caption", "cf_image", "cf_caption"]
    rows = [("a/a.png", "a", f"b/{n}.jpg", edited(t)) for n, t in TEXTS.items()]
    table(tmp_path / "set" / "pairs.csv", names, rows)
    assert reading(tmp_path / "set", tmp_path / "cache").notes == ()
    table(tmp_path / "set" / "pairs.csv", names, [*rows, rows[1]])
    assert reading(tmp_path / "set", tmp_path / "cache").notes[0].startswith("2 of 8 rows repeat")


@pytest.mark.parametrize("kind", ["JPEG", "WEBP"])
def test_turned_photos_are_counted(tmp_path, kind):
    """N37: phone photos are trained sideways, as by CLIP's own transform; it is said."""
    (tmp_path / "set").mkdir()
    for number, orientation in enumerate((None, 1, 3, 6, 8)):
        (tmp_path / "set" / f"{number}.{kind.lower()}").write_bytes(photo(orientation, kind))
        (tmp_path / "set" / f"{number}.txt").write_text(f"photo {number}\nthe same {number}")
    [note] = reading(tmp_path / "set", tmp_path / "cache").notes
    assert note.startswith("3 images with an EXIF orientation, which is ignored")


@settings(max_examples=examples(200), deadline=None)
@given(st.sampled_from([b"", b"Exif\0\0II*\0\x08\0\0\0"]), st.binary(max_size=60))
def test_damaged_exif_data_are_no_error(head, data):
    image = open_image(noise_image(0, kind="JPEG"), "it")
    image.info["exif"] = head + data
    assert is_turned(image) in (True, False)
