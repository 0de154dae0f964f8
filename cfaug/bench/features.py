"""Embeddings kept on disk, so that a model meets no image and no text twice.

``<paths.cache>/features/<model>/`` holds what one model made of images and texts, each under the
hash of its content: suites that share images share them, and so does a second evaluation. A file
is written aside and renamed, is never changed after that, and may be deleted at any time. A model
is its weights, its image transform, what its tokenizer makes of a long text, and the kind of
device: whatever changes an embedding by more than the rounding of another batch. A small file under
``features/`` remembers which model some weights and settings came to, so that what is all known is
answered without loading the model, or torch.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from cfaug.errors import UserError
from cfaug.files import write_file

if TYPE_CHECKING:
    from cfaug.data.index import Index
    from cfaug.protocols import DualEncoder

FORMAT = 1
KEY_BYTES = 16
READERS = 4
PROBE = " ".join(["a photo of two zebras, 3 cafés & one Übung; don't!"] * 40)
"""Longer than any model reads, with what tokenizers treat differently."""

Kind = Literal["image", "text"]


def text_keys(texts: Sequence[str]) -> list[bytes]:
    """Return a key for each text."""
    return [hashlib.blake2b(text.encode(), digest_size=KEY_BYTES).digest() for text in texts]


def image_keys(index: Index, rows: np.ndarray) -> list[bytes]:
    """Return a key for the encoded bytes of each row's image, whole.

    Kept beside the index, whose folder is another one as soon as a file changes.

    Raises:
        UserError: if an image cannot be read.
    """
    file = index.folder / "content.npy"
    images = np.asarray(index.images)[rows]
    kept, count = _read(file), int(np.max(index.images)) + 1
    fits = kept is not None and kept.shape == (count, KEY_BYTES)
    known = np.array(kept) if fits else np.zeros((count, KEY_BYTES), np.uint8)
    unknown = ~known[images].any(axis=1)
    if unknown.any():
        with ThreadPoolExecutor(READERS) as pool:
            digests = list(pool.map(lambda row: _digest(index, row), rows[unknown].tolist()))
        known[images[unknown]] = np.frombuffer(b"".join(digests), np.uint8).reshape(-1, KEY_BYTES)
        _write(file, _bytes(known))
    return [row.tobytes() for row in known[images]]


def _digest(index: Index, row: int) -> bytes:
    return hashlib.blake2b(index.read_image(row), digest_size=KEY_BYTES).digest()


class Features:
    """What one model made of images or texts.

    Args:
        folder: of the model; made when something is added.
        kind: ``image`` or ``text``.
    """

    def __init__(self, folder: Path, kind: Kind) -> None:
        self._folder, self._kind = folder, kind
        self._place: dict[bytes, tuple[np.ndarray, int]] = {}
        for file in sorted(folder.glob(f"{kind}-*.npy")):
            segment = _read(file)
            if segment is not None and segment.dtype.names == ("key", "vector"):
                self._place_rows(segment)

    def missing(self, keys: Sequence[bytes]) -> list[int]:
        """Return the positions of keys nothing is known of, each such key once."""
        first = dict[bytes, int]()
        for position, key in enumerate(keys):
            if key not in self._place:
                first.setdefault(key, position)
        return list(first.values())

    def get(self, keys: Sequence[bytes]) -> np.ndarray:
        """Return the embeddings of keys that are all known, float32 (keys, dim)."""
        places = [self._place[key] for key in keys]
        return np.stack([segment["vector"][row] for segment, row in places])

    def add(self, keys: Sequence[bytes], vectors: np.ndarray) -> None:
        """Keep embeddings, float32 (keys, dim).

        Raises:
            UserError: if they cannot be written.
        """
        kind_of_row = np.dtype([("key", f"V{KEY_BYTES}"), ("vector", "<f4", vectors.shape[1:])])
        segment = np.empty(len(keys), kind_of_row)
        segment["key"] = np.frombuffer(b"".join(keys), f"V{KEY_BYTES}")
        segment["vector"] = vectors
        name = hashlib.blake2b(b"".join(keys), digest_size=KEY_BYTES).hexdigest()
        _write(self._folder / f"{self._kind}-{name}.npy", _bytes(segment))
        self._place_rows(segment)

    def _place_rows(self, segment: np.ndarray) -> None:
        for row, key in enumerate(np.ascontiguousarray(segment["key"])):
            self._place[key.tobytes()] = (segment, row)


class Remembering:
    """A dual encoder that is loaded when something is asked that is not known of it.

    Args:
        load: gives the model.
        weights: the hash of its weights.
        settings: the hash of all else that shapes an embedding, known without loading.
        root: where the features of all models lie.
        limit: bytes that may lie there; the models unused for longest go first, this one never.
    """

    def __init__(
        self, load: Callable[[], DualEncoder], weights: str, settings: str, root: Path, limit: int
    ) -> None:
        self._load, self._weights = load, weights
        self._pointer = root / f"{_pointer(weights, settings)}.json"
        folder = root / self._model()
        self.images = Features(folder, "image")
        self.texts = Features(folder, "text")
        if folder.exists():
            os.utime(folder)
        prune(root, limit, keep=folder)

    @cached_property
    def encoder(self) -> DualEncoder:
        """The model itself."""
        return self._load()

    def _model(self) -> str:
        """Return the name of the model's folder: by what was found out before, or by loading it."""
        try:
            return str(json.loads(self._pointer.read_text())["model"])
        except (OSError, ValueError, KeyError, TypeError):
            model = model_key(self.encoder, self._weights)
            _write(self._pointer, json.dumps({"model": model}).encode())
            return model


def _pointer(weights: str, settings: str) -> str:
    """Name what decides a model before it is loaded, the libraries that load it among them."""
    found = [_version(name) for name in ("torch", "transformers", "open_clip_torch", "tokenizers")]
    gpu = Path("/dev/nvidiactl").exists()
    content = json.dumps([FORMAT, weights, settings, found, gpu])
    return hashlib.sha256(content.encode()).hexdigest()[:32]


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def model_key(encoder: DualEncoder, weights: str) -> str:
    """Return the name of a model's folder, 32 hex digits, from how it was loaded."""
    tokens = encoder.tokenize([PROBE, "a"])
    content = {
        "format": FORMAT,
        "weights": weights,
        "encoder": type(encoder).__qualname__,
        "transform": asdict(encoder.transform),
        "device": encoder.logit_scale().device.type,
        "tokens": {name: ids.tolist() for name, ids in sorted(tokens.items())},
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:32]


def prune(root: Path, limit: int, keep: Path) -> None:
    """Delete models under ``root``, the least recently used first, down to ``limit`` bytes."""
    if not root.is_dir():
        return
    sizes = {}
    for folder in root.iterdir():
        if folder.is_dir():
            sizes[folder] = sum(_size(file) for file in folder.iterdir())
    total = sum(sizes.values())
    for folder in sorted(sizes, key=lambda one: one.stat().st_mtime):
        if total <= limit:
            return
        if folder != keep:
            shutil.rmtree(folder, ignore_errors=True)
            total -= sizes[folder]


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except FileNotFoundError:  # another process renamed or pruned it
        return 0


def _read(file: Path) -> np.ndarray | None:
    """Return a mapped array; ``None`` if the file has gone or is no array, which is no loss."""
    try:
        return np.load(file, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None


def _bytes(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def _write(file: Path, content: bytes) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_file(file, content)
    except OSError as error:
        raise UserError(
            f"embeddings cannot be kept in {file.parent}: {error.strerror}; free some space there, "
            "choose another paths.cache, or set feature_cache=0"
        ) from error
