"""Ray in place of this machine's processes: the shards of a generation, the runs of a sweep.

A committed shard and a run's checkpoint are all that a lost machine leaves behind, and all that is
needed to go on: the driver only asks for the missing ones again. Every worker is a process of its
own that keeps its models between shards. ``docs/scale.md`` has the commands.
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from cfaug.core.errors import UserError, say
from cfaug.core.processes import keep_handlers
from cfaug.core.progress import Progress
from cfaug.core.validation import Positive, PositiveNumber, Processes, Weight, check_fields

SECONDS_TO_RESTART = 1.0
"""The pause after a worker was lost, before it is asked whether it is there again."""

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
            title: the work in the progress bar, such as "drawing".
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
        gpus = ray.cluster_resources().get("GPU", 0)
        if self.gpus_per_worker > gpus:
            say(
                f"engine.gpus_per_worker={self.gpus_per_worker:g}, and the cluster has {gpus:g} "
                "GPUs now: workers wait for more"
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
        start = ray.remote(_Worker).options(
            num_cpus=self.cpus_per_worker, num_gpus=self.gpus_per_worker, max_restarts=-1,
            runtime_env={"env_vars": environment},
        )  # fmt: skip
        return [start.remote(make_worker, os.getcwd()) for _ in range(count)]

    @contextmanager
    def _connect(self) -> Iterator[Any]:
        """Connect to Ray unless this process is connected, and disconnect at the end."""
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        try:
            import ray
        except ModuleNotFoundError as error:
            raise UserError(
                "engine=ray needs Ray: pip install 'cfaug[ray]', or leave engine=ray out"
            ) from error
        if ray.is_initialized():
            yield ray
            return
        with keep_handlers():  # Ray's would end this process in the middle of its work
            try:
                ray.init(self.address, include_dashboard=False, logging_level="ERROR")
            except (ConnectionError, ValueError, RuntimeError) as error:
                raise UserError(
                    f"engine.address={self.address}: no Ray cluster answers there "
                    f"({_first_line(error)}); ray start --head starts one on this machine"
                ) from error
        try:
            yield ray
        finally:
            ray.shutdown()


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
    return (str(error).strip() or type(error).__name__).splitlines()[0]
