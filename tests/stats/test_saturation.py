"""The saturating response to a dose, against scipy's own least squares."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import curve_fit

from cfaug.stats.effects import fit_saturation

DOSES = (32.0, 64.0, 128.0, 256.0)


def noisy(limit: float, scale: float, noise: float, seeds: int = 5, state: int = 0):
    rng = np.random.default_rng(state)
    return {
        dose: {
            seed: limit * (1 - np.exp(-dose / scale)) + rng.normal(0, noise)
            for seed in range(seeds)
        }
        for dose in DOSES
    }


@pytest.mark.parametrize(("limit", "scale"), [(0.6, 80), (0.3, 40), (-0.2, 60)])
def test_the_fit_is_that_of_least_squares(limit, scale):
    curve = noisy(limit, scale, 0.02)
    x = [dose for dose, of in curve.items() for _ in of]
    y = [value for of in curve.values() for value in of.values()]
    (wanted, of_scale), _ = curve_fit(lambda b, g, t: g * (1 - np.exp(-b / t)), x, y, [limit, 100])
    fit = fit_saturation(curve, np.random.default_rng(1), resamples=200)
    assert fit.limit == pytest.approx(wanted, rel=0.02)
    assert fit.half == pytest.approx(of_scale * np.log(2), rel=0.05)
    assert fit.limit_interval[0] < wanted < fit.limit_interval[1]
    assert fit.at(fit.half) == pytest.approx(fit.limit / 2)
    assert fit.bounded


def test_a_line_is_not_said_to_saturate():
    line = {dose: dict.fromkeys(range(3), dose / 1000) for dose in DOSES}
    assert not fit_saturation(line, np.random.default_rng(0), resamples=50).bounded


def test_the_interval_covers_the_limit_as_often_as_it_says():
    covered = 0
    for state in range(60):
        fit = fit_saturation(
            noisy(0.5, 60, 0.05, seeds=12, state=state), np.random.default_rng(state), 300
        )
        covered += fit.limit_interval[0] <= 0.5 <= fit.limit_interval[1]
    assert covered >= 48  # 57 are expected; a bootstrap of 12 seeds is a little narrow


@pytest.mark.parametrize("curve", [
    {}, {1.0: {0: 1.0}}, {0.0: {0: 1.0}, 1.0: {0: 1.0}}, {1.0: {0: 1.0}, 2.0: {1: 1.0}},
])  # fmt: skip
def test_too_few_doses_or_other_seeds_are_refused(curve):
    with pytest.raises(ValueError, match="two doses"):
        fit_saturation(curve, np.random.default_rng(0))
