"""What classes were taken for: the confusion matrix; precision, recall and F1 of every class."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class ClassScores:
    """How well one class is told from the others.

    Attributes:
        precision: share of what was taken for it that is it; ``nan`` where nothing was.
        recall: share of it that was taken for it; ``nan`` where the class does not occur.
        f1: harmonic mean of the two; ``nan`` where the class does not occur and nothing
            was taken for it.
        support: how many there are of it.
        predicted: how many were taken for it.
    """

    precision: float
    recall: float
    f1: float
    support: int
    predicted: int


@dataclass(frozen=True)
class MacroScores:
    """Scores of all classes together: the means of what each class has.

    Attributes:
        accuracy: share of items taken for what they are.
        precision: mean over the classes.
        recall: mean over the classes.
        f1: mean of the classes' F1, not the F1 of the means.
    """

    accuracy: float
    precision: float
    recall: float
    f1: float


def macro_scores(matrix_CC: Sequence[Sequence[int]] | np.ndarray) -> MacroScores:
    """Return accuracy and the unweighted means over classes, as scikit-learn's ``average="macro"``.

    A class that there is, or that something was taken for, counts; what is undefined of it counts
    as 0 (``zero_division=0``): a model that never says a class has no precision in it. A class that
    is neither is left out.

    Args:
        matrix_CC: counts, rows the truth, columns what it was taken for, (classes, classes).

    Raises:
        ValueError: if the matrix is empty.

    >>> macro_scores([[1, 1], [0, 2]])
    MacroScores(accuracy=0.75, precision=0.8333333333333333, recall=0.75, f1=0.7333333333333334)
    """
    matrix = np.asarray(matrix_CC)
    if not matrix.sum():
        raise ValueError("scores of no items: there is nothing to take a mean of")
    counted = [one for one in class_scores(matrix) if one.support or one.predicted]

    def mean(name: str) -> float:
        values = [getattr(one, name) for one in counted]
        return math.fsum(0.0 if math.isnan(value) else value for value in values) / len(values)

    accuracy = float(np.trace(matrix) / matrix.sum())
    return MacroScores(accuracy, mean("precision"), mean("recall"), mean("f1"))


def confusion_matrix(truth_N: np.ndarray, predicted_N: np.ndarray, classes: int) -> np.ndarray:
    """Count what each class was taken for, int64 (classes, classes), rows the truth.

    Args:
        truth_N: number of each item's class, integers (items,).
        predicted_N: number of the class it was taken for, integers (items,).
        classes: how many there are.

    Raises:
        ValueError: if lengths differ or a number is not a class's.

    >>> confusion_matrix(np.array([0, 0, 1]), np.array([0, 1, 1]), 2).tolist()
    [[1, 1], [0, 1]]
    """
    truth, predicted = np.asarray(truth_N), np.asarray(predicted_N)
    if truth.shape != predicted.shape or truth.ndim != 1:
        raise ValueError(f"{truth.shape} classes and {predicted.shape} predictions do not fit")
    for found in (truth, predicted):
        if len(found) and not 0 <= found.min() <= found.max() < classes:
            raise ValueError(f"a class is outside 0 to {classes - 1}")
    codes = truth.astype(np.int64) * classes + predicted
    return np.bincount(codes, minlength=classes * classes).reshape(classes, classes)


def class_scores(matrix_CC: Sequence[Sequence[int]] | np.ndarray) -> list[ClassScores]:
    """Return precision, recall and F1 of every class of a confusion matrix, in its order.

    What is undefined is ``nan``, never 0: a class that nothing was taken for has no precision.

    Args:
        matrix_CC: counts, rows the truth, columns what it was taken for, (classes, classes).

    >>> [round(one.f1, 3) for one in class_scores([[1, 1], [0, 1]])]
    [0.667, 0.667]
    """
    matrix = np.asarray(matrix_CC)

    def share(part: int, whole: int) -> float:
        return part / whole if whole else math.nan

    found = []
    for c in range(len(matrix)):
        hits, support, predicted = (
            int(matrix[c, c]), int(matrix[c].sum()), int(matrix[:, c].sum())
        )  # fmt: skip
        found.append(
            ClassScores(
                precision=share(hits, predicted),
                recall=share(hits, support),
                f1=share(2 * hits, support + predicted),
                support=support,
                predicted=predicted,
            )
        )
    return found
