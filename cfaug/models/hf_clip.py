"""Dual encoders of transformers: whatever has ``get_image_features`` and ``get_text_features``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from cfaug.errors import UserError
from cfaug.models.encoder import Bounds, Encoder, square
from cfaug.models.files import replaced_folder
from cfaug.pixels import ImageTransform
from cfaug.weights import find_weights, refuse_pickles

REQUIRED = ("get_image_features", "get_text_features", "logit_scale")


class HFEncoder(Encoder):
    """A transformers model with its processor."""

    def __init__(
        self,
        model: nn.Module,
        processor: Any,
        transform: ImageTransform,
        max_length: int,
        log_scale_bounds: Bounds,
    ) -> None:
        super().__init__(model, transform, log_scale_bounds)
        self.processor = processor
        self.max_length = max_length
        # A tokenizer that gives no attention mask trained its model on full length (SigLIP).
        masked = "attention_mask" in processor.tokenizer.model_input_names
        self.padding = "longest" if masked else "max_length"

    def tokenize(self, texts: Sequence[str]) -> dict[str, Tensor]:
        """Return the tokenizer's tensors, padded to the batch's longest caption."""
        tokens = self.processor.tokenizer(
            list(texts),
            padding=self.padding,
            truncation=True,
            max_length=self.max_length,
            return_tensors="pt",
        )
        return dict(tokens)

    def encode_pixels(self, pixels: Tensor) -> Tensor:
        """Map normalised float32 (batch, 3, size, size) to projected, unnormalised (batch, dim)."""
        return _pooled(self.model.get_image_features(pixel_values=pixels))

    def encode_text(self, tokens: dict[str, Tensor]) -> Tensor:
        """Map tokens to projected, unnormalised (batch, dim)."""
        device = self.log_scale.device
        there = {name: ids.to(device, non_blocking=True) for name, ids in tokens.items()}
        return _pooled(self.model.get_text_features(**there))

    def save(self, folder: Path) -> None:
        """Write a ``save_pretrained`` folder with its processor."""
        with replaced_folder(folder) as fresh, _no_bars():
            self.model.save_pretrained(fresh)
            self.processor.save_pretrained(fresh)


def _pooled(features: Any) -> Tensor:
    """Transformers 5 returns an output object, 4 and remote classes the tensor itself."""
    return features if isinstance(features, Tensor) else features.pooler_output


def load(folder: Path, *, max_length: int | None, log_scale_bounds: Bounds) -> HFEncoder:
    """Load a ``save_pretrained`` folder in float32, evaluation mode.

    Raises:
        UserError: if something is missing, is a pickle, or is no dual encoder.
    """
    processor = _load_processor(folder)
    model = _load_model(folder)
    encoder = HFEncoder(
        model,
        processor,
        image_transform(processor.image_processor, folder),
        max_length or _longest_text(model.config, processor.tokenizer),
        log_scale_bounds,
    )
    return encoder.eval()


@contextmanager
def _no_bars() -> Iterator[None]:
    """Keep transformers' "Loading weights" bars off the terminal."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def _load_model(folder: Path) -> Any:
    from transformers import AutoModel

    refuse_pickles(find_weights(folder))
    try:
        with _no_bars():
            # The file's own type would win otherwise: a float16 file would train in float16.
            model, report = AutoModel.from_pretrained(
                folder, dtype=torch.float32, local_files_only=True, output_loading_info=True
            )
    except Exception as error:
        raise UserError(f"{folder} cannot be loaded by transformers: {error}") from error
    absent = [name for name in REQUIRED if not hasattr(model, name)]
    if absent:
        raise UserError(
            f"{folder} holds a {type(model).__name__}, which is no dual encoder: "
            f"it has no {', '.join(absent)}"
        )
    wrong = sorted([*report["missing_keys"], *(key for key, *_ in report["mismatched_keys"])])
    if wrong:
        raise UserError(
            f"{folder}: {len(wrong)} weights that its config.json asks for are missing or of "
            f"another shape, such as {wrong[0]}"
        )
    return model


def _load_processor(folder: Path) -> Any:
    from transformers import AutoProcessor

    try:
        processor = AutoProcessor.from_pretrained(folder, local_files_only=True)
    except Exception as error:
        raise UserError(
            f"{folder} has no processor that transformers can load ({error}): save the model's "
            "tokenizer and image processor there (processor.save_pretrained)"
        ) from error
    for part in ("tokenizer", "image_processor"):
        if getattr(processor, part, None) is None:
            raise UserError(f"{folder} has no {part}: save the model's whole processor there")
    return processor


def _longest_text(config: Any, tokenizer: Any) -> int:
    text = getattr(config, "text_config", config)
    positions = getattr(text, "max_position_embeddings", tokenizer.model_max_length)
    return int(min(tokenizer.model_max_length, positions))


def image_transform(processor: Any, owner: object) -> ImageTransform:
    """Read size, mean, deviation and filter from a saved image processor.

    The geometry is always short side, then centre crop, as ``run_clip.py`` does for every model; a
    processor that squashes (SigLIP, ViT) differs from it only on images that are not square.

    Raises:
        UserError: for what the transform cannot express.
    """
    resample = _FILTERS.get(int(processor.resample))
    if resample is None:
        raise UserError(f"{owner}: the filter {processor.resample!r} is not bicubic or bilinear")
    if abs(getattr(processor, "rescale_factor", 1 / 255) - 1 / 255) > 1e-9:
        raise UserError(f"{owner}: rescale_factor {processor.rescale_factor} is not 1/255")
    crop = getattr(processor, "crop_size", None) if _crops(processor) else None
    mean, std = (tuple(float(v) for v in getattr(processor, f"image_{n}")) for n in ("mean", "std"))
    return ImageTransform(_side(crop or processor.size, owner), mean, std, resample)  # type: ignore[arg-type]


_FILTERS: dict[int, Literal["bicubic", "bilinear"]] = {2: "bilinear", 3: "bicubic"}


def _crops(processor: Any) -> bool:
    return bool(getattr(processor, "do_center_crop", False))


def _side(size: Mapping[str, int], owner: object) -> int:
    given = {name: side for name, side in dict(size).items() if side}
    if "shortest_edge" in given:
        return given["shortest_edge"]
    return square((given.get("height"), given.get("width")), owner)
