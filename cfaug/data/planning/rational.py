"""Shares of counts in exact arithmetic: what a user typed, not its nearest binary float."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TypeGuard

from cfaug.errors import UserError


def decimal(number: float) -> Fraction:
    """Return the decimal that a user typed.

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


def is_number(value: object) -> TypeGuard[float]:
    """Say whether a value is a finite number; booleans do not count."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def check_ratio(cf_ratio: object) -> None:
    """Refuse an invalid ratio.

    Raises:
        UserError: unless it is a number in [0, 1].
    """
    if not is_number(cf_ratio) or not 0 <= cf_ratio <= 1:
        raise UserError(f"data.cf_ratio={cf_ratio} must be a number in [0, 1]")
