"""``leaks.json``: the test images that a run was trained on, reported in words."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from cfaug.core.files import write_json
from cfaug.data.mixture.leakage import Leaks, describe_leak
from cfaug.report.results import read_record

LEAKS = "leaks.json"
"""{benchmark: {images, equal, total, with_coco_id, coco_ids}}, beside a run's results."""


def write_leaks(folder: Path, benchmark: str, leaks: Leaks) -> None:
    """Save the images that a test shares with a run's training, replacing the earlier entry.

    Args:
        folder: folder of the run, where ``leaks.json`` is kept.
        benchmark: the benchmark's name.
        leaks: the shared images; an entry without any is removed.
    """
    file = folder / LEAKS
    known = read_record(file) if file.exists() else {}
    if leaks.images:
        found = {
            "images": leaks.images, "equal": leaks.equal, "total": leaks.total,
            "with_coco_id": leaks.checked, "coco_ids": leaks.ids.tolist(),
        }  # fmt: skip
        write_json(file, {**known, benchmark: found})
    elif known.pop(benchmark, None) is not None:
        write_json(file, known)


def leak_sentences(folders: Iterable[Path]) -> list[str]:
    """Return for each benchmark a sentence on the images that the most affected run trained on.

    Args:
        folders: folders of runs; one without ``leaks.json`` has no leaks.

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
