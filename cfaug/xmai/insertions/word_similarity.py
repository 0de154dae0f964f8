"""The similarity of words: cosines of their embeddings; each word is embedded once."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from cfaug.editing.pretrained import Pretrained
from cfaug.editing.protocols import SentenceEmbedder, round_digits
from cfaug.xmai.insertions.answer_cache import AnswerCache


class WordSimilarity:
    """Cosines of words, rounded so that they are independent of the batch.

    Args:
        encoder: an encoder with embeddings of unit length, or zeros for an unknown word, whose
            cosines are 0.
        folder: the folder of cached embeddings; ``None`` caches no embeddings.
    """

    def __init__(self, encoder: SentenceEmbedder, folder: Path | None = None) -> None:
        self._encoder = encoder
        self._vectors: dict[str, np.ndarray] = {}
        # Only a model's answers are worth caching, and only a model describes everything that they
        # depend on.
        kept = folder if isinstance(encoder, Pretrained) else None
        self.cache = AnswerCache(kept, f"words {encoder.describe() if kept else ''}")

    def learn(self, words: Iterable[str]) -> None:
        """Embed words in one batch; known ones are not embedded again."""
        fresh = sorted(word for word in set(words) if word not in self._vectors)
        if not fresh:
            return
        if not self.cache.keeps:
            self._vectors.update(zip(fresh, self._encoder.encode(fresh), strict=True))
            return
        packed = self.cache.ask(
            fresh, lambda rows: [_pack(v) for v in self._encoder.encode([fresh[r] for r in rows])]
        )
        self._vectors.update((word, _unpack(one)) for word, one in zip(fresh, packed, strict=True))

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


def _pack(vector: np.ndarray) -> str:
    """Return a vector as text, without loss: with four bytes for each number if they suffice.

    >>> _unpack(_pack(np.array([0.1, 2.0]))).tolist()
    [0.1, 2.0]
    """
    with np.errstate(over="ignore"):  # a number that overflows differs and is kept in eight bytes
        small = vector.astype("<f4")
    exact = small if (small == vector).all() else vector.astype("<f8")
    return f"{exact.dtype.itemsize}{b64encode(exact.tobytes()).decode()}"


def _unpack(text: str) -> np.ndarray:
    return np.frombuffer(b64decode(text[1:]), f"<f{text[0]}").astype(np.float64)
