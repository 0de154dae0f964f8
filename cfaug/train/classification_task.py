"""Fine-tuning classifiers: of images, and of pairs of an image and a text. No torch at import."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np

from cfaug.core.types import ENTAILMENT
from cfaug.editing.protocols import round_digits
from cfaug.models.checkpoints import Matching
from cfaug.models.specs import ClassifierLearner, EntailmentLearner
from cfaug.train.mixture_task import MixtureTask

if TYPE_CHECKING:
    from torch import Tensor

    from cfaug.data.mixture.loader import Examples, KeptPixels
    from cfaug.models.classifiers import TrainedClassifier
    from cfaug.models.fusion import FusionEntailer
    from cfaug.train.classification_module import ClassificationModule, EntailmentModule
    from cfaug.train.settings import ClassLoss


@dataclass(frozen=True, kw_only=True)
class LabelTask(MixtureTask):
    """Images, with texts or without, of which each has a label that is learnt by cross-entropy.

    Attributes: those of :class:`cfaug.train.mixture_task.MixtureTask`.
    """

    measurable: ClassVar[Mapping[str, str]] = {"accuracy": "accuracy"}

    @property
    @abstractmethod
    def learnt(self) -> Sequence[str]:
        """The labels; a batch's ``labels`` are numbers in this order."""

    @abstractmethod
    def predict(self, trained: Any, batch: Mapping[str, Any]) -> Tensor:
        """Return the logits of a batch's examples, a column for each label of ``learnt``."""

    @property
    def classes(self) -> dict[str, dict[str, int]]:
        """The number of examples of each label on either side of the split."""
        counts = {}
        for side, rows in (("train", self.mixture.train), ("validation", self.mixture.validation)):
            labels = Counter(
                cast("Any", self.indexes[source]).label(row) for source, row in rows.tolist()
            )
            counts[side] = {label: labels[label] for label in self.learnt}
        return counts

    def make_examples(self, trained: Any, rows: int, kept: KeptPixels | None) -> Examples:
        """Return the dataset of images with their texts and labels."""
        from cfaug.data.mixture.loader import Examples

        return Examples(self.indexes, trained.transform, rows, kept, classes=self.learnt)

    def record(self) -> dict[str, Any]:
        return {**super().record(), "classes": self.classes}

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), "classes": self.classes}

    def measure(self, trained: Any) -> dict[str, Any]:
        """Return the accuracy, macro scores and confusion matrix on the validation split."""
        import torch

        from cfaug.stats.classification import confusion_matrix, macro_scores
        from cfaug.train.engine import device_of

        if not len(self.mixture.validation):
            return {}
        device = device_of(self.trainer)
        trained.eval().to(device)
        truth, predicted = [], []
        for batch in self.validation_batches(trained, None, 0, 1):
            with torch.inference_mode():
                logits = self.predict(trained, batch)
            truth.append(batch["labels"].numpy())
            predicted.append(logits.argmax(-1).cpu().numpy())
        trained.cpu()
        matrix = confusion_matrix(
            np.concatenate(truth), np.concatenate(predicted), len(self.learnt)
        )
        scores = macro_scores(matrix)
        return {
            "evaluation": {
                **{name: round_digits(value) for name, value in vars(scores).items()},
                "confusion": matrix.tolist(),
            }
        }


@dataclass(frozen=True, kw_only=True)
class EntailmentTask(LabelTask):
    """Images with hypotheses, each labelled entailment, neutral or contradiction.

    Attributes: those of :class:`cfaug.train.mixture_task.MixtureTask`.
    """

    learnt = ENTAILMENT

    def load(self) -> FusionEntailer:
        """Return the encoder with its head, which the run's seed draws if there is none."""
        spec = cast("EntailmentLearner", self.model)
        entailer: FusionEntailer = spec.load_to_train(self.seed)
        return entailer

    @property
    def kind(self) -> type[EntailmentModule]:
        from cfaug.train.classification_module import EntailmentModule

        return EntailmentModule

    def make_module(
        self, trained: FusionEntailer, total_steps: int | None, kind: Any = None
    ) -> EntailmentModule:
        """Return the entailer with its loss and its optimizer."""
        module: EntailmentModule = (kind or self.kind)(trained, self.make_steps(total_steps))
        return module

    def predict(self, trained: FusionEntailer, batch: Mapping[str, Any]) -> Tensor:
        """Return the logits of a batch's pairs, float32 (n, 3)."""
        return trained.logits(batch["pixels"], batch["texts"])


@lru_cache(maxsize=4)  # called for every batch that is measured
def _find_columns(
    match: Matching, labels: tuple[str, ...], classes: tuple[str, ...], owner: str
) -> np.ndarray:
    numbers: np.ndarray = match(labels, classes, owner)
    return numbers


@dataclass(frozen=True, kw_only=True)
class ClassificationTask(LabelTask):
    """Images with the names of their classes; a member of a set has its own label.

    If every label names a class of the model, as folders of WordNet ids do for a model of ImageNet,
    its head is kept. If no label does, the head is new, with the labels of both sources as classes,
    and the run's seed draws it.

    Attributes: those of :class:`cfaug.train.mixture_task.MixtureTask`, and
        labels: the labels of both sources, sorted.
        match: the rule by which labels name classes, that of the benchmarks.
        loss: label smoothing and augmentation; ``None`` for neither.
    """

    labels: tuple[str, ...]
    match: Matching
    loss: ClassLoss | None = None

    @property
    def learnt(self) -> Sequence[str]:
        return self.labels

    def load(self) -> TrainedClassifier:
        """Return the classifier, with its own head or a new one."""
        spec = cast("ClassifierLearner", self.model)
        classifier: TrainedClassifier = spec.load_with_head(self.labels, self.seed, self.match)
        return classifier

    def columns(self, trained: TrainedClassifier) -> np.ndarray:
        """Return the number of the logit of each label, int64 (labels,)."""
        owner = getattr(self.model, "owner", type(self.model).__name__)
        return _find_columns(self.match, self.labels, trained.classes, owner)

    @property
    def kind(self) -> type[ClassificationModule]:
        from cfaug.train.classification_module import ClassificationModule

        return ClassificationModule

    def make_module(
        self, trained: TrainedClassifier, total_steps: int | None, kind: Any = None
    ) -> ClassificationModule:
        """Return the classifier with its loss and its optimizer."""
        module: ClassificationModule = (kind or self.kind)(
            trained, self.make_steps(total_steps), columns=self.columns(trained).tolist(),
            settings=self.loss,
        )  # fmt: skip
        return module

    def record(self) -> dict[str, Any]:
        return {**super().record(), "labels": list(self.labels)}

    def predict(self, trained: TrainedClassifier, batch: Mapping[str, Any]) -> Tensor:
        """Return the logits of the labels, float32 (n, labels): other classes do not compete."""
        return trained.classify(batch["pixels"])[:, self.columns(trained).tolist()]
