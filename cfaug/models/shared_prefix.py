"""Processing of common prefixes of texts only once, with a cache of keys and values."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor


@dataclass(frozen=True)
class PrefixState:
    """Rows of text that a decoder has processed.

    Attributes:
        cache: transformers' cache of keys and values.
        mask: 1 for text and 0 for padding, int64 (rows, places).
        next: the position of each row's next token, int64 (rows,).
        ahead: the log-probabilities of each row's next token, float32 (rows, words); ``None`` if
            they were not computed.
    """

    cache: Any
    mask: Tensor
    next: Tensor
    ahead: Tensor | None = None

    def take(self, rows: Sequence[int]) -> PrefixState:
        """Return a copy of some rows, each repeated as often as it is named.

        Raises:
            TypeError: for a cache with more than keys and values.
        """
        index = torch.tensor(list(rows), device=self.mask.device)
        cache = copy_rows(self.cache, index)
        ahead = None if self.ahead is None else self.ahead[index]
        return PrefixState(cache, self.mask[index], self.next[index], ahead)


def copy_rows(cache: Any, rows: Tensor) -> Any:
    """Return a copy of some rows of a cache, each repeated as often as it is named.

    Args:
        cache: the cache of a decoder or of an encoder-decoder model.
        rows: the numbers of the rows, int64 (n,), on the cache's device.

    Raises:
        TypeError: for a cache with more than keys and values.
    """
    from transformers import DynamicCache, EncoderDecoderCache
    from transformers.cache_utils import DynamicLayer

    if isinstance(cache, EncoderDecoderCache):
        parts = (cache.self_attention_cache, cache.cross_attention_cache)
        return EncoderDecoderCache(*(copy_rows(part, rows) for part in parts))
    copied = DynamicCache()
    for number, layer in enumerate(cache.layers):
        if type(layer) is not DynamicLayer:
            raise TypeError(f"a cache of {type(layer).__name__} cannot be shared")
        copied.update(layer.keys[rows], layer.values[rows], number)
    return copied


class Decoder:
    """A model that continues from a cache.

    Args:
        model: a transformers model of images and text; if it has a Q-Former, only its language
            model continues.
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        self.reader = model.language_model if hasattr(model, "qformer") else model
        self._keeps = "logits_to_keep" in inspect.signature(self.reader.forward).parameters

    def read(self, inputs: dict[str, Tensor], length: int) -> PrefixState:
        """Process the first tokens of prompts, including images.

        Args:
            inputs: the processor's output for prompts of the same shape.
            length: the number of tokens to process.
        """
        from transformers import DynamicCache

        shape = inputs["input_ids"].shape
        cut = {
            name: tensor[:, :length] if tensor.shape == shape else tensor
            for name, tensor in inputs.items()
        }
        holders = [part for part in self.model.modules() if hasattr(part, "rope_deltas")]
        for part in holders:  # left over from earlier texts
            part.rope_deltas = None
        cache = DynamicCache()
        model = self.model_of(cut)
        model(**cut, past_key_values=cache, use_cache=True, **self._keep_last(model))
        after = torch.full((shape[0],), length, device=cut["input_ids"].device)
        for part in holders:  # an image of many tokens takes fewer positions in Qwen-VL's models
            if part.rope_deltas is not None:
                after = after + part.rope_deltas.reshape(-1).to(after)
        return PrefixState(cache, torch.ones_like(cut["input_ids"]), after)

    def read_on(
        self, before: PrefixState, texts: Sequence[Sequence[int]], pad: Literal["left", "right"]
    ) -> tuple[PrefixState, Tensor]:
        """Process a text after each row; the cache of ``before`` grows and is passed on.

        Args:
            before: the rows processed so far.
            texts: the tokens to process after each row, at least one for each.
            pad: the side of the padding: left for texts to be continued, where only the last token
                matters; right for texts to be scored.

        Returns:
            The processed rows, and log-probabilities float32 (rows, places, words) of the last
            place only (``left``), or of all places.
        """
        device = before.mask.device
        width = max(len(text) for text in texts)
        ids = torch.zeros((len(texts), width), dtype=torch.int64, device=device)
        mask = torch.zeros_like(ids)
        for row, text in enumerate(texts):
            place = slice(width - len(text), width) if pad == "left" else slice(0, len(text))
            ids[row, place] = torch.tensor(list(text), device=device)
            mask[row, place] = 1
        positions = (mask.cumsum(1) - 1).clamp(min=0) + before.next[:, None]
        whole = torch.cat([before.mask, mask], dim=1)
        output = self.reader(
            input_ids=ids, attention_mask=whole, position_ids=positions,
            past_key_values=before.cache, use_cache=True,
            **(self._keep_last(self.reader) if pad == "left" else {}),
        )  # fmt: skip
        logits = output.logits[:, -1:] if pad == "left" else output.logits
        told = logits.float().log_softmax(-1)
        ahead = told[:, -1] if pad == "left" else None
        return PrefixState(before.cache, whole, before.next + mask.sum(1), ahead), told

    def tell(self, inputs: dict[str, Tensor]) -> Tensor:
        """Return log-probabilities of each next token: float32 (rows, places, words)."""
        logits: Tensor = self.model_of(inputs)(**inputs).logits
        return logits.float().log_softmax(-1)

    def model_of(self, inputs: dict[str, Tensor]) -> Any:
        """Return the model to call; with a Q-Former and no image it is the language model alone."""
        return self.model if "pixel_values" in inputs else self.reader

    def _keep_last(self, model: Any) -> dict[str, int]:
        if model is self.reader:
            return {"logits_to_keep": 1} if self._keeps else {}
        return {}  # some models pass it on to the language model, others ignore it
