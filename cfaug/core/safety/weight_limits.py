"""Checks of a model's configuration against the size of its weights, before the model is built.

A few digits in a ``config.json`` can request terabytes or a billion layers. So a model is first
built without memory (torch's meta device), and its parameters are counted. Torch is imported when
it is needed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cfaug.core.errors import UserError
from cfaug.core.safety.safe_loading import entries, from_folder, read_json
from cfaug.core.weights import HF_WEIGHTS, find_weights, tensor_shapes

if TYPE_CHECKING:
    from torch import nn

NOT_NUMBERS = (
    "holds values that are infinite or not numbers (NaN), as a training leaves that diverged"
)

REPEATED = re.compile(r"(layers?|depths?|stages|blocks?|experts|layers_per_block)$")
"""Settings that are counts of modules to build."""

FEWEST_REPEATS = 64
"""The number of repeats that is always allowed, as layers may share their tensors."""

LARGEST_NUMBER = 10_000_000
"""The largest integer that a configuration may always have, however small the weights are."""

SPARE = 1_000_000
"""Parameters, for unused heads, that a model may have beyond twice the number in its file."""


def count_stored(paths: Sequence[Path]) -> tuple[int, int]:
    """Return the number of tensors and of parameters in weight files.

    Pickles, already known to hold only tensors, are counted without reading their values.
    """
    shapes = [shape for path in paths for shape in _shapes(path)]
    return len(shapes), sum(math.prod(shape) for shape in shapes)


def _shapes(path: Path) -> list[tuple[int, ...]]:
    if path.suffix == ".safetensors":
        return list(tensor_shapes(path).values())
    import torch

    content = torch.load(path, map_location="meta", weights_only=True)
    return [tuple(one.shape) for _, one in entries(content) if isinstance(one, torch.Tensor)]


def check_numbers(config: Any, file: Path, weights: tuple[int, int]) -> None:
    """Refuse integers that are too large for weights of this size, before anything is built.

    Args:
        config: the file's content, nested to any depth.
        file: the file that errors name.
        weights: the result of ``count_stored``: the numbers of tensors and of parameters.

    Raises:
        UserError: naming the setting.
    """
    tensors, numbers = weights
    for key, value in entries(config):
        repeated = REPEATED.search(key) is not None
        most = max(FEWEST_REPEATS, tensors) if repeated else max(LARGEST_NUMBER, numbers)
        given = [one for one in (value if isinstance(value, list) else [value]) if _whole(one)]
        total = sum(map(abs, given)) if repeated else max(map(abs, given), default=0)
        if total > most:
            raise UserError(
                f"{file}: {key}={value} is absurd for weights of {tensors} tensors and {numbers} "
                "numbers: the file is damaged, or belongs to other weights"
            )


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def check_built(
    build: Callable[[], nn.Module], owner: object, weights: tuple[int, int]
) -> nn.Module | None:
    """Build a model without memory; refuse one with more parameters than the file has.

    Args:
        build: a function that returns the model; it is called on torch's meta device.
        owner: the folder that errors name.
        weights: the result of ``count_stored``: the numbers of tensors and of parameters.

    Returns:
        The model, with tensors that have no values; ``None`` if it cannot be built, which the
        library reports when it loads the weights.

    Raises:
        UserError: naming both numbers.
    """
    import torch

    numbers = weights[1]
    try:
        with torch.random.fork_rng(devices=[]), torch.device("meta"):
            model = build()
    except UserError:
        raise
    except Exception:  # the library raises its own error when it loads the weights
        return None
    wanted = sum(parameter.numel() for parameter in model.parameters())
    if wanted > 2 * numbers + SPARE:
        raise UserError(
            f"{owner}: the configuration asks for a model of {wanted:,} numbers and the weights "
            f"hold {numbers:,}: one of them is damaged, or they do not belong together"
        )
    return model


def skeleton(kind: Any, folder: Path, names: Sequence[str] = HF_WEIGHTS) -> nn.Module | None:
    """Check a folder's configuration against its weights; return the model without values.

    Args:
        kind: a model class of transformers (also an ``Auto`` class) or of diffusers.
        folder: the folder of the weights; any pickles in it are known to hold only tensors.
        names: the possible names of the weight file.

    Returns:
        See ``check_built``.

    Raises:
        UserError: if the configuration does not fit the weights.
    """
    weights = count_stored(find_weights(folder, names))
    file = folder / "config.json"
    if not file.is_file():
        return None
    check_numbers(read_json(file), file, weights)
    return check_built(lambda: _build(kind, folder), folder, weights)


def _build(kind: Any, folder: Path) -> nn.Module:
    if hasattr(kind, "load_config"):  # diffusers
        return kind.from_config(kind.load_config(folder, local_files_only=True))
    if kind.__name__.startswith("Auto"):
        from transformers import AutoConfig

        return kind.from_config(from_folder(AutoConfig, folder), trust_remote_code=False)
    return kind(from_folder(kind.config_class, folder))


def check_finite(model: nn.Module, owner: object) -> None:
    """Refuse infinite or NaN weights, which would make every result invalid.

    This is for models that use all of their weights; for others see ``find_damaged``.

    Args:
        model: the loaded model.
        owner: the folder that errors name.

    Raises:
        UserError: naming the first such tensor.
    """
    name = find_damaged(model)
    if name is not None:
        raise UserError(f"{owner}: the weights are damaged: {name} {NOT_NUMBERS}")


def find_damaged(model: nn.Module) -> str | None:
    """Return the name of the first parameter with infinite values or NaN; ``None`` without one."""
    import torch

    for name, parameter in model.named_parameters():
        values = parameter.detach()
        if not torch.isfinite(values.sum()) and not torch.isfinite(values).all():
            return name
    return None
