"""Child processes that may be killed: forked from a server that imported much and computed nothing.

A child forked from pytest itself inherits torch's thread pools in whatever state other tests left
them, and now and then finds them broken.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from typing import Any

_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload(["tests.warm"])


def start(work: Callable[..., Any], *args: Any, **kwargs: Any) -> BaseProcess:
    """Run ``work`` (a module's function) in a child that starts with the slow imports done."""
    child = _SERVER.Process(target=work, args=args, kwargs=kwargs)
    child.start()
    return child
