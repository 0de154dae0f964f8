"""Image classifiers of transformers, timm and torchvision, and FID's Inception network."""

from __future__ import annotations

import difflib
import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import timm
import torch
import torchvision
from safetensors.torch import save_file
from timm.data import ImageNetInfo, infer_imagenet_subset, resolve_model_data_config
from torch import Tensor, nn
from transformers import AutoConfig

from cfaug.core.devices import send
from cfaug.core.errors import UserError, say_once
from cfaug.core.pixels import Geometry, ImageTransform
from cfaug.core.rng import derive
from cfaug.core.safety.safe_loading import (
    check_finite,
    check_folder,
    check_numbers,
    count_stored,
    from_folder,
    read_json,
)
from cfaug.core.weights import find_weights, refuse_pickles
from cfaug.models.checkpoints import (
    CLASS_NAMES,
    SAVED_WEIGHTS,
    Matching,
    build_and_fill,
    choose_classes,
    knows_labels,
    load_model,
    quiet,
    read_state,
    replace_checkpoint,
)
from cfaug.models.encoder import (
    FromFolder,
    Tunable,
    label_names,
    load_processor,
)
from cfaug.models.image_processors import channels, check_size, equal_transform, square


class TrainedClassifier(Tunable):
    """A :class:`cfaug.core.protocols.Classifier` that can be fine-tuned and saved."""

    transform: ImageTransform
    classes: tuple[str, ...]

    @abstractmethod
    def classify(self, pixels: Tensor) -> Tensor:
        """Map uint8 pixels (n, 3, size, size) to logits, float32 (n, classes)."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write a folder that the model's library can load, atomically."""


@contextmanager
def _drawing(seed: int) -> Iterator[None]:
    """Draw a new head from a run's seed, and leave torch's generator as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(derive(seed, "classifier_head") % 2**63)
        yield


class HFClassifier(FromFolder, TrainedClassifier):
    """``AutoModelForImageClassification`` as a :class:`cfaug.core.protocols.Classifier`."""

    transformers_class = "AutoModelForImageClassification"
    processor_class = "AutoImageProcessor"

    def __init__(
        self,
        model: nn.Module,
        processor: Any,
        folder: Path,
        *,
        geometry: Geometry | None = None,
        classes: Sequence[str] | None = None,
    ) -> None:
        super().__init__()
        self.model = model
        self.processor = processor
        self.transform = equal_transform(processor, folder, geometry)
        names = label_names(self.model, folder)
        self.classes: tuple[str, ...] = choose_classes(classes, names, len(names), folder)
        check_size(self.classify, self.transform, folder)

    @classmethod
    def load_with_head(
        cls, folder: Path, settings: Mapping[str, Any], labels: Sequence[str], seed: int,
        match: Matching,
    ) -> Self:  # fmt: skip
        """Load a folder with its own head if it knows the labels, or else with a random one."""
        config: Any = from_folder(AutoConfig, folder)
        names = settings.get("classes") or [str(name) for name in config.id2label.values()]
        if knows_labels(labels, names, match, str(folder)):
            return cls.load(folder, **settings)
        _refuse_names(settings.get("classes"), folder)
        with _drawing(seed):
            model = load_model(cls.transformers_class, folder, head=dict(enumerate(labels)))
        cls.check_model(model, folder)
        return cls(model, load_processor(folder, cls.processor_class), folder, **settings)

    @classmethod
    def check_model(cls, model: Any, folder: Path) -> None:
        check_finite(model, folder)

    def save(self, folder: Path) -> None:
        """Write a ``save_pretrained`` folder with its image processor."""
        config: Any = self.model.config
        config.label2id = {name: number for number, name in config.id2label.items()}
        with replace_checkpoint(folder) as fresh, quiet():
            self.model.save_pretrained(fresh)
            self.processor.save_pretrained(fresh)

    def classify(self, pixels: Tensor) -> Tensor:
        normal = self.transform.normalize(send(pixels, self.device))
        logits: Tensor = self.model(pixel_values=normal).logits
        return logits.float()


def _refuse_names(classes: Sequence[str] | None, owner: object) -> None:
    """Refuse names of the logits if none of them is a label of the data."""
    if classes is not None:
        raise UserError(
            f"{owner}: model.classes names {len(classes)} classes, and no label of the data is "
            "among them: name the labels' folders by them, or leave out model.classes, which "
            "gives the model a new head for the labels"
        )


class _OfLibrary(TrainedClassifier):
    """A model of timm or torchvision as a :class:`cfaug.core.protocols.Classifier`."""

    def __init__(
        self, model: nn.Module, transform: ImageTransform, classes: tuple[str, ...]
    ) -> None:
        super().__init__()
        self.model: Any = model
        self.transform = transform
        self.classes = classes

    def _normalize(self, pixels: Tensor) -> Tensor:
        device = next(self.model.parameters()).device
        return self.transform.normalize(send(pixels, device))

    def classify(self, pixels: Tensor) -> Tensor:
        logits: Tensor = self.model(self._normalize(pixels))
        return logits.float()


class TimmClassifier(_OfLibrary):
    """A timm model as a classifier, and as a ``FeatureExtractor``.

    Args:
        classes: the names of the classes; ``None`` takes the model's own, or ImageNet's WordNet ids
            if their number fits.
    """

    def __init__(
        self, model: nn.Module, owner: object, *, classes: Sequence[str] | None = None
    ) -> None:
        untyped: Any = model
        transform = timm_transform(resolve_model_data_config(model), owner)
        names = choose_classes(classes, _timm_names(model), int(untyped.num_classes), owner)
        super().__init__(model, transform, names)

    @classmethod
    def load(
        cls,
        path: Path,
        *,
        architecture: str | None = None,
        classes: Sequence[str] | None = None,
    ) -> Self:
        """Load a model in float32, in evaluation mode."""
        model = _build_timm(path, architecture)
        _say_preparation(model, path)
        return cls(model, path, classes=classes).eval()

    @classmethod
    def load_with_head(
        cls, path: Path, settings: Mapping[str, Any], labels: Sequence[str], seed: int,
        match: Matching,
    ) -> Self:  # fmt: skip
        """Load a model with its own head if it knows the labels, or else with a random one."""
        model: Any = _build_timm(path, settings["architecture"])
        _say_preparation(model, path)
        classes = settings["classes"]
        if knows_labels(labels, classes or _timm_names(model), match, str(path)):
            return cls(model, path, classes=classes)
        _refuse_names(classes, path)
        with _drawing(seed):
            model.reset_classifier(len(labels))
        return cls(model, path, classes=labels)

    def save(self, folder: Path) -> None:
        with replace_checkpoint(folder) as fresh:
            named = {"label_names": list(self.classes)}
            timm.models.save_for_hf(self.model, str(fresh), named, safe_serialization=True)

    def extract(self, pixels: Tensor) -> Tensor:
        """Map uint8 pixels (n, 3, size, size) to the last layer's input: float32 (n, dim)."""
        features = self.model.forward_features(self._normalize(pixels))
        pooled: Tensor = self.model.forward_head(features, pre_logits=True)
        return pooled.float()


def _build_timm(path: Path, architecture: str | None) -> nn.Module:
    options: dict[str, int] = {}
    if path.is_file():
        file, name = path, str(architecture)
        _require_known(name)
        # The last layer in the file tells the number of classes.
        head = getattr(timm.get_pretrained_cfg(name), "classifier", None)
        state = read_state(file)
        for layer in [head] if isinstance(head, str) else list(head or ()):
            biases = [n for n in state if n == f"{layer}.bias" or n.endswith(f".{layer}.bias")]
            if len(biases) == 1 and not options:
                options = {"num_classes": int(state[biases[0]].shape[0])}
    else:
        (file, *others), name = find_weights(path), f"local-dir:{path}"
        if others:
            raise UserError(
                f"{path}: its weights are in {len(others) + 1} files, and timm reads one: save "
                "them as model.safetensors"
            )
        check_folder(path)
        refuse_pickles([file])
        config = read_json(path / "config.json")
        if not isinstance(config, dict) or not isinstance(config.get("architecture"), str):
            raise UserError(f"{path} has no config.json of timm, with the architecture's name")
        _require_known(config["architecture"])
        check_numbers(config, path / "config.json", count_stored([file]))
    return build_and_fill(lambda: timm.create_model(name, pretrained=False, **options), file)


def _say_preparation(model: Any, path: Path) -> None:
    """Say how photos are prepared for a file of weights, which itself does not say it."""
    if not path.is_file():
        return
    transform = timm_transform(resolve_model_data_config(model), path)
    resized = f"resized to {transform.resized} px and cropped" if transform.resized else "resized"
    name = model.pretrained_cfg["architecture"]
    say_once(
        f"note: {path.name}: photos are {resized} to {transform.size} px (timm's {name}); for "
        "weights trained otherwise save a folder: timm.models.save_for_hf"
    )


def _timm_names(model: Any) -> list[str] | None:
    """Return the names of a model's classes: its own, or ImageNet's if their number fits."""
    names = (getattr(model, "pretrained_cfg", None) or {}).get("label_names")
    if names:
        return [str(name) for name in names]
    subset = infer_imagenet_subset({"num_classes": model.num_classes})
    return None if subset is None else list(ImageNetInfo(subset).label_names())


def default_weights(architecture: str) -> str:
    """Return timm's name of an architecture's default weights: ``NAME.TAG``."""
    _require_known(architecture)
    tags = timm.list_pretrained(f"{architecture}.*")
    default = timm.get_pretrained_cfg(architecture, allow_unregistered=False)
    if not tags or default is None or not default.tag:
        raise UserError(f"timm has no weights of {architecture}: give a file or a folder of them")
    return f"{architecture}.{default.tag}"


def timm_transform(config: dict[str, Any], owner: object) -> ImageTransform:
    """Return the image transform equal to timm's ``create_transform(**config)``."""
    resample = config["interpolation"]
    if resample not in ("bicubic", "bilinear"):
        raise UserError(f"{owner}: the filter {resample!r} is not bicubic or bilinear")
    # The third mode, ``border``, pads.
    geometries: dict[str, Geometry] = {"center": "crop", "squash": "squash"}
    geometry = geometries.get(config["crop_mode"])
    if geometry is None:
        raise UserError(f"{owner}: the crop mode {config['crop_mode']!r} is not center or squash")
    colours, *sides = config["input_size"]
    if colours != 3:
        raise UserError(f"{owner}: images of {colours} channels are not supported")
    size = square(tuple(sides), owner)
    resized = math.floor(size / config["crop_pct"])
    mean, std = (channels(list(config[name]), name, owner) for name in ("mean", "std"))
    return ImageTransform(size, mean, std, resample, geometry, resized if resized != size else None)


def _require_known(architecture: str) -> None:
    name = architecture.partition(".")[0]
    if not timm.is_model(name):
        near = ", ".join(difflib.get_close_matches(name, timm.list_models()))
        raise UserError(
            f"timm knows no architecture {name!r}" + (f"; near it are {near}" if near else "")
        )


FROM_TENSORFLOW = ("googlenet", "inception_v3")
"""Architectures with converted weights: the model itself changes the normalisation of images."""


class TorchvisionClassifier(_OfLibrary):
    """A torchvision model as a classifier."""

    @classmethod
    def load(
        cls,
        weights: str,
        architecture: str,
        *,
        prepared_as: str | None = None,
        classes: Sequence[str] | None = None,
    ) -> Self:
        """Load a model in float32, in evaluation mode.

        Args:
            prepared_as: the tag whose image transform is used with a file; ``None`` is the
                architecture's default tag.
        """
        names = torchvision.models.list_models(module=torchvision.models)
        if architecture not in names:
            raise UserError(
                f"model.architecture={architecture} is not known to torchvision; it has "
                f"{', '.join(names)}"
            )
        tags = torchvision.models.get_model_weights(architecture)
        file, owner = Path(weights).expanduser(), f"{architecture} ({weights})"
        of_file = file.is_file()
        if prepared_as is not None and not of_file:
            raise UserError(
                f"model.prepared_as={prepared_as} is for a file of weights, and weights={weights} "
                "are no file but a tag, which has its own transform: leave it out"
            )
        tag = (prepared_as or "DEFAULT") if of_file else weights
        if tag not in tags.__members__:
            raise UserError(
                f"{tag!r} is neither a file nor one of torchvision's weights: "
                f"{', '.join(tags.__members__)}"
            )
        prepared = tags[tag]
        categories = prepared.meta["categories"]
        # Loading the file checks the number; its layers do not tell which is the last one.
        count = len(classes) if of_file and classes is not None else len(categories)
        names = choose_classes(classes, categories, count, owner)
        model: nn.Module
        if of_file:
            model = build_and_fill(lambda: _build(architecture, count), file)
        else:
            try:
                model = torchvision.models.get_model(architecture, weights=prepared)
            except Exception as error:  # an error of the network, the disk, or a damaged file
                raise UserError(
                    f"torchvision could not load {architecture} {prepared.name} ({error}). Where "
                    f"there is a network: fetch {prepared.url}; then give that file as "
                    "weights=FILE"
                ) from error
            check_finite(model, architecture)
        given = prepared.transforms()
        resample = given.interpolation.value
        if resample not in ("bicubic", "bilinear"):
            raise UserError(f"{owner}: the filter {resample!r} is not bicubic or bilinear")
        size, resized = (
            square(setting[0] if len(setting) == 1 else tuple(setting), owner)
            for setting in (given.crop_size, given.resize_size)
        )
        mean, std = (channels(list(getattr(given, name)), name, owner) for name in ("mean", "std"))
        cut = resized if resized != size else None
        return cls(model, ImageTransform(size, mean, std, resample, "crop", cut), names).eval()

    @classmethod
    def load_with_head(
        cls, weights: str, architecture: str, settings: Mapping[str, Any], labels: Sequence[str],
        seed: int, match: Matching,
    ) -> Self:  # fmt: skip
        """Load a model with its own head if it knows the labels, or else with a random one."""
        if architecture in FROM_TENSORFLOW:
            raise UserError(
                f"{architecture} learns from the losses of further heads, which "
                "task=classification does not compute: choose another architecture"
            )
        classifier = cls.load(weights, architecture, **settings)
        if knows_labels(labels, classifier.classes, match, architecture):
            return classifier
        _refuse_names(settings["classes"], architecture)
        with _drawing(seed):
            model = _build(architecture, len(labels))
        fresh = model.state_dict()
        known = classifier.model.state_dict()
        model.load_state_dict(
            {name: known[name] if known[name].shape == v.shape else v for name, v in fresh.items()}
        )
        return cls(model, classifier.transform, tuple(labels)).eval()

    def save(self, folder: Path) -> None:
        with replace_checkpoint(folder) as fresh:
            save_file(self.model.state_dict(), fresh / SAVED_WEIGHTS)
            lines = "".join(f"{name}\n" for name in self.classes)
            (fresh / CLASS_NAMES).write_text(lines, encoding="utf-8")


def _build(architecture: str, classes: int) -> nn.Module:
    options: dict[str, Any] = {"weights": None, "num_classes": classes}
    if architecture in FROM_TENSORFLOW:
        options |= {"transform_input": True, "init_weights": False}
    built: nn.Module = torchvision.models.get_model(architecture, **options)
    return built


WEIGHTS = (
    "https://github.com/toshas/torch-fidelity/releases/download/v0.2.0/"
    "weights-inception-2015-12-05-6726825d.pth"
)


class Inception(nn.Module):
    """The Inception network of the original FID (Heusel et al., 2017), with 2,048 features.

    It is a :class:`cfaug.core.protocols.FeatureExtractor`, converted by torch-fidelity.

    Images are resized to 299 pixels by Pillow with antialiasing, not by TensorFlow 1's bilinear
    filter, which skips pixels: the distances differ slightly from those of papers that used it.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network: Any = network
        half = (0.5, 0.5, 0.5)
        self.transform = ImageTransform(299, half, half, "bilinear", "squash")

    @classmethod
    def load(cls, file: Path) -> Self:
        """Load a file of weights."""
        try:
            from torch_fidelity.feature_extractor_inceptionv3 import FeatureExtractorInceptionV3
        except ImportError as error:
            raise UserError(
                "the Inception of FID needs torch-fidelity: pip install 'cfaug[fid]', or compare "
                "in the features of another model, such as model=clip_vit_b32"
            ) from error
        if not file.is_file():
            raise UserError(
                f"weights={file}: there is no such file. Where there is a network: fetch {WEIGHTS}"
            )
        refuse_pickles([file])
        try:
            # FID's features are the last average pool.
            network = FeatureExtractorInceptionV3("inception-v3-compat", ["2048"], str(file))
        except (RuntimeError, TypeError, AttributeError) as error:
            raise UserError(f"{file} does not hold the weights of FID's Inception") from error
        check_finite(network, file)
        return cls(network).eval()

    def extract(self, pixels: Tensor) -> Tensor:
        """Map uint8 pixels (n, 3, 299, 299) to float32 (n, 2048)."""
        device = next(self.network.parameters()).device
        (output,) = self.network(send(pixels, device))
        features: Tensor = output.float()
        return features
