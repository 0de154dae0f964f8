"""Images between disk and model: checked, decoded, resized and cropped, as uint8.

Normalisation happens later, on the device and per batch: uint8 is a quarter of the bytes that
workers would otherwise have to send.
"""

from __future__ import annotations

import hashlib
import io
import struct
import warnings
from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from cfaug.core.devices import send
from cfaug.core.errors import UserError

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from PIL import Image
    from torch import Tensor


MAX_PIXELS = 89_478_485
"""Pillow's own bound against decompression bombs: a quarter of a GiB of RGB."""
LARGEST_SIDE = 4096
"""The largest side of a model's input in pixels; open_clip and transformers have up to 1,024."""
FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF")
"""Formats that are decoded, whatever the file's name; EPS would start another program."""
BITS_PER_SAMPLE, SAMPLE_FORMAT = 258, 339
"""TIFF tags."""
ORIENTATION = 274
"""Tag of EXIF: 1 is upright, 2 to 8 are turned or mirrored."""
UNSIGNED, SIGNED, FLOATING = 1, 2, 3
"""Values of the TIFF tag ``SAMPLE_FORMAT``."""
Geometry = Literal["crop", "squash"]


@dataclass(frozen=True)
class ImageTransform:
    """Resize, centre crop, RGB; the same for training and evaluation, without augmentation.

    The default is CLIP's evaluation transform (Radford et al., 2021), which ``run_clip.py`` trains
    with too. Resizing is Pillow's, as in open_clip and by CLIP's authors.

    Args:
        size: the side of the result in pixels.
        mean: the mean of each channel that is subtracted, for values in [0, 1].
        std: the standard deviation of each channel that values are divided by.
        geometry: ``crop`` resizes the short side and keeps the proportions; ``squash`` resizes
            both sides, as SigLIP's and FLAVA's authors do.
        resized: the side in pixels after the resize; ``None`` is ``size``, so that nothing is
            cropped off a square.
    """

    size: int
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    resample: Literal["bicubic", "bilinear"] = "bicubic"
    geometry: Geometry = "crop"
    resized: int | None = None

    def __post_init__(self) -> None:
        for side in (self.size, self.resized or self.size):
            if not 1 <= side <= LARGEST_SIDE:
                raise UserError(
                    f"an image transform to {side} pixels: choose a side from 1 to {LARGEST_SIDE}"
                )
        if self.resized is not None and self.resized < self.size:
            raise UserError(f"a crop of {self.size} pixels is larger than {self.resized}")

    def __call__(self, image: Image.Image) -> np.ndarray:
        """Return uint8 (3, size, size)."""
        image = to_rgb(image)
        width, height = image.size
        side, short = self.resized or self.size, min(width, height)
        if self.geometry == "squash":
            width, height = side, side
        elif short != side:
            # torchvision's rule: the long side is truncated, not rounded.
            width, height = int(side * width / short), int(side * height / short)
        left, top = round((width - self.size) / 2.0), round((height - self.size) / 2.0)
        window = (left, top, left + self.size, top + self.size)
        if width * height > MAX_PIXELS:
            # Only the part that the crop keeps: 1 x 30,000 pixels would become six GiB.
            across, down = image.width / width, image.height / height
            box = (left * across, top * down, window[2] * across, window[3] * down)
            image = image.resize((self.size, self.size), _filter(self.resample), box)
        elif image.size != (width, height):
            image = image.resize((width, height), _filter(self.resample))
        if image.size != (self.size, self.size):
            image = image.crop(window)
        return np.asarray(image).transpose(2, 0, 1)

    def normalize(self, pixels: Tensor) -> Tensor:
        """Map uint8 (batch, 3, size, size) to float32 of about zero mean and unit deviation."""
        import torch

        batch, channels, height, width = pixels.shape
        scales = [1 / (255.0 * s) for s in self.std]
        shifts = [-m / s for m, s in zip(self.mean, self.std, strict=True)]
        scale, shift = send(torch.tensor([scales, shifts]), pixels.device)
        # One row of pixels at a time: loops over the three channels would take three times as long.
        rows = pixels.permute(0, 2, 3, 1).reshape(batch * height, width * channels)
        if pixels.device.type == "cpu":
            # NumPy requests huge pages, torch does not; the page faults of small ones cost as much
            # as the arithmetic.
            normal = torch.from_numpy(np.empty(rows.shape, np.float32))
        else:
            normal = torch.empty(rows.shape, device=pixels.device)
        normal.copy_(rows).mul_(scale.repeat(width)).add_(shift.repeat(width))
        return normal.view(batch, height, width, channels).permute(0, 3, 1, 2)


def _filter(name: str) -> Image.Resampling:
    from PIL import Image  # here and below: an evaluation from cached features opens no image

    return Image.Resampling[name.upper()]


def stack_pixels(images: Sequence[np.ndarray], size: int) -> np.ndarray:
    """Stack uint8 (3, size, size) images to (n, 3, size, size), channels last in memory.

    This is Pillow's own layout, so that stacking is a plain copy; convolutions are fast on it.
    """
    batch = np.empty((len(images), size, size, 3), np.uint8)
    for i, image in enumerate(images):
        batch[i] = image.transpose(1, 2, 0)
    return batch.transpose(0, 3, 1, 2)


def decode_image(data: bytes, name: str, max_pixels: int = MAX_PIXELS) -> Image.Image:
    """Decode an encoded image to RGB, after checking the size in its header."""
    image = open_image(data, name, max_pixels)
    try:
        image.load()
        return to_rgb(image, name)
    except (OSError, SyntaxError, ValueError) as error:
        raise UserError(
            f"{name}: the image cannot be decoded ({error}); replace or remove it"
        ) from error


def cut_out(data: bytes, box: tuple[int, ...], name: str) -> bytes:
    """Return a part of an encoded image as a PNG, black where it extends beyond the image.

    Args:
        box: left, top, right and bottom in pixels, the latter two excluded.
    """
    width, height = box[2] - box[0], box[3] - box[1]
    if width < 1 or height < 1 or width * height > MAX_PIXELS:
        raise UserError(f"{name}: a part of {width} x {height} pixels is invalid")
    left, top, right, bottom = box
    content = io.BytesIO()
    part = decode_image(data, name).crop((left, top, right, bottom))
    part.save(content, "PNG", compress_level=1)  # it is decoded again soon
    return content.getvalue()


def as_image(pixels: NDArray[np.uint8] | bytes, name: str = "the image") -> Image.Image:
    """Return an image of ``cfaug.core.types.Images`` as a Pillow image.

    Args:
        pixels: uint8 (height, width, 3), or an encoded file.
    """
    from PIL import Image

    return decode_image(pixels, name) if isinstance(pixels, bytes) else Image.fromarray(pixels)


def as_floats(pixels: NDArray[np.uint8] | bytes, name: str = "the image") -> Tensor:
    """Return an image of ``cfaug.core.types.Images`` as float32 (3, height, width) in [0, 1].

    Args:
        pixels: uint8 (height, width, 3), or an encoded file.
    """
    import torch

    whole = np.array(as_image(pixels, name))
    return torch.from_numpy(whole).permute(2, 0, 1).float() / 255


def round_pixels(images: Tensor) -> np.ndarray:
    """Round images float32 (n, 3, H, W) in [0, 1] to uint8 (n, H, W, 3)."""
    import torch

    rounded = (images * 255).round().clamp(0, 255).to(torch.uint8)
    return rounded.permute(0, 2, 3, 1).cpu().numpy()


def open_image(data: bytes, name: str, max_pixels: int = MAX_PIXELS) -> Image.Image:
    """Open an image, reading only its header."""
    from PIL import Image, UnidentifiedImageError

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            image = Image.open(io.BytesIO(data), formats=FORMATS)
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise UserError(f"{name}: {error}; shrink or remove it") from error
    except UnidentifiedImageError as error:  # its message names an object in memory
        raise UserError(
            f"{name} is not an image that can be read (not one of {', '.join(FORMATS)})"
        ) from error
    except (OSError, SyntaxError, ValueError) as error:
        raise UserError(f"{name} is not an image that can be read ({error})") from error
    width, height = image.size
    if width * height > max_pixels:
        raise UserError(
            f"{name}: {width} x {height} pixels is more than {max_pixels}; shrink or remove it"
        )
    _bits(image, name)
    return image


def is_turned(image: Image.Image) -> bool:
    """Return whether EXIF data in a JPEG's or WebP's header say to turn or mirror the image.

    Pillow turns a TIFF itself, and a PNG may have EXIF data only at its end.
    """
    from PIL import Image

    data = image.info.get("exif")
    if image.format not in ("JPEG", "WEBP") or not isinstance(data, bytes):
        return False
    exif = Image.Exif()
    with warnings.catch_warnings(), suppress(OSError, SyntaxError, ValueError, struct.error):
        warnings.simplefilter("ignore")  # of damaged EXIF data, which nothing else reads
        exif.load(data)
        return exif.get(ORIENTATION) in range(2, 9)
    return False


def to_rgb(image: Image.Image, name: str = "the image") -> Image.Image:
    """Convert an image to 8-bit RGB, mapping black to black and white to white.

    Grey tones of 9 to 16 bits are scaled and rounded to the nearest of 256; Pillow would clip them
    at 255. Pillow reads other deep images with 8 bits already. Transparency is dropped, as in
    CLIP's transform.

    """
    if image.mode == "RGB":
        return image
    bits = _bits(image, name)
    if bits is None:
        if isinstance(image.info.get("transparency"), bytes):
            image = image.convert("RGBA")  # Pillow warns of a direct conversion
        return image.convert("RGB")
    from PIL import Image

    white = 2**bits - 1
    tones = np.asarray(image).astype(np.int64)
    eight = (np.clip(tones, 0, white) * 255 + white // 2) // white
    return Image.fromarray(eight.astype(np.uint8)).convert("RGB")


def _bits(image: Image.Image, name: str) -> int | None:
    """Return the bits per sample of a deep grey image; ``None`` for other images."""
    if not image.mode.startswith(("I", "F")):
        return None
    tags = getattr(image, "tag_v2", {})  # TIFF's tags; a PNG of such a mode has 16 bits
    bits = tags.get(BITS_PER_SAMPLE, (16 if image.mode != "F" else 32,))[0]
    kind = tags.get(SAMPLE_FORMAT, (UNSIGNED,))[0]
    if image.mode == "F" or bits > 16 or kind != UNSIGNED:
        sort = "floating point" if image.mode == "F" or kind == FLOATING else f"{bits} bits"
        raise UserError(
            f"{name}: its tones are of {sort}{' with a sign' if kind == SIGNED else ''}, for "
            "which white is undefined; save it with 8 or 16 bits"
        )
    return int(bits)


# Checks of an encoded image without decoding it, and the digest of its content.

CHUNK = 4 * 2**20
"""Number of bytes of an image that are read at once: all of it, except for the very largest."""
DIGEST_BYTES = 16
IMAGES = (".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff")
"""Extensions of formats that ``cfaug.core.pixels`` decodes."""
UNREAD_IMAGES = (
    ".avif", ".eps", ".heic", ".heif", ".ico", ".jfif", ".jp2", ".jxl", ".pbm", ".pgm", ".ppm",
    ".psd", ".svg", ".tga", ".cr2", ".dng", ".nef", ".arw",
)  # fmt: skip
"""Extensions of unsupported image formats, which are reported if a folder has such images."""


class Digest(NamedTuple):
    """Digests of an image's content.

    Attributes:
        whole: digest of all its bytes, hexadecimal; equal only for equal images.
        turned: whether its EXIF data say to turn or mirror it, which nothing does.
    """

    whole: str
    turned: bool = False

    @classmethod
    def of(cls, data: bytes) -> Digest:
        """Return the digest of an encoded image."""
        return cls(content_digest(data).hex())

    def of_box(self, box: Sequence[int]) -> Digest:
        """Return the digest of a part of the image: left, top, right, bottom in pixels."""
        return Digest(box_digest(bytes.fromhex(self.whole), box).hex())


def content_digest(data: bytes) -> bytes:
    """Return a digest of 16 bytes of the whole content: an image's key in every cache."""
    return hashlib.blake2b(data, digest_size=DIGEST_BYTES).digest()


def box_digest(digest: bytes, box: Sequence[int]) -> bytes:
    """Return a digest of 16 bytes for a part of the image with ``digest``."""
    return content_digest(digest + b",".join(b"%d" % int(edge) for edge in box))


def check_images_differ(images: Iterable[tuple[str, Hashable]], where: str) -> None:
    """Refuse a counterfactual that shares an image: its caption is wrong about that image.

    Args:
        images: (name, digest) of each member's image.
        where: the place of the set, for the error.
    """
    seen: dict[Hashable, str] = {}
    for name, content in images:
        if content in seen:
            raise UserError(
                f"{where}: a counterfactual shows the same image as another member ({seen[content]}"
                f" and {name}); correct or remove it. Captions without an image of their own are "
                "called neg_caption"
            )
        seen[content] = name


def check_image(read: Callable[[int, int], bytes], length: int, where: str) -> Digest:
    """Read an image once: compute its digest and check its header and its end.

    It is decoded only if header and end leave doubt.

    Args:
        read: a function that returns the image's bytes at (offset, length).
        length: the length of the whole image, in bytes.

    Returns:
        The digest of all its bytes.
    """
    if length == 0:
        raise UserError(f"{where}: the image is empty (0 bytes)")
    first = tail = read(0, min(CHUNK, length))
    digest, done = hashlib.blake2b(first, digest_size=DIGEST_BYTES), len(first)
    while done < length and tail:
        tail = read(done, min(CHUNK, length - done))
        digest.update(tail)
        done += len(tail)
    if done != length:
        raise UserError(f"{where}: {done:,} of {length:,} bytes can be read; is it being written?")
    try:
        turned = is_turned(open_image(first, where))
    except UserError:  # a header longer than a chunk, or not an image
        turned = is_turned(open_image(read(0, length), where))
    end = first[-12:] if length == len(first) else read(length - 12, 12)
    if not _is_whole(first, end, length):
        data = first if length == len(first) else read(0, length)
        decode_image(data, where)
        if data.startswith(b"\x89PNG") and b"IEND" not in data:  # Pillow ignores a missing end
            raise UserError(f"{where}: the image is truncated; replace or remove it")
    return Digest(digest.hexdigest(), turned)


def _is_whole(head: bytes, tail: bytes, length: int) -> bool:
    """Return whether a JPEG, PNG or WebP has its end; false also if bytes follow the end."""
    if head[:4] == b"RIFF":
        return int.from_bytes(head[4:8], "little") + 8 == length
    return tail.endswith(b"\xff\xd9") or tail[4:8] == b"IEND"
