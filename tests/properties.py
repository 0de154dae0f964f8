"""How many examples a property is tried on: all of them, or a fifth in ``make test``."""

from __future__ import annotations

import os
from collections.abc import Mapping

FEW = "CFAUG_EXAMPLES"
"""Environment variable: ``few`` in ``make test`` on one's own machine; CI tries all."""


def examples(count: int, environment: Mapping[str, str] = os.environ) -> int:
    """Return how many examples to try of ``count``.

    >>> [examples(count, {FEW: "few"}) for count in (200, 25, 3)], examples(200, {})
    ([40, 10, 3], 200)
    """
    return min(count, max(10, count // 5)) if environment.get(FEW) == "few" else count
