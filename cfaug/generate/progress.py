"""Progress of a stage, with the share of accepted items."""

from __future__ import annotations

from cfaug.progress import Progress, on_terminal


class ProgressReporter(Progress):
    """Counts the finished units of a stage, and the accepted ones among them.

    Args:
        what: the stage.
        unit: what is counted: captions or candidates.
        accepted: the word for the good ones: edited or accepted.
        total: number of units that this process has to do.
    """

    def __init__(self, what: str, unit: str, accepted: str, total: int) -> None:
        super().__init__(what, total, unit)
        self._accepted, self._good = accepted, 0

    def close(self) -> None:
        """Remove the bar; a log gets the final count, however quick the stage was."""
        super().close()
        if not on_terminal() and self.done > self.known:
            self.print_line()

    def count(self, units: int, good: int) -> None:
        """Count units that are done, and how many of them are good."""
        self._good += good
        new = self.done + units - self.known
        self.advance(units, f"{self._good / new:.0%} {self._accepted}" if new else "")
