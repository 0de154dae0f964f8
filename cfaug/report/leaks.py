"""``leaks.json``: the test images that a run was trained on, said in words."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from cfaug.data.planning.leakage import describe_leak
from cfaug.report.results import read_record

LEAKS = "leaks.json"
"""{benchmark: {images, equal, total, with_coco_id, coco_ids}}, beside a run's results."""


def leak_sentences(folders: Iterable[Path]) -> list[str]:
    """Say for each benchmark how many of its images the worst run had seen in training.

    Args:
        folders: of runs; those without the file leaked nothing that was looked for.

    Raises:
        UserError: if a file cannot be read.
    """
    worst: dict[str, tuple[int, int, int, Path]] = {}
    for folder in folders:
        if not (folder / LEAKS).exists():
            continue
        for benchmark, found in read_record(folder / LEAKS).items():
            one = (int(found["images"]), int(found["total"]), int(found.get("equal", 0)), folder)
            worst[benchmark] = max(worst.get(benchmark, one), one)
    return [
        f"{benchmark}: {_up_to(images, total)}{describe_leak(images, total, equal)} "
        f"({folder.parent.name}, {folder.name})."
        for benchmark, (images, total, equal, folder) in sorted(worst.items())
    ]


def _up_to(images: int, total: int) -> str:
    return "" if images == total else "up to "
