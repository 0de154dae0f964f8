"""Folders as people have them: the layouts that hard use tried, laid out by hand."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.data.making import noise_image

TEXTS = {"a": "a dog, running", "b": "a red bus", "c": "two cats"}
"""Captions of three photos by their names; the first has a comma."""


CAPTIONED = [(f"{name}.png", text) for name, text in TEXTS.items()]
"""(file, caption) of each, as most lists have it."""


def edited(text: str) -> str:
    """Return the caption of a photo's counterfactual."""
    return f"{text} at night"


def images(folder: Path, *, start: int = 0, ending: str = "png") -> None:
    """Write the three images, each of other pixels."""
    folder.mkdir(parents=True, exist_ok=True)
    kind = {"png": "PNG", "jpg": "JPEG"}[ending]
    for number, name in enumerate(TEXTS, start):
        (folder / f"{name}.{ending}").write_bytes(noise_image(number, kind=kind))


def table(
    file: Path, columns: Sequence[str], rows: Sequence[Sequence[str]], mark: str = ","
) -> None:
    """Write a csv or tsv, quoted where it must be."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w", newline="") as handle:
        csv.writer(handle, delimiter=mark).writerows([columns, *rows])


def jsonl(file: Path, records: Sequence[Mapping[str, object]]) -> None:
    """Write a JSON object a line."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(record) + "\n" for record in records))


def parquet(file: Path, columns: Mapping[str, Sequence[object]]) -> None:
    """Write a parquet, as ``datasets`` does: images are structs of bytes and path."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(dict(columns)), file)


def cells(start: int = 0) -> list[dict[str, object]]:
    """Return three images as ``datasets`` writes them."""
    return [
        {"bytes": noise_image(start + i), "path": f"{name}.png"} for i, name in enumerate(TEXTS)
    ]


def sides(folder: Path, original: str, counterfactual: str) -> None:
    """Write two folders whose images have equal names."""
    images(folder / original)
    images(folder / counterfactual, start=10, ending="jpg")


def sidecars(folder: Path, texts: Mapping[str, str]) -> None:
    """Write a text beside each image."""
    for name, text in texts.items():
        (folder / f"{name}.txt").write_text(text)


NEGATIVES = [["a dog, asleep", "a cat, running"], ["a blue bus"], []]
"""Captions that are wrong about each photo."""


def negclip(x: Path) -> None:
    """Lay out NegCLIP's list: a column of negatives, in each field a list as Python prints it."""
    images(x)
    rows = [(f"{n}.png", t, str(negatives) if negatives else "")
            for (n, t), negatives in zip(TEXTS.items(), NEGATIVES, strict=True)]  # fmt: skip
    table(x / "train.tsv", ["filepath", "title", "neg_caption"], rows, "\t")


def captions_csv(x: Path) -> None:
    """Lay out a list beside a folder of images."""
    images(x / "images")
    table(x / "captions.csv", ["image", "caption"], CAPTIONED)
