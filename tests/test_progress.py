"""How far long work is: a bar on a terminal, a line a minute elsewhere, nothing for quick work."""

from __future__ import annotations

import io
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfaug.core import progress
from cfaug.core.progress import MIB, Progress, watch


class Clock:
    """Time that passes when it is told to."""

    def __init__(self, monkeypatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(progress.time, "monotonic", lambda: self.now)


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


def slowly(clock, count, seconds):
    for number in range(count):
        yield number
        clock.now += seconds


def test_a_log_gets_a_line_a_minute_with_rate_and_time_left(clock, capsys):
    assert list(watch(slowly(clock, 30, 10.0), "embedding", 30, "images")) == list(range(30))
    lines = capsys.readouterr().err.splitlines()
    # 290 s of work: at 60, 120, 180 and 240 s.
    assert len(lines) == 4
    assert lines[0] == "embedding: 7/30 images, 0.1 images/s, 0:03:17 left"


def test_work_under_a_minute_leaves_no_line(clock, capsys):
    assert len(list(watch(slowly(clock, 5, 11.0), "embedding", 5, "images"))) == 5
    assert capsys.readouterr().err == ""


def test_what_an_earlier_process_did_says_nothing_of_the_speed(clock):
    with Progress("training", 100, "steps") as shown:
        shown.skip(50)
        clock.now += 10
        shown.advance(10, "loss 0.412")
        assert shown.told() == "60/100 steps, 1.0 steps/s, 0:00:40 left, loss 0.412"


def test_bytes_are_told_in_mib_and_an_unknown_total_is_left_out(clock):
    with Progress("indexing", None, "bytes") as shown:
        clock.now += 2
        shown.advance(3 * MIB)
        assert shown.told() == "3.0 MiB, 1.5 MiB/s"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_a_bar_after_a_moment_and_loses_it_at_the_end(clock, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with Progress("embedding", 10, "images") as shown:
        shown.advance()
        assert shown._bar is None
        clock.now += 3
        shown.advance()
        assert shown._bar is not None
        shown.advance(3)
    assert shown._bar is None
    assert "embedding" in terminal.getvalue()
    assert "5/10 images" in terminal.getvalue()


def test_a_terminal_that_cannot_draw_gets_lines(clock, monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    list(watch(slowly(clock, 2, 100.0), "embedding", 2, "images"))
    assert terminal.getvalue().startswith("embedding: ")


@given(st.lists(st.integers(0, 50)), st.integers(0, 100))
def test_counts_add_up(units, known):
    shown = Progress("work", None, "items", shown=False)
    shown.skip(known)
    for count in units:
        shown.advance(count)
    assert (shown.done, shown.known) == (sum(units) + known, known)
