"""Sets of foils as released: what each reader makes of them, and of files that are damaged."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cfaug.data.index import open_index
from cfaug.data.index.index import Index
from cfaug.data.sources.compositional import FORMS
from cfaug.evaluation.choices.pairs import describe_count
from tests.data import foils
from tests.data.compositional import CAPTIONS, edit_json, photo, put
from tests.data.hostile import assert_refused


def opened(lay: Callable[[Path], Path], tmp_path: Path) -> Index:
    return open_index(lay(tmp_path / "set"), tmp_path / "cache")


def rows_of(index: Index, item: int) -> list[int]:
    return [row for row, number in enumerate(index.sets.tolist()) if number == item]


def texts(index: Index, item: int) -> list[tuple[str, str | None]]:
    return [(index.text(row), index.label(row)) for row in rows_of(index, item)]


def test_negbench_puts_the_right_caption_first_and_keeps_its_template(tmp_path):
    index = opened(foils.negbench, tmp_path)
    assert texts(index, 2) == [
        (CAPTIONS[2][0], "true"), *((text, "false") for text in foils.OTHERS),
    ]  # fmt: skip
    first = [rows_of(index, item)[0] for item in range(5)]
    assert [index.extra_row(row)["category"] for row in first] == [
        "coco", "coco", "coco", "voc2007", "chexpert",
    ]  # fmt: skip
    assert [index.extra_row(row).get("template") for row in first] == [
        "positive", "negative", "hybrid", "positive", None,
    ]  # fmt: skip
    assert texts(index, 4) == [
        ("There is an effusion.", "true"), ("There is no effusion.", "false"),
    ]  # fmt: skip
    assert [index.group_name(row) for row in first[:2]] == ["100", "101"]  # photos of COCO


def test_negbench_asks_which_of_its_lists_for_retrieval_is_meant(tmp_path):
    folder = foils.negbench_retrieval(tmp_path / "set")
    said = r"several lists of NegBench's retrieval: .*:coco_retrieval, .*:coco_negated_retrieval"
    assert_refused(folder, tmp_path / "cache", said)
    index = open_index(f"{folder}:coco_negated_retrieval", tmp_path / "cache")
    assert [index.text(row) for row in range(4)] == [
        f"No cat. {CAPTIONS[0][0]}", "A dog's 0, no cat",
        f"No cat. {CAPTIONS[1][0]}", "A dog's 1, no cat",
    ]  # fmt: skip
    assert index.images[0] == index.images[1] != index.images[2]
    assert index.label(0) is None
    foils.negbench(folder)
    assert open_index(folder, tmp_path / "cache").kind == "negbench"


def test_whatsup_says_which_items_belong_together(tmp_path):
    index = opened(foils.whatsup, tmp_path)
    extras = [index.extra_row(rows_of(index, item)[0]) for item in range(9)]
    assert [extra.get("set") for extra in extras] == ["whatsup"] * 9
    assert [index.group_name(rows_of(index, item)[0]) for item in (0, 3, 4, 7)] == [
        "A-mug-plate", "A-mug-plate", "B-mug-plate", "B-mug-plate",
    ]  # fmt: skip
    pairs = [extra.get("pair") for extra in extras]
    assert pairs[0] == pairs[1] != pairs[2] == pairs[3]
    assert pairs[8] is None


def test_valse_leaves_out_what_its_annotators_did_not_confirm(tmp_path):
    index = opened(foils.valse, tmp_path)
    assert int(index.sets[-1]) + 1 == 6  # of eight
    assert any(
        "2 entries that the authors of the test leave out (data/existence.json, [existence_2], "
        in note
        for note in index.reading.left_out
    )
    assert index.extra_row(0)["phenomenon"] == "existence"


def test_a_choice_of_photos_has_one_caption_and_is_of_what_differs(tmp_path):
    index = opened(foils.svo_probes, tmp_path)
    for item, kind in enumerate(("subject", "verb", "object")):
        rows = rows_of(index, item)
        assert texts(index, item) == [(CAPTIONS[item][0], "true"), (CAPTIONS[item][0], "false")]
        assert [index.read_image(row) for row in rows] == [photo(2 * item), photo(2 * item + 1)]
        assert index.extra_row(rows[0])["category"] == kind


def test_spec_has_two_tests_of_which_one_is_named(tmp_path):
    folder = foils.spec(tmp_path / "spec")
    assert_refused(folder, tmp_path / "cache", r"several tests: .*form=spec or spec_images")


def test_vl_checklist_reads_the_first_caption_and_says_what_is_empty(tmp_path):
    index = opened(foils.vl_checklist, tmp_path)
    extras = [index.extra_row(rows_of(index, item)[0]) for item in range(4)]
    assert [extra["category"] for extra in extras] == [
        "Attribute/vg/color", "Attribute/vg/color",
        "Object/Size/swig_size/swig_tool/swig_tool_small", "Relation/swig_action",
    ]  # fmt: skip
    assert [extra["trait"] for extra in extras] == [
        "Attribute color", "Attribute color", "Object small", "Relation action",
    ]  # fmt: skip
    assert texts(index, 2) == [(CAPTIONS[0][0], "true"), (CAPTIONS[0][1], "false")]
    assert any("swig_place_small.json" in note for note in index.reading.left_out)


def test_colorswap_reads_its_test_alone_and_its_table_alike(tmp_path):
    index = opened(foils.colorswap, tmp_path)
    parquet = open_index(foils.colorswap_parquet(tmp_path / "parquet"), tmp_path / "cache")
    for source in (index, parquet):
        assert (source.kind, int(source.sets[-1]) + 1) == ("colorswap", 3)
        assert [source.text(row) for row in (2, 3)] == list(CAPTIONS[1])
        assert source.extra_row(2)["caption_source"] == "rule"


def test_a_part_of_a_release_is_said_to_be_one(tmp_path):
    said = describe_count(opened(foils.valse, tmp_path))
    assert "VALSE: 6 items, where the released files have 7,702 (existence 3 for 505" in said


def test_fairface_is_read_by_part_with_its_labels(tmp_path):
    folder = foils.fairface(tmp_path / "fairface")
    assert_refused(folder, tmp_path / "cache", r"several lists of FairFace: .*:train, .*:val")
    index = open_index(f"{folder}:val", tmp_path / "cache")
    assert len(index) == 8
    labels = {name: index.extra_row(1)[name] for name in ("age", "gender", "race")}
    assert labels == {"age": "more than 70", "gender": "Female", "race": "Black"}
    assert index.read_image(1) == photo(1)


def entry(at: Any, column: Any, value: Any) -> Callable[[Any], None]:
    return lambda entries: entries[at].__setitem__(column, value)


COLA = "data/COLA_multiobjects_matching_benchmark.json"
A = "controlled_images_dataset.json"
SPEC = "absolute_size/image2text.json"
IMAGES = "absolute_size/text2image.json"


def spec_texts(folder: Path) -> Path:
    return foils.spec(folder, images=False)


def spec_images(folder: Path) -> Path:
    return foils.spec(folder, text=False)


@pytest.mark.parametrize(
    ("lay", "file", "change", "said"),
    [
        (foils.cola, COLA, entry(1, 1, 5), r"\[1\].*caption_0.* should be a text"),
        (foils.cola, COLA, lambda x: x[1].pop(), r"\[1\] should be a list of image_0, caption_0"),
        (foils.cola, COLA, entry(0, 2, "../../secret.jpg"), "leads out of"),
        (foils.whatsup, A, entry(0, "caption_options", "one"), "should have several captions"),
        (foils.whatsup, A, entry(0, "image_path", "/etc/secret.jpg"), "leads out of"),
        (foils.whatsup, "vg_qa_one_obj.json", entry(0, 0, "../../../secret"), "leads out of"),
        (foils.whatsup, "vg_qa_one_obj.json", lambda x: x[0].pop(), "a list of number, true"),
        (foils.valse, "data/existence.json", entry("existence_1", "mturk", 3), "number of votes"),
        (foils.valse, "data/existence.json", lambda x: x["existence_1"].pop("foil"),
         "'foil' is missing"),
        (foils.bla, "annotations/active_passive_captions.json", entry(0, "caption_group", []),
         "should be a list of objects"),
        (foils.bla, "annotations/active_passive_captions.json",
         lambda x: x[1]["caption_group"][0].pop("False2"), "'False2' is missing"),
        (foils.vl_checklist, "data/Relation/swig_action.json", entry(0, 1, ["a"]),
         "should be an object with POS and NEG"),
        (foils.vl_checklist, "data/Attribute/vg/color.json", entry(0, 0, "../../../secret.jpg"),
         "leads out of"),
        (spec_texts, SPEC, entry(1, "label", 3), "should be 0 to 2, not 3"),
        (spec_texts, SPEC, entry(1, "label", True), "should be 0 to 2, not True"),
        (spec_texts, SPEC, entry(1, "query", "../../../../secret.jpg"), "leads out of"),
        (spec_images, IMAGES, entry(1, "keys", [1, 2]), "should be a list of files"),
        (spec_images, IMAGES, lambda x: x[1].pop("label"), "should be 0 to 2, not None"),
    ],
)  # fmt: skip
def test_an_entry_that_cannot_be_used_is_named(tmp_path, lay, file, change, said):
    put(tmp_path, {"secret.jpg": photo(3)})
    folder = lay(tmp_path / "deep" / "set")
    edit_json(folder / file, change)
    assert_refused(folder, tmp_path / "cache", rf"{Path(file).name}.*{said}")


@pytest.mark.parametrize(
    ("lay", "file", "old", "new", "said"),
    [
        (foils.negbench, "images/COCO_val_mcq_llama3.1_rephrased.csv", "jpg,1,", "jpg,4,",
         "should be 0 to 3, not '4'"),
        (foils.negbench, "images/COCO_val_mcq_llama3.1_rephrased.csv", "data/coco/images/val2017",
         "../../..", "leads out of"),
        (foils.svo_probes, "svo_probes.csv", "True,False,False", "True,True,False",
         "one of subj_neg, verb_neg, obj_neg should be True"),
        (foils.svo_probes, "svo_probes.csv", "True,False,False", "yes,False,False",
         "one of subj_neg"),
        (foils.svo_probes, "svo_probes.csv", "http://a.test/2,0,", "http://a.test/2,../../x,",
         "leads out of"),
        (foils.ccneg, "ccneg.jsonl", '"caption": "A man throws a ball."', '"caption": 3',
         "should be a text, not 3"),
    ],
)  # fmt: skip
def test_a_line_that_cannot_be_used_is_named(tmp_path, lay, file, old, new, said):
    folder = lay(tmp_path / "deep" / "set")
    text = (folder / file).read_text()
    assert old in text
    (folder / file).write_text(text.replace(old, new))
    assert_refused(folder, tmp_path / "cache", rf"{Path(file).name}.*{said}")


@pytest.mark.parametrize(
    ("lay", "file"),
    [(foils.cola, COLA), (foils.whatsup, "coco_qa_one_obj.json"),
     (foils.bla, "annotations/coordination_captions.json"),
     (foils.valse, "data/actant-swap.json"),
     (foils.vl_checklist, "data/Relation/swig_action.json")],
)  # fmt: skip
@pytest.mark.parametrize("content", [b'[["x', b"3", b"\xff\xfe", b'{"a": 1}'])
def test_a_broken_list_is_refused(tmp_path, lay, file, content):
    folder = lay(tmp_path / "set")
    (folder / file).write_bytes(content)
    assert_refused(folder, tmp_path / "cache", Path(file).name)


def test_columns_of_another_set_are_not_taken_for_these(tmp_path):
    records = [{"image": "a.jpg", "text": "A dog."}]
    files = {"test.json": json.dumps(records).encode(), "a.jpg": photo(0)}
    index = open_index(put(tmp_path / "own", files), tmp_path / "cache")
    assert (index.kind, index.text(0)) == ("caption_list", "A dog.")


def test_every_form_says_where_its_files_are_and_has_a_name_of_its_own():
    kinds = [form.kind for form in FORMS]
    assert len(set(kinds)) == len(kinds)
    assert all(form.get for form in FORMS if form.files)
