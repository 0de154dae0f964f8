"""Object detectors of transformers, such as YOLOS and DETR."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from PIL.Image import Image
from torch import Tensor, nn
from torchvision.ops import batched_nms, clip_boxes_to_image, remove_small_boxes

from cfaug.core.errors import UserError
from cfaug.models.checkpoints import longest_text
from cfaug.models.encoder import Wrapped

DIGITS = 5
"""Decimals of a score and of a coordinate; further digits depend on the batch."""


class HFDetector(Wrapped):
    """``AutoModelForObjectDetection`` as a :class:`cfaug.core.protocols.Detector`.

    Images are resized by the folder's image processor and keep their aspect ratio. Images of equal
    resized size form a batch, so that none is padded and detections do not depend on other images.
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
        names = self.model.config.id2label
        detections: dict[int, list[dict[str, Any]]] = {}
        for rows, batch, _ in _batches(self.processor, images, [()] * len(images)):
            with torch.inference_mode():
                output = self.model(**{name: part.to(self.device) for name, part in batch.items()})
                results = self.processor.post_process_object_detection(
                    output, threshold=self.threshold,
                    target_sizes=[images[row].size[::-1] for row in rows],
                )  # fmt: skip
            for row, result in zip(rows, results, strict=True):
                detections[row] = _describe(
                    result["scores"], result["labels"], result["boxes"], names
                )
        return [detections[row] for row in range(len(images))]


def _batches(
    processor: Any, images: Sequence[Image], names: Sequence[tuple[str, ...]]
) -> Iterator[tuple[list[int], dict[str, Tensor], tuple[str, ...]]]:
    """Yield rows of equal names whose resized images have equal sizes, with the model's inputs."""
    given = [processor(images=image, return_tensors="pt") for image in images]
    alike: dict[tuple[tuple[int, ...], tuple[str, ...]], list[int]] = {}
    for row, inputs in enumerate(given):
        alike.setdefault((tuple(inputs["pixel_values"].shape), names[row]), []).append(row)
    for (_, wanted), rows in alike.items():
        yield rows, {n: torch.cat([given[row][n] for row in rows]) for n in given[rows[0]]}, wanted


def _describe(scores: Tensor, labels: Tensor, boxes: Tensor, names: Any) -> list[dict[str, Any]]:
    """Return objects, the most certain first."""
    objects = [
        {
            "label": str(names[label]),
            "score": round(score, DIGITS),
            "box": [round(side, DIGITS) for side in box],
        }
        for score, label, box in zip(scores.tolist(), labels.tolist(), boxes.tolist(), strict=True)
    ]
    return sorted(objects, key=lambda entry: (-entry["score"], entry["label"], entry["box"]))


# Open-vocabulary detectors: Grounding DINO and similar models, OWL-ViT, OWLv2.
#
# Two families of ``AutoModelForZeroShotObjectDetection``: those that read all names in one text
# (``a dog. a cat.``) and return a logit for each of its tokens, and those that read each name
# separately. The score of a name is the largest among its tokens. For the first family,
# transformers' own post-processing returns all tokens above a threshold, which may belong to two
# names or to no name.

NAMES_AT_ONCE = 256
"""Limit of names in one call of a model that reads each separately, which bounds the memory."""


class HFZeroShotDetector(Wrapped):
    """``AutoModelForZeroShotObjectDetection`` as an ``OpenVocabularyDetector``.

    Images are resized by the folder's image processor and keep their aspect ratio. Images of equal
    resized size with equal names form a batch, so that none is padded and detections do not depend
    on other images. The most certain of overlapping boxes of one name is kept; boxes are clipped to
    the image.

    Args:
        template: the text for a name, with ``{label}`` once.
        overlap: the intersection over union above which two boxes of one name are the same object.
        most: the largest number of objects in an image, the most certain first; ``None`` for no
            limit.
    """

    transformers_class = "AutoModelForZeroShotObjectDetection"

    def __init__(
        self,
        model: nn.Module,
        processor: Any,
        folder: Path,
        *,
        vocabulary: Sequence[str],
        template: str = "{label}",
        threshold: float = 0.3,
        overlap: float = 0.3,
        most: int | None = None,
    ) -> None:
        super().__init__(model)
        self.processor = processor
        self.vocabulary = tuple(vocabulary)
        self.template = template
        self.threshold, self.overlap, self.most = threshold, overlap, most
        joined = getattr(model.config, "max_text_len", None)
        self._joined = joined is not None
        limit = longest_text(model, processor.tokenizer)
        self._longest = limit if joined is None else min(limit, int(joined))

    @classmethod
    def check_model(cls, model: Any, folder: Path) -> None:
        """Refuse a model that takes names in another form, such as OmDet-Turbo."""
        super().check_model(model, folder)
        if "input_ids" not in inspect.signature(model.forward).parameters:
            raise UserError(
                f"{folder} holds a {type(model).__name__}, which takes names in another form: "
                "choose Grounding DINO, MM Grounding DINO, OWL-ViT or OWLv2"
            )

    def detect(self, images: Sequence[Image]) -> list[list[dict[str, Any]]]:
        """Return the objects of the vocabulary in each RGB image, the most certain first.

        Returns:
            For each object its ``label``, its ``score``, and its ``box``: left, top, right and
            bottom in pixels of the image as given.
        """
        return self.detect_named(images, [self.vocabulary] * len(images))

    def detect_named(
        self, images: Sequence[Image], names: Sequence[Sequence[str]]
    ) -> list[list[dict[str, Any]]]:
        distinct = [tuple(dict.fromkeys(labels)) for labels in names]
        detections: dict[int, list[dict[str, Any]]] = {}
        for rows, batch, wanted in _batches(self.processor.image_processor, images, distinct):
            sizes = [images[row].size[::-1] for row in rows]
            results = [(at, self._ask(batch, some, sizes)) for at, some in self._portions(wanted)]
            if results and not self._joined:
                # The boxes do not depend on the names: each box gets the best of all names.
                scores = torch.cat([scores for _, (scores, _) in results], -1)
                results = [(0, (scores, results[0][1][1]))]
            for position, row in enumerate(rows):
                parts = []
                for first, (scores, of_images) in results:
                    best, number = scores[position].max(1)
                    parts.append((best, number + first, of_images[position]))
                if not parts:
                    detections[row] = []
                    continue
                best, labels, boxes = (torch.cat(column) for column in zip(*parts, strict=True))
                boxes = clip_boxes_to_image(boxes, sizes[position])  # some see a padded square
                kept = remove_small_boxes(boxes, 1.0)
                kept = kept[best[kept] > self.threshold]
                kept = kept[batched_nms(boxes[kept], best[kept], labels[kept], self.overlap)]
                described = _describe(best[kept], labels[kept], boxes[kept], wanted)
                detections[row] = described[: self.most]
        return [detections[row] for row in range(len(images))]

    def _ask(
        self, batch: dict[str, Tensor], names: Sequence[str], sizes: Sequence[tuple[int, int]]
    ) -> tuple[Tensor, list[Tensor]]:
        """Return scores (images, boxes, names) and each image's boxes (boxes, 4) in its pixels."""
        read = [self.template.format(label=name) for name in names]
        tokenize = self.processor.tokenizer
        spans: list[tuple[int, int]] = []  # the range of tokens (first, end) of each name
        if self._joined:
            pieces = [self._ids(f"{text.lower()}.") for text in read]
            ids = list(tokenize(" ".join(f"{text.lower()}." for text in read))["input_ids"])
            joint = [token for piece in pieces for token in piece]
            at = next((i for i in range(len(ids)) if ids[i : i + len(joint)] == joint), None)
            if at is None:
                raise UserError("the detector's tokenizer joins names: choose another detector")
            for piece in pieces:
                spans.append((at, at + len(piece) - 1))  # its full stop is not part of a name
                at += len(piece)
            words = {"input_ids": torch.tensor([ids])}
            words["token_type_ids"] = torch.zeros_like(words["input_ids"])
            words["attention_mask"] = torch.ones_like(words["input_ids"])
        else:
            words = tokenize(
                read, padding="max_length", truncation=True, max_length=self._longest,
                return_tensors="pt",
            )  # fmt: skip
        inputs = {name: ids.repeat(len(sizes), 1) for name, ids in words.items()}
        inputs = {name: part.to(self.device) for name, part in {**batch, **inputs}.items()}
        with torch.inference_mode():
            output = self.model(**inputs)
            # Every box passes, in order; the choice is made later, by name.
            results = self.processor.image_processor.post_process_object_detection(
                output, threshold=-1.0, target_sizes=list(sizes)
            )
        scores = torch.sigmoid(output.logits)
        if self._joined:
            scores = torch.stack([scores[:, :, a:b].amax(-1) for a, b in spans], -1)
        return scores.cpu(), [result["boxes"].cpu() for result in results]

    def _ids(self, text: str) -> list[int]:
        return list(self.processor.tokenizer(text, add_special_tokens=False)["input_ids"])

    def _portions(self, names: Sequence[str]) -> Iterator[tuple[int, Sequence[str]]]:
        """Yield batches of names within the model's limit, with the number of the first name."""
        start, used = 0, 2  # the beginning and the end of a text
        for number, name in enumerate(names):
            length = len(self._ids(f"{self.template.format(label=name).lower()}."))
            if self._joined and length + 2 > self._longest:
                raise UserError(
                    f"the detector reads {self._longest} tokens: {name[:80]!r} is longer; shorten "
                    "or remove it from the vocabulary"
                )
            full = used + length > self._longest if self._joined else False
            if full or number - start == NAMES_AT_ONCE:
                yield start, names[start:number]
                start, used = number, 2
            used += length
        if start < len(names):
            yield start, names[start:]
