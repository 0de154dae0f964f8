"""Right answers to basic and counterfactual questions about one image (CFMM, section 3.4).

``acc_b`` is over images, ``acc_c`` over counterfactual questions, ``acc_plus`` over pairs of the
basic and one counterfactual question that are both right: 4n pairs of n images, as every cell of
the paper's Table 2 shows. A total is the plain sum of the categories' percentages.

``scipy.stats.bootstrap`` of the clusters' counts takes ten times as long (0.2 s for 600 images) as
drawing the number of clusters of each kind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

RESAMPLES = 10_000
"""Default number of bootstrap resamples."""

DRAWN_AT_ONCE = 2**20
"""Counts drawn at once: 8 MB."""


@dataclass(frozen=True)
class Accuracies:
    """Fractions of right answers, and their correlation ``phi``; NaN without questions.

    Attributes:
        images: number of images.
        acc_b: accuracy on basic questions.
        acc_c: accuracy on counterfactual questions.
        acc_plus: fraction of pairs, the basic and one counterfactual question, with both answers
            right; by chance 1/4.
        strict: fraction of images with every question answered right.
        consistency: accuracy on the counterfactual questions of images with a right basic answer:
            acc_plus over acc_b, if all images have equally many questions.
        drop: acc_b minus acc_c.
        phi: correlation of right answers over the pairs, -1 to 1; NaN where all basic or all
            counterfactual answers are alike.
    """

    images: int
    acc_b: float
    acc_c: float
    acc_plus: float
    strict: float
    consistency: float
    drop: float
    phi: float


def accuracies(basic_N: np.ndarray, counterfactual_NK: Sequence[np.ndarray]) -> Accuracies:
    """Return the accuracies of one category, or of all images together (micro).

    >>> import numpy as np
    >>> found = accuracies(np.array([1, 0]), [np.array([1, 0]), np.array([1, 1])])
    >>> found.acc_b, found.acc_c, found.acc_plus, found.strict
    (0.5, 0.75, 0.25, 0.0)

    Args:
        basic_N: whether the basic question of each image was answered right, (images,).
        counterfactual_NK: whether each counterfactual question was answered right, an array
            (questions,) for each image; the number may vary.

    Raises:
        ValueError: if the numbers of images differ.
    """
    basic = np.asarray(basic_N, dtype=bool)
    if len(basic) != len(counterfactual_NK):
        raise ValueError(f"{len(basic)} images have {len(counterfactual_NK)} counterfactual parts")
    own = [np.asarray(one, dtype=bool).reshape(-1) for one in counterfactual_NK]
    counterfactual = np.concatenate([np.zeros(0, dtype=bool), *own])
    repeated = np.repeat(basic, [len(one) for one in own])
    acc_b, acc_c = _mean(basic), _mean(counterfactual)
    acc_plus = _mean(repeated & counterfactual)
    every = np.array([b and bool(one.all()) for b, one in zip(basic, own, strict=True)], dtype=bool)
    return Accuracies(
        images=len(basic),
        acc_b=acc_b,
        acc_c=acc_c,
        acc_plus=acc_plus,
        strict=_mean(every),
        consistency=_mean(counterfactual[repeated]),
        drop=acc_b - acc_c,
        phi=phi_from_margins(_mean(repeated), acc_c, acc_plus),
    )


def phi_from_margins(p_basic: float, p_counterfactual: float, p_both: float) -> float:
    """Return the correlation of two right-or-wrong answers from three fractions of the same pairs.

    >>> round(phi_from_margins(0.8, 0.5, 0.35), 3)
    -0.25

    Args:
        p_basic: fraction of pairs with the basic question answered right.
        p_counterfactual: fraction of pairs with the counterfactual question answered right.
        p_both: fraction of pairs with both questions answered right.

    Returns:
        -1 to 1; NaN where a fraction of one kind is 0 or 1.
    """
    spread = p_basic * (1 - p_basic) * p_counterfactual * (1 - p_counterfactual)
    if not spread > 0:
        return float("nan")
    return float((p_both - p_basic * p_counterfactual) / np.sqrt(spread))


def phi_interval(
    basic_N: np.ndarray,
    counterfactual_NK: Sequence[np.ndarray],
    clusters_N: Sequence[Any] | np.ndarray,
    rng: np.random.Generator,
    *,
    level: float = 0.95,
    resamples: int = RESAMPLES,
) -> tuple[float, float]:
    """Return the percentile interval of ``phi`` from a bootstrap over whole clusters of images.

    Args:
        basic_N: whether the basic question of each image was answered right, (images,).
        counterfactual_NK: whether each counterfactual question was answered right, an array
            (questions,) for each image.
        clusters_N: the cluster each image was sampled in, any comparable values, (images,).
        rng: generator that draws the resamples.
        level: nominal coverage, between 0 and 1.
        resamples: number of resamples; one in which all answers of a kind are alike has no phi and
            is left out.

    Returns:
        The ends of the interval; NaN with a single cluster, or if no resample has a phi.
    """
    basic = np.asarray(basic_N, dtype=np.int64)
    pairs, right = (
        np.array([count(one) for one in counterfactual_NK], dtype=np.int64)
        for count in (np.size, np.count_nonzero)
    )
    names, place = np.unique(np.asarray(clusters_N), return_inverse=True)
    if len(names) < 2:
        return float("nan"), float("nan")
    sums_G4 = np.zeros((len(names), 4), dtype=np.int64)
    np.add.at(
        sums_G4, place.reshape(-1), np.stack([pairs, basic * pairs, right, basic * right], axis=1)
    )
    # Clusters with equal sums cannot be told apart: the number drawn of each kind is enough.
    kinds, counts = np.unique(sums_G4, axis=0, return_counts=True)
    at_once = max(1, DRAWN_AT_ONCE // len(kinds))
    drawn = np.concatenate([
        rng.multinomial(len(names), counts / len(names), size=min(at_once, resamples - at)) @ kinds
        for at in range(0, resamples, at_once)
    ])  # fmt: skip
    n, b, c, both = drawn.T.astype(np.float64)
    spread = b * (n - b) * c * (n - c)
    known = spread > 0
    if not known.any():
        return float("nan"), float("nan")
    phi = (both * n - b * c)[known] / np.sqrt(spread[known])
    low, high = np.quantile(phi, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def total(by_category: Mapping[str, float]) -> float:
    """Return the sum of the categories' percentages, the paper's score of up to 600.

    >>> total({"count": 0.5, "color": 0.25})
    75.0

    Args:
        by_category: accuracy of each category, as a fraction.
    """
    return 100.0 * float(sum(by_category.values()))


def whole_groups(right_N: np.ndarray, groups_N: Sequence[Any]) -> np.ndarray:
    """Mark the groups without a mistake, each at the position of its first answer.

    The mean of the values that are not NaN is the share of groups without a mistake: ``qAcc`` of
    HallusionBench where a group is a question about several figures, ``fAcc`` where it is the
    questions about one figure (Guan et al., 2024, section 4.1).

    >>> import numpy as np
    >>> whole_groups(np.array([1.0, 1.0, 0.0, 1.0]), ["a", "a", "b", None]).tolist()
    [1.0, nan, 0.0, nan]

    Args:
        right_N: 1 for a right and 0 for a wrong answer, (answers,); NaN for an answer that was left
            out, whose group does not count.
        groups_N: the group of each answer; ``None`` for an answer without one.

    Returns:
        float64 (answers,): 1 or 0 at the first answer of a group that counts, else NaN.
    """
    found = np.full(len(right_N), np.nan)
    places: dict[Any, list[int]] = {}
    for place, group in enumerate(groups_N):
        if group is not None:
            places.setdefault(group, []).append(place)
    for own in places.values():
        values = right_N[own]
        if not np.isnan(values).any():
            found[own[0]] = float(values.all())
    return found


def group_accuracies(right_G22: np.ndarray) -> dict[str, float]:
    """Return NaturalBench's accuracies of two questions about two images (section 3).

    >>> import numpy as np
    >>> group_accuracies(np.array([[[1, 1], [1, 0]]]))
    {'acc': 0.75, 'q_acc': 0.5, 'i_acc': 0.5, 'g_acc': 0.0}

    Args:
        right_G22: whether each answer is right, (groups, questions, images).

    Returns:
        ``acc`` over answers; ``q_acc`` of questions that are right about both images; ``i_acc`` of
        images about which both questions are right; ``g_acc`` of groups without a mistake. By
        chance, of two options: 1/2, 1/4, 1/4, 1/16.

    Raises:
        ValueError: if the shape is wrong.
    """
    right = np.asarray(right_G22, dtype=bool)
    if right.ndim != 3 or right.shape[1:] != (2, 2):
        raise ValueError(f"answers should be groups x 2 questions x 2 images, not {right.shape}")
    return {
        "acc": _mean(right),
        "q_acc": _mean(np.asarray(right.all(axis=2))),
        "i_acc": _mean(np.asarray(right.all(axis=1))),
        "g_acc": _mean(np.asarray(right.all(axis=(1, 2)))),
    }


def _mean(values: np.ndarray) -> float:
    return float(values.mean()) if values.size else float("nan")
