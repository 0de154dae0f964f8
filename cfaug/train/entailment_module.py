"""Fine-tuning an entailer: the cross-entropy of three labels.

Imports Lightning, so it is only imported when a training starts or ``cfaug`` is asked for it.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional
from torchmetrics import MeanMetric

from cfaug.models.fusion import FusionEntailer
from cfaug.train.contrastive_module import gather_all
from cfaug.train.module import Batch, Steps, TrainingModule


class EntailmentModule(TrainingModule):
    """Fine-tuning of an entailer on labelled pairs of an image and a hypothesis.

    A batch has ``pixels`` uint8 (local, 3, size, size), ``texts`` and ``labels`` int64 (local,),
    indices in ``cfaug.core.types.ENTAILMENT``; ``global_size`` counts the whole batch.

    Args:
        steps: the optimizer, the length of the run and its seed; ``None`` for the defaults.
    """

    def __init__(self, entailer: FusionEntailer, steps: Steps | None = None) -> None:
        super().__init__(steps)
        self.entailer = entailer

    @property
    def trained(self) -> FusionEntailer:
        """The entailer."""
        return self.entailer

    def loss(self, batch: Batch) -> Tensor:
        """Return the mean cross-entropy over the whole batch."""
        logits = self._logits(batch)
        labels = batch["labels"].to(logits.device)
        costs = functional.cross_entropy(logits, labels, reduction="none")
        (costs,) = gather_all([costs[:, None]], batch["global_size"])
        if self.observed:
            right = (logits.argmax(-1) == labels).float()
            self.metrics.update(*gather_all([right[:, None]], batch["global_size"]))
        return costs.mean()

    def make_metric(self, name: str) -> MeanMetric:
        """Return the share of right labels."""
        return MeanMetric(sync_on_compute=False)

    def _logits(self, batch: Batch) -> Tensor:
        if batch["texts"]:
            return self.entailer.logits(batch["pixels"], batch["texts"])
        # The last batch can leave this process without an example, and DDP waits for every
        # parameter: read a blank and discard it.
        size = self.entailer.transform.size
        blank = torch.zeros((1, 3, size, size), dtype=torch.uint8, device=self.device)
        return self.entailer.logits(blank, [""])[:0]

    def share(self, loss: Tensor, batch: Batch, step: list[Batch]) -> Tensor:
        """Return a batch's share of the step's loss by its examples, as if all were one batch."""
        return loss * (batch["global_size"] / sum(micro["global_size"] for micro in step))
