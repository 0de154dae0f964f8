"""A placeholder for benchmarks that need no model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cfaug.core.errors import UserError
from cfaug.core.protocols import NoModel
from cfaug.core.weights import sha256_text


@dataclass(frozen=True)
class NoModelSpec:
    """The specification of the placeholder, which provides only ``NoModel``."""

    provides = (NoModel,)
    weights = "no-model"

    def load(self, protocol: type | None = None) -> Any:
        """Return the placeholder."""
        return NoModel()

    def check_trainable(self) -> None:
        """Refuse training.

        Raises:
            UserError: always.
        """
        raise UserError("there is no model to train: choose a model=...")

    def weights_hash(self) -> str:
        """Return the sha256 of the placeholder's name."""
        return sha256_text(self.weights)

    def identity(self) -> str:
        """Return the hash of the weights."""
        return self.weights_hash()

    def settings_hash(self) -> str:
        """Return the hash of the weights: there are no settings."""
        return self.weights_hash()

    def parameters(self) -> int | None:
        """Return ``None``: there are no weights."""
        return None

    def on_this_machine(self) -> NoModelSpec:
        """Return itself."""
        return self

    def at(self, checkpoint: str) -> NoModelSpec:
        """Return itself, whatever the checkpoint."""
        return self
