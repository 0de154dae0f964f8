"""Fine-tuning a dual encoder on an exact mixture of real and counterfactual pairs.

No torch at import.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cfaug.core.protocols import DualEncoder
from cfaug.data.mixture.records import COUNTERFACTUAL
from cfaug.train.mixture_task import MixtureTask

if TYPE_CHECKING:
    from cfaug.data.mixture.hard_negatives import PairNegatives
    from cfaug.data.mixture.loader import Examples, KeptPixels
    from cfaug.models.encoder import Encoder
    from cfaug.train.contrastive_module import ContrastiveModule
    from cfaug.train.settings import LossSettings


@dataclass(frozen=True, kw_only=True)
class ContrastiveTask(MixtureTask):
    """Images and their captions, drawn together.

    Attributes: those of :class:`cfaug.train.mixture_task.MixtureTask`, and
        loss: the weights of negatives; ``None`` is the authors' loss.
    """

    loss: LossSettings | None = None

    def load(self) -> Encoder:
        """Return the dual encoder with its initial weights."""
        encoder: Encoder = self.model.load(DualEncoder)
        return encoder

    def make_module(self, trained: Encoder, total_steps: int) -> ContrastiveModule:
        """Return the encoder with its loss and its optimizer.

        Raises:
            UserError: for a loss, or encoding in chunks, that the model does not support.
        """
        from cfaug.train.contrastive_module import ContrastiveModule, refuse_negatives
        from cfaug.train.module import refuse_batch_norm

        pieces = self.trainer.micro_batch_size
        if self.data.negatives in ("text", "image") and not trained.takes_negatives:
            refuse_negatives(f"data.negatives={self.data.negatives}", "data.negatives=both or none")
        module = ContrastiveModule(
            trained, self.make_steps(total_steps), weighting=self.loss, micro_batch_size=pieces
        )
        if pieces is not None:
            refuse_batch_norm(trained.train())
        return module

    def make_examples(self, trained: Encoder, rows: int, kept: KeptPixels | None) -> Examples:
        """Return the dataset of images with their captions."""
        from cfaug.data.mixture.loader import Examples

        neutral = self.loss is not None and self.loss.set_invariance > 0
        return Examples(
            self.indexes, trained.transform, rows, kept, self.captions, neutral, pairs=self.pairs
        )

    @property
    def pairs(self) -> PairNegatives | None:
        """The counterfactuals' wrong answers; ``None`` if ``data.negatives`` is."""
        from cfaug.data.mixture.hard_negatives import PairNegatives

        index, kind = self.indexes[COUNTERFACTUAL], self.data.negatives
        if index is None or kind is None or index.has_negatives:  # then a batch has them anyway
            return None
        return PairNegatives(index, kind)

    def describe(self) -> dict[str, Any]:
        """Return the common entries, and the average number of wrong answers in a batch."""
        described = super().describe()
        if self.data.negatives is None:
            return described
        names = ("train", "text_negatives", "image_negatives")
        found = [round(self.counts.get(n, 0) / self.batches_per_epoch, 2) for n in names]
        described["a_batch"] = dict(zip(("positives", *names[1:]), found, strict=True))
        return described

    def save(self, trained: Encoder, folder: Path) -> None:
        """Write the folder that the model's own library loads, adapters merged."""
        from cfaug.models.lora import merge

        merge(trained.model)
        trained.save(folder)

    def log_examples(self, folder: Path) -> None:
        """Write a table of counterfactual pairs to Weights & Biases, if that is the logger."""
        from cfaug.train.tracking import log_pairs

        log_pairs(self.logger, folder, self.mixture, self.captions)
