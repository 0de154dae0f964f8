"""A model whose embeddings, logits or scores are cached; it is loaded when one is missing.

A model is identified by its weights, the files beside them, its settings, its image transform, its
tokens of a long text, and the kind of device: whatever changes its outputs by more than the
rounding errors of a different batch. A small file under ``features/`` maps weights and settings to
the model, so that an evaluation whose answers are all cached loads neither the model nor torch.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import asdict
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

from cfaug.core.files import write_file
from cfaug.core.messages import say
from cfaug.core.protocols import Answerer, Classifier, DualEncoder, Entailer, Matcher
from cfaug.core.record_cache import KeptRecords
from cfaug.evaluation.feature_cache import Features, explain_refusal

FORMAT = 2
"""1 had no checksums, and clipped images of more than 8 bits to white."""

Model = TypeVar("Model", DualEncoder, Matcher, Classifier, Entailer, Answerer)

LIBRARIES = ("torch", "transformers", "open_clip_torch", "tokenizers")
"""The libraries that load dual encoders and matchers: other versions may give other answers."""


class _CachedModel(Generic[Model]):
    """A model that is loaded only when an answer is missing or another attribute is needed.

    Args:
        load: a function that loads the model.
        weights: the hash of the model's weights.
        settings: the hash of everything else that affects the outputs, known without loading.
        root: the folder of all models' features.
        limit: size of ``root`` in bytes above which the least recently used models are deleted;
            this model never is.
    """

    _facts: tuple[str, ...] = ("model",)
    _libraries: tuple[str, ...] = LIBRARIES

    def __init__(
        self, load: Callable[[], Model], weights: str, settings: str, root: Path, limit: int
    ) -> None:
        self._load: Callable[[], Model] = load
        self._weights, self._settings = weights, settings
        pointer = _pointer(self._facts, self._libraries, weights, settings)
        self._known = self._about(root / f"{pointer}.json")
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

    def _about(self, pointer: Path) -> dict[str, str]:
        """Return the facts needed before any answer, as stored earlier or by loading the model."""
        try:
            kept = json.loads(pointer.read_text(encoding="utf-8"))
            return {name: str(kept[name]) for name in self._facts}
        except (OSError, ValueError, KeyError, TypeError):
            model = self.model
            found = {"model": model_key(model, self._weights, self._settings)}
            found |= {name: self._fact(model, name) for name in self._facts if name not in found}
            with explain_refusal(pointer.parent):
                pointer.parent.mkdir(parents=True, exist_ok=True)
                write_file(pointer, json.dumps(found).encode())
            return found

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
        return tuple(json.loads(self._known["classes"]))

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


def _pointer(
    facts: tuple[str, ...], libraries: tuple[str, ...], weights: str, settings: str
) -> str:
    """Return a name for all that identifies a model before it is loaded, with library versions."""
    found = [_version(name) for name in libraries]
    gpu = Path("/dev/nvidiactl").exists()
    content = json.dumps([FORMAT, facts, weights, settings, found, gpu])
    return hashlib.sha256(content.encode()).hexdigest()[:32]


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
        model: the loaded model.
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
        from cfaug.models.tokens import PROBE  # imports torch, which a loaded model has done

        tokens = model.tokenize([PROBE, "a"])
        content["tokens"] = {name: ids.tolist() for name, ids in sorted(tokens.items())}
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
