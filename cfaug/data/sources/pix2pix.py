"""Folders written by InstructPix2Pix's generator, or the code for sets based on it.

``0000123/`` holds ``prompt.json`` (caption or input, output or output_1, output_2, ...), images
``{seed}_0.jpg``, ``{seed}_1.jpg``, ... and ``metadata.jsonl`` with seed, p2p_threshold, cfg_scale
and the four CLIP similarities. ``seeds.json`` in the parent folder lists ``[folder, [seed, ...]]``;
without it, all folders are read. A pickle of images beside them is never opened.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from cfaug.core.errors import UserError
from cfaug.core.files import require_regular, visible_files
from cfaug.core.pixels import IMAGES
from cfaug.core.types import CounterfactualSet, Edit, Member
from cfaug.core.words import replaced_run
from cfaug.data.sources.folders import file_digest, images_below
from cfaug.data.sources.lists import json_file, json_lines
from cfaug.data.sources.parquet import require_image
from cfaug.data.sources.row import (
    ErrorCollector,
    Reader,
    Row,
    caption,
    clean_key,
    files_identity,
)

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
    """A folder of prompts and their kept candidates; each candidate is a set."""

    kind = "instruct_pix2pix"
    form = "InstructPix2Pix's folders"
    description = "NNNNNNN/prompt.json with SEED_0.jpg, SEED_1.jpg beside it (InstructPix2Pix)"

    def recognises(self, path: Path) -> bool:
        """Return whether there is a folder with a prompt, directly or in a ``shard-NN``."""
        return bool(_prompts(path))

    def files(self, path: Path) -> list[Path]:
        """Return every image."""
        return images_below(path)

    def identity(self, path: Path) -> Any:
        """Return name, size and time of every image and of the lists of images."""
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
        for folder, seeds in _folders(path):
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
                        found = (name for e in IMAGES if (name := f"{seed}_{i}{e}") in names)
                        if (file := next(found, None)) is None:
                            raise UserError(
                                f"{folder}: seed {seed} is unpaired, {seed}_{i}.jpg is missing"
                            )
                        files.append(folder / file)
                    yield prompt, seed, files


def _prompts(path: Path) -> list[Path]:
    found = (*path.glob(f"*/{PROMPT}"), *path.glob(f"shard-*/*/{PROMPT}"))
    return visible_files(file.parent for file in found)


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
    found = [record.get("caption") or record.get("input")]
    found += [record[k] for k in numbered] or [record.get("output")]
    texts = [caption(text, f"{where} (caption or input, output)") for text in found]
    group = next((str(record[g]) for g in GROUPS if record.get(g) is not None), texts[0])
    edit, metadata = record.get("edit"), folder / METADATA
    # The last line of a seed counts, because a rerun appends.
    lines = json_lines(metadata) if metadata.is_file() else ()
    seeds = {str(line.get("seed")): line for _, line in lines}
    return _Prompt(name, tuple(texts), group, edit if isinstance(edit, str) else None, seeds)
