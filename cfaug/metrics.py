"""The metrics of ``cfaug.stats`` as ``torchmetrics``: for any LightningModule or MetricCollection.

Every metric keeps a few numbers of each row that it saw, gathers those of all processes, and calls
the pure function that the evaluations use, so a number here is the number there. Counts and means
do not depend on how rows are divided among processes. Values are float64, on MPS float32.

>>> from torchmetrics import MetricCollection
>>> metrics = MetricCollection({"R@1": ImageTextRecall(1), "R@2": ImageTextRecall(2)})
>>> metrics.update(torch.eye(2), torch.tensor([[1.0, 0.0], [1.0, 0.1]]))
>>> {name: value.item() for name, value in metrics.compute().items()}
{'R@1': 0.75, 'R@2': 1.0}
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities import dim_zero_cat

from cfaug.stats import choices, classification, ranking, skew_metrics

Direction = Literal["both", "image_to_text", "text_to_image"]


class RowMetric(Metric, ABC):
    """A metric that keeps numbers of every row until ``compute``.

    Args:
        rows: the type of the numbers by name; each becomes a state that is concatenated over
            processes. ``torch.float64`` is float32 on MPS, which has no other.
        kwargs: arguments of ``torchmetrics.Metric``, such as ``sync_on_compute``.
    """

    is_differentiable = False
    higher_is_better: bool | None = True
    full_state_update = False
    plot_lower_bound: float | None = 0.0
    plot_upper_bound: float | None = 1.0

    def __init__(self, rows: Mapping[str, torch.dtype], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._types = dict(rows)
        for name in rows:
            self.add_state(name, [], dist_reduce_fx="cat")

    @abstractmethod
    def value(self, rows: Mapping[str, np.ndarray]) -> float | Mapping[str, float]:
        """Return the metric of all rows of all processes."""

    def compute(self) -> Tensor | dict[str, Tensor]:
        """Return the metric over all rows: a scalar, or scalars by name.

        Raises:
            ValueError: if there is no row, or the values are invalid.
        """
        rows = {}
        for name in self._types:
            state = getattr(self, name)
            rows[name] = ranking.as_array(dim_zero_cat(state) if len(state) else torch.zeros(0))
        if not any(map(len, rows.values())):
            raise ValueError(f"{type(self).__name__} saw no row: call update before compute")
        result = self.value(rows)
        if isinstance(result, Mapping):
            return {name: self._scalar(number) for name, number in result.items()}
        return self._scalar(result)

    def plot(self, val: Any = None, ax: Any = None) -> Any:
        """Plot a value, or a list of values over steps, by torchmetrics; default: ``compute()``.

        Returns:
            The figure and the axes of matplotlib.
        """
        return self._plot(val, ax)

    def _keep(self, **rows: Any) -> None:
        """Append numbers of further rows, flattened."""
        for name, values in rows.items():
            there = torch.as_tensor(values).detach().reshape(-1)
            getattr(self, name).append(there.to(self.device, self._type(name)))

    def _type(self, name: str) -> torch.dtype:
        dtype = self._types[name]
        single = dtype == torch.float64 and self.device.type == "mps"
        return torch.float32 if single else dtype

    def _scalar(self, number: float) -> Tensor:
        dtype = torch.float32 if self.device.type == "mps" else torch.float64
        return torch.tensor(number, dtype=dtype, device=self.device)

    def _sync_dist(self, *args: Any, **kwargs: Any) -> None:
        # For a process without a row torchmetrics gathers an empty float32, whatever the others'
        # type, which they would read as numbers of their own type.
        for name in self._types:
            if not getattr(self, name):
                empty = torch.zeros(0, dtype=self._type(name), device=self.device)
                setattr(self, name, [empty])
        super()._sync_dist(*args, **kwargs)


class ImageTextRecall(RowMetric):
    """Recall@k between images and texts by the cosine of their embeddings.

    A text is right if its image is among the k best; an image is right if any of its texts is
    (``cfaug.stats.ranking``). Embeddings are kept in float32: 8 bytes a row and dimension.

    Args:
        k: the number of best candidates that count.
        direction: ``image_to_text``, ``text_to_image``, or the mean of both.
        ties: rule for equal scores: ``mean`` over their orders, ``min`` (the right candidate first)
            or ``max`` (last).

    >>> metric = ImageTextRecall(direction="text_to_image")
    >>> images, texts = torch.eye(2)[[0, 0, 1]], torch.tensor([[2.0, 0], [0.1, 1], [0, 3]])
    >>> metric(images, texts, torch.tensor([7, 7, 9])).item()  # two texts of image 7
    0.6666666666666666
    """

    def __init__(
        self,
        k: int = 1,
        direction: Direction = "both",
        ties: ranking.Ties = "mean",
        **kwargs: Any,
    ) -> None:
        types = {"images": torch.float32, "texts": torch.float32, "image_ids": torch.int64}
        super().__init__(types, **kwargs)
        self.add_state("dim", torch.tensor(0), dist_reduce_fx="max")
        _check("direction", direction, get_args(Direction))
        _check("ties", ties, get_args(ranking.Ties))
        self.k, self.direction, self.ties = k, direction, ties

    def update(self, images: Tensor, texts: Tensor, image_ids: Tensor | None = None) -> None:
        """Add pairs of an image and a text.

        Args:
            images: image embeddings, (pairs, dim).
            texts: text embeddings, (pairs, dim).
            image_ids: the number of each pair's image, 0 or more, int64 (pairs,): pairs of one
                image, in all processes, have the same. ``None``: every pair has its own image.

        Raises:
            ValueError: if shapes disagree.
        """
        if images.ndim != 2 or images.shape != texts.shape:
            raise ValueError(f"images {_shape(images)} and texts {_shape(texts)} are no pairs")
        if image_ids is None:
            image_ids = torch.full((len(images),), -1)
        elif image_ids.shape != (len(images),) or (image_ids < 0).any():
            raise ValueError("image_ids should be a number from 0 for each pair")
        self.dim = torch.tensor(images.shape[1], device=self.device)
        self._keep(images=images, texts=texts, image_ids=image_ids)

    def value(self, rows: Mapping[str, np.ndarray]) -> float:
        """Return the recall, from 0 to 1."""
        ids = rows["image_ids"]
        ids = np.where(ids < 0, ids.max(initial=0) + 1 + np.arange(len(ids)), ids)
        _, first, image_of_text = np.unique(ids, return_index=True, return_inverse=True)
        images, texts = (rows[name].reshape(-1, int(self.dim)) for name in ("images", "texts"))
        standings = ranking.standings(texts, images[first], image_of_text)
        ways = standings if self.direction == "both" else [self.direction]
        return float(np.mean([standings[way].hits(self.k, self.ties).mean() for way in ways]))


class MeanPerClassRecall(RowMetric):
    """Top-1 accuracy averaged over the classes that occur, CLIP's metric for Caltech101.

    Args:
        ties: rule for equal scores, see ``ImageTextRecall``.

    >>> MeanPerClassRecall()(torch.tensor([[0.9, 0.1], [0.8, 0.2], [0.9, 0.3]]),
    ...                      torch.tensor([0, 0, 1])).item()
    0.5
    """

    def __init__(self, ties: ranking.Ties = "mean", **kwargs: Any) -> None:
        super().__init__(dict.fromkeys(("above", "tied", "classes"), torch.int64), **kwargs)
        _check("ties", ties, get_args(ranking.Ties))
        self.ties: ranking.Ties = ties

    def update(self, preds: Tensor, target: Tensor) -> None:
        """Add items.

        Args:
            preds: score of each class, larger is better, (items, classes).
            target: index of each item's class, int64 (items,).

        Raises:
            ValueError: if shapes disagree, or a score is not finite.
        """
        ranks, _ = classification.class_standing(preds, target)
        self._keep(above=ranks.above, tied=ranks.tied, classes=target)

    def value(self, rows: Mapping[str, np.ndarray]) -> float:
        """Return the mean recall of classes, from 0 to 1."""
        above, tied = rows["above"], rows["tied"]
        hits = ranking.QueryRanks(above, tied, np.ones_like(above)).hits(1, self.ties)
        return classification.mean_over_classes(hits, rows["classes"])


class ChoiceAccuracy(RowMetric):
    """Share of items whose every true option scores above every false one.

    Args:
        ties: rule for a tie of the worst true with the best false option: ``miss`` (SugarCrepe),
            ``half`` or ``hit``.

    >>> metric = ChoiceAccuracy(ties="half")
    >>> metric(torch.tensor([[0.9, 0.1], [0.5, 0.5]]), torch.tensor([0, 1])).item()
    0.75
    >>> metric(torch.tensor([[0.9, 0.5, 0.2]]), torch.tensor([[1, 1, 0]])).item()
    1.0
    """

    def __init__(self, ties: choices.Ties = "miss", **kwargs: Any) -> None:
        super().__init__({"true": torch.float64, "false": torch.float64}, **kwargs)
        _check("ties", ties, get_args(choices.Ties))
        self.ties: choices.Ties = ties

    def update(self, preds: Tensor, target: Tensor) -> None:
        """Add items.

        Args:
            preds: score of each option, larger is better, (items, options).
            target: index of the true option, int64 (items,), or 1 (true), 0 (false) or -1 (no
                option) for each, (items, options).

        Raises:
            ValueError: if shapes disagree, a score is not finite, or an item lacks a true or a
                false option.
        """
        if target.ndim == 1:
            if len(target) and not 0 <= target.min() <= target.max() < preds.shape[-1]:
                raise ValueError(f"a target is outside 0 to {preds.shape[-1] - 1}")
            target = torch.nn.functional.one_hot(target.long(), preds.shape[-1])
        true, false = choices.extremes(preds, ranking.as_array(target))
        self._keep(true=true, false=false)

    def value(self, rows: Mapping[str, np.ndarray]) -> float:
        """Return the accuracy, from 0 to 1."""
        scores = np.stack([rows["true"], rows["false"]], axis=1)
        truth = np.broadcast_to([choices.TRUE, choices.FALSE], scores.shape)
        return float(choices.choice_hits(scores, truth, self.ties).mean())


class PairScores(RowMetric):
    """Winoground's text, image and group score of two images with two captions; a tie is a miss.

    >>> scores = PairScores()(torch.tensor([[[0.9, 0.5], [0.1, 0.6]], [[0.5, 0.5], [0.5, 0.5]]]))
    >>> {name: score.item() for name, score in scores.items()}
    {'text_score': 0.5, 'image_score': 0.5, 'group_score': 0.5}
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__({"similarities": torch.float64}, **kwargs)

    def update(self, similarities: Tensor) -> None:
        """Add pairs.

        Args:
            similarities: (pairs, captions, images) = (pairs, 2, 2), larger is more alike; caption i
                belongs to image i.

        Raises:
            ValueError: if the shape is wrong.
        """
        if similarities.ndim != 3 or similarities.shape[1:] != (2, 2):
            raise ValueError(f"similarities should be (pairs, 2, 2), not {_shape(similarities)}")
        self._keep(similarities=similarities)

    def value(self, rows: Mapping[str, np.ndarray]) -> dict[str, float]:
        return choices.winoground(rows["similarities"].reshape(-1, 2, 2))


class MatchingGap(RowMetric):
    """How much higher the right pair scores than with another image (IR) or text (TR), the means.

    COCO-Counterfactuals, section 4.2.2; in units of the score (``cfaug.stats.ranking``).

    Args:
        kind: ``c`` if the other image and text are the counterfactual's, ``r`` if they are of a
            random pair; it ends the names.

    >>> gaps = MatchingGap()(torch.tensor([3.0]), torch.tensor([1.0]), torch.tensor([4.0]))
    >>> {name: gap.item() for name, gap in gaps.items()}
    {'IR_c': 2.0, 'TR_c': -1.0}
    """

    plot_lower_bound = plot_upper_bound = None

    def __init__(self, kind: Literal["r", "c"] = "c", **kwargs: Any) -> None:
        names = ("right", "other_image", "other_text")
        super().__init__(dict.fromkeys(names, torch.float64), **kwargs)
        _check("kind", kind, tuple(ranking.SCORES))
        self.kind = kind

    def update(self, right: Tensor, other_image: Tensor, other_text: Tensor) -> None:
        """Add pairs.

        Args:
            right: score of each right pair, (pairs,).
            other_image: score of the right text with the other image, (pairs,).
            other_text: score of the other text with the right image, (pairs,).

        Raises:
            ValueError: if shapes disagree.
        """
        if right.ndim != 1 or not right.shape == other_image.shape == other_text.shape:
            raise ValueError("the three scores should have one shape, (pairs,)")
        self._keep(right=right, other_image=other_image, other_text=other_text)

    def value(self, rows: Mapping[str, np.ndarray]) -> dict[str, float]:
        """Return the mean gaps."""
        gaps = ranking.gaps(dict(zip(ranking.SCORES[self.kind], rows.values(), strict=True)))
        return {name: ranking.summary(gap).mean for name, gap in gaps.items()}


class RankedLabels(RowMetric):
    """A metric of the labels of images that are ranked for several queries.

    Args:
        desired: desired share, or count, of each label; ``None`` takes a query's own images.
    """

    higher_is_better = False
    plot_upper_bound = None

    def __init__(self, desired: Sequence[float] | None = None, **kwargs: Any) -> None:
        names = ("labels", "queries", "image_ids")
        super().__init__({"scores": torch.float64, **dict.fromkeys(names, torch.int64)}, **kwargs)
        self.desired = None if desired is None else np.asarray(desired, np.float64)

    def update(self, preds: Tensor, target: Tensor, indexes: Tensor, image_ids: Tensor) -> None:
        """Add images, each for one query.

        Args:
            preds: score of each image, larger is better, (images,).
            target: index of each image's label, int64 (images,).
            indexes: number of the query that each score is of, int64 (images,).
            image_ids: number of each image, int64 (images,): it orders equal scores, at random but
                always alike.

        Raises:
            ValueError: if shapes disagree.
        """
        if preds.ndim != 1 or {preds.shape} != {target.shape, indexes.shape, image_ids.shape}:
            raise ValueError(
                "preds, target, indexes and image_ids should have one shape, (images,)"
            )
        self._keep(scores=preds, labels=target, queries=indexes, image_ids=image_ids)

    def value(self, rows: Mapping[str, np.ndarray]) -> float:
        by_query = []
        for query in np.unique(rows["queries"]):
            mine = np.flatnonzero(rows["queries"] == query)
            ids = [str(image_id) for image_id in rows["image_ids"][mine].tolist()]
            labels = rows["labels"][mine][skew_metrics.rank_images(rows["scores"][mine], ids)]
            desired: np.ndarray | None = self.desired
            if desired is None:
                _, labels, desired = np.unique(labels, return_inverse=True, return_counts=True)
            by_query.append(self.of_ranking(labels, desired))
        return float(np.mean(by_query))

    @abstractmethod
    def of_ranking(self, labels: np.ndarray, desired: np.ndarray) -> float:
        """Return the metric of one query's labels, the best image first."""


class MaxSkew(RankedLabels):
    """MaxSkew@K, averaged over queries: the largest skew of any label, 0 or more (natural log).

    Args:
        k: the number of best images whose labels are counted.
        desired: desired share of each label; ``None``: its share of the query's images.

    >>> labels, ids = torch.tensor([0, 1, 0, 1]), torch.arange(4)
    >>> scores = torch.tensor([0.9, 0.2, 0.8, 0.1])
    >>> round(MaxSkew(2)(scores, labels, torch.zeros(4).long(), ids).item(), 3)  # both are of 0
    0.693
    """

    def __init__(self, k: int, desired: Sequence[float] | None = None, **kwargs: Any) -> None:
        super().__init__(desired, **kwargs)
        self.k = k

    def of_ranking(self, labels: np.ndarray, desired: np.ndarray) -> float:
        """Return MaxSkew@K of one ranking."""
        [counts] = skew_metrics.count_top(labels, len(desired), [self.k])
        return float(skew_metrics.max_skew(counts, desired))


class NDKL(RankedLabels):
    """NDKL, averaged over queries: how far every prefix of a ranking is from the desired shares.

    Args:
        desired: desired share of each label; ``None``: its share of the query's images.
        at: length of the longest prefix; ``None`` is the whole ranking.

    >>> two = torch.arange(2)
    >>> round(NDKL()(torch.tensor([0.9, 0.2]), two, torch.zeros(2).long(), two).item(), 4)
    0.425
    """

    def __init__(
        self, desired: Sequence[float] | None = None, at: int | None = None, **kwargs: Any
    ) -> None:
        super().__init__(desired, **kwargs)
        self.at = at

    def of_ranking(self, labels: np.ndarray, desired: np.ndarray) -> float:
        return skew_metrics.ndkl(labels, desired, self.at)


class CounterfactualAccuracy(RowMetric):
    """Accuracies of basic and counterfactual questions about the same images (CFMM, section 3.4).

    ``acc_b``, ``acc_c``, ``acc_plus`` (both right), ``strict``, ``consistency``, ``drop`` and
    ``phi``, the correlation of right answers; see ``cfaug.stats.choices.Accuracies``. Images with
    questions of only one kind do not count.

    >>> metric = CounterfactualAccuracy()
    >>> chosen, right = torch.tensor([0, 1, 0, 0]), torch.tensor([0, 1, 0, 1])
    >>> images, edited = torch.tensor([4, 4, 5, 5]), torch.tensor([False, True, False, True])
    >>> scores = metric(chosen, right, images, edited)
    >>> scores["acc_b"].item(), scores["acc_c"].item(), scores["acc_plus"].item()
    (1.0, 0.5, 0.5)
    """

    plot_lower_bound = -1.0  # of phi

    def __init__(self, **kwargs: Any) -> None:
        types = {"right": torch.bool, "images": torch.int64, "counterfactual": torch.bool}
        super().__init__(types, **kwargs)

    def update(
        self, preds: Tensor, target: Tensor, image_ids: Tensor, counterfactual: Tensor
    ) -> None:
        """Add questions.

        Args:
            preds: index of the chosen option, int64 (questions,), or score of each, larger is
                better, (questions, options); a tie is not right.
            target: index of the right option, int64 (questions,).
            image_ids: number of each question's image, int64 (questions,).
            counterfactual: whether it is the counterfactual, not the basic question, bool
                (questions,).

        Raises:
            ValueError: if shapes disagree, or a score is not finite.
        """
        if target.ndim != 1 or not target.shape == image_ids.shape == counterfactual.shape:
            raise ValueError("target, image_ids and counterfactual should be (questions,)")
        if preds.ndim == 2:
            hits = classification.hits_at(preds, target, ks=(1,), ties="max")["acc1"]
            right = torch.as_tensor(hits > 0)
        elif preds.shape == target.shape:
            right = preds == target
        else:
            raise ValueError(f"preds {_shape(preds)} do not fit target {_shape(target)}")
        self._keep(right=right, images=image_ids, counterfactual=counterfactual)

    def value(self, rows: Mapping[str, np.ndarray]) -> dict[str, float]:
        """Return the accuracies by name; NaN without an image with questions of both kinds."""
        right, edited = rows["right"].astype(bool), rows["counterfactual"].astype(bool)
        basic: dict[int, bool] = {}
        others: dict[int, list[bool]] = {}
        for image, hit, is_edited in zip(
            rows["images"].tolist(), right.tolist(), edited.tolist(), strict=True
        ):
            if is_edited:
                others.setdefault(image, []).append(hit)
            elif image in basic:
                raise ValueError(f"image {image} has several basic questions")
            else:
                basic[image] = hit
        both = sorted(basic.keys() & others.keys())
        accuracies = asdict(
            choices.accuracies(
                np.array([basic[image] for image in both], bool),
                [np.array(others[image]) for image in both],
            )
        )
        del accuracies["images"]
        return accuracies


def _check(name: str, value: str, known: Sequence[str]) -> None:
    if value not in known:
        raise ValueError(f"{name}={value!r}: choose from {', '.join(known)}")


def _shape(tensor: Tensor) -> tuple[int, ...]:
    return tuple(tensor.shape)
