"""Tokenization of captions with a transformers tokenizer."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from cfaug.core.messages import say_once

KEEP_CAPTIONS = 200_000
"""The largest number of cached captions of one tokenizer in a process, about 100 MB."""

Row = dict[str, list[int]]

UNKNOWN_SHARE = 0.5
"""Share of unknown words in the first captions above which a warning is given."""

PROBE = " ".join(["a photo of two zebras, 3 cafés & one Übung; don't!"] * 40)
"""A text, not a caption, that distinguishes tokenizers: it is longer than any model reads, with
characters that tokenizers treat differently."""

_KEPT: dict[str, dict[str, Row]] = {}
"""Tokenised captions by tokenizer, shared by the epochs of a run and all runs of a process."""


class Tokenizer:
    """A tokenizer with the padding that its model was trained with.

    A caption is tokenised once in a process; batches are padded from the cache.

    Args:
        tokenizer: a transformers tokenizer.
        max_length: the number of tokens to which captions are truncated.
    """

    def __init__(self, tokenizer: Any, max_length: int) -> None:
        self.tokenizer = tokenizer
        self.max_length = max_length
        self._checked = False
        # If a tokenizer has no attention mask, its model was trained on texts of full length
        # (SigLIP).
        masked = "attention_mask" in self.tokenizer.model_input_names
        self.padding: dict[str, Any] = (
            {"padding": "longest"}
            if masked
            else {"padding": "max_length", "max_length": max_length}
        )
        backend = getattr(tokenizer, "backend_tokenizer", None)
        self._kept: dict[str, Row] = {}
        if backend is not None:  # its state determines its output
            what = f"{tokenizer.model_input_names} {max_length} {backend.to_str()}"
            self._kept = _KEPT.setdefault(hashlib.sha256(what.encode()).hexdigest(), {})
            # A tokenizer saves the settings of its last call, which have to be these even if all
            # captions are cached.
            self.tokenizer(["a"], truncation=True, max_length=max_length)

    def __call__(self, texts: Sequence[str]) -> dict[str, Tensor]:
        """Return int64 tensors of shape (texts, length)."""
        rows = self._rows(texts)
        columns = {name: [row[name] for row in rows] for name in rows[0]}
        # transformers warns that calling a fast tokenizer again is faster than padding; here it is
        # slower.
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
        found = [fresh[text] if text in fresh else self._kept[text] for text in texts]
        if not self._checked and PROBE not in texts:
            self._checked = True
            self._warn_of_unknown(texts, found)
        return found

    def _warn_of_unknown(self, texts: Sequence[str], rows: Sequence[Row]) -> None:
        """Warn if most words of the first captions are unknown and thus alike to the model."""
        unknown = self.tokenizer.unk_token_id
        named = ("bos_token_id", "eos_token_id", "pad_token_id", "cls_token_id", "sep_token_id")
        special = {getattr(self.tokenizer, name, None) for name in named}
        if unknown is None or unknown in special:  # CLIP's own pieces spell any word
            return
        words = [one for row in rows for one in row["input_ids"] if one not in special]
        if words and words.count(unknown) > UNKNOWN_SHARE * len(words):
            say_once(
                f"warning: the model does not know {words.count(unknown) / len(words):.0%} of the "
                f"words of the first captions, such as {texts[0]!r}, and cannot tell captions "
                "apart by them: choose a model that was trained on such text, as model=clip_vit_b32"
            )


def on_device(tokens: Mapping[str, Tensor], device: torch.device) -> dict[str, Tensor]:
    """Move a tokenizer's output to a model's device."""
    return {name: ids.to(device, non_blocking=True) for name, ids in tokens.items()}
