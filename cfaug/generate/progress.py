"""How far a stage is, on stderr: a bar on a terminal, now and then a line in a log."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress

LINE_SECONDS = 60.0
"""How often a log gets a line."""


class Watch:
    """Counts what a stage has done, and says how fast, how much was accepted and what is left.

    Args:
        unit: what is counted: captions or candidates.
        accepted: what becomes of the good ones: edited or accepted.
        total: of the units this process has to do.
    """

    def __init__(self, unit: str, accepted: str, total: int) -> None:
        self.unit, self.accepted, self.total = unit, accepted, total
        self._done = self._good = self._known = self._told = 0
        self._began = self._last = time.monotonic()
        self._bar: Progress | None = None

    def __enter__(self) -> Watch:
        if sys.stderr.isatty():
            from rich import progress
            from rich.console import Console

            self._bar = progress.Progress(
                progress.TextColumn("{task.description}"), progress.BarColumn(),
                progress.MofNCompleteColumn(), progress.TextColumn("{task.fields[said]}"),
                console=Console(stderr=True), refresh_per_second=2,
            )  # fmt: skip
            self._bar.add_task(self.unit, total=self.total, said="")
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
        elif self._done > max(self._known, self._told):
            self._line()

    def found(self, units: int) -> None:
        """Count units that an earlier process did."""
        self._known += units
        self.count(units, 0)

    def count(self, units: int, good: int) -> None:
        """Count units that are done, and how many of them are good."""
        self._done += units
        self._good += good
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=self._done, said=self.said())
        elif time.monotonic() - self._last > LINE_SECONDS:
            self._line()

    def said(self) -> str:
        """Return rate, share of the good ones, and time left, of what this process did."""
        done, elapsed = self._done - self._known, time.monotonic() - self._began
        if not done or not elapsed:
            return ""
        left = round((self.total - self._done) * elapsed / done)
        clock = f"{left // 3600}:{left // 60 % 60:02d}:{left % 60:02d}"
        rate, share = done / elapsed, self._good / done
        return f"{rate:.1f} {self.unit}/s, {share:.0%} {self.accepted}, {clock} left"

    def _line(self) -> None:
        self._last, self._told = time.monotonic(), self._done
        print(f"{self._done}/{self.total} {self.unit}, {self.said()}", file=sys.stderr, flush=True)
