"""A model whose embeddings, logits or scores are cached; it is loaded when one is missing.

A model is identified by its weights, the files beside them, its settings, its image transform, its
tokens of a long text, and the kind of device: whatever changes its outputs by more than the
rounding errors of a different batch. A small file under ``features/`` maps weights and settings to
the model, so that an evaluation whose answers are all cached loads neither the model nor torch.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, cast

import numpy as np

from cfaug.core.atomic_files import write_file
from cfaug.core.errors import UserError, say
from cfaug.core.files import advise
from cfaug.core.kept_records import KeptRecords, read_kept, write_kept
from cfaug.core.pixels import DIGEST_BYTES, content_digest
from cfaug.core.protocols import Answerer, Classifier, DualEncoder, Entailer, Matcher
from cfaug.core.safety.json_text import load_json

if TYPE_CHECKING:
    from cfaug.data.index import Index


FORMAT = 2
"""1 had no checksums, and clipped images of more than 8 bits to white."""
Model = TypeVar("Model", DualEncoder, Matcher, Classifier, Entailer, Answerer)
LIBRARIES = ("torch", "transformers", "open_clip_torch", "tokenizers")
"""The libraries that load dual encoders and matchers: other versions may give other answers."""


class _CachedModel(Generic[Model]):
    """A model that is loaded only when an answer is missing or another attribute is needed.

    Args:
        weights: the hash of the model's weights.
        settings: the hash of everything else that affects the outputs, known without loading.
        limit: size of ``root`` in bytes above which the least recently used models are deleted;
            this model never is.
    """

    _facts: tuple[str, ...] = ("model",)
    _libraries: tuple[str, ...] = LIBRARIES

    def __init__(
        self, load: Callable[[], Model], weights: str, settings: str, root: Path, limit: int
    ) -> None:
        self._load: Callable[[], Model] = load
        # The name of all that identifies a model before it is loaded.
        versions = [_version(name) for name in self._libraries]
        gpu = Path("/dev/nvidiactl").exists()
        content = json.dumps([FORMAT, self._facts, weights, settings, versions, gpu])
        pointer = root / f"{hashlib.sha256(content.encode()).hexdigest()[:32]}.json"
        # The facts needed before any answer, as stored earlier or by loading the model.
        try:
            kept = load_json(pointer.read_text(encoding="utf-8"))
            facts = {name: str(kept[name]) for name in self._facts}
        except (OSError, ValueError, KeyError, TypeError):
            model = self.model
            facts = {"model": model_key(model, weights, settings)}
            facts |= {name: self._fact(model, name) for name in self._facts if name not in facts}
            with explain_refusal(root):
                root.mkdir(parents=True, exist_ok=True)
                write_file(pointer, json.dumps(facts).encode())
        self._known: dict[str, str] = facts
        self.folder = root / self._known["model"]
        if self.folder.exists():
            os.utime(self.folder)
        prune(root, limit, keep=self.folder)

    @cached_property
    def model(self) -> Model:
        """The model itself."""
        return self._load()

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the model, so that this object follows the model's protocol."""
        if name == "model" or name.startswith("_"):  # neither loading nor copying asks the model
            raise AttributeError(name)
        return getattr(self.model, name)

    @cached_property
    def captions(self) -> KeptRecords:
        """How many of some captions the model cannot tell apart, by the captions' hash."""
        return KeptRecords(self.folder)

    def _fact(self, model: Model, name: str) -> str:
        """Return an attribute of the model as the text that is stored."""
        return str(getattr(model, name))


class CachedEncoder(_CachedModel[DualEncoder]):
    """A dual encoder whose embeddings are cached."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.images = Features(self.folder, "image")
        self.texts = Features(self.folder, "text")

    @cached_property
    def raw_texts(self) -> Features:
        """Embeddings of texts as the encoder returns them, not scaled to unit length."""
        return Features(self.folder, "rawtext")

    @cached_property
    def raw_images(self) -> Features:
        """Embeddings of images as the encoder returns them, not scaled to unit length."""
        return Features(self.folder, "rawimage")

    @cached_property
    def unprojected_images(self) -> Features:
        """Features of images before their projection, not scaled to unit length."""
        return Features(self.folder, "unprojected")


class CachedMatcher(_CachedModel[Matcher]):
    """A matcher whose scores are cached."""

    _facts = ("model", "kind")

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.scores = Features(self.folder, "score")

    @property
    def kind(self) -> str:
        """The kind of the matcher's scores."""
        return self._known["kind"]


class CachedClassifier(_CachedModel[Classifier]):
    """A classifier whose logits are cached."""

    _facts = ("model", "classes")
    _libraries = (*LIBRARIES, "timm", "torchvision")

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.logits = Features(self.folder, "logit")

    @property
    def classes(self) -> tuple[str, ...]:
        """The classifier's class names, in the order of the logits."""
        return tuple(load_json(self._known["classes"]))

    def _fact(self, model: Classifier, name: str) -> str:
        return json.dumps(list(model.classes)) if name == "classes" else super()._fact(model, name)


class CachedEntailer(_CachedModel[Entailer]):
    """An entailer whose answers about images are cached."""

    _facts = ("model", "reads")

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.answers = Features(self.folder, "answer")

    @property
    def reads_images(self) -> bool:
        """Whether the premise is an image; else it is a text."""
        return self._known["reads"] == "images"

    def _fact(self, model: Entailer, name: str) -> str:
        if name == "reads":
            return "texts" if model.transform is None else "images"
        return super()._fact(model, name)


class CachedAnswerer(_CachedModel[Answerer]):
    """A vision-language model whose scores and written answers are cached."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.records = KeptRecords(self.folder)
        if self.records.damaged:
            say(
                f"{self.records.damaged} of the files in {self.folder} are damaged: their answers "
                "are computed again"
            )


CACHED: dict[type, Callable[..., Any]] = {
    DualEncoder: CachedEncoder, Matcher: CachedMatcher, Classifier: CachedClassifier,
    Entailer: CachedEntailer, Answerer: CachedAnswerer,
}  # fmt: skip
"""The protocols whose answers are cached, and the class that caches them."""

for _protocol, _kind in CACHED.items():
    # From Python 3.12 on, isinstance does not see what __getattr__ returns.
    cast("Any", _protocol).register(_kind)


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def model_key(
    model: DualEncoder | Matcher | Classifier | Entailer | Answerer, weights: str, settings: str
) -> str:
    """Return the name of a model's folder, 32 hex digits, from how it was loaded.

    Args:
        weights: the hash of the model's weights.
        settings: the hash of everything else, including the files beside the weights: equal weights
            give different embeddings with a different activation, which no tensor shows.
    """
    transform = getattr(model, "transform", None)  # an answerer's processor lies beside its weights
    content: dict[str, Any] = {
        "format": FORMAT,
        "weights": weights,
        "settings": settings,
        "encoder": type(model).__qualname__,
        "transform": None if transform is None else asdict(transform),
        "device": next(cast("Any", model).parameters()).device.type,
    }
    if isinstance(model, DualEncoder | Matcher):
        from cfaug.models.encoder import PROBE  # imports torch, which a loaded model has done

        tokens = model.tokenize([PROBE, "a"])
        content["tokens"] = {name: ids.tolist() for name, ids in sorted(tokens.items())}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:32]


MODEL_FOLDER = re.compile("[0-9a-f]{32}")
"""Matches the name of a model's folder in a cache; others beside it are somebody else's."""


def prune(root: Path, limit: int, keep: Path) -> None:
    """Delete models under ``root``, the least recently used first, down to ``limit`` bytes."""
    if not root.is_dir():
        return
    sizes = {}
    for folder in root.iterdir():
        if folder.is_dir() and MODEL_FOLDER.fullmatch(folder.name):
            sizes[folder] = sum(_size(file) for file in folder.iterdir())
    total = sum(sizes.values())
    for folder in sorted(sizes, key=lambda path: path.stat().st_mtime):
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


# Embeddings, logits and matching scores cached on disk, so that nothing is computed twice.
#
# ``<paths.cache>/features/<model>/`` holds one model's outputs for images and texts, each under the
# hash of its content: suites that share images share them, and so does a second evaluation. Scores
# of pairs are stored under the hash of the whole batch they were scored in, so that their last
# digits do not depend on earlier evaluations. A file is written under a temporary name and renamed,
# has its checksum in its name, is never changed after that, and may be deleted at any time; one
# that is damaged is deleted.
#
# One safetensors file per weights and data set would need no keys. But tests share images: of the
# 2,209 of the default suites 560 occur a second time, which separate files would compute and keep
# again, a third more. A key adds 16 bytes to a vector's 256 (tiny CLIP) or 2,048, writing takes 0.1
# s of 20 s, and a killed evaluation of a slow model resumes with the batches it had computed.

KEY_BYTES = DIGEST_BYTES
KEPT_TOGETHER = 16
"""Batches that are written to the disk together."""
KEPT_SECONDS = 20.0
"""The longest that computed batches wait to be written: all that a killed process loses."""
Kind = Literal["image", "text", "rawtext", "rawimage", "unprojected", "score", "logit", "answer"]


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
        size: number of pairs per batch; the last batch may be smaller.
    """
    keys = []
    for start in range(0, len(images), size):
        some = images[start : start + size]
        keys += place_keys(b"".join([*some, *texts[start : start + size]]), len(some))
    return keys


def place_keys(content: bytes, count: int) -> list[bytes]:
    """Return a key for each place of a batch.

    Args:
        content: the concatenated keys of the whole batch.
    """
    batch = content_digest(content)
    return [content_digest(batch + position.to_bytes(4, "little")) for position in range(count)]


class Features:
    """One model's outputs for images, texts or pairs.

    Args:
        folder: the model's folder, created when something is added.
        kind: the kind of output: ``image``, ``text``, ``rawtext``, ``rawimage``, ``unprojected``,
            ``score``, ``logit`` or ``answer``.
    """

    def __init__(self, folder: Path, kind: Kind) -> None:
        self._folder, self._kind = folder, kind
        self._place: dict[bytes, tuple[np.ndarray, int]] = {}

        def read(file: Path) -> None:
            segment: np.ndarray = np.load(file, mmap_mode="r", allow_pickle=False)
            if segment.dtype.names != ("key", "vector"):
                raise ValueError(f"{file}: no keys and vectors")
            self._place_rows(segment)

        damaged = read_kept(folder, f"{kind}-*.npy", read)
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
        """Store embeddings, float32 (keys, dim), or scores (keys,)."""
        kind_of_row = np.dtype([("key", f"V{KEY_BYTES}"), ("vector", "<f4", vectors.shape[1:])])
        segment = np.empty(len(keys), kind_of_row)
        segment["key"] = np.frombuffer(b"".join(keys), f"V{KEY_BYTES}")
        segment["vector"] = vectors
        name, buffer = content_digest(b"".join(keys)).hex(), io.BytesIO()
        np.save(buffer, segment, allow_pickle=False)
        with explain_refusal(self._folder):
            write_kept(self._folder, f"{self._kind}-{name}", ".npy", buffer.getvalue())
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
    pending: list[np.ndarray] = []
    since = time.monotonic()
    for batch in batches:
        pending.append(batch)
        if len(pending) == KEPT_TOGETHER or time.monotonic() - since > KEPT_SECONDS:
            yield np.concatenate(pending)
            pending, since = [], time.monotonic()
    if pending:
        yield np.concatenate(pending)


@contextmanager
def explain_refusal(folder: Path) -> Iterator[None]:
    """Say what to do if the disk is full or not writable.

    Args:
        folder: the cache folder, for the error.
    """
    try:
        yield
    except OSError as error:
        raise UserError(
            f"the model's outputs cannot be cached in {folder}: {error.strerror}; "
            f"{advise(error, 'paths.cache')}, or set feature_cache=0"
        ) from error
