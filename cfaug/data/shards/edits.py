"""Edited captions on disk, committed by ``generate.py stage=captions`` shard by shard.

``captions/NNNNN.jsonl`` has a line for every caption, edited or not; ``captions/NNNNN.json`` is its
commit. A line joins several records, and leaves names out if an example has one text or one
proposal, so it is parsed by hand; the digest in the commit verifies it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cfaug.core.errors import UserError
from cfaug.core.files import require_regular
from cfaug.core.types import Edit, Edited, Example, Proposal, Rejected, SourceImage

FOLDER = "captions"
"""The subfolder of edited captions in a folder of shards."""

FindImage = Callable[[str], SourceImage | None]
"""A function that returns the source image of an example by its key, or ``None``."""


@dataclass(frozen=True)
class UnopenedImage:
    """The source image of an example, without access to its bytes: only its digest."""

    digest: str

    def read(self) -> bytes:
        """Raise a UserError: the source was not opened."""
        raise UserError("the image of an example cannot be read without its source: data.source")


def read_caption_commit(folder: Path, number: int) -> dict[str, Any] | None:
    """Return the commit of a shard's edits, ``None`` if it does not exist."""
    file = folder / FOLDER / f"{number:05d}.json"
    try:
        commit: dict[str, Any] = json.loads(require_regular(file).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{file} cannot be read: {error}; remove it to edit again") from error
    return commit


def require_commit(folder: Path, number: int) -> dict[str, Any]:
    """Return the commit of a shard's edits."""
    commit = read_caption_commit(folder, number)
    if commit is None:
        raise UserError(
            f"{folder / FOLDER} has no captions for shard {number:05d}: run stage=captions first, "
            "with the same part and parts, or stage=all"
        )
    return commit


def read_edits(
    folder: Path, number: int, find_image: FindImage | None = None
) -> list[tuple[Example, Edited]]:
    """Return a shard's examples with the editor's results.

    Args:
        find_image: a function that returns the source image of an example by its key; ``None``
            gives images with only a known digest.
    """
    file = folder / FOLDER / f"{number:05d}.jsonl"
    return [_read(line, find_image, file) for line in read_lines(folder, number)]


def read_lines(folder: Path, number: int) -> list[dict[str, Any]]:
    """Return the lines of a shard's edits, after verifying them."""
    commit = require_commit(folder, number)
    file = folder / FOLDER / f"{number:05d}.jsonl"
    try:
        content = require_regular(file).read_bytes()
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror}") from error
    if hashlib.sha256(content).hexdigest() != commit["sha256"]:
        raise UserError(
            f"{file} is not what {file.with_suffix('.json').name} committed: remove both and run "
            "stage=captions again"
        )
    # Not splitlines: a caption may contain U+2028.
    return [json.loads(line) for line in content.split(b"\n") if line]


def sets_of(line: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the proposals of a line."""
    return line["sets"] if "sets" in line else [one for one in [line["set"]] if one is not None]


def _read(line: dict[str, Any], find_image: FindImage | None, file: Path) -> tuple[Example, Edited]:
    texts = line["texts"] if "texts" in line else [line["text"]]
    image = _image(line, find_image, file)
    example = Example(
        line["key"], line["group"], tuple(texts), image, line.get("label"), line.get("extra", {})
    )
    proposals = tuple(_proposal(one, example) for one in sets_of(line))
    lost = tuple(
        Rejected(
            one["text"],
            Edit(one["kind"], one["before"], one["after"]),
            one["reason"],
            one["extra"],
        )
        for one in line.get("rejected", ())
    )
    return example, Edited(proposals, line["survivors"], lost)


def _image(line: dict[str, Any], find_image: FindImage | None, file: Path) -> SourceImage | None:
    if "image" not in line:
        return None
    if find_image is None:
        return UnopenedImage(line["image"])
    image = find_image(line["key"])
    if image is None or image.digest != line["image"]:
        what = "missing in the source" if image is None else "another than when it was edited"
        raise UserError(
            f"{file}: the image of example {line['key']!r} is {what}: name the source that was "
            "edited (data.source=FOLDER), or run stage=captions again with overwrite=true"
        )
    return image


def _proposal(found: dict[str, Any], example: Example) -> Proposal:
    edits = tuple(None if edit is None else Edit(**edit) for edit in found["edits"])
    texts, details = tuple(found["texts"]), tuple(found.get("details", ()))
    return Proposal(example, texts, edits, found["extra"], found["key"], details)


def read_proposals(
    folder: Path, number: int, find_image: FindImage | None = None
) -> list[Proposal]:
    """Return a shard's proposals, in the order of their examples; see ``read_edits``."""
    return [
        proposal
        for _, edited in read_edits(folder, number, find_image)
        for proposal in edited.proposals
    ]


def read_all_edits(folder: Path) -> Iterator[tuple[Example, Edited]]:
    """Yield the examples of every shard edited so far, with the editor's results."""
    for number in committed_captions(folder):
        yield from read_edits(folder, number)


def read_groups(folder: Path) -> dict[int, list[str]]:
    """Return the groups of the examples of every shard edited so far, by its number."""
    return {
        n: [example.group for example, _ in read_edits(folder, n)]
        for n in committed_captions(folder)
    }


def committed_captions(folder: Path) -> list[int]:
    """Return the numbers of the shards edited so far, in order."""
    return sorted(int(file.stem) for file in (folder / FOLDER).glob("[0-9]*.json"))
