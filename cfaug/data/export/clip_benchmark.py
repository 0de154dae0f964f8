"""A folder that ``clip_benchmark eval --dataset wds/... --task zeroshot_retrieval`` reads.

``dataset_type.txt``, ``test/nshards.txt`` and ``test/0.tar``, ``1.tar``, ...; a sample is an image
and a ``.txt`` with a caption a line, as CLIP_benchmark's own converter writes it. A small ``.json``
keeps set and group for our reader; CLIP_benchmark ignores it. Sets of grids of attributes get a
``README.md`` that explains what their labels are and are not.
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from cfaug.core.errors import UserError
from cfaug.core.files import replace_file
from cfaug.core.types import CounterfactualSet
from cfaug.data.export.cautions import caution_lines
from cfaug.data.export.facts import Facts, empty_folder
from cfaug.data.shards.codec import image_extension

IMAGES_PER_SHARD = 10_000

Sample = list[tuple[str, bytes]]


def export_clip_benchmark(
    sets: Iterable[CounterfactualSet], folder: Path, *, split: str = "test"
) -> dict[str, int]:
    """Write every image with its captions; return the numbers of images, captions and shards.

    Members that share an image become its captions. The images of a set are adjacent, so that the
    hardest wrong answer is always in the same test.

    Raises:
        UserError: if the folder is not empty, or there are no sets.
    """
    folder = empty_folder(folder)
    here = folder / split
    here.mkdir()
    facts = Facts()
    samples, images, captions, shards = _samples(facts.count_all(sets)), 0, 0, 0
    while True:
        first = next(samples, None)
        if first is None:
            break
        with (
            replace_file(here / f"{shards}.tar") as handle,
            tarfile.open(fileobj=handle, mode="w", format=tarfile.GNU_FORMAT) as tar,
        ):
            for sample in _with(first, islice(samples, IMAGES_PER_SHARD - 1)):
                images += 1
                for name, content in sample:
                    captions += content.count(b"\n") + 1 if name.endswith(".txt") else 0
                    entry = tarfile.TarInfo(name)
                    entry.size, entry.mode = len(content), 0o644
                    tar.addfile(entry, io.BytesIO(content))
        shards += 1
    if not shards:
        raise UserError(f"there is nothing to export to {folder}")
    if facts.grids:
        lines = "\n".join(caution_lines(facts.attributes, facts.grids))
        (folder / "README.md").write_text(lines, encoding="utf-8")
    (folder / "dataset_type.txt").write_text("retrieval\n", encoding="utf-8")
    # Last: it makes the split exist.
    (here / "nshards.txt").write_text(f"{shards}\n", encoding="utf-8")
    return {"images": images, "captions": captions, "shards": shards}


def _with(first: Sample, rest: Iterator[Sample]) -> Iterator[Sample]:
    yield first
    yield from rest


def _samples(sets: Iterable[CounterfactualSet]) -> Iterator[Sample]:
    for one in sets:
        texts: dict[str, list[str]] = {}
        for member in one.members:
            # One line each: split() removes every line break that CLIP_benchmark's splitlines()
            # finds.
            texts.setdefault(member.image_name, []).append(" ".join(member.text.split()))
        for number, (image, lines) in enumerate(texts.items()):
            key, data = f"{one.key}_{number}", one.images[image]
            yield [
                (f"{key}.{image_extension(data, key)}", data),
                (f"{key}.txt", "\n".join(lines).encode()),
                (f"{key}.json", json.dumps({"group": one.group, "from_set": one.key}).encode()),
            ]
