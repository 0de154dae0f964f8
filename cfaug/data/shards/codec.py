"""Conversion of a counterfactual set to the files of a WebDataset shard, and back.

Every member is a complete sample, ``<set>_<i>.png .txt .json``, so that open_clip, webdataset,
Hugging Face datasets and plain tar can read a shard. A shared image is repeated; members that share
it have the same ``image_name`` in the json, and reading checks that their images are equal.

Written and read by hand, not by pydantic (``json_records``): its writer has other separators,
so shards would have other bytes, and refuses the read-only mappings of a ``Member``; its reader
takes as long (13 and 12 microseconds for a pair) and keeps none of the checks between members.
"""

from __future__ import annotations

import json
import tarfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from cfaug.core.errors import UserError
from cfaug.core.files import HIDDEN, require_regular
from cfaug.core.safety.json_text import load_json
from cfaug.core.types import CounterfactualSet, Edit, Member

FORMAT = 1
MAGIC = ((0, b"\x89PNG\r\n\x1a\n", "png"), (0, b"\xff\xd8\xff", "jpg"), (8, b"WEBP", "webp"))
IMAGE_EXTENSIONS = ("png", "jpg", "jpeg", "webp")


def image_extension(data: bytes, name: str) -> str:
    """Return the extension that fits the first bytes of an encoded image.

    >>> image_extension(bytes([255, 216, 255, 224]), "a")
    'jpg'
    """
    for at, magic, extension in MAGIC:
        if data[at : at + len(magic)] == magic:
            return extension
    raise UserError(f"{name}: not a PNG, JPEG or WebP image")


def encode_set(counterfactual: CounterfactualSet) -> list[tuple[str, bytes]]:
    """Return (file name, content) in the order of a shard."""
    files: list[tuple[str, bytes]] = []
    for i, member in enumerate(counterfactual.members):
        key = f"{counterfactual.key}_{i}"
        image = counterfactual.images[member.image_name]
        about: dict[str, Any] = {
            "set": counterfactual.key,
            "member": i,
            "of": len(counterfactual.members),
            "group": counterfactual.group,
            **describe_member(member),
        }
        if i == 0:
            about |= {
                "scores": dict(counterfactual.scores),
                "provenance": dict(counterfactual.provenance),
            }
        files += [
            (f"{key}.{image_extension(image, key)}", image),
            (f"{key}.txt", member.text.encode()),
            (f"{key}.json", json.dumps(about, ensure_ascii=False).encode()),
        ]
    return files


def describe_member(member: Member) -> dict[str, Any]:
    """Return everything about a member except its caption and image, as JSON."""
    return {
        "image_name": member.image_name,
        "source_id": member.source_id,
        "edit": None if member.edit is None else asdict(member.edit),
        "label": member.label,
        "extra": dict(member.extra),
    }


def build_set(
    key: str,
    group: str,
    members: Iterable[tuple[str, bytes, Mapping[str, Any]]],
    *,
    scores: Mapping[str, float],
    provenance: Mapping[str, Any],
) -> CounterfactualSet:
    """Make a set from the content of its members' files.

    Args:
        members: (caption, encoded image, result of ``describe_member``) of each member, in order.
        provenance: the origin of the set, JSON.
    """
    images: dict[str, bytes] = {}
    built = []
    for text, image, about in members:
        if images.setdefault(about["image_name"], image) != image:
            raise UserError(f"image {about['image_name']!r} differs between members")
        built.append(
            Member(
                text=text,
                image_name=about["image_name"],
                source_id=about["source_id"],
                edit=None if about["edit"] is None else Edit(**about["edit"]),
                label=about["label"],
                extra=about["extra"],
            )
        )
    return CounterfactualSet(key, group, tuple(built), images, scores, provenance)


def decode_set(samples: Sequence[Mapping[str, bytes]], where: str) -> CounterfactualSet:
    """Make a set from its members' files, ``{extension: content}`` each, in order."""
    try:
        about = [load_json(sample["json"]) for sample in samples]
        first = about[0]
        if first.get("of") != len(samples):
            raise UserError(f"{len(samples)} of {first.get('of')} members are there")
        members = []
        for i, (sample, record) in enumerate(zip(samples, about, strict=True)):
            if (record["set"], record["member"]) != (first["set"], i):
                raise UserError(
                    f"member {record['member']} of set {record['set']!r} is out of place"
                )
            extension = next((e for e in IMAGE_EXTENSIONS if e in sample), None)
            if extension is None or "txt" not in sample:
                raise UserError(f"member {i} lacks its image or its caption")
            members.append((sample["txt"].decode(), sample[extension], record))
        return build_set(
            first["set"], first["group"], members, scores=first["scores"],
            provenance=first["provenance"],
        )  # fmt: skip
    except UserError as error:
        raise UserError(f"{where}: {error}") from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserError(f"{where}: the member's json or text cannot be used ({error!r})") from error


# The members of a tar shard and their offsets, from its headers; nothing is extracted.
#
# webdataset reads samples in their order only, keeps a member that leads out of the shard, and
# unpickles ``.pyd`` and ``.pkl`` when it decodes. It takes 1 s to import and 1.5 times as long to
# list a shard, and its writer by default stores the time in every member, so that the same sets
# give other bytes.

PICKLES = (".pkl", ".pickle", ".pyd", ".pth", ".pt", ".ckpt", ".joblib", ".bin")
"""Extensions of members that a WebDataset reader might unpickle."""
Sample = dict[str, tuple[int, int]]
"""{extension: (offset, length)} of the members that share a key."""


def scan(tar_file: Path, hidden: Counter[str] | None = None) -> Iterator[tuple[str, Sample]]:
    """Yield (key, sample) for each run of members with one key.

    Args:
        hidden: counts the members that are left out because a part of their name is hidden, by that
            part; ``None`` does not count them.
    """
    key, sample = None, Sample()
    try:
        with tarfile.open(require_regular(tar_file), "r:") as tar:
            for entry in tar:
                tar.members = []  # type: ignore[attr-defined]  # or it keeps every header it saw
                if entry.isdir():
                    continue
                parts = (part for part in entry.name.split("/") if part not in ("", ".", ".."))
                if (owner := next(filter(HIDDEN.match, parts), None)) is not None:
                    if hidden is not None:
                        hidden[owner] += 1
                    continue
                name, extension = _checked_name(entry, tar_file)
                if name != key:
                    if key is not None:
                        yield key, sample
                    key, sample = name, Sample()
                if extension == ".npy":
                    content = tar.extractfile(entry)
                    assert content is not None
                    # The header is one line; |O is the dtype of objects.
                    if b"|O" in content.readline(1 << 16):
                        raise _pickle(entry, tar_file)
                if extension in sample:
                    raise UserError(f"{tar_file}: {entry.name} is duplicated")
                sample[extension] = (entry.offset_data, entry.size)
            # tarfile reads the end of the file, or a damaged header, as the end of the archive;
            # either would silently lose the rest.
            with tar_file.open("rb") as handle:
                handle.seek(tar.offset)
                if handle.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
                    raise UserError(
                        f"{tar_file} is truncated or damaged: no end-of-archive mark at byte "
                        f"{tar.offset}; fetch or make it again"
                    )
    except tarfile.TarError as error:
        raise UserError(
            f"{tar_file} is truncated or not a tar ({error}); fetch or make it again"
        ) from error
    except OSError as error:
        raise UserError(f"{tar_file} cannot be read: {error.strerror}") from error
    if key is not None:
        yield key, sample


def _checked_name(entry: tarfile.TarInfo, tar_file: Path) -> tuple[str, str]:
    name = entry.name.removeprefix("./")
    if name.startswith("/") or ".." in name.split("/"):
        raise UserError(f"{tar_file}: member {entry.name!r} leads out of the shard; it is not read")
    if not entry.isfile() or entry.issparse():
        raise UserError(
            f"{tar_file}: member {entry.name!r} is a link or device; only plain files are read"
        )
    folder, _, base = name.rpartition("/")
    stem, _, extension = base.partition(".")
    extension = f".{extension.lower()}"
    if extension.endswith(PICKLES):
        raise _pickle(entry, tar_file)
    if "." in extension[1:]:
        raise UserError(
            f"{tar_file}: member {entry.name!r} has a dot in its key, which breaks WebDataset's "
            "grouping; rename it"
        )
    return (f"{folder}/{stem}" if folder else stem), extension


def _pickle(entry: tarfile.TarInfo, tar_file: Path) -> UserError:
    return UserError(f"{tar_file}: member {entry.name!r} may be a pickle; shards never hold one")
