"""Progress of long work on stderr: a bar on a terminal, one line a minute in a log file."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Self, TypeVar

from cfaug.core.errors import say, visible

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

QUIET_SECONDS = 2.0
"""Seconds before a bar appears on a terminal."""

LINE_SECONDS = 60.0
"""Seconds between lines in a log file, and before the first."""

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
        self._shown = shown
        self._bar: Bar | None = None
        self._began = self._told = time.monotonic()
        self._printed: int | None = None

    def __enter__(self) -> Self:
        self._began = self._told = time.monotonic()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.stop()
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
        elif not on_terminal():
            if now - self._told >= LINE_SECONDS:
                self.print_line()
        elif now - self._began > QUIET_SECONDS:
            from rich import progress
            from rich.console import Console

            # Few refreshes: the bar's thread shares the processor with the work.
            bar = progress.Progress(
                progress.TextColumn("{task.description}", markup=False), progress.BarColumn(),
                progress.TextColumn("{task.fields[status]}", markup=False),
                console=Console(stderr=True), refresh_per_second=2, transient=True,
            )  # fmt: skip
            bar.add_task(self.what, total=self.total, completed=self.done, status=self.status())
            bar.start()
            self._bar = bar

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
