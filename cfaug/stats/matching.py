"""Matching gaps: how much higher the right image-text pair scores than its alternative.

COCO-Counterfactuals, section 4.2.2. G scores an image with a text, larger is more alike. For an
original pair (C_o, I_o), another real pair (C_r, I_r) with I_r != I_o, the image I_o^s synthesised
for C_o, and the counterfactual pair (C_c, I_c^s)::

    IR_r = G(C_r, I_r)   - G(C_r, I_o)      IR_c = G(C_c, I_c^s) - G(C_c, I_o^s)
    TR_r = G(C_r, I_r)   - G(C_o, I_r)      TR_c = G(C_c, I_c^s) - G(C_o, I_c^s)

Above zero the right pair wins. The units are those of G, so gaps of two models are not comparable.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from cfaug.stats.significance import summarise, wilcoxon

RANDOM, COUNTERFACTUAL = ("IR_r", "TR_r"), ("IR_c", "TR_c")
GAPS = (*RANDOM, *COUNTERFACTUAL)

SCORES: Mapping[str, tuple[str, str, str]] = {
    "r": ("G(C_r,I_r)", "G(C_r,I_o)", "G(C_o,I_r)"),
    "c": ("G(C_c,I_c)", "G(C_c,I_o)", "G(C_o,I_c)"),
}
"""The scores behind the gaps of random (r) and counterfactual (c) pairs: the right pair, the right
text with the wrong image, the wrong text with the right image."""


def gaps(scores: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the gaps of the kinds of pair that have scores.

    Args:
        scores: scores of the pairs, float (pairs,), under the names in ``SCORES``: all three of
            "c", of "r" or of both.

    Returns:
        {gap: float64 (pairs,)}, in the order of ``GAPS``.

    Raises:
        ValueError: if a score is not finite.

    >>> found = gaps({"G(C_c,I_c)": [3.0], "G(C_c,I_o)": [1.0], "G(C_o,I_c)": [4.0]})
    >>> {name: gap.tolist() for name, gap in found.items()}
    {'IR_c': [2.0], 'TR_c': [-1.0]}
    """
    differences = {}
    for kind, (right, other_image, other_text) in SCORES.items():
        if right in scores:
            right_N, image_N, text_N = (
                np.asarray(scores[name], np.float64) for name in (right, other_image, other_text)
            )
            differences[f"IR_{kind}"] = right_N - image_N
            differences[f"TR_{kind}"] = right_N - text_N
    for name, gap in differences.items():
        if not np.isfinite(gap).all():
            raise ValueError(f"{name}: a score is NaN or infinite: the model has diverged")
    return differences


def gaps_where_scored(scores: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the gaps of all pairs, ``nan`` where the right pair was not scored.

    Args:
        scores: scores of the pairs, float (pairs,), under the names in ``SCORES``; ``nan`` for a
            pair without a score, such as one without a photograph.

    Raises:
        ValueError: if only some scores of a pair are finite.

    >>> one = {"G(C_c,I_c)": [3.0, np.nan], "G(C_c,I_o)": [1.0, 0.0], "G(C_o,I_c)": [4.0, 0.0]}
    >>> gaps_where_scored({name: np.array(values) for name, values in one.items()})["IR_c"].tolist()
    [2.0, nan]
    """
    whole: dict[str, np.ndarray] = {}
    for names in SCORES.values():
        if names[0] not in scores:
            continue
        there = ~np.isnan(scores[names[0]])
        for name, gap in gaps({n: scores[n][there] for n in names}).items():
            whole[name] = np.full(len(there), np.nan)
            whole[name][there] = gap
    return whole


@dataclass(frozen=True)
class GapSummary:
    """One gap over all pairs: mean, standard deviation, and how often either pair wins."""

    mean: float
    sd: float
    above_zero: float
    below_zero: float
    n: int


def summary(gap_N: np.ndarray) -> GapSummary:
    """Summarise one gap; a tie is neither above nor below zero.

    Args:
        gap_N: gap of each pair, finite, (pairs,).

    >>> summary(np.array([1.0, -1.0, 0.0, 4.0]))
    GapSummary(mean=1.0, sd=2.160246899469287, above_zero=0.5, below_zero=0.25, n=4)
    """
    whole = summarise(gap_N)
    return GapSummary(
        whole.mean, whole.sd, float((gap_N > 0).mean()), float((gap_N < 0).mean()), whole.n
    )


@dataclass(frozen=True)
class Shift:
    """How much smaller a counterfactual gap is than the random gap of the same anchor.

    ``mean`` is of random minus counterfactual, ``smaller`` the share of anchors whose
    counterfactual gap is the smaller one, ``p`` of Wilcoxon's signed-rank test, one-sided.
    """

    mean: float
    smaller: float
    p: float
    n: int


def shift(random_N: np.ndarray, counterfactual_N: np.ndarray) -> Shift:
    """Compare two gaps anchor by anchor; ``nan`` in the random gap marks an anchor without one.

    Args:
        random_N: random gap of each anchor, (anchors,).
        counterfactual_N: counterfactual gap of each anchor, (anchors,).

    Raises:
        ValueError: if no anchor has both.

    >>> shift(np.array([2.0, 3.0, np.nan]), np.array([1.0, 1.0, 5.0]))
    Shift(mean=1.5, smaller=1.0, p=0.25, n=2)
    """
    both = np.isfinite(random_N) & np.isfinite(counterfactual_N)
    difference = random_N[both] - counterfactual_N[both]
    return Shift(
        float(difference.mean()) if len(difference) else np.nan,
        float((difference > 0).mean()) if len(difference) else np.nan,
        wilcoxon(difference),
        len(difference),
    )
