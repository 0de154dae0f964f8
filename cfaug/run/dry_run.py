"""``dry_run=true``: describe a run from its indexes and from earlier runs."""

from __future__ import annotations

import csv
import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cfaug.core.errors import UserError
from cfaug.report.records import read_run

if TYPE_CHECKING:
    from cfaug.run.run_plan import TrainJob

TOKENS = 50
"""Image patches or caption tokens of CLIP ViT-B/32, for the rule of thumb."""

METRICS = "metrics.csv"

START_UP_S = 30.0
"""Seconds to import torch, transformers and Lightning: 20 to 30, measured on two cores."""


def estimate_seconds(job: TrainJob) -> tuple[float | None, str]:
    """Return the estimated seconds of the whole run, and the basis of the estimate.

    The basis is the newest finished run here of the same weights and batch size; without one, a
    rule of thumb: six operations per parameter, example and token (forward and backward), 50 tokens
    per example, at a third of this processor's measured matrix rate, rounded to two digits.
    """
    newest = _find_newest_measured(job)
    if newest is not None:
        folder, seconds_per_step = newest
        return round(START_UP_S + job.task.steps * seconds_per_step, 1), f"measured in {folder}"
    parameters = job.task.model.parameters()
    if parameters is None:
        return None, "nothing measured yet, and the number of parameters is unknown"
    examples = job.task.batch_size * job.task.trainer.accumulate_grad_batches
    operations = 6 * parameters * TOKENS * examples * job.task.steps
    seconds = START_UP_S + operations / (_matrix_rate() / 3)
    basis = "rule of thumb from the number of parameters; nothing measured yet"
    return float(f"{seconds:.2g}"), basis


def _find_newest_measured(job: TrainJob) -> tuple[Path, float] | None:
    several = job.task.trainer.accumulate_grad_batches
    wanted = (job.folder.identity["content.weights"], job.task.batch_size, several)
    newest: tuple[float, Path, float] | None = None
    for file in Path(job.settings.paths["runs"]).glob("*/*/seed=*/run.json"):
        try:
            run = read_run(file.parent)
        except UserError:
            continue
        asked = run.record.get("identity") or {}
        several = asked.get("trainer.accumulate_grad_batches", 1)
        same = (asked.get("content.weights"), asked.get("data.batch_size"), several) == wanted
        if same and run.done:
            written, seconds = file.stat().st_mtime, _seconds_per_step(file.parent)
            if seconds is not None and (newest is None or written > newest[0]):
                newest = (written, file.parent, seconds)
    return None if newest is None else newest[1:]


def _seconds_per_step(folder: Path) -> float | None:
    """Return the seconds per step of a run's last attempt; ``None`` if unknown.

    Only the steps count: a short run spends most of its time on starting.
    """
    try:
        with (folder / METRICS).open(newline="", encoding="utf-8") as lines:
            rows = [row for row in csv.DictReader(lines) if row.get("seconds")]
        last = [row for row in rows if row["attempt"] == rows[-1]["attempt"]]
        began, ended = ((int(row["step"]), float(row["seconds"])) for row in (last[0], last[-1]))
    except (OSError, ValueError, KeyError, IndexError, TypeError):
        return None
    steps = ended[0] - began[0]
    return (ended[1] - began[1]) / steps if steps > 0 else None


def _matrix_rate(side: int = 512) -> float:
    """Return the operations per second of a float32 matrix product, the best of three."""
    import numpy as np

    matrix = np.ones((side, side), np.float32)
    best = math.inf
    for _ in range(3):
        began = time.perf_counter()
        matrix @ matrix
        best = min(best, time.perf_counter() - began)
    return 2 * side**3 / best


def describe(job: TrainJob) -> dict[str, Any]:
    """Return the description of a run from its data: the last line of ``dry_run=true``."""
    task = job.task
    seconds, basis = estimate_seconds(job)
    batches, several = task.batches_per_epoch, task.trainer.accumulate_grad_batches
    described = {
        "run": str(job.folder.path),
        "state": job.folder.state(),
        "config_hash": job.folder.hash,
        "counts": dict(task.counts),
        "sources": job.sources,
        "steps": task.steps,
        "steps_per_epoch": batches if several == 1 else round(batches / several, 2),
        "batch_size": task.batch_size,
        **task.describe(),
        "estimate_s": seconds,
        "estimate_from": basis,
    }
    if job.notes:
        described["notes"] = list(job.notes)
    return described
