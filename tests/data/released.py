"""Released data as users have it on disk, laid out by hand, not by our exporter; and its checks.

COCO-Counterfactuals is laid out as the Hub holds it.
"""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cfaug.core.errors import UserError
from cfaug.core.types import Edit
from cfaug.data.index import open_index
from cfaug.data.sources import import_sets
from tests.data.making import noise_image

PAIRS = [
    ("236308_0", "A couple of people riding skis down a snow covered slope.",
     "A couple of people riding skis down a snow covered hill.", ("slope", "hill")),
    ("236308_3", "Two men on skis", "Two women on skis", ("men", "women")),
    ("397133_1", "A baker is working in the kitchen rolling dough.",
     "A chef is working in the kitchen rolling dough.", ("baker", "chef")),
]  # fmt: skip


GENDERS, RACES = (
    ("male", "female"),
    ("White", "Black", "Indian", "Asian", "Middle Eastern", "Latino"),
)


def jpeg(number: int) -> bytes:
    return noise_image(number, (24, 16), "JPEG")


def coco_counterfactuals(
    folder: Path,
    *,
    members: dict[str, bytes] | None = None,
    compression: int = zipfile.ZIP_DEFLATED,
) -> Path:
    (folder / "data").mkdir(parents=True)
    lines, images = [], {}
    for number, (name, before, after, _) in enumerate(PAIRS):
        stems = [f"{name}_img_{i}" for i in (0, 1)]
        lines.append({"id": name, "image_0": stems[0], "caption_0": before,
                      "image_1": stems[1], "caption_1": after})  # fmt: skip
        images |= {f"images/{stem}.jpg": jpeg(2 * number + i) for i, stem in enumerate(stems)}
    (folder / "data" / "examples.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
    with zipfile.ZipFile(folder / "data" / "images.zip", "w", compression) as archive:
        archive.writestr("images/", b"")
        for name, content in (images | (members or {})).items():
            archive.writestr(name, content)
    return folder


def edit_lines(folder: Path, change) -> None:
    file = folder / "data" / "examples.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    change(lines)
    file.write_text("\n".join(map(json.dumps, lines)))


def check_coco(folder: Path) -> None:
    sets = list(import_sets(folder))
    assert [cf_set.key for cf_set in sets] == [name for name, *_ in PAIRS]
    assert [cf_set.group for cf_set in sets] == ["236308", "236308", "397133"]
    for number, (cf_set, (name, before, after, words)) in enumerate(zip(sets, PAIRS, strict=True)):
        assert [m.text for m in cf_set.members] == [before, after]
        assert [m.edit for m in cf_set.members] == [None, Edit("noun", *words)]
        assert [cf_set.images[m.image_name] for m in cf_set.members] == [
            jpeg(2 * number), jpeg(2 * number + 1)
        ]  # fmt: skip
        assert {m.source_id for m in cf_set.members} == {name}


def image(data: bytes | None, path: str | None = None) -> dict[str, object]:
    return {"bytes": data, "path": path}


def members(changes: dict[str, Any]) -> pa.Table:
    """Return a set of two as our own export has it, columns of its second row changed."""
    details = [
        {"image_name": str(i), "source_id": "s", "edit": None, "label": None, "extra": {}}
        for i in (0, 1)
    ]
    about = json.dumps({"members": details, "scores": {}, "provenance": {}})
    rows = [
        {"id": "a", "group": "g", "member": i, "image": image(noise_image(i)),
         "caption": f"caption {i}", "about": about}
        for i in (0, 1)
    ]  # fmt: skip
    rows[1] |= changes
    return pa.table({name: [row[name] for row in rows] for name in rows[0]})


def laid_out(folder: Path, table: pa.Table) -> Path:
    """Write a parquet in a folder of its own."""
    folder.mkdir(parents=True)
    pq.write_table(table, folder / "all.parquet")
    return folder


def refused(folder: Path, *named: str) -> str:
    """Check that a folder is refused by both ways in, and that nothing is kept of it."""
    with pytest.raises(UserError) as caught:
        list(import_sets(folder))
    message = str(caught.value)
    assert [name for name in named if name not in message] == []
    cache = folder.parent / "cache"
    with pytest.raises(UserError):
        open_index(folder, cache)
    assert not cache.exists() or not list(cache.iterdir())
    return message
