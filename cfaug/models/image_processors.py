"""The image processor that a checkpoint of transformers brings, as a transform of ours."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from cfaug.core.errors import UserError, say_once
from cfaug.core.pixels import Geometry, ImageTransform

MOST = 5
"""The largest mean or standard deviation that is likely of pixels from 0 to 1."""
LEAST_STD = 0.02
"""The smallest standard deviation that is likely: those of photos are about 0.2."""


def channels(values: object, name: str, owner: object) -> tuple[float, float, float]:
    """Return a model's normalisation values for red, green and blue.

    Args:
        name: ``mean`` or ``std``; a value of ``std`` has to be above 0.
    """
    given = list(values) if isinstance(values, list | tuple) else []
    fits = [
        isinstance(v, int | float) and math.isfinite(v) and (v > 0 or name != "std") for v in given
    ]
    if len(fits) != 3 or not all(fits):
        raise UserError(f"{owner}: {name}={values!r} should be three numbers, one a colour")
    if max(map(abs, given)) > MOST:
        raise UserError(
            f"{owner}: {name}={values!r} is of pixels from 0 to 255, and pixels are divided by 255 "
            f"before it is used: divide it by 255, as {[round(v / 255, 3) for v in given]}"
        )
    if name == "std" and min(given) < LEAST_STD:
        say_once(
            f"warning: {owner}: std={values!r} makes pixels of more than {1 / LEAST_STD:.0f}: is "
            "it the one of the model's training?"
        )
    red, green, blue = map(float, given)
    return red, green, blue


def square(size: object, owner: object) -> int:
    """Return the side of a square image size given as a number or a pair."""
    if isinstance(size, int):
        return size
    if isinstance(size, tuple | list) and len(size) == 2 and size[0] == size[1] is not None:
        return int(size[0])
    raise UserError(f"{owner}: the image size {size} is not square, which is not supported")


def image_transform(
    processor: Any, owner: object, geometry: Geometry | None = None
) -> ImageTransform:
    """Read size, mean, standard deviation, filter and geometry from a saved image processor.

    A processor that pads (ViLT) or rounds the long side to a multiple of 32 (BridgeTower) is
    replaced by a centre crop, which differs for images that are not square.

    Args:
        geometry: ``crop`` or ``squash`` images to a square; ``None`` follows the processor.
    """
    sizes = {name: side for name, side in dict(processor.size or {}).items() if side is not None}
    if "longest_edge" in sizes:
        raise UserError(
            f"{owner}: its image processor makes images of many shapes (size={sizes}), and here "
            "all are squares of one size: choose a model that reads squares, such as LLaVA-1.5 or "
            "BLIP; model=vlm reads any"
        )
    filters: dict[int, Literal["bicubic", "bilinear"]] = {2: "bilinear", 3: "bicubic"}
    resample = filters.get(int(processor.resample))
    if resample is None:
        raise UserError(f"{owner}: the filter {processor.resample!r} is not bicubic or bilinear")
    if abs(getattr(processor, "rescale_factor", 1 / 255) - 1 / 255) > 1e-9:
        raise UserError(f"{owner}: rescale_factor {processor.rescale_factor} is not 1/255")
    default: Geometry = "crop" if sizes.get("shortest_edge") else "squash"
    resized = _side(sizes, owner)
    crops = getattr(processor, "do_center_crop", False)
    size = _side(processor.crop_size, owner) if crops else resized
    if getattr(processor, "crop_pct", None):  # of ConvNeXt and ResNet, or of PoolFormer
        if crops or size < WARPED:
            resized = int(resized / processor.crop_pct)
        else:
            default = "squash"
    mean, std = (channels(getattr(processor, f"image_{n}"), n, owner) for n in ("mean", "std"))
    cut = resized if resized != size else None
    return ImageTransform(size, mean, std, resample, geometry or default, cut)


WARPED = 384
"""The size from which ConvNeXt's image processor crops nothing and changes the proportions."""


def equal_transform(
    processor: Any, owner: object, geometry: Geometry | None = None
) -> ImageTransform:
    """Return ``image_transform``'s result, and refuse a processor that prepares images otherwise.

    Some have steps of their own, such as exchanging red and blue. They are found by a square image
    of ramps: filters differ little on it, geometries only on other shapes. A processor that the
    library itself cannot run, as some of older versions, is taken as its settings describe it.
    """
    transform = image_transform(processor, owner, geometry)
    ramp = np.linspace(0, 255, 64, dtype=np.uint8)
    picture = Image.fromarray(
        np.stack(np.broadcast_arrays(ramp[:, None], ramp, ramp[::-1, None] // 2), axis=-1)
    )
    try:
        theirs = processor(picture, return_tensors="pt")["pixel_values"].float()
    except Exception as error:  # the library may raise anything
        say_once(
            f"{owner}: transformers cannot run its {type(processor).__name__} "
            f"({type(error).__name__}: {error}); its settings are followed"
        )
        return transform
    ours = transform.normalize(torch.from_numpy(transform(picture)[None].copy()))
    two_pixels = 2 / (transform.size * min(transform.std))  # crops round to different sides
    if theirs.shape != ours.shape or (ours - theirs).abs().mean() > two_pixels:
        raise UserError(
            f"{owner}: its {type(processor).__name__} does more or less than resize, crop, divide "
            "by 255 and normalise images, which is not supported: the model would see other images "
            "than in its training. Choose another checkpoint, such as timm's (model=timm)"
        )
    return transform


def check_size(read: Callable[[Tensor], Tensor], transform: ImageTransform, owner: object) -> None:
    """Refuse a model that cannot read images as large as its processor makes them.

    Args:
        read: the model as a function of uint8 (n, 3, size, size); it is called with a black image.
    """
    try:
        with torch.inference_mode():
            read(torch.zeros((1, 3, transform.size, transform.size), dtype=torch.uint8))
    except (ValueError, RuntimeError) as error:
        raise UserError(
            f"{owner}: its image processor makes images of {transform.size} pixels, and the model "
            f"does not read them ({error}): correct the sizes in processor_config.json or "
            "preprocessor_config.json"
        ) from error


def say_other_size(config: Any, transform: ImageTransform, owner: object) -> None:
    """Warn of images of another size than a model's configuration says, if it reads any size."""
    said = getattr(getattr(config, "vision_config", config), "image_size", None)
    if isinstance(said, int) and said != transform.size:
        say_once(
            f"warning: {owner}: its image processor makes images of {transform.size} pixels, and "
            f"config.json says image_size={said}: is the processor that of another model?"
        )


def _side(size: Mapping[str, int], owner: object) -> int:
    given = dict(size)
    both = given.get("height") or None, given.get("width") or None
    return given.get("shortest_edge") or square(both, owner)
