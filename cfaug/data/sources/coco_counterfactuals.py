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
from cfaug.core.types import CounterfactualSet, Edit, Member
from cfaug.core.words import replaced_run
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
        home = self._home(path)
        assert home is not None
        return Description.of_columns(COLUMNS, (n for _, r in json_lines(home / LIST) for n in r))

    def identity(self, path: Path) -> Any:
        """Return name, size and time of the list and of the zip or every image."""
        home = self._home(path)
        assert home is not None
        images = home / ZIP
        files = [images] if images.is_file() else visible_files((home / UNPACKED).iterdir())
        return files_identity([home / LIST, *files])

    def open(self, path: Path) -> Iterator[CounterfactualSet]:
        """Yield a set of two members for each line.

        The group is the COCO photo, so that no split separates a pair from its photo.
        """
        home = self._home(path)
        assert home is not None
        errors = ErrorCollector()
        with _images(home) as images:
            lines: dict[str, tuple[str, dict[str, str]]] = {}
            for where, record in json_lines(home / LIST):
                with errors.collect():
                    place, line = _line(record, where, images)
                    if line["id"] in lines:
                        raise UserError(f"{place} was there before: {lines[line['id']][0]}")
                    lines[line["id"]] = (place, line)
            errors.report()
            for where, line in lines.values():
                with errors.collect():
                    yield _pair(line, where, images)
        errors.report()

    def _home(self, path: Path) -> Path | None:
        for home in (path, path / "data"):
            if (home / LIST).is_file() and ((home / ZIP).is_file() or (home / UNPACKED).is_dir()):
                return home
        return None


def _line(record: dict[str, Any], where: str, images: _Images) -> tuple[str, dict[str, str]]:
    line = {"id": text_field(record, "id", where)}
    where = f"{where} (id {line['id']})"
    for i in (0, 1):
        line[f"caption_{i}"] = caption(record.get(f"caption_{i}"), where)
        stem = text_field(record, f"image_{i}", where)
        name = images.name(stem)
        if name is None:
            raise UserError(f"{where}: unpaired, there is no image {stem!r} in {images.where}")
        line[f"image_{i}"] = name
    return where, line


def _pair(line: dict[str, str], where: str, images: _Images) -> CounterfactualSet:
    before, after = replaced_run(line["caption_0"], line["caption_1"])
    if not before and not after:
        raise UserError(f"{where}: both captions are the same; remove the line")
    photo = PHOTO.fullmatch(PurePosixPath(line["image_0"]).stem) or PHOTO.fullmatch(line["id"])
    edits = (None, Edit("noun", before, after))
    return CounterfactualSet(
        key=clean_key(line["id"]),
        group=photo.group(1) if photo else line["id"],
        members=tuple(
            Member(line[f"caption_{i}"], str(i), line["id"], edit) for i, edit in enumerate(edits)
        ),
        images={str(i): images.read(line[f"image_{i}"], where) for i in (0, 1)},
        provenance={"source": CocoCounterfactuals.kind},
    )


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
        """Return the name of the image with this stem (or file name)."""
        if stem not in self._names and stem.lower().endswith(IMAGES):
            stem = PurePosixPath(stem).stem
        return self._names.get(stem)

    def read(self, name: str, where: str) -> bytes:
        """Return an image's bytes, checked."""
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


def _images(home: Path) -> _Images:
    file = home / ZIP
    return _Zip(file) if file.is_file() else _Folder(home / UNPACKED)
