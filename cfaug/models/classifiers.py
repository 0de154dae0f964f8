"""Image classifiers of transformers, timm and torchvision, and FID's Inception network."""

from __future__ import annotations

import difflib
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import timm
import torchvision
from timm.data import ImageNetInfo, infer_imagenet_subset, resolve_model_data_config
from torch import Tensor, nn

from cfaug.core.errors import UserError
from cfaug.core.pixels import Geometry, ImageTransform
from cfaug.core.safety.safe_loading import (
    check_finite,
    check_folder,
    check_numbers,
    count_stored,
    read_json,
)
from cfaug.core.weights import find_weights, refuse_pickles
from cfaug.models.checkpoints import build_and_fill, choose_classes
from cfaug.models.encoder import Wrapped, channels, image_transform, label_names, square


class HFClassifier(Wrapped):
    """``AutoModelForImageClassification`` as a :class:`cfaug.core.protocols.Classifier`.

    Args:
        processor: the model's image processor.
        folder: the folder of model and processor, which errors name.
        geometry: ``crop`` or ``squash`` images to a square; ``None`` follows the processor.
        classes: names of the classes; ``None`` takes them from the model's configuration.
    """

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
        super().__init__(model)
        self.transform = image_transform(processor, folder, geometry)
        own = label_names(self.model, folder)
        self.classes: tuple[str, ...] = choose_classes(classes, own, len(own), folder)

    def classify(self, pixels: Tensor) -> Tensor:
        """Map uint8 pixels (n, 3, size, size) to logits, float32 (n, classes)."""
        normal = self.transform.normalize(pixels.to(self.device, non_blocking=True))
        logits: Tensor = self.model(pixel_values=normal).logits
        return logits.float()


CONFIG = "config.json"
GEOMETRIES: dict[str, Geometry] = {"center": "crop", "squash": "squash"}
"""Geometry by timm's ``crop_mode``; the third mode, ``border``, pads and is unsupported."""


class TimmClassifier(nn.Module):
    """A timm model as a :class:`cfaug.core.protocols.Classifier`, and as a ``FeatureExtractor``.

    Args:
        owner: the source of the weights, which errors name.
        classes: the names of the classes; ``None`` takes them from the model.
    """

    def __init__(
        self, model: nn.Module, owner: object, *, classes: Sequence[str] | None = None
    ) -> None:
        super().__init__()
        self.model: Any = model
        self.transform = timm_transform(resolve_model_data_config(model), owner)
        told: Any = model
        own, logits = _own_classes(told), int(told.num_classes)
        self.classes = choose_classes(classes, own, logits, owner)

    @classmethod
    def load(
        cls,
        place: Path,
        *,
        architecture: str | None = None,
        classes: Sequence[str] | None = None,
    ) -> Self:
        """Load a model in float32, in evaluation mode.

        Args:
            place: a folder in timm's format, or a file of weights.
            architecture: timm's name of the architecture of a file; ``None`` for a folder.
            classes: the names of the classes; ``None`` takes them from the model.
        """
        if place.is_file():
            file, name, options = place, str(architecture), _count_classes(place, str(architecture))
            _require_known(name)
        else:
            (file,), name, options = find_weights(place), f"local-dir:{place}", {}
            check_folder(place)
            refuse_pickles([file])
            config = read_json(place / CONFIG)
            if not isinstance(config, dict) or not isinstance(config.get("architecture"), str):
                raise UserError(f"{place} has no {CONFIG} of timm, with the architecture's name")
            _require_known(config["architecture"])
            check_numbers(config, place / CONFIG, count_stored([file]))
        made = build_and_fill(lambda: timm.create_model(name, pretrained=False, **options), file)
        return cls(made, place, classes=classes).eval()

    def classify(self, pixels: Tensor) -> Tensor:
        """Map uint8 pixels (n, 3, size, size) to logits, float32 (n, classes)."""
        device = next(self.model.parameters()).device
        normal = self.transform.normalize(pixels.to(device, non_blocking=True))
        logits: Tensor = self.model(normal)
        return logits.float()

    def extract(self, pixels: Tensor) -> Tensor:
        """Map uint8 pixels (n, 3, size, size) to the last layer's input: float32 (n, dim)."""
        device = next(self.model.parameters()).device
        normal = self.transform.normalize(pixels.to(device, non_blocking=True))
        features = self.model.forward_features(normal)
        pooled: Tensor = self.model.forward_head(features, pre_logits=True)
        return pooled.float()


def default_weights(architecture: str) -> str:
    """Return timm's name of an architecture's default weights: ``NAME.TAG``."""
    _require_known(architecture)
    found = timm.list_pretrained(f"{architecture}.*")
    default = timm.get_pretrained_cfg(architecture, allow_unregistered=False)
    if not found or default is None or not default.tag:
        raise UserError(f"timm has no weights of {architecture}: give a file or a folder of them")
    return f"{architecture}.{default.tag}"


def timm_transform(config: dict[str, Any], owner: object) -> ImageTransform:
    """Return the image transform equal to timm's ``create_transform(**config)``.

    Args:
        config: the result of ``timm.data.resolve_model_data_config``.
        owner: the source of the weights, which errors name.
    """
    resample = config["interpolation"]
    if resample not in ("bicubic", "bilinear"):
        raise UserError(f"{owner}: the filter {resample!r} is not bicubic or bilinear")
    geometry = GEOMETRIES.get(config["crop_mode"])
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


def _count_classes(file: Path, architecture: str) -> dict[str, int]:
    """Return ``num_classes`` for a file of weights from its last layer; empty if it is unknown."""
    from cfaug.models.checkpoints import read_state

    _require_known(architecture)
    config = timm.get_pretrained_cfg(architecture)
    head = getattr(config, "classifier", None) if config is not None else None
    names = [head] if isinstance(head, str) else list(head or ())
    state = read_state(file)
    shapes = [state[f"{name}.bias"].shape for name in names if f"{name}.bias" in state]
    return {"num_classes": int(shapes[0][0])} if shapes else {}


def _own_classes(model: Any) -> Sequence[str] | None:
    """Return a model's class names, or ImageNet's WordNet ids if the number fits, or ``None``."""
    told = getattr(model, "pretrained_cfg", None) or {}
    names = told.get("label_names")
    if names:
        return [str(name) for name in names]
    subset = infer_imagenet_subset({"num_classes": model.num_classes})
    return None if subset is None else ImageNetInfo(subset).label_names()


FROM_TENSORFLOW = ("googlenet", "inception_v3")
"""Architectures with converted weights: the model itself changes the normalisation of images."""


class TorchvisionClassifier(nn.Module):
    """A torchvision model as a :class:`cfaug.core.protocols.Classifier`.

    Args:
        classes: the names of the classes, in the order of the logits.
    """

    def __init__(
        self, model: nn.Module, transform: ImageTransform, classes: tuple[str, ...]
    ) -> None:
        super().__init__()
        self.model: Any = model
        self.transform = transform
        self.classes = classes

    @classmethod
    def load(
        cls,
        architecture: str,
        pretrained: str,
        *,
        prepared_as: str | None = None,
        classes: Sequence[str] | None = None,
    ) -> Self:
        """Load a model in float32, in evaluation mode.

        Args:
            architecture: torchvision's name of the architecture.
            prepared_as: the tag whose image transform is used with a file; ``None`` is the
                architecture's default tag.
            classes: the names of the classes; ``None`` takes torchvision's names.
        """
        names = torchvision.models.list_models(module=torchvision.models)
        if architecture not in names:
            raise UserError(
                f"model.architecture={architecture} is not known to torchvision; it has "
                f"{', '.join(names)}"
            )
        tags = torchvision.models.get_model_weights(architecture)
        file, owner = Path(pretrained).expanduser(), f"{architecture} ({pretrained})"
        of_file = file.is_file()
        if prepared_as is not None and not of_file:
            raise UserError(
                f"model.prepared_as={prepared_as} is for a file of weights, and model.pretrained="
                f"{pretrained} is no file but a tag, which has its own transform: leave it out"
            )
        prepared = _tag(tags, (prepared_as or "DEFAULT") if of_file else pretrained)
        own = prepared.meta["categories"]
        # Loading the file checks the number; its layers do not tell which is the last one.
        count = len(classes) if of_file and classes is not None else len(own)
        names = choose_classes(classes, own, count, owner)
        if of_file:
            model = build_and_fill(lambda: _build(architecture, count), file)
        else:
            model = _fetch(architecture, prepared)
        return cls(model, torchvision_transform(prepared.transforms(), owner), names).eval()

    def classify(self, pixels: Tensor) -> Tensor:
        """Map uint8 pixels (n, 3, size, size) to logits, float32 (n, classes)."""
        device = next(self.model.parameters()).device
        normal = self.transform.normalize(pixels.to(device, non_blocking=True))
        logits: Tensor = self.model(normal)
        return logits.float()


def _tag(tags: Any, name: str) -> Any:
    """Return the weights of a tag."""
    if name not in tags.__members__:
        raise UserError(
            f"{name!r} is neither a file nor one of torchvision's weights: "
            f"{', '.join(tags.__members__)}"
        )
    return tags[name]


def _build(architecture: str, classes: int) -> nn.Module:
    options: dict[str, Any] = {"weights": None, "num_classes": classes}
    if architecture in FROM_TENSORFLOW:
        options |= {"transform_input": True, "init_weights": False}
    built: nn.Module = torchvision.models.get_model(architecture, **options)
    return built


def _fetch(architecture: str, weights: Any) -> nn.Module:
    try:
        model: nn.Module = torchvision.models.get_model(architecture, weights=weights)
    except Exception as error:  # an error of the network, the disk, or a damaged file
        raise UserError(
            f"torchvision could not load {architecture} {weights.name} ({error}). Where there is a "
            f"network: fetch {weights.url}; then give that file as model.pretrained=FILE"
        ) from error
    check_finite(model, architecture)
    return model


def torchvision_transform(prepared: Any, owner: object) -> ImageTransform:
    """Return the image transform of torchvision's weights.

    Args:
        prepared: the result of the weights' ``transforms()``.
        owner: the architecture and its weights, which errors name.
    """
    resample = prepared.interpolation.value
    if resample not in ("bicubic", "bilinear"):
        raise UserError(f"{owner}: the filter {resample!r} is not bicubic or bilinear")
    size, resized = (
        square(one[0] if len(one) == 1 else tuple(one), owner)
        for one in (prepared.crop_size, prepared.resize_size)
    )
    mean, std = (channels(list(getattr(prepared, name)), name, owner) for name in ("mean", "std"))
    return ImageTransform(size, mean, std, resample, "crop", resized if resized != size else None)


# The Inception network of the original FID (Heusel et al., 2017), converted by torch-fidelity.

SIDE = 299
FEATURES = "2048"
"""torch-fidelity's name of FID's features: the last average pool."""
WEIGHTS = (
    "https://github.com/toshas/torch-fidelity/releases/download/v0.2.0/"
    "weights-inception-2015-12-05-6726825d.pth"
)


class Inception(nn.Module):
    """A :class:`cfaug.core.protocols.FeatureExtractor` of 2,048 features.

    Images are resized to 299 pixels by Pillow with antialiasing, not by TensorFlow 1's bilinear
    filter, which skips pixels: the distances differ slightly from those of papers that used it.

    Args:
        network: torch-fidelity's network, which normalises uint8 pixels itself.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network: Any = network
        half = (0.5, 0.5, 0.5)
        self.transform = ImageTransform(SIDE, half, half, "bilinear", "squash")

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
                f"model.weights={file}: there is no such file. Where there is a network: fetch "
                f"{WEIGHTS}"
            )
        refuse_pickles([file])
        try:
            network = FeatureExtractorInceptionV3("inception-v3-compat", [FEATURES], str(file))
        except (RuntimeError, TypeError, AttributeError) as error:
            raise UserError(f"{file} does not hold the weights of FID's Inception") from error
        check_finite(network, file)
        return cls(network).eval()

    def extract(self, pixels: Tensor) -> Tensor:
        """Map uint8 pixels (n, 3, 299, 299) to float32 (n, 2048)."""
        device = next(self.network.parameters()).device
        (found,) = self.network(pixels.to(device, non_blocking=True))
        features: Tensor = found.float()
        return features
