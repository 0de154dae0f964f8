"""Selection of candidates by named scores, such as InstructPix2Pix's four cosines."""

from __future__ import annotations

import math
import operator
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Literal, get_args

from cfaug.core.errors import UserError
from cfaug.core.pixels import as_floats
from cfaug.core.types import Edit, Scores
from cfaug.core.validation import Positive, check_fields
from cfaug.settings.read_if import GIVEN, ReadIf

if TYPE_CHECKING:
    from torch import Tensor

    from cfaug.core.types import Images, Proposal


SAME_TEXT, HALVING, UNSAFE = "same_text", "halving", "unsafe"
"""Reasons to reject a candidate before any score is compared with a threshold."""
Aggregate = Literal["min", "mean"]


@dataclass(frozen=True)
class Selection:
    """Thresholds, and the choice among the candidates that reach all of them.

    Args:
        minimum: the least acceptable value of each score, inclusive, in the order in which they are
            checked; ``None`` is no threshold.
        maximise: the score that ranks the accepted candidates; ``None`` keeps those with the lowest
            numbers.
        aggregate: the score of several edits of a set: the worst (``min``), or the ``mean``.
        rank_aggregate: ``aggregate`` for the score that ranks; ``None`` is the same. So every edit
            can be required to reach the thresholds while sets are ranked by their mean.
        per: the unit from which ``keep`` candidates are kept: a ``set`` (the candidates of one
            proposal) or a ``group`` (those of all its sets).
        reasons: {score: reason of its rejections}, where it differs from the name of the score.
        above: values that scores must exceed, checked after ``minimum``; ``None`` is no threshold.
        prefer: the tie-break between equally good candidates: the ``first`` or the ``last`` number.
            With ``maximise=None`` all are equally good.
        controls: kinds of edit without thresholds, such as a reconstruction: their only candidate
            is always kept, unless a safety checker flags it.
    """

    minimum: Mapping[str, float | None] = field(default_factory=dict)
    maximise: str | None = None
    aggregate: Aggregate = "min"
    keep: Positive = 1
    """the number of candidates to keep, the best first"""
    per: Literal["set", "group"] = "set"
    reasons: Mapping[str, str] = field(default_factory=dict)
    above: Mapping[str, float | None] = field(default_factory=dict)
    prefer: Literal["first", "last"] = "first"
    controls: Sequence[str] = ()
    rank_aggregate: Annotated[Aggregate | None, ReadIf({"maximise": GIVEN})] = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "controls", tuple(self.controls))
        check_fields(self, "recipe.selection")

    @property
    def names(self) -> tuple[str, ...]:
        """The scores that the selection uses."""
        limits = (*self.minimum.items(), *self.above.items())
        limited = [name for name, least in limits if least is not None]
        return tuple(dict.fromkeys([*limited, *([self.maximise] if self.maximise else [])]))

    def check(self, names: Iterable[str]) -> None:
        """Refuse a score that is not among ``names``, those of the recipe's scorers."""
        there = list(names)
        for name in self.names:
            if name not in there:
                choices = ", ".join(there) or "none: the recipe has no scorer"
                raise UserError(
                    f"recipe.selection: no scorer gives the score {name!r}; there are {choices}"
                )

    def pool(self, value: float | Sequence[float]) -> float:
        """Return a set's score: a single number, or the worst or mean of its edits' scores."""
        return _pool(value, self.aggregate)

    def pool_rank(self, value: float | Sequence[float]) -> float:
        """Return a set's score for ranking."""
        return _pool(value, self.rank_aggregate or self.aggregate)

    def pool_all(self, scores: Scores) -> dict[str, float]:
        """Return the set's scores by name; a score without any value is left out."""
        return {
            name: self.pool_rank(value) if name == self.maximise else self.pool(value)
            for name, value in scores.items()
            if value != ()
        }

    def compute_margins(self, scores: Scores) -> dict[str, float]:
        """Return each known score minus its threshold."""
        limits = (*self.minimum.items(), *self.above.items())
        thresholds = {name: least for name, least in limits if least is not None}
        return {
            name: self.pool(scores[name]) - least
            for name, least in thresholds.items()
            if scores.get(name, ()) != ()
        }

    def find_miss(self, scores: Scores) -> str:
        """Return why the known scores reject a candidate, "" if they do not.

        Missing scores are ignored, so that the first scores can end the scoring early.
        """
        for limits, misses in ((self.minimum, operator.lt), (self.above, operator.le)):
            for name, least in limits.items():
                if least is None or scores.get(name, ()) == ():
                    continue
                if misses(self.pool(scores[name]), least):
                    return self.reasons.get(name, name)
        return ""

    def is_control(self, edits: Iterable[Edit | None]) -> bool:
        """Return whether a proposal has edits and all of them are controls."""
        kinds = {edit.kind for edit in edits if edit is not None}
        return bool(kinds) and kinds <= set(self.controls)

    def reject(self, scores: Scores) -> str:
        """Return the first threshold that a candidate misses, "" if it is accepted."""
        reason = self.find_miss(scores)
        if not reason:
            for name in self.names:
                if scores.get(name, ()) == ():
                    raise UserError(
                        f"recipe.selection: a candidate has no score {name!r} (a single text has "
                        "no edit to compare); leave that score out"
                    )
        return reason

    def rank(self, accepted: Sequence[tuple[int, int, Scores]]) -> list[int]:
        """Return the numbers of accepted candidates, the best first.

        Equal scores go to the larger seed, as in InstructPix2Pix's code, then by number as
        ``prefer`` says: candidates of a tree share a seed.
        """

        def key(candidate: tuple[int, int, Scores]) -> tuple[float, int, int]:
            number, seed, scores = candidate
            order = number if self.prefer == "first" else -number
            if self.maximise is None:
                return 0.0, 0, order
            return -self.pool_rank(scores[self.maximise]), -seed, order

        return [number for number, _, _ in sorted(accepted, key=key)]

    def best(self, accepted: Sequence[tuple[int, int, Scores]]) -> list[int]:
        """Return the numbers of the candidates to keep from one set or group, the best first."""
        return self.rank(accepted)[: self.keep]


def _pool(value: float | Sequence[float], aggregate: Aggregate) -> float:
    if isinstance(value, int | float):
        return value
    return min(value) if aggregate == "min" else math.fsum(value) / len(value)


# InstructPix2Pix's four cosines of a set, by name, and its thresholds (section 3.1.2).
#
# Every such scorer embeds texts and images; this module defines the comparisons.

BASE, EDITED, IMAGE, DIRECTION = "sim_0", "sim_1", "sim_image", "sim_direction"
CONSISTENCY, PAIRS = "consistency", "sim_direction_pairs"
"""Names of the scores, in shards and candidate logs too: of the base image and the first text, of
each edited image and its text, of each edited image and the base image, and of the change of the
image and the change of the text."""
Unit = Literal["caption", "phrase"]
REASONS = {BASE: "caption_0", EDITED: "caption_1", IMAGE: "image", DIRECTION: "direction"}
"""The reason for a rejection by each score, in cards and logs."""


class CosineScorer(ABC):
    """A scorer by the cosines of embeddings, float32 and of unit length.

    An implementation embeds texts and images. Each text and each image is embedded once for all
    comparisons, and the edits of a rejected base image are not embedded.

    Args:
        prefix: prefix of the name of each score, if a recipe has several such scorers.
        consistency: the texts of the further score ``consistency``, the cosine of an edited image
            with its text minus that with the original text (LANCE, section 3.2): whole captions
            (``caption``, the paper), or the replaced words and their replacement (``phrase``, the
            released code; an insertion replaces the empty text). ``None`` leaves the score out.
        all_pairs: whether to add the score ``sim_direction_pairs``, the mean directional cosine
            over all pairs of a set's texts; ``sim_direction`` has only the pairs with the first
            text.
    """

    prefix: str = ""
    consistency: Unit | None = None
    all_pairs: bool = False

    def __init__(
        self, prefix: str = "", consistency: Unit | None = None, all_pairs: bool = False
    ) -> None:
        self.prefix = prefix
        self.consistency = consistency
        self.all_pairs = all_pairs
        self._check_consistency()

    def _check_consistency(self) -> None:
        if self.consistency not in (None, *get_args(Unit)):
            raise UserError(
                f"recipe.scorers: consistency={self.consistency} is not caption, phrase or null"
            )

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.meanings)

    @property
    def meanings(self) -> dict[str, str]:
        """{name of the score: what it compares}, for figures."""
        meanings = {
            BASE: "base image and its caption",
            EDITED: "edited image and its caption",
            IMAGE: "edited image and base image",
            DIRECTION: "change of image and change of caption",
        }
        if self.consistency is not None:
            meanings[CONSISTENCY] = "edited image: nearer to the edited text than to the original"
        if self.all_pairs:
            meanings[PAIRS] = "change of image and change of caption, mean over all pairs"
        return {self.prefix + name: meaning for name, meaning in meanings.items()}

    def further_texts(self, proposal: Proposal) -> list[str]:
        """Return further texts to compare besides a proposal's own: the words of each edit."""
        if self.consistency != "phrase":
            return []
        edits = [edit or Edit("", "", "") for edit in proposal.edits[1:]]
        return [text for edit in edits for text in (edit.before, edit.after)]

    @abstractmethod
    def texts(self, texts: Sequence[str]) -> Tensor:
        """Embed texts: (n, dim)."""

    @abstractmethod
    def images(self, images: Tensor) -> Tensor:
        """Embed images float32 (n, 3, H, W) in [0, 1]: (n, dim)."""

    @abstractmethod
    def describe(self) -> dict[str, str]:
        """Return names, revisions and hashes of the weights, for the card."""

    def compare(self, texts: Sequence[Tensor], images: Sequence[Tensor]) -> Scores:
        """Return the scores of one candidate, as far as its images are available.

        Args:
            texts: embeddings (dim,) of every text, the base text first, then of ``further_texts``.
            images: embeddings (dim,) of the image of every text, or only of the base image.

        Returns:
            ``sim_0``, a number; and unless only the base is given, ``sim_1``, ``sim_image``,
            ``sim_direction`` and, if requested, ``consistency``, a value for each edited image, and
            ``sim_direction_pairs``, a number.
        """
        import torch

        base, *edited = images
        scores: dict[str, float | tuple[float, ...]] = {
            self.prefix + BASE: cosine(base[None], texts[0][None])[0].tolist()[0]
        }
        if edited:
            seen, captions = torch.stack(edited), torch.stack(list(texts[1 : len(images)]))
            first, text = base.expand_as(seen), texts[0].expand_as(captions)
            scores |= {
                self.prefix + EDITED: tuple(cosine(seen, captions)[0].tolist()),
                self.prefix + IMAGE: tuple(cosine(seen, first)[0].tolist()),
                self.prefix + DIRECTION: tuple(direction(first, seen, text, captions)[0].tolist()),
            }
            if self.consistency is not None:
                words = texts[len(images) :]
                phrases = torch.stack(list(words)) if words else None
                before, after = (
                    (text, captions) if phrases is None else (phrases[::2], phrases[1::2])
                )
                margin = cosine(seen, after)[0] - cosine(seen, before)[0]
                scores[self.prefix + CONSISTENCY] = tuple(margin.tolist())
            if self.all_pairs:
                every = torch.stack(list(texts[: len(images)]))
                scores[self.prefix + PAIRS] = mean_direction(torch.stack(list(images)), every)
        return scores

    def score(self, proposals: Sequence[Proposal], images: Sequence[Images]) -> list[Scores]:
        import torch

        scores = []
        for proposal, made in zip(proposals, images, strict=True):
            seen = torch.cat([self.images(as_floats(image)[None]) for image in made.images])
            shown = [seen[i] for i in made.shown]
            texts = [*proposal.texts, *self.further_texts(proposal)]
            scores.append(self.compare(list(self.texts(texts)), shown))
        return scores


def clip_selection(
    min_clip_text: float = 0.2,
    min_clip_image: float = 0.7,
    min_clip_direction: float | None = 0.2,
    aggregate: Aggregate = "min",
    keep: int = 1,
) -> Selection:
    """Return InstructPix2Pix's selection: three thresholds, then directional similarity.

    Args:
        min_clip_text: least cosine of every image with its own caption (COCO-CFs, B.1.2).
        min_clip_image: least cosine of an edited image with the base image (B.1.2).
        min_clip_direction: least directional cosine; ``None`` is no threshold. The paper names no
            such threshold; InstructPix2Pix's code, whose defaults it used, has 0.2.
        aggregate: ``min`` or ``mean`` over the images of a set.
        keep: the number of candidates to keep, the best first.
    """
    given = {
        "min_clip_text": min_clip_text, "min_clip_image": min_clip_image,
        "min_clip_direction": min_clip_direction,
    }  # fmt: skip
    for name, least in given.items():
        if least is not None and not -1 <= least <= 1:
            raise UserError(f"recipe.selection.{name}={least} is a cosine: from -1 to 1")
    minimum = {BASE: min_clip_text, EDITED: min_clip_text, IMAGE: min_clip_image}
    return Selection(
        {**minimum, DIRECTION: min_clip_direction}, DIRECTION, aggregate, keep, reasons=REASONS
    )


def cosine(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Return the cosine of each row of ``a`` with the same row of ``b``, and which are undefined.

    This gives caption-image and image-image similarity.

    Args:
        a: vectors (n, dim).
        b: vectors (n, dim).

    Returns:
        Cosines (n,), and bool (n,): whether a row is zero and the cosine, 0/0, is returned as 0.
    """
    import torch

    a, b = a.float(), b.float()
    length = torch.linalg.vector_norm(a, dim=-1) * torch.linalg.vector_norm(b, dim=-1)
    undefined = length == 0
    product = (a * b).sum(-1)
    return torch.where(undefined, 0.0, product / length.masked_fill(undefined, 1.0)), undefined


def direction(
    image: Tensor, edited_image: Tensor, text: Tensor, edited_text: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the directional similarity of images and texts: cosines (n,), and which are undefined.

    0/0 results from equal texts, such as texts that differ only beyond a model's length limit.

    Args:
        image: embeddings (n, dim) of unit length, like the others, which correspond row by row.
    """
    return cosine(edited_image.float() - image.float(), edited_text.float() - text.float())


def mean_direction(images: Tensor, texts: Tensor) -> float:
    """Return the mean directional cosine over all pairs of a set, including those without the base.

    Args:
        images: embeddings of the images, of unit length (n, dim), with n of at least 2.
        texts: embeddings of the texts, of unit length (n, dim).
    """
    import torch

    first, second = torch.triu_indices(len(images), len(images), offset=1)
    cosines, _ = direction(images[first], images[second], texts[first], texts[second])
    return float(cosines.mean())
