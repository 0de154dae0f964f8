"""The score that ranks a mask's candidates: the weighted sum of three normalised scores.

It is equation 1 of Ramshetty et al. (2023): lambda_1 p + lambda_2 s + lambda_3 d.
"""

from __future__ import annotations

from collections.abc import Sequence

from cfaug.xmai.insertions.switches import Normalise

TINY = 1e-12
"""The least divisor of the released code."""

Weights = tuple[float, float, float]
"""lambda_1, lambda_2 and lambda_3."""


def normalise_scores(values: Sequence[float], how: Normalise | None) -> list[float]:
    """Normalise the scores of a mask's candidates, so that they are comparable to other scores.

    Args:
        values: a score for each candidate.
        how: ``sum`` divides by the sum; negative values count as 0. ``min_max`` maps the least to 0
            and the greatest to 1, and equal scores to 0. ``released`` does the same except for
            equal scores, which it divides by the greatest, or by 1e-12 if that is greater.

    >>> normalise_scores([1.0, 3.0], "sum"), normalise_scores([1.0, 3.0, 2.0], "min_max")
    ([0.25, 0.75], [0.0, 1.0, 0.5])
    >>> normalise_scores([2.0, 2.0], "min_max"), normalise_scores([2.0, 2.0], "released")
    ([0.0, 0.0], [1.0, 1.0])
    """
    if not values:
        return []
    if how == "sum":
        shares = [max(value, 0.0) for value in values]
        total = sum(shares)
        return [share / total if total > 0 else 0.0 for share in shares]
    least, most = min(values), max(values)
    if least == most:
        if how == "min_max":
            return [0.0] * len(values)
        least = 0.0
    return [(value - least) / max(most - least, TINY) for value in values]


def score_candidates(
    language: Sequence[float],
    similarity: Sequence[float],
    distance: Sequence[float],
    weights: Weights,
    how: Normalise | None,
    pad_to: int = 0,
) -> list[float]:
    """Return the score of each candidate of a mask.

    Args:
        language: the probabilities by the language model: p.
        similarity: the similarities to the object's attributes: s; empty if they are not compared.
        distance: the distances of image and text: d; empty if images are not compared.
        weights: lambda_1, lambda_2 and lambda_3.
        how: the normalisation; see ``normalise_scores``.
        pad_to: the number of probabilities to normalise together, filled up with zeros.

    >>> score_candidates([0.2, 0.1], [0.0, 1.0], [0.5, 0.5], (1.0, 5.0, 5.0), "min_max")
    [0.09090909090909091, 0.45454545454545453]
    """
    padded = [*language, *[0.0] * (pad_to - len(language))]
    parts = [
        normalise_scores(padded, how)[: len(language)],
        normalise_scores(similarity, how),
        normalise_scores(distance, how),
    ]
    total = max(sum(abs(weight) for weight in weights), 1.0)
    scores = [0.0] * len(language)
    for weight, part in zip(weights, parts, strict=True):
        # The order of the released code: the last bits decide between equal scores.
        if part:
            scores = [one + weight * value for one, value in zip(scores, part, strict=True)]
    return [score / total for score in scores]
