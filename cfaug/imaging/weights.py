"""Location and identity of a diffusion model's weights; no torch."""

from __future__ import annotations

import hashlib
from pathlib import Path

from cfaug.core import weights
from cfaug.core.errors import UserError

WANTED = ("*.json", "*.txt", "diffusion_pytorch_model*.safetensors", "model*.safetensors")


def resolve(name: str, revision: str | None, parts: tuple[str, ...]) -> Path:
    """Return the folder of a ``zoo:NAME``, a folder, or a Hub id (downloaded if necessary).

    Args:
        name: the name in the configuration.
        revision: the commit of a Hub id.
        parts: the required subfolders; empty for a folder of one model.

    Raises:
        UserError: if the folder or a part of it does not exist.
    """
    folder = weights.resolve(
        name, revision, [f"{part}/{pattern}" for part in parts for pattern in WANTED] or WANTED
    )
    missing = [part for part in parts or ("config.json",) if not (folder / part).exists()]
    if missing:
        raise UserError(
            f"image.model: {name} is not a Stable Diffusion folder: {folder} lacks "
            + ", ".join(missing)
        )
    return folder


def identity(what: str, folder: Path, parts: tuple[str, ...]) -> dict[str, str]:
    """Return the Hub's revision of a fetched folder, or the sha256 of a local one's files."""
    if folder.parent.name == "snapshots":  # the Hub's cache names a snapshot by its commit
        return {f"{what}_revision": folder.name}
    digest = hashlib.sha256()
    for path in sorted(p for part in parts or (".",) for p in (folder / part).rglob("*")):
        if path.suffix in (".safetensors", ".json", ".txt"):
            digest.update(f"{path.relative_to(folder).as_posix()}\0".encode())
            with path.open("rb") as handle:
                digest.update(hashlib.file_digest(handle, "sha256").digest())
    return {f"{what}_sha256": digest.hexdigest()}
