"""Generated pairs as released: COCO-Counterfactuals, and the folders of InstructPix2Pix.

COCO-Counterfactuals is ``examples.jsonl`` and ``images.zip`` (or ``images/``). A line has id,
caption_0, caption_1, and image_0, image_1, which are stems of files in the zip
(``236308_0_img_0``: the COCO photo, its caption, the image). There are no seeds, scores or changed
words; the edit is the difference of the captions.
"""

from __future__ import annotations

import lzma
import os
import re
import stat
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from cfaug.core.errors import UserError
from cfaug.core.files import require_regular, visible_files
from cfaug.core.pixels import IMAGES
from cfaug.core.safety.json_text import json_file
from cfaug.core.types import CounterfactualSet, Edit, Member
from cfaug.data.captions import replaced_run
from cfaug.data.sources.captioned_parquet import noun_edit
from cfaug.data.sources.folders import file_digest, images_below
from cfaug.data.sources.lists import json_lines
from cfaug.data.sources.parquet import MAX_BYTES, require_image, text_field
from cfaug.data.sources.row import (
    Description,
    ErrorCollector,
    Reader,
    Row,
    caption,
    clean_key,
    files_identity,
    group_name,
    known,
    split_home,
)
from cfaug.data.sources.splits import SplitChoice, SplitSurvey, choose_split, may_be_split

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
        with _open_images(home) as (source, images, read):
            lines: dict[str, tuple[str, list[str], list[str]]] = {}
            for where, record in json_lines(home / LIST):
                with errors.collect():
                    name = text_field(record, "id", where)
                    position = f"{where} (id {name})"
                    texts, files = [], []
                    for i in (0, 1):
                        texts.append(caption(record.get(f"caption_{i}"), position))
                        stem = text_field(record, f"image_{i}", position)
                        is_file = stem not in images and stem.lower().endswith(IMAGES)
                        image = images.get(PurePosixPath(stem).stem if is_file else stem)
                        if image is None:
                            raise UserError(
                                f"{position}: unpaired, there is no image {stem!r} in {source}"
                            )
                        files.append(image)
                    if name in lines:
                        raise UserError(f"{position} was there before: {lines[name][0]}")
                    lines[name] = (position, texts, files)
            errors.report()
            for name, (where, texts, files) in lines.items():
                with errors.collect():
                    edit = noun_edit(texts, where, "line")
                    photo = PHOTO.fullmatch(PurePosixPath(files[0]).stem) or PHOTO.fullmatch(name)
                    yield CounterfactualSet(
                        key=clean_key(name),
                        group=photo.group(1) if photo else name,
                        members=(Member(texts[0], "0", name), Member(texts[1], "1", name, edit)),
                        images={str(i): read(files[i], where) for i in (0, 1)},
                        provenance={"source": self.kind},
                    )
        errors.report()

    def _home(self, path: Path) -> Path | None:
        for home in (path, path / "data"):
            if (home / LIST).is_file() and ((home / ZIP).is_file() or (home / UNPACKED).is_dir()):
                return home
        return None


@contextmanager
def _open_images(home: Path) -> Iterator[tuple[Path, dict[str, str], Callable[[str, str], bytes]]]:
    """Open the zip or folder of images: its path, names of images by stem, and a reader of one.

    A line can name only these images, so that no name leads out of the folder.
    """
    file, folder = home / ZIP, home / UNPACKED

    def read_file(name: str, where: str) -> bytes:
        image = folder / name
        try:
            if image.stat().st_size > MAX_BYTES:
                raise UserError(
                    f"{where}: {image} is larger than {MAX_BYTES} bytes; it is not read"
                )
            return require_image(require_regular(image).read_bytes(), f"{where}: {image}")
        except OSError as error:
            raise UserError(f"{where}: {image} cannot be read: {error.strerror}") from error

    if not file.is_file():
        files = visible_files(folder.iterdir())
        names = {path.stem: path.name for path in files if path.name.lower().endswith(IMAGES)}
        yield folder, names, read_file
        return

    def read_member(name: str, where: str) -> bytes:
        try:
            with archive.open(name) as handle:
                data = handle.read(MAX_BYTES + 1)
        except DAMAGE as error:
            raise UserError(f"{where}: {name} in {file} cannot be read ({error})") from error
        return require_image(data, f"{where}: {name} in {file}")

    try:
        archive = zipfile.ZipFile(file)
    except DAMAGE as error:
        raise UserError(f"{file} is not a readable zip ({error}); fetch it again") from error
    with archive:
        yield file, _checked_names(archive, file), read_member


def _checked_names(archive: zipfile.ZipFile, file: Path) -> dict[str, str]:
    names: dict[str, str] = {}
    for entry in archive.infolist():
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
                f"{file}: member {name!r} claims {entry.file_size} bytes, more than an image may "
                f"have ({MAX_BYTES}); it is not read"
            )
        stem = PurePosixPath(name).stem
        if stem in names:
            raise UserError(f"{file}: two members are called {stem!r}")
        names[stem] = name
    return names


# Folders written by InstructPix2Pix's generator, or the code for sets based on it.
#
# ``0000123/`` holds ``prompt.json`` (caption or input, output or output_1, output_2, ...), images
# ``{seed}_0.jpg``, ``{seed}_1.jpg``, ... and ``metadata.jsonl`` with seed, p2p_threshold, cfg_scale
# and the four CLIP similarities. ``seeds.json`` in the parent folder lists
# ``[folder, [seed, ...]]``; without it, all folders are read. A pickle of images beside them is
# never opened.

PROMPT, METADATA, SEEDS = "prompt.json", "metadata.jsonl", "seeds.json"
CLIP_NAMES = {
    "clip_sim_0": "sim_0",
    "clip_sim_1": "sim_1",
    "clip_sim_image": "sim_image",
    "clip_sim_dir": "sim_direction",
}
DRAWS = {"p2p_threshold": "p", "cfg_scale": "cfg"}
GROUPS = ("group", "image_id")
BASE = re.compile(r"(\d+)_0\.(?:jpg|jpeg|png|webp)", re.IGNORECASE)


@dataclass(frozen=True)
class _Prompt:
    """The texts of one folder, and the metadata of each seed."""

    name: str
    texts: tuple[str, ...]
    group: str
    instruction: str | None
    metadata: dict[str, dict[str, Any]]


class InstructPix2Pix(Reader):
    """A folder of prompts and their kept candidates; each candidate is a set.

    A key ``split`` of the prompts is one.
    """

    has_parts = True
    kind = "instruct_pix2pix"
    form = "InstructPix2Pix's folders"
    description = "NNNNNNN/prompt.json with SEED_0.jpg, SEED_1.jpg beside it (InstructPix2Pix)"

    def recognises(self, path: Path) -> bool:
        return bool(_prompts(split_home(path)[0]))

    def files(self, path: Path) -> list[Path]:
        return images_below(split_home(path)[0])

    def describe(self, path: Path) -> Description:
        return Description(notes=self._choose(path).notes)

    def identity(self, path: Path) -> Any:
        """Return name, size and time of every image and of the lists of images."""
        path = split_home(path)[0]
        images = images_below(path)
        folders = sorted({image.parent for image in images})
        texts = [path / SEEDS, *(f / name for f in folders for name in (PROMPT, METADATA))]
        return files_identity([*(text for text in texts if text.is_file()), *images])

    def open(self, path: Path) -> Iterator[Row]:
        """Yield the members of every set, in the order of the folders and seeds."""
        errors = ErrorCollector()
        for prompt, seed, files in self._candidates(path, errors):
            with errors.collect():
                key = clean_key(f"{prompt.name}-{seed}")
                for i, (text, file) in enumerate(zip(prompt.texts, files, strict=True)):
                    digest = file_digest(file)
                    yield Row(
                        set=key, member=i, group=prompt.group, text=text, label=None,
                        image_id=str(i), file=str(file), offset=0, length=file.stat().st_size,
                        digest=digest, where=str(file),
                    )  # fmt: skip
        errors.report()

    def sets(self, path: Path) -> Iterator[CounterfactualSet]:
        """Yield the sets with images, scores, seeds, p and cfg."""
        errors = ErrorCollector()
        for prompt, seed, files in self._candidates(path, errors):
            with errors.collect():
                known, texts = prompt.metadata.get(seed, {}), prompt.texts
                draw = {name: known[old] for old, name in DRAWS.items() if old in known}
                edits = [None, *(Edit("text", *replaced_run(texts[0], t)) for t in texts[1:])]
                images = {}
                for i, file in enumerate(files):
                    try:
                        data = require_regular(file).read_bytes()
                    except OSError as error:
                        raise UserError(f"{file} cannot be read: {error.strerror}") from error
                    images[str(i)] = require_image(data, str(file))
                provenance = {"source": self.kind}
                if prompt.instruction is not None:
                    provenance["instruction"] = prompt.instruction
                yield CounterfactualSet(
                    key=clean_key(f"{prompt.name}-{seed}"),
                    group=prompt.group,
                    members=tuple(
                        Member(text, str(i), prompt.name, edit, extra={"seed": seed, **draw})
                        for i, (text, edit) in enumerate(zip(texts, edits, strict=True))
                    ),
                    images=images,
                    scores={
                        name: float(known[old])
                        for old, name in CLIP_NAMES.items()
                        if isinstance(known.get(old), int | float)
                    },
                    provenance=provenance,
                )
        errors.report()

    def _candidates(
        self, path: Path, errors: ErrorCollector
    ) -> Iterator[tuple[_Prompt, str, list[Path]]]:
        """Yield every prompt with each seed, and the file of each member."""
        choice, path = self._choose(path), split_home(path)[0]
        for folder, seeds in _folders(path):
            if choice.chosen is not None and not choice.reads(_split_keys(folder)):
                continue
            prompt: _Prompt | None = None
            names = set(os.listdir(folder))
            if seeds is None:
                seeds = sorted((m[1] for name in names if (m := BASE.fullmatch(name))), key=int)
            if seeds:
                with errors.collect():
                    prompt = _prompt(folder, str(folder.relative_to(path)))
            for seed in seeds if prompt is not None else ():
                with errors.collect():
                    assert prompt is not None
                    files = []
                    for i in range(len(prompt.texts)):
                        matching = (name for e in IMAGES if (name := f"{seed}_{i}{e}") in names)
                        if (file := next(matching, None)) is None:
                            raise UserError(
                                f"{folder}: seed {seed} is unpaired, {seed}_{i}.jpg is missing"
                            )
                        files.append(folder / file)
                    yield prompt, seed, files

    def _choose(self, path: Path) -> SplitChoice:
        folders = (folder for folder, _ in _folders(split_home(path)[0]))
        return choose_split(path, SplitSurvey.of(map(_split_keys, folders)))


def _split_keys(folder: Path) -> dict[str, Any]:
    """Return the keys of a prompt that may say its split; broken ones are reported when read."""
    try:
        record = json_file(folder / PROMPT)
    except UserError:
        return {}
    fields = record.items() if isinstance(record, dict) else ()
    return {name: value for name, value in fields if may_be_split(name)}


def _prompts(path: Path) -> list[Path]:
    prompts = (*path.glob(f"*/{PROMPT}"), *path.glob(f"shard-*/*/{PROMPT}"))
    return visible_files(file.parent for file in prompts)


def _folders(path: Path) -> Iterator[tuple[Path, list[str] | None]]:
    """Yield (folder, seeds); seeds are ``None`` without a list."""
    listed = path / SEEDS
    if not listed.is_file():
        for folder in _prompts(path):
            yield folder, None
        return
    entries = json_file(listed)
    if not isinstance(entries, list):
        raise UserError(f"{listed} should be a list of [folder, [seed, ...]]")
    for number, entry in enumerate(entries):
        where = f"{listed}, entry {number}"
        match entry:
            case [str(name), list(seeds)] if all(isinstance(s, str | int) for s in seeds):
                parts = PurePosixPath(name).parts
                if not parts or PurePosixPath(name).is_absolute() or ".." in parts:
                    raise UserError(f"{where}: {name!r} leads out of {path}; it is not read")
                if not (path / name).is_dir():
                    raise UserError(f"{where}: there is no folder {name!r} in {path}")
                yield path / name, [str(seed) for seed in seeds]
            case _:
                raise UserError(f"{where} should be [folder, [seed, ...]], not {str(entry)[:80]}")


def _prompt(folder: Path, name: str) -> _Prompt:
    where = str(folder / PROMPT)
    record = json_file(folder / PROMPT)
    if not isinstance(record, dict):
        raise UserError(f"{where} should be a JSON object")
    numbered = sorted(
        (k for k in record if re.fullmatch(r"output_\d+", k)), key=lambda k: int(k.split("_")[1])
    )
    raw = [record.get("caption") or record.get("input")]
    raw += [record[k] for k in numbered] or [record.get("output")]
    texts = [caption(text, f"{where} (caption or input, output)") for text in raw]
    group = next((group_name(record[g]) for g in GROUPS if record.get(g) is not None), texts[0])
    edit, metadata = record.get("edit"), folder / METADATA
    # The last line of a seed counts, because a rerun appends.
    lines = json_lines(metadata) if metadata.is_file() else ()
    seeds = {str(line.get("seed")): line for _, line in lines}
    return _Prompt(name, tuple(texts), group, edit if isinstance(edit, str) else None, seeds)
