"""What the parts promise each other. Every method takes and gives lists or batches, never one item.

No torch at import: tensors appear in annotations only.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from torch import Tensor

    from cfaug.pixels import ImageTransform
    from cfaug.types import Outcome


@runtime_checkable
class DualEncoder(Protocol):
    """A model with one tower for images and one for texts, as CLIP (Radford et al., 2021).

    Implementations are ``torch.nn.Module``s in float32; inputs may lie on any device. Embeddings
    are projected into the shared space and NOT normalised: loss and metrics normalise, once.
    """

    transform: ImageTransform

    def tokenize(self, texts: Sequence[str]) -> dict[str, Tensor]:
        """Return int64 tensors (batch, length), padded and truncated as the model wants."""
        ...

    def encode_image(self, pixels: Tensor) -> Tensor:
        """Map uint8 pixels (batch, 3, size, size), as ``transform`` gives them, to (batch, dim)."""
        ...

    def encode_text(self, tokens: dict[str, Tensor]) -> Tensor:
        """Map what ``tokenize`` gives to (batch, dim)."""
        ...

    def logit_scale(self) -> Tensor:
        """Return the factor on the cosine, ``exp`` of the learnt parameter: a scalar."""
        ...

    def clamp_logit_scale(self) -> None:
        """Bound the learnt parameter after a step, where the model's authors do."""
        ...

    def save(self, folder: Path) -> None:
        """Write weights, configuration and processor so that the home library loads the folder."""
        ...


@runtime_checkable
class Benchmark(Protocol):
    """A question asked of a model: it receives the model as an object and never asks its name."""

    name: str

    def run(self, encoder: DualEncoder) -> list[Outcome]:
        """Return one row per metric, in a fixed order."""
        ...
