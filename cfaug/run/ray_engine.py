"""Ray in place of this machine's processes: the shards of a generation, the runs of a sweep.

A committed shard and a run's checkpoint are all that a lost machine leaves behind, and all that is
needed to go on: the driver only asks for the missing ones again. Every worker is a process of its
own that keeps its models between shards. ``docs/scale.md`` has the commands.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from cfaug.core.errors import UserError, say
from cfaug.core.processes import keep_handlers
from cfaug.core.progress import Progress
from cfaug.core.validation import Positive, PositiveNumber, Processes, Weight, check_fields

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
        tries: how often a shard or a run is started, if its worker is lost each time.
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
        self, make_worker: Callable[[], Callable[[Task], Answer]], tasks: Sequence[Task],
        what: str, unit: str,
    ) -> Generator[tuple[Task, Answer]]:  # fmt: skip
        """Do tasks in workers, and yield each with its answer as soon as it is there.

        A task whose worker is lost is started again, up to ``tries`` times. An error of the task
        itself is raised, as it would be on any machine.

        Args:
            make_worker: called once in each worker; returns what does a task there. It has to be
                picklable: a module's function, or a ``partial`` of one.
            what: the work in the progress bar, such as "drawing".
            unit: the plural noun of the tasks, such as "shards".

        Raises:
            UserError: if Ray is missing or no cluster answers, or a task lost all its workers.
        """
        with self._cluster() as ray, Progress(what, len(tasks), unit) as progress:
            start = ray.remote(max_restarts=-1)(_Worker).options(
                num_cpus=self.cpus_per_worker, num_gpus=self.gpus_per_worker
            )
            workers = [
                start.remote(make_worker, os.getcwd()) for _ in range(min(self.workers, len(tasks)))
            ]
            waiting, lost = list(enumerate(tasks))[::-1], Counter[int]()
            # A worker is asked for a task only once the cluster has placed it.
            idle = {worker.__ray_ready__.remote(): worker for worker in workers}
            busy: dict[Any, tuple[Any, int]] = {}
            while waiting or busy:
                [ready], _ = ray.wait([*busy, *(idle if waiting else ())], num_returns=1)
                if ready in idle:
                    worker = idle.pop(ready)
                else:
                    worker, number = busy.pop(ready)
                    try:
                        answer = ray.get(ready)
                    except ray.exceptions.RayTaskError as error:
                        raise error.cause from error
                    except ray.exceptions.RayError as error:
                        lost[number] += 1
                        if lost[number] == self.tries:
                            raise UserError(
                                f"{unit}: one lost its worker {self.tries} times, the last time "
                                f"as {_first_line(error)}. What is finished is kept: the same "
                                "command goes on from there"
                            ) from error
                        say(f"a worker was lost ({_first_line(error)}): its work is started again")
                        waiting.append((number, tasks[number]))
                    else:
                        progress.advance()
                        yield tasks[number], answer
                if not waiting:
                    continue
                number, task = waiting.pop()
                busy[worker.work.remote(task)] = worker, number

    @contextmanager
    def _cluster(self) -> Iterator[Any]:
        """Connect to Ray, and disconnect at the end; that ends the workers."""
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        try:
            import ray
        except ModuleNotFoundError as error:
            raise UserError(
                "engine=ray needs Ray: pip install 'cfaug[ray]', or leave engine=ray out"
            ) from error
        threads = os.environ.get("OMP_NUM_THREADS", str(max(1, int(self.cpus_per_worker))))
        environment = {
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            "OMP_NUM_THREADS": threads,
            "TERM": "dumb",  # workers print lines of progress, no bars
        }
        started = not ray.is_initialized()
        with keep_handlers():
            if started:
                try:
                    ray.init(
                        address=self.address, runtime_env={"env_vars": environment},
                        include_dashboard=False, log_to_driver=True, logging_level="ERROR",
                    )  # fmt: skip
                except (ConnectionError, ValueError, RuntimeError) as error:
                    raise UserError(
                        f"engine.address={self.address}: no Ray cluster answers there "
                        f"({_first_line(error)}); ray start --head starts one on this machine"
                    ) from error
        try:
            if self.gpus_per_worker > ray.cluster_resources().get("GPU", 0):
                say(
                    f"engine.gpus_per_worker={self.gpus_per_worker}, and the cluster has "
                    f"{ray.cluster_resources().get('GPU', 0):g} GPUs now: workers wait for more"
                )
            yield ray
        finally:
            if started:
                ray.shutdown()


class _Worker:
    """A process of the cluster; it makes what does the tasks at its first task."""

    def __init__(self, make_worker: Callable[[], Callable[[Any], Any]], folder: str) -> None:
        if not Path(folder).is_dir():
            raise UserError(
                f"{folder} is not on the machine of this worker: all machines need the same "
                "folders, as on a shared file system"
            )
        os.chdir(folder)
        self._make, self._work = make_worker, None

    def work(self, task: Any) -> Any:
        if self._work is None:
            self._work = self._make()
        return self._work(task)


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def always(work: Callable[[Task], Answer]) -> Callable[[], Callable[[Task], Answer]]:
    """Return a ``make_worker`` for a function that needs no preparation."""
    return partial(_same, work)


def _same(work: Callable[[Task], Answer]) -> Callable[[Task], Answer]:
    return work
