"""Several runs of a sweep at once on one machine, each with its share of the cores.

A tiny model gains little from a second core: two runs on one core each take 0.64 of the time of
two runs one after the other on both (measured on two cores).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context
from typing import TYPE_CHECKING

from cfaug.run.launch import FAILED

if TYPE_CHECKING:
    from cfaug.run.plan import TrainJob


def run_at_once(
    jobs: Sequence[TrainJob], run: Callable[[TrainJob], int], processes: int
) -> list[tuple[TrainJob, int]]:
    """Run every job in one of ``processes`` processes; return each job with its exit code.

    Args:
        jobs: in the order in which they are started.
        run: a module's function that runs one job and returns its exit code.
        processes: how many at once.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn
    from rich.progress import TimeRemainingColumn as Eta

    codes: dict[int, int] = {}
    bar = Progress(
        "runs", BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), Eta(), "left",
        console=Console(stderr=True), transient=True,
    )  # fmt: skip
    # Not forked: torch's threads would not survive it.
    context = get_context("spawn")
    with _share_of_cores(processes), ProcessPoolExecutor(processes, context) as pool, bar:
        task = bar.add_task("", total=len(jobs))
        futures = {pool.submit(run, job): number for number, job in enumerate(jobs)}
        for future in as_completed(futures):
            codes[futures[future]] = _code(future)
            bar.advance(task)
    return [(job, codes[number]) for number, job in enumerate(jobs)]


def _code(future: Future[int]) -> int:
    try:
        return future.result()
    except BrokenProcessPool as error:  # killed from outside: the runs it took with it failed
        print(f"error: {error}", file=sys.stderr)
        return FAILED


@contextmanager
def _share_of_cores(processes: int) -> Iterator[None]:
    """Let children that start in here use an equal share of the cores, unless the user set it."""
    given = os.environ.get("OMP_NUM_THREADS")
    if given is None:
        share = max(1, len(os.sched_getaffinity(0)) // processes)
        os.environ["OMP_NUM_THREADS"] = str(share)
    try:
        yield
    finally:
        if given is None:
            del os.environ["OMP_NUM_THREADS"]
