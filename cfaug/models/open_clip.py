"""Dual encoders of open_clip: all its architectures, saved in its own file format."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from cfaug.core.errors import UserError
from cfaug.core.pixels import Geometry, ImageTransform
from cfaug.core.safety.safe_loading import no_questions
from cfaug.core.safety.weight_limits import check_built, check_numbers, count_stored
from cfaug.core.weights import open_clip_folder, open_clip_weights, refuse_pickles
from cfaug.models.encoder import Bounds, Encoder, channels, square
from cfaug.models.files import replace_checkpoint
from cfaug.models.open_clip_folder import CONFIG, HF_TEXT_TOWERS, read_config

UNFIT = "in loading state_dict"
"""A part of torch's message about weights of another architecture; the next lines name them."""

LONGEST = 120
"""The largest number of characters of such a line that a message quotes."""


class OpenClipEncoder(Encoder):
    """An open_clip model with its tokenizer and the configuration to rebuild it."""

    def __init__(
        self,
        model: nn.Module,
        tokenizer: Any,
        config: dict[str, Any],
        transform: ImageTransform,
        log_scale_bounds: Bounds,
    ) -> None:
        super().__init__(model, transform, log_scale_bounds)
        self.tokenizer = tokenizer
        self.config = config

    def tokenize(self, texts: Sequence[str]) -> dict[str, Tensor]:
        """Return ``input_ids`` of the context length, to which the model's attention mask fits."""
        return {"input_ids": self.tokenizer(list(texts))}

    def encode_pixels(self, pixels: Tensor) -> Tensor:
        """Map normalised float32 (batch, 3, size, size) to projected, unnormalised (batch, dim)."""
        features: Tensor = self.model.encode_image(pixels)
        return features

    def encode_text(self, tokens: dict[str, Tensor]) -> Tensor:
        """Map tokens to projected, unnormalised (batch, dim)."""
        ids = tokens["input_ids"].to(self.log_scale.device, non_blocking=True)
        features: Tensor = self.model.encode_text(ids)
        return features

    def save(self, folder: Path) -> None:
        """Write the folder that ``create_model_and_transforms("local-dir:FOLDER")`` loads."""
        from open_clip.constants import HF_SAFE_WEIGHTS_NAME
        from safetensors.torch import save_file

        with replace_checkpoint(folder) as fresh:
            # Cloned, because safetensors refuses two names for one storage (tied embeddings).
            weights = {k: v.detach().cpu().clone() for k, v in self.model.state_dict().items()}
            save_file(weights, fresh / HF_SAFE_WEIGHTS_NAME, metadata={"format": "pt"})
            (fresh / CONFIG).write_text(json.dumps(self.config, indent=2) + "\n", encoding="utf-8")
            if hasattr(self.tokenizer, "save_pretrained"):
                self.tokenizer.save_pretrained(str(fresh))
            self._save_text_tower(folder, fresh)

    def _save_text_tower(self, folder: Path, fresh: Path) -> None:
        """Save the configuration of a text model that is not in open_clip's lists."""
        text = self.config["model_cfg"]["text_cfg"]
        name = text.get("hf_model_name")
        if not name or name in HF_TEXT_TOWERS:
            return
        inside = Path(name).name
        self.model.text.config.save_pretrained(fresh / inside)
        moved = {**text, "hf_model_name": str(folder.resolve() / inside)}
        model = {**self.config["model_cfg"], "text_cfg": moved}
        config = {**self.config, "model_cfg": model}
        (fresh / CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def load(architecture: str, pretrained: str | None, *, log_scale_bounds: Bounds) -> OpenClipEncoder:
    """Load an open_clip model in float32, evaluation mode.

    Raises:
        UserError: if the name, tag, folder or file cannot be loaded or is a pickle, or a folder's
            configuration does not fit its weights or has settings that are not allowed.
    """
    file = open_clip_weights(architecture, pretrained)
    if file is not None:
        refuse_pickles([file])
    folder = open_clip_folder(architecture)
    source = architecture if folder is None else f"local-dir:{folder}"
    _check_names(source, pretrained, file)
    told = {} if folder is None else read_config(folder)
    if folder is not None and file is not None:
        _check_size(source, told, folder, file)
    try:
        with no_questions():
            model = _build(source, told, pretrained=pretrained)
            tokenizer = _tokenizer(source, folder, told)
    except UserError:
        raise
    except Exception as error:
        if UNFIT in str(error):
            first = str(error).splitlines()[1].strip()
            raise UserError(
                f"{pretrained or architecture} does not hold the weights of {architecture}: "
                f"{first[:LONGEST]} ... Name the architecture that they were trained with, as in "
                "model.architecture=RN50"
            ) from error
        raise UserError(f"open_clip cannot load {architecture} ({pretrained}): {error}") from error
    preprocess = dict(model.visual.preprocess_cfg)
    config = {
        "model_cfg": told or _own_config(source),
        "preprocess_cfg": {k: v for k, v in preprocess.items() if k != "size"},
    }
    transform = _image_transform(preprocess, architecture)
    return OpenClipEncoder(model, tokenizer, config, transform, log_scale_bounds).eval()


def _build(source: str, told: Mapping[str, Any], **options: Any) -> Any:
    """Build the open_clip model of a name, or of a folder with its text tower."""
    import open_clip

    text = told.get("text_cfg", {})
    if text.get("hf_model_name"):
        options["text_cfg"] = {**text, "hf_model_pretrained": False}
    return open_clip.create_model(
        source, precision="fp32", weights_only=True, pretrained_text=False, **options
    )


def _check_size(source: str, told: Mapping[str, Any], folder: Path, file: Path) -> None:
    weights = count_stored([file])
    check_numbers(told, folder / CONFIG, weights)
    with no_questions():
        check_built(
            lambda: _build(source, told, load_weights=False, device="meta"), folder, weights
        )


def _tokenizer(source: str, folder: Path | None, told: Mapping[str, Any]) -> Any:
    """Return the tokenizer of a name, or of a folder, built only from files in that folder."""
    import open_clip
    from open_clip.tokenizer import HFTokenizer, SimpleTokenizer

    if folder is None:
        return open_clip.get_tokenizer(source)
    text = told["text_cfg"]
    options = dict(text.get("tokenizer_kwargs") or {})
    options["context_length"] = text.get("context_length", 77)
    if not text.get("hf_tokenizer_name"):
        return SimpleTokenizer(**options)
    return HFTokenizer(
        str(folder),
        tokenizer_mode=text.get("tokenizer_mode"),
        trust_remote_code=False,
        local_files_only=True,
        **options,
    )


def _own_config(name: str) -> dict[str, Any]:
    import open_clip

    found: dict[str, Any] = open_clip.get_model_config(name)
    return found


def _check_names(architecture: str, pretrained: str | None, file: Path | None) -> None:
    import open_clip

    if architecture.startswith("local-dir:"):
        return
    if architecture not in open_clip.list_models():
        raise UserError(
            f"model.architecture={architecture} is not known to open_clip: "
            f"{len(open_clip.list_models())} names are (open_clip.list_models()), "
            "or local-dir:FOLDER, or hf-hub:OWNER/NAME"
        )
    tags = open_clip.list_pretrained_tags_by_model(architecture)
    if file is None and pretrained not in tags:
        raise UserError(
            f"model.pretrained={pretrained} is neither a file nor a tag of {architecture}; "
            f"its tags: {', '.join(tags) or '-'}"
        )


def _image_transform(preprocess: dict[str, Any], owner: str) -> ImageTransform:
    resample = preprocess["interpolation"]
    if resample not in {"bicubic", "bilinear"}:
        raise UserError(f"{owner}: the filter {resample!r} is not bicubic or bilinear")
    geometry = _GEOMETRIES.get(preprocess["resize_mode"])
    if geometry is None:
        raise UserError(
            f"{owner}: resize_mode {preprocess['resize_mode']!r} is not shortest or squash"
        )
    mean, std = (channels(preprocess[name], name, owner) for name in ("mean", "std"))
    return ImageTransform(square(preprocess["size"], owner), mean, std, resample, geometry)


_GEOMETRIES: dict[str, Geometry] = {"shortest": "crop", "squash": "squash"}
"""Geometry by open_clip's ``resize_mode``; the third mode, ``longest``, pads and is unsupported."""
