"""Fine-tuning a classifier of images, or an entailer: the cross-entropy of labels.

Imports Lightning, so it is only imported when a training starts or code takes it from ``cfaug``.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional
from torchmetrics import MeanMetric

from cfaug.core.devices import send
from cfaug.models.classifiers import TrainedClassifier
from cfaug.models.fusion import FusionEntailer
from cfaug.train.contrastive_module import gather_all
from cfaug.train.module import TrainingModule
from cfaug.train.records import Batch, Steps
from cfaug.train.settings import Augmentation, ClassLoss


class _LabelModule(TrainingModule):
    """Fine-tuning on labelled examples, whose ``labels`` are int64 (local,)."""

    smoothing = 0.0

    @abstractmethod
    def logits(self, batch: Batch) -> Tensor:
        """Return this process's logits, (local, classes); a batch may have no example here."""

    def targets(self, batch: Batch) -> Tensor:
        """Return the class of each example, int64 (local,), or its shares, (local, classes)."""
        labels: Tensor = batch["labels"]
        return labels

    def choose(self, logits: Tensor) -> Tensor:
        """Return the logits of the labels, a column each, for the accuracy."""
        return logits

    def loss(self, batch: Batch) -> Tensor:
        """Return the mean cross-entropy over the whole batch."""
        logits = self.logits(batch)
        targets = send(self.targets(batch), logits.device)
        smoothing = self.smoothing if torch.is_grad_enabled() else 0.0
        costs = functional.cross_entropy(
            logits, targets, reduction="none", label_smoothing=smoothing
        )
        (costs,) = gather_all([costs[:, None]], batch["global_size"])
        if self.observed:
            labels = send(batch["labels"], logits.device)
            right = (self.choose(logits).argmax(-1) == labels).float()
            self.metrics.update(*gather_all([right[:, None]], batch["global_size"]))
        return costs.mean()

    def make_metric(self, name: str) -> MeanMetric:
        return MeanMetric(sync_on_compute=False)

    def share(self, loss: Tensor, batch: Batch, step: list[Batch]) -> Tensor:
        """Return a batch's share of the step's loss by its examples, as if all were one batch."""
        return loss * (batch["global_size"] / sum(micro["global_size"] for micro in step))

    def _blank(self) -> Tensor:
        """Return a blank image, uint8 (1, 3, size, size), to read and discard.

        The last batch can leave a process without an example, and DDP waits for every parameter.
        """
        size = self.trained.transform.size
        return torch.zeros((1, 3, size, size), dtype=torch.uint8, device=self.device)


class EntailmentModule(_LabelModule):
    """Fine-tuning of an entailer on labelled pairs of an image and a hypothesis.

    A batch has ``pixels`` uint8 (local, 3, size, size), ``texts`` and ``labels`` int64 (local,),
    indices in ``cfaug.core.types.ENTAILMENT``; ``global_size`` counts the whole batch.

    Args:
        steps: the optimizer, the length of the run and its seed; ``None`` for the defaults.
    """

    def __init__(self, entailer: FusionEntailer, steps: Steps | None = None) -> None:
        super().__init__(steps)
        self.require(entailer, FusionEntailer)
        self.entailer = entailer

    @property
    def trained(self) -> FusionEntailer:
        return self.entailer

    def logits(self, batch: Batch) -> Tensor:
        """Return the logits of this process's pairs, (local, 3)."""
        if batch["texts"]:
            return self.entailer.logits(batch["pixels"], batch["texts"])
        return self.entailer.logits(self._blank(), [""])[:0]


class ClassificationModule(_LabelModule):
    """Fine-tuning of an image classifier on labelled images.

    A batch has ``pixels`` uint8 (local, 3, size, size) and ``labels`` int64 (local,);
    ``global_size`` counts the whole batch. As everywhere in torch, batch normalisation sees the
    images of its own process.

    Args:
        steps: the optimizer, the length of the run and its seed; ``None`` for the defaults.
        columns: the number of the logit of each label; ``None`` if labels are the logits' numbers.
        settings: label smoothing and augmentation; ``None`` for neither.
    """

    def __init__(
        self,
        classifier: TrainedClassifier,
        steps: Steps | None = None,
        *,
        columns: Sequence[int] | None = None,
        settings: ClassLoss | None = None,
    ) -> None:
        super().__init__(steps)
        self.require(classifier, TrainedClassifier)
        self.classifier = classifier
        self.settings = ClassLoss() if settings is None else settings
        self.smoothing = self.settings.label_smoothing
        numbers = torch.tensor(columns or range(len(classifier.classes)))
        self._columns: Tensor
        self.register_buffer("_columns", numbers, persistent=False)

    @property
    def trained(self) -> TrainedClassifier:
        return self.classifier

    def loss(self, batch: Batch) -> Tensor:
        """Return the mean cross-entropy over the whole batch; images are augmented in training."""
        if torch.is_grad_enabled() and self.settings.augment and len(batch["pixels"]):
            pixels, targets = augment(
                batch["pixels"], self.targets(batch), len(self.classifier.classes),
                self.settings.augment,
            )  # fmt: skip
            batch = {**batch, "pixels": pixels, "targets": targets}
        return super().loss(batch)

    def targets(self, batch: Batch) -> Tensor:
        """Return the number of each label's logit, or the shares of mixed images."""
        if "targets" in batch:
            targets: Tensor = batch["targets"]
            return targets
        return self._columns[send(batch["labels"], self._columns.device)]

    def choose(self, logits: Tensor) -> Tensor:
        """Return the logits of the labels: a model's other classes do not compete."""
        return logits[:, self._columns]

    def logits(self, batch: Batch) -> Tensor:
        """Return the logits of this process's images, float32 (local, classes)."""
        if len(batch["pixels"]):
            return self.classifier.classify(batch["pixels"])
        return self.classifier.classify(self._blank())[:0]


def augment(
    pixels: Tensor, targets: Tensor, classes: int, kinds: Sequence[Augmentation]
) -> tuple[Tensor, Tensor]:
    """Return augmented images, drawn from torch's generator, and their targets.

    Args:
        pixels: uint8 (n, 3, size, size).
        targets: class numbers, int64 (n,).

    Returns:
        pixels of the same shape and type; and ``targets``, or with ``cutmix`` the share of each
        class in an image, float32 (n, classes).
    """
    from torchvision.transforms import v2

    each = {"flip": v2.RandomHorizontalFlip, "randaugment": v2.RandAugment}
    changes = [make() for name, make in each.items() if name in kinds]
    if changes:
        pixels = torch.stack([v2.Compose(changes)(image) for image in pixels])
    if "cutmix" in kinds:
        pixels, targets = v2.CutMix(num_classes=classes)(pixels, targets)
    return pixels, targets
