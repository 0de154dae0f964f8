"""Dual encoders of transformers: any model with ``get_image_features``, ``get_text_features``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor, nn

from cfaug.core.pixels import Geometry
from cfaug.models.checkpoints import quiet
from cfaug.models.encoder import Bounds, Encoder
from cfaug.models.files import replace_checkpoint
from cfaug.models.pretrained import FromFolder, inputs
from cfaug.models.tokens import on_device


class HFEncoder(FromFolder, Encoder):
    """A dual encoder of transformers with its processor.

    Args:
        model: a model that transformers has loaded.
        processor: the model's processor.
        folder: the folder of model and processor, which errors name.
        max_length: captions are truncated to this many tokens; ``None`` is the model's limit.
        log_scale_bounds: lower and upper bound of the learnt log scale; ``None`` for no bound.
        geometry: ``crop`` or ``squash`` images to a square; ``None`` follows the processor.
    """

    transformers_class = "AutoModel"
    required: ClassVar[tuple[str, ...]] = ("get_image_features", "get_text_features", "logit_scale")

    def __init__(
        self,
        model: nn.Module,
        processor: Any,
        folder: Path,
        *,
        max_length: int | None,
        log_scale_bounds: Bounds,
        geometry: Geometry | None = None,
    ) -> None:
        transform, tokenizer = inputs(model, processor, folder, max_length, geometry)
        super().__init__(model, transform, log_scale_bounds)
        self.processor = processor
        self.tokenizer = tokenizer

    def tokenize(self, texts: Sequence[str]) -> dict[str, Tensor]:
        """Return the tokenizer's int64 tensors (batch, length), padded to the longest caption."""
        return self.tokenizer(texts)

    def encode_pixels(self, pixels: Tensor) -> Tensor:
        """Map normalised float32 (batch, 3, size, size) to projected, unnormalised (batch, dim)."""
        return _pool(self.model.get_image_features(pixel_values=pixels))

    def encode_text(self, tokens: dict[str, Tensor]) -> Tensor:
        """Map tokens to projected, unnormalised (batch, dim)."""
        there = on_device(tokens, self.log_scale.device)
        return _pool(self.model.get_text_features(**there))

    def save(self, folder: Path) -> None:
        """Write a ``save_pretrained`` folder with its processor."""
        with replace_checkpoint(folder) as fresh, quiet():
            self.model.save_pretrained(fresh)
            self.processor.save_pretrained(fresh)


def _pool(features: Any) -> Tensor:
    """Return one projected vector for each example, (batch, dim).

    Transformers 5 returns an output object, 4 and remote classes the tensor itself. FLAVA projects
    the whole sequence; its contrastive head takes the first token, the CLS.
    """
    found = features if isinstance(features, Tensor) else features.pooler_output
    return found[:, 0] if found.ndim == 3 else found
