"""A vision-language model as an entailer: it ranks three answers to a question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import torch
from PIL import Image
from torch import Tensor, nn

from cfaug.core.errors import UserError
from cfaug.core.pixels import Geometry, ImageTransform
from cfaug.core.protocols import Answerer
from cfaug.core.questions import Answered, Question
from cfaug.core.types import ENTAILMENT
from cfaug.models.encoder import image_transform
from cfaug.models.fusion import check_images
from cfaug.models.prompts import HYPOTHESIS, Reduction
from cfaug.models.vision_language import VisionLanguageModel


class AskedEntailer(nn.Module):
    """Any :class:`cfaug.core.protocols.Answerer` as a :class:`cfaug.core.protocols.Entailer`.

    The probability of a label is the probability of its answer among the three answers.

    Args:
        transform: the transform of images, applied before the model's own.
        question: the question, with the placeholder ``{hypothesis}``.
        options: {label: answer} for every label of ``cfaug.core.types.ENTAILMENT``.
        reduction: the log-likelihood of an answer is the ``sum`` over its tokens or their mean,
            ``token_mean``.
    """

    def __init__(
        self,
        answerer: Answerer,
        transform: ImageTransform,
        question: str,
        options: Mapping[str, str],
        reduction: Reduction = "sum",
    ) -> None:
        super().__init__()
        self.answerer: Any = answerer
        self.transform = transform
        self.question = question
        self.options = [options[label] for label in ENTAILMENT]
        self.reduction = reduction

    @classmethod
    def load(
        cls,
        folder: Path,
        *,
        geometry: Geometry | None,
        prompt: str | None,
        question: str,
        options: Mapping[str, str],
        reduction: Reduction,
    ) -> Self:
        """Load a folder of ``AutoModelForImageTextToText``, in evaluation mode.

        Args:
            folder: a ``save_pretrained`` folder with weights and processor.
            geometry: ``crop`` or ``squash`` images to a square; ``None`` follows the processor.
            prompt: the model's template, with ``{image}`` and ``{question}``; ``None`` is its chat
                template.
            question: the question, with the placeholder ``{hypothesis}``.
            options: {label: answer} for every label.
            reduction: ``sum`` or ``token_mean`` of the log-likelihoods of an answer's tokens.
        """
        answerer = VisionLanguageModel.load(folder, prompt=prompt)
        transform = image_transform(answerer.processor.image_processor, folder, geometry)
        return cls(answerer, transform, question, options, reduction).eval()

    def entail(
        self, premises: Sequence[str], hypotheses: Sequence[str], pixels: Tensor | None = None
    ) -> Tensor:
        """Return the probabilities of entailment, neutral and contradiction: float32 (n, 3)."""
        images = check_images(premises, pixels)
        options = tuple(self.options)
        asked = [[Question(self.question.replace(HYPOTHESIS, t), options)] for t in hypotheses]
        found = self.answerer.answer([_picture(image) for image in images], asked)
        costs = [self._costs(answered, hypotheses[row]) for row, (answered,) in enumerate(found)]
        return torch.softmax(-torch.tensor(costs, dtype=torch.float32).reshape(-1, 3), dim=-1)

    def _costs(self, answered: Answered, hypothesis: str) -> list[float]:
        if answered.left_out:
            raise UserError(f"{hypothesis:.200!r} is longer than the model reads: shorten it")
        return [
            score.nll if self.reduction == "sum" else score.mean_nll for score in answered.scores
        ]


def _picture(pixels: Tensor) -> Image.Image:
    """Convert uint8 pixels (3, size, size) to an image for a processor."""
    return Image.fromarray(pixels.permute(1, 2, 0).cpu().numpy())


# Prompts that ask whether a statement follows from an image, read from files. No torch.
