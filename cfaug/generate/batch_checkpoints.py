"""Finished batches of a shard that is not: what a part that was killed need not draw again.

A file a batch, a function of the batch alone. A file that is damaged, or that speaks of another
batch, is as good as none.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Sequence
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

from cfaug.data.storage.shards import disk_errors
from cfaug.files import write_file
from cfaug.generate.candidate_scoring import Drawn, Judged
from cfaug.score.select import Scores
from cfaug.types import Draw

HASH = 32
"""Bytes of the sha256 that a file begins with."""


class Journal:
    """The batches of one shard, in a folder of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def save(self, number: int, plan: str, drawn: Sequence[Drawn]) -> None:
        """Keep a batch; ``plan`` is the digest of what it was to draw.

        Raises:
            UserError: if the disk is full or refuses.
        """
        images = [image for one in drawn for of in one.images.values() for image in of]
        about = {"plan": plan, "drawn": [_described(one) for one in drawn]}
        head = json.dumps(about).encode()
        content = b"".join([len(head).to_bytes(8, "little"), head, *images])
        with disk_errors(self.folder.parent, f"batch {number}", len(content)):
            self.folder.mkdir(parents=True, exist_ok=True)
            write_file(self._file(number), hashlib.sha256(content).digest() + content)

    def load(self, number: int, plan: str) -> list[Drawn] | None:
        """Return a batch, ``None`` if it is not there, damaged, or of another plan."""
        try:
            data = self._file(number).read_bytes()
        except OSError:
            return None
        digest, content = data[:HASH], memoryview(data)[HASH:]
        if hashlib.sha256(content).digest() != digest:
            return None
        start = 8 + int.from_bytes(content[:8], "little")
        about = json.loads(bytes(content[8:start]))
        if about["plan"] != plan:
            return None
        drawn = []
        for one in about["drawn"]:
            images = {}
            for candidate, lengths in one["images"]:
                cut = [start + sum(lengths[:i]) for i in range(len(lengths) + 1)]
                images[candidate] = tuple(bytes(content[a:b]) for a, b in pairwise(cut))
                start = cut[-1]
            drawn.append(Drawn(one["place"], tuple(map(_judged, one["judged"])), images))
        return drawn

    def clear(self) -> None:
        """Forget every batch: the shard is there."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _file(self, number: int) -> Path:
        return self.folder / f"{number:05d}.batch"


def _described(drawn: Drawn) -> dict[str, Any]:
    return {
        "place": drawn.place,
        "judged": [asdict(one) for one in drawn.judged],
        "images": [[k, [len(image) for image in of]] for k, of in drawn.images.items()],
    }


def _judged(about: dict[str, Any]) -> Judged:
    report = about["report"]
    return Judged(
        about["number"],
        Draw(**about["draw"]),
        about["reason"],
        _scores(about["scores"]),
        None if report is None else _scores(report),
    )


def _scores(about: dict[str, Any]) -> Scores:
    lists = (tuple(about[name]) for name in ("sim_1", "image", "direction"))
    return Scores(about["sim_0"], *lists)
