"""Crash-safe shards of sets and of edited captions: renamed when whole, then committed by a json.

``NNNNN.json`` is the commit of ``NNNNN.tar``: a tar without it does not exist. ``card.json``
summarises the commits in shard order and may be rewritten by any process at any time.
"""

from __future__ import annotations

import errno
import hashlib
import io
import itertools
import os
import re
import string
import tarfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cfaug.core.atomic_files import replace_file, sync, write_file, write_json
from cfaug.core.errors import UserError, name_some
from cfaug.core.files import require_regular
from cfaug.core.outputs import begin_output, is_begun
from cfaug.core.safety.json_text import load_json, parse_json
from cfaug.core.stores import size_of, with_copies
from cfaug.core.types import (
    CounterfactualSet,
    Edit,
    Edited,
    Example,
    Proposal,
    Rejected,
    SourceImage,
)
from cfaug.data.shards.codec import FORMAT, decode_set, encode_set, scan

CARD = "card.json"
CHOSEN = "chosen.json"
"""The file beside the card that names the sets to read; without it, all are read."""
KIND = "cfaug-shards"
UNREADABLE = ": {}; remove this file and run the command again that made it: it is made again"
"""What to do about a damaged commit, after its name."""
SHARD_FILE = re.compile(rf"\d{{5,}}\.(?:tar|json)|{CARD}")
"""Matches the names of the files that ``write_shards`` writes."""


def write_shards(
    sets: Iterable[CounterfactualSet],
    folder: Path,
    *,
    sets_per_shard: int = 1000,
    source: Path | None = None,
) -> dict[str, Any]:
    """Write sets to ``folder`` and return its card; the same sets give the same bytes.

    Args:
        source: the origin of the sets, for the error about equal keys; ``None`` is ``folder``.

    Raises:
        UserError: if a file of another would be replaced in the folder, or two sets
            have one key.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{folder} cannot be made a folder: {error.strerror}") from error
    # Files that are named as those of shards, and are not ours, are not replaced. The record of
    # outputs is begun before the first shard, so that a tar that a killed process left without its
    # commit is known to be ours.
    if not is_begun(folder, KIND):
        ours = {CARD} if _card(folder) else set()
        for tar, _ in list_committed(folder):
            ours |= {tar.name, f"{tar.stem}.json"}
        named = [name for name in os.listdir(folder) if SHARD_FILE.fullmatch(name)]
        foreign = sorted(n for n in named if n not in ours or (folder / n).is_symlink())
        if foreign:
            raise UserError(
                f"{folder} holds {name_some(foreign)}, which would be replaced by shards: write to "
                "an empty or a new folder"
            )
        begin_output(folder, KIND)
    before = {int(tar.stem): str(commit["sha256"]) for tar, commit in list_committed(folder)}
    keys: set[str] = set()
    stream = iter(sets)
    count = 0
    while batch := list(itertools.islice(stream, sets_per_shard)):
        for counterfactual in batch:
            if counterfactual.key in keys:
                raise UserError(
                    f"{source or folder}: the set key {counterfactual.key!r} is duplicated; "
                    "keys must be unique in a source; rename one or remove it"
                )
            keys.add(counterfactual.key)
        write_shard(batch, folder, count, replaced=before.get(count))
        count += 1
    left = [tar.name for tar, _ in list_committed(folder) if int(tar.stem) >= count]
    if left:
        raise UserError(
            f"{folder} also holds shards of something else written there before: "
            f"{name_some(left)}. Remove them, or write to an empty folder"
        )
    return write_card(folder)


def write_shard(
    sets: Sequence[CounterfactualSet],
    folder: Path,
    number: int,
    *,
    about: Mapping[str, Any] | None = None,
    beside: Mapping[str, bytes] | None = None,
    replaced: str | None = None,
) -> None:
    """Write shard ``number`` and commit it; the same arguments give the same bytes.

    Args:
        sets: the sets of the shard; may be empty.
        about: further fields of the commit, JSON.
        beside: further files of the shard by suffix, such as ``.parquet``, written before the
            commit, which has their hashes.
        replaced: the SHA-256 of the only tar that may be replaced; ``None`` for any.
    """
    files = [file for counterfactual in sets for file in encode_set(counterfactual)]
    stem = folder / f"{number:05d}"
    need = sum(len(content) + 2 * tarfile.BLOCKSIZE for _, content in files)
    with disk_errors(folder, f"shard {number:05d}", need):
        with replace_file(stem.with_suffix(".tar")) as handle:
            # GNU, because POSIX ustar limits names to 100 characters.
            with tarfile.open(fileobj=handle, mode="w", format=tarfile.GNU_FORMAT) as tar:
                for name, content in files:
                    entry = tarfile.TarInfo(name)  # mtime, uid, gid are 0
                    entry.size, entry.mode = len(content), 0o644
                    tar.addfile(entry, io.BytesIO(content))
            sync(handle)
            size = handle.tell()
            with Path(handle.name).open("rb") as written:  # as read back from the disk
                digest = hashlib.file_digest(written, "sha256").hexdigest()
            if replaced not in (None, digest):
                raise UserError(
                    f"{folder} holds other sets, in {stem.name}.tar, which would be replaced: "
                    "write to an empty or a new folder, or remove them"
                )
            # Removing the commit invalidates the old tar: a new tar never has an old commit.
            stem.with_suffix(".json").unlink(missing_ok=True)
            for suffix, content in (beside or {}).items():
                write_file(stem.with_suffix(suffix), content)
        commit = {
            **(about or {}),
            "kind": KIND,
            "format": FORMAT,
            "sets": len(sets),
            "members": sum(len(counterfactual.members) for counterfactual in sets),
            "bytes": size,
            "sha256": digest,
        }
        if beside:
            commit["beside"] = {
                suffix: hashlib.sha256(content).hexdigest() for suffix, content in beside.items()
            }
            commit["beside_bytes"] = {suffix: len(content) for suffix, content in beside.items()}
        write_json(stem.with_suffix(".json"), commit)


@contextmanager
def disk_errors(folder: Path, content: str, need: int) -> Iterator[None]:
    """Explain errors of the disk while ``content``, of ``need`` bytes, is written to ``folder``."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise UserError(
                f"no space left in {folder}: {content} needs {need:,} bytes. "
                "What was complete before it is kept; free some space and run the same command "
                "again"
            ) from error
        raise UserError(f"{folder}: {content} cannot be written: {error}") from error


def committed_shards(folder: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield (tar, commit) of every complete shard, in order."""
    for name in list_numbered(folder, ".json"):
        if (commit := _commit(folder / name)) is not None:
            yield (folder / name).with_suffix(".tar"), commit


def list_committed(folder: Path) -> list[tuple[Path, dict[str, Any]]]:
    """Return (tar, commit) of every complete shard, in order."""
    return list(committed_shards(folder))


def list_numbered(folder: Path, suffix: str) -> list[str]:
    """Return the names of a folder's files that begin with a digit, sorted.

    A glob would make a path of every file.
    """
    if not folder.is_dir():
        return []
    return sorted(n for n in os.listdir(folder) if n.endswith(suffix) and n[0] in string.digits)


def list_complete(folder: Path) -> list[tuple[Path, dict[str, Any]]]:
    """Return ``list_committed``, after checking that no shard lacks its commit."""
    committed = list_committed(folder)
    check_card(folder, {tar.name for tar, _ in committed})
    return committed


def check_card(folder: Path, there: Collection[str]) -> None:
    """Refuse a folder whose card counts other tars than those that are committed, by name."""
    lost = [name for name in _card(folder).get("shards", ()) if name not in there]
    if lost:
        commits = name_some(f"{name.removesuffix('.tar')}.json" for name in lost)
        raise UserError(
            f"{folder}: {CARD} counts {len(lost)} of its shards ({name_some(lost)}) that have "
            f"no commit: missing are {commits}. Run the command that made them again, or copy the "
            f"missing files; to read the other shards alone, remove {CARD}"
        )


def list_unfinished(folder: Path) -> list[str]:
    """Return a phrase for each missing part of a folder of shards, for a report."""
    there = {tar.name for tar, _ in list_committed(folder)}
    of = _card(folder).get("of")
    phrases = []
    if isinstance(of, int) and of > len(there):
        phrases.append(f"{of - len(there)} of {of} shards, which are not made yet")
    tars = sorted(tar.name for tar in folder.glob("[0-9]*.tar") if tar.name not in there)
    return phrases + [f"{tar}, which has no commit" for tar in tars]


def _load(file: Path, reason: str) -> Any:
    """Return the JSON in a file, ``None`` without one."""
    try:
        return load_json(require_regular(file).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise UserError(f"{file} cannot be read{reason.format(error)}") from error


def _card(folder: Path) -> dict[str, Any]:
    card = _load(folder / CARD, " ({}); remove it")
    ours = isinstance(card, dict) and card.get("kind") == KIND
    return card if ours and isinstance(card.get("shards"), dict) else {}


def read_commit(folder: Path, number: int) -> dict[str, Any] | None:
    """Return the commit of one shard, ``None`` if it does not exist."""
    return _commit(folder / f"{number:05d}.json")


def find_loss(folder: Path, number: int, commit: Mapping[str, Any]) -> str | None:
    """Say which file beside a committed tar, such as the log of its candidates, is not whole.

    Readers of the tar do not need these files, and a copied folder may lack them.
    """
    sizes: Mapping[str, int] = commit.get("beside_bytes", {})
    for suffix in commit.get("beside", ()):
        problem = _find_loss(folder / f"{number:05d}{suffix}", sizes.get(suffix))
        if problem is not None:
            return problem
    return None


def _find_loss(file: Path, committed: int | None) -> str | None:
    """Say what a file lost since its commit; a commit of earlier versions knows no size.

    Raises:
        UserError: if the file has more than was committed, which somebody may want to keep.
    """
    size = size_of(file)
    if size is None:
        return f"{file} is missing"
    if size == committed or (committed is None and size):
        return None
    expected = "" if committed is None else f", and its commit says {committed}"
    problem = f"{file} has {size} bytes{expected}"
    if committed is not None and size > committed:
        raise UserError(
            f"{problem}: it is not what {file.stem}.json committed. Put back what was there, or "
            "remove it and run the same command again, which makes it again"
        )
    return problem


def _commit(file: Path) -> dict[str, Any] | None:
    commit = _load(file, UNREADABLE)
    if not isinstance(commit, dict) or commit.get("kind") != KIND:
        return None
    if commit.get("format") != FORMAT:
        raise UserError(
            f"{file}: format {commit.get('format')!r} is not {FORMAT}, which this version reads"
        )
    require_fields(file, commit, ("sets", "members", "bytes", "sha256"))
    tar = file.with_suffix(".tar")
    size = size_of(tar)
    if size != commit["bytes"]:
        raise UserError(
            f"{tar} {'is missing' if size is None else f'has {size} bytes'}, its commit "
            f"{file.name} says {commit['bytes']} bytes: the shard is truncated or was "
            "replaced; remove both files and make it again"
        )
    return commit


def require_fields(file: Path, commit: object, names: Sequence[str]) -> None:
    """Refuse a commit that lacks some of its fields."""
    lacks = [name for name in names if not isinstance(commit, dict) or name not in commit]
    if lacks:
        raise UserError(f"{file} cannot be read{UNREADABLE.format(f'it lacks {name_some(lacks)}')}")


def write_card(folder: Path) -> dict[str, Any]:
    """Summarise the commits of ``folder`` in ``card.json``; equal commits give equal bytes."""
    card = summarise(committed_shards(folder))
    write_json(folder / CARD, card)
    return card


def summarise(shards: Iterable[tuple[Path, Mapping[str, Any]]]) -> dict[str, Any]:
    """Return the fields of a card for shards from ``committed_shards``, read once."""
    sets = members = 0
    digests = {}
    for tar, commit in shards:
        sets, members = sets + commit["sets"], members + commit["members"]
        digests[tar.name] = commit["sha256"]
    return {"kind": KIND, "format": FORMAT, "sets": sets, "members": members, "shards": digests}


def write_chosen(folder: Path, content: Mapping[str, Any]) -> None:
    """Write which sets of a folder are read as a source.

    Args:
        content: JSON; ``keys`` are the keys of the sets, the rest says how they were chosen.
    """
    write_json(folder / CHOSEN, content)


def read_chosen(folder: Path) -> frozenset[str] | None:
    """Return the keys of the sets to read; ``None`` for all."""
    content = _load(folder / CHOSEN, " ({}); remove it, or run the command that wrote it again")
    if content is None:
        return None
    keys = content.get("keys") if isinstance(content, dict) else None
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        raise UserError(
            f"{folder / CHOSEN} does not list the keys of sets: remove it, or run the command that "
            "wrote it again"
        )
    return frozenset(keys)


def read_sets(folder: Path) -> Iterator[CounterfactualSet]:
    """Yield the sets of every complete shard that are to be read, in order."""
    commits, chosen = dict(list_complete(folder)), read_chosen(folder)
    for tar_file in with_copies(list(commits)):
        commit, count = commits[tar_file], 0
        try:
            with tarfile.open(require_regular(tar_file), "r:") as tar:
                for counterfactual in _sets_of(tar, tar_file):
                    count += 1
                    if chosen is None or counterfactual.key in chosen:
                        yield counterfactual
        except (tarfile.TarError, OSError) as error:
            raise UserError(f"{tar_file} cannot be read: {error}") from error
        if count != commit["sets"]:  # tarfile reads a damaged header as the end
            raise UserError(f"{tar_file} is damaged: {count} of {commit['sets']} sets can be read")


def read_scores(folder: Path) -> dict[str, dict[str, float]]:
    """Return the scores of the sets of every complete shard, by their keys; no image is read."""
    by_key: dict[str, dict[str, float]] = {}
    for tar_file in with_copies([tar for tar, _ in list_complete(folder)]):
        with require_regular(tar_file).open("rb") as handle:
            for key, parts in scan(tar_file):
                if ".json" not in parts:
                    continue
                offset, length = parts[".json"]
                where = f"{tar_file}: {key}"
                try:
                    about = load_json(os.pread(handle.fileno(), length, offset))
                    if about["member"]:
                        continue  # the first member of a set has its scores
                    scores = {str(name): value for name, value in about["scores"].items()}
                    by_key[str(about["set"])] = scores
                except (KeyError, TypeError, ValueError, AttributeError) as error:
                    raise UserError(
                        f"{where}: the member's json cannot be used ({error!r})"
                    ) from error
                for name, value in scores.items():
                    if isinstance(value, bool) or not isinstance(value, int | float):
                        raise UserError(
                            f"{where}: the score {name!r} is {value!r:.40}, not a number"
                        )
    return by_key


def _sets_of(tar: tarfile.TarFile, tar_file: Path) -> Iterator[CounterfactualSet]:
    samples: list[dict[str, bytes]] = []
    for key, entries in itertools.groupby(tar, lambda entry: entry.name.rpartition(".")[0]):
        sample, where = {}, f"{tar_file}: {key}"
        for entry in entries:
            content = tar.extractfile(entry)
            if content is None:
                raise UserError(f"{tar_file}: {entry.name} is not a plain file")
            sample[entry.name.rpartition(".")[2]] = content.read()
        samples.append(sample)
        try:
            members = load_json(sample["json"])["of"]
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(f"{where}: the member's json cannot be used ({error!r})") from error
        if members == len(samples):
            yield decode_set(samples, where)
            samples = []
    if samples:
        raise UserError(f"{tar_file}: its last set is incomplete")


# Edited captions on disk, committed by ``generate.py stage=captions`` shard by shard.
#
# ``captions/NNNNN.jsonl`` has a line for every caption, edited or not; ``captions/NNNNN.json`` is
# its commit. A line joins several records, and leaves names out if an example has one text or one
# proposal, so it is parsed by hand; the digest in the commit verifies it.

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
    commit: dict[str, Any] | None = _load(file, UNREADABLE)
    if commit is not None:
        needed = ("captions", "sets", "members", "rejected", "models", "failed", "sha256")
        require_fields(file, commit, needed)
    return commit


def find_caption_loss(folder: Path, number: int, commit: Mapping[str, Any]) -> str | None:
    """Say what the file of a shard's edits lost since its commit."""
    return _find_loss(folder / FOLDER / f"{number:05d}.jsonl", commit.get("bytes"))


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
    edits: list[tuple[Example, Edited]] = []
    for line in read_lines(folder, number):
        image: SourceImage | None = None
        if "image" in line and find_image is None:
            image = UnopenedImage(line["image"])
        elif "image" in line and find_image is not None:
            image = find_image(line["key"])
            if image is None or image.digest != line["image"]:
                problem = (
                    "missing in the source" if image is None else "another than when it was edited"
                )
                raise UserError(
                    f"{file}: the image of example {line['key']!r} is {problem}: name the source "
                    "that was edited (data.source=FOLDER), or run stage=captions again with "
                    "overwrite=true"
                )
        texts = tuple(line["texts"] if "texts" in line else [line["text"]])
        example = Example(
            line["key"], line["group"], texts, image, line.get("label"), line.get("extra", {})
        )
        proposals = (
            Proposal(
                example,
                tuple(proposal["texts"]),
                tuple(None if edit is None else Edit(**edit) for edit in proposal["edits"]),
                proposal["extra"],
                proposal["key"],
                tuple(proposal.get("details", ())),
            )
            for proposal in sets_of(line)
        )
        lost = (
            Rejected(
                rejected["text"],
                Edit(rejected["kind"], rejected["before"], rejected["after"]),
                rejected["reason"],
                rejected["extra"],
            )
            for rejected in line.get("rejected", ())
        )
        edits.append((example, Edited(tuple(proposals), line["survivors"], tuple(lost))))
    return edits


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
    return [
        parse_json(line, f"{file}, line {number}")
        for number, line in enumerate(content.split(b"\n"), 1)
        if line
    ]


def sets_of(line: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the proposals of a line."""
    return (
        line["sets"]
        if "sets" in line
        else [proposal for proposal in [line["set"]] if proposal is not None]
    )


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


def read_groups(folder: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield every shard edited so far: its number, and the groups of its examples."""
    for number in committed_captions(folder):
        yield number, [line["group"] for line in read_lines(folder, number)]


def committed_captions(folder: Path) -> list[int]:
    """Return the numbers of the shards edited so far, in order."""
    return sorted(int(Path(name).stem) for name in list_numbered(folder / FOLDER, ".json"))
