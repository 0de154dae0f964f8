"""Zero-shot classification: class vectors from templates, accuracies, mean recall per class."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cfaug.stats.ranking import Candidates, QueryRanks, Ties, as_array, first_equal, standing, unit


def fill_templates(templates: Sequence[str], class_names: Sequence[str]) -> list[str]:
    """Return the prompts, every template of the first class first: (classes * templates,).

    ``{c}`` stands for the class name, as in CLIP_benchmark's files; nothing else is interpreted.

    Args:
        templates: prompts with ``{c}`` in place of the class name, at least one.
        class_names: names of the classes, at least one.

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
    found, _ = _standing(sim_NC, labels)
    n_classes = as_array(sim_NC).shape[1]
    return {f"acc{k}": found.hits(k, ties) for k in ks if k <= n_classes}


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
    found, classes = _standing(sim_NC, labels)
    hits = found.hits(1, ties)
    return float(np.mean([hits[classes == c].mean() for c in np.unique(classes)]))


def _standing(sim_NC: Any, labels: Any) -> tuple[QueryRanks, np.ndarray]:
    sim, classes = as_array(sim_NC), as_array(labels)
    if sim.ndim != 2 or classes.shape != (len(sim),) or not len(sim):
        raise ValueError(f"scores {sim.shape} and labels {classes.shape} do not fit")
    return standing(sim, classes, np.arange(sim.shape[1])), classes
