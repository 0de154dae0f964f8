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
from typing import Any, TypeVar

from cfaug.errors import UserError
from cfaug.run.launch import FAILED

Job = TypeVar("Job")


def check_parallel(parallel: Any) -> None:
    """Refuse a number of processes that cannot be.

    Raises:
        UserError: unless it is a whole number from 1.
    """
    if isinstance(parallel, bool) or not isinstance(parallel, int) or parallel < 1:
        raise UserError(f"parallel={parallel!r}: how many runs at once, a whole number from 1")


def run_at_once(
    jobs: Sequence[Job], run: Callable[[Job], int], processes: int
) -> list[tuple[Job, int]]:
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
    console = Console(stderr=True, _environ=dict(os.environ))
    bar = Progress(
        "runs", BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), Eta(), "left",
        console=console, transient=True,
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
    """Let children that start in here use an equal share of the cores, unless the user set it.

    And let them draw no bars of their own, which would overwrite each other.
    """
    before = dict(os.environ)
    share = max(1, len(os.sched_getaffinity(0)) // processes)
    os.environ.setdefault("OMP_NUM_THREADS", str(share))
    os.environ["TERM"] = "dumb"
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
