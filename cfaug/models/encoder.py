"""Shared code of dual encoders: normalising pixels, and reading and bounding the learnt scale."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn

from cfaug.core.errors import UserError
from cfaug.core.pixels import ImageTransform
from cfaug.models.losses import sigmoid_loss, symmetric_loss
from cfaug.models.negatives import Negatives

Bounds = tuple[float | None, float | None]


class Tunable(nn.Module):
    """A trainable module around a library's ``model``: see ``cfaug.train.task``."""

    model: Any  # any methods of its library
    held_in_evaluation: tuple[nn.Module, ...] = ()

    def train(self, mode: bool = True) -> Self:
        """Set the mode of every module except those fixed in evaluation (frozen statistics)."""
        super().train(mode)
        for module in self.held_in_evaluation:
            module.eval()
        return self


class Encoder(Tunable, ABC):
    """A library's ``model`` as a :class:`cfaug.core.protocols.DualEncoder`.

    Args:
        model: a model with a parameter ``logit_scale``, the log of the factor on the cosine.
        transform: the model's image transform.
        log_scale_bounds: lower and upper bound of that parameter for ``clamp_logit_scale``;
            ``None`` for no bound.
    """

    def __init__(
        self, model: nn.Module, transform: ImageTransform, log_scale_bounds: Bounds
    ) -> None:
        super().__init__()
        self.model = model
        self.transform = transform
        self.log_scale_bounds = log_scale_bounds

    @property
    def log_scale(self) -> nn.Parameter:
        """The learnt log scale."""
        parameter = self.model.logit_scale
        assert isinstance(parameter, nn.Parameter)
        return parameter

    def normalize(self, pixels: Tensor) -> Tensor:
        """Map uint8 pixels on any device to normalised float32 on the model's device."""
        return self.transform.normalize(pixels.to(self.log_scale.device, non_blocking=True))

    def logit_scale(self) -> Tensor:
        """Return the factor on the cosine, a scalar."""
        return self.log_scale.exp().squeeze()

    def clamp_logit_scale(self) -> None:
        """Clamp the learnt log scale to its configured bounds."""
        lower, upper = self.log_scale_bounds
        if lower is not None or upper is not None:
            with torch.no_grad():
                self.log_scale.clamp_(lower, upper)

    @abstractmethod
    def tokenize(self, texts: Sequence[str]) -> dict[str, Tensor]:
        """Return the tokens of texts as int64 tensors of shape (batch, length), by name."""

    def encode_image(self, pixels: Tensor) -> Tensor:
        """Map uint8 pixels (batch, 3, size, size) to projected, unnormalised (batch, dim)."""
        return self.encode_pixels(self.normalize(pixels))

    @abstractmethod
    def encode_pixels(self, pixels: Tensor) -> Tensor:
        """Map normalised float32 pixels to (batch, dim): the second part of ``encode_image``."""

    @abstractmethod
    def encode_text(self, tokens: dict[str, Tensor]) -> Tensor:
        """Map the output of ``tokenize`` to (batch, dim)."""

    def features(self, pixels: Tensor, texts: Sequence[str]) -> tuple[Tensor, ...]:
        """Return the features for ``contrastive``: here those of images and texts, each (n, dim).

        Args:
            pixels: images, uint8 (n, 3, size, size).
            texts: n captions, one for each image.
        """
        tokens = self.tokenize(texts)
        return self.encode_image(pixels), self.encode_text(tokens)

    takes_negatives = True
    """Whether ``contrastive`` accepts texts and images that are only wrong answers."""

    def contrastive(
        self,
        features: Sequence[Tensor],
        log_weights: Tensor | None = None,
        negatives: Negatives | None = None,
    ) -> Tensor:
        """Return the authors' loss of a whole batch, a scalar.

        CLIP's, or SigLIP's if the model has a learnt bias on its logits.

        Args:
            features: outputs of ``features`` from every process, with rows in the same order.
            log_weights: log weights of pairs, (n, n), see ``cfaug.models.losses``; ``None`` for 0.
            negatives: features of texts and images that are only wrong answers, from every process.
        """
        images, texts = features
        bias = getattr(self.model, "logit_bias", None)
        scale = self.logit_scale()
        if bias is None:
            return symmetric_loss(images, texts, scale, log_weights, negatives)
        return sigmoid_loss(images, texts, scale, bias.squeeze(), log_weights, negatives)

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write a folder that the model's library can load, atomically."""


def channels(values: object, name: str, owner: object) -> tuple[float, float, float]:
    """Return a model's normalisation values for red, green and blue.

    Args:
        values: the values in the file.
        name: ``mean`` or ``std``; a value of ``std`` has to be above 0.
        owner: the folder, which errors name.

    Raises:
        UserError: if they are not three finite numbers.
    """
    given = list(values) if isinstance(values, list | tuple) else []
    fits = [
        isinstance(v, int | float) and math.isfinite(v) and (v > 0 or name != "std") for v in given
    ]
    if len(fits) != 3 or not all(fits):
        raise UserError(f"{owner}: {name}={values!r} should be three numbers, one a colour")
    red, green, blue = map(float, given)
    return red, green, blue


def square(size: object, owner: object) -> int:
    """Return the side of a square image size given as a number or a pair.

    Raises:
        UserError: if it is not square.
    """
    if isinstance(size, int):
        return size
    if isinstance(size, tuple | list) and len(size) == 2 and size[0] == size[1]:
        return int(size[0])
    raise UserError(f"{owner}: the image size {size} is not square, which is not supported")
