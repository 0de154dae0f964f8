"""Where an edit may change a picture: masks in a folder, PIE-Bench's, or an oracle's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, TypeGuard

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from cfaug.core.errors import UserError
from cfaug.core.pixels import decode_image
from cfaug.core.safety.safe_loading import read_json
from cfaug.core.weights import sha256

ORACLE = "oracle"
MAPPING, PHOTOS = "mapping_file.json", "annotation_images"
"""PIE-Bench's list of edits, and its folder of photos (Ju et al., 2024)."""
PIE_SIDE = 512
"""Height and width of PIE-Bench's photos and masks."""
WHITE = 128
"""The least value of a mask's pixels that may change; black pixels may not."""
MOST_STRETCHED = 1.02
"""The largest ratio of the proportions of a mask and its photo: a rounded side."""


@dataclass(frozen=True)
class EditTruth:
    """What an oracle knows of an edited picture.

    Attributes:
        mask: the pixels that the edit may change, bool (height, width).
        success: whether its judge sees the requested edit, 1 or 0; ``nan`` if nothing was.
        rest_kept: whether its judge sees everything else as in the photo, 1 or 0.
    """

    mask: NDArray[np.bool_]
    success: float
    rest_kept: float


class EditOracle(Protocol):
    """The truth about edits of photos of an embedded world."""

    def describe(self) -> str:
        """Return the name of its judge."""
        ...

    def check(
        self, record: Mapping[str, Any], texts: tuple[str, str], photo: Any, shown: Any
    ) -> EditTruth | None:
        """Return the truth about one edit; ``None`` if its captions are not of the world.

        Args:
            record: the extra values of the photo's row.
            texts: the caption of the photo, and the edited one.
            photo: uint8 (height, width, 3).
            shown: the edited picture, of the same shape.

        Raises:
            UserError: if the photo is not one of the world.
        """
        ...


@dataclass(frozen=True)
class MaskFolder:
    """Masks of edits in a folder, white where a picture may change.

    A mask is a picture named by the photo (its path below the folder of photos, without extension)
    or by the edit (its key in the shards). With ``mapping_file.json`` the folder is PIE-Bench's
    ``data``, and masks are those of the list.
    """

    folder: Path

    def __post_init__(self) -> None:
        if not self.folder.is_dir():
            raise UserError(
                f"benchmark.masks: there is no folder {self.folder}: name a folder of masks, white "
                f"where a picture may change, or PIE-Bench's data with {MAPPING}; photos of the "
                f"embedded world have benchmark.masks={ORACLE}"
            )
        if not self._files and not self._list.is_file():
            raise UserError(
                f"benchmark.masks={self.folder} holds no masks: neither pictures nor {MAPPING}"
            )

    @property
    def _list(self) -> Path:
        return self.folder / MAPPING

    @cached_property
    def _files(self) -> dict[str, Path]:
        """The files by their paths below the folder, without extension."""
        if self._list.is_file():
            return {}
        return {
            path.relative_to(self.folder).with_suffix("").as_posix(): path
            for path in sorted(self.folder.rglob("*"))
            if path.suffix.lower() in (".png", ".webp", ".bmp", ".tif", ".tiff")
        }

    @cached_property
    def _encoded(self) -> dict[str, list[int]]:
        """PIE-Bench's masks by the paths of the photos, without extension, and by their ids."""
        content = read_json(self._list) if self._list.is_file() else {}
        if not isinstance(content, dict):
            raise UserError(f"{self._list} is not PIE-Bench's: it should be an object of edits")
        masks: dict[str, list[int]] = {}
        for name, edit in content.items():
            about = edit if isinstance(edit, dict) else {}
            mask, path = about.get("mask"), about.get("image_path")
            if not isinstance(path, str) or not _is_run_lengths(mask):
                raise UserError(
                    f"{self._list}: {name} should have image_path and mask, a list of starts and "
                    f"lengths of runs in {PIE_SIDE} x {PIE_SIDE} pixels"
                )
            masks[str(name)] = masks[Path(path).with_suffix("").as_posix()] = mask
        return masks

    def hash(self) -> str:
        """Return a hash of the masks and their names."""
        files = [self._list] if self._list.is_file() else list(self._files.values())
        return " ".join([*self._files, sha256(files)])

    def find(self, photo: str, edit: str, shape: tuple[int, int]) -> NDArray[np.bool_]:
        """Return the mask of an edit, in the size of its pictures.

        Args:
            photo: the photo's name, its path without extension.
            edit: the edit's key in its shards.
            shape: height and width of the pictures.

        Raises:
            UserError: if there is no mask, or it has other proportions than the pictures.
        """
        names = [edit, photo, f"{PHOTOS}/{photo}", photo.rpartition("/")[2]]
        path = next((self._files[name] for name in names if name in self._files), None)
        mask = next((self._encoded[name] for name in names if name in self._encoded), None)
        if path is not None:
            white = np.asarray(decode_image(path.read_bytes(), str(path)).convert("L")) >= WHITE
        elif mask is not None:
            white = decode_runs(mask)
        else:
            raise UserError(
                f"benchmark.masks={self.folder} has no mask of {photo!r}: it should be called "
                f"{photo}.png, or {edit}.png for this edit alone"
            )
        stretched = (white.shape[0] / white.shape[1]) / (shape[0] / shape[1])
        if max(stretched, 1 / stretched) > MOST_STRETCHED:
            raise UserError(
                f"the mask of {photo!r} has {white.shape[1]} x {white.shape[0]} pixels and its "
                f"pictures {shape[1]} x {shape[0]}: their proportions differ, so crop the masks as "
                "the photos were"
            )
        resized = Image.fromarray(white).resize(shape[::-1], Image.Resampling.NEAREST)
        return np.asarray(resized, dtype=np.bool_)


def decode_runs(runs: list[int], side: int = PIE_SIDE) -> NDArray[np.bool_]:
    """Return a mask of PIE-Bench, bool (side, side).

    Its border always counts as edited, as in the benchmark's code, since annotators often left it
    out.

    >>> decode_runs([5, 2, 15, 9], side=5).astype(int).tolist()[1:4]
    [[1, 1, 0, 0, 1], [1, 0, 0, 0, 1], [1, 1, 1, 1, 1]]

    Args:
        runs: start and length of each run of pixels, row by row; the last may be too long.
    """
    flat = np.zeros(side * side, np.bool_)
    for start, length in zip(runs[::2], runs[1::2], strict=True):
        flat[start : start + length] = True
    mask = flat.reshape(side, side)
    mask[[0, -1]] = mask[:, [0, -1]] = True
    return mask


def _is_run_lengths(mask: object) -> TypeGuard[list[int]]:
    return (
        isinstance(mask, list)
        and len(mask) % 2 == 0
        and all(type(number) is int and number >= 0 for number in mask)
    )
