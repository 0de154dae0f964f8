"""Compositional tests as users have them on disk, laid out by hand, a few items each."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from tests.data.making import encoded, noise_image

CAPTIONS = (
    ("A cat and dog nap on the couch.", "A cat and dog nap under the couch."),
    ("A man throws a ball.", "A man catches a ball."),
    ("Three girls walk.", "Two boys and three girls walk."),
    ("A red car by a blue wall.", "A blue car by a red wall."),
)


def photo(number: int, size: tuple[int, int] = (24, 16), form: str = "JPEG") -> bytes:
    return noise_image(number, size, form)


def rgba(number: int) -> bytes:
    """Return a PNG that is transparent above."""
    image = Image.open(io.BytesIO(photo(number, form="PNG"))).convert("RGBA")
    image.putalpha(Image.linear_gradient("L").resize(image.size))
    return encoded(image)


def put(folder: Path, files: Mapping[str, bytes]) -> Path:
    for name, content in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    return folder


def coco_name(number: int) -> str:
    return f"{100 + number:012d}.jpg"


def coco_photos(folder: Path, count: int = 4) -> Path:
    return put(folder, {coco_name(i): photo(i) for i in range(count)})


def _sugarcrepe_entry(number: int) -> dict[str, str]:
    true, false = CAPTIONS[number]
    return {"filename": coco_name(number), "caption": true, "negative_caption": false}


SUGARCREPE: Mapping[str, Mapping[str, int]] = {
    "add_obj": {"0": 2},
    "add_att": {"0": 2},
    "replace_obj": {"0": 0, "1": 1},
    "replace_att": {"0": 1},
    "replace_rel": {"0": 1},
    "swap_obj": {"106": 0, "107": 1, "109": 3},
    "swap_att": {"0": 3},
}
"""By list, {key: number of captions and photo}; "108" is not there, as in the released file."""


def sugarcrepe(folder: Path, photos: str = "val2017") -> Path:
    """Lay out SugarCrepe, its photos in a folder below it or, with ``../``, beside it."""
    for name, entries in SUGARCREPE.items():
        records = {key: _sugarcrepe_entry(number) for key, number in entries.items()}
        put(folder, {f"{name}.json": json.dumps(records).encode()})
    coco_photos(folder / photos)
    return folder


def sugarcrepe_pp(folder: Path) -> Path:
    for name in ("replace_obj", "replace_att", "replace_rel", "swap_obj", "swap_att"):
        records = [
            {**_sugarcrepe_entry(i), "caption2": f"In other words: {CAPTIONS[i][0]}"}
            for i in range(2)
        ]
        put(folder, {f"{name}.json": json.dumps(records).encode()})
    coco_photos(folder / "val2017")
    return folder


TAGS = (("Noun", "", "Object"), ("Verb", "Pragmatics", "Relation"), ("Both", "", "Both"))
"""tag, secondary_tag and collapsed_tag of Winoground's examples here."""


def winoground_row(number: int) -> dict[str, Any]:
    tag, second, collapsed = TAGS[number]
    return {
        "id": number, "image_0": f"ex_{number}_img_0", "image_1": f"ex_{number}_img_1",
        "caption_0": CAPTIONS[number][0], "caption_1": CAPTIONS[number][1], "tag": tag,
        "secondary_tag": second, "num_main_preds": 1, "collapsed_tag": collapsed,
    }  # fmt: skip


def winoground(folder: Path) -> Path:
    """Lay out the older form: a list, and images of which one is RGBA."""
    rows = [winoground_row(number) for number in range(3)]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    images = {
        f"data/images/ex_{i}_img_{j}.png": rgba(7) if i == j == 0 else photo(2 * i + j, form="PNG")
        for i in range(3)
        for j in (0, 1)
    }
    why = {"0": ["AmbiguouslyCorrect"], "2": ["ComplexReasoning", "UnusualText"]}
    about = {"data/why_winoground_hard.json": json.dumps(why).encode()}
    return put(folder, {"data/examples.jsonl": lines.encode(), **images, **about})


def table(folder: Path, rows: list[dict[str, Any]], name: str = "test-00000-of-00001") -> Path:
    (folder / "data").mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), folder / "data" / f"{name}.parquet")
    return folder


def cell(number: int, path: str | None = None) -> dict[str, Any]:
    return {"bytes": photo(number), "path": path}


def winoground_parquet(folder: Path) -> Path:
    return table(
        folder,
        [
            {**winoground_row(i), "image_0": cell(2 * i), "image_1": cell(2 * i + 1)}
            for i in range(3)
        ],
    )


def bivlc(folder: Path) -> Path:
    parts = (("add", "obj"), ("replace", "att"), ("swap", "obj"), ("replace", ""))
    return table(
        folder,
        [
            {
                "image": cell(i, coco_name(i)), "caption": true, "negative_caption": false,
                "negative_image": cell(10 + i), "type": kind, "subtype": subkind,
            }
            for i, ((true, false), (kind, subkind)) in enumerate(zip(CAPTIONS, parts, strict=True))
        ],
    )  # fmt: skip


def vismin_rows() -> list[dict[str, Any]]:
    kinds = ("object", "attribute", "counting", "relation")
    return [
        {
            "id": f"row_{i}", "image_0": cell(2 * i), "image_1": cell(2 * i + 1), "text_0": true,
            "text_1": false, "category": kind, "text_question_0": "Which?",
        }
        for i, ((true, false), kind) in enumerate(zip(CAPTIONS, kinds, strict=True))
    ]  # fmt: skip


def vismin(folder: Path) -> Path:
    """Lay out what ``datasets.save_to_disk`` writes: streams of Arrow, two of them."""
    home = folder / "data" / "test"
    put(home, {"state.json": b"{}", "dataset_info.json": b"{}"})
    put(folder, {"data/dataset_dict.json": b'{"splits": ["test"]}'})
    rows = vismin_rows()
    for number, part in enumerate((rows[:2], rows[2:])):
        arrow = pa.Table.from_pylist(part)
        with pa.ipc.new_stream(
            str(home / f"data-{number:05d}-of-00002.arrow"), arrow.schema
        ) as out:
            out.write_table(arrow)
    return folder


MMVP_TYPES = ("Orientation and Direction", "Texts")


def mmvp(folder: Path, images: str = "MLLM_VLM Images") -> Path:
    """Lay out two pairs, of the second the even id first."""
    order = ((1, 0, 0), (2, 0, 1), (4, 1, 1), (3, 1, 0))
    lines = ["Question ID,Type,Statement"]
    for number, pair, side in order:
        lines.append(f'{number},{MMVP_TYPES[pair]},"{CAPTIONS[pair][side]}"')
        put(folder, {f"{images}/{MMVP_TYPES[pair]}/{number}.jpg": photo(number)})
    return put(folder, {"Questions.csv": ("\n".join(lines) + "\n").encode()})


def naturalbench(folder: Path) -> Path:
    records = [
        {"index": i, "image_0": f"{i}_0.jpg", "image_1": f"{i}_1.jpg", "caption_0": first,
         "caption_1": second}
        for i, (first, second) in enumerate(CAPTIONS[:3])
    ]  # fmt: skip
    images = {f"images/{i}_{j}.jpg": photo(2 * i + j) for i in range(3) for j in (0, 1)}
    return put(folder, {"metadata.json": json.dumps(records).encode(), **images})


BOXES = ((0, 0, 12, 8), (4, 2, 10, 10), (2, 2, 20, 12))
"""x, y, width and height of ARO's cases here; photos have 24 x 16 pixels."""


def _aro_case(number: int) -> dict[str, Any]:
    true, false = CAPTIONS[number]
    box = dict(zip(("bbox_x", "bbox_y", "bbox_w", "bbox_h"), BOXES[number], strict=True))
    # Cases 0 and 1 are boxes of one photo.
    return {"image_id": str(number // 2), "image_path": f"{number // 2}.jpg", **box,
            "true_caption": true, "false_caption": false}  # fmt: skip


def aro(folder: Path) -> Path:
    """Lay out both tests in one folder, as the released code downloads them."""
    relation = [{**_aro_case(i), "relation_name": ("on", "on", "behind")[i]} for i in range(3)]
    pairs = (["brown", "white"], ["brown", "white"], ["old", "young"])
    attribution = [{**_aro_case(i), "attributes": pairs[i]} for i in range(3)]
    lists = {"visual_genome_relation.json": relation, "visual_genome_attribution.json": attribution}
    put(folder, {name: json.dumps(cases).encode() for name, cases in lists.items()})
    return put(folder, {f"images/{i}.jpg": photo(i) for i in range(2)})


def hard_positives(folder: Path) -> Path:
    def lists(paraphrase: str) -> dict[str, Any]:
        plain = [
            {"image_id": str(i), "image_path": f"data/VG_100K_2/{i}.jpg",
             "true_caption": paraphrase + CAPTIONS[i][0], "false_caption": CAPTIONS[i][1]}
            for i in range(2)
        ]  # fmt: skip
        swap = [{**_aro_case(i), "true_caption": paraphrase + CAPTIONS[i][0]} for i in range(3)]
        return {"vl_checklist_attributes.json": plain, "vl_checklist_relations.json": plain[:1],
                "visual_genome_attribution.json": swap}  # fmt: skip

    for home, paraphrase in (("data", ""), ("swapped_data", "So: ")):
        put(folder / home, {n: json.dumps(x).encode() for n, x in lists(paraphrase).items()})
    homes = ("data/images", "data/VG_100K_2")
    return put(folder, {f"{home}/{i}.jpg": photo(i) for home in homes for i in range(2)})


def trohn_rows() -> list[dict[str, Any]]:
    return [
        {"image_id": coco_name(i % 2), "caption": true, "negative_caption": false}
        for i, (true, false) in enumerate(CAPTIONS)
    ]


def trohn_text(folder: Path) -> Path:
    table(folder, trohn_rows()[:3], "train-00000-of-00001")
    table(folder, trohn_rows()[3:], "validation-00000-of-00001")
    coco_photos(folder.parent / "coco" / "train2017")
    return folder


def trohn_img(folder: Path) -> Path:
    rows = [{**row, "negative_image": cell(20 + i)} for i, row in enumerate(trohn_rows())]
    coco_photos(folder / "train2017")
    return table(folder, rows, "train-00000-of-00001")


def sugarcrepe_parquet(folder: Path) -> Path:
    rows = [
        {"images": cell(i), "caption": true, "negative_caption": false}
        for i, (true, false) in enumerate(CAPTIONS)
    ]
    return table(folder, rows, "train-00000-of-00001")


def aro_parquet(folder: Path) -> Path:
    rows = [
        {"images": [cell(i)], "correct_caption": true,
         **{f"hard_text_{n}": f"{n} {false}" for n in (1, 2, 3, 4)}}
        for i, (true, false) in enumerate(CAPTIONS)
    ]  # fmt: skip
    return table(folder, rows)


def edit_json(file: Path, change: Callable[[Any], None]) -> None:
    entries = json.loads(file.read_text())
    change(entries)
    file.write_text(json.dumps(entries))
