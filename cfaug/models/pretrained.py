"""Loading of ``save_pretrained`` folders: weights, processor, image transform."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from torch import Tensor, nn

from cfaug.core.errors import UserError
from cfaug.core.pixels import Geometry, ImageTransform
from cfaug.core.safety.safe_loading import check_finite, from_folder
from cfaug.models.checkpoints import load_model, longest_text, quiet, replace_checkpoint
from cfaug.models.encoder import Bounds, Encoder, Tokenizer, channels, on_device, square

if TYPE_CHECKING:
    import torch


class FromFolder:
    """A wrapper of a transformers model that is loaded from a ``save_pretrained`` folder.

    Attributes:
        transformers_class: the name of transformers' class that loads the weights.
        processor_class: the name of transformers' class that loads the processor.
        required: the attributes that a model has to have, such as those of a dual encoder.
    """

    transformers_class: ClassVar[str]
    processor_class: ClassVar[str] = "AutoProcessor"
    required: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def load(cls, folder: Path, **settings: Any) -> Self:
        """Load a folder in float32, in evaluation mode.

        Args:
            folder: a ``save_pretrained`` folder with weights and processor.
            settings: keyword arguments of the constructor.
        """
        processor = load_processor(folder, cls.processor_class)
        model = load_model(cls.transformers_class, folder, required=cls.required)
        cls.check_model(model, folder)
        made: Any = cls
        wrapped: Self = made(model, processor, folder, **settings).eval()
        return wrapped

    @classmethod
    def check_model(cls, model: Any, folder: Path) -> None:
        """Accept every model with the required attributes."""


class Wrapped(FromFolder, nn.Module):
    """A transformers model for one task that uses all its weights."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model: Any = model

    @classmethod
    def check_model(cls, model: Any, folder: Path) -> None:
        """Refuse weights that are infinite or NaN."""
        check_finite(model, folder)

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return next(self.model.parameters()).device


def label_names(model: Any, owner: object) -> list[str]:
    """Return the names of a model's classes in ``config.json``, in the order of its logits.

    Args:
        model: a model with a ``config`` of transformers.
    """
    names = model.config.id2label
    for number in range(len(names)):
        if number not in names:
            raise UserError(
                f"{owner}: id2label in config.json names {len(names)} classes, and the number "
                f"{number} is missing: they should be numbered from 0, like the logits"
            )
    return [str(names[number]) for number in range(len(names))]


PARTS = {
    "AutoProcessor": ("tokenizer", "image_processor"),
    "AutoImageProcessor": (),
    "AutoTokenizer": (),
}
"""{class of a processor: the parts that it has to have}."""


def load_processor(folder: Path, kind: str = "AutoProcessor") -> Any:
    """Load the processor in a folder.

    Args:
        folder: a ``save_pretrained`` folder.
        kind: the class: ``AutoProcessor``, which has a ``tokenizer`` and an ``image_processor``,
            ``AutoImageProcessor`` or ``AutoTokenizer``.
    """
    import transformers

    try:
        processor = from_folder(getattr(transformers, kind), folder)
    except UserError:
        raise
    except Exception as error:
        what = {"AutoProcessor": "processor", "AutoTokenizer": "tokenizer"}
        raise UserError(
            f"{folder} has no {what.get(kind, 'image processor')} that transformers can load "
            f"({error}): save the model's tokenizer and image processor there "
            "(processor.save_pretrained)"
        ) from error
    for part in PARTS[kind]:
        if getattr(processor, part, None) is None:
            raise UserError(f"{folder} has no {part}: save the model's whole processor there")
    return processor


def inputs(
    model: nn.Module,
    processor: Any,
    folder: Path,
    max_length: int | None,
    geometry: Geometry | None,
) -> tuple[ImageTransform, Tokenizer]:
    """Return the image transform and the tokenizer of a model that reads images and texts.

    Args:
        folder: the folder of model and processor, which errors name.
        max_length: texts are truncated to this many tokens; ``None`` is the model's limit.
        geometry: ``crop`` or ``squash`` images to a square; ``None`` follows the processor.
    """
    transform = image_transform(processor.image_processor, folder, geometry)
    length = text_length(model, processor.tokenizer, max_length, folder)
    return transform, Tokenizer(processor.tokenizer, length)


def text_length(model: nn.Module, tokenizer: Any, asked: int | None, owner: object) -> int:
    """Return the number of tokens, special ones included, to which captions are truncated.

    Args:
        model: a model with a ``config`` of transformers.
        asked: the configured length; ``None`` is the model's limit.
    """
    longest = longest_text(model, tokenizer)
    if longest < 1:
        raise UserError(
            f"{owner}: a caption could have {longest} tokens: model_max_length in "
            "tokenizer_config.json, or the number of the model's positions, is invalid"
        )
    if asked is not None and asked > longest:
        raise UserError(f"model.max_length={asked}: {owner} takes at most {longest} tokens")
    return asked or longest


def image_transform(
    processor: Any, owner: object, geometry: Geometry | None = None
) -> ImageTransform:
    """Read size, mean, standard deviation, filter and geometry from a saved image processor.

    A processor that pads (ViLT) or rounds the long side to a multiple of 32 (BridgeTower) is
    replaced by a centre crop, which differs for images that are not square.

    Args:
        geometry: ``crop`` or ``squash`` images to a square; ``None`` follows the processor.
    """
    resample = _FILTERS.get(int(processor.resample))
    if resample is None:
        raise UserError(f"{owner}: the filter {processor.resample!r} is not bicubic or bilinear")
    if abs(getattr(processor, "rescale_factor", 1 / 255) - 1 / 255) > 1e-9:
        raise UserError(f"{owner}: rescale_factor {processor.rescale_factor} is not 1/255")
    own: Geometry = "crop" if "shortest_edge" in _nonzero(processor.size) else "squash"
    resized = _side(processor.size, owner)
    size = _side(processor.crop_size, owner) if _crops(processor) else resized
    mean, std = (channels(getattr(processor, f"image_{n}"), n, owner) for n in ("mean", "std"))
    cut = resized if resized != size else None
    return ImageTransform(size, mean, std, resample, geometry or own, cut)


_FILTERS: dict[int, Literal["bicubic", "bilinear"]] = {2: "bilinear", 3: "bicubic"}


def _nonzero(size: Mapping[str, int]) -> dict[str, int]:
    return {name: side for name, side in dict(size).items() if side}


def _crops(processor: Any) -> bool:
    return bool(getattr(processor, "do_center_crop", False))


def _side(size: Mapping[str, int], owner: object) -> int:
    given = _nonzero(size)
    if "shortest_edge" in given:
        return given["shortest_edge"]
    return square((given.get("height"), given.get("width")), owner)


# Dual encoders of transformers: any model with ``get_image_features``, ``get_text_features``.


class HFEncoder(FromFolder, Encoder):
    """A dual encoder of transformers with its processor.

    Args:
        folder: the folder of model and processor, which errors name.
        max_length: captions are truncated to this many tokens; ``None`` is the model's limit.
        log_scale_bounds: lower and upper bound of the learnt log scale; ``None`` for no bound.
        geometry: ``crop`` or ``squash`` images to a square; ``None`` follows the processor.
    """

    transformers_class = "AutoModel"
    required: ClassVar[tuple[str, ...]] = ("get_image_features", "get_text_features", "logit_scale")

    def __init__(
        self,
        model: nn.Module,
        processor: Any,
        folder: Path,
        *,
        max_length: int | None,
        log_scale_bounds: Bounds,
        geometry: Geometry | None = None,
    ) -> None:
        transform, tokenizer = inputs(model, processor, folder, max_length, geometry)
        super().__init__(model, transform, log_scale_bounds)
        self.processor = processor
        self.tokenizer = tokenizer

    def tokenize(self, texts: Sequence[str]) -> dict[str, Tensor]:
        """Return the tokenizer's int64 tensors (batch, length), padded to the longest caption."""
        return self.tokenizer(texts)

    def encode_pixels(self, pixels: Tensor) -> Tensor:
        """Map normalised float32 (batch, 3, size, size) to projected, unnormalised (batch, dim)."""
        return _pool(self.model.get_image_features(pixel_values=pixels))

    def encode_text(self, tokens: dict[str, Tensor]) -> Tensor:
        """Map tokens to projected, unnormalised (batch, dim)."""
        there = on_device(tokens, self.log_scale.device)
        return _pool(self.model.get_text_features(**there))

    def save(self, folder: Path) -> None:
        """Write a ``save_pretrained`` folder with its processor."""
        with replace_checkpoint(folder) as fresh, quiet():
            self.model.save_pretrained(fresh)
            self.processor.save_pretrained(fresh)


def _pool(features: Any) -> Tensor:
    """Return one projected vector for each example, (batch, dim).

    Transformers 5 returns an output object, 4 and remote classes the tensor itself. FLAVA projects
    the whole sequence; its contrastive head takes the first token, the CLS.
    """
    found = features if isinstance(features, Tensor) else features.pooler_output
    return found[:, 0] if found.ndim == 3 else found
