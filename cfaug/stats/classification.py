"""Zero-shot classification: class vectors from templates, accuracies, mean recall per class."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cfaug.stats.ranking import Candidates, QueryRanks, Ties, as_array, first_equal, standing, unit


def fill_templates(templates: Sequence[str], class_names: Sequence[str]) -> list[str]:
    """Return the prompts, every template of the first class first: (classes * templates,).

    ``{c}`` stands for the class name, as in CLIP_benchmark's files; nothing else is interpreted.

    Args:
        templates: prompts with ``{c}`` in place of the class name, at least one.

    Raises:
        ValueError: if a template has no ``{c}``, or there is no template or class.

    >>> fill_templates(["a {c}", "the {c}."], ["cat", "tree"])
    ['a cat', 'the cat.', 'a tree', 'the tree.']
    """
    if not templates or not class_names:
        raise ValueError("zero-shot classification needs at least one template and one class name")
    for template in templates:
        if "{c}" not in template:
            raise ValueError(f"template {template!r} has no {{c}} where the class name goes")
    return [template.replace("{c}", name) for name in class_names for template in templates]


def class_vectors(prompt_CPD: Any) -> np.ndarray:
    """Return one unit vector per class: the normalised mean of its normalised prompt embeddings.

    Args:
        prompt_CPD: text embeddings, (classes, templates, dim).

    Returns:
        float (classes, dim).

    Raises:
        ValueError: if the shape is wrong, or a class's mean is zero.

    >>> class_vectors([[[2.0, 0.0], [0.0, 5.0]]]).round(4).tolist()
    [[0.7071, 0.7071]]
    """
    prompts = as_array(prompt_CPD)
    if prompts.ndim != 3:
        raise ValueError(f"prompt embeddings should be classes x templates x dim: {prompts.shape}")
    return unit(unit(prompts, "prompt embeddings").mean(axis=1), "class vectors")


def zero_shot_scores(image_ND: Any, class_CD: Any) -> np.ndarray:
    """Return cosines, (images, classes); classes of equal vectors tie exactly.

    Args:
        image_ND: image embeddings, (images, dim); they are brought to unit length.
        class_CD: class vectors, (classes, dim); they are brought to unit length.

    >>> zero_shot_scores([[3.0, 0.0]], [[1.0, 0.0], [0.0, 1.0]]).tolist()
    [[1.0, 0.0]]
    """
    images = unit(as_array(image_ND), "image embeddings")
    classes = as_array(class_CD)
    return Candidates(unit(classes, "class vectors"), first_equal(classes)).score(images)


def hits_at(
    sim_NC: Any, labels: Any, ks: Sequence[int] = (1, 5), ties: Ties = "mean"
) -> dict[str, np.ndarray]:
    """Return each image's share of a hit at each cut-off, ``{"acc1": float64 (images,), ...}``.

    A cut-off above the number of classes is left out: it would say nothing (CLIP_benchmark gives
    NaN there).

    Args:
        sim_NC: similarity of each image and class, (images, classes); larger is more alike.
        labels: index of each image's class, integers (images,).
        ks: cut-offs k of the accuracies ``acck``.
        ties: policy for equal scores, see ``ranking``.

    >>> hits_at([[0.9, 0.1], [0.8, 0.2]], [0, 1])["acc1"].tolist()
    [1.0, 0.0]
    """
    ranks, _ = class_standing(sim_NC, labels)
    n_classes = as_array(sim_NC).shape[1]
    return {f"acc{k}": ranks.hits(k, ties) for k in ks if k <= n_classes}


def mean_per_class_recall(sim_NC: Any, labels: Any, ties: Ties = "mean") -> float:
    """Return top-1 accuracy averaged over the classes that have at least one image.

    CLIP's own metric for Caltech101 (Radford et al., 2021, table 9), scikit-learn's balanced
    accuracy.

    Args:
        sim_NC: similarity of each image and class, (images, classes); larger is more alike.
        labels: index of each image's class, integers (images,).
        ties: policy for equal scores, see ``ranking``.

    >>> mean_per_class_recall([[0.9, 0.1], [0.8, 0.2], [0.2, 0.3]], [0, 0, 1])
    1.0
    >>> mean_per_class_recall([[0.9, 0.1], [0.8, 0.2], [0.9, 0.3]], [0, 0, 1])
    0.5
    """
    ranks, classes = class_standing(sim_NC, labels)
    return mean_over_classes(ranks.hits(1, ties), classes)


def mean_over_classes(hits_N: np.ndarray, classes_N: np.ndarray) -> float:
    """Return the mean over classes of each class's mean.

    >>> mean_over_classes(np.array([1.0, 0.0, 1.0]), np.array([5, 5, 3]))
    0.75
    """
    return float(np.mean([hits_N[classes_N == c].mean() for c in np.unique(classes_N)]))


def class_standing(sim_NC: Any, labels: Any) -> tuple[QueryRanks, np.ndarray]:
    """Return the rank of each image's class among all classes, and the labels as an array.

    Args:
        sim_NC: similarity of each image and class, (images, classes); larger is more alike.
        labels: index of each image's class, integers (images,).

    Raises:
        ValueError: if shapes disagree, a score is not finite, or a label is no class.
    """
    sim, classes = as_array(sim_NC), as_array(labels)
    if sim.ndim != 2 or classes.shape != (len(sim),) or not len(sim):
        raise ValueError(f"scores {sim.shape} and labels {classes.shape} do not fit")
    return standing(sim, classes, np.arange(sim.shape[1])), classes


# The confusion matrix; precision, recall and F1 of every class.
#
# scikit-learn computes these scores from answers; here they come from a matrix, because matrices
# are kept and summed. It also takes 50 times as long (1.2 ms for 500 answers).


@dataclass(frozen=True)
class ClassScores:
    """How well one class is distinguished from the others.

    Attributes:
        precision: share of the items predicted as this class that belong to it; ``nan`` if there
            are no such items.
        recall: share of the class's items that are predicted as this class; ``nan`` where the class
            does not occur.
        f1: harmonic mean of precision and recall; ``nan`` where the class neither occurs nor is
            predicted.
    """

    precision: float
    recall: float
    f1: float
    support: int
    predicted: int


@dataclass(frozen=True)
class MacroScores:
    """Scores of all classes together.

    Attributes:
        accuracy: share of items whose predicted class is right.
        f1: mean of the classes' F1, not the F1 of the means.
    """

    accuracy: float
    precision: float
    recall: float
    f1: float


def macro_scores(matrix_CC: Sequence[Sequence[int]] | np.ndarray) -> MacroScores:
    """Return accuracy and the unweighted means over classes, as scikit-learn's ``average="macro"``.

    A class that occurs or is predicted counts; a score that is undefined for it counts as 0
    (``zero_division=0``), such as the precision of a class that is never predicted. A class that
    neither occurs nor is predicted is left out.

    Args:
        matrix_CC: confusion matrix of counts, (classes, classes); rows are the truth, columns the
            predictions.

    Raises:
        ValueError: if the matrix is empty.

    >>> macro_scores([[1, 1], [0, 2]])
    MacroScores(accuracy=0.75, precision=0.8333333333333333, recall=0.75, f1=0.7333333333333334)
    """
    matrix = np.asarray(matrix_CC)
    if not matrix.sum():
        raise ValueError("scores of no items: there is nothing to take a mean of")
    counted = [score for score in class_scores(matrix) if score.support or score.predicted]

    def mean(name: str) -> float:
        values = [getattr(score, name) for score in counted]
        return math.fsum(0.0 if math.isnan(value) else value for value in values) / len(values)

    accuracy = float(np.trace(matrix) / matrix.sum())
    return MacroScores(accuracy, mean("precision"), mean("recall"), mean("f1"))


def confusion_matrix(truth_N: np.ndarray, predicted_N: np.ndarray, classes: int) -> np.ndarray:
    """Count the predictions for each class, int64 (classes, classes), rows the truth.

    Args:
        truth_N: index of each item's true class, integers (items,).
        predicted_N: index of each item's predicted class, integers (items,).

    Raises:
        ValueError: if lengths differ or an index is not that of a class.

    >>> confusion_matrix(np.array([0, 0, 1]), np.array([0, 1, 1]), 2).tolist()
    [[1, 1], [0, 1]]
    """
    truth, predicted = np.asarray(truth_N), np.asarray(predicted_N)
    if truth.shape != predicted.shape or truth.ndim != 1:
        raise ValueError(f"{truth.shape} classes and {predicted.shape} predictions do not fit")
    for numbers in (truth, predicted):
        if len(numbers) and not 0 <= numbers.min() <= numbers.max() < classes:
            raise ValueError(f"a class is outside 0 to {classes - 1}")
    codes = truth.astype(np.int64) * classes + predicted
    return np.bincount(codes, minlength=classes * classes).reshape(classes, classes)


def class_scores(matrix_CC: Sequence[Sequence[int]] | np.ndarray) -> list[ClassScores]:
    """Return precision, recall and F1 of every class of a confusion matrix, in its order.

    An undefined score is ``nan``, never 0: a class that is never predicted has no precision.

    Args:
        matrix_CC: confusion matrix of counts, (classes, classes); rows are the truth, columns the
            predictions.

    >>> [round(score.f1, 3) for score in class_scores([[1, 1], [0, 1]])]
    [0.667, 0.667]
    """
    matrix = np.asarray(matrix_CC)

    def share(part: int, whole: int) -> float:
        return part / whole if whole else math.nan

    scores = []
    for c in range(len(matrix)):
        hits, support, predicted = (
            int(matrix[c, c]), int(matrix[c].sum()), int(matrix[:, c].sum())
        )  # fmt: skip
        scores.append(
            ClassScores(
                precision=share(hits, predicted),
                recall=share(hits, support),
                f1=share(2 * hits, support + predicted),
                support=support,
                predicted=predicted,
            )
        )
    return scores
