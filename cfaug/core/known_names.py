"""Names of settings: those that are unknown, and the known ones that they probably mean."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from cfaug.core.annotations import signature_of
from cfaug.core.errors import UserError


def refuse_unknown(
    node: Mapping[str, Any], taken: Sequence[str], path: str, kind: Any = None
) -> None:
    """Refuse an unknown key.

    Args:
        kind: the class that takes the keys.
    """
    for key in node:
        if key in taken:
            continue
        if others := describe_variants(kind, path, str(key)):
            raise UserError(f"nothing takes {path}{key}: {others}")
        names = [path + name for name in taken]
        hint = suggest(str(key), taken, path)
        if hint is None and not path and isinstance(node[key], Mapping):
            hint = f"a file of {key}/ with settings of every group begins with "
            hint += "`# @package _global_`."
        raise UserError(
            f"nothing takes {path}{key}: {f'{hint} ' if hint else ''}Keys here: {', '.join(names)}"
        )


def suggest(key: str, known: Sequence[str], path: str = "") -> str | None:
    """Return a sentence on what an unknown setting probably means; ``None`` if nothing is near.

    Args:
        path: the place before the names, which are compared without it.
    """
    place, dot, last = key.rpartition(".")
    if last in OF_RESUMING:
        return f"{HOW_RUNS_RESUME}."
    renamed = f"{place}{dot}{RENAMED.get(last)}"
    if renamed in known:
        return f"it is called {path}{renamed} now."
    near = nearest(key, known)
    return f"did you mean {path}{near}?" if near else None


def describe_variants(kind: Any, path: str, name: str) -> str:
    """Say which variants of a class have a setting that it lacks; empty if none has.

    Variants are the subclasses of one class that say by which words they are chosen, in
    ``chosen_by``.

    >>> class Data: chosen_by = None
    >>> class Ratio(Data): chosen_by = "mixture=ratio"
    >>> class Pairs(Data):
    ...     chosen_by = "mixture=pairs"
    ...     def __init__(self, negatives="text"): pass
    >>> describe_variants(Ratio, "data.", "negatives")
    'data.negatives is a setting of mixture=pairs, not of mixture=ratio'
    """
    bases = [base for base in getattr(kind, "__mro__", ()) if "chosen_by" in vars(base)]
    waiting, variants = bases[-1:], []
    while waiting:
        variant = waiting.pop(0)
        waiting += variant.__subclasses__()
        if vars(variant).get("chosen_by") and name in signature_of(variant):
            variants.append(variant)
    learnt = getattr(kind, "learnt", None)
    alike = [each for each in variants if getattr(each, "learnt", None) == learnt] or variants
    words = " or ".join(dict.fromkeys(variant.chosen_by for variant in alike))
    if not words or name in signature_of(kind):
        return ""
    return f"{path}{name} is a setting of {words}" + (
        f", not of {kind.chosen_by}" if kind.chosen_by else ""
    )


OF_RESUMING = frozenset(
    {"auto_resume", "ckpt_path", "resume", "resume_from", "resume_from_checkpoint", "resume_path"}
)
"""Names that other libraries have for the checkpoint with which a training goes on."""
HOW_RUNS_RESUME = (
    "a run has a folder of its own and resumes by itself: the same command again goes on from "
    "last.ckpt there, extend=true with a larger trainer.max_steps trains a finished run longer, "
    "weights=FOLDER starts from other weights, in train.py as in evaluate.py"
)

RENAMED = MappingProxyType(
    {
        "name_or_path": "weights",
        "pretrained": "weights",
        "warmup_steps": "warmup",
        "warmup_ratio": "warmup",
    }
)
"""{former name of a setting: its name}, which an error gives with the word to type."""

USUAL_NAMES: Mapping[str, Sequence[str]] = MappingProxyType(
    {
        "lr": ("learning_rate", "learningrate", "rate"),
        "weight_decay": ("wd", "decay"),
        "warmup": ("num_warmup_steps", "warmup_proportion", "warmup_fraction"),
        "max_epochs": ("epochs", "epoch", "num_epochs", "num_train_epochs"),
        "max_steps": ("steps", "num_steps", "total_steps", "iterations"),
        "accumulate_grad_batches": (
            "accumulate", "accum_freq", "accumulation_steps", "gradient_accumulation_steps",
        ),
        "gradient_clip": ("grad_clip", "clip_grad", "gradient_clip_val", "max_grad_norm"),
        "devices": ("gpus", "num_gpus", "nproc_per_node"),
        "num_nodes": ("nodes", "nnodes"),
        "batch_size": ("bs", "batch", "train_batch_size", "per_device_train_batch_size"),
        "workers": ("num_workers", "dataloader_num_workers"),
        "validation": ("val_split", "val_ratio", "validation_split"),
        "cf_ratio": ("ratio", "counterfactual_ratio"),
        "name": ("experiment_name", "run_name"),
        "overwrite": ("force",),
        "captions": ("caption_file", "prompts"),
        "guidance_scale": ("cfg",),
    }
)  # fmt: skip
"""{setting: its names in other libraries (Hugging Face, Lightning, open_clip)}."""


def nearest(key: str, known: Sequence[str]) -> str | None:
    """Return the known dotted key that ``key`` probably means.

    Keys are compared as a whole and by their last part, those of the same node first. Names that
    other libraries use for a setting count as well; keys that begin with an underscore do not.

    >>> nearest("data.cf_rato", ["data.cf_ratio", "seed"])
    'data.cf_ratio'
    >>> nearest("cf_ratio", ["data.cf_ratio", "seed"])
    'data.cf_ratio'
    >>> nearest("optim.learning_rate", ["optim._target_", "optim.lr"])
    'optim.lr'
    """
    parent, _, tail = key.rpartition(".")
    siblings = [name for name in known if name.rpartition(".")[0] == parent]
    settings = [
        name
        for name in dict.fromkeys([*siblings, *known])
        if not any(part.startswith("_") for part in name.split("."))
    ]
    last = {name.rsplit(".", 1)[-1]: name for name in reversed(settings)}
    if tail in last and key not in settings:
        return last[tail]
    for name, others in USUAL_NAMES.items():
        if tail.lower() in others and name in last:
            return last[name]
    whole = difflib.get_close_matches(key, settings, 1, 0.6)
    if whole and whole[0].rpartition(".")[0] == parent:
        return whole[0]
    near = difflib.get_close_matches(tail, list(last), 1, 0.75)
    return last[near[0]] if near else (whole[0] if whole else None)
