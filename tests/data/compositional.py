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
        found = {key: _sugarcrepe_entry(number) for key, number in entries.items()}
        put(folder, {f"{name}.json": json.dumps(found).encode()})
    coco_photos(folder / photos)
    return folder


def sugarcrepe_pp(folder: Path) -> Path:
    for name in ("replace_obj", "replace_att", "replace_rel", "swap_obj", "swap_att"):
        found = [
            {**_sugarcrepe_entry(i), "caption2": f"In other words: {CAPTIONS[i][0]}"}
            for i in range(2)
        ]
        put(folder, {f"{name}.json": json.dumps(found).encode()})
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


def edit_json(file: Path, change: Callable[[Any], None]) -> None:
    found = json.loads(file.read_text())
    change(found)
    file.write_text(json.dumps(found))
