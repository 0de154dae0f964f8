"""Captions as a transformers tokenizer gives them to its model."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

KEEP_CAPTIONS = 200_000
"""Tokenised captions a process keeps of one tokenizer, about 100 MB; further ones are not kept."""

Row = dict[str, list[int]]

_KEPT: dict[str, dict[str, Row]] = {}
"""Tokenised captions by tokenizer: the epochs of a run, and all runs of a process, share them."""


class Tokenizer:
    """A tokenizer with the padding that its model was trained on.

    A caption is tokenised once in a process; a batch is padded from what is kept.

    Args:
        tokenizer: of transformers.
        max_length: captions are cut to this many tokens.
    """

    def __init__(self, tokenizer: Any, max_length: int) -> None:
        self.tokenizer = tokenizer
        self.max_length = max_length
        # A tokenizer that gives no attention mask trained its model on full length (SigLIP).
        masked = "attention_mask" in self.tokenizer.model_input_names
        self.padding: dict[str, Any] = (
            {"padding": "longest"}
            if masked
            else {"padding": "max_length", "max_length": max_length}
        )
        backend = getattr(tokenizer, "backend_tokenizer", None)
        self._kept: dict[str, Row] = {}
        if backend is not None:  # what it does is then known by what it is
            what = f"{tokenizer.model_input_names} {max_length} {backend.to_str()}"
            self._kept = _KEPT.setdefault(hashlib.sha256(what.encode()).hexdigest(), {})
            # A tokenizer saves how it was called last: so must one whose captions are all kept.
            self.tokenizer(["a"], truncation=True, max_length=max_length)

    def __call__(self, texts: Sequence[str]) -> dict[str, Tensor]:
        """Return int64 tensors of shape (texts, length)."""
        rows = self._rows(texts)
        columns = {name: [row[name] for row in rows] for name in rows[0]}
        # Said by transformers of every fast tokenizer: calling it anew would be slower here.
        self.tokenizer.deprecation_warnings["Asking-to-pad-a-fast-tokenizer"] = True
        return dict(self.tokenizer.pad(columns, return_tensors="pt", **self.padding))

    def _rows(self, texts: Sequence[str]) -> list[Row]:
        absent = [text for text in dict.fromkeys(texts) if text not in self._kept]
        fresh: dict[str, Row] = {}
        if absent:
            found = self.tokenizer(absent, truncation=True, max_length=self.max_length)
            rows = ({name: found[name][n] for name in found} for n in range(len(absent)))
            fresh = dict(zip(absent, rows, strict=True))
        if len(self._kept) + len(fresh) <= KEEP_CAPTIONS:
            self._kept.update(fresh)
        return [fresh[text] if text in fresh else self._kept[text] for text in texts]


def on_device(tokens: Mapping[str, Tensor], device: torch.device) -> dict[str, Tensor]:
    """Move what a tokenizer gave to a model's device."""
    return {name: ids.to(device, non_blocking=True) for name, ids in tokens.items()}
