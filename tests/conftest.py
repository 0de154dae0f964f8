"""What every test may ask for."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import HealthCheck, settings

from cfaug.core.errors import say_once
from cfaug.core.processes import use_threads
from tests import scripts, skips
from tests.properties import examples
from tests.shared_fixtures import (  # noqa: F401
    browser,
    encoder,
    matcher,
    opened,
    people_encoder,
    saved_models,
    watched,
)

# Two test processes share two cores: one thread each is faster than two fighting over both, and
# results on CPU, whose last digits depend on the number, are the same on every machine.
use_threads(1)
# A forked process makes torch's thread pool anew, which fails if two of its threads do so at once.
os.register_at_fork(after_in_child=partial(use_threads, 1))
# A shell's "make test &" leaves SIGINT ignored, here and in every child that a test starts.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("WANDB_MODE", "offline")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
# Ray gives its workers the lowest priority but four: beside another test they would stand still.
os.environ.setdefault("RAY_worker_niceness", "0")

# Of a property that does not say how many examples it is tried on. hypothesis would also fail an
# example of 200 ms, or one that takes long to be drawn, as on a busy machine now and then.
settings.register_profile(
    "examples",
    max_examples=examples(settings.default.max_examples),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("examples")


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Search for no garbage while every module is imported, nor later among what they hold.

    What one test leaves to the next is searched rarely: that took a tenth of the processor's time.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        young, middle, _ = gc.get_threshold()
        gc.set_threshold(young, middle, 100)
        gc.enable()


def pytest_collection_modifyitems(items):
    """Begin with what takes longest: no process waits for another's at the end.

    Those are files with slow tests, and of them the ones that run whole commands, at the top.
    """
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: (item.path not in slow, len(item.path.parts)))


def pytest_unconfigure():
    """Give the interpreter what it searches at its end: libraries below torch warn otherwise."""
    gc.unfreeze()


@pytest.fixture(autouse=True)
def one_thread_again():
    """Leave the next test its one thread, and every line to say, whatever this one has done."""
    yield
    use_threads(1)
    say_once.cache_clear()


@pytest.fixture(scope="session")
def script() -> Callable[[str], Callable[[list[str]], int]]:
    """Return a loader of a script's ``main``."""
    return scripts.load


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Let a test fail that skips for a reason which this run does not allow."""
    report = yield
    if report.skipped and not hasattr(report, "wasxfail"):
        said = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        said = said.removeprefix("Skipped: ")
        if not skips.is_allowed(said, os.environ):
            report.outcome = "failed"
            report.longrepr = f"{item.nodeid} was skipped, which {skips.ALLOWED} forbids: {said}"
    return report
