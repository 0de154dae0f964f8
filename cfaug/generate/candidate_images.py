"""The images and scores of a batch's candidates, each decoded and embedded once."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np

from cfaug.core.errors import UserError
from cfaug.core.pixels import as_floats, round_pixels
from cfaug.core.protocols import EmbeddingScorer, Progressive, Scorer
from cfaug.core.types import Draw, ImageJob, Images, Proposal, Scores
from cfaug.generate.failures import check_results
from cfaug.imaging.select import UNSAFE

if TYPE_CHECKING:
    from torch import Tensor

    from cfaug.generate.candidate_scoring import ShardScorer


TOGETHER = 32
"""Number of images decoded and embedded at once, which bounds the memory for large images."""
Place = tuple[int, int]
"""The place of an image in a batch: the number of its job, and its number within the job."""


class LazyImages:
    """Images of a progressive editor: latents until they are decoded.

    Args:
        latents: the latents of each job, (texts, channels, height, width).

    Attributes:
        unsafe: the images decoded so far that the safety checker flags.
    """

    def __init__(
        self, editor: Progressive, jobs: Sequence[ImageJob], latents: Sequence[Tensor]
    ) -> None:
        self.jobs = jobs
        self.unsafe: set[Place] = set()
        self._editor, self._latents = editor, latents
        self._pixels: dict[Place, np.ndarray] = {}
        # The candidates of a tree share a base image: everything that it depends on is the same.
        first: dict[object, int] = {}
        self._base = []
        for j, job in enumerate(jobs):
            draw, source = job.draw, None if job.image is None else job.image.digest
            key = job.texts[0], source, draw.seed, draw.cfg, tuple(sorted(draw.parameters.items()))
            self._base.append(first.setdefault(key, j))

    def places(self, j: int) -> list[Place]:
        """Return the place of every text's image of job ``j``; jobs may share a base image."""
        return [(self._base[j], 0), *((j, i) for i in range(1, len(self.jobs[j].texts)))]

    def look(self, places: Iterable[Place]) -> Iterator[tuple[list[Place], Tensor]]:
        """Decode images: yield places and float32 (n, 3, H, W) in [0, 1], a few at a time."""
        import torch

        wanted = list(places)
        for start in range(0, len(wanted), TOGETHER):
            part = wanted[start : start + TOGETHER]
            images = self._editor.decode(torch.stack([self._latents[j][i] for j, i in part]))
            yield part, images
            flags = self._editor.unsafe(images)
            self.unsafe.update(place for place, flag in zip(part, flags, strict=True) if flag)
            rounded = round_pixels(images)
            self._pixels.update(zip(part, rounded, strict=True))

    def images(self, j: int) -> Images:
        """Return the images of job ``j``, all of which were decoded by ``look``."""
        return Images(tuple(self._pixels[place] for place in self.places(j)))


class ReadyImages:
    """Finished images: pixels or files.

    Args:
        decode: whether ``look`` decodes images, for scorers that embed them.
    """

    def __init__(
        self, jobs: Sequence[ImageJob], made: Sequence[Images], *, decode: bool = True
    ) -> None:
        self.jobs = jobs
        self.unsafe = {(j, i) for j, images in enumerate(made) for i in images.unsafe}
        self._made, self._decode = made, decode

    def places(self, j: int) -> list[Place]:
        """Return the place of every text's image of job ``j``; texts may share one."""
        return [(j, i) for i in self._made[j].shown]

    def look(self, places: Iterable[Place]) -> Iterator[tuple[list[Place], Tensor]]:
        """Decode images one by one, because they may differ in size."""
        for j, i in places if self._decode else ():
            name = f"the image of {self.jobs[j].proposal.key!r}"
            yield [(j, i)], as_floats(self._made[j].images[i], name)[None]

    def images(self, j: int) -> Images:
        """Return the images of job ``j``."""
        return self._made[j]


@dataclass(frozen=True)
class ScoredCandidate:
    """A candidate with its scores.

    Attributes:
        reason: the reason why the candidate is rejected; "" if it is accepted.
        scores: the scores of all scorers, except those that an early exit made unnecessary.
    """

    number: int
    draw: Draw
    reason: str
    scores: Scores = field(default_factory=dict)


CandidateImages = LazyImages | ReadyImages
"""The images of a batch, as scorers read them."""


def compared_texts(scorer: EmbeddingScorer, proposal: Proposal) -> Sequence[str]:
    """Return the texts that a scorer compares: the proposal's own, and any that the scorer adds."""
    further = getattr(scorer, "further_texts", None)
    return proposal.texts if further is None else (*proposal.texts, *further(proposal))


class BatchScores:
    """One batch while it is scored: each image is decoded and embedded once, base images first."""

    def __init__(self, shard: ShardScorer, images: CandidateImages) -> None:
        self._pipeline, self._texts, self._images = shard.pipeline, shard.texts, images
        self._embedders = shard.embedders
        self._embeddings: list[dict[Place, Tensor]] = [{} for _ in self._embedders]
        jobs = range(len(images.jobs))
        self._look(images.places(j)[0] for j in jobs)
        self._base_scores = [self._compare(j, base_only=True) for j in jobs]
        find_miss = self._pipeline.select.find_miss
        hopeful = [
            j
            for j in jobs
            if images.places(j)[0] not in images.unsafe
            and (self._is_control(j) or not find_miss(self._base_scores[j]))
        ]
        self._look(place for j in hopeful for place in images.places(j)[1:])
        self._others: dict[int, dict[str, float | tuple[float, ...]]] = {j: {} for j in hopeful}
        proposals = [images.jobs[j].proposal for j in hopeful]
        for scorer in self._pipeline.every_scorer:
            if hopeful and not isinstance(scorer, EmbeddingScorer):
                made = [images.images(j) for j in hopeful]
                found = scorer.score(proposals, made)
                every = check_results(found, made, type(scorer).__name__)
                for j, scores in zip(hopeful, every, strict=True):
                    self._others[j] |= check_scores(scores, scorer)

    def _look(self, places: Iterable[Place]) -> None:
        seen = self._embeddings[0] if self._embeddings else {}
        new = [place for place in dict.fromkeys(places) if place not in seen]
        for part, images in self._images.look(new):
            for scorer, known in zip(self._embedders, self._embeddings, strict=True):
                known.update(zip(part, scorer.images(images).cpu(), strict=True))

    def _compare(self, j: int, *, base_only: bool = False) -> dict[str, float | tuple[float, ...]]:
        """Return the scores by embeddings of a job's base image, or of all its images."""
        places = self._images.places(j)[: 1 if base_only else None]
        scores: dict[str, float | tuple[float, ...]] = {}
        for scorer, texts, seen in zip(self._embedders, self._texts, self._embeddings, strict=True):
            said = [texts[text] for text in compared_texts(scorer, self._images.jobs[j].proposal)]
            found = scorer.compare(said, [seen[place] for place in places])
            scores |= check_scores(found, scorer)
        return scores

    def _is_control(self, j: int) -> bool:
        return self._pipeline.select.is_control(self._images.jobs[j].proposal.edits)

    def score(self, j: int, number: int, draw: Draw) -> ScoredCandidate:
        """Return job ``j`` with its scores as candidate ``number`` of its set."""
        if j in self._others:
            scores: Scores = {**self._compare(j), **self._others[j]}
        else:
            scores = self._base_scores[j]
        if self._images.unsafe.intersection(self._images.places(j)):
            reason = UNSAFE
        else:
            reason = "" if self._is_control(j) else self._pipeline.select.reject(scores)
        return ScoredCandidate(number, draw, reason, scores)

    def encode(self, j: int) -> Images:
        """Return the encoded images of job ``j``."""
        images, job = self._images.images(j), self._images.jobs[j]
        files = tuple(self._pipeline.encode(image, job) for image in images.images)
        return Images(files, images.shown)


def check_scores(scores: Scores, scorer: Scorer) -> dict[str, float | tuple[float, ...]]:
    """Return a candidate's scores as plain numbers.

    Raises:
        FloatingPointError: for a score that is not finite.
    """
    who = type(scorer).__name__
    if not isinstance(scores, Mapping):
        raise UserError(f"{who} should return a mapping of names to numbers, not {scores!r:.200}")
    unknown = [name for name in scores if name not in scorer.names]
    if unknown:
        raise UserError(
            f"{who} gives the score {unknown[0]!r}, which is not among its names: "
            f"{', '.join(scorer.names)}"
        )
    checked: dict[str, float | tuple[float, ...]] = {}
    for name, value in scores.items():
        what, single = f"{who}: the score {name!r}", isinstance(value, Real)
        values: Any = (value,) if single else value
        if not isinstance(values, Sequence | np.ndarray) or not all(
            isinstance(number, Real) for number in values
        ):
            raise UserError(f"{what} should be a number, or a tuple of numbers, not {value!r:.200}")
        plain = tuple(map(float, values))
        if not all(map(math.isfinite, plain)):
            raise FloatingPointError(f"scores are not finite: {what} is {list(plain)}")
        checked[name] = plain[0] if single else plain
    return checked
