"""Allowlists for the settings in an open_clip folder's ``open_clip_config.json``.

open_clip itself passes on every setting of the file: arguments of a tokenizer (such as
``trust_remote_code``), the path of a file of merges, the name of any repository. No torch.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cfaug.core.errors import UserError
from cfaug.core.safety.safe_loading import check_folder, read_json

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

LONGEST_TEXT = 8192
"""The largest context length, to which captions are padded."""


def read_config(folder: Path) -> dict[str, Any]:
    """Return the ``model_cfg`` of a folder, with the path of a text tower in it resolved.

    Raises:
        UserError: if there is no ``model_cfg``, or it has settings that the lists do not allow.
    """
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
    if text.get("hf_model_name"):
        name = str(text["hf_model_name"])
        config = {**config, "text_cfg": {**text, "hf_model_name": _text_tower(folder, name)}}
    return config


def check_config(config: Mapping[str, Any], file: Path) -> None:
    """Refuse an open_clip configuration with a setting that is not on the lists.

    Args:
        config: a ``model_cfg``.
        file: the file of the configuration, which the error names.

    Raises:
        UserError: if a setting is missing, not allowed or invalid; it names the setting.
    """
    for node in ("vision_cfg", "text_cfg"):
        if not isinstance(config.get(node), Mapping):
            raise UserError(f"{file}: {node} is missing")
    _check_node("model_cfg", config, file)
    name = config["vision_cfg"].get("timm_model_name")
    if name is not None and (not isinstance(name, str) or not re.fullmatch(r"[\w.]+", name)):
        raise UserError(f"{file}: timm_model_name={name!r} is not the name of a timm model")
    length = config["text_cfg"].get("context_length", 77)
    if not isinstance(length, int) or not 1 <= length <= LONGEST_TEXT:
        raise UserError(f"{file}: context_length={length!r} should be from 1 to {LONGEST_TEXT}")


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


def _text_tower(folder: Path, name: str) -> str:
    """Return the text model for open_clip: a listed name, or a folder inside this one."""
    if name in HF_TEXT_TOWERS:
        return name
    inside = folder / Path(name).name
    if inside.name and (inside / "config.json").is_file():
        check_folder(inside)
        return str(inside.resolve())
    raise UserError(
        f"{folder / CONFIG}: text_cfg.hf_model_name={name} is outside the folder, which is not "
        f"allowed; it may name {', '.join(HF_TEXT_TOWERS)}, or a subfolder with the text model's "
        "config.json"
    )
