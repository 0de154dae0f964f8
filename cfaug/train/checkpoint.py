"""``last.ckpt``: whole or not at all on disk, tensors and numbers only when read."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.plugins.io import TorchCheckpointIO

from cfaug.errors import UserError


def read_checkpoint(path: Path, *, mmap: bool = False) -> dict[str, Any]:
    """Read a checkpoint of a run onto the CPU.

    Raises:
        UserError: if it is not one, or holds anything but tensors and plain values.
    """
    try:
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=mmap)
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError) as error:
        raise UserError(
            f"{path} is not a checkpoint of this program and is not opened ({error}): "
            "remove it, or start anew with overwrite=true"
        ) from error
    if not isinstance(content, dict) or "global_step" not in content:
        raise UserError(f"{path} is not a checkpoint of a run: remove it to start anew")
    return content


class AtomicCheckpointIO(TorchCheckpointIO):
    """Replaces the old file only once the new one is on the disk, so that a kill loses neither."""

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None
    ) -> None:
        """Write to a temporary file beside ``path``, flush it to the disk, rename it."""
        target = Path(path)
        fresh = target.with_name(f".{target.name}.new")
        try:
            with fresh.open("wb") as handle:
                torch.save(checkpoint, handle)
                handle.flush()
                os.fsync(handle.fileno())
            os.replace(fresh, target)
        finally:
            fresh.unlink(missing_ok=True)

    def load_checkpoint(
        self,
        path: str | Path,
        map_location: Callable[..., Any] | None = None,
        weights_only: bool | None = None,
    ) -> dict[str, Any]:
        """Read onto the CPU; never unpickle anything but tensors and plain values."""
        return read_checkpoint(Path(path))
