"""Fine-tuning a fusion encoder to say whether a text follows from an image. No torch at import."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np

from cfaug.core.types import ENTAILMENT
from cfaug.editing.protocols import round_digits
from cfaug.models.specs import EntailmentLearner
from cfaug.train.mixture_task import MixtureTask

if TYPE_CHECKING:
    from cfaug.data.mixture.loader import Examples, KeptPixels
    from cfaug.models.fusion import FusionEntailer
    from cfaug.train.entailment_module import EntailmentModule


@dataclass(frozen=True, kw_only=True)
class EntailmentTask(MixtureTask):
    """Images with hypotheses, each labelled entailment, neutral or contradiction.

    Attributes: those of :class:`cfaug.train.mixture_task.MixtureTask`.
    """

    measurable: ClassVar[Mapping[str, str]] = {"accuracy": "accuracy"}

    @property
    def classes(self) -> dict[str, dict[str, int]]:
        """The number of examples of each label on either side of the split."""
        counts = {}
        for side, rows in (("train", self.mixture.train), ("validation", self.mixture.validation)):
            labels = Counter(
                cast("Any", self.indexes[source]).label(row) for source, row in rows.tolist()
            )
            counts[side] = {label: labels[label] for label in ENTAILMENT}
        return counts

    def load(self) -> FusionEntailer:
        """Return the encoder with its head, which the run's seed draws if there is none."""
        spec = cast("EntailmentLearner", self.model)
        entailer: FusionEntailer = spec.load_to_train(self.seed)
        return entailer

    @property
    def kind(self) -> type[EntailmentModule]:
        """The module of entailment."""
        from cfaug.train.entailment_module import EntailmentModule

        return EntailmentModule

    def make_module(
        self, trained: FusionEntailer, total_steps: int | None, kind: Any = None
    ) -> EntailmentModule:
        """Return the entailer with its loss and its optimizer."""
        module: EntailmentModule = (kind or self.kind)(trained, self.make_steps(total_steps))
        return module

    def make_examples(
        self, trained: FusionEntailer, rows: int, kept: KeptPixels | None
    ) -> Examples:
        """Return the dataset of images with their hypotheses and labels."""
        from cfaug.data.mixture.loader import Examples

        return Examples(self.indexes, trained.transform, rows, kept, classes=ENTAILMENT)

    def save(self, trained: FusionEntailer, folder: Path) -> None:
        """Write the encoder, adapters merged, with its head and its processor."""
        from cfaug.models.lora import merge

        merge(trained.model)
        trained.save(folder)

    def record(self) -> dict[str, Any]:
        """Return the mixing ratio and the labels' counts."""
        return {**super().record(), "classes": self.classes}

    def describe(self) -> dict[str, Any]:
        """Return the description of the mixture, and the labels' counts."""
        return {**super().describe(), "classes": self.classes}

    def measure(self, trained: FusionEntailer) -> dict[str, Any]:
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
                logits = trained.logits(batch["pixels"], batch["texts"])
            truth.append(batch["labels"].numpy())
            predicted.append(logits.argmax(-1).cpu().numpy())
        trained.cpu()
        matrix = confusion_matrix(np.concatenate(truth), np.concatenate(predicted), len(ENTAILMENT))
        scores = macro_scores(matrix)
        return {
            "evaluation": {
                **{name: round_digits(value) for name, value in vars(scores).items()},
                "confusion": matrix.tolist(),
            }
        }
