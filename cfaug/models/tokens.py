"""Captions as a transformers tokenizer gives them to its model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor


class Tokenizer:
    """A tokenizer with the padding that its model was trained on.

    Args:
        tokenizer: of transformers.
        max_length: captions are cut to this many tokens.
    """

    def __init__(self, tokenizer: Any, max_length: int) -> None:
        self.tokenizer = tokenizer
        self.max_length = max_length
        # A tokenizer that gives no attention mask trained its model on full length (SigLIP).
        masked = "attention_mask" in self.tokenizer.model_input_names
        self.padding = "longest" if masked else "max_length"

    def __call__(self, texts: Sequence[str]) -> dict[str, Tensor]:
        """Return int64 tensors of shape (texts, length)."""
        tokens = self.tokenizer(
            list(texts),
            padding=self.padding,
            truncation=True,
            max_length=self.max_length,
            return_tensors="pt",
        )
        return dict(tokens)


def on_device(tokens: Mapping[str, Tensor], device: torch.device) -> dict[str, Tensor]:
    """Move what a tokenizer gave to a model's device."""
    return {name: ids.to(device, non_blocking=True) for name, ids in tokens.items()}
