"""Progress of long work on stderr: a bar on a terminal, lines in a log file."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Self, TypeVar

from cfaug.core.errors import Verbosity, say, verbosity, visible

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import ProgressColumn

QUIET_SECONDS = 2.0
"""Seconds before a bar appears on a terminal."""

LINE_SECONDS = 60.0
"""Most seconds between lines in a log file; each of the first ones takes twice as long."""

SILENT_SECONDS = 4.0
"""Seconds without a word while something is prepared, of which nothing can be counted."""

REFRESH_SECONDS = 0.5
"""Seconds between two times that a terminal shows for it."""

MIB = 2**20

Item = TypeVar("Item")


class Progress:
    """A counter of finished units that shows the count, the rate and the time left.

    Args:
        title: the work, such as "indexing photos".
        total: the number of units to do; ``None`` if unknown.
        unit: the name of the units in the plural, such as "images"; "bytes" are shown in MiB.
    """

    def __init__(self, title: str, total: int | None, unit: str, *, shown: bool = True) -> None:
        self.what, self.total, self.unit = visible(title), total, unit
        self.done = self.known = 0
        self._said = ""
        self._shown = shown and verbosity() > Verbosity.QUIET
        self._bar: Bar | None = None
        self._began = self._told = time.monotonic()
        self._pause = SILENT_SECONDS
        self._printed: int | None = None

    def __enter__(self) -> Self:
        self._began = self._told = time.monotonic()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            _hide(self._bar)
            self._bar = None

    def skip(self, units: int) -> None:
        """Count units that an earlier process finished; they do not enter the rate."""
        self.known += units
        self.advance(units)

    def advance(self, units: int = 1, note: str = "") -> None:
        """Count finished units.

        Args:
            note: a text to show after the rate, such as "loss 0.412"; empty keeps the last text.
        """
        self.done += units
        self._said = note or self._said
        if not self._shown:
            return
        now = time.monotonic()
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=self.done, status=self.status())
            _show(self._bar)
        elif not on_terminal():
            if self.done != self.total and now - self._told >= min(self._pause, LINE_SECONDS):
                self._pause *= 2
                self.print_line()
        elif now - self._began > QUIET_SECONDS:
            from rich import progress

            bar = _make_bar(progress.BarColumn())
            bar.add_task(self.what, total=self.total, completed=self.done, status=self.status())
            for other in _drawn[:]:  # a count says more than a spinner
                _hide(other)
            self._bar = bar
            _show(bar)

    def print_line(self) -> None:
        """Print a line for a log file, unless it equals the last one."""
        if self._printed == self.done:
            return
        self._told, self._printed = time.monotonic(), self.done
        say(f"{self.what}: {self.status()}")

    def status(self) -> str:
        """Return the count, the rate, and the time left."""
        new, elapsed = self.done - self.known, time.monotonic() - self._began
        of = "" if self.total is None else f"/{self._amount(self.total)}"
        parts = [f"{self._amount(self.done)}{of} {self._unit}"]
        if new > 0 and elapsed > 0:
            rate = new / elapsed
            parts.append(f"{self._amount(rate)} {self._unit}/s")
            if self.total is not None:
                parts.append(f"{clock((self.total - self.done) / rate)} left")
        return ", ".join([*parts, *filter(None, [self._said])])

    @property
    def _unit(self) -> str:
        return "MiB" if self.unit == "bytes" else self.unit

    def _amount(self, number: float) -> str:
        if self.unit == "bytes":
            return f"{number / MIB:.1f}"
        if isinstance(number, int):
            return f"{number}"
        return f"{number:.1f}" if number >= 0.1 else f"{number:.2g}"


_DRAWING = threading.RLock()
_drawn: list[Bar] = []
"""The bar on the terminal, where only one is drawn at a time: each replaces stderr meanwhile."""


def _show(bar: Bar) -> None:
    """Draw a bar, unless there is one."""
    with _DRAWING:
        if not _drawn:
            _drawn.append(bar)
            bar.start()


def _hide(bar: Bar) -> None:
    """Remove a bar from the terminal, if it is there."""
    with _DRAWING:
        if bar in _drawn:
            _drawn.remove(bar)
            bar.stop()


def _make_bar(*columns: ProgressColumn) -> Bar:
    """Return a bar on stderr, with columns between its description and its status."""
    from rich import progress
    from rich.console import Console

    # Few refreshes: the bar's thread shares the processor with the work.
    return progress.Progress(
        progress.TextColumn("{task.description}", markup=False), *columns,
        progress.TextColumn("{task.fields[status]}", markup=False),
        console=Console(stderr=True, force_jupyter=False), refresh_per_second=2, transient=True,
    )  # fmt: skip


@contextmanager
def preparing(title: str) -> Iterator[None]:
    """Say what is prepared, with the time it has taken, if it takes more than some seconds.

    A terminal shows one line that counts and goes away, a log file a line every ``SILENT_SECONDS``.
    A thread prints: a child that is forked meanwhile should not.

    Args:
        title: the work, such as "loading the model clip-vit-base-patch32".
    """
    if verbosity() < Verbosity.USUAL or os.environ.get("RANK", "0") != "0":
        yield
        return
    began, done, title = time.monotonic(), threading.Event(), visible(title)

    def print_lines() -> None:
        while not done.wait(SILENT_SECONDS):
            say(f"{title}: {clock(time.monotonic() - began)}")

    def draw() -> None:
        if done.wait(QUIET_SECONDS):
            return
        from rich import progress

        spinner = _make_bar(progress.SpinnerColumn())
        task = spinner.add_task(title, total=None, status="")
        while not done.wait(REFRESH_SECONDS):
            spinner.update(task, status=clock(time.monotonic() - began))
            _show(spinner)
        _hide(spinner)

    thread = threading.Thread(target=draw if on_terminal() else print_lines, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def watch(
    items: Iterable[Item],
    title: str,
    total: int | None,
    unit: str,
    size: Callable[[Item], int] = lambda item: 1,
) -> Iterator[Item]:
    """Yield items, showing how many units are done.

    Args:
        total: the number of units in all items together; ``None`` if unknown.
        unit: the name of the units in the plural.
        size: a function that returns an item's number of units.
    """
    with Progress(title, total, unit) as progress:
        for item in items:
            yield item
            progress.advance(size(item))


def clock(seconds: float) -> str:
    """Return a time in hours, minutes and seconds.

    >>> clock(3725.4)
    '1:02:05'
    """
    whole = round(max(0.0, seconds))
    return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"


def on_terminal() -> bool:
    """Say whether stderr is a terminal on which a bar can be drawn."""
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
