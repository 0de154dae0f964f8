"""How similar words are: cosines of their embeddings, each word embedded once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from cfaug.text.protocols import SentenceEmbedder, round_digits


class WordSimilarity:
    """Cosines of words, rounded so that they are the same whatever they were computed with.

    Args:
        encoder: whose embeddings have unit length, or zeros for a word that it does not know, which
            is similar to nothing.
    """

    def __init__(self, encoder: SentenceEmbedder) -> None:
        self._encoder = encoder
        self._vectors: dict[str, np.ndarray] = {}

    def learn(self, words: Iterable[str]) -> None:
        """Embed words together; those that are known already are not embedded again."""
        fresh = sorted(word for word in set(words) if word not in self._vectors)
        if fresh:
            self._vectors.update(zip(fresh, self._encoder.encode(fresh), strict=True))

    def cosines(self, words: Sequence[str], others: Sequence[str]) -> list[list[float]]:
        """Return the cosine of every word with each of the others."""
        if not words or not others:
            return [[] for _ in words]
        self.learn([*words, *others])
        right = np.stack([self._vectors[word] for word in others])
        return [
            [round_digits(float(cosine)) for cosine in right @ self._vectors[word]]
            for word in words
        ]
