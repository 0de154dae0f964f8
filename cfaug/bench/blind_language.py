"""How likely captions are as text, by a language model that sees no image."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Protocol, runtime_checkable

import numpy as np

from cfaug.errors import UserError
from cfaug.protocols import LanguageModel
from cfaug.text.models import CausalLM

MOST_KEPT = 1_000_000
"""Captions whose likelihood is kept in this process: some 100 MB."""

_KNOWN: dict[tuple[str, str], tuple[float, float]] = {}
"""By model and caption: many checkpoints are asked about the same captions."""


@runtime_checkable
class IdentifiedLanguageModel(LanguageModel, Protocol):
    """A causal language model that says which one it is, as ``cfaug.text.models.CausalLM`` does."""

    def identity(self) -> str:
        """Return what identifies the weights and settings."""
        ...


class BlindLanguage:
    """A causal language model as a judge of captions.

    Args:
        model: a folder, a Hub id or ``zoo:...``, as for ``cfaug.text.models.CausalLM``; or such a
            model itself.

    Raises:
        UserError: if it is neither.
    """

    def __init__(self, model: str | IdentifiedLanguageModel) -> None:
        if not isinstance(model, str | IdentifiedLanguageModel):
            raise UserError(
                f"benchmark.blind={model!r:.100} should be the name of a causal language model, or "
                "an object with log_likelihood, perplexity and identity"
            )
        self._model = CausalLM(model) if isinstance(model, str) else model

    @cached_property
    def identity(self) -> str:
        """What identifies the model's weights and settings."""
        return self._model.identity()

    def log_likelihoods(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Return the log-likelihood of each caption, summed and per token, float64 (texts,) each.

        Args:
            texts: any number, each asked once.

        Raises:
            UserError: if the model is missing, or reads no text so long.
        """
        if len(_KNOWN) > MOST_KEPT:
            _KNOWN.clear()
        unknown = [text for text in dict.fromkeys(texts) if (self.identity, text) not in _KNOWN]
        if unknown:
            sums = self._model.log_likelihood(unknown)
            means = -np.log(self._model.perplexity(unknown))
            for text, *both in zip(unknown, sums.tolist(), means.tolist(), strict=True):
                _KNOWN[self.identity, text] = (both[0], both[1])
        found = np.array([_KNOWN[self.identity, text] for text in texts]).reshape(-1, 2)
        return found[:, 0], found[:, 1]
