"""Models of an image and a text together: captions of images, and matching scores."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cfaug.core.pixels import Geometry
from cfaug.models.encoder import Encoder, FromFolder, Wrapped, image_transform, inputs, on_device

IMAGE = "{image}"
"""The placeholder of the image in a prompt."""


class ImageTextModel(Wrapped):
    """``AutoModelForImageTextToText`` for images of one size.

    Args:
        folder: the folder of model and processor, which errors name.
        geometry: ``crop`` or ``squash`` images to a square; ``None`` follows the processor.
    """

    transformers_class = "AutoModelForImageTextToText"

    def __init__(
        self, model: nn.Module, processor: Any, folder: Path, geometry: Geometry | None
    ) -> None:
        super().__init__(model)
        self.processor = processor
        self.transform = image_transform(processor.image_processor, folder, geometry)
        # Padding after the text is never seen, because the models are causal.
        processor.tokenizer.padding_side = "right"
        self.image_token = _own_token(processor)

    def _inputs(self, pixels: Tensor, texts: Sequence[str] | None) -> dict[str, Tensor]:
        """Return the model's inputs for images, uint8 (n, 3, size, size), and n texts."""
        options = {"do_resize": False, "do_center_crop": False, "return_tensors": "pt"}
        images = list(pixels.cpu())
        if texts is None:
            made = self.processor(images=images, **options)
        else:
            made = self.processor(images=images, text=list(texts), padding=True, **options)
        return {name: tensor.to(self.device) for name, tensor in made.items()}

    def _without_end(self, tokens: dict[str, Tensor]) -> list[list[int]]:
        """Return the tokens of each text, without padding and the tokenizer's end-of-text token.

        Some tokenizers end every text with such a token, but here the model continues the texts.
        """
        tokenizer = self.processor.tokenizer
        ends = {tokenizer.eos_token_id, tokenizer.sep_token_id} - {None}
        rows = []
        for ids, shown in zip(tokens["input_ids"], tokens["attention_mask"], strict=True):
            row = ids[shown.bool()].tolist()
            rows.append(row[:-1] if row and row[-1] in ends else row)
        return rows


class HFCaptioner(ImageTextModel):
    """A :class:`cfaug.core.protocols.Captioner`, such as BLIP or LLaVA.

    Args:
        folder: the folder of model and processor, which errors name.
        geometry: ``crop`` or ``squash`` images to a square; ``None`` follows the processor.
        prompt: the text that the model continues, with the placeholder ``{image}``; without the
            placeholder, the image comes first. The prompt is not part of the caption.
        prefix: the text put before every caption.
        generation: keyword arguments of ``generate``, such as ``num_beams``; ``None`` values are
            left out.
    """

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
        super().__init__(model, processor, folder, geometry)
        token = self.image_token or ""
        before = "" if IMAGE in prompt else token
        self.prompt = before + prompt.replace(IMAGE, token)
        self.prefix = prefix
        self.generation = {name: value for name, value in generation.items() if value is not None}

    def caption(self, pixels: Tensor) -> list[str]:
        """Return one text per image of uint8 (n, 3, size, size); white space is normalised."""
        count = len(pixels)
        inputs = self._inputs(pixels, [self.prompt] * count if self.prompt else None)
        if self.image_token is not None:  # BLIP's own generate removes the end of the prompt
            kept = len(self._without_end(inputs)[0])
            for name in ("input_ids", "attention_mask"):
                inputs[name] = inputs[name][:, :kept]
        with torch.inference_mode():
            ids = self.model.generate(**inputs, do_sample=False, **self.generation)
        read = self.processor.tokenizer.batch_decode
        asked = ""
        if "input_ids" in inputs:
            asked = _normalise(read(inputs["input_ids"][:1], skip_special_tokens=True)[0])
        texts = [_normalise(text) for text in read(ids, skip_special_tokens=True)]
        return [_normalise(self.prefix + " " + text.removeprefix(asked)) for text in texts]


def _own_token(processor: Any) -> str | None:
    """Return the token that stands for the image in a prompt; ``None`` for models without one.

    BLIP-2's processor puts its queries before every text by itself.
    """
    token = getattr(processor, "image_token", None)
    if token is None or getattr(processor, "num_query_tokens", None) is not None:
        return None
    return str(token)


def _normalise(text: str) -> str:
    return " ".join(text.split())


# Matching scores of an image and a text by models of any kind.
#
# They are the score G of COCO-Counterfactuals, section 4.2.2. Every matcher is a
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
        """Score image i, uint8 (n, 3, size, size), with text i: float32 (n,)."""
        images = self.encoder.encode_image(pixels).float()
        captions = self.encoder.encode_text(self.tokenize(texts)).float()
        cosines = F.cosine_similarity(images, captions, dim=-1)
        return cosines * self.encoder.logit_scale().float()


class PairMatcher(FromFolder, nn.Module, ABC):
    """A transformers model that reads an image and a text together; evaluation only.

    Args:
        folder: the folder of model and processor, which errors name.
        max_length: captions are truncated to this many tokens; ``None`` is the model's limit.
        geometry: ``crop`` or ``squash`` images to a square; ``None`` follows the processor.
    """

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
        """Score image i, uint8 (n, 3, size, size), with text i: float32 (n,)."""
        device = next(self.model.parameters()).device
        normal = self.transform.normalize(pixels.to(device, non_blocking=True))
        return self.score(normal, on_device(self.tokenize(texts), device)).float()

    @abstractmethod
    def score(self, pixels: Tensor, tokens: dict[str, Tensor]) -> Tensor:
        """Score normalised float32 (n, 3, size, size) with the tokenizer's output: (n,)."""
