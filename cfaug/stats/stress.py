"""Sensitivity of a classifier to edits of its test images: probabilities, drops and tests of them.

LANCE (Prabhu et al., 2023), section 4.1. The paired tests compare each edit with the photo it was
made from. The paper compares sets of different sizes (equation 3), unpaired. Both are here.

The unpaired test is scipy's; the paired ones are those of ``item_tests`` and ``significance``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cfaug.stats.item_tests import MeanDifference, cluster_bootstrap, sign_test
from cfaug.stats.ranking import as_array, finite
from cfaug.stats.significance import require_finite, sign_flip


def softmax(logits_NC: Any) -> np.ndarray:
    """Return the probabilities of all classes, float64 (images, classes); every row sums to one.

    Args:
        logits_NC: logits, (images, classes).

    Raises:
        ValueError: if a logit is NaN or infinite.

    >>> softmax([[0.0, 0.0], [1000.0, 0.0]]).tolist()
    [[0.5, 0.5], [1.0, 0.0]]
    """
    from scipy.special import softmax as row_softmax

    logits = finite(as_array(logits_NC), "logits").astype(np.float64)
    found: np.ndarray = row_softmax(logits, axis=1)
    return found


def truth_probability(p_NC: np.ndarray, labels_N: np.ndarray) -> np.ndarray:
    """Return the probability of each image's own class, float64 (images,).

    Args:
        p_NC: probabilities, (images, classes).
        labels_N: index of each image's class, integers (images,).

    >>> truth_probability(np.array([[0.5, 0.3, 0.2]]), np.array([1])).tolist()
    [0.3]
    """
    own: np.ndarray = p_NC[np.arange(len(p_NC)), labels_N].astype(np.float64)
    return own


def top_classes(p_NC: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the most probable classes and their probabilities, each (images, min(k, classes)).

    Among equally probable classes the one with the smaller number comes first.

    Args:
        p_NC: probabilities, (images, classes).
        k: largest number of classes to return for each image.

    >>> classes, p = top_classes(np.array([[0.2, 0.5, 0.3]]), 2)
    >>> classes.tolist(), p.tolist()
    ([[1, 2]], [[0.5, 0.3]])
    """
    order = np.argsort(-p_NC, axis=1, kind="stable")[:, :k]
    return order, np.take_along_axis(p_NC, order, axis=1)


def fisher(right: int, n: int, right_other: int, n_other: int) -> float:
    """Return the two-sided p of Fisher's exact test that two sets differ in accuracy.

    It treats all images as independent, as a comparison of sets of different sizes must. The photo
    of an edit is in the other set, so the paired test is better; this one is the paper's.

    Args:
        right: number of images of the first set that are classified right.
        n: size of the first set.
        right_other: number of images of the second set that are classified right.
        n_other: size of the second set.

    Raises:
        ValueError: if a count is below zero or above its set's size.

    >>> round(fisher(460, 576, 578, 781), 3)  # LANCE, Table 2: ResNet-50, original against LANCE
    0.014
    """
    if not (0 <= right <= n and 0 <= right_other <= n_other):
        raise ValueError(f"{right} of {n} and {right_other} of {n_other} are invalid counts")
    from scipy.stats import fisher_exact

    table = [[right, n - right], [right_other, n_other - right_other]]
    return float(fisher_exact(table)[1])


@dataclass(frozen=True)
class DropTest:
    """A test of how much worse edits are classified than their originals.

    Attributes:
        before: mean of the originals' values, each counted once per edit.
        after: mean of the edits' values.
        mean: mean drop, ``before - after``, with its bootstrap interval over photos.
        lost: number of edits whose original has the larger value.
        won: number of edits with a larger value than their original.
        p_sign: two-sided p of the exact test on ``lost`` and ``won`` (McNemar's, for hits); it
            treats edits of one photo as independent.
        p_photos: two-sided p of a sign-flip permutation of whole photos, exact up to 16 of them and
            never below 2 ** (1 - photos). A bootstrap would call any drop on which two photos agree
            significant.
    """

    before: float
    after: float
    mean: MeanDifference
    lost: int
    won: int
    p_sign: float
    p_photos: float


def paired_drop(
    before: Sequence[float] | np.ndarray,
    after: Sequence[float] | np.ndarray,
    photos: Sequence[Any] | np.ndarray,
    rng: np.random.Generator,
) -> DropTest:
    """Test the drop from each original to its edit.

    Args:
        before: value of the original of each edit, a hit or a probability, (edits,).
        after: value of each edit, (edits,).
        photos: the photo each edit was made from, any comparable values, (edits,); the bootstrap
            draws whole photos.

    Raises:
        ValueError: if there is no edit, a value is NaN or infinite, or lengths differ.

    >>> found = paired_drop([1, 1, 1], [0, 1, 0], ["a", "a", "b"], np.random.default_rng(0))
    >>> round(found.mean.mean, 3), found.lost, found.won, found.p_sign, found.p_photos
    (0.667, 2, 0, 0.5, 0.5)
    """
    first, second = require_finite(before), require_finite(after)
    if len(first) != len(second):
        raise ValueError(f"{len(first)} originals and {len(second)} edits: lengths must be equal")
    differences = first - second
    own = np.unique(np.asarray(photos), return_inverse=True)[1].reshape(-1)
    return DropTest(
        before=float(first.mean()),
        after=float(second.mean()),
        mean=cluster_bootstrap(differences, photos, rng),
        lost=int((differences > 0).sum()),
        won=int((differences < 0).sum()),
        p_sign=sign_test(differences),
        p_photos=sign_flip(np.bincount(own, differences), "two-sided"),
    )
