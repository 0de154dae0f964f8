"""Image classifiers of transformers, such as ViT's on ImageNet."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from cfaug.core.pixels import Geometry
from cfaug.models.pretrained import Wrapped, image_transform, label_names
from cfaug.models.state import choose_classes


class HFClassifier(Wrapped):
    """``AutoModelForImageClassification`` as a :class:`cfaug.core.protocols.Classifier`.

    Args:
        model: a model that transformers has loaded.
        processor: the model's image processor.
        folder: the folder of model and processor, which errors name.
        geometry: ``crop`` or ``squash`` images to a square; ``None`` follows the processor.
        classes: names of the classes; ``None`` takes them from the model's configuration.

    Raises:
        UserError: for an unsupported image processor, or if the numbers of class names and logits
            differ.
    """

    transformers_class = "AutoModelForImageClassification"
    processor_class = "AutoImageProcessor"

    def __init__(
        self,
        model: nn.Module,
        processor: Any,
        folder: Path,
        *,
        geometry: Geometry | None = None,
        classes: Sequence[str] | None = None,
    ) -> None:
        super().__init__(model)
        self.transform = image_transform(processor, folder, geometry)
        own = label_names(self.model, folder)
        self.classes: tuple[str, ...] = choose_classes(classes, own, len(own), folder)

    def classify(self, pixels: Tensor) -> Tensor:
        """Map uint8 pixels (n, 3, size, size) to logits, float32 (n, classes)."""
        normal = self.transform.normalize(pixels.to(self.device, non_blocking=True))
        logits: Tensor = self.model(pixel_values=normal).logits
        return logits.float()
