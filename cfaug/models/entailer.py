"""Natural language inference: does a hypothesis follow from a premise?"""

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
from cfaug.core.questions import Question
from cfaug.core.types import ENTAILMENT
from cfaug.models.encoder import Wrapped, image_transform, label_names, on_device, text_length
from cfaug.models.prompts import HYPOTHESIS, Reduction


class HFEntailer(Wrapped):
    """``AutoModelForSequenceClassification`` as a :class:`cfaug.core.protocols.Entailer` of texts.

    Args:
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
        names = label_names(self.model, folder)
        self.columns = label_columns(names if labels is None else list(labels), len(names), folder)

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


class AskedEntailer(nn.Module):
    """Any :class:`cfaug.core.protocols.Answerer` as a :class:`cfaug.core.protocols.Entailer`.

    The probability of a label is the probability of its answer among the three answers.

    Args:
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
            prompt: the model's template, with ``{image}`` and ``{question}``; ``None`` is its chat
                template.
        """
        from cfaug.models.vision_language import VisionLanguageModel

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
        shown = [Image.fromarray(image.permute(1, 2, 0).cpu().numpy()) for image in images]
        costs = []
        for hypothesis, (answered,) in zip(
            hypotheses, self.answerer.answer(shown, asked), strict=True
        ):
            if answered.left_out:
                raise UserError(f"{hypothesis:.200!r} is longer than the model reads: shorten it")
            summed = self.reduction == "sum"
            costs.append([score.nll if summed else score.mean_nll for score in answered.scores])
        return torch.softmax(-torch.tensor(costs, dtype=torch.float32).reshape(-1, 3), dim=-1)


def check_images(premises: Sequence[str], pixels: Tensor | None) -> Tensor:
    """Return the images, which are the premises."""
    if pixels is None:
        raise UserError("this model reads images: give the image of each hypothesis")
    if any(premises):
        raise UserError(
            "this model's premise is the image: leave the premises' texts empty, or choose "
            "model=entailer, which reads texts only"
        )
    return pixels


def label_columns(labels: Sequence[str], logits: int, owner: object) -> list[int]:
    """Return the numbers of the logits of entailment, neutral and contradiction, in that order.

    >>> label_columns(["CONTRADICTION", "neutral", "entailment"], 3, "folder")
    [2, 1, 0]

    Case is ignored.
    """
    known = [str(label).strip().lower() for label in labels]
    if logits != len(ENTAILMENT) or sorted(known) != sorted(ENTAILMENT):
        raise UserError(
            f"{owner}: the labels {list(labels)} of {logits} logits are not "
            f"{', '.join(ENTAILMENT)}: say in model.labels which logit is which, as in "
            "model.labels=[contradiction,neutral,entailment]"
        )
    return [known.index(name) for name in ENTAILMENT]
