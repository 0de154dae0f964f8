"""Checks of an encoded image without decoding it, and the digest of its content."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import NamedTuple

from cfaug.core.errors import UserError
from cfaug.core.pixels import decode_image, is_turned, open_image

HEAD = 4096
"""Number of bytes of an image that determined its digest before format 3 of indexes."""

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
        head: digest of its length and first 4 KiB, which identified earlier runs.
        turned: whether its EXIF data say to turn or mirror it, which nothing does.
    """

    whole: str
    head: str
    turned: bool = False

    @classmethod
    def of(cls, data: bytes) -> Digest:
        """Return the digest of an encoded image."""
        return cls(content_digest(data).hex(), _head_digest(data[:HEAD], len(data)))

    def of_box(self, box: Sequence[int]) -> Digest:
        """Return the digest of a part of the image: left, top, right, bottom in pixels."""
        return Digest(box_digest(bytes.fromhex(self.whole), box).hex(), f"{self.head} {list(box)}")


def content_digest(data: bytes) -> bytes:
    """Return a digest of 16 bytes of the whole content: an image's key in every cache."""
    return hashlib.blake2b(data, digest_size=DIGEST_BYTES).digest()


def box_digest(digest: bytes, box: Sequence[int]) -> bytes:
    """Return a digest of 16 bytes for a part of the image with ``digest``."""
    return content_digest(digest + b",".join(b"%d" % int(edge) for edge in box))


def _head_digest(head: bytes, length: int) -> str:
    return hashlib.blake2b(
        head + length.to_bytes(8, "little"), digest_size=DIGEST_BYTES
    ).hexdigest()


def check_images_differ(images: Iterable[tuple[str, Hashable]], where: str) -> None:
    """Refuse a counterfactual that shares an image: its caption is wrong about that image.

    Args:
        images: (name, digest) of each member's image.
        where: the place of the set, for the error.

    Raises:
        UserError: if two members show the same image, naming ``where`` and both images.
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
        where: the place of the image, for messages.

    Returns:
        The digest of all its bytes.

    Raises:
        UserError: if this is not an image, or one with too many pixels, truncated, or shorter than
            ``length``, naming ``where``.
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
    return Digest(digest.hexdigest(), _head_digest(first[:HEAD], length), turned)


def _is_whole(head: bytes, tail: bytes, length: int) -> bool:
    """Return whether a JPEG, PNG or WebP has its end; false also if bytes follow the end."""
    if head[:4] == b"RIFF":
        return int.from_bytes(head[4:8], "little") + 8 == length
    return tail.endswith(b"\xff\xd9") or tail[4:8] == b"IEND"
