"""COCO-Counterfactuals as released: ``examples.jsonl`` and ``images.zip`` (or ``images/``).

A line has id, caption_0, caption_1, and image_0, image_1, which are stems of files in the zip
(``236308_0_img_0``: the COCO photo, its caption, the image). There are no seeds, scores or changed
words; the edit is the difference of the captions.
"""

from __future__ import annotations

import lzma
import re
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from cfaug.core.errors import UserError
from cfaug.core.files import require_regular, visible_files
from cfaug.core.pixels import IMAGES
from cfaug.core.types import CounterfactualSet, Member
from cfaug.data.sources.captioned_parquet import noun_edit
from cfaug.data.sources.lists import json_lines
from cfaug.data.sources.parquet import (
    MAX_BYTES,
    require_image,
    text_field,
)
from cfaug.data.sources.row import (
    Description,
    ErrorCollector,
    Reader,
    caption,
    clean_key,
    files_identity,
    known,
)

LIST, ZIP, UNPACKED = "examples.jsonl", "images.zip", "images"
COLUMNS = ("id", "caption_0", "caption_1", "image_0", "image_1")
DAMAGE = (
    zipfile.BadZipFile, zlib.error, lzma.LZMAError, OSError, EOFError, RuntimeError, ValueError,
    OverflowError, struct.error, KeyError,
)  # fmt: skip
"""Errors of a damaged zip; ``RuntimeError`` is for encryption and unsupported compression."""

PHOTO = re.compile(r"(\d+)_\d+(?:_img_\d+)?")


class CocoCounterfactuals(Reader):
    """The released list and zip, in the folder itself or in its ``data/``."""

    imported = True
    kind = "coco_counterfactuals"
    form = "COCO-Counterfactuals"
    description = "examples.jsonl and images.zip (COCO-Counterfactuals)"

    def recognises(self, path: Path) -> bool:
        """Return whether the list and its images exist."""
        return self._home(path) is not None

    def describe(self, path: Path) -> Description:
        """Return which fields of the list's lines are read."""
        lines = json_lines(known(self._home(path)) / LIST)
        return Description.of_columns(COLUMNS, (name for _, line in lines for name in line))

    def identity(self, path: Path) -> Any:
        """Return name, size and time of the list and of the zip or every image."""
        home = known(self._home(path))
        images = home / ZIP
        files = [images] if images.is_file() else visible_files((home / UNPACKED).iterdir())
        return files_identity([home / LIST, *files])

    def open(self, path: Path) -> Iterator[CounterfactualSet]:
        """Yield a set of two members for each line.

        The group is the COCO photo, so that no split separates a pair from its photo.
        """
        home, errors = known(self._home(path)), ErrorCollector()
        file = home / ZIP
        with _Zip(file) if file.is_file() else _Folder(home / UNPACKED) as images:
            lines: dict[str, tuple[str, list[str], list[str]]] = {}
            for where, record in json_lines(home / LIST):
                with errors.collect():
                    name = text_field(record, "id", where)
                    place = f"{where} (id {name})"
                    texts, files = [], []
                    for i in (0, 1):
                        texts.append(caption(record.get(f"caption_{i}"), place))
                        stem = text_field(record, f"image_{i}", place)
                        image = images.name(stem)
                        if image is None:
                            raise UserError(
                                f"{place}: unpaired, there is no image {stem!r} in {images.where}"
                            )
                        files.append(image)
                    if name in lines:
                        raise UserError(f"{place} was there before: {lines[name][0]}")
                    lines[name] = (place, texts, files)
            errors.report()
            for name, (where, texts, files) in lines.items():
                with errors.collect():
                    edit = noun_edit(texts, where, "line")
                    photo = PHOTO.fullmatch(PurePosixPath(files[0]).stem) or PHOTO.fullmatch(name)
                    yield CounterfactualSet(
                        key=clean_key(name),
                        group=photo.group(1) if photo else name,
                        members=(Member(texts[0], "0", name), Member(texts[1], "1", name, edit)),
                        images={str(i): images.read(files[i], where) for i in (0, 1)},
                        provenance={"source": self.kind},
                    )
        errors.report()

    def _home(self, path: Path) -> Path | None:
        for home in (path, path / "data"):
            if (home / LIST).is_file() and ((home / ZIP).is_file() or (home / UNPACKED).is_dir()):
                return home
        return None


class _Images:
    """The images by stem; a line can name only these, so that no name leads out of the folder."""

    def __init__(self, where: Path, names: dict[str, str]) -> None:
        self.where = where
        self._names = names

    def __enter__(self) -> _Images:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def name(self, stem: str) -> str | None:
        if stem not in self._names and stem.lower().endswith(IMAGES):
            stem = PurePosixPath(stem).stem
        return self._names.get(stem)

    def read(self, name: str, where: str) -> bytes:
        raise NotImplementedError


class _Folder(_Images):
    def __init__(self, folder: Path) -> None:
        files = visible_files(folder.iterdir())
        names = (file.name for file in files if file.name.lower().endswith(IMAGES))
        super().__init__(folder, {Path(name).stem: name for name in names})

    def read(self, name: str, where: str) -> bytes:
        file = self.where / name
        try:
            if file.stat().st_size > MAX_BYTES:
                raise UserError(f"{where}: {file} is larger than {MAX_BYTES} bytes; it is not read")
            return require_image(require_regular(file).read_bytes(), f"{where}: {file}")
        except OSError as error:
            raise UserError(f"{where}: {file} cannot be read: {error.strerror}") from error


class _Zip(_Images):
    def __init__(self, file: Path) -> None:
        try:
            self._zip = zipfile.ZipFile(file)
        except DAMAGE as error:
            raise UserError(f"{file} is not a readable zip ({error}); fetch it again") from error
        try:
            super().__init__(file, self._checked_names(file))
        except UserError:
            self._zip.close()
            raise

    def __exit__(self, *error: object) -> None:
        self._zip.close()

    def _checked_names(self, file: Path) -> dict[str, str]:
        names: dict[str, str] = {}
        for entry in self._zip.infolist():
            name, parts = entry.filename, entry.filename.replace("\\", "/").split("/")
            if name.startswith(("/", "\\")) or ".." in parts or ":" in parts[0]:
                raise UserError(f"{file}: member {name!r} leads out of the zip; it is not read")
            if stat.S_ISLNK(entry.external_attr >> 16):
                raise UserError(f"{file}: member {name!r} is a link; only plain files are read")
            if entry.is_dir() or not name.lower().endswith(IMAGES):
                continue  # it is never opened
            if entry.flag_bits & 1:
                raise UserError(f"{file}: member {name!r} is encrypted; unpack it yourself")
            if entry.file_size > MAX_BYTES:
                raise UserError(
                    f"{file}: member {name!r} claims {entry.file_size} bytes, more than an image "
                    f"may have ({MAX_BYTES}); it is not read"
                )
            stem = PurePosixPath(name).stem
            if stem in names:
                raise UserError(f"{file}: two members are called {stem!r}")
            names[stem] = name
        return names

    def read(self, name: str, where: str) -> bytes:
        try:
            with self._zip.open(name) as handle:
                data = handle.read(MAX_BYTES + 1)
        except DAMAGE as error:
            raise UserError(f"{where}: {name} in {self.where} cannot be read ({error})") from error
        return require_image(data, f"{where}: {name} in {self.where}")
