"""Numbers as people read them: percent, points, p-values, and values in any other unit."""

from __future__ import annotations

import math
from dataclasses import dataclass

from cfaug.core.types import Better

DASH = "–"
"""Printed where there is no number."""

FRACTION = "fraction"
"""The unit of a share of queries; tables show percent."""


def percent(value: float, digits: int = 2) -> str:
    """Return a fraction as percent without the sign; a dash for ``nan``.

    >>> percent(0.78283), percent(float("nan"))
    ('78.28', '–')
    """
    return DASH if math.isnan(value) else f"{100 * value:.{digits}f}"


def points(value: float, digits: int = 1) -> str:
    """Return a difference of fractions in percentage points with its sign; a dash for ``nan``.

    >>> points(0.0312), points(-0.5, 2)
    ('+3.1', '-50.00')
    """
    return DASH if math.isnan(value) else f"{100 * value:+.{digits}f}"


def p_text(p: float) -> str:
    """Return a p-value to two significant digits; a dash for ``nan``.

    >>> p_text(0.0312), p_text(0.00002), p_text(0.5)
    ('0.031', '2.0e-5', '0.50')
    """
    if math.isnan(p):
        return DASH
    if p < 0.001:
        return f"{p:.1e}".replace("e-0", "e-")
    return f"{p:.3f}" if p < 0.1 else f"{p:.2f}"


@dataclass(frozen=True)
class Measure:
    """The unit and direction of a metric, and so the printed form of its values.

    Fractions are printed as percent, their differences in points; values in any other unit as they
    are, to four significant digits.

    Attributes:
        unit: ``fraction`` or another, as in ``cfaug.core.types.Outcome``.
        better: whether higher or lower values are better.
    """

    unit: str = FRACTION
    better: Better = "higher"

    @property
    def is_fraction(self) -> bool:
        """Whether values are printed as percent."""
        return self.unit == FRACTION

    @property
    def factor(self) -> int:
        """The factor by which a value is multiplied when it is printed or drawn."""
        return 100 if self.is_fraction else 1

    @property
    def sign(self) -> str:
        """The unit after a number: "%", or the unit's name."""
        return "%" if self.is_fraction else self.unit

    def text(self, value: float, digits: int = 2) -> str:
        """Return a value as printed; ``digits`` are the decimals of a percentage.

        >>> Measure().text(0.78283), Measure("nats", "lower").text(1234.567)
        ('78.28', '1235')
        """
        if self.is_fraction or math.isnan(value):
            return percent(value, digits)
        return f"{value:.4g}"

    def spread(self, sd: float) -> str:
        """Return a standard deviation as printed.

        >>> Measure().spread(0.0123), Measure("nats").spread(0.0123)
        ('1.2', '0.012')
        """
        return percent(sd, 1) if self.is_fraction or math.isnan(sd) else f"{sd:.2g}"

    def difference(self, value: float, digits: int = 1) -> str:
        """Return a signed difference as printed, without its unit.

        >>> Measure().difference(0.0312), Measure("nats", "lower").difference(-0.0312)
        ('+3.1', '-0.0312')
        """
        if self.is_fraction or math.isnan(value):
            return points(value, digits)
        return f"{value:+.3g}"

    def amount(self, value: float) -> str:
        """Return a signed difference with its unit, for a sentence.

        >>> Measure().amount(0.0312), Measure("nats").amount(0.5)
        ('+3.1 points', '+0.5 nats')
        """
        return f"{self.difference(value)} {'points' if self.is_fraction else self.unit}"

    def gain(self, difference: float) -> float:
        """Return the improvement by the first of two values, given first minus second.

        >>> Measure().gain(-0.5), Measure(better="lower").gain(-0.5)
        (-0.5, 0.5)
        """
        return difference if self.better == "higher" else -difference

    def best(self, values: list[float]) -> float:
        """Return the best of some values."""
        return max(values) if self.better == "higher" else min(values)

    def header(self, metric: str) -> str:
        """Return the header of a column: the metric, with its unit and direction if needed.

        >>> Measure().header("acc1"), Measure("nats", "lower").header("loss")
        ('acc1', 'loss (nats, lower is better)')
        """
        said = [] if self.is_fraction else [self.unit]
        said += [] if self.better == "higher" else ["lower is better"]
        return f"{metric} ({', '.join(said)})" if said else metric


PERCENT = Measure()
"""The measure of fractions in which higher is better."""
