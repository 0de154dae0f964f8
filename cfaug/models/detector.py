"""Object detectors of transformers, such as YOLOS and DETR."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from PIL.Image import Image
from torch import Tensor, nn

from cfaug.models.pretrained import Wrapped

DIGITS = 5
"""Decimals of a score and of a coordinate; further digits depend on the batch."""


class HFDetector(Wrapped):
    """``AutoModelForObjectDetection`` as a :class:`cfaug.core.protocols.Detector`.

    Images are resized by the folder's image processor and keep their aspect ratio. Images of equal
    resized size form a batch, so that none is padded and detections do not depend on other images.

    Args:
        model: a model that transformers has loaded.
        processor: the model's image processor.
        folder: the folder of model and processor, which errors name.
        threshold: the score above which an object is returned, in [0, 1].
    """

    transformers_class = "AutoModelForObjectDetection"
    processor_class = "AutoImageProcessor"

    def __init__(
        self, model: nn.Module, processor: Any, folder: Path, *, threshold: float = 0.5
    ) -> None:
        super().__init__(model)
        self.processor = processor
        self.threshold = threshold

    def detect(self, images: Sequence[Image]) -> list[list[dict[str, Any]]]:
        """Return the objects of each RGB image, the most certain first.

        Returns:
            For each object its ``label``, its ``score``, and its ``box``: left, top, right and
            bottom in pixels of the image as given.
        """
        given = [self.processor(images=image, return_tensors="pt") for image in images]
        by_size: dict[tuple[int, ...], list[int]] = {}
        for row, one in enumerate(given):
            by_size.setdefault(tuple(one["pixel_values"].shape), []).append(row)
        found: dict[int, list[dict[str, Any]]] = {}
        for rows in by_size.values():
            batch = {
                name: torch.cat([given[row][name] for row in rows]).to(self.device)
                for name in given[rows[0]]
            }
            sizes = [images[row].size[::-1] for row in rows]
            found.update(zip(rows, self._objects(batch, sizes), strict=True))
        return [found[row] for row in range(len(images))]

    def _objects(
        self, batch: dict[str, Tensor], sizes: Sequence[tuple[int, int]]
    ) -> list[list[dict[str, Any]]]:
        with torch.inference_mode():
            output = self.model(**batch)
            results = self.processor.post_process_object_detection(
                output, threshold=self.threshold, target_sizes=list(sizes)
            )
        return [self._describe(result) for result in results]

    def _describe(self, result: dict[str, Tensor]) -> list[dict[str, Any]]:
        names = self.model.config.id2label
        columns = (result[name].tolist() for name in ("scores", "labels", "boxes"))
        objects = [
            {
                "label": str(names[label]),
                "score": round(score, DIGITS),
                "box": [round(side, DIGITS) for side in box],
            }
            for score, label, box in zip(*columns, strict=True)
        ]
        return sorted(objects, key=lambda one: (-one["score"], one["label"], one["box"]))
