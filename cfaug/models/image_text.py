"""Models of an image and a text together: captions of images, matching scores, and inference.

Inference: does a hypothesis follow from a premise?
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor, nn

from cfaug.core.answers import Question
from cfaug.core.devices import send
from cfaug.core.errors import UserError
from cfaug.core.pixels import Geometry, ImageTransform
from cfaug.core.protocols import Answerer
from cfaug.core.types import ENTAILMENT
from cfaug.models.encoder import (
    Encoder,
    FromFolder,
    Wrapped,
    inputs,
    label_names,
    on_device,
    text_length,
)
from cfaug.models.image_processors import image_transform
from cfaug.models.prompts import HYPOTHESIS, Reduction

IMAGE = "{image}"
"""The placeholder of the image in a prompt."""


class HFCaptioner(Wrapped):
    """``AutoModelForImageTextToText`` as a :class:`cfaug.core.protocols.Captioner`: BLIP, LLaVA.

    Args:
        prompt: the text that the model continues, with the placeholder ``{image}``; without the
            placeholder, the image comes first. The prompt is not part of the caption.
        generation: keyword arguments of ``generate``, such as ``num_beams``; ``None`` values are
            left out.
    """

    transformers_class = "AutoModelForImageTextToText"

    def __init__(
        self,
        model: nn.Module,
        processor: Any,
        folder: Path,
        *,
        geometry: Geometry | None = None,
        prompt: str = "",
        prefix: str = "",
        **generation: Any,
    ) -> None:
        super().__init__(model)
        self.processor = processor
        self.transform = image_transform(processor.image_processor, folder, geometry)
        # Padding after the text is never seen, because the models are causal.
        processor.tokenizer.padding_side = "right"
        # BLIP-2's processor puts its queries before every text by itself.
        needs_token = getattr(processor, "num_query_tokens", None) is None
        token = getattr(processor, "image_token", None) if needs_token else None
        self.image_token = None if token is None else str(token)
        before = "" if IMAGE in prompt else self.image_token or ""
        self.prompt = before + prompt.replace(IMAGE, self.image_token or "")
        self.prefix = prefix
        self.generation = {name: value for name, value in generation.items() if value is not None}

    def caption(self, pixels: Tensor) -> list[str]:
        """Return one text per image of uint8 (n, 3, size, size); white space is normalised."""
        given: dict[str, Any] = {"images": list(pixels.cpu())}
        if self.prompt:
            given |= {"text": [self.prompt] * len(pixels), "padding": True}
        made = self.processor(**given, do_resize=False, do_center_crop=False, return_tensors="pt")
        inputs = {name: tensor.to(self.device) for name, tensor in made.items()}
        tokenizer = self.processor.tokenizer
        if self.image_token is not None:  # BLIP's own generate removes the end of the prompt
            ids = inputs["input_ids"][0][inputs["attention_mask"][0].bool()].tolist()
            # Some tokenizers end every text with such a token, but here the model continues it.
            ends = {tokenizer.eos_token_id, tokenizer.sep_token_id} - {None}
            kept = len(ids) - bool(ids and ids[-1] in ends)
            for name in ("input_ids", "attention_mask"):
                inputs[name] = inputs[name][:, :kept]
        try:
            with torch.inference_mode():
                written = self.model.generate(**inputs, do_sample=False, **self.generation)
        except (TypeError, AttributeError) as error:  # InstructBLIP, BLIP-2 with T5
            if self.prompt:
                raise
            raise UserError(
                f"{type(self.model).__name__} writes no caption without a text to continue "
                f'({error}): give model.prompt="a photo of"'
            ) from error
        prompt = ""
        if "input_ids" in inputs:
            shown = tokenizer.batch_decode(inputs["input_ids"][:1], skip_special_tokens=True)
            prompt = _normalise(shown[0])
        texts = map(_normalise, tokenizer.batch_decode(written, skip_special_tokens=True))
        return [_normalise(self.prefix + " " + text.removeprefix(prompt)) for text in texts]


def _normalise(text: str) -> str:
    return " ".join(text.split())


# Matchers give the score G of COCO-Counterfactuals, section 4.2.2. Every matcher is a
# ``torch.nn.Module``, so that ``.to(device)`` moves it.


class DualMatcher(nn.Module):
    """Any dual encoder as a matcher: the cosine times the learnt scale, CLIP's own logit."""

    kind = "cosine x scale"

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self.encoder = encoder
        self.transform = encoder.transform

    def tokenize(self, texts: Sequence[str]) -> dict[str, Tensor]:
        """Return the encoder's tokens: int64 tensors (n, length), by name."""
        return self.encoder.tokenize(texts)

    def match(self, pixels: Tensor, texts: Sequence[str]) -> Tensor:
        images = self.encoder.encode_image(pixels).float()
        captions = self.encoder.encode_text(self.tokenize(texts)).float()
        cosines = F.cosine_similarity(images, captions, dim=-1)
        return cosines * self.encoder.logit_scale().float()


class PairMatcher(FromFolder, nn.Module, ABC):
    """A transformers model that reads an image and a text together; evaluation only."""

    kind: str

    def __init__(
        self,
        model: nn.Module,
        processor: Any,
        folder: Path,
        *,
        max_length: int | None,
        geometry: Geometry | None = None,
    ) -> None:
        super().__init__()
        self.model = model
        self.transform, self.tokenizer = inputs(model, processor, folder, max_length, geometry)

    def tokenize(self, texts: Sequence[str]) -> dict[str, Tensor]:
        """Return int64 tensors (n, length), padded and truncated as in the model's training."""
        return self.tokenizer(texts)

    def match(self, pixels: Tensor, texts: Sequence[str]) -> Tensor:
        normal = self.transform.normalize(send(pixels, self.device))
        return self.score(normal, on_device(self.tokenize(texts), self.device)).float()

    @abstractmethod
    def score(self, pixels: Tensor, tokens: dict[str, Tensor]) -> Tensor:
        """Score normalised float32 (n, 3, size, size) with the tokenizer's output: (n,)."""


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
        if pixels is not None:
            raise UserError("this model reads texts only: leave out the images")
        tokens = self.tokenizer(
            list(premises), list(hypotheses), padding=True, truncation=True,
            max_length=self.max_length, return_tensors="pt",
        )  # fmt: skip
        logits = self.model(**on_device(tokens, self.device)).logits.float()
        return torch.softmax(logits, dim=-1)[:, self.columns]


class PromptedEntailer(nn.Module):
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
        images = check_images(premises, pixels)
        options = tuple(self.options)
        questions = [[Question(self.question.replace(HYPOTHESIS, t), options)] for t in hypotheses]
        shown = [Image.fromarray(image.permute(1, 2, 0).cpu().numpy()) for image in images]
        costs = []
        for hypothesis, (answered,) in zip(
            hypotheses, self.answerer.answer(shown, questions), strict=True
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
