"""Deadlines: a request with its retries ends in time, whatever the other side does."""

from __future__ import annotations

import threading
import time

import pytest

from cfaug.core import deadlines, stores
from cfaug.core.deadlines import PATIENCE, Deadline, OverdueError
from cfaug.core.errors import UserError


@pytest.fixture
def silence():
    """A function that does not return before the test ends."""
    ended = threading.Event()
    yield lambda: ended.wait(60)
    ended.set()


def test_a_call_returns_or_raises_what_the_function_does():
    deadline = Deadline(60)
    assert deadline.call(lambda: 7) == 7
    with pytest.raises(KeyError, match="x"):
        deadline.call(lambda: {}["x"])
    with pytest.raises(KeyboardInterrupt):
        deadline.call(lambda: (_ for _ in ()).throw(KeyboardInterrupt))


def test_several_calls_share_one_deadline(silence):
    deadline = Deadline(0.1)
    time.sleep(0.06)
    began = time.monotonic()
    with pytest.raises(OverdueError, match=r"within 0.1 seconds; CFAUG_REMOTE_SECONDS"):
        deadline.call(silence)
    assert time.monotonic() - began < 0.09
    assert deadline.left == 0
    deadline.extend(10 * deadlines.SLOWEST)
    assert 9 < deadline.left < 10


@pytest.mark.parametrize("given", ["0", "-1", "nan", "soon", "inf", "1e300"])
def test_a_patience_that_is_no_time_is_refused(given, monkeypatch):
    monkeypatch.setenv(PATIENCE, given)
    with pytest.raises(UserError, match=f"{PATIENCE}={given} should be a number of seconds"):
        Deadline()


def test_the_tries_of_a_store_share_one_deadline(silence, monkeypatch):
    monkeypatch.setenv(PATIENCE, "0.1")
    monkeypatch.setattr(stores, "PAUSE", 0.01)
    tries = []

    def fail_then_hang():
        tries.append(None)
        if len(tries) > 2:
            silence()
        raise ConnectionError("reset")

    with pytest.raises(UserError, match=r"x failed: no whole answer within 0.1 .*\(3 tries\)"):
        stores.ask("x", fail_then_hang)
