"""The records everything else passes around: frozen, no torch.

A pair of COCO-Counterfactuals is a set of two members and two images; a photo with five captions is
a set of five members that share one image. ``group`` names the source (the photo, the original
caption), and no split ever cuts through a group.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, get_args

from cfaug.errors import UserError

if TYPE_CHECKING:
    import numpy as np

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


Better = Literal["higher", "lower"]

ITEM, CLUSTER = "item", "cluster"
"""The columns of a benchmark's items that name the test item, and what is sampled with it."""


@dataclass(frozen=True)
class Outcome:
    """One number a benchmark found.

    Attributes:
        benchmark: the benchmark's name.
        metric: the metric's name.
        value: the number itself.
        n: how many queries or images it is the mean of.
        better: whether higher or lower values are better.
        unit: ``fraction`` (tables show per cent), ``nats``, ... (tables show the number as it is).
        by: the part of the test it is about, such as ``{"edit": "background"}``; empty for all of
            it.

    Raises:
        UserError: if the direction is invalid, or ``by`` does not map text to text.
    """

    benchmark: str
    metric: str
    value: float
    n: int
    better: Better = "higher"
    unit: str = "fraction"
    by: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "by", _frozen(self.by))
        what = f"{self.benchmark} {self.metric}"
        if self.better not in get_args(Better):
            raise UserError(f"{what}: better={self.better!r} is invalid: choose higher or lower")
        if not all(isinstance(text, str) for pair in self.by.items() for text in pair):
            raise UserError(f"{what}: by={dict(self.by)} is invalid: it maps names to texts")


@dataclass(frozen=True)
class Evaluation:
    """What a benchmark found of one model.

    Attributes:
        outcomes: one a metric and part of the test, in a fixed order.
        items: columns of equal length with one row a test item. ``item`` names it, unique within
            the benchmark; ``cluster`` names what was sampled with it, an image or a set, and is
            what a bootstrap draws. Every metric that is a mean over items has a float column of
            its own name: the mean of its values is the outcome, their number is ``n``, and ``nan``
            stands where the item does not count for the metric. Other columns (scores, labels, the
            names in ``by``) are free.

    Raises:
        UserError: if there are no outcomes, a column is missing or the lengths differ.
    """

    outcomes: Sequence[Outcome]
    items: Mapping[str, Sequence[Any] | np.ndarray]

    def __post_init__(self) -> None:
        object.__setattr__(self, "outcomes", tuple(self.outcomes))
        object.__setattr__(self, "items", _frozen(self.items))
        if not self.outcomes:
            raise UserError("an evaluation without outcomes is invalid: return at least one")
        name = self.outcomes[0].benchmark
        missing = [column for column in (ITEM, CLUSTER) if column not in self.items]
        if missing:
            raise UserError(f"{name}: the items lack the column {missing[0]!r}")
        lengths = {column: len(values) for column, values in self.items.items()}
        if len(set(lengths.values())) > 1:
            raise UserError(f"{name}: the columns of the items differ in length: {lengths}")
