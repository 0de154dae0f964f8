"""CLIP as a scorer of candidates, and as a check of the attributes that images show."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Literal, cast

from cfaug.core.annotations import NO_RESULT
from cfaug.core.devices import send
from cfaug.core.errors import UserError
from cfaug.core.pixels import as_floats, stack_pixels
from cfaug.core.processes import check_device, choose_device
from cfaug.core.protocols import DualEncoder, EmbeddingScorer
from cfaug.core.types import Images, Proposal, Scores
from cfaug.data.grids import ATTRIBUTES, require_attributes
from cfaug.imaging.select import CosineScorer, Unit
from cfaug.settings.read_if import ReadIf

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from cfaug.models.specs import ModelSpec


# torchmetrics' ``CLIPScore`` expects a CLIP of transformers, not any dual encoder, and returns the
# mean over images; a filter needs the score of each.


class ClipScorer(CosineScorer):
    """A :class:`cfaug.imaging.select.CosineScorer` on a dual encoder, in float32 and unit length.

    Args:
        preprocessing: ``ip2p`` is InstructPix2Pix's: the decoder's floats, before any rounding, are
            resized by bicubic interpolation without antialiasing and without a crop. The paper's
            thresholds belong to it. ``standard`` is the model authors' evaluation: uint8,
            antialiased, short side, centre crop.
    """

    def __init__(
        self,
        encoder: DualEncoder,
        preprocessing: Literal["ip2p", "standard"] = "ip2p",
        batch_size: int = 64,
        about: Mapping[str, str] | None = None,
        prefix: str = "",
        consistency: Unit | None = None,
        all_pairs: bool = False,
    ) -> None:
        super().__init__(prefix, consistency, all_pairs)
        if preprocessing not in ("ip2p", "standard"):
            raise UserError(
                f"recipe.scorers: preprocessing={preprocessing} is not ip2p or standard"
            )
        self.encoder = encoder
        self.preprocessing = preprocessing
        self.batch_size = batch_size
        self.about = dict(about or {})

    def texts(self, texts: Sequence[str]) -> Tensor:
        """Embed texts: (n, dim), each truncated at the encoder's limit."""
        import torch

        with torch.inference_mode(), _full_precision(self.encoder):
            parts = []
            for start in range(0, len(texts), self.batch_size):
                tokens = self.encoder.tokenize(list(texts[start : start + self.batch_size]))
                parts.append(_unit(self.encoder.encode_text(tokens)))
        return torch.cat(parts)

    def images(self, images: Tensor) -> Tensor:
        import numpy as np
        import torch
        from PIL import Image
        from torch.nn.functional import interpolate

        encoder, transform, embedded = self.encoder, self.encoder.transform, []
        with torch.inference_mode(), _full_precision(self.encoder):
            for part in images.split(self.batch_size):
                if self.preprocessing == "ip2p":
                    resized = interpolate(
                        part.to(_place(encoder)).float(), (transform.size,) * 2,
                        mode="bicubic", align_corners=False, antialias=False,
                    )  # fmt: skip
                    moments = torch.tensor([transform.mean, transform.std])
                    mean, std = send(moments, resized.device).view(2, 3, 1, 1)
                    features = encoder.encode_pixels((resized - mean) / std)
                else:
                    rounded = (part * 255).round().clamp(0, 255).to(torch.uint8).cpu()
                    whole = [Image.fromarray(tensor.permute(1, 2, 0).numpy()) for tensor in rounded]
                    pixels = stack_pixels([transform(image) for image in whole], transform.size)
                    features = encoder.encode_image(torch.from_numpy(np.ascontiguousarray(pixels)))
                embedded.append(_unit(features))
        return torch.cat(embedded)

    def describe(self) -> dict[str, str]:
        return {**self.about, "preprocessing": self.preprocessing}


@dataclass(frozen=True)
class LazyClipScorer(CosineScorer):
    """A :class:`ClipScorer` that is loaded on first use, so that a finished part never loads it.

    Args:
        device: a device that ``cfaug.core.processes.choose_device`` accepts; ``auto`` is CUDA if
            available.
    """

    model: Annotated[ModelSpec, ReadIf(of="logit_scale_min logit_scale_max")]
    """the weights of the dual encoder"""
    preprocessing: Literal["ip2p", "standard"] = "ip2p"
    """``ip2p``: InstructPix2Pix's, of the decoder's floats before any rounding; ``standard``:
    CLIP's own"""
    device: Annotated[str, NO_RESULT] = "auto"
    prefix: str = ""
    consistency: Unit | None = None
    all_pairs: bool = False

    def __post_init__(self) -> None:
        self._check_consistency()
        check_device(self.device, "recipe.scorers.scorer.device")

    @cached_property
    def _scorer(self) -> ClipScorer:
        device = choose_device(self.device, "recipe.scorers.scorer.device")
        encoder = self.model.load(DualEncoder).to(device).eval()
        return ClipScorer(encoder, self.preprocessing, about=self._about)

    @cached_property
    def _about(self) -> dict[str, str]:
        return {"clip": str(self.model), "sha256": self.model.weights_hash()}

    def texts(self, texts: Sequence[str]) -> Tensor:
        return self._scorer.texts(texts)

    def images(self, images: Tensor) -> Tensor:
        return self._scorer.images(images)

    def describe(self) -> dict[str, str]:
        return {**self._about, "preprocessing": self.preprocessing}


def _full_precision(encoder: DualEncoder) -> torch.autocast:
    """Switch autocast off: the reference scored under float16 and lost directions to rounding."""
    import torch

    return torch.autocast(_place(encoder).type, enabled=False)


def _place(encoder: DualEncoder) -> torch.device:
    device: torch.device = next(cast("torch.nn.Module", encoder).parameters()).device
    return device


def _unit(features: Tensor) -> Tensor:
    from torch.nn.functional import normalize

    return normalize(features.float(), dim=-1)


# Zero-shot classification among the captions of a set: an image should be more similar to its own
# caption than to captions that differ in one attribute. Labels are what captions asked for, never
# what people are.

BASE, EDITED = "label_0", "label_1"
"""Names of the scores of the base image, and of each other image."""
TOGETHER = 32
"""Number of images in memory as floats at a time."""


@dataclass(frozen=True)
class LabelScorer:
    """A scorer of attribute grids: does another encoder recognise every attribute?

    It gives ``label_0``, of the base image, and ``label_1``, of each other one: the least margin,
    over the attributes of the grid, by which the cosine of the image with its own caption exceeds
    that with the best caption that differs in this attribute alone. At 0 or above all attributes
    are recognised, so a recipe sets ``selection.minimum: {label_0: 0, label_1: 0}``. The conference
    version of SocialCounterfactuals filtered by CLIP's zero-shot answer in a similar way; the
    details are not known.

    Args:
        encoder: the encoder of texts and images; not the one for selection or a model tested later,
            because sets that a model finds easy would flatter it.
    """

    encoder: Annotated[EmbeddingScorer, ReadIf(of="prefix consistency all_pairs")]
    prefix: str = ""
    """a text before every label"""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.meanings)

    @property
    def meanings(self) -> dict[str, str]:
        """{name of the score: what it compares}, for figures."""
        return {
            self.prefix + BASE: "base image: its own caption less the nearest other value's",
            self.prefix + EDITED: "other image: its own caption less the nearest other value's",
        }

    def score(self, proposals: Sequence[Proposal], images: Sequence[Images]) -> list[Scores]:
        import torch

        embeddings: dict[tuple[str, ...], Tensor] = {}
        scored: list[Scores] = []
        for proposal, made in zip(proposals, images, strict=True):
            where = f"recipe.scorers: proposal {proposal.key!r}"
            if not proposal.details:
                raise UserError(
                    f"{where} has no attributes to look for: LabelScorer is for data.grid=NAME"
                )
            attributes = [
                require_attributes(detail.get(ATTRIBUTES), where) for detail in proposal.details
            ]
            first, *rest = attributes
            if not rest or any(attribute.keys() != first.keys() for attribute in rest):
                raise UserError(f"{where} is not a grid: its texts have different attributes")
            texts = proposal.texts
            if texts not in embeddings:
                embeddings[texts] = self.encoder.texts(texts).cpu()
            seen: list[Tensor] = []
            for start in range(0, len(made.images), TOGETHER):
                floats = [as_floats(image) for image in made.images[start : start + TOGETHER]]
                same = all(pixels.shape == floats[0].shape for pixels in floats)
                parts = [torch.stack(floats)] if same else [pixels[None] for pixels in floats]
                seen += [self.encoder.images(part).cpu() for part in parts]
            shown = torch.cat(seen)[list(made.shown)]
            margins = label_margins(shown, embeddings[texts], attributes)
            if math.inf in margins:
                raise UserError(
                    f"{where}: no caption differs from "
                    f"{texts[margins.index(math.inf)]!r} in one attribute alone: the grid is "
                    "incomplete"
                )
            base, *others = margins
            scores: dict[str, float | tuple[float, ...]] = {self.prefix + BASE: base}
            scored.append(scores | {self.prefix + EDITED: tuple(others)})
        return scored

    def describe(self) -> dict[str, str]:
        return self.encoder.describe()


def label_margins(
    images: Tensor, texts: Tensor, attributes: Sequence[Mapping[str, str]]
) -> list[float]:
    """Return the margin by which each image is more similar to its caption than to the others.

    Args:
        images: embeddings of unit length (n, dim).
        texts: embeddings of the images' captions, of unit length (n, dim).

    Returns:
        The least margin over the attributes that have other values in the set; infinite if no
        caption differs in only one attribute.
    """
    import torch

    cosines = images.double() @ texts.double().T
    matching = cosines.diagonal()
    names = list(attributes[0])
    known: dict[tuple[str, str], int] = {}
    codes = torch.tensor(
        [
            [known.setdefault((name, attribute[name]), len(known)) for name in names]
            for attribute in attributes
        ]
    )
    differ = codes[:, None] != codes[None]
    alone = differ.sum(-1) == 1
    margins = torch.full_like(matching, torch.inf)
    for column in range(len(names)):
        nearest = cosines.masked_fill(~(differ[..., column] & alone), -torch.inf).amax(dim=1)
        margins = torch.minimum(margins, matching - nearest)
    return [float(margin) for margin in margins]
