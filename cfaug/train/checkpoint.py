"""``last.ckpt``: written atomically, read as tensors and plain values only."""

from __future__ import annotations

import pickle
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any, cast

import torch
from lightning.pytorch.plugins.io import TorchCheckpointIO

from cfaug.core.errors import UserError
from cfaug.core.files import replace_file, require_regular

LIGHTNINGS = ("state_dict", "optimizer_states", "lr_schedulers", "callbacks", "loops")
"""The keys, besides ``global_step``, of a checkpoint that a run wrote."""


def read_checkpoint(path: Path, *, mmap: bool = False) -> dict[str, Any]:
    """Read a checkpoint of a run onto the CPU.

    Args:
        path: the path of ``last.ckpt``.
        mmap: whether tensors are read only when they are accessed.

    Raises:
        UserError: if it is a pipe, damaged, not a checkpoint of a run, or holds anything but
            tensors and plain values.
    """
    require_regular(path)
    try:
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=mmap)
    except (
        pickle.UnpicklingError, RuntimeError, EOFError, ValueError, KeyError, OSError,
        AttributeError, TypeError, zipfile.BadZipFile,
    ) as error:  # fmt: skip
        raise UserError(
            f"{path} is damaged, or is not a checkpoint of this program, and is not opened "
            f"({_first_line(error)}): {WAY_OUT}"
        ) from error
    missing = [*LIGHTNINGS, "global_step"]
    if isinstance(content, dict):
        missing = [name for name in missing if name not in content]
    if missing:
        raise UserError(f"{path} is not a checkpoint of a run ({missing[0]} is missing): {WAY_OUT}")
    step, weights = content["global_step"], content["state_dict"]
    if isinstance(step, bool) or not isinstance(step, int) or step < 0:
        raise UserError(f"{path}: the step is invalid ({step!r}): {WAY_OUT}")
    if not isinstance(weights, dict):
        raise UserError(f"{path}: the weights are invalid: {WAY_OUT}")
    return content


def check_weights(
    path: Path, checkpoint: Mapping[str, Any], model: Mapping[str, torch.Tensor]
) -> None:
    """Refuse the checkpoint of another model.

    Args:
        path: the path that the message names.
        checkpoint: the result of ``read_checkpoint``.
        model: the weights of the model that resumes training.

    Raises:
        UserError: naming a weight that is missing, or of another shape.
    """
    weights = checkpoint["state_dict"]
    there = {name: getattr(weight, "shape", None) for name, weight in weights.items()}
    wanted = {name: weight.shape for name, weight in model.items()}
    if there != wanted:
        name = next(one for one in (*wanted, *there) if there.get(one) != wanted.get(one))
        raise UserError(f"{path} is of another model ({name} differs): {WAY_OUT}")


WAY_OUT = "remove it to start this run from its beginning"


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


class _File:
    """A file for ``torch.save`` that keeps the error of a write, which ``torch.save`` loses."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self.error: OSError | None = None

    def write(self, content: bytes) -> int:
        try:
            written: int = self._file.write(content)
        except OSError as error:
            self.error = error
            raise
        return written

    def flush(self) -> None:
        self._file.flush()


class AtomicCheckpointIO(TorchCheckpointIO):
    """Checkpoint files that are replaced only when the new one is on the disk."""

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None
    ) -> None:
        """Write to a temporary file beside ``path``, flush it to the disk, rename it.

        Raises:
            OSError: naming ``path``, if the disk is full; the old file is kept.
        """
        target = Path(path)
        with replace_file(target, target.with_name(f".{target.name}.new")) as handle:
            file = _File(handle)
            try:
                torch.save(checkpoint, cast("IO[bytes]", file))
            except RuntimeError as error:
                if file.error is None:
                    raise
                raise file.error from error

    def load_checkpoint(
        self,
        path: str | Path,
        map_location: Callable[..., Any] | None = None,
        weights_only: bool | None = None,
    ) -> dict[str, Any]:
        """Read a checkpoint onto the CPU; unpickle only tensors and plain values."""
        return read_checkpoint(Path(path))
