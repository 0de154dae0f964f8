"""The distance of a caption from its image, by a dual encoder such as CLIP."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from cfaug.core.devices import check_device, choose_device
from cfaug.core.errors import UserError
from cfaug.core.messages import say
from cfaug.core.pixels import decode_image, stack_pixels
from cfaug.core.protocols import DualEncoder
from cfaug.core.read_with import ReadWith
from cfaug.core.safety.weight_limits import find_damaged
from cfaug.core.validation import check_fields
from cfaug.editing.protocols import round_digits

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cfaug.core.types import SourceImage
    from cfaug.models.checkpoints import Checkpoint

IMAGES, TEXTS = 64, 256
"""Numbers of images and of texts embedded at once."""

BROKEN_PHOTO = "photo_broken"
"""The reason of an example whose image cannot be decoded."""


@dataclass(frozen=True)
class ImageTextDistance:
    """One minus the cosine of image and text: d of equation 1 before normalisation.

    Texts beyond the model's length limit are truncated, as in the released code: candidates that
    differ only beyond it have the same distance.

    Args:
        model: the specification of a model that provides a DualEncoder, loaded on first use (CLIP
            ViT-B/32, section 4.4).
        prefix: the text put before each text, "This is " in the released code.
        device: a name for ``choose_device``; ``auto`` is the GPU where there is one.
        dtype: the number format of the computation. A distance's last bits depend on its batch.
            After rounding to five digits, float64 distances do not, and one in some hundred float32
            distances does.
    """

    model: Checkpoint
    prefix: str = "This is "
    device: str = "auto"
    dtype: Literal["float32", "float64"] = "float32"

    read_with: ClassVar[ReadWith] = {"model.logit_scale_min": [], "model.logit_scale_max": []}

    def __post_init__(self) -> None:
        check_device(self.device, "recipe.editor.image_text.device")
        check_fields(self, "recipe.editor.image_text")

    def embed_images(
        self, images: Mapping[str, SourceImage]
    ) -> dict[str, NDArray[np.float64] | None]:
        """Return the unit embedding (dim,) of each image, by digest.

        An image that cannot be decoded is named on the terminal and left out.

        Raises:
            UserError: if a file is missing, or changed since it was indexed.
        """
        found: dict[str, NDArray[np.float64] | None] = {}
        digests = list(images)
        for start in range(0, len(digests), IMAGES):
            pixels: dict[str, np.ndarray] = {}
            for digest in digests[start : start + IMAGES]:
                data = images[digest].read()
                try:
                    photo = decode_image(data, f"the image {digest[:16]}")
                except UserError as error:
                    say(f"rejected ({BROKEN_PHOTO}): {error}")
                    found[digest] = None
                else:
                    pixels[digest] = self._encoder.transform(photo)
            if pixels:
                found.update(zip(pixels, self._embed_pixels(list(pixels.values())), strict=True))
        return found

    def embed_texts(self, texts: Sequence[str]) -> list[NDArray[np.float64]]:
        """Return the unit embedding (dim,) of each text with the prefix before it."""
        import torch

        # Texts of similar length form a batch, so that short ones are not padded to the longest.
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
        found: list[Any] = [None] * len(texts)
        for start in range(0, len(order), TEXTS):
            rows = order[start : start + TEXTS]
            with torch.inference_mode():
                tokens = self._encoder.tokenize([f"{self.prefix}{texts[i]}" for i in rows])
                placed = {name: one.to(self._place) for name, one in tokens.items()}
                some = self._units(self._encoder.encode_text(placed))
            for row, vector in zip(rows, some, strict=True):
                found[row] = vector
        return found

    @staticmethod
    def distance(image: NDArray[np.float64], text: NDArray[np.float64]) -> float:
        """Return one minus the cosine of two unit embeddings, rounded to five digits."""
        return round_digits(1.0 - float(image @ text))

    def describe(self) -> dict[str, str]:
        """Return the model with its settings, and the hash of its weights, for the card."""
        return {"image_text": f"{self.model} sha256:{self.model.weights_hash()}"}

    def identity(self) -> str:
        """Return everything that a distance depends on."""
        parts = [self.prefix, self.dtype, self.model.identity(), self.model.settings_hash()]
        return " ".join(map(repr, parts))

    def _embed_pixels(self, pixels: Sequence[np.ndarray]) -> NDArray[np.float64]:
        import torch

        transform = self._encoder.transform
        stacked = torch.from_numpy(stack_pixels(pixels, transform.size)).to(self._place)
        with torch.inference_mode():
            normal = transform.normalize(stacked).to(getattr(torch, self.dtype))
            return self._units(self._encoder.encode_pixels(normal))

    def _units(self, vectors: Any) -> NDArray[np.float64]:
        found = vectors.double().cpu().numpy()
        if not np.isfinite(found).all():
            wrong = find_damaged(self._encoder)
            raise UserError(
                f"{self.model}: its embeddings are not numbers"
                + ("" if wrong is None else f": its weight {wrong} is damaged")
            )
        return found / np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1e-12)

    @cached_property
    def _place(self) -> str:
        return str(choose_device(self.device, "recipe.editor.image_text.device"))

    @cached_property
    def _encoder(self) -> Any:
        import torch

        encoder: Any = self.model.load(DualEncoder)
        return encoder.to(self._place).to(getattr(torch, self.dtype)).eval()
