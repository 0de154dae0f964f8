"""An image processor that processes the same images only once for different prompts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class ImageMemory:
    """A cache of an image processor's output for its last images.

    A processor of images and text processes both again for every text, and spends most of the time
    on the images. Everything except calls is delegated to the image processor.

    Args:
        processor: a transformers image processor.
    """

    def __init__(self, processor: Any) -> None:
        self._processor = processor
        self._images: tuple[Any, ...] = ()
        self._settings: dict[str, Any] = {}
        self._made: Any = None

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the image processor."""
        if name.startswith("__") or name == "_processor":  # not for copying and pickling
            raise AttributeError(name)
        return getattr(self._processor, name)

    def __call__(self, images: Any, **settings: Any) -> Any:
        """Return the image processor's output for images; the last output is cached.

        Args:
            images: an image or nested lists of images, passed on by a processor.
            settings: keyword arguments of the image processor.
        """
        asked = tuple(_flatten(images))
        same = len(asked) == len(self._images) and all(
            one is other for one, other in zip(asked, self._images, strict=True)
        )
        if self._made is None or not same or settings != self._settings:
            self._made = self._processor(images, **settings)
            self._images, self._settings = asked, settings
        return self._made.copy()  # processors remove entries


def _flatten(images: Any) -> list[Any]:
    if isinstance(images, Sequence) and not isinstance(images, str):
        return [one for part in images for one in _flatten(part)]
    return [images]
