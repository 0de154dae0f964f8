"""Exact arithmetic of shares: the decimal that a user typed, not the nearest binary float."""

from __future__ import annotations

from fractions import Fraction


def decimal(number: float) -> Fraction:
    """Return a number as the decimal that a user typed.

    >>> decimal(0.6)
    Fraction(3, 5)
    """
    return Fraction(repr(float(number)))


def half_up(number: Fraction) -> int:
    """Round half up, exactly.

    >>> half_up(Fraction(5, 2)), half_up(Fraction(12, 5))
    (3, 2)
    """
    return (2 * number.numerator + number.denominator) // (2 * number.denominator)
