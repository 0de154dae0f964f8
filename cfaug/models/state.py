"""Reading and checking the weights of a library's model, without executing code."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from cfaug.core.errors import UserError
from cfaug.core.safety.weight_limits import check_built, check_finite, count_stored
from cfaug.core.weights import refuse_pickles

WITHIN = ("state_dict", "model", "model_state_dict")
"""Keys of the weights in the checkpoints of training scripts, which have other content as well."""

BEFORE = "module."
"""Prefix of every name in a checkpoint of ``DistributedDataParallel``."""


def read_state(file: Path) -> dict[str, Tensor]:
    """Return the tensors of a file by name.

    Args:
        file: a safetensors file, or an output of ``torch.save`` with only tensors.

    Raises:
        UserError: if the file cannot be read, or has other content.
    """
    refuse_pickles([file])
    try:
        if file.suffix == ".safetensors":
            from safetensors.torch import load_file

            found: Any = load_file(file)
        else:
            import torch

            found = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # safetensors and torch have their own types of errors
        raise UserError(f"{file} cannot be read as weights: {error}") from error
    for name in WITHIN:
        if isinstance(found, Mapping) and isinstance(found.get(name), Mapping):
            found = found[name]
    if not isinstance(found, Mapping) or not all(isinstance(one, Tensor) for one in found.values()):
        raise UserError(f"{file} has no weights by name: save the model's state_dict() there")
    return {str(name).removeprefix(BEFORE): tensor for name, tensor in found.items()}


def build_and_fill(build: Callable[[], nn.Module], file: Path) -> nn.Module:
    """Build a model and load all weights of a file into it, in float32.

    Args:
        build: a function that returns the model with random weights; it is first called on the meta
            device.
        file: a safetensors file, or an output of ``torch.save`` with only tensors.

    Raises:
        UserError: if the library cannot build it; if weights are missing, left over, of another
            shape or not finite; or if the model is far larger than the weights.
    """
    state = read_state(file)
    check_built(build, file, count_stored([file]))
    try:
        model = build()
    except Exception as error:  # the library may raise anything
        raise UserError(f"{file}: its model cannot be built: {error}") from error
    model = model.float()
    wrong = find_differences(model.state_dict(), state)
    if wrong:
        more = f" and {len(wrong) - 3} more" if len(wrong) > 3 else ""
        raise UserError(
            f"{file} does not have the weights of the requested {type(model).__name__}: "
            f"{'; '.join(wrong[:3])}{more}. Is it another architecture?"
        )
    model.load_state_dict(state)
    check_finite(model, file)
    return model


def find_differences(wanted: Mapping[str, Tensor], there: Mapping[str, Tensor]) -> list[str]:
    """Return the differences between two sets of weights in names and shapes, as phrases.

    Args:
        wanted: the weights of the model, by name.
        there: the weights found, by name.
    """
    return [
        *(f"{name} is missing" for name in wanted if name not in there),
        *(f"{name} has no place" for name in there if name not in wanted),
        *(
            f"{name} is {tuple(there[name].shape)}, not {tuple(wanted[name].shape)}"
            for name in wanted
            if name in there and there[name].shape != wanted[name].shape
        ),
    ]


def choose_classes(
    told: Sequence[str] | None, own: Sequence[str] | None, logits: int, owner: object
) -> tuple[str, ...]:
    """Return the names of a model's classes.

    Args:
        told: the names that the configuration gives; ``None`` if it gives no names.
        own: the names that the model or its library gives; ``None`` if it gives no names.
        logits: the number of the model's logits.
        owner: the model's folder or name, which errors name.

    Raises:
        UserError: if no names are given, or the numbers of names and logits differ.
    """
    names = own if told is None else told
    if names is None:
        raise UserError(
            f"{owner} has {logits} classes without names: give model.classes=FILE with a line for "
            "each logit, a name or a WordNet id"
        )
    if len(names) != logits:
        where = "it says" if told is None else "model.classes has"
        raise UserError(f"{owner} has {logits} logits, and {where} {len(names)} classes")
    return tuple(names)
