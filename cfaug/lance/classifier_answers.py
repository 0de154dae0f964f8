"""A classifier's answers to images whose class is known: hits, ranks, probabilities."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cfaug.stats.classification import hits_at
from cfaug.stats.stress import softmax, top_classes, truth_probability

SHOWN = 5
"""Number of most probable classes kept for each image, as in LANCE's figures."""

AT_ONCE = 4096
"""Images whose probabilities of all classes are held in memory at a time."""


@dataclass(frozen=True)
class Answers:
    """A classifier's answers to images, in the order of the images.

    Attributes:
        hits: {``acc1``: 1 or 0, float64 (images,)}, and ``acc5`` if there are five classes or more.
        rank: 1 + the number of classes with a larger logit than the true one, int64 (images,).
        p: probability of each image's true class, float64 (images,).
        top: names of the most probable classes, text (images, up to 5).
        top_p: probabilities of the most probable classes, float64 (images, up to 5).
        number: column of each image's true class in the logits, int64 (images,).
        class_name: the model's name of each image's true class, text (images,).
    """

    hits: Mapping[str, np.ndarray]
    rank: np.ndarray
    p: np.ndarray
    top: np.ndarray
    top_p: np.ndarray
    number: np.ndarray
    class_name: np.ndarray


def judge(
    logits_MC: np.ndarray,
    places: np.ndarray,
    truth: np.ndarray,
    classes: Sequence[str],
    top_k: int | None = None,
) -> Answers:
    """Compare logits with the truth.

    Args:
        logits_MC: logits of the distinct images, (distinct images, classes).
        places: the row of ``logits_MC`` that belongs to each image, integers (images,).
        truth: column of each image's true class, integers (images,).
        classes: class names in the order of the logits.
        top_k: probabilities are 0 where this many other classes are more probable, as for
            ``cfaug.stats.stress.truth_probability``; ``None`` keeps all probabilities.
    """
    named = np.array(classes, dtype=object)
    hits: list[Mapping[str, np.ndarray]] = []
    rank, p, top, top_p = [], [], [], []
    for start in range(0, len(places), AT_ONCE):
        own = truth[start : start + AT_ONCE]
        logits = logits_MC[places[start : start + AT_ONCE]]
        every = softmax(logits)
        best, best_p = top_classes(every, SHOWN)
        hits.append(hits_at(logits, own))
        rank.append(1 + (logits > logits[np.arange(len(own)), own][:, None]).sum(axis=1))
        p.append(truth_probability(every, own, top_k))
        top.append(named[best])
        top_p.append(best_p)
    return Answers(
        hits={name: np.concatenate([one[name] for one in hits]) for name in hits[0]},
        rank=np.concatenate(rank),
        p=np.concatenate(p),
        top=np.concatenate(top),
        top_p=np.concatenate(top_p),
        number=truth,
        class_name=named[truth],
    )
