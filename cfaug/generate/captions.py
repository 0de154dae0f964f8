"""The first stage: captions to minimal edits, a shard at a time.

``captions/NNNNN.jsonl`` has a line for every caption, edited or not, with how many candidates each
filter left, and, where the editor keeps them, the edits that were rejected and why;
``captions/NNNNN.json`` is its commit. ``captions/report.md`` sums up all of them.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cfaug.data.storage.shards import disk_errors
from cfaug.errors import UserError
from cfaug.files import require_regular, write_file, write_json
from cfaug.generate.failures import Attempt
from cfaug.text.report import caption_report
from cfaug.types import Edit, Edited, Example, Proposal, Rejected, SourceImage

FOLDER = "captions"
KIND = "cfaug-captions"
REPORT = f"{FOLDER}/report.md"

FindImage = Callable[[str], SourceImage | None]
"""Returns the source image of an example by its key, ``None`` if there is none."""


@dataclass(frozen=True)
class UnopenedImage:
    """The source image of an example of which only texts are wanted: its digest."""

    digest: str

    def read(self) -> bytes:
        """Raise a UserError: the source was not opened."""
        raise UserError("the image of an example cannot be read without its source: data.source")


def check_keys(proposals: Iterable[Proposal]) -> None:
    """Refuse proposals with equal keys: they would be one set on disk.

    Raises:
        UserError: naming the key and the examples.
    """
    _refuse_duplicated((one.key, one.example.key) for one in proposals)


def _refuse_duplicated(keys: Iterable[tuple[str, str]]) -> None:
    """Refuse equal keys among (proposal's key, example's key)."""
    first: dict[str, str] = {}
    for key, example in keys:
        if key in first:
            raise UserError(
                f"recipe.editor: the proposal key {key!r} is duplicated: examples "
                f"{first[key]!r} and {example!r} have it; leave the key of a proposal "
                "empty, or begin it with the example's"
            )
        first[key] = example


def check_all_keys(folder: Path) -> None:
    """Refuse proposals with equal keys in any two shards, whichever part edited them.

    Parts are edited at once: the one that looks last sees every shard, so that what is skipped here
    because another process is just writing it is held against this part's shards there.

    Args:
        folder: of all shards.

    Raises:
        UserError: naming the key and the examples, and what to remove.
    """

    def keys() -> Iterator[tuple[str, str]]:
        for number in _committed(folder):
            with suppress(UserError):
                lines = _read_lines(folder, number)
                yield from ((one["key"], line["key"]) for line in lines for one in _sets(line))

    try:
        _refuse_duplicated(keys())
    except UserError as error:
        raise UserError(
            f"{error}; then remove {folder / FOLDER} and run the same command again"
        ) from error


def write_captions(
    examples: Sequence[Example],
    found: Attempt[Edited],
    folder: Path,
    number: int,
    models: Mapping[str, str],
) -> None:
    """Write a shard's edits and commit them.

    Args:
        examples: all of the shard.
        found: what the editor made of each; those without a result are listed in the commit.
        folder: of all shards.
        number: of this one.
        models: what edited.

    Raises:
        UserError: if two proposals have the same key, or the disk is full.
    """
    edited = found.done
    lines = [_line(examples[place], edited[place]) for place in sorted(edited)]
    content = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines).encode()
    proposals = [proposal for one in edited.values() for proposal in one.proposals]
    check_keys(proposals)
    rejected = Counter(one.rejected_by for one in edited.values() if one.rejected_by is not None)
    commit = {
        "kind": KIND,
        "captions": len(examples),
        "sets": len(proposals),
        "members": sum(len(one.texts) for one in proposals),
        "rejected": dict(rejected),
        "models": dict(models),
        "failed": [asdict(one) for one in found.lost.values()],
        "sha256": hashlib.sha256(content).hexdigest(),
    }
    kinds = count_rejected_edits(edited.values())
    if kinds:
        commit["rejected_edits"] = kinds
    stem = folder / FOLDER / f"{number:05d}"
    with disk_errors(stem.parent, f"captions of shard {number:05d}", len(content)):
        stem.parent.mkdir(exist_ok=True)
        stem.with_suffix(".json").unlink(missing_ok=True)
        write_file(stem.with_suffix(".jsonl"), content)
        write_json(stem.with_suffix(".json"), commit)


def count_rejected_edits(edited: Iterable[Edited]) -> dict[str, dict[str, int]]:
    """Return how many edits were rejected, by reason and then by kind."""
    found: dict[str, Counter[str]] = {}
    for one in edited:
        for lost in one.rejected:
            found.setdefault(lost.reason, Counter())[lost.edit.kind] += 1
    return {reason: dict(kinds) for reason, kinds in found.items()}


def _line(example: Example, edited: Edited) -> dict[str, Any]:
    """Return a line: what an example has beside one text, and a second proposal, only if there."""
    line: dict[str, Any] = {"key": example.key, "group": example.group}
    line |= {"text": example.text} if len(example.texts) == 1 else {"texts": example.texts}
    if example.image is not None:
        line["image"] = example.image.digest
    if example.label is not None:
        line["label"] = example.label
    if example.extra:
        line["extra"] = dict(example.extra)
    line["survivors"] = dict(edited.survivors)
    if edited.rejected:
        line["rejected"] = [{**asdict(one.edit), **_rejected(one)} for one in edited.rejected]
    proposals = [_describe(one) for one in edited.proposals]
    if len(proposals) > 1:
        return {**line, "sets": proposals}
    return {**line, "set": proposals[0] if proposals else None}


def _rejected(lost: Rejected) -> dict[str, Any]:
    return {"text": lost.text, "reason": lost.reason, "extra": dict(lost.extra)}


def _describe(proposal: Proposal) -> dict[str, Any]:
    details = [dict(one) for one in proposal.details]
    return {
        "key": proposal.key,
        "group": proposal.group,
        "texts": proposal.texts,
        "edits": [None if edit is None else asdict(edit) for edit in proposal.edits],
        "extra": dict(proposal.extra),
        **({"details": details} if details else {}),
    }


def read_caption_commit(folder: Path, number: int) -> dict[str, Any] | None:
    """Return the commit of a shard's edits, ``None`` if there is none."""
    file = folder / FOLDER / f"{number:05d}.json"
    try:
        commit: dict[str, Any] = json.loads(require_regular(file).read_text())
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{file} cannot be read: {error}; remove it to edit again") from error
    return commit


def require_commit(folder: Path, number: int) -> dict[str, Any]:
    """Return the commit of a shard's edits.

    Raises:
        UserError: if they were not made.
    """
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
    """Return a shard's examples and what the editor made of them.

    Args:
        folder: of all shards.
        number: of this one.
        find_image: returns the source image of an example by its key; ``None`` gives handles that
            know their digest only.

    Raises:
        UserError: if they were not edited, the file is not what was committed, or the image of an
            example is missing or another than when it was edited.
    """
    file = folder / FOLDER / f"{number:05d}.jsonl"
    return [_read(line, find_image, file) for line in _read_lines(folder, number)]


def _read_lines(folder: Path, number: int) -> list[dict[str, Any]]:
    """Return the lines of a shard, if they are what was committed."""
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
    # Not splitlines: U+2028 may stand within a caption.
    return [json.loads(line) for line in content.split(b"\n") if line]


def _sets(line: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the proposals of a line."""
    return line["sets"] if "sets" in line else [one for one in [line["set"]] if one is not None]


def _read(line: dict[str, Any], find_image: FindImage | None, file: Path) -> tuple[Example, Edited]:
    texts = line["texts"] if "texts" in line else [line["text"]]
    image = _image(line, find_image, file)
    example = Example(
        line["key"], line["group"], tuple(texts), image, line.get("label"), line.get("extra", {})
    )
    proposals = tuple(_proposal(one, example) for one in _sets(line))
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
    """Return a shard's proposals, in the order of their examples; arguments as ``read_edits``."""
    return [
        proposal
        for _, edited in read_edits(folder, number, find_image)
        for proposal in edited.proposals
    ]


def read_all_edits(folder: Path) -> Iterator[tuple[Example, Edited]]:
    """Yield the examples of every shard that was edited so far, and what was made of them.

    Raises:
        UserError: as ``read_edits``.
    """
    for number in _committed(folder):
        yield from read_edits(folder, number)


def read_groups(folder: Path) -> dict[int, list[str]]:
    """Return the groups of the examples of every shard that was edited so far, by its number."""
    return {n: [example.group for example, _ in read_edits(folder, n)] for n in _committed(folder)}


def _committed(folder: Path) -> list[int]:
    """Return the numbers of the shards that were edited so far, in order."""
    return sorted(int(file.stem) for file in (folder / FOLDER).glob("[0-9]*.json"))


def write_report(folder: Path, shards: int) -> None:
    """Write what the stage did, for people, once every shard's edits are there."""
    if any(read_caption_commit(folder, number) is None for number in range(shards)):
        return
    edited = [one for number in range(shards) for _, one in read_edits(folder, number)]
    write_file(folder / REPORT, caption_report(edited).encode())
