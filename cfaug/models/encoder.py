"""Shared code of dual encoders: normalising pixels, and reading and bounding the learnt scale."""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn

from cfaug.core.errors import UserError, say_once
from cfaug.core.pixels import ImageTransform
from cfaug.models.losses import Negatives, sigmoid_loss, symmetric_loss

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
        name: ``mean`` or ``std``; a value of ``std`` has to be above 0.
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
    """Return the side of a square image size given as a number or a pair."""
    if isinstance(size, int):
        return size
    if isinstance(size, tuple | list) and len(size) == 2 and size[0] == size[1]:
        return int(size[0])
    raise UserError(f"{owner}: the image size {size} is not square, which is not supported")


# Tokenization of captions with a transformers tokenizer.

KEEP_CAPTIONS = 200_000
"""The largest number of cached captions of one tokenizer in a process, about 100 MB."""
Row = dict[str, list[int]]
UNKNOWN_SHARE = 0.5
"""Share of unknown words in the first captions above which a warning is given."""
PROBE = " ".join(["a photo of two zebras, 3 cafés & one Übung; don't!"] * 40)
"""A text, not a caption, that distinguishes tokenizers: it is longer than any model reads, with
characters that tokenizers treat differently."""
_KEPT: dict[str, dict[str, Row]] = {}
"""Tokenised captions by tokenizer, shared by the epochs of a run and all runs of a process."""


class Tokenizer:
    """A tokenizer with the padding that its model was trained with.

    A caption is tokenised once in a process; batches are padded from the cache.

    Args:
        max_length: the number of tokens to which captions are truncated.
    """

    def __init__(self, tokenizer: Any, max_length: int) -> None:
        self.tokenizer = tokenizer
        self.max_length = max_length
        self._checked = False
        # If a tokenizer has no attention mask, its model was trained on texts of full length
        # (SigLIP).
        masked = "attention_mask" in self.tokenizer.model_input_names
        self.padding: dict[str, Any] = (
            {"padding": "longest"}
            if masked
            else {"padding": "max_length", "max_length": max_length}
        )
        backend = getattr(tokenizer, "backend_tokenizer", None)
        self._kept: dict[str, Row] = {}
        if backend is not None:  # its state determines its output
            what = f"{tokenizer.model_input_names} {max_length} {backend.to_str()}"
            self._kept = _KEPT.setdefault(hashlib.sha256(what.encode()).hexdigest(), {})
            # A tokenizer saves the settings of its last call, which have to be these even if all
            # captions are cached.
            self.tokenizer(["a"], truncation=True, max_length=max_length)

    def __call__(self, texts: Sequence[str]) -> dict[str, Tensor]:
        """Return int64 tensors of shape (texts, length)."""
        rows = self._rows(texts)
        columns = {name: [row[name] for row in rows] for name in rows[0]}
        # transformers warns that calling a fast tokenizer again is faster than padding; here it is
        # slower.
        self.tokenizer.deprecation_warnings["Asking-to-pad-a-fast-tokenizer"] = True
        return dict(self.tokenizer.pad(columns, return_tensors="pt", **self.padding))

    def _rows(self, texts: Sequence[str]) -> list[Row]:
        absent = [text for text in dict.fromkeys(texts) if text not in self._kept]
        fresh: dict[str, Row] = {}
        if absent:
            found = self.tokenizer(absent, truncation=True, max_length=self.max_length)
            rows = ({name: found[name][n] for name in found} for n in range(len(absent)))
            fresh = dict(zip(absent, rows, strict=True))
        if len(self._kept) + len(fresh) <= KEEP_CAPTIONS:
            self._kept.update(fresh)
        found = [fresh[text] if text in fresh else self._kept[text] for text in texts]
        if not self._checked and PROBE not in texts:
            self._checked = True
            self._warn_of_unknown(texts, found)
        return found

    def _warn_of_unknown(self, texts: Sequence[str], rows: Sequence[Row]) -> None:
        """Warn if most words of the first captions are unknown and thus alike to the model."""
        unknown = self.tokenizer.unk_token_id
        named = ("bos_token_id", "eos_token_id", "pad_token_id", "cls_token_id", "sep_token_id")
        special = {getattr(self.tokenizer, name, None) for name in named}
        if unknown is None or unknown in special:  # CLIP's own pieces spell any word
            return
        words = [one for row in rows for one in row["input_ids"] if one not in special]
        if words and words.count(unknown) > UNKNOWN_SHARE * len(words):
            say_once(
                f"warning: the model does not know {words.count(unknown) / len(words):.0%} of the "
                f"words of the first captions, such as {texts[0]!r}, and cannot tell captions "
                "apart by them: choose a model that was trained on such text, as model=clip_vit_b32"
            )


def on_device(tokens: Mapping[str, Tensor], device: torch.device) -> dict[str, Tensor]:
    """Move a tokenizer's output to a model's device."""
    return {name: ids.to(device, non_blocking=True) for name, ids in tokens.items()}
