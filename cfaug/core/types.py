"""The frozen records that all parts exchange. No torch.

A pair of COCO-Counterfactuals is a set of two members and two images; a photo with five captions is
a set of five members that share one image. ``group`` names the source (the photo, the original
caption), and no split ever cuts through a group.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, get_args, runtime_checkable

from cfaug.core.errors import UserError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

KEY_PATTERN = re.compile(r"[a-z0-9_-]+")
"""Allowed set keys; a dot in a key would silently break WebDataset's grouping."""


def _frozen(mapping: Mapping[str, Any]) -> Mapping[str, Any]:
    return MappingProxyType(dict(mapping))


def _check_key(key: str, kind: str) -> None:
    if not KEY_PATTERN.fullmatch(key):
        raise UserError(
            f"{kind} key {key!r} is not allowed: use lower-case letters, digits, '_' and '-' "
            "(a dot or a slash would break the shard's grouping)"
        )


def _check_texts(record: object, names: tuple[str, ...], where: str) -> None:
    """Refuse values that are not text: records are also made from other people's files."""
    for name in names:
        value = getattr(record, name)
        if not isinstance(value, str):
            raise UserError(f"{where}: {name} should be a text, not {value!r}")


def _check_strings(texts: object, where: str) -> None:
    if not isinstance(texts, tuple) or not all(isinstance(text, str) for text in texts):
        raise UserError(f"{where}: texts should be a tuple of strings, not {texts!r}")


@dataclass(frozen=True)
class Edit:
    """One change to a caption: ``before`` became ``after``; ``kind`` is subject, colour, ...

    Raises:
        UserError: if one of them is not text.
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
    ``edit`` is ``None`` for the unedited member; ``label`` is a class name, if there is one;
    ``extra`` holds any further JSON.

    Raises:
        UserError: if one of them is not text.
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
        UserError: if the key is not ``[a-z0-9_-]+``, the group is not text, a score is not a
            number, a caption is empty, or an image is missing.
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
                raise UserError(f"set {self.key!r}: the score {name!r} is {score!r}, not a number")
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


@runtime_checkable
class SourceImage(Protocol):
    """A reference to an image of a source, which is read on demand and checked when it is read.

    Attributes:
        digest: the hexadecimal hash of all bytes of the encoded file.
    """

    @property
    def digest(self) -> str:
        """Return an identifier of the image's content, a key for caches."""
        ...

    def read(self) -> bytes:
        """Return the encoded file.

        Raises:
            UserError: if the file is missing, or has changed since it was indexed.
        """
        ...


@dataclass(frozen=True)
class Example:
    """An item of a source: texts, an image or both, with any further information about them.

    Attributes:
        key: the example's name, unique in the source, ``[a-z0-9_-]+``.
        group: the name shared by examples that no split may separate, such as captions of one
            photo.
        texts: the captions or questions; may be empty if there is an image.
        label: the class name, if there is one.
        extra: any further JSON, such as detections, options, answer or attributes. It is copied to
            the members on disk.

    Raises:
        UserError: if the key is invalid, a text is not a string, or there is neither text nor
            image.
    """

    key: str
    group: str
    texts: tuple[str, ...]
    image: SourceImage | None = None
    label: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "extra", _frozen(self.extra))
        _check_key(self.key, "example")
        _check_strings(self.texts, f"example {self.key!r}")
        if not self.texts and self.image is None:
            raise UserError(f"example {self.key!r} has neither a text nor an image")

    @property
    def text(self) -> str:
        """The only text, or the first of several.

        Raises:
            UserError: if there is none.
        """
        if not self.texts:
            raise UserError(
                f"example {self.key!r} has no text: the recipe needs captions, from the source or "
                "from an annotator"
            )
        return self.texts[0]


@dataclass(frozen=True)
class Proposal:
    """An editor's result for an example: the texts for which images are to be made.

    Attributes:
        edits: the edit of each text; ``None`` for a text that is not edited.
        extra: the origin of the edits (spans, ranks, similarity, perplexity), as JSON.
        key: a name unique among all proposals of a source, ``[a-z0-9_-]+``; the example's if empty.
        details: JSON about each text, such as attributes, which is copied to its member on disk;
            one entry for each text, or empty. It takes precedence over the example's ``extra``.

    Raises:
        UserError: if the key is invalid, there is no text, a text is empty or not a string, an edit
            is neither an ``Edit`` nor ``None``, or the numbers of texts, edits and details differ.
    """

    example: Example
    texts: tuple[str, ...]
    edits: tuple[Edit | None, ...]
    extra: Mapping[str, Any] = field(default_factory=dict)
    key: str = ""
    details: tuple[Mapping[str, Any], ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "extra", _frozen(self.extra))
        object.__setattr__(self, "key", self.key or self.example.key)
        _check_key(self.key, "proposal")
        _check_strings(self.texts, f"proposal {self.key!r}")
        if not self.texts or len(self.edits) != len(self.texts):
            raise UserError(
                f"proposal {self.key!r} needs at least one text, and one edit (or None) for each; "
                f"it has {len(self.texts)} texts and {len(self.edits)} edits"
            )
        wrong = [edit for edit in self.edits if not (edit is None or isinstance(edit, Edit))]
        if wrong:
            raise UserError(f"proposal {self.key!r}: {wrong[0]!r} should be an Edit or None")
        if any(not text.strip() for text in self.texts):
            raise UserError(f"proposal {self.key!r}: a text is empty")
        if self.details and len(self.details) != len(self.texts):
            raise UserError(
                f"proposal {self.key!r} has {len(self.texts)} texts and {len(self.details)} details"
            )

    @property
    def group(self) -> str:
        """The example's group."""
        return self.example.group


@dataclass(frozen=True)
class Rejected:
    """An edit that an editor found but did not propose, kept with the reason.

    Attributes:
        text: the edited text; empty without one, as when a model gave no answer.
        reason: the reason why it was not proposed, a short text that is counted.
        extra: details as JSON, such as similarities or the prompt.

    Raises:
        UserError: if a text is not a string, or the edit is not an ``Edit``.
    """

    text: str
    edit: Edit
    reason: str
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "extra", _frozen(self.extra))
        _check_texts(self, ("text", "reason"), "a rejected edit")
        if not isinstance(self.edit, Edit):
            raise UserError(f"a rejected edit: {self.edit!r} should be an Edit")


@dataclass(frozen=True)
class Edited:
    """An editor's result for one example.

    Attributes:
        proposals: the proposals, possibly none; several that have the example's key are numbered:
            ``KEY-0``, ``KEY-1``, ...
        survivors: the number of candidates left after each named stage, in order.
        rejected: candidates that were not proposed, each with its reason, as far as the editor
            keeps them.

    Raises:
        UserError: if a proposal is not a Proposal, two have the same key, or a rejected edit is
            not a Rejected.
    """

    proposals: tuple[Proposal, ...]
    survivors: Mapping[str, int] = field(default_factory=dict)
    rejected: tuple[Rejected, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "proposals", tuple(self.proposals))
        for proposal in self.proposals:
            if not isinstance(proposal, Proposal):
                raise UserError(f"an editor's proposal should be a Proposal, not {proposal!r:.200}")
        object.__setattr__(self, "rejected", tuple(self.rejected))
        for lost in self.rejected:
            if not isinstance(lost, Rejected):
                raise UserError(f"a rejected edit should be a Rejected, not {lost!r:.200}")
        if len(self.proposals) > 1:
            numbered = tuple(
                replace(proposal, key=f"{proposal.key}-{i}")
                if proposal.key == proposal.example.key
                else proposal
                for i, proposal in enumerate(self.proposals)
            )
            object.__setattr__(self, "proposals", numbered)
            keys = [proposal.key for proposal in numbered]
            if len(set(keys)) < len(keys):
                raise UserError(
                    f"example {numbered[0].example.key!r}: its proposals have duplicated keys: "
                    f"{', '.join(keys)}"
                )

    @property
    def rejected_by(self) -> str | None:
        """The first stage that left no candidate; ``None`` if there is a proposal."""
        if self.proposals:
            return None
        return next((name for name, left in self.survivors.items() if left == 0), "nothing chosen")


@dataclass(frozen=True)
class Draw:
    """The random parameters of one candidate: noise, share of self-attention, guidance.

    Attributes:
        seed: the seed of the initial noise and of every ancestral step, from ``seed_policy``.
        p: the share of denoising steps with shared self-attention (COCO-CFs, B.1.2).
        cfg: the scale of classifier-free guidance, the same for every image of the set.
        parameters: further random parameters by name, the same for every image of the set.
        p_density: the density of p's law relative to the uniform law between its bounds; candidates
            weighted by its inverse are as if p was uniform. ``None`` if it was.
    """

    seed: int
    p: float
    cfg: float
    parameters: Mapping[str, float] = field(default_factory=dict, hash=False)
    p_density: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "parameters", _frozen(self.parameters))


@dataclass(frozen=True)
class ImageJob:
    """One candidate to generate: a proposal and its random parameters."""

    proposal: Proposal
    draw: Draw

    @property
    def texts(self) -> tuple[str, ...]:
        """The proposal's texts."""
        return self.proposal.texts

    @property
    def image(self) -> SourceImage | None:
        """The source image, if there is one."""
        return self.proposal.example.image


@dataclass(frozen=True)
class Images:
    """The images of one candidate.

    Attributes:
        images: pixels, uint8 (height, width, 3), or encoded files (PNG, JPEG, WebP), written as
            they are.
        shown: the index of the image that shows each text of the proposal; texts may share one.
            Empty means one image for each text, in order.
        unsafe: the indices of the images that a safety checker flagged.
        rejected: the reason why no images were made, a word or two that are counted, such as a
            photo that cannot be decoded; otherwise empty.

    Raises:
        UserError: if an index has no image.
    """

    images: tuple[NDArray[np.uint8] | bytes, ...]
    shown: tuple[int, ...] = ()
    unsafe: frozenset[int] = frozenset()
    rejected: str = ""

    def __post_init__(self) -> None:
        count = len(self.images)
        object.__setattr__(self, "shown", tuple(self.shown) or tuple(range(count)))
        for number in (*self.shown, *self.unsafe):
            if not 0 <= number < count:
                raise UserError(f"image {number} is missing: there are {count} images")


Scores = Mapping[str, float | tuple[float, ...]]
"""Scores of one candidate by name.

A number concerns the candidate as a whole; a tuple has one value for each text but the first, to
which the others are compared. A name is missing if an early exit made the score unnecessary.
"""

Better = Literal["higher", "lower"]

ColumnValues: TypeAlias = "Sequence[Any] | np.ndarray"
"""Values of test items."""

ITEM, CLUSTER = "item", "cluster"
"""Columns of a benchmark's items: the item's name, and the name of its cluster."""

ORIGINAL, RECONSTRUCTION = "original", "reconstruction"
"""Kinds that a stress test gives to a photo itself and to its reconstruction without an edit; no
edit may have them."""


@dataclass(frozen=True)
class OptionScore:
    """A model's likelihood of one option as the answer to a question.

    Attributes:
        nll: the negative log-likelihood of all tokens of the option together, in nats. The
            reduction ``sum`` ranks by it.
        tokens: the number of these tokens.
    """

    nll: float
    tokens: int

    @property
    def mean_nll(self) -> float:
        """The negative log-likelihood per token, in nats: the reduction ``token_mean``."""
        return self.nll / self.tokens


@dataclass(frozen=True)
class Outcome:
    """One number that a benchmark measured.

    Attributes:
        n: the number of queries or images that ``value`` is the mean of.
        better: whether higher or lower values are better.
        unit: ``fraction`` (tables show per cent), ``nats``, ... (tables show the number itself).
        by: the part of the test that the number concerns, such as ``{"edit": "background"}``; empty
            for the whole test.
        chance: the expected value of a model that answers at random; ``None`` if it is not known.

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
    chance: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "by", _frozen(self.by))
        where = f"{self.benchmark} {self.metric}"
        if self.better not in get_args(Better):
            raise UserError(f"{where}: better={self.better!r} is invalid: choose higher or lower")
        if not all(isinstance(text, str) for pair in self.by.items() for text in pair):
            raise UserError(f"{where}: by={dict(self.by)} is invalid: it maps names to texts")


@dataclass(frozen=True)
class Evaluation:
    """A benchmark's result for one model.

    Attributes:
        outcomes: the outcome for each metric and part of the test, in a fixed order.
        items: columns of equal length with one row for each test item. ``item`` is its name, unique
            within the benchmark; ``cluster`` names the image or set that it was sampled with, and a
            bootstrap resamples clusters. Every metric that is a mean over items has a float column
            of its own name: the mean of its values is the outcome, their number is ``n``, and
            ``nan`` marks items that do not count. Other columns (scores, labels, the names in
            ``by``) are free.
        rankings: the ranked candidates of a benchmark whose items are rankings: columns as in
            ``items`` with one row per candidate; empty for any other benchmark.

    Raises:
        UserError: if there are no outcomes, a column is missing or the lengths differ.
    """

    outcomes: Sequence[Outcome]
    items: Mapping[str, ColumnValues]
    rankings: Mapping[str, ColumnValues] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "outcomes", tuple(self.outcomes))
        if not self.outcomes:
            raise UserError("an evaluation without outcomes is invalid: return at least one")
        name = self.outcomes[0].benchmark
        for kind in ("items", "rankings"):
            columns = getattr(self, kind)
            object.__setattr__(self, kind, _frozen(columns))
            if kind == "rankings" and not columns:
                continue
            missing = [column for column in (ITEM, CLUSTER) if column not in columns]
            if missing:
                raise UserError(f"{name}: the {kind} lack the column {missing[0]!r}")
            lengths = {column: len(values) for column, values in columns.items()}
            if len(set(lengths.values())) > 1:
                raise UserError(f"{name}: the {kind} have columns that differ in length: {lengths}")


ENTAILMENT = ("entailment", "neutral", "contradiction")
"""The possible relations of a premise and a hypothesis, in the order of an Entailer's columns."""
