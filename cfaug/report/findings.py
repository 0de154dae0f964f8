"""Comparisons of arms, each in one cell, for sentences; corrected over their list."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from cfaug.core.errors import UserError
from cfaug.report.comparable import answers, measures, obstacle, values
from cfaug.report.item_comparisons import ItemSource, compare_pair
from cfaug.report.item_tests import ItemTest
from cfaug.report.numbers import PERCENT, Measure
from cfaug.report.results import Cell, Result
from cfaug.report.tables import ALPHA
from cfaug.stats.effects import ArmComparison, compare
from cfaug.stats.significance import holm


@dataclass(frozen=True)
class Finding:
    """One comparison in one cell; ``p`` and ``p_two_sided`` are corrected (Holm) over its list.

    ``obstacle`` says why the two were not compared although both have results; ``found`` is then
    ``None``, as it is if one has no results. ``test`` is the test over items that gave p if there
    is only one seed.
    """

    arm: str
    other: str
    cell: Cell
    found: ArmComparison | None
    p: float
    paired: bool
    p_two_sided: float = math.nan
    obstacle: str = ""
    measure: Measure = PERCENT
    test: ItemTest | None = None

    @property
    def amount(self) -> str:
        """The difference with its sign and unit."""
        return "" if self.found is None else self.measure.amount(self.found.diff)

    @property
    def gain(self) -> float:
        """The improvement by the arm, in the metric's own direction; ``nan`` if not compared."""
        return math.nan if self.found is None else self.measure.gain(self.found.diff)

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of arm minus other, of the test that gave p; ``nan`` without one."""
        if self.test is not None:
            return self.test.interval(self.measure)
        return (self.found.t_low, self.found.t_high) if self.found else (math.nan, math.nan)

    @property
    def shown(self) -> bool:
        """Whether the difference is significant in the direction tested."""
        return self.p <= ALPHA

    @property
    def lost(self) -> bool:
        """Whether the arm is significantly worse, which only a two-sided test can show."""
        return self.gain < 0 and self.p_two_sided <= ALPHA


def findings(
    rows: Sequence[Result],
    pairs: Sequence[tuple[str, str, Cell]],
    items: ItemSource | None = None,
    *,
    two_sided: bool,
) -> list[Finding]:
    """Compare arms, by seed where they share their seeds, else by Welch's test.

    If an arm has only one seed, the two are compared over items, if both have them. The one-sided
    test asks whether the first of a pair is better. ``found`` is ``None`` and p is ``nan`` where an
    arm has no results, or where the two cannot be compared.

    Args:
        rows: results of all arms.
        pairs: arm, arm it is compared with, and cell of each comparison.
        items: reader of the arms' items; ``None`` for no tests over items.
        two_sided: whether p tests for a difference in either direction.
    """
    made, known, printed = [], answers(rows), measures(rows)
    for arm, other, cell in pairs:
        ours, theirs = known.get((arm, cell), {}), known.get((other, cell), {})
        why = obstacle(ours, theirs)
        fit = ours and theirs and not why
        measure = printed.get(cell, PERCENT)
        found = compare(values(ours), values(theirs), better=measure.better) if fit else None
        paired = ours.keys() == theirs.keys()
        test = None
        if items is not None and found is not None and min(len(ours), len(theirs)) < 2:
            test = _over_items((arm, other), next(iter(ours.values())), measure, items)
        one, both = (test.p, test.p_two_sided) if test else _p(found, paired)
        p = both if two_sided else one
        made.append(Finding(arm, other, cell, found, p, paired, both, why, measure, test))
    corrected = holm([finding.p for finding in made])
    both_sides = holm([finding.p_two_sided for finding in made])
    return [
        replace(f, p=float(p), p_two_sided=float(q))
        for f, p, q in zip(made, corrected, both_sides, strict=True)
    ]


def _over_items(
    arms: tuple[str, str], about: Result, measure: Measure, items: ItemSource
) -> ItemTest | None:
    try:
        return compare_pair(*arms, about, measure, items)
    except UserError:  # the table's notes say why
        return None


def _p(found: ArmComparison | None, paired: bool) -> tuple[float, float]:
    """Return p of the one-sided and of the two-sided test."""
    if found is None:
        return math.nan, math.nan
    if paired:
        return found.p_paired, found.p_paired_two_sided
    return found.p_welch, found.p_welch_two_sided
