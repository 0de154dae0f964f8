"""Dual encoders of open_clip: all its architectures, saved in its own file format."""

from __future__ import annotations

import json
import logging
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from safetensors.torch import save_file
from torch import Tensor, nn

from cfaug.core.devices import send
from cfaug.core.errors import UserError, say_once
from cfaug.core.pixels import Geometry, ImageTransform
from cfaug.core.safety.safe_loading import (
    check_built,
    check_folder,
    check_numbers,
    count_stored,
    no_questions,
    read_json,
)
from cfaug.core.weights import open_clip_folder, open_clip_weights, refuse_pickles
from cfaug.models.checkpoints import read_state, replace_checkpoint
from cfaug.models.encoder import Bounds, Encoder, stretch_positions
from cfaug.models.image_processors import channels, square
from cfaug.models.weight_names import find_prefix, say_prefix, stored_names


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
        self._has_grouped_convolutions = any(
            isinstance(module, nn.Conv2d) and module.groups > 1 for module in model.modules()
        )

    def tokenize(self, texts: Sequence[str]) -> dict[str, Tensor]:
        return {"input_ids": self.tokenizer(list(texts))}

    def encode_pixels(self, pixels: Tensor) -> Tensor:
        """Map normalised float32 (batch, 3, size, size) to projected, unnormalised (batch, dim)."""
        if self._has_grouped_convolutions and pixels.device.type == "cpu":
            # torch 2.15 on an AMD EPYC: the second backward pass of MobileCLIP2 aborts with "double
            # free or corruption" if pixels are channels last, as ours are, and not otherwise.
            pixels = pixels.contiguous()
        features: Tensor = self.model.encode_image(pixels)
        return features

    def image_projection(self) -> nn.Module | None:
        """Return the layer of a timm tower; in open_clip's own ViT it is a matrix, not a layer."""
        tower = self.model.visual
        trunk, head = getattr(tower, "trunk", None), getattr(tower, "head", None)
        if trunk is None or not isinstance(head, nn.Sequential):
            return None
        if len(head):
            layers = dict(head.named_children())
            return layers.get("proj", layers.get("mlp"))
        classifier = trunk.get_classifier()  # where the head is empty, it is the projection
        return classifier if isinstance(classifier, nn.Linear) else None

    def encode_unprojected(self, pixels: Tensor) -> Tensor:
        tower = self.model.visual
        matrix = getattr(tower, "proj", None)
        if not isinstance(matrix, nn.Parameter):
            return super().encode_unprojected(pixels)
        tower.proj = None  # as open_clip itself leaves it out
        try:
            features = tower(self.normalize(pixels))
        finally:
            tower.proj = matrix
        pooled: Tensor = features[0] if isinstance(features, tuple) else features
        return pooled

    def encode_text(self, tokens: dict[str, Tensor]) -> Tensor:
        ids = send(tokens["input_ids"], self.log_scale.device)
        features: Tensor = self.model.encode_text(ids)
        return features

    def save(self, folder: Path) -> None:
        """Write the folder that ``create_model_and_transforms("local-dir:FOLDER")`` loads."""
        from open_clip.constants import HF_SAFE_WEIGHTS_NAME

        with replace_checkpoint(folder) as fresh:
            # Cloned, because safetensors refuses two names for one storage (tied embeddings).
            weights = {k: v.detach().cpu().clone() for k, v in self.model.state_dict().items()}
            save_file(weights, fresh / HF_SAFE_WEIGHTS_NAME, metadata={"format": "pt"})
            (fresh / CONFIG).write_text(json.dumps(self.config, indent=2) + "\n", encoding="utf-8")
            if hasattr(self.tokenizer, "save_pretrained"):
                self.tokenizer.save_pretrained(str(fresh))
            text = self.config["model_cfg"]["text_cfg"]
            name = text.get("hf_model_name")
            if name and name not in HF_TEXT_TOWERS:
                # The configuration of a text model that is not in open_clip's lists.
                inside = Path(name).name
                self.model.text.config.save_pretrained(fresh / inside)
                moved = {**text, "hf_model_name": str(folder.resolve() / inside)}
                model = {**self.config["model_cfg"], "text_cfg": moved}
                config = {**self.config, "model_cfg": model}
                (fresh / CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def load(
    weights: str,
    architecture: str | None,
    *,
    log_scale_bounds: Bounds,
    max_tokens: int | None = None,
) -> OpenClipEncoder:
    """Load an open_clip model in float32, evaluation mode.

    Args:
        architecture: open_clip's name of it, for a tag or a file; ``None`` for a folder.
        max_tokens: the number of positions to which those of texts are stretched; ``None`` keeps
            them.
    """
    import open_clip

    file = open_clip_weights(weights)
    if file is not None:
        refuse_pickles([file])
    folder = open_clip_folder(weights)
    source = str(architecture) if folder is None else f"local-dir:{folder}"
    tag_or_file = str(file or weights) if folder is None else None
    if tag_or_file is not None:
        known = open_clip.list_models()
        if source not in known:
            raise UserError(
                f"model.architecture={source} is not known to open_clip: {len(known)} names are "
                "(open_clip.list_models()); a folder or a Hub id needs none"
            )
        tags = open_clip.list_pretrained_tags_by_model(source)
        if file is None and weights not in tags:
            raise UserError(
                f"weights={weights} is neither a file, a folder nor a tag of {source}; "
                f"its tags: {', '.join(tags) or '-'}"
            )
        _compare_activations(source, tag_or_file)
    owner = weights if folder is not None else f"{architecture} ({weights})"
    model_config = {} if folder is None else read_config(folder)
    if folder is not None and file is not None:
        stored = count_stored([file])
        check_numbers(model_config, folder / CONFIG, stored)
        with no_questions():
            check_built(
                lambda: _build(source, model_config, load_weights=False, device="meta"),
                folder,
                stored,
            )
    try:
        plain = _without_prefix(file, source, tag_or_file, model_config)
        with no_questions(), plain as (read_from, weights_file):
            model = _build(read_from, model_config, pretrained=weights_file)
            if max_tokens is not None:
                model_config = model_config or open_clip.get_model_config(source)
                model = _lengthen(model, source, model_config, max_tokens)
                model_config = {
                    **model_config,
                    "text_cfg": {**model_config["text_cfg"], "context_length": max_tokens},
                }
            tokenizer = _tokenizer(source, folder, model_config)
    except UserError:
        raise
    except Exception as error:
        if "in loading state_dict" in str(error):  # torch names the weights in the next lines
            first = str(error).splitlines()[1].strip()
            raise UserError(
                f"{weights} does not hold the weights of {source}: "
                f"{first[:120]} ... Name the architecture that they were trained with, as in "
                "model.architecture=RN50"
            ) from error
        raise UserError(f"open_clip cannot load {owner}: {error}") from error
    if not all(hasattr(model, part) for part in ("visual", "encode_text", "logit_scale")):
        raise UserError(f"{owner} is a {type(model).__name__}, which compares no images and texts")
    preprocess = dict(model.visual.preprocess_cfg)
    config = {
        "model_cfg": model_config or open_clip.get_model_config(source),
        "preprocess_cfg": {k: v for k, v in preprocess.items() if k != "size"},
    }
    resample = preprocess["interpolation"]
    if resample not in {"bicubic", "bilinear"}:
        raise UserError(f"{owner}: the filter {resample!r} is not bicubic or bilinear")
    # The third mode, ``longest``, pads.
    geometries: dict[str, Geometry] = {"shortest": "crop", "squash": "squash"}
    mode = preprocess["resize_mode"]
    geometry = geometries.get(mode)
    if geometry is None:
        raise UserError(f"{owner}: resize_mode {mode!r} is not shortest or squash")
    mean, std = (channels(preprocess[name], name, owner) for name in ("mean", "std"))
    size = square(preprocess["size"], owner)
    transform = ImageTransform(size, mean, std, resample, geometry)
    return OpenClipEncoder(model, tokenizer, config, transform, log_scale_bounds).eval()


@contextmanager
def _without_prefix(
    file: Path | None, source: str, tag_or_file: str | None, model_config: Mapping[str, Any]
) -> Iterator[tuple[str, str | None]]:
    """Give (source, tag or file), of a copy without the prefix that all names of a file have.

    open_clip itself leaves out ``module.`` alone.
    """
    prefix = ""
    if file is not None and file.suffix not in (".npz", ".npy"):
        known = _build(source, model_config, load_weights=False, device="meta").state_dict()
        prefix = find_prefix(stored_names(file), known)
    if file is None or prefix in ("", "module."):
        yield source, tag_or_file
        return
    say_prefix(file, prefix)
    state = read_state(file)
    inner = find_prefix(state, known)
    state = {name.removeprefix(inner): tensor.contiguous() for name, tensor in state.items()}
    with TemporaryDirectory() as folder:
        if source.startswith("local-dir:"):
            copy = Path(folder) / "model"
            shutil.copytree(file.parent, copy, ignore=shutil.ignore_patterns(file.name))
            save_file(state, copy / "open_clip_model.safetensors")
            yield f"local-dir:{copy}", tag_or_file
        else:
            save_file(state, Path(folder) / "model.safetensors")
            yield source, str(Path(folder) / "model.safetensors")


def _compare_activations(source: str, tag_or_file: str) -> None:
    """Say if weights were trained with another activation than the architecture's, or unknown.

    Weights of QuickGELU load into an architecture with GELU without an error, and are worse.
    """
    import open_clip

    other = source + QUICK if not source.endswith(QUICK) else source.removesuffix(QUICK)
    if other not in open_clip.list_models():
        return
    computed = "QuickGELU" if open_clip.get_model_config(source).get("quick_gelu") else "GELU"
    # What tells the activation that weights were trained with: a tag, or what is known of a file.
    settings: Mapping[str, Any] | None = open_clip.get_pretrained_cfg(source, tag_or_file) or None
    teller, file = f"the tag of {source}", Path(tag_or_file)
    if settings is None:
        names = {
            open_clip.get_pretrained_cfg(*tag).get("url", "").rpartition("/")[2]: tag
            for tag in open_clip.list_pretrained()
        }
        beside = file.with_name(CONFIG)
        if beside.is_file():
            content = read_json(beside)
            settings = content.get("model_cfg") if isinstance(content, dict) else None
            teller = f"{CONFIG} beside it"
        elif file.name in names:
            settings = open_clip.get_pretrained_cfg(*names[file.name])
            teller = f"open_clip's tag {names[file.name][1]} of this file name"
    if not isinstance(settings, Mapping):
        say_once(
            f"{tag_or_file} does not say whether its weights were trained with GELU or QuickGELU "
            f"(as OpenAI's, MetaCLIP's and most of DFN's): model.architecture={source} computes "
            f"{computed}, {other} the other"
        )
        return
    trained = "QuickGELU" if settings.get("quick_gelu") else "GELU"
    if trained != computed:
        say_once(
            f"warning: {tag_or_file} was trained with {trained}, as {teller} says, and "
            f"model.architecture={source} computes {computed}, which changes every embedding: "
            f"choose model.architecture={other}"
        )


QUICK = "-quickgelu"
"""The end of open_clip's names of architectures that come with GELU as well."""


def _build(source: str, model_config: Mapping[str, Any], **options: Any) -> Any:
    """Build the open_clip model of a name, or of a folder with its text tower."""
    import open_clip

    text = model_config.get("text_cfg", {})
    if text.get("hf_model_name"):
        options["text_cfg"] = {**text, "hf_model_pretrained": False}
    # Built without weights, to be counted, it would warn that the model is random.
    disabled = logging.root.manager.disable
    if not options.get("load_weights", True):
        logging.disable(logging.WARNING)
    try:
        return open_clip.create_model(
            source, precision="fp32", weights_only=True, pretrained_text=False, **options
        )
    finally:
        logging.disable(disabled)


def _lengthen(model: Any, source: str, config: Mapping[str, Any], count: int) -> Any:
    """Return the model with ``count`` positions of texts, built anew by its library."""
    text = config["text_cfg"]
    padding_is_read = text.get("no_causal_mask") or text.get("embed_cls")
    if text.get("hf_model_name") or padding_is_read or text.get("pool_type") in ("last", "first"):
        raise UserError(
            f"model.max_tokens={count}: the text tower of {source} does not read from left to "
            "right up to the end of a text, so that its positions cannot be stretched"
        )
    state = model.state_dict()
    name = next(key for key in POSITIONS if key in state)
    state[name] = stretch_positions(state[name], count, source)
    longer = _build(source, config, load_weights=False, force_context_length=count)
    longer.load_state_dict(state)
    longer.visual.preprocess_cfg = model.visual.preprocess_cfg
    return longer


POSITIONS = ("positional_embedding", "text.positional_embedding")
"""Names of the embeddings of a text's positions: of CLIP, and of models with a tower for texts."""


def _tokenizer(source: str, folder: Path | None, model_config: Mapping[str, Any]) -> Any:
    """Return the tokenizer of a name, or of a folder, built only from files in that folder."""
    import open_clip
    from open_clip.tokenizer import HFTokenizer, SimpleTokenizer

    if folder is None:
        length = model_config["text_cfg"]["context_length"] if model_config else None
        return open_clip.get_tokenizer(source, context_length=length)
    text = model_config["text_cfg"]
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


# Allowlists for the settings in an open_clip folder's ``open_clip_config.json``.
#
# open_clip itself passes on every setting of the file: arguments of a tokenizer (such as
# ``trust_remote_code``), the path of a file of merges, the name of any repository. No torch.

CONFIG = "open_clip_config.json"
BLOCK = {
    "block_type", "qk_norm", "scaled_cosine_attn", "scale_heads", "scale_attn_inner", "scale_attn",
    "scale_fc",
}  # fmt: skip
TOWER = BLOCK | {
    "layers", "width", "mlp_ratio", "ls_init_value", "final_ln_after_pool", "pool_type",
    "output_tokens", "act_kwargs", "norm_kwargs",
}  # fmt: skip
TEXT = TOWER | {
    "context_length", "vocab_size", "hf_tokenizer_name", "tokenizer_mode", "tokenizer_kwargs",
    "heads", "embed_cls", "pad_id", "eos_id", "no_causal_mask", "proj_bias", "proj_type",
    "hf_model_name", "hf_model_pretrained", "hf_proj_type", "hf_pooler_type",
}  # fmt: skip
ALLOWED: Mapping[str, frozenset[str]] = {
    "model_cfg": frozenset(
        {
            "embed_dim", "vision_cfg", "text_cfg", "multimodal_cfg", "quick_gelu", "custom_text",
            "init_logit_scale", "init_logit_bias", "nonscalar_logit_scale",
        }
    ),
    "vision_cfg": frozenset(
        TOWER
        | {
            "head_width", "patch_size", "image_size", "patch_dropout", "attentional_pool",
            "attn_pooler_queries", "attn_pooler_heads", "no_ln_pre", "pos_embed_type",
            "timm_model_name", "timm_model_pretrained", "timm_pool", "timm_proj", "timm_proj_bias",
            "timm_drop", "timm_drop_path",
        }
    ),
    "text_cfg": frozenset(TEXT),
    "multimodal_cfg": frozenset(TEXT | {"dim_head", "n_queries", "attn_pooler_heads"}),
    "tokenizer_kwargs": frozenset({"clean", "strip_sep_token"}),
    "act_kwargs": frozenset({"approximate"}),
    "norm_kwargs": frozenset({"eps"}),
}  # fmt: skip
"""The settings that are passed on, by node."""
HF_TEXT_TOWERS = (
    "roberta-base", "xlm-roberta-base", "xlm-roberta-large", "google/mt5-base", "google/mt5-xl",
    "facebook/nllb-200-distilled-600M", "facebook/nllb-200-distilled-1.3B",
)  # fmt: skip
"""Text models of the Hub in open_clip's own architectures: a folder may name only these."""


def read_config(folder: Path) -> dict[str, Any]:
    """Return the ``model_cfg`` of a folder, with the path of a text tower in it resolved."""
    file = folder / CONFIG
    content = read_json(file) if file.is_file() else None
    config = content.get("model_cfg") if isinstance(content, dict) else None
    if not isinstance(config, dict):
        raise UserError(
            f"{folder} is not an open_clip folder: its {CONFIG} with a model_cfg is missing"
        )
    check_folder(folder)
    check_config(config, file)
    text = config["text_cfg"]
    name = str(text.get("hf_model_name") or "")
    if name and name not in HF_TEXT_TOWERS:
        inside = folder / Path(name).name
        if not inside.name or not (inside / "config.json").is_file():
            raise UserError(
                f"{file}: text_cfg.hf_model_name={name} is outside the folder, which is not "
                f"allowed; it may name {', '.join(HF_TEXT_TOWERS)}, or a subfolder with the text "
                "model's config.json"
            )
        check_folder(inside)
        name = str(inside.resolve())
    return {**config, "text_cfg": {**text, "hf_model_name": name}} if name else config


def check_config(config: Mapping[str, Any], file: Path) -> None:
    """Refuse an open_clip configuration, a ``model_cfg``, with a setting that is not on the lists.

    ``file`` is the file of the configuration, which the error names.
    """
    for node in ("vision_cfg", "text_cfg"):
        if not isinstance(config.get(node), Mapping):
            raise UserError(f"{file}: {node} is missing")
    _check_node("model_cfg", config, file)
    name = config["vision_cfg"].get("timm_model_name")
    if name is not None and (not isinstance(name, str) or not re.fullmatch(r"[\w.]+", name)):
        raise UserError(f"{file}: timm_model_name={name!r} is not the name of a timm model")
    length = config["text_cfg"].get("context_length", 77)
    if not isinstance(length, int) or not 1 <= length <= 8192:  # captions are padded to it
        raise UserError(f"{file}: context_length={length!r} should be from 1 to 8192")


def _check_node(node: str, settings: Mapping[str, Any], file: Path) -> None:
    for key, value in settings.items():
        if key not in ALLOWED[node]:
            raise UserError(
                f"{file}: {node}.{key}={value!r} is not a setting that a folder may have; allowed "
                f"in {node}: {', '.join(sorted(ALLOWED[node]))}"
            )
        if key == "approximate" and value not in ("none", "tanh"):
            raise UserError(f"{file}: {node}.{key}={value!r} should be none or tanh")
        if key in ALLOWED and value is not None:
            if not isinstance(value, Mapping):
                raise UserError(f"{file}: {node}.{key}={value!r} should hold settings")
            _check_node(key, value, file)
