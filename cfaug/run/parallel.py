"""Several processes at once: runs of a sweep, and the ranks of one run.

A tiny model gains little from a second core: two runs on one core each take 0.64 of the time of
two runs one after the other on both (measured on two cores).

The processes are the standard library's: a pool of one each, behind a queue. joblib's loky treats a
killed worker as a broken executor: of five jobs, two of which were killed, it lost all five and
accepted no more (loky 3.6, joblib issues 812 and 1099). A sweep should lose two and continue.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import lru_cache
from multiprocessing import get_context
from queue import SimpleQueue
from types import FrameType
from typing import TYPE_CHECKING, TypeVar

from cfaug.core.errors import CALLED_BY, say
from cfaug.core.processes import CHECKOUT, PLAN_PRINTED, call
from cfaug.core.progress import Progress
from cfaug.run.launch import DONE, FAILED

if TYPE_CHECKING:
    from cfaug.data.mixture.loader import KeptPixels


Job = TypeVar("Job")


def run_at_once(
    jobs: Sequence[Job], run: Callable[[Job], int], processes: int, *, stop_on_error: bool = False
) -> list[tuple[Job, int]]:
    """Run every job in one of ``processes`` processes; return each job with its exit code.

    A process that is killed from outside fails its job and is replaced.

    Args:
        run: a module's function that runs one job and returns its exit code.
        stop_on_error: start no further job after a failure; jobs not started are not returned.
    """
    codes: dict[int, int] = {}
    stopped = threading.Event()
    idle: SimpleQueue[ProcessPoolExecutor] = SimpleQueue()
    for _ in range(processes):  # a pool of one each, so that a crash breaks only its own pool
        idle.put(_one_process())

    def run_in_process(job: Job) -> int | None:
        """Run a job in the next free process; ``None`` if jobs are no longer started by then."""
        if stopped.is_set():
            return None
        process = idle.get()
        try:
            code = process.submit(run, job).result()
        except BrokenProcessPool as error:
            say(f"error: {error}")
            process.shutdown(wait=False)
            process, code = _one_process(), FAILED
        finally:
            idle.put(process)
        if stop_on_error and code != DONE:
            stopped.set()
        return code

    threads = ThreadPoolExecutor(processes)
    with _share_of_cores(processes):
        try:
            with Progress("the sweep", len(jobs), "runs") as progress:
                futures = {threads.submit(run_in_process, job): n for n, job in enumerate(jobs)}
                for future in as_completed(futures):
                    code = future.result()
                    if code is not None:
                        codes[futures[future]] = code
                        progress.advance()
        except BaseException:  # such as Ctrl-C, which the running children hear as well
            stopped.set()
            raise
        finally:
            threads.shutdown()
            while not idle.empty():
                idle.get().shutdown()
    return [(job, codes[number]) for number, job in enumerate(jobs) if number in codes]


def _one_process() -> ProcessPoolExecutor:
    # Not forked: torch's threads would not survive it.
    return ProcessPoolExecutor(1, get_context("spawn"), initializer=_draw_no_bars)


def _draw_no_bars() -> None:
    """Have this process print lines of progress: bars of several would overwrite each other."""
    os.environ["TERM"] = "dumb"


@contextmanager
def _share_of_cores(processes: int) -> Iterator[None]:
    """Let children that start in here use an equal share of the cores, unless the user set it."""
    before = dict(os.environ)
    share = max(1, len(os.sched_getaffinity(0)) // processes)
    os.environ.setdefault("OMP_NUM_THREADS", str(share))
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


MIB = 1024 * 1024


def shared_pixels(share: bool, mib: int, processes: int) -> KeptPixels | None:
    """Return the image cache that the runs of this process share; ``None`` without one.

    Args:
        mib: memory of the caches of all processes together, in MiB.
    """
    return _of_this_process(mib * MIB // processes) if share else None


@lru_cache(maxsize=1)
def _of_this_process(limit: int) -> KeptPixels:
    from cfaug.data.mixture.loader import KeptPixels

    return KeptPixels(limit)


# The processes of one run: their ranks, which of them prints, and how a command starts them.
#
# ``python -m cfaug.run.parallel`` is torchrun for ``trainer.devices=2``: its first signal stops it,
# any others are ignored, and it ends with the exit code of its first failed process, not a
# traceback.


def start_ranks(name: str, words: Sequence[str], count: int) -> int:
    """Run a command in several processes that train together; return an exit code.

    Raises:
        KeyboardInterrupt: if it was interrupted, after the processes have ended.
    """
    # The folder of this very package comes first, so that the processes import the same package.
    path = os.pathsep.join(filter(None, [str(CHECKOUT), os.environ.get("PYTHONPATH")]))
    command = [
        sys.executable, "-m", __name__, f"--nproc-per-node={count}", "-m", "cfaug", name, *words,
    ]  # fmt: skip
    variables = {"PYTHONPATH": path, "PYTHONSAFEPATH": "1", PLAN_PRINTED: "1"}
    return call(command, env={CALLED_BY: "", **os.environ, **variables})


def main(words: Sequence[str]) -> int:
    """Start the processes as torchrun does on this machine, and return an exit code."""
    signal.signal(signal.SIGINT, _ignore)  # from a terminal: the parent sends SIGTERM in its place

    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.run import parse_args, run

    from cfaug.run.launch import DONE, FAILED, INTERRUPTED

    stopped = False

    def stop(number: int, frame: FrameType | None) -> None:
        """Stop the processes, once: torchrun would leave them alone at the second signal."""
        nonlocal stopped
        if not stopped:
            stopped = True
            raise SignalException("stopped", signal.SIGTERM)

    logging.disable(logging.ERROR)  # torchrun's messages; the processes report their own errors
    signal.signal(signal.SIGTERM, stop)
    try:
        # torchrun replaces this handler for every signal that it is told to pass on itself.
        run(parse_args(["--standalone", "--signals-to-handle=SIGQUIT", *words]))
    except ChildFailedError as error:
        _, failure = error.get_first_failure()
        return failure.exitcode if failure.exitcode > 0 else FAILED
    except SignalException:
        return INTERRUPTED
    return DONE


def _ignore(number: int, frame: FrameType | None) -> None:
    """Do nothing; unlike SIG_IGN, the processes do not inherit this handler."""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
