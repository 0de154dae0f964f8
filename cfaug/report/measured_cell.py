"""One cell of a table of arms: its values, their tests against the baseline's, its printed form."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from cfaug.report.document import DAGGER, Entry
from cfaug.report.numbers import DASH, Measure
from cfaug.report.tables import ALPHA
from cfaug.stats.significance import Alternative, paired_t, summarise, welch

Values = dict[int, float]
"""Values of one arm, benchmark and metric, by seed."""


@dataclass(frozen=True)
class MeasuredCell:
    """One cell of our results: its values, and the results of the two tests."""

    values: Values
    p_independent: float = math.nan
    p_paired: float = math.nan
    p_holm: float = math.nan


def compare_with_baseline(own: Values, base: Values | None, measure: Measure) -> MeasuredCell:
    """Test values against the baseline's in the direction of their metric, if both exist.

    The paired test needs equal seeds.

    Args:
        own: values of the arm.
        base: values of its baseline; ``None`` for no test.
        measure: unit and direction of the metric.
    """
    if not own or not base:
        return MeasuredCell(own)
    improves: Alternative = "greater" if measure.better == "higher" else "less"
    same = own.keys() == base.keys()
    return MeasuredCell(
        own,
        welch(summarise(list(own.values())), summarise(list(base.values())), improves),
        paired_t([own[seed] - base[seed] for seed in sorted(own)], improves) if same else math.nan,
    )


def print_cell(cell: MeasuredCell, best: str, measure: Measure) -> Entry:
    """Return the printed form of a cell: the mean, its spread and the marks of the tests.

    Args:
        cell: the cell to print.
        best: best mean of its column, in printed form.
        measure: unit and direction of the metric.
    """
    if not cell.values:
        return Entry(DASH)
    found = summarise(list(cell.values.values()))
    numbers = {
        "value": found.mean, "sd": found.sd, "n": found.n, "p_independent": cell.p_independent,
        "p_paired": cell.p_paired, "p_holm": cell.p_holm,
    }  # fmt: skip
    return Entry(
        text=measure.text(found.mean),
        sub=measure.spread(found.sd) if found.has_spread else "",
        bold=measure.text(found.mean) == best,
        underlined=cell.p_independent <= ALPHA,
        above=DAGGER if cell.p_holm <= ALPHA else (),
        numbers={name: value for name, value in numbers.items() if not math.isnan(value)},
    )


def label_text(key: str, value: Any) -> str:
    """Return a row's label as printed: counts with a comma, shares with a percent sign.

    >>> label_text("train", 13928), label_text("cf_percent", 50), label_text("model", None)
    ('13,928', '50%', '–')
    """
    if value is None:
        return DASH
    if key == "cf_percent":
        return f"{value:g}%"
    return f"{value:,}" if isinstance(value, int) else str(value)
