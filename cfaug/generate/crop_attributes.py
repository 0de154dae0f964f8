"""Attributes of objects: a vocabulary, ranked by a dual encoder on the crop of each box.

XMAI's detector (bottom-up attention) has a head for Visual Genome's attributes; any other detector
gets its attributes here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Interval

from cfaug.core.annotations import NO_RESULT
from cfaug.core.errors import UserError
from cfaug.core.pixels import stack_pixels
from cfaug.core.processes import check_device, choose_device
from cfaug.core.protocols import DualEncoder
from cfaug.core.validation import Positive, check_fields
from cfaug.core.weights import sha256_text
from cfaug.data.detections import Attribute, Detection, clip_box
from cfaug.models.visual_words import visual_words
from cfaug.settings.read_if import ReadIf

if TYPE_CHECKING:
    from PIL.Image import Image
    from torch import Tensor

    from cfaug.models.checkpoints import Checkpoint

DIGITS = 5
"""Decimals of a score; further digits depend on the batch."""


@dataclass(frozen=True)
class CropAttributes:
    """Ranks attributes by the similarity of "a photo of a {attribute} {object}" to a crop.

    An object that has attributes keeps them. An object without a box, or with a box outside the
    image, gets no attributes.

    Args:
        vocabulary: a file of attributes, one in each line; ``None`` is the shipped list.
        most: the largest number of attributes for each object, the most certain first. XMAI's
            detector names one.
        padding: the share of its width and height by which a box first grows on each side: CLIP was
            trained on objects in their surroundings.
        template: the text for the encoder, with ``{attribute}`` and ``{object}`` once each.
        chunk: the number of crops, or of texts, encoded at once.
    """

    model: Annotated[Checkpoint, ReadIf(of="logit_scale_min logit_scale_max")]
    """the encoder of crops and attributes"""
    vocabulary: str | None = None
    most: Positive = 3
    padding: Annotated[float, Interval(ge=0, le=10)] = 0.1
    template: str = "a photo of a {attribute} {object}"
    chunk: Annotated[Positive, NO_RESULT] = 64
    device: Annotated[str, NO_RESULT] = "auto"
    """auto, cpu, cuda, cuda:1, mps"""

    def __post_init__(self) -> None:
        check_device(self.device, "device of the attribute encoder")
        check_fields(self, "attributes")
        places = [self.template.count(part) for part in ("{attribute}", "{object}", "{")]
        if places != [1, 1, 2]:
            raise UserError(
                f"attributes.template={self.template!r} needs {{attribute}} and {{object}} "
                "once each"
            )

    def add(
        self, images: Sequence[Image], detections: Sequence[Sequence[Detection]]
    ) -> list[tuple[Detection, ...]]:
        """Return the objects of each image with their attributes, the most certain first.

        An attribute's score is its probability among all of the vocabulary: the softmax of the
        cosines times the encoder's learnt scale.
        """
        crops: list[Image] = []
        places: list[tuple[int, int]] = []
        for row, (image, objects) in enumerate(zip(images, detections, strict=True)):
            for number, detection in enumerate(objects):
                box = detection.box and clip_box(detection.box, *image.size, padding=self.padding)
                if box and not detection.attributes:
                    # The pixels that the box touches, at least one; ``crop`` rounds differently.
                    left, top = int(box[0]), int(box[1])
                    right, bottom = -int(-box[2] // 1), -int(-box[3] // 1)
                    whole = left, top, max(right, left + 1), max(bottom, top + 1)
                    crops.append(image.crop(whole))
                    places.append((row, number))
        labels = [detections[row][number].label for row, number in places]
        ranked = dict(zip(places, self._rank(crops, labels), strict=True))
        return [
            tuple(
                replace(detection, attributes=ranked.get((row, number), detection.attributes))
                for number, detection in enumerate(objects)
            )
            for row, objects in enumerate(detections)
        ]

    def _rank(self, crops: Sequence[Image], labels: Sequence[str]) -> list[tuple[Attribute, ...]]:
        import torch

        if not crops:
            return []
        encoder, parts = self._encoder, []
        with torch.inference_mode():
            scale = encoder.logit_scale().float()
            for start in range(0, len(crops), self.chunk):
                arrays = [encoder.transform(crop) for crop in crops[start : start + self.chunk]]
                pixels = torch.from_numpy(stack_pixels(arrays, encoder.transform.size))
                parts.append(encoder.encode_image(pixels.to(self._device)))
            images = torch.nn.functional.normalize(torch.cat(parts).float(), dim=1)
            pairs = zip(images, labels, strict=True)
            logits = torch.stack([image @ self._embed_texts(label).T for image, label in pairs])
            shares = torch.softmax(logits * scale, 1).cpu().tolist()
        ranked = []
        for row in shares:
            rounded = [round(share, DIGITS) for share in row]
            order = sorted(range(len(rounded)), key=lambda i: (-rounded[i], i))[: self.most]
            ranked.append(tuple(Attribute(self._words[i], rounded[i]) for i in order))
        return ranked

    def _embed_texts(self, label: str) -> Tensor:
        """Return the embeddings of a label with every attribute; the last labels are cached."""
        import torch

        if label not in self._known:
            texts = [self.template.format(attribute=word, object=label) for word in self._words]
            parts = [
                self._encoder.encode_text(self._encoder.tokenize(texts[start : start + self.chunk]))
                for start in range(0, len(texts), self.chunk)
            ]
            # About 100 MB for 100 attributes with embeddings of 512 numbers.
            if len(self._known) == 512:
                self._known.pop(next(iter(self._known)))
            self._known[label] = torch.nn.functional.normalize(torch.cat(parts).float(), dim=1)
        return self._known[label]

    @cached_property
    def _known(self) -> dict[str, Tensor]:
        return {}

    @cached_property
    def _device(self) -> Any:
        return choose_device(self.device, "device of the attribute encoder")

    @cached_property
    def _encoder(self) -> Any:
        return self.model.load(DualEncoder).to(self._device).eval()

    @cached_property
    def _words(self) -> tuple[str, ...]:
        return visual_words("attributes", self.vocabulary)

    def identity(self) -> str:
        """Return a hash of the weights and of all settings that change an answer."""
        settings = [self._words, self.most, self.padding, self.template, self.device]
        hashes = [self.model.weights_hash(), self.model.settings_hash()]
        return sha256_text(" ".join([*map(repr, settings), *hashes]))

    def describe(self, name: str) -> dict[str, str]:
        """Return the encoder with the hash of its weights, for the card."""
        words = f"{len(self._words)} attributes"
        return {name: f"{words} by {self.model} sha256:{self.model.weights_hash()}"}
