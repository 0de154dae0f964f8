"""A counterfactual set as the files of a WebDataset shard, and back.

Every member is a complete sample, ``<set>_<i>.png .txt .json``, so open_clip, webdataset, Hugging
Face datasets and plain tar read a shard as it is. An image that members share is repeated; the
``image_name`` in the json says which do, and reading checks that they are equal.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from cfaug.errors import UserError
from cfaug.types import CounterfactualSet, Edit, Member

FORMAT = 1

MAGIC = ((0, b"\x89PNG\r\n\x1a\n", "png"), (0, b"\xff\xd8\xff", "jpg"), (8, b"WEBP", "webp"))
IMAGE_EXTENSIONS = ("png", "jpg", "jpeg", "webp")


def image_extension(data: bytes, name: str) -> str:
    """Return the extension that the first bytes of an encoded image call for.

    >>> image_extension(bytes([255, 216, 255, 224]), "a")
    'jpg'

    Raises:
        UserError: if it is none of PNG, JPEG, WebP.
    """
    for at, magic, extension in MAGIC:
        if data[at : at + len(magic)] == magic:
            return extension
    raise UserError(f"{name}: not a PNG, JPEG or WebP image")


def encode_set(one: CounterfactualSet) -> list[tuple[str, bytes]]:
    """Return (file name, content) in the order they stand in a shard."""
    files: list[tuple[str, bytes]] = []
    for i, member in enumerate(one.members):
        key = f"{one.key}_{i}"
        image = one.images[member.image_name]
        about: dict[str, Any] = {
            "set": one.key,
            "member": i,
            "of": len(one.members),
            "group": one.group,
            "image_name": member.image_name,
            "source_id": member.source_id,
            "edit": None if member.edit is None else asdict(member.edit),
            "label": member.label,
            "extra": dict(member.extra),
        }
        if i == 0:
            about |= {"scores": dict(one.scores), "provenance": dict(one.provenance)}
        files += [
            (f"{key}.{image_extension(image, key)}", image),
            (f"{key}.txt", member.text.encode()),
            (f"{key}.json", json.dumps(about, ensure_ascii=False).encode()),
        ]
    return files


def decode_set(samples: Sequence[Mapping[str, bytes]], where: str) -> CounterfactualSet:
    """Make a set of its members' files, ``{extension: content}`` each, in order.

    Raises:
        UserError: naming ``where``, if a file is missing or the members contradict each other.
    """
    try:
        return _decode(samples)
    except UserError as error:
        raise UserError(f"{where}: {error}") from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserError(f"{where}: the member's json or text cannot be used ({error!r})") from error


def _decode(samples: Sequence[Mapping[str, bytes]]) -> CounterfactualSet:
    about = [json.loads(sample["json"]) for sample in samples]
    first = about[0]
    if first.get("of") != len(samples):
        raise UserError(f"{len(samples)} of {first.get('of')} members are there")
    images: dict[str, bytes] = {}
    members = []
    for i, (sample, one) in enumerate(zip(samples, about, strict=True)):
        if (one["set"], one["member"]) != (first["set"], i):
            raise UserError(f"member {one['member']} of set {one['set']!r} is out of place")
        extension = next((e for e in IMAGE_EXTENSIONS if e in sample), None)
        if extension is None or "txt" not in sample:
            raise UserError(f"member {i} lacks its image or its caption")
        if images.setdefault(one["image_name"], sample[extension]) != sample[extension]:
            raise UserError(f"image {one['image_name']!r} differs between members")
        members.append(
            Member(
                text=sample["txt"].decode(),
                image_name=one["image_name"],
                source_id=one["source_id"],
                edit=None if one["edit"] is None else Edit(**one["edit"]),
                label=one["label"],
                extra=one["extra"],
            )
        )
    return CounterfactualSet(
        key=first["set"],
        group=first["group"],
        members=tuple(members),
        images=images,
        scores=first["scores"],
        provenance=first["provenance"],
    )
