"""Image classifiers of torchvision, with its own weights by tag or with a file of weights."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import torchvision
from torch import Tensor, nn

from cfaug.core.errors import UserError
from cfaug.core.pixels import ImageTransform
from cfaug.core.safety.weight_limits import check_finite
from cfaug.models.encoder import channels, square
from cfaug.models.state import build_and_fill, choose_classes

FROM_TENSORFLOW = ("googlenet", "inception_v3")
"""Architectures with converted weights: the model itself changes the normalisation of images."""


class TorchvisionClassifier(nn.Module):
    """A torchvision model as a :class:`cfaug.core.protocols.Classifier`.

    Args:
        model: a torchvision model with its weights.
        transform: the image transform of the weights.
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
            pretrained: a tag, or a file of weights.
            prepared_as: the tag whose image transform is used with a file; ``None`` is the
                architecture's default tag.
            classes: the names of the classes; ``None`` takes torchvision's names.

        Raises:
            UserError: if torchvision has no such architecture or tag, the weights belong to another
                one or are a pickle, or the numbers of class names and logits differ.
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
    """Return the weights of a tag.

    Raises:
        UserError: if there is no such tag; it names the tags.
    """
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

    Raises:
        UserError: for settings that the transform does not support.
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
