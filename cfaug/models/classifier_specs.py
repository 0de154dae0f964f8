"""Configuration nodes for image classifiers of timm and torchvision; class names. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from cfaug.core.errors import UserError
from cfaug.core.files import read_lines
from cfaug.core.protocols import Classifier, FeatureExtractor
from cfaug.core.weights import (
    WEIGHT_FILES,
    find_weights,
    parameter_count,
    resolve,
    sha256,
    sha256_text,
)
from cfaug.models.checkpoints import (
    CLASS_NAMES,
    SAVED_WEIGHTS,
    Checkpoint,
    Matching,
    Spec,
    choose_protocol,
)


def class_names(file: str | None) -> tuple[str, ...] | None:
    """Return the class names in a file; ``None`` without a file."""
    return None if file is None else tuple(read_lines(Path(file).expanduser()))


def with_names(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings with the path of the file of class names replaced by its content."""
    if settings.get("classes") is None:
        return settings
    return {**settings, "classes": class_names(settings["classes"])}


@dataclass(frozen=True)
class TimmClassification(Checkpoint):
    """An image classifier of timm, or its features: the input of the last layer.

    Args:
        weights: a folder as timm saves it (``config.json``, ``model.safetensors``); a Hub id;
            timm's own name of its weights, such as ``resnet50.a1_in1k``; or, with ``architecture``,
            a file of weights, safetensors or a ``.pth`` with only tensors.
        architecture: timm's name of the architecture, for a file of weights; images are prepared as
            for timm's weights of that name, which may have a tag. ``None`` takes it from the
            folder.
        classes: a file of class names, a line for each logit: a name or a WordNet id; ``None``
            takes them from the folder, or ImageNet's if the number fits.
    """

    architecture: str | None = None
    classes: str | None = None

    provides = (Classifier, FeatureExtractor)
    implementation = "cfaug.models.classifiers.TimmClassifier"
    library: ClassVar[str] = "timm"

    @property
    def settings(self) -> dict[str, Any]:
        return {"architecture": self.architecture, "classes": class_names(self.classes)}

    def answering(self) -> dict[str, Any]:
        return with_names(super().answering())

    def load_with_head(self, labels: Sequence[str], seed: int, match: Matching) -> Any:
        from cfaug.models.classifiers import TimmClassifier

        return TimmClassifier.load_with_head(self.folder(), self.settings, labels, seed, match)

    def at(self, checkpoint: str) -> TimmClassification:
        """Return the same settings for a folder, which names its architecture, or for a file."""
        architecture = None if Path(checkpoint).is_dir() else self.architecture
        return replace(super().at(checkpoint), architecture=architecture)

    def folder(self) -> Path:
        """Return the folder or file of the weights, downloaded if necessary."""
        return self._file() or resolve(self._place(), self.revision)

    def _file(self) -> Path | None:
        """Return the file of weights; ``None`` if the weights are not a file."""
        file = Path(self.weights).expanduser()
        if not file.is_file():
            if self.architecture is not None and file.suffix not in WEIGHT_FILES:
                raise UserError(
                    f"model.architecture={self.architecture} is for a file of weights, and "
                    f"{self.weights} is none: its own architecture is used; leave it out"
                )
            return None
        if self.architecture is None:
            raise UserError(
                f"{self.weights} is a file of weights: name its architecture by "
                "model.architecture=NAME, one of timm.list_models()"
            )
        return file

    def _place(self) -> str:
        """Return the folder or Hub id; the Hub id of timm's own weights is ``timm/NAME.TAG``."""
        name = self.weights
        if "/" in name or ":" in name or Path(name).expanduser().is_dir():
            return name
        if "." in name:
            return f"timm/{name}"
        from cfaug.models.classifiers import default_weights

        return f"timm/{default_weights(name)}"

    def _files(self) -> list[Path]:
        file = self._file()
        return find_weights(self.folder()) if file is None else [file]

    def weights_hash(self) -> str:
        return sha256(self._files())

    def settings_hash(self) -> str:
        if self._file() is None:
            return super().settings_hash()
        return sha256_text(" ".join(map(str, [type(self).__qualname__, *self.settings_words()])))

    def parameters(self) -> int | None:
        return parameter_count(self._files())

    def on_this_machine(self) -> TimmClassification:
        """Return the specification with the weights' local path, without a download."""
        if self._file() is not None:
            return self
        return self.at(str(resolve(self._place(), self.revision, fetch=False)))


@dataclass(frozen=True)
class TorchvisionClassification(Spec):
    """An image classifier of torchvision.

    Args:
        weights: a tag of the architecture, such as ``IMAGENET1K_V2``, which torchvision downloads;
            a file, safetensors or a ``.pth`` of only tensors; or the checkpoint of a run.
        architecture: a name from ``torchvision.models.list_models(module=torchvision.models)``,
            such as ``resnet50``: no weights of torchvision say it.
        prepared_as: the tag whose image transform is used with a file or a checkpoint; ``None`` is
            the architecture's default tag.
        classes: a file of class names, a line for each logit: a name or a WordNet id; ``None`` is
            the checkpoint's own, and otherwise torchvision's names of ImageNet's 1,000 classes.
    """

    weights: str
    architecture: str
    prepared_as: str | None = None
    classes: str | None = None

    provides: ClassVar[tuple[type, ...]] = (Classifier,)
    library: ClassVar[str] = "torchvision"

    def load(self, protocol: type | None = None) -> Any:
        from cfaug.models.classifiers import TorchvisionClassifier

        choose_protocol(self.provides, protocol, self.owner)
        return TorchvisionClassifier.load(self._tag_or_file, self.architecture, **self.settings)

    @property
    def settings(self) -> dict[str, Any]:
        """Arguments of the model other than its weights and architecture."""
        return {"prepared_as": self.prepared_as, "classes": class_names(self._names)}

    def load_with_head(self, labels: Sequence[str], seed: int, match: Matching) -> Any:
        from cfaug.models.classifiers import TorchvisionClassifier

        return TorchvisionClassifier.load_with_head(
            self._tag_or_file, self.architecture, self.settings, labels, seed, match
        )

    def _file(self) -> Path | None:
        place = Path(self.weights).expanduser()
        file = place / SAVED_WEIGHTS if place.is_dir() else place
        return file if file.is_file() else None

    @property
    def _tag_or_file(self) -> str:
        return str(self._file() or self.weights)

    @property
    def _names(self) -> str | None:
        """The file of class names that is given, or that a checkpoint has."""
        saved = Path(self.weights).expanduser() / CLASS_NAMES
        return str(saved) if self.classes is None and saved.is_file() else self.classes

    def weights_hash(self) -> str:
        """Return the sha256 of the weight file, or of the name of a tag."""
        file = self._file()
        if file is not None:
            return sha256([file])
        if not self.weights.isidentifier():
            raise UserError(
                f"weights={self.weights} are no file of weights, no checkpoint of a run with model="
                "torchvision, and no tag, such as IMAGENET1K_V1"
            )
        return sha256_text(f"torchvision:{self.architecture}:{self.weights}")

    def answering(self) -> dict[str, Any]:
        names = {name: getattr(self, name) for name in ("architecture", "prepared_as")}
        return with_names({**names, "classes": self._names})

    def settings_hash(self) -> str:
        """Return the sha256 of all settings."""
        return sha256_text(f"{type(self).__qualname__} {sorted(self.answering().items())}")

    def parameters(self) -> int | None:
        """Return the number of parameters; ``None`` for a tag or a file of another format."""
        file = self._file()
        return None if file is None else parameter_count([file])

    def at(self, checkpoint: str) -> TorchvisionClassification:
        """Return the same settings for a file of weights, another tag, or a run's checkpoint.

        A checkpoint has class names of its own, and its images are prepared as before.
        """
        if not Path(checkpoint).is_dir():
            return replace(self, weights=checkpoint)
        prepared = self.prepared_as if self._file() is not None else self.weights
        return replace(self, weights=checkpoint, prepared_as=prepared, classes=None)

    @property
    def owner(self) -> str:
        return f"{type(self).__name__} ({self.architecture}, {self.weights})"


@dataclass(frozen=True)
class InceptionFeatures(Spec):
    """The Inception network of the original FID, by torch-fidelity (``pip install 'cfaug[fid]'``).

    Args:
        weights: the path of the network's weights, converted by torch-fidelity.
    """

    weights: str

    provides: ClassVar[tuple[type, ...]] = (FeatureExtractor,)
    library: ClassVar[str] = "inception"

    def load(self, protocol: type | None = None) -> Any:
        from cfaug.models.classifiers import Inception

        choose_protocol(self.provides, protocol, self.owner)
        return Inception.load(Path(self.weights).expanduser())

    def weights_hash(self) -> str:
        """Return the sha256 of the weight file."""
        file = Path(self.weights).expanduser()
        if not file.is_file():
            raise UserError(f"weights={self.weights}: there is no such file")
        return sha256([file])

    def settings_hash(self) -> str:
        """Return the sha256 of the kind of model, which has no settings."""
        return sha256_text(type(self).__qualname__)

    def parameters(self) -> int | None:
        """Return the number of parameters in the weight file, if it is safetensors."""
        return parameter_count([Path(self.weights).expanduser()])

    def at(self, checkpoint: str) -> InceptionFeatures:
        return replace(self, weights=checkpoint)

    @property
    def owner(self) -> str:
        return f"{type(self).__name__} ({self.weights})"
