"""The perceptual hash of each image of an index: a column that is made when it is first needed.

It lies beside the digests of the index and is not part of the source's hash.
"""

from __future__ import annotations

import zlib
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from io import BytesIO
from typing import TYPE_CHECKING

import numpy as np

from cfaug.core.atomic_files import write_file
from cfaug.core.errors import say
from cfaug.core.perceptual_hash import perceptual_hash
from cfaug.core.progress import Progress
from cfaug.data.index.extra_columns import map_column

if TYPE_CHECKING:
    from cfaug.data.index.index import Index

FILE = "image_hashes_1.npy"
"""The column, uint64 (images + 1,): the hashes, and the CRC-32 of their bytes. Its number is to be
raised when ``perceptual_hash`` changes."""
AT_ONCE = 2**12
"""Number of images that wait for a thread: there may be ten million."""


@lru_cache(maxsize=8)
def image_hashes(index: Index) -> np.ndarray:
    """Return the perceptual hash of each image, uint64 (images,), by the image's number.

    Every image of the index is decoded once, on all cores, and what is known is kept beside it. An
    index that cannot be written to is hashed by each command anew.

    Raises:
        UserError: if an image cannot be decoded.
    """
    file, digests = index.folder / FILE, index.digests
    try:
        kept = map_column(file)
        if kept.dtype == np.uint64 and kept.shape == (len(digests) + 1,):
            hashes = kept[:-1]
            if zlib.crc32(hashes.tobytes()) == kept[-1]:
                return hashes
        say(f"{file} is damaged: it is made again")
    except (OSError, ValueError, EOFError):  # not there yet, or not an array
        pass
    numbers, rows = np.unique(index.images, return_index=True)  # a row that shows each image

    def hash_row(row: np.int64) -> int:
        return perceptual_hash(index.image(int(row)))

    hashes = np.zeros(len(digests), np.uint64)
    title = f"hashing the images of {index.source}"
    with (
        Progress(title, len(rows), "images") as progress,
        ThreadPoolExecutor() as pool,  # Pillow decodes without Python's lock
    ):
        for start in range(0, len(rows), AT_ONCE):
            part = slice(start, start + AT_ONCE)
            for number, hashed in zip(numbers[part], pool.map(hash_row, rows[part]), strict=True):
                hashes[number] = hashed
                progress.advance()
    content = BytesIO()
    np.save(content, np.append(hashes, np.uint64(zlib.crc32(hashes.tobytes()))))
    try:
        write_file(file, content.getvalue())
    except OSError as error:
        say(f"the hashes of the images of {index.source} are not kept in {file}: {error.strerror}")
    return hashes
