"""The records everything else passes around: frozen, no torch.

A pair of COCO-Counterfactuals is a set of two members and two images; a photo with five captions is
a set of five members that share one image. ``group`` names the source (the photo, the original
caption), and no split ever cuts through a group.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from cfaug.errors import UserError

KEY_PATTERN = re.compile(r"[a-z0-9_-]+")
"""What a set key may be: a dot in a key would silently break WebDataset's grouping."""


def _frozen(mapping: Mapping[str, Any]) -> Mapping[str, Any]:
    return MappingProxyType(dict(mapping))


def _check_key(key: str, what: str) -> None:
    if not KEY_PATTERN.fullmatch(key):
        raise UserError(
            f"{what} key {key!r} is not allowed: use lower-case letters, digits, '_' and '-' "
            "(a dot or a slash would break the shard's grouping)"
        )


def _check_texts(record: object, names: tuple[str, ...], what: str) -> None:
    """Refuse what no file of ours can hold: records are also made of files that others wrote."""
    for name in names:
        value = getattr(record, name)
        if not isinstance(value, str):
            raise UserError(f"{what}: {name} should be a text, not {value!r}")


@dataclass(frozen=True)
class Edit:
    """One change to a caption: ``before`` became ``after``; ``kind`` is subject, colour, ...

    Raises:
        UserError: if one of them is no text.
    """

    kind: str
    before: str
    after: str

    def __post_init__(self) -> None:
        _check_texts(self, ("kind", "before", "after"), "an edit")


@dataclass(frozen=True)
class Member:
    """One image-text pair of a set.

    ``image_name`` is the key of its image in ``CounterfactualSet.images`` (members may share one);
    ``edit`` is ``None`` for the unedited member; ``label`` is a class name where there is one;
    ``extra`` holds whatever else is JSON.

    Raises:
        UserError: if one of them is no text.
    """

    text: str
    image_name: str
    source_id: str
    edit: Edit | None = None
    label: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "extra", _frozen(self.extra))
        labelled = () if self.label is None else ("label",)
        _check_texts(self, ("text", "image_name", "source_id", *labelled), "a member")


@dataclass(frozen=True)
class CounterfactualSet:
    """Members that differ by one edit, with their encoded images, scores and provenance.

    Raises:
        UserError: if the key is not ``[a-z0-9_-]+``, the group is no text, a score no number, a
            caption empty, or an image missing.
    """

    key: str
    group: str
    members: tuple[Member, ...]
    images: Mapping[str, bytes]
    scores: Mapping[str, float] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("images", "scores", "provenance"):
            object.__setattr__(self, name, _frozen(getattr(self, name)))
        _check_texts(self, ("key", "group"), "a set")
        _check_key(self.key, "set")
        for name, score in self.scores.items():
            if isinstance(score, bool) or not isinstance(score, int | float):
                raise UserError(f"set {self.key!r}: the score {name!r} is {score!r}, no number")
        if not self.members:
            raise UserError(f"set {self.key!r} has no members")
        for i, member in enumerate(self.members):
            if not member.text.strip():
                raise UserError(f"set {self.key!r}, member {i}: the caption is empty")
            if member.image_name not in self.images:
                raise UserError(
                    f"set {self.key!r}, member {i}: no image {member.image_name!r}; "
                    f"the set has {sorted(self.images)}"
                )


@dataclass(frozen=True)
class Caption:
    """A caption to be edited: ``group`` is the photo (or other source) it speaks of.

    Raises:
        UserError: if the key is not ``[a-z0-9_-]+``.
    """

    key: str
    group: str
    text: str
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "extra", _frozen(self.extra))
        _check_key(self.key, "caption")


@dataclass(frozen=True)
class CaptionSet:
    """Texts that differ by one edit each, the unedited one first: what images are drawn for.

    ``edits`` has one entry a text, ``None`` for the first; ``extra`` holds how the edits were found
    (spans, ranks, similarity, perplexity), all of it JSON.

    Raises:
        UserError: if the key is not ``[a-z0-9_-]+``, or texts and edits do not match.
    """

    key: str
    group: str
    texts: tuple[str, ...]
    edits: tuple[Edit | None, ...]
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "extra", _frozen(self.extra))
        _check_key(self.key, "set")
        if len(self.texts) < 2 or len(self.edits) != len(self.texts) or self.edits[0] is not None:
            raise UserError(
                f"caption set {self.key!r} needs an unedited text and at least one edited text, "
                f"with one edit each; it has {len(self.texts)} texts and edits {self.edits}"
            )


@dataclass(frozen=True)
class Draw:
    """The chance of one candidate: its noise, its share of shared attention, its guidance.

    Attributes:
        seed: of the initial noise and of every ancestral step; what ``seed_policy`` gave.
        p: share of the denoising steps whose self-attention is shared (COCO-CFs, B.1.2).
        cfg: classifier-free guidance scale, the same for every image of the set.
    """

    seed: int
    p: float
    cfg: float


@dataclass(frozen=True)
class ImageJob:
    """One candidate to be drawn: the texts of a set, the base first, and its chance."""

    texts: tuple[str, ...]
    draw: Draw


@dataclass(frozen=True)
class Outcome:
    """One number a benchmark found: ``n`` is how many queries or images it is the mean of."""

    benchmark: str
    metric: str
    value: float
    n: int
