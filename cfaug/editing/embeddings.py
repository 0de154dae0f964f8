"""Sentence encoders of editors: the text tower of a dual encoder, and word vectors."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cfaug.core.devices import check_device, choose_device
from cfaug.core.errors import UserError
from cfaug.core.files import require_regular
from cfaug.core.protocols import DualEncoder
from cfaug.core.validation import Positive, check_fields
from cfaug.core.weights import sha256

if TYPE_CHECKING:
    from cfaug.models.checkpoints import Checkpoint


# The text tower of a dual encoder as a sentence encoder, as in LANCE's released code.

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


# Word vectors from a text file: GloVe's, fastText's, or word2vec's text format.

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

    Raises:
        UserError: if the number of words is below 1.
    """

    file: str
    words: Positive | None = 200_000

    def __post_init__(self) -> None:
        check_fields(self, "word vectors")

    def encode(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Return embeddings (texts, dim): of unit length, or 0 for a text of unknown words."""
        rows, vectors = self._table
        found = np.zeros((len(texts), vectors.shape[1]))
        for i, text in enumerate(texts):
            places = [rows.get(word, rows.get(word.lower())) for word in text.split()]
            known = [place for place in places if place is not None]
            if known:
                found[i] = vectors[known].mean(axis=0)
        lengths = np.linalg.norm(found, axis=1, keepdims=True)
        return found / np.where(lengths > 0, lengths, 1)

    def describe(self) -> dict[str, str]:
        """Return the file's name and hash."""
        return {"word_vectors": f"{self._path.name} sha256:{sha256([self._path])} {self.words}"}

    @property
    def _path(self) -> Path:
        return Path(self.file).expanduser()

    @cached_property
    def _table(self) -> tuple[dict[str, int], NDArray[np.float32]]:
        """Return the row of each word, and the vectors (words, dim)."""
        rows: dict[str, int] = {}
        vectors: list[NDArray[np.float32]] = []
        for number, line in self._lines():
            word, vector = self._read(line, number)
            if vectors and len(vector) != len(vectors[0]):
                raise UserError(
                    f"{self._path}:{number}: {len(vector)} numbers follow {word[:80]!r}; the lines "
                    f"before have {len(vectors[0])}"
                )
            if word not in rows:
                rows[word] = len(vectors)
                vectors.append(vector)
            if len(rows) == self.words:
                break
        if not vectors:
            raise UserError(f"{self._path} has no word vectors")
        return rows, np.stack(vectors)

    def _lines(self) -> Iterator[tuple[int, str]]:
        """Yield the lines with vectors, and their numbers from 1."""
        try:
            with require_regular(self._path).open(encoding="utf-8", newline="\n") as file:
                number = 0
                while line := file.readline(LONGEST_LINE):
                    number += 1
                    if not line.endswith("\n") and len(line) == LONGEST_LINE:
                        raise UserError(
                            f"{self._path}:{number}: the line is longer than {LONGEST_LINE:,} "
                            "characters: is it a file of word vectors in text form?"
                        )
                    counts = number == 1 and len(line.split()) == 2
                    if line.strip() and not counts:
                        yield number, line.rstrip("\n")
        except (OSError, ValueError) as error:
            raise UserError(f"the word vectors {self._path} cannot be read: {error}") from error

    def _read(self, line: str, number: int) -> tuple[str, NDArray[np.float32]]:
        # Only spaces, because some words contain a no-break space.
        word, *numbers = line.rstrip().split(" ")
        try:
            vector = [float(one) for one in numbers]
        except ValueError as error:
            raise UserError(
                f"{self._path}:{number}: the values after {word[:80]!r} are not numbers: {error}"
            ) from error
        if not vector or not all(map(math.isfinite, vector)):
            raise UserError(
                f"{self._path}:{number}: {word[:80]!r} is not followed by finite numbers"
            )
        return word, np.array(vector, dtype=np.float32)
