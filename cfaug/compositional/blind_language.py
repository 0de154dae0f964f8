"""How likely captions are as text, by a language model that sees no image."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from cfaug.core.errors import UserError
from cfaug.core.pixels import content_digest
from cfaug.editing.causal_lm import CausalLM
from cfaug.evaluation.cached_model import Features, recall_or_compute, text_keys
from cfaug.evaluation.inference import compute_distinct

SHORT = "a dog"
"""A text that every model can read."""

AT_ONCE = 1024
"""Captions scored before the results are saved."""


@runtime_checkable
class IdentifiedLanguageModel(Protocol):
    """A language model with an identity, such as ``cfaug.editing.causal_lm.CausalLM``."""

    def log_likelihood(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Return the natural log of the probability of each text: float64 (n,)."""
        ...

    def perplexity(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Return exp of the mean negative log-likelihood per token: float64 (n,)."""
        ...

    def identity(self) -> str:
        """Return a text that identifies the weights and settings."""
        ...


class BlindLanguage:
    """A causal language model that scores each distinct caption once.

    Args:
        model: a folder, a Hub id or ``zoo:...``, as for ``cfaug.editing.causal_lm.CausalLM``; or a
            language model with an identity.
        root: folder of cached features; ``None`` caches nothing.
    """

    def __init__(self, model: str | IdentifiedLanguageModel, root: Path | None = None) -> None:
        if not isinstance(model, str | IdentifiedLanguageModel):
            raise UserError(
                f"benchmark.blind={model!r:.100} should be the name of a causal language model, or "
                "an object with log_likelihood, perplexity and identity"
            )
        self._name = model if isinstance(model, str) else type(model).__name__
        self._model = CausalLM(model) if isinstance(model, str) else model
        self._root = root

    @cached_property
    def identity(self) -> str:
        """A text that identifies the model's weights and settings."""
        try:
            return self._model.identity()
        except UserError as error:
            raise UserError(
                f"benchmark.blind={self._name}: {error}; benchmark.blind=null leaves it out"
            ) from error

    def log_likelihoods(self, texts: Sequence[str]) -> np.ndarray:
        """Return the log-likelihood of each caption, summed and per token, float32 (texts, 2).

        ``nan`` for a caption that the model cannot read, such as one that is too long.

        Args:
            texts: the captions; equal ones are scored once.
        """

        def compute(places: list[int]) -> Iterator[np.ndarray]:
            for start in range(0, len(places), AT_ONCE):
                yield self._judge([texts[place] for place in places[start : start + AT_ONCE]])

        if self._root is None:
            return compute_distinct(texts, compute)
        folder = self._root / content_digest(f"language {self.identity}".encode()).hex()
        if folder.exists():
            os.utime(folder)
        return recall_or_compute(Features(folder, "score"), text_keys(texts), compute)

    def _judge(self, texts: list[str]) -> np.ndarray:
        try:
            sums, perplexities = self._model.log_likelihood(texts), self._model.perplexity(texts)
        except UserError:
            if len(texts) == 1:
                self._model.log_likelihood([SHORT])  # an error of the model itself is raised
                return np.full((1, 2), np.nan, np.float32)
            half = len(texts) // 2
            return np.concatenate([self._judge(texts[:half]), self._judge(texts[half:])])
        return np.stack([sums, -np.log(perplexities)], axis=1).astype(np.float32)
