"""Several processes at once: runs of a sweep, the ranks of one run, and the workers of Ray.

A tiny model gains little from a second core: two runs on one core each take 0.64 of the time of
two runs one after the other on both (measured on two cores).

The processes are the standard library's: a pool of one each, behind a queue. joblib's loky treats a
killed worker as a broken executor: of five jobs, two of which were killed, it lost all five and
accepted no more (loky 3.6, joblib issues 812 and 1099). A sweep should lose two and continue.
"""

from __future__ import annotations

import logging
import os
import shlex
import signal
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor, as_completed, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from multiprocessing import get_context
from pathlib import Path
from queue import SimpleQueue
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from cfaug.core.errors import CALLED_BY, UserError, say
from cfaug.core.processes import (
    CHECKOUT,
    ENDINGS,
    PLAN_PRINTED,
    call,
    end_with_parent,
    handle_endings,
)
from cfaug.core.progress import Progress
from cfaug.core.validation import Positive, PositiveNumber, Processes, Weight, check_fields
from cfaug.run.launch import DONE, FAILED, INTERRUPTED

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
        except BrokenProcessPool:
            say(
                "error: a process ended without a word, as one does that is killed when memory "
                f"runs out: fewer at once than parallel={processes} need less of it. What was "
                "complete is kept, and the same command again makes the rest"
            )
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
    return ProcessPoolExecutor(1, get_context("spawn"), initializer=_prepare_process)


def _prepare_process() -> None:
    end_with_parent()
    os.environ["TERM"] = "dumb"  # lines of progress: bars of several would overwrite each other


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

    stopped = False

    def stop(number: int) -> None:
        """Stop the processes, once: torchrun would leave them alone at the second signal."""
        nonlocal stopped
        if not stopped:
            stopped = True
            raise SignalException("stopped", signal.SIGTERM)

    logging.disable(logging.ERROR)  # torchrun's messages; the processes report their own errors
    handle_endings(stop)
    try:
        # torchrun replaces these handlers for every signal that it is told to pass on itself.
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

# Ray in place of this machine's processes: the shards of a generation, the runs of a sweep.
#
# A committed shard and a run's checkpoint are all that a lost machine leaves behind, and all that
# is needed to go on: the driver only asks for the missing ones again. Every worker is a process of
# its own that keeps its models between shards. ``docs/scale.md`` has the commands.

SECONDS_TO_RESTART = 1.0
"""The pause after a worker was lost, before it is asked whether it is there again."""
SECONDS_TO_PRINT = 1.0
"""The pause before Ray ends: it prints what workers write with a delay, and at its end no more."""
SECONDS_TO_FINISH = 20.0
"""The time that Ray gets to start or end after an interruption, and a cluster to answer."""

Task = TypeVar("Task")
Answer = TypeVar("Answer")


@dataclass(frozen=True)
class RayEngine:
    """Workers of a Ray cluster; results are those of one process, byte for byte.

    Args:
        workers: workers at once; those for which the cluster has no room yet wait for it.
        cpus_per_worker: CPU cores that a worker claims; also its number of threads, unless
            ``OMP_NUM_THREADS`` says otherwise.
        gpus_per_worker: GPUs that a worker claims; it sees no others. May be a fraction.
        tries: starts of a shard or a run at most, if its worker is lost each time.
        address: a running cluster: ``auto`` for this machine's, ``host:port``, or
            ``ray://host:port``; ``None`` takes ``RAY_ADDRESS``, or else starts a cluster on this
            machine for this command alone.
    """

    workers: Processes = 2
    cpus_per_worker: PositiveNumber = 1
    gpus_per_worker: Weight = 0
    tries: Positive = 3
    address: str | None = None

    def __post_init__(self) -> None:
        check_fields(self)

    def run(
        self,
        make_worker: Callable[[], Callable[[Task], Answer]],
        tasks: Sequence[Task],
        title: str,
        unit: str,
    ) -> Generator[tuple[Task, Answer]]:
        """Do tasks in workers, and yield each with its answer as soon as it is there.

        A task whose worker is lost is started again, up to ``tries`` times. An error of the task
        itself is raised: it would be the same on any machine.

        Args:
            make_worker: called once in each worker; returns what does a task there. Ray sends
                it there, so it may hold nothing of this process, such as an open file.
            unit: the plural noun of the tasks, such as "shards".

        Raises:
            UserError: if Ray is missing, no cluster answers, or a task lost all its workers.
        """
        with self._connect() as ray, Progress(title, len(tasks), unit) as progress:
            workers = self._start(ray, make_worker, min(self.workers, len(tasks)))
            waiting, lost = list(range(len(tasks)))[::-1], Counter[int]()
            # A worker gets a task only once the cluster has placed it.
            idle = {worker.__ray_ready__.remote(): worker for worker in workers}
            busy: dict[Any, tuple[Any, int]] = {}
            try:
                while waiting or busy:
                    [ready], _ = ray.wait([*busy, *(idle if waiting else ())], num_returns=1)
                    worker, number = busy.pop(ready) if ready in busy else (idle.pop(ready), None)
                    try:
                        answer = ray.get(ready)
                    except ray.exceptions.RayTaskError as error:
                        raise error.cause from None
                    except ray.exceptions.RayError as error:
                        if number is None and isinstance(error, ray.exceptions.ActorDiedError):
                            raise UserError(f"a worker cannot start: {error}") from error
                        if number is not None:
                            lost[number] += 1
                            self._report_loss(_first_line(error), lost[number], unit)
                            waiting.append(number)
                        time.sleep(SECONDS_TO_RESTART)
                        idle[worker.__ray_ready__.remote()] = worker
                        continue
                    if number is not None:
                        progress.advance()
                        yield tasks[number], answer
                    if waiting:
                        number = waiting.pop()
                        busy[worker.work.remote(tasks[number])] = worker, number
            finally:
                time.sleep(SECONDS_TO_PRINT)
                for worker in workers:
                    ray.kill(worker)

    def _report_loss(self, reason: str, times: int, unit: str) -> None:
        if times == self.tries:
            raise UserError(
                f"one of the {unit} lost its worker {times} times, the last time so: {reason}. "
                "What is finished is kept, and the same command goes on from there"
            )
        say(f"a worker was lost: {reason}. Its work is started again")

    def _start(self, ray: Any, make_worker: Callable[[], Any], count: int) -> list[Any]:
        """Start workers in this command's folder and environment."""
        resources = ray.cluster_resources()
        for setting, claim, kind in (
            ("cpus_per_worker", self.cpus_per_worker, "CPU"),
            ("gpus_per_worker", self.gpus_per_worker, "GPU"),
        ):
            available = resources.get(kind, 0)
            if claim > available:
                say(
                    f"engine.{setting}={claim:g}, and the cluster has {available:g} {kind}s now: "
                    "workers wait for more"
                )
        environment = {
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            "OMP_NUM_THREADS": os.environ.get(
                "OMP_NUM_THREADS", str(max(1, int(self.cpus_per_worker)))
            ),
            "TERM": "dumb",  # lines of progress, no bars
            # A worker without a claim on a GPU sees those that this command sees.
            "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
        }
        runtime_env: dict[str, Any] = {"env_vars": environment}
        hosts = {node["NodeManagerHostname"] for node in ray.nodes() if node["Alive"]}
        if hosts == {socket.gethostname()}:
            # Ray gives the path of Python to a shell as it is, also one with spaces.
            runtime_env["py_executable"] = shlex.quote(sys.executable)
        start = ray.remote(_Worker).options(
            num_cpus=self.cpus_per_worker, num_gpus=self.gpus_per_worker, max_restarts=-1,
            runtime_env=runtime_env,
        )  # fmt: skip
        return [start.remote(make_worker, os.getcwd()) for _ in range(count)]

    @contextmanager
    def _connect(self) -> Iterator[Any]:
        """Connect to Ray unless this process is connected, and disconnect at the end."""
        for name in ("RAY_USAGE_STATS_ENABLED", "RAY_DEDUP_LOGS", "RAY_COLOR_PREFIX"):
            os.environ.setdefault(name, "0")  # runs whose lines differ in a number are no repeats
        try:
            import ray
        except ModuleNotFoundError as error:
            raise UserError(
                "engine=ray needs Ray: pip install 'cfaug[ray]', or leave engine=ray out"
            ) from error
        if ray.is_initialized():
            yield ray
            return
        thread = _SignalFreeThread()
        address = self.address or os.environ.get("RAY_ADDRESS")
        try:
            try:
                # Nothing may listen at ``host:port``, and Ray itself would ask for 14 minutes.
                named = address or ""
                parts = urlsplit(named if "://" in named else f"ray://{named}")
                if parts.scheme == "ray" and parts.port is not None:
                    place = (parts.hostname or "", parts.port)
                    socket.create_connection(place, SECONDS_TO_FINISH).close()
                thread.call(
                    partial(ray.init, self.address, include_dashboard=False, logging_level="ERROR")
                )
            except Exception as error:  # a bare one of Ray's if its processes start too slowly
                if address is None:
                    raise UserError(
                        f"Ray did not start on this machine ({_first_line(error)}): if other work "
                        "fills it, wait, or run without engine=ray"
                    ) from error
                setting = "engine.address" if self.address else "RAY_ADDRESS"
                raise UserError(
                    f"{setting}={address}: no Ray cluster answers there "
                    f"({_first_line(error)}); ray start --head starts one on this machine, and one "
                    "that asks for a token needs RAY_AUTH_MODE=token"
                ) from error
            yield ray
        finally:
            if not thread.hangs:
                thread.call(ray.shutdown)
            thread.end()


class _SignalFreeThread:
    """The thread of ``ray.init`` and ``ray.shutdown``, where no signal interrupts them.

    Interrupted, they may wait forever. It is one thread for both, because the processes that
    ``ray.init`` starts end with its thread.

    Attributes:
        hangs: whether a call was left, unfinished, after an interruption.
    """

    def __init__(self) -> None:
        self.hangs = False
        self._calls: SimpleQueue[tuple[Future[None], Callable[[], object]] | None] = SimpleQueue()
        threading.Thread(target=self._work, daemon=True).start()

    def _work(self) -> None:
        for finished, function in iter(self._calls.get, None):
            try:
                function()
            except BaseException as error:
                finished.set_exception(error)
            else:
                finished.set_result(None)

    def call(self, function: Callable[[], object]) -> None:
        """Call a function and wait for its end, in the main thread with this process's handlers.

        Raises:
            KeyboardInterrupt: once the function has returned, if a signal requested it meanwhile;
                after ``SECONDS_TO_FINISH`` in any case.
        """
        finished = Future[None]()
        self._calls.put((finished, function))
        if threading.current_thread() is not threading.main_thread():
            finished.result()
            return
        handlers = {name: signal.getsignal(name) for name in (signal.SIGINT, *ENDINGS)}
        interrupted: float | None = None
        while interrupted is None or time.monotonic() < interrupted + SECONDS_TO_FINISH:
            try:
                wait([finished], timeout=0.005)  # meanwhile a signal may end this process
                for name, handler in handlers.items():
                    signal.signal(name, handler)  # Ray's C++ sets some that end this process
                if finished.done():
                    break
            except KeyboardInterrupt:
                interrupted = interrupted or time.monotonic()
        if interrupted is not None:
            self.hangs = not finished.done()
            raise KeyboardInterrupt
        finished.result()

    def end(self) -> None:
        self._calls.put(None)


class _Worker:
    """A process of the cluster; its first task prepares it."""

    def __init__(self, make_worker: Callable[[], Callable[[Any], Any]], folder: str) -> None:
        if not Path(folder).is_dir():
            raise UserError(
                f"{folder} is not on the machine of this worker: all machines need the same "
                "folders, as on a shared file system"
            )
        os.chdir(folder)
        self._make_worker = make_worker

    @cached_property
    def _work(self) -> Callable[[Any], Any]:
        return self._make_worker()

    def work(self, task: Any) -> Any:
        """Return the answer to a task."""
        return self._work(task)


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
