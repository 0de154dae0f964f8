"""Fine-tuning a dual encoder on an exact mixture of real and counterfactual pairs.

No torch at import.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cfaug.protocols import DualEncoder
from cfaug.train.mixture_task import MixtureTask

if TYPE_CHECKING:
    from cfaug.data.feeding.loader import Examples
    from cfaug.data.feeding.pixel_cache import KeptPixels
    from cfaug.models.encoder import Encoder
    from cfaug.train.contrastive_module import ContrastiveModule
    from cfaug.train.settings import LossSettings


@dataclass(frozen=True, kw_only=True)
class ContrastiveTask(MixtureTask):
    """Images and their captions, drawn together.

    Attributes: those of :class:`cfaug.train.mixture_task.MixtureTask`, and
        loss: what counts as a negative; ``None`` is the authors' loss.
    """

    loss: LossSettings | None = None

    def load(self) -> Encoder:
        """Return the dual encoder, as it starts."""
        encoder: Encoder = self.model.load(DualEncoder)
        return encoder

    def make_module(self, trained: Encoder, total_steps: int) -> ContrastiveModule:
        """Return the encoder with its loss and its optimizer.

        Raises:
            UserError: for a loss or pieces of a batch that the model has no place for.
        """
        from cfaug.train.chunks import refuse_batch_norm
        from cfaug.train.contrastive_module import ContrastiveModule

        pieces = self.trainer.micro_batch_size
        module = ContrastiveModule(
            trained, self.make_steps(total_steps), weighting=self.loss, micro_batch_size=pieces
        )
        if pieces is not None:
            refuse_batch_norm(trained.train())
        return module

    def make_examples(self, trained: Encoder, rows: int, kept: KeptPixels | None) -> Examples:
        """Return what reads images with their captions."""
        from cfaug.data.feeding.loader import Examples

        neutral = self.loss is not None and self.loss.set_invariance > 0
        return Examples(self.indexes, trained.transform, rows, kept, self.captions, neutral)

    def save(self, trained: Encoder, folder: Path) -> None:
        """Write the folder that the home library loads, adapters merged."""
        from cfaug.adapters import merge

        merge(trained.model)
        trained.save(folder)

    def log_examples(self, folder: Path) -> None:
        """Write a table of counterfactual pairs, where Weights & Biases is asked for."""
        from cfaug.train.tracking import log_pairs

        log_pairs(self.logger, folder, self.mixture, self.captions)
