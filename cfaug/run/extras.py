"""Packages that only some commands need, and the extra of this project that installs each."""

from __future__ import annotations

import re

EXTRAS = {
    "diffusers": "generate",
    "textblob": "generate",
    "open_clip": "open_clip",
    "wandb": "loggers",
    "tensorboard": "loggers",
    "tensorboardX": "loggers",
    "torch_fidelity": "fid",
    "hydra_plugins": "slurm",
}
"""The extra that has each module, as ``pyproject.toml`` lists them."""


def explain_missing(error: Exception) -> str | None:
    """Say which extra has a module that could not be imported; ``None`` for any other error.

    Args:
        error: of an import; a library's own check may tell the module in its message alone.
    """
    if not isinstance(error, ImportError):
        return None
    named = (error.name or "").partition(".")[0]
    words = [named, *re.findall(r"\w+", str(error))]
    module = next((word for word in words if word in EXTRAS), None)
    if module is None:
        return None
    return f"{module} is missing, which this command needs: pip install 'cfaug[{EXTRAS[module]}]'"
