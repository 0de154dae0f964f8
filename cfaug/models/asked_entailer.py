"""A vision-language model as an entailer: it is asked, and the three answers are ranked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn

from cfaug.models.entailment_prompt import HYPOTHESIS, Reduction
from cfaug.models.fusion import check_images
from cfaug.models.image_text import HFAnswerer
from cfaug.pixels import Geometry
from cfaug.protocols import Answerer
from cfaug.types import ENTAILMENT


class AskedEntailer(nn.Module):
    """Any :class:`cfaug.protocols.Answerer` as a :class:`cfaug.protocols.Entailer`.

    The probability of a label is that of its answer among the three.

    Args:
        answerer: the model.
        question: with ``{hypothesis}`` where the hypothesis goes.
        options: the answer that stands for each label.
        reduction: what an answer's likelihood is, of its tokens': ``sum`` or ``token_mean``.
    """

    def __init__(
        self,
        answerer: Answerer,
        question: str,
        options: Mapping[str, str],
        reduction: Reduction = "sum",
    ) -> None:
        super().__init__()
        self.answerer: Any = answerer
        self.transform = answerer.transform
        self.question = question
        self.options = [options[label] for label in ENTAILMENT]
        self.reduction = reduction

    @classmethod
    def load(
        cls,
        folder: Path,
        *,
        geometry: Geometry | None,
        prompt: str,
        question: str,
        options: Mapping[str, str],
        reduction: Reduction,
    ) -> Self:
        """Load a folder of ``AutoModelForImageTextToText``, in evaluation mode.

        Args:
            folder: of weights and processor.
            geometry: of images; ``None`` is the processor's own.
            prompt: the model's template, with ``{image}`` and ``{question}``.
            question: as for the class.
            options: as for the class.
            reduction: as for the class.

        Raises:
            UserError: if the folder holds no such model.
        """
        answerer = HFAnswerer.load(folder, geometry=geometry, prompt=prompt)
        return cls(answerer, question, options, reduction).eval()

    def entail(
        self, premises: Sequence[str], hypotheses: Sequence[str], pixels: Tensor | None = None
    ) -> Tensor:
        """Return the probabilities of entailment, neutral and contradiction: float32 (n, 3).

        Raises:
            UserError: if there are no images, or a premise is a text.
        """
        images = check_images(premises, pixels)
        asked = [self.question.replace(HYPOTHESIS, text) for text in hypotheses]
        found = self.answerer.answer(images, asked, [self.options] * len(asked))
        costs = [[self._cost(option) for option in row] for row in found]
        return torch.softmax(-torch.tensor(costs, dtype=torch.float32).reshape(-1, 3), dim=-1)

    def _cost(self, option: Any) -> float:
        return float(option.nll if self.reduction == "sum" else option.mean_nll)
