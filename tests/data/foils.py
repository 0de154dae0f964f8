"""Tests with foils of captions or photos, as released, laid out by hand, a few items each."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.data import layouts
from tests.data.compositional import CAPTIONS, cell, coco_name, coco_photos, photo, put, table

OTHERS = ("A dog sleeps.", "A plane lands.", "Nobody is here.")


def dump(files: Mapping[str, Any]) -> dict[str, bytes]:
    return {name: json.dumps(content).encode() for name, content in files.items()}


def csv_lists(folder: Path, files: Mapping[str, tuple[Sequence[str], Sequence[Sequence[object]]]]):
    for name, (columns, lines) in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        layouts.table(folder / name, columns, [tuple(map(str, line)) for line in lines])
    return folder


def negbench(folder: Path) -> Path:
    """Lay out two lists of four captions and one of two, the right one at any place."""
    four = ("image_path", "correct_answer", *(f"caption_{i}" for i in range(4)),
            "correct_answer_template")  # fmt: skip

    def line(number: int, home: str, name: str) -> list[object]:
        right = (number + 1) % 4
        texts = [*OTHERS[:right], CAPTIONS[number][0], *OTHERS[right:]]
        return [f"{home}/{name}", right, *texts, ("positive", "negative", "hybrid")[number % 3]]

    csv_lists(folder, {
        "images/COCO_val_mcq_llama3.1_rephrased.csv": (
            four, [line(i, "data/coco/images/val2017", coco_name(i)) for i in range(3)],
        ),
        "images/VOC2007_mcq_llama3.1_rephrased.csv": (
            four, [line(3, "data/voc2007", "000005.jpg")],
        ),
        "images/chexpert_binary_mcq.csv": (
            ("correct_answer", "caption_0", "caption_1", "image_path"),
            [(1, "There is no effusion.", "There is an effusion.", "CheXpert/valid/p1/view1.jpg")],
        ),
    })  # fmt: skip
    coco_photos(folder / "val2017", 3)
    return put(folder, {"voc2007/000005.jpg": photo(7), "CheXpert/valid/p1/view1.jpg": photo(8)})


def negbench_retrieval(folder: Path) -> Path:
    """Lay out photos with two captions each, plain and negated; captions as Python prints them."""
    columns = ("positive_objects", "negative_objects", "filepath", "image_id", "captions")

    def line(number: int, *texts: str) -> list[object]:
        name = f"data/coco/images/val2017/{coco_name(number)}"
        return [["dog"], ["cat"], name, 100 + number, list(texts)]

    name = "COCO_val_negated_retrieval_llama3.1_rephrased_affneg_true.csv"
    plain = [line(i, CAPTIONS[i][0], f"So: {CAPTIONS[i][0]}") for i in range(4)]
    negated = [line(i, f"No cat. {CAPTIONS[i][0]}", f"A dog's {i}, no cat") for i in range(4)]
    csv_lists(folder, {"COCO_val_retrieval.csv": (columns, plain), name: (columns, negated)})
    coco_photos(folder / "val2017")
    return folder


def half_truths(folder: Path) -> Path:
    """Lay out two of the three lists, whose names say no split."""
    for name, first in (("coco_qwen", 0), ("cc3m_qwen", 3)):
        rows = [
            {"id": f"{name}-{i}", "image": cell(i), "triplet_type": ("entity", "relation")[i % 2],
             "anchor": f"a thing, number {i}", "half_truth": f"{CAPTIONS[i % 3][1]} {i}",
             "full_truth": f"{CAPTIONS[i % 3][0]} {i}"}
            for i in range(first, first + 3)
        ]  # fmt: skip
        table(folder, rows, name)
    return folder


AGES = ("20-29", "more than 70")
PEOPLE = (("Male", "White"), ("Female", "Black"), ("Female", "East Asian"), ("Male", "Black"))
"""Gender and race of the faces here, repeated."""


def fairface(folder: Path, count: int = 8, parts: Sequence[str] = ("train", "val")) -> Path:
    """Lay out the lists of some parts, and their photos."""
    columns = ("file", "age", "gender", "race", "service_test")
    for part in parts:
        first = 50 if part == "train" else 0
        lines = [
            (f"{part}/{i + 1}.jpg", AGES[i % 2], *PEOPLE[i % 4], i % 2 == 0) for i in range(count)
        ]
        csv_lists(folder, {f"fairface_label_{part}.csv": (columns, lines)})
        put(folder, {f"{part}/{i + 1}.jpg": photo(first + i) for i in range(count)})
    return folder


def ccneg(folder: Path) -> Path:
    """Lay out the list that docs/sets.md writes, and the photos as their archive has them."""
    home = "ccneg_images/cc3m_subset_images_extracted_final"
    records = [
        {"image_path": f"{home}/{i}.jpg", "caption": true, "negative_caption": f"Not {true}"}
        for i, (true, _) in enumerate(CAPTIONS)
    ]
    lines = "".join(json.dumps(record) + "\n" for record in records)
    photos = {f"{home}/{i}.jpg": photo(i) for i in range(len(CAPTIONS))}
    return put(folder, {"ccneg.jsonl": lines.encode(), **photos})


PLACES = {
    "A": ("on", "under", "left_of", "right_of"),
    "B": ("in-front_of", "behind", "left_of", "right_of"),
}


def whatsup(folder: Path) -> Path:
    files: dict[str, Any] = {}
    photos = {}
    for number, (part, name, home) in enumerate((
        ("A", "controlled_images_dataset.json", "controlled_images"),
        ("B", "controlled_clevr_dataset.json", "controlled_clevr"),
    )):  # fmt: skip
        texts = [f"A mug {place} a plate {part}" for place in PLACES[part]]
        files[name] = [
            {"image_path": f"data/{home}/mug_{place}_plate.jpeg",
             "caption_options": [texts[i], *texts[:i], *texts[i + 1 :]]}
            for i, place in enumerate(PLACES[part])
        ]  # fmt: skip
        photos |= {
            f"{home}/mug_{place}_plate.jpeg": photo(10 * number + i)
            for i, place in enumerate(PLACES[part])
        }
    coco = [[100 + i, *CAPTIONS[i]] for i in range(2)]
    genome = [[2345, *CAPTIONS[2]], ["2346", *CAPTIONS[3]]]
    files |= {"coco_qa_one_obj.json": coco, "coco_qa_two_obj.json": coco[:1],
              "vg_qa_one_obj.json": genome, "vg_qa_two_obj.json": genome[1:]}  # fmt: skip
    coco_photos(folder / "val2017", 2)
    photos |= {f"vg_images/{number}.jpg": photo(number) for number in (2345, 2346)}
    return put(folder, {**dump(files), **photos})


VOTES = (3, 2, 1, 3)
"""Annotators for the caption of each entry of a list of VALSE here; the third is left out."""


def valse(folder: Path) -> Path:
    def entry(number: int, part: str) -> dict[str, Any]:
        true, false = CAPTIONS[number]
        return {"dataset": "coco2017", "linguistic_phenomena": part,
                "image_file": coco_name(number),
                "caption": f"{true} ({part})", "foil": false, "classes": "a",
                "mturk": {"foil": 0, "caption": VOTES[number], "other": 0}}  # fmt: skip

    lists = {
        f"data/{part}.json": {f"{part}_{i}": entry(i, part) for i in range(4)}
        for part in ("existence", "actant-swap")
    }
    coco_photos(folder / "val2017")
    return put(folder, dump(lists))


def bla(folder: Path) -> Path:
    def entry(number: int) -> dict[str, Any]:
        true, false = CAPTIONS[number]
        group = {"group_index": 0, "True1": true, "True2": f"So: {true}", "False1": false,
                 "False2": f"So: {false}", "score": [0.5, 0.5, 0.5, 0.5]}  # fmt: skip
        return {"image_id": 73 + number, "index": number, "caption_group": [group]}

    lists = {"annotations/active_passive_captions.json": [entry(0), entry(1)],
             "annotations/coordination_captions.json": [entry(2)]}  # fmt: skip
    return put(folder, {**dump(lists), **{f"images/{73 + i}.jpg": photo(i) for i in range(3)}})


def vl_checklist(folder: Path) -> Path:
    def entry(name: str, number: int, more: int = 0) -> list[Any]:
        true, false = CAPTIONS[number]
        return [name, {"POS": [true, *["unused"] * more], "NEG": [false, *["unused"] * more]}]

    lists = {
        "data/Attribute/vg/color.json": [entry("VG_100K/1.jpg", 3), entry("VG_100K_2/2.jpg", 1)],
        "data/Object/Size/swig_size/swig_tool/swig_tool_small.json": [entry("dialing_8.jpg", 0, 2)],
        "data/Object/Size/swig_size/swig_place/swig_place_small.json": [],
        "data/Relation/swig_action.json": [entry("dialing_8.jpg", 2)],
    }
    photos = {"vg/VG_100K/1.jpg": photo(1), "vg/VG_100K_2/2.jpg": photo(2),
              "swig/dialing_8.jpg": photo(8)}  # fmt: skip
    return put(folder, {**dump(lists), **photos})


def spec(folder: Path, text: bool = True, images: bool = True) -> Path:
    """Lay out two subsets, of three and two candidates."""
    files: dict[str, Any] = {}
    photos = {}
    for subset, count in (("absolute_size", 3), ("existence", 2)):
        names = [f"image/{subset}_{i}.jpg" for i in range(count)]
        texts = [f"{subset}: {CAPTIONS[i][0]}" for i in range(count)]
        photos |= {f"{subset}/{name}": photo(len(photos) + i) for i, name in enumerate(names)}
        both = ((names, texts, "image2text", text), (texts, names, "text2image", images))
        for queries, keys, name, laid in both:
            if laid:
                files[f"{subset}/{name}.json"] = [
                    {"query": query, "keys": keys, "label": i} for i, query in enumerate(queries)
                ]
    return put(folder, {**dump(files), **photos})


SVO = ("index", "sentence", "pos_triplet", "neg_triplet", "pos_url", "neg_url", "pos_image_id",
       "neg_image_id", "subj_neg", "verb_neg", "obj_neg")  # fmt: skip


def svo_probes(folder: Path) -> Path:
    kinds = ((True, False, False), (False, True, False), (False, False, True))
    lines = [
        (i, true, "cat,nap,couch", "dog,nap,couch", "http://a.test/1", "http://a.test/2", 2 * i,
         2 * i + 1, *kinds[i])
        for i, (true, _) in enumerate(CAPTIONS[:3])
    ]  # fmt: skip
    csv_lists(folder, {"svo_probes.csv": (SVO, lines)})
    return put(folder, {f"images/{i}.jpg": photo(i) for i in range(6)})


def cola(folder: Path) -> Path:
    address = "https://cs-people.bu.edu/array/data/vg_gqa_images"
    entries = [
        [f"{address}/{2 * i}.jpg", true, f"{address}/{2 * i + 1}.jpg", false]
        for i, (true, false) in enumerate(CAPTIONS[:3])
    ]
    lists = {"data/COLA_multiobjects_matching_benchmark.json": entries}
    return put(folder, {**dump(lists), **{f"images/{i}.jpg": photo(i) for i in range(6)}})


def _colorswap_row(number: int) -> dict[str, Any]:
    true, false = CAPTIONS[number]
    return {"id": number, "caption_1": true, "caption_2": false, "image_source": "midjourney",
            "caption_source": ("human", "rule")[number % 2]}  # fmt: skip


def colorswap(folder: Path) -> Path:
    def entry(number: int) -> dict[str, Any]:
        names = {f"image_{i}": f"images/img_{number}_{i}.png" for i in (1, 2)}
        return {**_colorswap_row(number), **names}

    lists = {"data/test.json": [entry(i) for i in range(3)], "data/train.json": [entry(3)]}
    photos = {
        f"data/images/img_{i}_{j}.png": photo(2 * i + j - 1, form="PNG")
        for i in range(4)
        for j in (1, 2)
    }
    return put(folder, {**dump(lists), **photos})


def colorswap_parquet(folder: Path) -> Path:
    return table(folder, [
        {**_colorswap_row(i), "image_1": cell(2 * i), "image_2": cell(2 * i + 1)} for i in range(3)
    ])  # fmt: skip
