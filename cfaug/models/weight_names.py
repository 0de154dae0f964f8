"""The names of weights in a checkpoint: where they stand, and what a wrapped model adds to them."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from cfaug.core.errors import say_once
from cfaug.core.weights import tensor_shapes

WRAPPERS = re.compile(r"^(module\.|_orig_mod\.)+")
"""What ``DistributedDataParallel`` and ``torch.compile`` put before every name."""


def stored_names(file: Path) -> list[str]:
    """Return the names of the weights in a file, as they stand there."""
    if file.suffix == ".safetensors":
        return list(tensor_shapes(file))
    import torch

    return list(named_weights(torch.load(file, map_location="meta", weights_only=True)))


def named_weights(content: Any) -> Any:
    """Return the weights in a checkpoint of a training script, which has other content as well."""
    for name in ("state_dict", "model", "model_state_dict"):
        if isinstance(content, Mapping) and isinstance(content.get(name), Mapping):
            content = content[name]
    return content


def find_prefix(names: Collection[str], known: Collection[str]) -> str:
    """Return what all names of a checkpoint begin with and the model's names do not, or "".

    A wrapper's name is put before every weight: by DistributedDataParallel (``module.``), by
    ``torch.compile`` (``_orig_mod.``), by a training module that holds the model (``model.``).

    >>> find_prefix(["module.model.a.w", "module.model.b"], {"a.w", "b", "c"})
    'module.model.'
    >>> find_prefix(["a.w", "a.v"], {"a.w", "a.v"}), find_prefix(["a.w", "b"], {"w"})
    ('', '')
    """
    prefix, most = "", sum(name in known for name in names)
    longest = 0
    while names and all("." in name[longest:] for name in names):
        first = {name[longest:].partition(".")[0] for name in names}
        if len(first) > 1:
            break
        longest += len(first.pop()) + 1
        count = sum(name[longest:] in known for name in names)
        if count > most:
            prefix, most = next(iter(names))[:longest], count
    return prefix


def say_prefix(owner: object, prefix: str) -> None:
    """Say that a checkpoint was read without the prefix of all its names."""
    say_once(
        f"{owner}: the names of all its weights begin with {prefix!r}, as those of a "
        "wrapped model: they are read without it"
    )
