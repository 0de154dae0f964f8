"""Matching scores of an image and a text by models of any kind.

They are the score G of COCO-Counterfactuals, section 4.2.2. Every matcher is a ``torch.nn.Module``,
so that ``.to(device)`` moves it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from cfaug.core.pixels import Geometry
from cfaug.models.encoder import Encoder, on_device
from cfaug.models.pretrained import FromFolder, inputs


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
