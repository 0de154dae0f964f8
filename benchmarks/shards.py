"""What a shard costs in a folder of many: as a call, and as a part of its own.

A shard is a set of two tiny grey images, so that what is measured is everything around images:
locks, commits, journals, keys, the card. ``Job.make_shard`` is what a loop, or a worker of a
cluster, calls for each shard; keys are checked and the card is written once. A part of its own
(``part=i parts=N``) does both again for every shard.

    python benchmarks/shards.py
    python benchmarks/shards.py --shards 10 100
"""

from __future__ import annotations

import argparse
import platform
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cfaug.core.types import Edited, Example, ImageJob, Images
    from cfaug.generate.job import Job

PARTS = 3
"""Parts of their own that are made at the end of each folder, to be averaged."""


class OtherNoun:
    """An editor that names another animal."""

    def edit(self, examples: Sequence[Example]) -> list[Edited]:
        """Return one proposal for each caption."""
        from cfaug.core.types import Edit, Edited, Proposal

        edit = Edit("noun", "dog", "cat")
        return [
            Edited((Proposal(example, (example.text, "a cat"), (None, edit)),), {})
            for example in examples
        ]

    def describe(self) -> dict[str, str]:
        """Return the editor's name."""
        return {"editor": "other noun"}


class Grey:
    """An image editor that makes one grey image."""

    def edit(self, jobs: Sequence[ImageJob]) -> list[Images]:
        """Return the same image for both texts of each job."""
        import numpy as np

        from cfaug.core.types import Images

        return [Images((np.full((2, 2, 3), 99, np.uint8),), (0, 0)) for _ in jobs]

    def describe(self) -> dict[str, str]:
        """Return the editor's name."""
        return {"image_editor": "grey"}


def make_job(folder: Path, count: int) -> Job:
    """Return a job with one caption a shard."""
    from cfaug.core.types import Example
    from cfaug.generate.job import Job
    from cfaug.generate.recipe import Recipe, RunSettings, ShardSettings
    from cfaug.imaging.select import Selection

    examples = [Example(f"{n:06d}", f"{n:06d}", ("a dog",)) for n in range(count)]
    recipe = Recipe(
        "simulated", editor=OtherNoun(), image_editor=Grey(), scorers={}, draws=None,
        selection=Selection(minimum={}, maximise=None),
    )  # fmt: skip
    shards = ShardSettings(sets_per_shard=1)
    return Job(folder, recipe, lambda: examples, run=RunSettings(), shards=shards)


def milliseconds(seconds: Sequence[float]) -> str:
    """Return the mean in milliseconds."""
    return f"{1000 * fmean(seconds):.2f}"


def measure(count: int) -> str:
    """Return the row of a folder of so many shards."""
    from cfaug.generate import job as generation
    from cfaug.generate.captions import check_all_keys
    from cfaug.generate.folder import write_card

    times: dict[str, list[float]] = {"captions": [], "images": []}

    def make(job: Job, stage: generation.ShardStage, numbers: Sequence[int]) -> dict[int, tuple]:
        watch = generation.ProgressReporter(stage, "units", "made", count, shown=False)
        for number in numbers:
            began = time.perf_counter()
            assert job.make_shard(stage, number, watch) == ()
            times[stage].append(time.perf_counter() - began)
        return {}

    with tempfile.TemporaryDirectory() as folder:
        job = make_job(Path(folder), count)
        generation.generate(job, make)
        began = time.perf_counter()
        check_all_keys(job.folder)
        keys = time.perf_counter() - began
        began = time.perf_counter()
        write_card(job.folder)
        card = time.perf_counter() - began
        calls = [first + second for first, second in zip(*times.values(), strict=True)]
        alone = []
        for part in range(min(PARTS, count)):  # the work of a process for one shard, made again
            for file in (f"{part:05d}.json", f"{part:05d}.tar", f"captions/{part:05d}.json"):
                (job.folder / file).unlink()
            own = make_job(job.folder, count)
            began = time.perf_counter()
            generation.generate(replace(own, run=replace(own.run, part=part, parts=count)), make)
            alone.append(time.perf_counter() - began)
    half = len(calls) // 2
    cells = (
        f"{count:,}", milliseconds(calls), milliseconds(calls[half:]),
        milliseconds([keys + card]), milliseconds(alone),
        f"{fmean(alone) / fmean(calls):.1f}",
    )  # fmt: skip
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--shards", type=int, nargs="+", default=[10, 100, 1000, 10_000])
    counts = parser.parse_args().shards
    print(f"{platform.machine()}, Python {platform.python_version()}; milliseconds")
    print(
        "| shards | a call | a call, second half | keys and card, once | a part a shard | ratio |"
    )
    print("|---|---|---|---|---|---|")
    for count in counts:
        print(measure(count), flush=True)


if __name__ == "__main__":
    main()
