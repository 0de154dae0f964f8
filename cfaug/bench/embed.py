"""Embeddings of whole test sets: decoded once a benchmark, computed in batches, normalised."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from cfaug.pixels import decode_image, stack_pixels

if TYPE_CHECKING:
    from torch import Tensor

    from cfaug.data.index import Index
    from cfaug.pixels import ImageTransform
    from cfaug.protocols import DualEncoder

KEEP_BYTES = 512 * 1024 * 1024
"""Decoded pixels a benchmark keeps between models; a larger test set is decoded for each."""

DECODERS = 4
"""Threads that decode: PIL leaves the interpreter's lock while it does."""


class Pixels:
    """The images of an index at the given rows, as a model's transform makes them.

    Kept between models that share a transform, because decoding costs more than a small model.
    """

    def __init__(self, index: Index, rows: np.ndarray) -> None:
        self.index = index
        self.rows = rows
        self._kept: tuple[ImageTransform, np.ndarray] | None = None

    def batches(self, transform: ImageTransform, size: int) -> Iterator[np.ndarray]:
        """Yield every image as uint8 (n, 3, side, side), ``size`` at a time."""
        if self._kept is None or self._kept[0] != transform:
            decoded = self._decode(transform, size)
            if len(self.rows) * 3 * transform.size**2 > KEEP_BYTES:
                yield from decoded
                return
            self._kept = (transform, np.concatenate(list(decoded)))
        whole = self._kept[1]
        for start in range(0, len(whole), size):
            yield whole[start : start + size]

    def _decode(self, transform: ImageTransform, size: int) -> Iterator[np.ndarray]:
        def one(row: int) -> np.ndarray:
            return transform(decode_image(self.index.read_image(row), self.index.image_name(row)))

        with ThreadPoolExecutor(DECODERS) as pool:
            for start in range(0, len(self.rows), size):
                rows = self.rows[start : start + size].tolist()
                yield stack_pixels(list(pool.map(one, rows)), transform.size)


def embed_images(encoder: DualEncoder, pixels: Pixels, batch_size: int) -> np.ndarray:
    """Return unit image embeddings, float32 (images, dim), in the order of ``pixels.rows``."""
    import torch

    def run(batch: np.ndarray) -> Tensor:
        return encoder.encode_image(torch.from_numpy(batch))

    return _embed(encoder, run, pixels.batches(encoder.transform, batch_size))


def embed_texts(encoder: DualEncoder, texts: Sequence[str], batch_size: int) -> np.ndarray:
    """Return unit text embeddings, float32 (texts, dim), in order."""

    def run(batch: Sequence[str]) -> Tensor:
        return encoder.encode_text(encoder.tokenize(batch))

    return _embed(
        encoder, run, (texts[i : i + batch_size] for i in range(0, len(texts), batch_size))
    )


def _embed(encoder: DualEncoder, run: Callable[..., Tensor], batches: Iterator) -> np.ndarray:
    import torch

    with torch.inference_mode(), _evaluating(encoder):
        found = [torch.nn.functional.normalize(run(b).float(), dim=-1).cpu() for b in batches]
    return torch.cat(found).numpy()


@contextmanager
def _evaluating(encoder: DualEncoder) -> Iterator[None]:
    """Switch dropout off, and back to whatever it was."""
    was_training = encoder.training  # type: ignore[attr-defined]
    encoder.eval()  # type: ignore[attr-defined]
    try:
        yield
    finally:
        encoder.train(was_training)  # type: ignore[attr-defined]
