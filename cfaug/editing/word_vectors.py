"""Word vectors from a text file: GloVe's, fastText's, or word2vec's text format."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cfaug.core.errors import UserError
from cfaug.core.files import require_regular
from cfaug.core.validation import Positive, check_fields
from cfaug.core.weights import sha256

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
        """Return embeddings (texts, dim): of unit length, or 0 for a text of unknown words.

        Raises:
            UserError: if the file cannot be read, or a line is not a vector.
        """
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
