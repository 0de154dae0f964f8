"""The text tower of a dual encoder as a sentence encoder, as in LANCE's released code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from cfaug.core.devices import check_device, choose_device
from cfaug.core.protocols import DualEncoder

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cfaug.models.checkpoints import Checkpoint

BATCH = 256


@dataclass(frozen=True)
class TextTower:
    """A sentence encoder that embeds texts with the text tower of a model such as CLIP.

    Args:
        model: the specification of a model that provides a DualEncoder, loaded on first use.
        device: a name for ``choose_device``; ``auto`` is the GPU where there is one.
    """

    model: Checkpoint
    device: str = "auto"

    def __post_init__(self) -> None:
        check_device(self.device, "device of the text tower")

    def encode(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Return unit embeddings (texts, dim); long texts are truncated at the model's limit."""
        import torch

        parts = []
        with torch.inference_mode():
            for start in range(0, len(texts), BATCH):
                tokens = self._loaded.tokenize(texts[start : start + BATCH])
                placed = {name: tensor.to(self._place) for name, tensor in tokens.items()}
                parts.append(self._loaded.encode_text(placed).double().cpu().numpy())
        found = np.concatenate(parts) if parts else np.zeros((0, 1))
        return found / np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1e-12)

    @cached_property
    def _place(self) -> str:
        return str(choose_device(self.device, "device of the text tower"))

    @cached_property
    def _loaded(self) -> Any:
        return self.model.load(DualEncoder).to(self._place)

    def describe(self) -> dict[str, str]:
        """Return the model with its settings, and the hash of its weights, for the card."""
        return {"text_tower": f"{self.model} sha256:{self.model.weights_hash()}"}
