"""A transformers model with its tokenizer, loaded on first use, and its batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np

from cfaug.core.devices import check_device, choose_device
from cfaug.core.errors import UserError
from cfaug.core.files import check_links
from cfaug.core.safety.safe_loading import check_finite, from_folder
from cfaug.core.validation import Positive, check_fields
from cfaug.core.weights import describe, find_weights, sha256
from cfaug.models.checkpoints import Checkpoint, choose_protocol, load_model, longest_text
from cfaug.models.lora import WEIGHTS
from cfaug.models.lora import load as load_adapter

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


@dataclass(frozen=True)
class Pretrained(Checkpoint):
    """A model with its tokenizer.

    Args:
        name_or_path: a folder, a Hub id, ``zoo:...`` or ``package:...``.
        revision: the commit of a Hub id.
        dtype: the number format of the computation. A score's last bits depend on its batch. After
            rounding to five digits, float64 scores do not, and one in some hundred float32 scores
            does.
        batch_tokens: the largest number of tokens in one forward pass, padding included; ``None``
            is 1,024 on a CPU, whose cache then holds a small model's activations, and 8,192 on a
            GPU.
        device: a name for ``choose_device``; ``auto`` is the GPU where there is one.
        adapter: a folder of LoRA weights to add to the model, which were tuned on it
            (``cfaug.models.lora``); ``None`` for no adapter.

    Attributes:
        role: the model's role on a card.
        transformers_class: the name of transformers' class that loads the folder.
    """

    role: ClassVar[str]
    transformers_class: ClassVar[str]
    ineffective = frozenset({"batch_tokens", "device", "adapter"})  # its weights count

    dtype: Literal["float32", "float64", "bfloat16", "float16"] = "float32"
    batch_tokens: Positive | None = None
    device: str = "auto"
    adapter: str | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        check_device(self.device, f"device of {self.name_or_path}")

    def load(self, protocol: type | None = None) -> Self:
        """Return itself: the weights are loaded on first use."""
        choose_protocol(self.provides, protocol, self.owner)
        return self

    def to(self, device: object) -> Self:
        """Return the same model on another device."""
        return replace(self, device=str(device))

    def describe(self) -> dict[str, str]:
        """Return the model's name, the hash of its weights, and the number format."""
        what = describe(self.name_or_path, self._folder)
        if self.adapter is not None:
            what = f"{what} with {self.adapter} sha256:{sha256([self._adapter() / WEIGHTS])}"
        return {self.role: f"{what} {self.dtype}"}

    def weights_hash(self) -> str:
        """Return the sha256 of the weight files, an adapter's among them."""
        if self.adapter is None:
            return super().weights_hash()
        return sha256([*find_weights(self.folder()), self._adapter() / WEIGHTS])

    def at(self, checkpoint: str) -> Self:
        """Return the same settings for another folder, Hub id or ``zoo:NAME``.

        The folder of an adapter adds the adapter to this model.
        """
        if (Path(checkpoint) / WEIGHTS).is_file():
            return replace(self, adapter=checkpoint)
        return super().at(checkpoint)

    def _adapter(self) -> Path:
        folder = Path(str(self.adapter)).expanduser()
        check_links(folder)
        return folder

    @cached_property
    def _folder(self) -> Path:
        return self.folder()

    @cached_property
    def _place(self) -> str:
        return str(choose_device(self.device, f"device of {self.name_or_path}"))

    @property
    def _tokens_at_once(self) -> int:
        return self.batch_tokens or (1024 if self._place == "cpu" else 8192)

    @cached_property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The model's tokenizer."""
        from transformers import AutoTokenizer

        try:
            return from_folder(AutoTokenizer, self._folder)
        except UserError:
            raise
        except Exception as error:  # a broken folder may raise anything
            raise UserError(f"{self._folder} has no loadable tokenizer: {error}") from error

    @cached_property
    def model(self) -> PreTrainedModel:
        """The model, in evaluation mode on its device."""
        # A sentence is the mean of its tokens: BERT's pooler, missing in many encoders, is unused.
        model = load_model(
            self.transformers_class, self._folder, dtype=self.dtype, unused=("pooler.",)
        )
        check_finite(model, self._folder)
        if self.adapter is not None:
            load_adapter(model, self._adapter(), find_weights(self._folder))
        return model.to(self._place)

    @cached_property
    def _longest(self) -> int:
        """The largest number of tokens of a text, special ones included."""
        return longest_text(self.model, self.tokenizer)

    def _ids(
        self, texts: Sequence[str], *, max_length: int, add_special_tokens: bool = True
    ) -> list[list[int]]:
        """Return each text's tokens, cut to ``max_length``."""
        backend = getattr(self.tokenizer, "backend_tokenizer", None)
        if backend is None:
            options = {"max_length": max_length, "add_special_tokens": add_special_tokens}
            return [self.tokenizer(text, truncation=True, **options)["input_ids"] for text in texts]
        # Without offsets, which are unused, it returns the same tokens in a third of the time.
        backend.no_padding()
        backend.enable_truncation(max_length, direction=self.tokenizer.truncation_side)
        found = backend.encode_batch_fast(list(texts), add_special_tokens=add_special_tokens)
        return [one.ids for one in found]

    def _forward(
        self, ids: Sequence[Sequence[int]], read: Callable[[Tensor, Tensor, list[int]], Tensor]
    ) -> list[Any]:
        """Return the result for each row of ``read(ids, mask, rows)`` on batches of its length."""
        import torch

        results: list[Any] = [None] * len(ids)
        fill = self.tokenizer.pad_token_id or 0
        for rows in by_length([len(row) for row in ids], self._tokens_at_once):
            longest = len(ids[rows[0]])
            padded = np.full((len(rows), longest), fill, dtype=np.int64)
            mask = np.zeros_like(padded)
            for i, row in enumerate(rows):
                padded[i, : len(ids[row])] = ids[row]
                mask[i, : len(ids[row])] = 1
            given, shown = (torch.from_numpy(array).to(self._place) for array in (padded, mask))
            with torch.inference_mode():
                found = read(given, shown, rows).double().cpu().numpy()
            for row, value in zip(rows, found, strict=True):
                results[row] = value
        return results


# Batches of texts of similar length.


def by_length(lengths: Sequence[int], tokens: int) -> Iterator[list[int]]:
    """Yield the rows in batches of similar length, of up to ``tokens`` tokens with padding.

    The longest rows come first, so that a lack of memory shows at once. A row longer than
    ``tokens`` is a separate batch.

    >>> list(by_length([2, 5, 2, 3], 6))
    [[1], [3, 0], [2]]
    """
    order = np.argsort(-np.asarray(lengths, dtype=np.int64), kind="stable").tolist()
    start = 0
    while start < len(order):
        rows = max(1, tokens // max(1, lengths[order[start]]))
        yield order[start : start + rows]
        start += rows
