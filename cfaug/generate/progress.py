"""Progress of a stage, with the share of accepted items."""

from __future__ import annotations

from cfaug.core.progress import Progress, on_terminal


class ProgressReporter(Progress):
    """Counts the finished units of a stage, and the accepted ones among them.

    Args:
        what: the name of the stage.
        unit: the plural noun of the units: captions or candidates.
        accepted: the word for the good units: edited or accepted.
        total: the number of units that this process has to do.
    """

    def __init__(self, what: str, unit: str, accepted: str, total: int) -> None:
        super().__init__(what, total, unit)
        self._accepted, self._good = accepted, 0

    def close(self) -> None:
        """Remove the bar; a log gets the final count, even after a quick stage."""
        super().close()
        if not on_terminal() and self.done > self.known:
            self.print_line()

    def count(self, units: int, good: int) -> None:
        """Count finished units, and the good ones among them."""
        self._good += good
        new = self.done + units - self.known
        self.advance(units, f"{self._good / new:.0%} {self._accepted}" if new else "")
