"""Logistic regression on features, as CLIP's linear probe (Radford et al., 2021, section A.3)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from sklearn.linear_model import LogisticRegression

DECADES = (-6, -4, -2, 0, 2, 4, 6)
"""Powers of ten of the first strengths that are tried (section A.3)."""
RESOLUTION = 1 / 8
"""Decades between two strengths at which the search ends (section A.3)."""
STEPS = 1000
"""Most iterations of L-BFGS (section A.3)."""


def fit_logistic(
    features_ND: np.ndarray, labels_N: np.ndarray, strength: float
) -> LogisticRegression:
    """Return a logistic regression with an L2 penalty on the weights, not on the intercepts.

    Args:
        features_ND: features, (images, dim).
        labels_N: classes, integers (images,), at least two different ones.
        strength: weight of the penalty: the sum of losses plus ``strength / 2`` of the squared
            weights is minimised.
    """
    import warnings

    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression
    from threadpoolctl import threadpool_limits

    model = LogisticRegression(C=1 / strength, max_iter=STEPS, random_state=0)
    with warnings.catch_warnings(), threadpool_limits(1):  # sums of several threads differ
        warnings.simplefilter("ignore", ConvergenceWarning)  # the paper's limit of steps
        return model.fit(features_ND.astype(np.float64), labels_N)


def search_strength(score: Callable[[float], float]) -> float:
    """Return the strength with the highest score, by a search around the peak (section A.3).

    Seven strengths from 1e-6 to 1e6 come first; then the interval around the best one is halved
    until neighbours are an eighth of a decade apart. Of equal scores the stronger penalty counts.

    Args:
        score: accuracy on a validation split by strength.

    >>> import math
    >>> round(math.log10(search_strength(lambda s: -abs(math.log10(s) - 1.6))), 3)
    1.625
    """
    scores = {power: score(10.0**power) for power in map(float, DECADES)}
    step = float(DECADES[1] - DECADES[0])
    while step > RESOLUTION:
        step /= 2
        peak = max(scores, key=lambda power: (scores[power], power))
        for power in (peak - step, peak + step):
            if DECADES[0] <= power <= DECADES[-1] and power not in scores:
                scores[power] = score(10.0**power)
    best = max(scores, key=lambda power: (scores[power], power))
    return float(10.0**best)


def choose_strength(
    features_ND: np.ndarray, labels_N: np.ndarray, is_validation_N: np.ndarray
) -> float:
    """Return the strength with the highest accuracy on a validation split.

    Args:
        is_validation_N: bool (images,), the images to validate on; the others are trained on.
    """
    train, held = ~is_validation_N, is_validation_N

    def score(strength: float) -> float:
        model = fit_logistic(features_ND[train], labels_N[train], strength)
        return float((model.predict(features_ND[held]) == labels_N[held]).mean())

    return search_strength(score)
