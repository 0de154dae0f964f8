"""A task fitted in a folder, and the weights that it saved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from cfaug.train.task import fit


def run_task(task: Any, folder: Path, attempt: int = 0) -> Any:
    """Fit on one thread, in a folder that is made if it is missing."""
    folder.mkdir(parents=True, exist_ok=True)
    return fit(task, folder, attempt=attempt)


def saved(folder: Path) -> dict[str, torch.Tensor]:
    """Return the weights of the checkpoint."""
    from safetensors.torch import load_file

    return load_file(folder / "checkpoint" / "model.safetensors")
