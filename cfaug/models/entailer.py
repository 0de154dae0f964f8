"""Natural language inference: does a hypothesis follow from a premise?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from cfaug.core.errors import UserError
from cfaug.core.types import ENTAILMENT
from cfaug.models.encoder import Wrapped, label_names, on_device, text_length


class HFEntailer(Wrapped):
    """``AutoModelForSequenceClassification`` as a :class:`cfaug.core.protocols.Entailer` of texts.

    Args:
        processor: the model's tokenizer.
        folder: the folder of model and processor, which errors name.
        max_length: premise and hypothesis together are truncated to this many tokens; ``None`` is
            the model's limit.
        labels: the label of each logit, in an order that differs between models; ``None`` takes
            them from the folder's ``config.json``.
    """

    transformers_class = "AutoModelForSequenceClassification"
    processor_class = "AutoTokenizer"
    transform = None

    def __init__(
        self,
        model: nn.Module,
        processor: Any,
        folder: Path,
        *,
        max_length: int | None = None,
        labels: Sequence[str] | None = None,
    ) -> None:
        super().__init__(model)
        self.tokenizer = processor
        self.max_length = text_length(model, processor, max_length, folder)
        own = label_names(self.model, folder)
        self.columns = label_columns(own if labels is None else list(labels), len(own), folder)

    def entail(
        self, premises: Sequence[str], hypotheses: Sequence[str], pixels: Tensor | None = None
    ) -> Tensor:
        """Return the probabilities of entailment, neutral and contradiction: float32 (n, 3)."""
        if pixels is not None:
            raise UserError("this model reads texts only: leave out the images")
        tokens = self.tokenizer(
            list(premises), list(hypotheses), padding=True, truncation=True,
            max_length=self.max_length, return_tensors="pt",
        )  # fmt: skip
        logits = self.model(**on_device(tokens, self.device)).logits.float()
        return torch.softmax(logits, dim=-1)[:, self.columns]


def label_columns(labels: Sequence[str], logits: int, owner: object) -> list[int]:
    """Return the numbers of the logits of entailment, neutral and contradiction, in that order.

    >>> label_columns(["CONTRADICTION", "neutral", "entailment"], 3, "folder")
    [2, 1, 0]

    Args:
        labels: the label of each logit, in order; case is ignored.
        owner: the folder, which the error names.
    """
    known = [str(label).strip().lower() for label in labels]
    if logits != len(ENTAILMENT) or sorted(known) != sorted(ENTAILMENT):
        raise UserError(
            f"{owner}: the labels {list(labels)} of {logits} logits are not "
            f"{', '.join(ENTAILMENT)}: say in model.labels which logit is which, as in "
            "model.labels=[contradiction,neutral,entailment]"
        )
    return [known.index(name) for name in ENTAILMENT]
