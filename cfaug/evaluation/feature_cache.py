"""Embeddings, logits and matching scores cached on disk, so that nothing is computed twice.

``<paths.cache>/features/<model>/`` holds one model's outputs for images and texts, each under the
hash of its content: suites that share images share them, and so does a second evaluation. Scores of
pairs are stored under the hash of the whole batch they were scored in, so that their last digits do
not depend on earlier evaluations. A file is written under a temporary name and renamed, has its
checksum in its name, is never changed after that, and may be deleted at any time; one that is
damaged is deleted.

One safetensors file per weights and data set would need no keys. But tests share images: of the
2,209 of the default suites 560 occur a second time, which separate files would compute and keep
again, a third more. A key adds 16 bytes to a vector's 256 (tiny CLIP) or 2,048, writing takes 0.1 s
of 20 s, and a killed evaluation of a slow model resumes with the batches it had computed.
"""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from cfaug.core.errors import UserError
from cfaug.core.file_cache import read_kept, write_kept
from cfaug.core.messages import say
from cfaug.data.sources.image_check import DIGEST_BYTES, content_digest

if TYPE_CHECKING:
    from cfaug.data.index import Index

KEY_BYTES = DIGEST_BYTES

KEPT_TOGETHER = 16
"""Batches that are written to the disk together."""

KEPT_SECONDS = 20.0
"""The longest that computed batches wait to be written: all that a killed process loses."""

Kind = Literal["image", "text", "rawtext", "score", "logit", "answer"]


def text_keys(texts: Sequence[str]) -> list[bytes]:
    """Return a key for each text."""
    return [content_digest(text.encode()) for text in texts]


def image_keys(index: Index, rows: np.ndarray) -> list[bytes]:
    """Return a key for the encoded bytes of each row's image, whole."""
    numbers = np.asarray(index.images)[rows]
    return [digest.tobytes() for digest in index.digests[numbers]]


def batch_keys(images: Sequence[bytes], texts: Sequence[bytes], size: int) -> list[bytes]:
    """Return a key for each pair of an image and a text: its batch and its place there.

    A score's last digits depend on the batch. No key occurs in two different batches, and either
    all keys of a batch are known or none, so missing keys are grouped into the same batches again.

    Args:
        images: the images' keys.
        texts: the texts' keys, one for each image.
        size: number of pairs per batch; the last batch may be smaller.
    """
    found = []
    for start in range(0, len(images), size):
        some = images[start : start + size]
        found += place_keys(b"".join([*some, *texts[start : start + size]]), len(some))
    return found


def place_keys(content: bytes, count: int) -> list[bytes]:
    """Return a key for each place of a batch.

    Args:
        content: the concatenated keys of the whole batch.
        count: number of places in the batch.
    """
    batch = content_digest(content)
    return [content_digest(batch + place.to_bytes(4, "little")) for place in range(count)]


class Features:
    """One model's outputs for images, texts or pairs.

    Args:
        folder: the model's folder, created when something is added.
        kind: the kind of output: ``image``, ``text``, ``rawtext``, ``score``, ``logit`` or
            ``answer``.
    """

    def __init__(self, folder: Path, kind: Kind) -> None:
        self._folder, self._kind = folder, kind
        self._place: dict[bytes, tuple[np.ndarray, int]] = {}
        damaged = read_kept(
            folder, f"{kind}-*.npy", lambda file: self._place_rows(_map_segment(file))
        )
        if damaged:
            say(f"{damaged} of the files in {folder} are damaged: the contents are recomputed")

    def missing(self, keys: Sequence[bytes]) -> list[int]:
        """Return the positions of unknown keys, each such key once."""
        first = dict[bytes, int]()
        for position, key in enumerate(keys):
            if key not in self._place:
                first.setdefault(key, position)
        return list(first.values())

    def get(self, keys: Sequence[bytes]) -> np.ndarray:
        """Return the values of keys that are all known, float32 (keys, dim) or (keys,)."""
        places = [self._place[key] for key in keys]
        return np.stack([segment["vector"][row] for segment, row in places])

    def add(self, keys: Sequence[bytes], vectors: np.ndarray) -> None:
        """Store embeddings, float32 (keys, dim), or scores (keys,).

        Raises:
            UserError: if they cannot be written.
        """
        kind_of_row = np.dtype([("key", f"V{KEY_BYTES}"), ("vector", "<f4", vectors.shape[1:])])
        segment = np.empty(len(keys), kind_of_row)
        segment["key"] = np.frombuffer(b"".join(keys), f"V{KEY_BYTES}")
        segment["vector"] = vectors
        name, content = content_digest(b"".join(keys)).hex(), _bytes(segment)
        with explain_refusal(self._folder):
            write_kept(self._folder, f"{self._kind}-{name}", ".npy", content)
        self._place_rows(segment)

    def _place_rows(self, segment: np.ndarray) -> None:
        for row, key in enumerate(np.ascontiguousarray(segment["key"])):
            self._place[key.tobytes()] = (segment, row)


def recall_or_compute(
    features: Features,
    keys: Sequence[bytes],
    compute: Callable[[list[int]], Iterator[np.ndarray]],
) -> np.ndarray:
    """Return the values of keys; missing ones are computed, and written as they arrive.

    Args:
        features: the cache.
        keys: the keys to look up, which may be duplicated.
        compute: yields the embeddings or scores of positions in ``keys``, batch by batch.
    """
    missing = features.missing(keys)
    if missing:
        done = 0
        for piece in _pieces(compute(missing)):
            features.add([keys[p] for p in missing[done : done + len(piece)]], piece)
            done += len(piece)
    return features.get(keys)


def _pieces(batches: Iterator[np.ndarray]) -> Iterator[np.ndarray]:
    """Join batches until they are worth a file: many from a fast model, one from a slow one."""
    found: list[np.ndarray] = []
    since = time.monotonic()
    for batch in batches:
        found.append(batch)
        if len(found) == KEPT_TOGETHER or time.monotonic() - since > KEPT_SECONDS:
            yield np.concatenate(found)
            found, since = [], time.monotonic()
    if found:
        yield np.concatenate(found)


def _map_segment(file: Path) -> np.ndarray:
    """Return the mapped rows of a file.

    Raises:
        OSError: if it cannot be read.
        ValueError: if it holds no keys and vectors.
    """
    segment: np.ndarray = np.load(file, mmap_mode="r", allow_pickle=False)
    if segment.dtype.names != ("key", "vector"):
        raise ValueError(f"{file}: no keys and vectors")
    return segment


def _bytes(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()


@contextmanager
def explain_refusal(folder: Path) -> Iterator[None]:
    """Say what to do if the disk is full or not writable.

    Args:
        folder: the cache folder, for the error.

    Raises:
        UserError: if it cannot be written.
    """
    try:
        yield
    except OSError as error:
        raise UserError(
            f"the model's outputs cannot be cached in {folder}: {error.strerror}; free some "
            "space there, choose another paths.cache, or set feature_cache=0"
        ) from error
