"""The first stage: captions to minimal edits, a shard at a time.

``captions/NNNNN.jsonl`` has a line for every caption, edited or not, with how many candidates each
filter left; ``captions/NNNNN.json`` is its commit. ``captions/report.md`` sums up all of them.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from cfaug.data.storage.shards import disk_errors, write_json
from cfaug.errors import UserError
from cfaug.files import require_regular, write_file
from cfaug.generate.failures import Attempt, attempt
from cfaug.protocols import CaptionEditor, Edited
from cfaug.text.report import caption_report
from cfaug.types import Caption, CaptionSet, Edit

FOLDER = "captions"
KIND = "cfaug-captions"
REPORT = f"{FOLDER}/report.md"


def edit_captions(captions: Sequence[Caption], editor: CaptionEditor) -> Attempt[Edited]:
    """Edit a shard's captions in one call; what fails is found one by one."""
    return attempt(captions, editor.edit, lambda caption: caption.key)


def write_captions(
    captions: Sequence[Caption],
    found: Attempt[Edited],
    folder: Path,
    number: int,
    models: Mapping[str, str],
) -> None:
    """Write a shard's edits and commit them.

    Args:
        captions: all of the shard.
        found: what became of each; those without a result are listed in the commit.
        folder: of all shards.
        number: of this one.
        models: what edited.
    """
    edited = found.done
    lines = [_line(captions[place], edited[place]) for place in sorted(edited)]
    content = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines).encode()
    sets = [one.result for one in edited.values() if one.result is not None]
    rejected = Counter(one.rejected_by for one in edited.values() if one.rejected_by is not None)
    commit = {
        "kind": KIND,
        "captions": len(captions),
        "sets": len(sets),
        "members": sum(len(one.texts) for one in sets),
        "rejected": dict(rejected),
        "models": dict(models),
        "failed": [asdict(one) for one in found.lost.values()],
        "sha256": hashlib.sha256(content).hexdigest(),
    }
    stem = folder / FOLDER / f"{number:05d}"
    with disk_errors(stem.parent, f"captions of shard {number:05d}", len(content)):
        stem.parent.mkdir(exist_ok=True)
        stem.with_suffix(".json").unlink(missing_ok=True)
        write_file(stem.with_suffix(".jsonl"), content)
        write_json(stem.with_suffix(".json"), commit)


def _line(caption: Caption, edited: Edited) -> dict[str, Any]:
    found = edited.result
    return {
        "key": caption.key,
        "group": caption.group,
        "text": caption.text,
        "survivors": dict(edited.survivors),
        "set": None
        if found is None
        else {
            "key": found.key,
            "group": found.group,
            "texts": found.texts,
            "edits": [None if edit is None else asdict(edit) for edit in found.edits],
            "extra": dict(found.extra),
        },
    }


def caption_commit(folder: Path, number: int) -> dict[str, Any] | None:
    """Return the commit of a shard's edits, ``None`` if there is none."""
    file = folder / FOLDER / f"{number:05d}.json"
    try:
        commit: dict[str, Any] = json.loads(require_regular(file).read_text())
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{file} cannot be read: {error}; remove it to edit again") from error
    return commit


def made_edits(folder: Path, number: int) -> dict[str, Any]:
    """Return the commit of a shard's edits.

    Raises:
        UserError: if they were not made.
    """
    commit = caption_commit(folder, number)
    if commit is None:
        raise UserError(
            f"{folder / FOLDER} has no captions for shard {number:05d}: run stage=captions first, "
            "with the same part and parts, or stage=all"
        )
    return commit


def read_edits(folder: Path, number: int) -> list[tuple[Caption, Edited]]:
    """Return a shard's captions and what became of them.

    Raises:
        UserError: if they were not edited, or the file is not what was committed.
    """
    commit = made_edits(folder, number)
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
    # Not splitlines: U+2028 may stand within a caption.
    return [_read(json.loads(line)) for line in content.split(b"\n") if line]


def _read(line: dict[str, Any]) -> tuple[Caption, Edited]:
    found = line["set"]
    result = None
    if found is not None:
        edits = tuple(None if edit is None else Edit(**edit) for edit in found["edits"])
        result = CaptionSet(
            found["key"], found["group"], tuple(found["texts"]), edits, found["extra"]
        )
    caption = Caption(line["key"], line["group"], line["text"])
    return caption, Edited(result, line["survivors"])


def read_caption_sets(folder: Path, number: int) -> list[CaptionSet]:
    """Return a shard's edited sets, in the order of their captions."""
    return [edited.result for _, edited in read_edits(folder, number) if edited.result is not None]


def write_report(folder: Path, shards: int) -> None:
    """Write what the stage did, for people, once every shard's edits are there."""
    if any(caption_commit(folder, number) is None for number in range(shards)):
        return
    edited = [one for number in range(shards) for _, one in read_edits(folder, number)]
    write_file(folder / REPORT, caption_report(edited).encode())
