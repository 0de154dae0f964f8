"""Where the weights of a diffusion model lie, and what they are, without torch."""

from __future__ import annotations

import hashlib
from importlib.resources import files
from pathlib import Path

from cfaug.errors import UserError

ZOO = "zoo:"
WANTED = ("*.json", "*.txt", "diffusion_pytorch_model*.safetensors", "model*.safetensors")
UNWANTED = ("*.fp16.safetensors", "*.non_ema.safetensors", "*.fp16-*.safetensors")
"""Copies of the same weights that lie beside them."""


def resolve(name: str, revision: str | None, parts: tuple[str, ...]) -> Path:
    """Return the folder of a ``zoo:NAME``, a folder, or a Hub id (fetched if need be).

    Args:
        name: as the configuration gives it.
        revision: commit of a Hub id.
        parts: sub-folders that are needed; none for a folder that is one model.

    Raises:
        UserError: if there is none, with what to do about it.
    """
    folder = Path(name).expanduser()
    if name.startswith(ZOO):
        folder = Path(str(files("cfaug"))) / "zoo" / "weights" / name.removeprefix(ZOO)
    elif not folder.is_dir() and not name.startswith(("/", ".", "~")) and name.count("/") == 1:
        return _fetch(name, revision, parts)
    missing = [part for part in parts or ("config.json",) if not (folder / part).exists()]
    if missing:
        raise UserError(
            f"image.model: {name} is no Stable Diffusion folder: {folder} "
            + (f"lacks {', '.join(missing)}" if folder.is_dir() else "does not exist")
        )
    return folder


def _fetch(name: str, revision: str | None, parts: tuple[str, ...]) -> Path:
    from huggingface_hub import snapshot_download

    wanted = [f"{part}/{pattern}" for part in parts for pattern in WANTED] or list(WANTED)
    try:
        return Path(
            snapshot_download(
                name, revision=revision, allow_patterns=wanted, ignore_patterns=list(UNWANTED)
            )
        )
    except Exception as error:  # the Hub client raises a dozen unrelated types
        reason = (str(error) or type(error).__name__).strip().splitlines()[0]
        raise UserError(
            f"image.model: there is no folder {name}, and the Hub did not give it ({reason}). "
            f"Where there is a network: hf download {name} --local-dir FOLDER; "
            "then image.model.weights=FOLDER"
        ) from error


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
