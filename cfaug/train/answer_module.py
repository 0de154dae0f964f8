"""A vision-language model that learns to answer questions: its loss and its checkpoint.

Imports Lightning, so only ``cfaug.train.job.fit`` imports this, when it is called.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from cfaug.models import lora as adapters
from cfaug.models.checkpoints import quiet
from cfaug.models.encoder import Tunable
from cfaug.models.files import replace_checkpoint
from cfaug.models.option_batches import mean_costs
from cfaug.models.vision_language import VisionLanguageModel
from cfaug.train.loss import gather_all
from cfaug.train.module import Batch, Steps, TrainingModule
from cfaug.train.trained_weights import KeepsTrained


class TunedAnswerer(KeepsTrained, Tunable, VisionLanguageModel):
    """A vision-language model of transformers that is being tuned.

    The arguments are those of :class:`cfaug.models.vision_language.VisionLanguageModel`.
    """

    @property
    def fill(self) -> int:
        """The token that pads a text on the right."""
        tokenizer = self.processor.tokenizer
        known = (tokenizer.pad_token_id, tokenizer.eos_token_id, 0)
        return next(int(one) for one in known if one is not None)

    def save(self, folder: Path) -> None:
        """Write a ``save_pretrained`` folder with the whole processor, adapters merged."""
        adapters.merge(self.model)
        with replace_checkpoint(folder) as fresh, quiet():
            self.model.save_pretrained(fresh)
            self.processor.save_pretrained(fresh)


class AnswerModule(TrainingModule):
    """Fine-tuning of a vision-language model on the right option of each question.

    All questions have equal weight. Their loss is the mean negative log-likelihood of the right
    option's tokens, which ``benchmark.reduction=token_mean`` ranks by. Batches come from
    ``cfaug.train.answer_examples.AnswerExamples``.

    Args:
        tuned: the model to train.
        steps: the optimizer, the length of the run and its seed.
        contrast: the weight of a second term, the cross-entropy of the right option in the softmax
            over the negated means of all options; 0 leaves it out, and wrong options are not read.
    """

    strict_loading = False  # a checkpoint holds only trained weights

    def __init__(self, tuned: TunedAnswerer, steps: Steps, contrast: float = 0.0) -> None:
        super().__init__(steps)
        self.tuned = tuned
        self.contrast = contrast

    @property
    def trained(self) -> TunedAnswerer:
        """The vision-language model."""
        return self.tuned

    def loss(self, batch: Batch) -> Tensor:
        """Return the mean loss of all questions."""
        (every,) = gather_all([self._costs(batch)[:, None]], batch["global_size"])
        return every.mean()

    def _costs(self, batch: Batch) -> Tensor:
        """Return the loss of each of this process's questions, (count,)."""
        scoring = self.tuned.scoring
        found = torch.cat(
            [mean_costs(scoring, one["inputs"], one["targets"]) for one in batch["parts"]]
        )
        right = batch["right"]
        options = int(batch["option"].max()) + 1
        table = found.new_full((len(right), options), float("inf"))
        table = table.index_put((batch["question"], batch["option"]), found)
        costs = table.gather(1, right[:, None])[:, 0]
        if self.contrast:
            costs = costs + self.contrast * functional.cross_entropy(
                -table, right, reduction="none"
            )
        # A process without a question has read another's, as DDP waits for every parameter.
        return costs[: batch["count"]]

    def share(self, loss: Tensor, batch: Batch, step: list[Batch]) -> Tensor:
        """Return a batch's share of the step's loss by its questions, as if all were one batch."""
        return loss * (batch["global_size"] / sum(one["global_size"] for one in step))
