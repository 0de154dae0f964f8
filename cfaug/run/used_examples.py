"""``train.py export.used=FILE``: a list of the examples that a run trains on."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cfaug.core.errors import UserError
from cfaug.core.outputs import check_output, replace_output
from cfaug.core.progress import watch
from cfaug.core.safety.addresses import hide
from cfaug.data.index import Index
from cfaug.data.mixture.records import REAL, Mixture
from cfaug.run.run_plan import TrainJob
from cfaug.train.mixture_task import MixtureTask

USED = "a list of used examples"


def check_used(jobs: Sequence[TrainJob]) -> None:
    """Refuse a list that several runs would write, or that is not about a mixture."""
    files = Counter(job.settings.export["used"] for job in jobs)
    for job in jobs:
        file = job.settings.export["used"]
        if file is None:
            continue
        if files[file] > 1:
            raise UserError(
                f"export.used={file}: {files[file]} runs would write it; give each a list of its "
                "own, such as 'export.used=used-${seed}.jsonl'"
            )
        if _mixture_of(job) is None:
            raise UserError(
                f"export.used={file} lists the captions and images of a mixture, and "
                f"{type(job.task).__name__} trains on others; leave it out"
            )
        check_output(Path(file).expanduser(), USED, "export.used")


def write_used(job: TrainJob) -> None:
    """Write the list of a run's examples, if it is asked for."""
    file, mixture = job.settings.export["used"], _mixture_of(job)
    if file is None or mixture is None:
        return
    total = len(mixture.train) + len(mixture.validation)
    with replace_output(Path(file).expanduser(), USED, "export.used") as handle:
        for line in watch(_lines(mixture), "listing what the run uses", total, "examples"):
            handle.write(f"{json.dumps(line, ensure_ascii=False)}\n".encode())


def _mixture_of(job: TrainJob) -> Mixture | None:
    """Return the rows of a run; ``None`` of questions, whose source has no index."""
    mixture = job.task.mixture if isinstance(job.task, MixtureTask) else None
    read = () if mixture is None else mixture.sources
    return mixture if any(isinstance(index, Index) for index in read) else None


def _lines(mixture: Mixture) -> Iterator[dict[str, Any]]:
    for split, examples in (("train", mixture.train), ("validation", mixture.validation)):
        for number, index in enumerate(mixture.sources):
            if index is None:
                continue
            used = examples[examples[:, 0] == number, 1]
            if split == "train" and number == REAL and mixture.captions is not None:
                used = mixture.captions.expand(used)  # those of all epochs
            rows, times = np.unique(used, return_counts=True)
            for row, count in zip(rows.tolist(), times.tolist(), strict=True):
                yield {
                    "split": split,
                    "kind": ("real", "counterfactual")[number],
                    "source": hide(str(index.source)),
                    "key": index.key(row),
                    "group": index.group_name(row),
                    "file": hide(index.file_name(row)),
                    "digest": index.digests[index.images[row]].tobytes().hex(),
                    "caption": index.text(row),
                    "times": count,
                }
