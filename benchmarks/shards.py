"""What a shard costs in a folder of many: as a call, and as a part of its own.

A shard is a set of two tiny grey images, so that what is measured is everything around images:
locks, commits, journals, keys, the card. ``Job.make_shard`` is what a loop, or a worker of a
cluster, calls for each shard; keys are checked and the card is written once. A part of its own
(``part=i parts=N``) does both again for every shard.

    python benchmarks/shards.py
    python benchmarks/shards.py --shards 10 100
    python benchmarks/shards.py --kills  # the simulated cluster against Ray workers that are killed
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
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


@dataclass(frozen=True)
class Grey:
    """An image editor that makes one grey image, and sleeps as if a GPU made it."""

    seconds: float = 0.0

    def edit(self, jobs: Sequence[ImageJob]) -> list[Images]:
        """Return the same image for both texts of each job."""
        import numpy as np

        from cfaug.core.types import Images

        time.sleep(self.seconds * len(jobs))
        return [Images((np.full((2, 2, 3), 99, np.uint8),), (0, 0)) for _ in jobs]

    def describe(self) -> dict[str, str]:
        """Return the editor's name."""
        return {"image_editor": "grey"}


def make_job(folder: Path, count: int, per_shard: int = 1, seconds: float = 0.0) -> Job:
    """Return a job with so many shards, made whole: a killed worker loses its shard."""
    from cfaug.core.types import Example
    from cfaug.generate.job import Job
    from cfaug.generate.recipe import Recipe, RunSettings, ShardSettings
    from cfaug.imaging.select import Selection

    examples = [Example(f"{n:06d}", f"{n:06d}", ("a dog",)) for n in range(count * per_shard)]
    recipe = Recipe(
        "simulated", editor=OtherNoun(), image_editor=Grey(seconds), scorers={}, draws=None,
        selection=Selection(minimum={}, maximise=None),
    )  # fmt: skip
    shards = ShardSettings(sets_per_shard=per_shard)
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
            part_job = make_job(job.folder, count)
            began = time.perf_counter()
            generation.generate(
                replace(part_job, run=replace(part_job.run, part=part, parts=count)), make
            )
            alone.append(time.perf_counter() - began)
    half = len(calls) // 2
    cells = (
        f"{count:,}", milliseconds(calls), milliseconds(calls[half:]),
        milliseconds([keys + card]), milliseconds(alone),
        f"{fmean(alone) / fmean(calls):.1f}",
    )  # fmt: skip
    return f"| {' | '.join(cells)} |"


# The simulated cluster against real workers. The simulation is given the measured seconds of a set
# and of a start, and when each worker was killed; it predicts the wall time and the waste.

SHARDS, PER_SHARD, SECONDS = 30, 5, 0.1
KILLED_IN = (3, 2, 5, 1, 4, 3)
"""The shard in the middle of which each worker process is killed; later ones are not killed."""


def dying_worker(folder: Path) -> Callable[[int], object]:
    """Return what makes a shard; the process notes when it begins, and when it is killed."""
    import ray

    from cfaug.generate.job import ProgressReporter, generate

    job = make_job(folder / "shards", SHARDS, PER_SHARD, SECONDS)
    watch = ProgressReporter("images", "units", "made", 0, shown=False)
    with tempfile.TemporaryDirectory() as scratch:  # what is imported late belongs to the start
        generate(make_job(Path(scratch), 1))
    number = 0
    while True:  # the first free number
        try:
            (folder / f"{number}").touch(exist_ok=False)
            break
        except FileExistsError:
            number += 1
    about = {"ready": time.time(), "worker": ray.get_runtime_context().get_actor_id()}

    def note(**more: float) -> None:
        (folder / f"{number}.json").write_text(json.dumps(about | more), encoding="utf-8")

    def die(begun: float) -> None:
        now = time.time()
        note(died=now, lost=now - begun)
        os._exit(9)

    note()
    left = KILLED_IN[number] if number < len(KILLED_IN) else SHARDS + 1

    def make(shard: int) -> float:
        nonlocal left
        left -= 1
        begun = time.time()
        if not left:
            threading.Timer(SECONDS * PER_SHARD / 2, die, [begun]).start()
        assert job.make_shard("images", shard, watch) == ()
        return time.time() - begun

    return make


@dataclass(frozen=True)
class Comparison:
    """A real run with killed workers, and the simulated one."""

    kills: int
    seconds_per_set: float
    start_up: float
    wall: float
    predicted_wall: float
    lost: float
    predicted_lost: float


def compare_with_kills(folder: Path, workers: int = 2) -> Comparison:
    """Make shards by Ray's workers, some of which are killed, and simulate the same.

    Returns:
        Seconds; ``lost`` is the workers' time that made nothing which was kept.
    """
    from benchmarks.cluster_simulation import Cluster, Workload, simulate
    from cfaug.generate import job as generation
    from cfaug.run.parallel import RayEngine

    job = make_job(folder / "shards", SHARDS, PER_SHARD, SECONDS)

    def only_captions(
        job: Job, stage: generation.ShardStage, numbers: Sequence[int]
    ) -> generation.Unpublished:
        return generation.make_shards(job, stage, numbers) if stage == "captions" else {}

    generation.generate(job, only_captions)
    began = time.time()
    engine = RayEngine(workers=workers, tries=SHARDS)
    took = dict(engine.run(partial(dying_worker, folder), range(SHARDS), "drawing", "shards"))
    wall = time.time() - began
    lives: dict[str, list[dict[str, float]]] = {}
    for file in folder.glob("*.json"):
        life = json.loads(file.read_text(encoding="utf-8"))
        lives.setdefault(life["worker"], []).append(life)
    starts, uptimes, lost = [], [], 0.0
    for ordered in (sorted(some, key=lambda life: life["ready"]) for some in lives.values()):
        since, times = began, []
        for life in ordered:
            starts.append(life["ready"] - since)
            if "died" in life:
                since = life["died"]
                times.append(since - life["ready"])
                lost += life["lost"]
        uptimes.append(times)
    start_up = fmean(starts)
    each = fmean(took.values()) / PER_SHARD
    cluster = Cluster(
        stragglers=0, restarts_per_hour=0, losses_per_hour=0, start_up=start_up,
        seconds_per_shard=0, journal=False,
    )  # fmt: skip
    run = simulate(
        Workload(SHARDS * PER_SHARD, PER_SHARD, each), workers, cluster,
        uptimes=[[start_up + time for time in times] for times in uptimes],
    )  # fmt: skip
    dead = sum(map(len, uptimes))
    return Comparison(dead, each, start_up, wall, run.wall, lost, run.lost)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--shards", type=int, nargs="+", default=[10, 100, 1000, 10_000])
    parser.add_argument("--kills", action="store_true")
    arguments = parser.parse_args()
    machine = f"{platform.machine()}, Python {platform.python_version()}"
    if arguments.kills:
        with tempfile.TemporaryDirectory() as folder:
            made = compare_with_kills(Path(folder))
        print(
            f"{machine}; {SHARDS} shards of {PER_SHARD} sets, two workers, {made.kills} killed; "
            f"a set {made.seconds_per_set:.3f} s, a start {made.start_up:.1f} s"
        )
        print("| seconds | measured | simulated | ratio |\n|---|---|---|---|")
        for name, real, simulated in (
            ("wall", made.wall, made.predicted_wall), ("lost", made.lost, made.predicted_lost),
        ):  # fmt: skip
            print(f"| {name} | {real:.1f} | {simulated:.1f} | {simulated / real:.2f} |")
        return
    print(f"{machine}; milliseconds")
    print(
        "| shards | a call | a call, second half | keys and card, once | a part a shard | ratio |"
    )
    print("|---|---|---|---|---|---|")
    for count in arguments.shards:
        print(measure(count), flush=True)


if __name__ == "__main__":
    main()
