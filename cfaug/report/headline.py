"""The topic of a report: one number, the arms under test, and the expected order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cfaug.report.results import Cell, Result, cells_of


@dataclass(frozen=True)
class Headline:
    """The topic of a report: one number, the arms under test, and those expected below them.

    Attributes:
        benchmark: the benchmark of the verdict.
        metric: the metric of the verdict.
        order: the other arms, from worst to best expected.
        tested: the arms under test, the main one first; each was expected above all of ``order``.
        in_distribution: the benchmark that shows the cost of a gain; ``None`` if the verdict is not
            about a distribution shift.
        paired: the arms under test, and those that have the same pairs in one batch.
        controls: arms with the same number of examples but without the pairing.
        labels: longer names of arms, for people.
    """

    benchmark: str
    metric: str
    order: tuple[str, ...]
    tested: tuple[str, ...]
    in_distribution: str | None = None
    paired: tuple[str, ...] = ()
    controls: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def cell(self) -> Cell:
        """The benchmark and metric of the verdict."""
        return self.benchmark, self.metric

    def cost_cell(self, rows: Sequence[Result]) -> Cell | None:
        """Return the in-distribution counterpart of the headline cell, if there are results."""
        if self.in_distribution is None:
            return None
        cell = (self.in_distribution, self.metric)
        return cell if cell in cells_of(rows) else None

    def label(self, arm: str) -> str:
        """Return the name of an arm for people."""
        return self.labels.get(arm, arm)

    @property
    def expectation(self) -> str:
        """The expected order in words, from worst to best."""
        best = join_words([self.label(arm) for arm in self.tested])
        return " < ".join([*map(self.label, self.order), best])


def join_words(parts: Sequence[str]) -> str:
    """Join words into a list for a sentence: ``a, b and c``."""
    return ", ".join(parts[:-1]) + (" and " if len(parts) > 1 else "") + parts[-1]
