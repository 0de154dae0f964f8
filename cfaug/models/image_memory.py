"""An image processor that makes the same images only once, for prompts that differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class ImageMemory:
    """What an image processor made of the images that it was given last.

    A processor of images and text makes both anew for every text, and most of that time goes into
    the images. Everything but a call is the image processor's own.

    Args:
        processor: of transformers, for images.
    """

    def __init__(self, processor: Any) -> None:
        self._processor = processor
        self._images: tuple[Any, ...] = ()
        self._settings: dict[str, Any] = {}
        self._made: Any = None

    def __getattr__(self, name: str) -> Any:
        """Return what is the image processor's own."""
        if name.startswith("__") or name == "_processor":  # neither copying nor pickling asks it
            raise AttributeError(name)
        return getattr(self._processor, name)

    def __call__(self, images: Any, **settings: Any) -> Any:
        """Return what the image processor makes of images; the last ones are remembered.

        Args:
            images: as a processor hands them over.
            settings: likewise.
        """
        asked = tuple(_flatten(images))
        same = len(asked) == len(self._images) and all(
            one is other for one, other in zip(asked, self._images, strict=True)
        )
        if self._made is None or not same or settings != self._settings:
            self._made = self._processor(images, **settings)
            self._images, self._settings = asked, settings
        return self._made.copy()  # processors take entries out


def _flatten(images: Any) -> list[Any]:
    if isinstance(images, Sequence) and not isinstance(images, str):
        return [one for part in images for one in _flatten(part)]
    return [images]
