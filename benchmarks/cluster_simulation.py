"""A simulated cluster: how long a generation takes, and what failures and stragglers waste.

    python benchmarks/cluster_simulation.py --sets 100000 --seconds-per-set 349 --workers 8 128

The queue is that of ``cfaug.run.parallel.RayEngine``: a free worker takes the next shard, and a
lost shard is the next one to be taken again. Nothing is measured here: the rates are yours, and
those that are not given are assumptions. ``generate.py dry_run=true`` tells the seconds of a set.
"""

from __future__ import annotations

import argparse
import heapq
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields
from statistics import fmean
from typing import Annotated, Literal

import numpy as np
from annotated_types import Interval, MinLen

from cfaug.core.errors import UserError, say
from cfaug.core.rng import generator
from cfaug.core.validation import Positive, Seed, Share, check_fields
from cfaug.generate.recipe import shard_count
from cfaug.report.document import Part, make_part, text_column
from cfaug.report.terminal import part_lines

WIDTH = 120
FILES_PER_SHARD = 5
"""Tar, candidates' scores and commit, and the captions with their commit."""
PORTION = 2
"""A worker is given 1/(PORTION x slowdown x workers) of the remaining shards as one event: they are
taken one by one towards the end, where it matters who takes which."""
EQUAL = 0.01
"""Relative difference of wall times below which fewer, larger shards are recommended."""


DAY = 86_400
Seconds = Annotated[float, Interval(ge=0, le=DAY)]
"""A time of at most a day, in seconds."""
Rate = Annotated[float, Interval(ge=0, le=60)]
"""Failures in an hour, at most one a minute."""
MOST_FAILURES = 100_000
"""The largest number of failures in one simulated run."""


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Machines that are slow, crash or are taken away; times to failure are exponential.

    Args:
        workers: the numbers of workers to simulate.
        sets_per_shard: the choices of ``shards.sets_per_shard`` to compare.
        start_up: seconds from a worker's start to its first shard, mostly for loading weights.
        seconds_per_shard: seconds of a shard besides its sets: locks, commit, upload.
        stragglers: the share of machines that are slow.
        slowdown: the factor by which these are slower.
        restarts_per_hour: crashes of a worker in an hour; it starts again on the same machine.
        losses_per_hour: machines taken away in an hour, for each worker.
        replacement: seconds until another machine takes a lost one's part.
        journal: whether a lost shard resumes after its last batch, as on a shared file system;
            otherwise, as with an object store, it is made anew.
        most_files: the largest number of files that the file system should hold.
        replicates: simulated runs of each choice.
    """

    workers: Annotated[Sequence[Annotated[int, Interval(ge=1, le=100_000)]], MinLen(1)] = (
        8, 64, 512,
    )  # fmt: skip
    sets_per_shard: Annotated[Sequence[Positive], MinLen(1)] = (10, 30, 100, 300, 1000)
    start_up: Seconds = 120.0
    seconds_per_shard: Seconds = 1.0
    stragglers: Share = 0.05
    slowdown: Annotated[float, Interval(ge=1, le=1000)] = 2.0
    restarts_per_hour: Rate = 0.02
    losses_per_hour: Rate = 0.05
    replacement: Seconds = 600.0
    journal: bool = True
    most_files: Positive = 1_000_000
    replicates: Annotated[int, Interval(ge=1, le=1000)] = 10
    seed: Seed = 0

    def __post_init__(self) -> None:
        check_fields(self, "cluster")


@dataclass(frozen=True)
class Workload:
    """Sets to make, in shards.

    Attributes:
        seconds_per_set: the seconds of a set on a machine that is not slow.
        sets_per_batch: the number of sets between two savings of the journal; may be a fraction.
    """

    sets: int
    sets_per_shard: int
    seconds_per_set: float
    sets_per_batch: float = 1.0

    @property
    def shards(self) -> int:
        """The number of shards."""
        return shard_count(self.sets, self.sets_per_shard)


@dataclass(frozen=True)
class SimulatedRun:
    """The times of one simulated run, in seconds; all but ``wall`` are sums over workers.

    Attributes:
        paid: the time from start to end, without that in which a lost machine is replaced.
        kept: the time for sets that were kept, by stragglers too.
        lost: the time for sets that a failure destroyed.
        overhead: the time for start-ups and commits.
    """

    wall: float
    paid: float
    kept: float
    lost: float
    overhead: float

    @property
    def waiting(self) -> float:
        """Time of workers without a shard, at the end."""
        return self.paid - self.kept - self.lost - self.overhead

    @property
    def waste(self) -> float:
        """The share of the paid time in which nothing was made that was kept."""
        return 1 - self.kept / self.paid


def simulate(
    work: Workload,
    workers: int,
    cluster: Cluster,
    replicate: int = 0,
    uptimes: Sequence[Sequence[float]] | None = None,
) -> SimulatedRun:
    """Simulate one run.

    Args:
        replicate: the number of the run; each has random numbers of its own.
        uptimes: the seconds from each start of each worker to its next crash; it does not fail
            again after the last one. ``None`` for random failures.
    """
    return _Simulation(work, workers, cluster, replicate, uptimes).run()


class _Simulation:
    """The state of a run. Each worker has at most one event: it is free, or it has failed."""

    def __init__(
        self,
        work: Workload,
        workers: int,
        cluster: Cluster,
        replicate: int,
        uptimes: Sequence[Sequence[float]] | None,
    ) -> None:
        self.work, self.workers, self.cluster = work, workers, cluster
        names = ("cluster", workers, work.sets, work.sets_per_shard, replicate)
        self.random = generator(cluster.seed, *names)
        self.uptimes = None if uptimes is None else [iter(times) for times in uptimes]
        self.restarts, self.losses = (
            0.0 if uptimes is not None else rate / 3600
            for rate in (cluster.restarts_per_hour, cluster.losses_per_hour)
        )
        self.whole, rest = divmod(work.sets, work.sets_per_shard)
        self.rest = rest * work.seconds_per_set
        self.begun: list[float] = []  # seconds left of lost shards; the last one is taken first
        # When, by whom, and after a failure: whole shards given back, and seconds of the begun one.
        self.events: list[tuple[float, int, tuple[int, float | None] | None]] = []
        self.idle: list[int] = []
        self.speed = [1.0] * workers
        self.fails = [math.inf] * workers
        self.replaced: list[tuple[float, float]] = []
        self.started: list[tuple[float, float]] = []
        self.kept = self.lost = self.commits = self.end = 0.0
        self.failures = 0

    def run(self) -> SimulatedRun:
        for worker in range(self.workers):
            self._start(worker, 0.0, new=True)
        while self.events:
            now, worker, failure = heapq.heappop(self.events)
            if failure is None:
                self._take(worker, now)
                continue
            self.failures += 1
            if self.failures > MOST_FAILURES:
                raise UserError(
                    f"cluster: with {self.workers} workers and {self.work.sets_per_shard} sets a "
                    f"shard there are more than {MOST_FAILURES:,} failures, as hardly a shard is "
                    "done between two of them: lower losses_per_hour, restarts_per_hour or "
                    "sets_per_shard"
                )
            shards, seconds = failure
            self.whole += shards
            self.begun += [] if seconds is None else [seconds]
            for _ in range(min(shards + (seconds is not None), len(self.idle))):
                heapq.heappush(self.events, (now, self.idle.pop(0), None))
            lost = self.random.random() * (self.restarts + self.losses) < self.losses
            delay = self.cluster.replacement if lost else 0.0
            self.replaced += [(now, now + delay)] if lost else []
            if self.events or self.whole or self.begun or self.rest:
                self._start(worker, now + delay, new=lost)
        gone, starting = (
            sum(max(0.0, min(until, self.end) - since) for since, until in spans)
            for spans in (self.replaced, self.started)
        )
        paid = self.workers * self.end - gone
        return SimulatedRun(self.end, paid, self.kept, self.lost, starting + self.commits)

    def _draw_uptime(self, worker: int) -> float:
        if self.uptimes is not None:
            return next(self.uptimes[worker], math.inf)
        rate = self.restarts + self.losses
        return float(self.random.exponential(1 / rate)) if rate else math.inf

    def _start(self, worker: int, now: float, *, new: bool) -> None:
        """Start a worker, on a new machine or on its old one."""
        if new:
            slow = self.random.random() < self.cluster.stragglers
            self.speed[worker] = 1 / self.cluster.slowdown if slow else 1.0
        ready, fails = now + self.cluster.start_up, now + self._draw_uptime(worker)
        self.fails[worker] = fails
        self.started.append((now, min(ready, fails)))
        failure = (0, None) if fails < ready else None
        heapq.heappush(self.events, (min(ready, fails), worker, failure))

    def _take(self, worker: int, now: float) -> None:
        """Give a free worker the next shard, or some of the next ones."""
        cluster, work, count = self.cluster, self.work, 1
        if self.begun:
            seconds = self.begun.pop()
        elif self.whole:
            portions = PORTION * math.ceil(cluster.slowdown) * self.workers
            count = max(1, self.whole // portions)
            self.whole -= count
            seconds = work.sets_per_shard * work.seconds_per_set
        elif self.rest:
            seconds, self.rest = self.rest, 0.0
        else:
            self.idle.append(worker)
            return
        if self.fails[worker] <= now:  # it failed while it waited, and has started again
            self.fails[worker] = now + self._draw_uptime(worker)
        speed, left = self.speed[worker], self.fails[worker] - now
        each = seconds / speed + cluster.seconds_per_shard
        done = count if count * each <= left else int(left // each)
        self.kept += done * seconds / speed
        self.commits += done * cluster.seconds_per_shard
        if done:
            self.end = max(self.end, now + done * each)
        if done == count:
            heapq.heappush(self.events, (now + count * each, worker, None))
            return
        saved = 0.0
        if cluster.journal:
            batch = work.sets_per_batch * work.seconds_per_set
            saved = min((left - done * each) * speed // batch * batch, seconds)
        self.kept += saved / speed
        self.lost += left - done * each - saved / speed
        failure = (count - done - 1, seconds - saved)
        heapq.heappush(self.events, (self.fails[worker], worker, failure))


# The table: every choice of ``sets_per_shard`` with every number of workers.


@dataclass(frozen=True)
class Prediction:
    """The runs that were simulated for one choice and one number of workers."""

    sets_per_shard: int
    workers: int
    files: int
    runs: tuple[SimulatedRun, ...]

    @property
    def wall(self) -> float:
        """The mean wall time, in seconds."""
        return fmean(run.wall for run in self.runs)

    @property
    def late(self) -> float:
        """The wall time that 95 % of the runs do not exceed, in seconds."""
        return float(np.quantile([run.wall for run in self.runs], 0.95))

    def share(self, name: Literal["waste", "lost", "waiting", "overhead"]) -> float:
        """Return a mean share of the paid time."""
        if name == "waste":
            return fmean(run.waste for run in self.runs)
        return fmean(getattr(run, name) / run.paid for run in self.runs)


def predict(
    sets: int, seconds_per_set: float, sets_per_batch: float, cluster: Cluster
) -> list[Prediction]:
    """Simulate every choice of ``sets_per_shard`` with every number of workers."""
    predictions = []
    for workers in cluster.workers:
        for per_shard in cluster.sets_per_shard:
            work = Workload(sets, per_shard, seconds_per_set, sets_per_batch)
            runs = tuple(simulate(work, workers, cluster, i) for i in range(cluster.replicates))
            files = work.shards * FILES_PER_SHARD
            predictions.append(Prediction(per_shard, workers, files, runs))
    return predictions


def recommend(predictions: Sequence[Prediction], most_files: int) -> dict[int, int | None]:
    """Return ``sets_per_shard`` for each number of workers: that with the smallest wall time.

    Of times within 1 % of it, that with the largest shards is chosen.

    Returns:
        {workers: sets_per_shard}; ``None`` if every choice has more files than ``most_files``.
    """
    chosen: dict[int, int | None] = {}
    for workers in dict.fromkeys(prediction.workers for prediction in predictions):
        fitting = [
            prediction
            for prediction in predictions
            if prediction.workers == workers and prediction.files <= most_files
        ]
        least = min((prediction.wall for prediction in fitting), default=0.0)
        equal = [
            prediction.sets_per_shard
            for prediction in fitting
            if prediction.wall <= least * (1 + EQUAL)
        ]
        chosen[workers] = max(equal, default=None)
    return chosen


def cluster_part(predictions: Sequence[Prediction], cluster: Cluster) -> Part:
    """Return the table of predictions, with the recommended choices."""
    hour, chosen = 3600, recommend(predictions, cluster.most_files)
    notes = [
        f"{workers} workers: every choice has more than {cluster.most_files:,} files"
        for workers, best in chosen.items()
        if best is None
    ]
    notes.append(
        f"start-up {cluster.start_up:g} s, {cluster.seconds_per_shard:g} s a shard besides its "
        f"sets; {cluster.stragglers:.0%} of the machines {cluster.slowdown:g} times slower; a "
        f"worker restarts {cluster.restarts_per_hour:g} times an hour, its machine is lost "
        f"{cluster.losses_per_hour:g} times an hour and replaced after {cluster.replacement:g} s; "
        f"a lost shard {'resumes after its last batch' if cluster.journal else 'is made anew'}; "
        f"{cluster.replicates} simulated runs each"
    )
    return make_part(
        "Simulated cluster (* recommended)",
        ("workers", "sets_per_shard"),
        [
            text_column("files", lambda row: f"{row.files:,}"),
            text_column("hours", lambda row: f"{row.wall / hour:,.2f}"),
            text_column("95 % within", lambda row: f"{row.late / hour:,.2f}"),
            text_column("waste", lambda row: f"{row.share('waste'):.1%}"),
            text_column("made again", lambda row: f"{row.share('lost'):.1%}"),
            text_column("waiting", lambda row: f"{row.share('waiting'):.1%}"),
            text_column("start-up, commits", lambda row: f"{row.share('overhead'):.1%}"),
        ],
        [
            (
                (
                    str(row.workers),
                    f"{row.sets_per_shard}{' *' * (chosen[row.workers] == row.sets_per_shard)}",
                ),
                row,
            )
            for row in predictions
        ],
        notes,
    )


def main(argv: Sequence[str] | None = None) -> None:
    """Print the table of a command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--sets", type=int, required=True, help="number of examples")
    add("--seconds-per-set", type=float, required=True, help="of a machine that is not slow")
    add("--sets-per-batch", type=float, default=1.0, help="between two savings of the journal")
    for field in fields(Cluster):
        flag = f"--{field.name.replace('_', '-')}"
        if isinstance(field.default, bool):
            add(flag, action=argparse.BooleanOptionalAction, default=field.default)
        elif isinstance(field.default, tuple):
            add(flag, type=int, nargs="+", default=field.default)
        else:
            add(flag, type=type(field.default), default=field.default)
    given = vars(parser.parse_args(argv))
    work = [given.pop(name) for name in ("sets", "seconds_per_set", "sets_per_batch")]
    try:
        cluster = Cluster(**given)
        part = cluster_part(predict(*work, cluster), cluster)
    except UserError as error:
        parser.error(str(error))
    for line in part_lines(part, WIDTH, styled=False):
        say(line.plain, sys.stdout)
    for note in part.notes:
        say(note, sys.stdout)


if __name__ == "__main__":
    main()
