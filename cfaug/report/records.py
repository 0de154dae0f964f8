"""Read and check a run's folder: ``run.json``, its settings and its results.

``<runs>/<experiment>/<arm>/seed=<seed>/``: experiment and arm are given by the folder's path,
whatever its files say, so that either may be renamed, moved and copied.
"""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cfaug.core.atomic_files import to_json
from cfaug.core.errors import UserError, visible
from cfaug.core.files import check_link, read_yaml
from cfaug.core.outputs import write_output
from cfaug.data.mixture.leakage import Leaks, describe_leak
from cfaug.data.mixture.near_duplicates import describe_near
from cfaug.report.results import RECORD, RESULTS, Result, read_record, read_results

CONFIG = "config.yaml"
FAILED, INTERRUPTED = "failed", "interrupted"
UNFINISHED = (FAILED, INTERRUPTED)
"""States of a run that ended before its last step, by an error, or by Ctrl-C or a signal."""
STATES = ("running", "done", *UNFINISHED)


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _count(value: Any) -> bool:
    return _whole(value) and value >= 0


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _object(value: Any) -> bool:
    return isinstance(value, dict)


def _counts(value: Any) -> bool:
    return _object(value) and all(map(_count, value.values()))


REQUIRED: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "state": (lambda value: value in STATES, " or ".join(STATES)),
    "seed": (_whole, "a whole number"),
}
OPTIONAL: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "experiment": (_text, "a text"),
    "arm": (_text, "a text"),
    "config_hash": (_text, "a text"),
    "data_seed": (_whole, "a whole number"),
    "cf_ratio": (_number, "a number"),
    "counts": (_counts, "an object of whole numbers"),
    "steps": (_count, "a whole number"),
    "threads": (_whole, "a whole number"),
    "wall_s": (_number, "a number"),
    "peak_rss_mib": (_number, "a number"),
    "best": (_object, "an object"),
    "parameters": (_counts, "an object of whole numbers"),
    "hardware": (_object, "an object"),
    "versions": (_object, "an object"),
    "identity": (_object, "an object"),
    "by_seed": (_object, "an object"),
    "attempts": (
        lambda value: isinstance(value, list) and all(map(_object, value)),
        "a list of objects",
    ),
}
"""Fields that may be missing or null in a record, because they are unknown, or not known yet."""


@dataclass(frozen=True)
class Run:
    """A run on disk.

    Attributes:
        experiment: the name of the folder that contains the arms.
        arm: the name of the folder that contains the seeds.
    """

    folder: Path
    experiment: str
    arm: str
    record: Mapping[str, Any]

    @property
    def seed(self) -> int:
        """The seed that it was trained with."""
        return int(self.record["seed"])

    @property
    def done(self) -> bool:
        """Whether it was finished."""
        return bool(self.record["state"] == "done")

    def metric(self, name: str) -> float:
        """Return a column of ``metrics.csv``, such as ``val/loss`` or ``val/recall@1``.

        A metric of validation is that of the weights in ``checkpoint/``; others are of the last
        step.

        Raises:
            UserError: if the run did not log it.
        """
        file = self.folder / "metrics.csv"
        lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
        rows = [row for row in csv.DictReader(lines) if row.get(name)]
        best = (self.record.get("best") or {}).get("step")
        if name.startswith("val/") and best is not None:
            rows = [row for row in rows if row["step"] == str(best)]
        if not rows:
            raise UserError(
                f"{file} has no {name}: trainer.val_metrics=[recall@1] logs val/recall@1; "
                "overwrite=true trains a finished run again"
            )
        return float(rows[-1][name])

    def results(self) -> list[Result]:
        """Return its results, with experiment and arm from its path; empty without a file.

        Raises:
            UserError: if the file cannot be read, or has rows of another seed.
        """
        file = self.folder / RESULTS
        rows = read_results(file) if file.exists() else []
        others = {row.seed for row in rows} - {self.seed}
        if others:
            raise UserError(
                f"{file} holds rows of seed {min(others)}, but the run is of seed {self.seed}: the "
                "file was copied here; remove it, and evaluate the run again"
            )
        name = f"{self.experiment}/{self.arm}/seed={self.seed}"
        return [replace(row, run=name, arm=self.arm) for row in rows]


def training_seconds(record: Mapping[str, Any]) -> tuple[float | None, bool]:
    """Return the wall time of all attempts at a run, and whether that is all of it.

    An attempt that was killed has left no time. A run that is not finished has none yet.
    """
    if record.get("wall_s") is None:
        return None, False
    earlier = [attempt.get("seconds") for attempt in (record.get("attempts") or [])[:-1]]
    known = [float(seconds) for seconds in earlier if seconds is not None and _number(seconds)]
    return float(record["wall_s"]) + sum(known), len(known) == len(earlier)


def experiment_folder(folder: Path) -> Path:
    """Return the folder of arms that a run's folder lies in."""
    return folder.parent.parent if len(folder.parts) > 2 else folder.absolute().parent.parent


def read_run(folder: Path) -> Run:
    """Read ``run.json`` of a run's folder, with the current names of settings and classes.

    Args:
        folder: folder of the run, ``<experiment>/<arm>/seed=<seed>``.

    Raises:
        UserError: naming the file and the field, if it is missing, damaged, or that of another
            seed.
    """
    file = folder / RECORD
    record = read_record(file)
    check_record(record, file)
    named = re.fullmatch(r"seed=(-?\d+)", folder.absolute().name)
    if named and int(named[1]) != record["seed"]:
        raise UserError(
            f"{folder} holds seed {record['seed']}, not its own: it was copied or renamed; remove "
            "it, and train and evaluate that seed"
        )
    arm = folder.absolute().parent
    for name in (arm.name, arm.parent.name):
        if name != visible(name):
            raise UserError(f"{folder}: a folder's name holds control characters: rename it")
    places = {"experiment": arm.parent.name, "arm": arm.name}
    return Run(folder, arm.parent.name, arm.name, {**record, **places})


def check_record(record: Mapping[str, Any], file: Path, *, complete: bool = True) -> None:
    """Refuse a record with a field of the wrong type.

    Args:
        complete: whether the fields of every run are required.

    Raises:
        UserError: naming the field, its value and the expected type.
    """
    for name, (fits, kind) in {**REQUIRED, **OPTIONAL}.items():
        value = record.get(name)
        if value is None and name in OPTIONAL:
            continue
        if name not in record:
            if not complete:
                continue
            raise UserError(f"{file}: {name!r} is missing; it should be {kind}")
        if not fits(value):
            raise UserError(f"{file}: {name!r} is {_abbreviate(value)}; it should be {kind}")


def _abbreviate(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def read_config(folder: Path) -> dict[str, Any]:
    """Read the settings of a run, ``config.yaml``, with the current names of settings and classes.

    Raises:
        UserError: if it cannot be read, or is not a mapping of names to values.
    """
    file = folder / CONFIG
    check_link(file, folder)  # YAML's errors quote the file
    content = read_yaml(file)
    if not isinstance(content, dict):
        raise UserError(f"{file} should hold the run's settings")
    return content


def setting_node(config: Mapping[str, Any], name: str, folder: Path) -> dict[str, Any]:
    """Return one group of a run's settings.

    Raises:
        UserError: if the group is missing, or not a mapping.
    """
    node = config.get(name)
    if not isinstance(node, dict):
        raise UserError(f"{folder / CONFIG}: {name!r} is {_abbreviate(node)}; it should be a group")
    return node


# ``leaks.json``: the test images that a run was trained on, reported in words.

LEAKS = "leaks.json"
"""{benchmark: {images, equal, total, with_coco_id, coco_ids}}, beside a run's results; and ``near``
(images, total, distance, left_out) if near-duplicates were looked for and there are some."""


def write_leaks(folder: Path, benchmark: str, leaks: Leaks) -> None:
    """Save the images that a test shares with a run's training, replacing the earlier entry.

    Args:
        leaks: the shared images; an entry without any is removed.
    """
    file = folder / LEAKS
    known = read_record(file) if file.exists() else {}
    near = leaks.near
    if leaks.images or (near is not None and near.pairs):
        entry: dict[str, Any] = {
            "images": leaks.images, "equal": leaks.equal, "total": leaks.total,
            "with_coco_id": leaks.checked, "coco_ids": leaks.ids.tolist(),
        }  # fmt: skip
        if near is not None and near.pairs:
            entry["near"] = {
                "images": len(near.pairs), "total": near.checked, "distance": near.rule.distance,
                "left_out": near.left_out,
            }  # fmt: skip
        write_output(file, to_json({**known, benchmark: entry}), LEAKS)
    elif known.pop(benchmark, None) is not None:
        write_output(file, to_json(known), LEAKS)


def leak_sentences(folders: Iterable[Path]) -> list[str]:
    """Return for each benchmark a sentence on the images that the most affected run trained on.

    Raises:
        UserError: if a file cannot be read.
    """
    worst: dict[str, tuple[int, int, int, Path]] = {}
    nearest: dict[str, tuple[int, int, int, bool, Path]] = {}
    for folder in folders:
        if not (folder / LEAKS).exists():
            continue
        for benchmark, entry in read_record(folder / LEAKS).items():
            leak = (int(entry["images"]), int(entry["total"]), int(entry.get("equal", 0)), folder)
            if leak[0]:
                worst[benchmark] = max(worst.get(benchmark, leak), leak)
            if near := entry.get("near"):
                images, total, bits = (int(near[key]) for key in ("images", "total", "distance"))
                some = (images, total, bits, bool(near["left_out"]), folder)
                nearest[benchmark] = max(nearest.get(benchmark, some), some)
    exact = [
        f"{benchmark}: {'up to ' * (images != total)}{describe_leak(images, total, equal)} "
        f"({folder.parent.name}, {folder.name})."
        for benchmark, (images, total, equal, folder) in sorted(worst.items())
    ]
    pictures = "near_duplicates-{}.html in the folder of {}, {} shows them"
    return exact + [
        f"{benchmark}: up to {describe_near('test', images, total, bits, left_out)}; "
        f"{pictures.format(benchmark, folder.parent.name, folder.name)}."
        for benchmark, (images, total, bits, left_out, folder) in sorted(nearest.items())
    ]
