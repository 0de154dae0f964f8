"""Progress of a stage, and how much of it was accepted."""

from __future__ import annotations

from cfaug.progress import Progress, on_terminal


class ProgressReporter(Progress):
    """Counts what a stage has done, and how many of them are good.

    Args:
        what: the stage.
        unit: what is counted: captions or candidates.
        accepted: what becomes of the good ones: edited or accepted.
        total: of the units this process has to do.
    """

    def __init__(self, what: str, unit: str, accepted: str, total: int) -> None:
        super().__init__(what, total, unit)
        self._accepted, self._good = accepted, 0

    def close(self) -> None:
        """Take the bar down; a log gets the last count, however quick the stage was."""
        super().close()
        if not on_terminal() and self.done > self.known:
            self.print_line()

    def count(self, units: int, good: int) -> None:
        """Count units that are done, and how many of them are good."""
        self._good += good
        new = self.done + units - self.known
        self.advance(units, f"{self._good / new:.0%} {self._accepted}" if new else "")
