"""Transformers models of editors, loaded on first use; encoders of sentences and of words."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from cfaug.core.annotations import NO_RESULT
from cfaug.core.errors import UserError
from cfaug.core.files import check_links, require_regular
from cfaug.core.processes import check_device, choose_device
from cfaug.core.protocols import DualEncoder
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
        weights: a folder; ``zoo:NAME``, a shipped one; ``package:NAME/FOLDER``, one of an installed
            package; or a Hub id.
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
    batch_tokens: Annotated[Positive | None, NO_RESULT] = None
    device: Annotated[str, NO_RESULT] = "auto"
    adapter: str | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        check_device(self.device, f"device of {self.weights}")

    def load(self, protocol: type | None = None) -> Self:
        """Return itself: the weights are loaded on first use."""
        choose_protocol(self.provides, protocol, self.owner)
        return self

    def to(self, device: object) -> Self:
        """Return the same model on another device."""
        return replace(self, device=str(device))

    def describe(self) -> dict[str, str]:
        """Return the model's name, the hash of its weights, and the number format."""
        description = describe(self.weights, self._folder)
        if self.adapter is not None:
            description = (
                f"{description} with {self.adapter} sha256:{sha256([self._adapter() / WEIGHTS])}"
            )
        return {self.role: f"{description} {self.dtype}"}

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
        return str(choose_device(self.device, f"device of {self.weights}"))

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
        encoded = backend.encode_batch_fast(list(texts), add_special_tokens=add_special_tokens)
        return [text.ids for text in encoded]

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
                values = read(given, shown, rows).double().cpu().numpy()
            for row, value in zip(rows, values, strict=True):
                results[row] = value
        return results


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


# Sentence encoders of editors: the text tower of a dual encoder, and word vectors.

BATCH = 256


@dataclass(frozen=True)
class TextTower:
    """A sentence encoder that embeds texts with the text tower of a model such as CLIP.

    Args:
        model: the specification of a model that provides a DualEncoder, loaded on first use.
        device: a name for ``choose_device``; ``auto`` is the GPU where there is one.
    """

    model: Checkpoint
    device: Annotated[str, NO_RESULT] = "auto"

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
        embeddings = np.concatenate(parts) if parts else np.zeros((0, 1))
        return embeddings / np.maximum(np.linalg.norm(embeddings, axis=1, keepdims=True), 1e-12)

    @cached_property
    def _place(self) -> str:
        return str(choose_device(self.device, "device of the text tower"))

    @cached_property
    def _loaded(self) -> Any:
        return self.model.load(DualEncoder).to(self._place)

    def describe(self) -> dict[str, str]:
        return {"text_tower": f"{self.model} sha256:{self.model.weights_hash()}"}


LONGEST_LINE = 100_000
"""Largest number of characters in a line; a longer line is not the vector of a word."""


@dataclass(frozen=True)
class WordVectors:
    """A sentence encoder whose embedding of a text is the mean of its words' vectors.

    A line of the file is a word and its numbers, separated by spaces; a first line of two whole
    numbers, as in fastText's files, is the number and the length of the vectors. A word is looked
    up with its case, then in lower case; the embedding of a text of unknown words is 0, so that its
    cosines are 0.

    Args:
        file: the path of a UTF-8 file such as ``glove.6B.300d.txt`` or ``wiki-news-300d-1M.vec``,
            read once, on first use.
        words: the number of words to read from the beginning, which are the most frequent ones;
            ``None`` for all.
    """

    file: str
    words: Positive | None = 200_000

    def __post_init__(self) -> None:
        check_fields(self, "word vectors")

    def encode(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Return embeddings (texts, dim): of unit length, or 0 for a text of unknown words."""
        rows, vectors = self._table
        embeddings = np.zeros((len(texts), vectors.shape[1]))
        for i, text in enumerate(texts):
            indices = [rows.get(word, rows.get(word.lower())) for word in text.split()]
            known = [index for index in indices if index is not None]
            if known:
                embeddings[i] = vectors[known].mean(axis=0)
        lengths = np.linalg.norm(embeddings, axis=1, keepdims=True)
        return embeddings / np.where(lengths > 0, lengths, 1)

    def describe(self) -> dict[str, str]:
        return {"word_vectors": f"{self._path.name} sha256:{sha256([self._path])} {self.words}"}

    @property
    def _path(self) -> Path:
        return Path(self.file).expanduser()

    @cached_property
    def _table(self) -> tuple[dict[str, int], NDArray[np.float32]]:
        """Return the row of each word, and the vectors (words, dim)."""
        rows: dict[str, int] = {}
        vectors: list[NDArray[np.float32]] = []
        for where, line in self._lines():
            # Only spaces, because some words contain a no-break space.
            word, *numbers = line.rstrip().split(" ")
            try:
                vector = [float(number) for number in numbers]
            except ValueError as error:
                raise UserError(
                    f"{where}: the values after {word[:80]!r} are not numbers: {error}"
                ) from error
            if not vector or not all(map(math.isfinite, vector)):
                raise UserError(f"{where}: {word[:80]!r} is not followed by finite numbers")
            if vectors and len(vector) != len(vectors[0]):
                raise UserError(
                    f"{where}: {len(vector)} numbers follow {word[:80]!r}; the lines before have "
                    f"{len(vectors[0])}"
                )
            if word not in rows:
                rows[word] = len(vectors)
                vectors.append(np.array(vector, dtype=np.float32))
            if len(rows) == self.words:
                break
        if not vectors:
            raise UserError(f"{self._path} has no word vectors")
        return rows, np.stack(vectors)

    def _lines(self) -> Iterator[tuple[str, str]]:
        """Yield the lines with vectors, each after its ``FILE:NUMBER``."""
        try:
            with require_regular(self._path).open(encoding="utf-8", newline="\n") as file:
                for number in itertools.count(1):
                    line = file.readline(LONGEST_LINE)
                    if not line:
                        return
                    where = f"{self._path}:{number}"
                    if not line.endswith("\n") and len(line) == LONGEST_LINE:
                        raise UserError(
                            f"{where}: the line is longer than {LONGEST_LINE:,} characters: is it "
                            "a file of word vectors in text form?"
                        )
                    counts = number == 1 and len(line.split()) == 2
                    if line.strip() and not counts:
                        yield where, line.rstrip("\n")
        except (OSError, ValueError) as error:
            raise UserError(f"the word vectors {self._path} cannot be read: {error}") from error
