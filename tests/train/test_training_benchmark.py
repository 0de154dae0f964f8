"""The ratio of ``benchmarks/training.py``, which ``tests/test_benchmarks.py`` runs."""

from __future__ import annotations

import math

from benchmarks import training


def test_ratios_are_of_one_round():
    """Twice, twice and twice as slow: 2, whatever the rounds had in common."""
    said = training.ratio([2.0, 20.0, 8.0], [1.0, 10.0, 4.0])
    assert said == "2.00 (equal in every round)"
    low, high = (float(x) for x in training.ratio([2.0, 3.0], [1.0, 1.0])[6:-1].split(" to "))
    assert low < math.sqrt(6) < high
