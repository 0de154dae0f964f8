"""Child processes that may be killed: forked from a server that imported much and computed nothing.

A child forked from pytest itself inherits torch's thread pools in whatever state other tests left
them, and now and then finds them broken.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch

from cfaug.core.processes import use_threads

_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload(["tests.warm"])


def start(work: Callable[..., Any], *args: Any, **kwargs: Any) -> BaseProcess:
    """Run ``work`` (a module's function) in a child that starts with the slow imports done."""
    threads = torch.get_num_threads()  # the server has those of the test that started it
    child = _SERVER.Process(target=work_with_threads, args=(threads, work, args, kwargs))
    child.start()
    return child


def work_with_threads(
    threads: int, work: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    use_threads(threads)
    work(*args, **kwargs)


def kill_at_line(log: Path, line: int, work: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
    """Run ``work`` in a child that SIGKILL ends as soon as a run's log has so many lines.

    The child sends the signal itself: a parent that watches the file may find the run finished on a
    machine that is faster, or busier, than the one where the test was written.

    Args:
        log: the path of the run's ``metrics.csv``.
        line: the number of lines, with that of the columns.
        work: a module's function that trains.
        *args: positional arguments of ``work``.
        **kwargs: keyword arguments of ``work``.
    """
    child = start(work_until_line, log, line, work, args, kwargs)
    child.join()
    assert child.exitcode == -signal.SIGKILL


def work_until_line(
    log: Path, line: int, work: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """Run ``work``, and end this process by SIGKILL as ``kill_at_line`` does."""
    from cfaug.train.loggers import AppendingCsvLogger

    write = AppendingCsvLogger.log_metrics

    def write_and_die(logger: AppendingCsvLogger, *row: Any, **named: Any) -> None:
        write(logger, *row, **named)
        if logger.file.resolve() == log.resolve() and log.read_bytes().count(b"\n") >= line:
            os.kill(os.getpid(), signal.SIGKILL)

    AppendingCsvLogger.log_metrics = write_and_die  # type: ignore[method-assign]
    work(*args, **kwargs)
