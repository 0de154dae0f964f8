"""Candidates are made and scored: a batch in, its scores and its best images out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np

from cfaug.errors import UserError
from cfaug.generate.candidate_images import (
    TOGETHER,
    CandidateImages,
    LazyImages,
    Place,
    ReadyImages,
)
from cfaug.generate.failures import check_results
from cfaug.generate.pipeline import Pipeline
from cfaug.generate.plan import CandidateSlice
from cfaug.generate.sampling import AnyDraws
from cfaug.protocols import EmbeddingScorer, Progressive, Scorer
from cfaug.score.select import HALVING, SAME_TEXT, UNSAFE, Selection
from cfaug.types import Draw, ImageJob, Images, Proposal, Scores

if TYPE_CHECKING:
    from torch import Tensor

Made = Mapping[int, "Tensor | Images"]
"""What was made of a batch, by number of the job: latents (texts, channels, height, width) that a
progressive editor still has to decode, or images. Jobs that were given up on the way have none."""


def find_rejection(made: Made, job: int) -> str:
    """Return why nothing of a job is scored, "" if it is."""
    if job not in made:
        return HALVING
    one = made[job]
    return one.rejected if isinstance(one, Images) else ""


@dataclass(frozen=True)
class ScoredCandidate:
    """One candidate.

    Attributes:
        number: among those of its set.
        draw: its random parameters.
        reason: why it is rejected, "" if it is accepted.
        scores: of all scorers, as far as an early exit did not make them unnecessary.
    """

    number: int
    draw: Draw
    reason: str
    scores: Scores = field(default_factory=dict)


@dataclass(frozen=True)
class ScoredSlice:
    """What came of a slice of candidates.

    Attributes:
        place: of the set among the shard's.
        candidates: every one of the slice.
        images: encoded files of the best accepted ones, by number of the candidate.
    """

    place: int
    candidates: tuple[ScoredCandidate, ...]
    images: dict[int, Images]


@dataclass(frozen=True)
class ShardScorer:
    """Makes and scores the candidates of one shard; its texts are embedded once.

    Attributes:
        pipeline: what makes and scores images.
        proposals: the shard's sets.
        draws: how candidates are drawn; ``None`` if nothing about them is random.
        texts: embeddings of every text, (dim,), for each scorer that embeds, those that decide
            first.
        same: sets with an edit that a progressive editor or a deciding scorer, which read only so
            many tokens, cannot see. They are not drawn: the two images could only be the same.

    Raises:
        UserError: if candidates are to be halved and no progressive editor draws them, or no
            embedding scorer gives the score that ranks them.
    """

    pipeline: Pipeline
    proposals: Sequence[Proposal]
    draws: AnyDraws | None = None
    texts: tuple[dict[str, Tensor], ...] = field(init=False)
    same: frozenset[int] = field(init=False)

    def __post_init__(self) -> None:
        if self.rounds:
            self._halving_scorer()
        embedded = tuple(self._embed(one) for one in (self.embedders if self.proposals else ()))
        object.__setattr__(self, "texts", embedded)
        same = (
            place
            for place, one in enumerate(self.proposals)
            if not self.pipeline.select.is_control(one.edits) and self._is_same(one.texts)
        )
        object.__setattr__(self, "same", frozenset(same))

    def _embed(self, scorer: EmbeddingScorer) -> dict[str, Tensor]:
        """Return the embeddings of every text that a scorer compares, each embedded once."""
        words = [text for one in self.proposals for text in compared_texts(scorer, one)]
        once = list(dict.fromkeys(words))
        return dict(zip(once, scorer.texts(once).cpu(), strict=True))

    @property
    def rounds(self) -> int:
        """How often on the way the candidates of a set are halved."""
        return 0 if self.draws is None else self.draws.rounds

    @property
    def embedders(self) -> list[EmbeddingScorer]:
        """The scorers that embed, those that decide first."""
        return [one for one in self.pipeline.every_scorer if isinstance(one, EmbeddingScorer)]

    def _is_same(self, texts: Sequence[str]) -> bool:
        editor = self.pipeline.editor
        if not isinstance(editor, Progressive):
            return False
        deciding = sum(isinstance(s, EmbeddingScorer) for s in self.pipeline.scorers.values())
        for known in self.texts[:deciding]:
            base, *edited = (known[text] for text in texts)
            if any(base.equal(one) for one in edited):
                return True
        return editor.same_text(texts)

    def jobs(self, slices: Sequence[CandidateSlice]) -> list[ImageJob]:
        """Return what is to be made, slice by slice."""
        return [
            ImageJob(self.proposals[one.place], draw)
            for one in slices
            if one.place not in self.same
            for draw in one.draws
        ]

    def sample(self, slices: Sequence[CandidateSlice]) -> Made:
        """Make the candidates of a batch, as far as they need not be decoded yet."""
        jobs = self.jobs(slices)
        editor = self.pipeline.editor
        if not jobs:
            return {}
        if not isinstance(editor, Progressive):
            return dict(zip(range(len(jobs)), editor.edit(jobs), strict=True))
        if not self.rounds:
            return dict(enumerate(editor.sample(jobs)))
        scorer, known = self._halving_scorer()
        of_set = [one.place for one in slices if one.place not in self.same for _ in one.draws]

        def keep_better_halves(left: Sequence[int], guesses: list[Tensor]) -> list[int]:
            values = self._rank_guesses(scorer, known, [jobs[j] for j in left], guesses)
            return better_half({j: (of_set[j], v) for j, v in zip(left, values, strict=True)})

        return editor.sample_halving(jobs, self.rounds, keep_better_halves)

    def _halving_scorer(self) -> tuple[EmbeddingScorer, int]:
        """Return the scorer that ranks candidates, and its number among those that embed."""
        name = self.pipeline.select.maximise
        if isinstance(self.pipeline.editor, Progressive):
            for number, scorer in enumerate(self.embedders):
                if name in scorer.names:
                    return scorer, number
        raise UserError(
            "recipe.draws.sampling=halving(r) needs an image editor that draws step by step, and a "
            f"scorer by embeddings that gives the score selection.maximise={name}: use "
            "sampling=independent"
        )

    def _rank_guesses(
        self,
        scorer: EmbeddingScorer,
        number: int,
        jobs: Sequence[ImageJob],
        latents: Sequence[Tensor],
    ) -> list[float]:
        """Return the score of each job's guessed images that ranks candidates."""
        import torch

        editor, select = self.pipeline.editor, self.pipeline.select
        assert isinstance(editor, Progressive)
        assert select.maximise is not None
        rows = torch.cat(list(latents)).split(TOGETHER)
        images = [scorer.images(editor.decode(part)).cpu() for part in rows]
        seen = torch.cat(images).split([len(job.texts) for job in jobs])
        values = []
        for job, shown in zip(jobs, seen, strict=True):
            compared = compared_texts(scorer, job.proposal)
            texts = [self.texts[number][text] for text in compared]
            scores = _check_scores(scorer.compare(texts, list(shown)), scorer)
            values.append(select.pool(scores[select.maximise]))
        return values

    def score(self, slices: Sequence[CandidateSlice], made: Made) -> list[ScoredSlice]:
        """Score a batch; edits of a base image that misses its caption are not even decoded.

        Raises:
            FloatingPointError: for a score that is not finite.
        """
        every = self.jobs(slices)
        left = [j for j in sorted(made) if not find_rejection(made, j)]
        batch = BatchScores(self, self._images([every[j] for j in left], [made[j] for j in left]))
        at = {j: seat for seat, j in enumerate(left)}
        scored, j = [], 0
        for one in slices:
            if one.place in self.same:
                scored.append(reject_slice(one, SAME_TEXT))
                continue
            numbered = enumerate(one.draws, one.first)
            jobs = range(j, j + len(one.draws))
            j = jobs.stop
            candidates = [
                batch.score(at[job], number, draw)
                if job in at
                else ScoredCandidate(number, draw, find_rejection(made, job))
                for job, (number, draw) in zip(jobs, numbered, strict=True)
            ]
            # Candidates that are kept of the whole set are among the best of their slice.
            best = choose(self.pipeline.select, self.proposals[one.place], candidates)
            images = {k: batch.encode(at[jobs[k - one.first]]) for k in sorted(best)}
            scored.append(ScoredSlice(one.place, tuple(candidates), images))
        return scored

    def _images(self, jobs: list[ImageJob], made: list[Tensor | Images]) -> CandidateImages:
        editor = self.pipeline.editor
        if isinstance(editor, Progressive):
            return LazyImages(editor, jobs, [one for one in made if not isinstance(one, Images)])
        ready = [one for one in made if isinstance(one, Images)]
        return ReadyImages(jobs, ready, decode=bool(self.embedders))


def choose(
    select: Selection, proposal: Proposal, candidates: Sequence[ScoredCandidate]
) -> list[int]:
    """Return the numbers of a proposal's candidates that are kept, the best first."""
    accepted = [one for one in candidates if not one.reason]
    if select.is_control(proposal.edits):
        return [one.number for one in accepted]
    return select.best([(one.number, one.draw.seed, one.scores) for one in accepted])


def compared_texts(scorer: EmbeddingScorer, proposal: Proposal) -> Sequence[str]:
    """Return the texts that a scorer compares: a proposal's own, and what it asks for beside."""
    further = getattr(scorer, "further_texts", None)
    return proposal.texts if further is None else (*proposal.texts, *further(proposal))


def reject_slice(one: CandidateSlice, reason: str) -> ScoredSlice:
    """Return a slice of which nothing can be made."""
    numbered = enumerate(one.draws, one.first)
    return ScoredSlice(
        one.place, tuple(ScoredCandidate(number, draw, reason) for number, draw in numbered), {}
    )


def better_half(candidates: Mapping[int, tuple[int, float]]) -> list[int]:
    """Return the better half of every set's candidates, rounded up; equals go by their number.

    Args:
        candidates: (set, score) by number.
    """
    of: dict[int, list[int]] = {}
    for number in sorted(candidates, key=lambda number: (-candidates[number][1], number)):
        of.setdefault(candidates[number][0], []).append(number)
    return sorted(number for ranked in of.values() for number in ranked[: -(-len(ranked) // 2)])


class BatchScores:
    """One batch while it is scored: each image is decoded and embedded once, base images first.

    Args:
        shard: whose texts are embedded.
        images: of the batch's candidates.
    """

    def __init__(self, shard: ShardScorer, images: CandidateImages) -> None:
        self._pipeline, self._texts, self._images = shard.pipeline, shard.texts, images
        self._embedders = shard.embedders
        self._embeddings: list[dict[Place, Tensor]] = [{} for _ in self._embedders]
        jobs = range(len(images.jobs))
        self._look(images.places(j)[0] for j in jobs)
        self._base_scores = [self._compare(j, base_only=True) for j in jobs]
        self._hopeful = [j for j in jobs if self._base_passes(j)]
        self._look(place for j in self._hopeful for place in images.places(j)[1:])
        self._others = self._score_others()

    def _look(self, places: Iterable[Place]) -> None:
        seen = self._embeddings[0] if self._embeddings else {}
        new = [place for place in dict.fromkeys(places) if place not in seen]
        for part, images in self._images.look(new):
            for scorer, known in zip(self._embedders, self._embeddings, strict=True):
                known.update(zip(part, scorer.images(images).cpu(), strict=True))

    def _compare(self, j: int, *, base_only: bool = False) -> dict[str, float | tuple[float, ...]]:
        """Return a job's scores by embeddings, of its base image or of all its images."""
        places = self._images.places(j)[: 1 if base_only else None]
        scores: dict[str, float | tuple[float, ...]] = {}
        for scorer, texts, seen in zip(self._embedders, self._texts, self._embeddings, strict=True):
            said = [texts[text] for text in compared_texts(scorer, self._images.jobs[j].proposal)]
            found = scorer.compare(said, [seen[place] for place in places])
            scores |= _check_scores(found, scorer)
        return scores

    def _base_passes(self, j: int) -> bool:
        safe = self._images.places(j)[0] not in self._images.unsafe
        passes = self._is_control(j) or not self._pipeline.select.find_miss(self._base_scores[j])
        return safe and passes

    def _is_control(self, j: int) -> bool:
        return self._pipeline.select.is_control(self._images.jobs[j].proposal.edits)

    def _score_others(self) -> Mapping[int, Scores]:
        """Return what scorers without embeddings say of the candidates that may be accepted."""
        found: dict[int, dict[str, float | tuple[float, ...]]] = {j: {} for j in self._hopeful}
        proposals = [self._images.jobs[j].proposal for j in found]
        for scorer in self._pipeline.every_scorer:
            if found and not isinstance(scorer, EmbeddingScorer):
                images = [self._images.images(j) for j in found]
                every = scorer.score(proposals, images)
                for j, scores in zip(
                    found, check_results(every, images, type(scorer).__name__), strict=True
                ):
                    found[j] |= _check_scores(scores, scorer)
        return found

    def score(self, j: int, number: int, draw: Draw) -> ScoredCandidate:
        """Return the scores of job ``j``, candidate ``number`` of its set."""
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


def _check_scores(scores: Scores, scorer: Scorer) -> dict[str, float | tuple[float, ...]]:
    """Return a candidate's scores as plain numbers.

    Raises:
        UserError: for what is no number, or a score that the scorer does not name.
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
    return {name: _check_score(f"{who}: the score {name!r}", v) for name, v in scores.items()}


def _check_score(what: str, value: Any) -> float | tuple[float, ...]:
    single = isinstance(value, Real)
    values = (value,) if single else value
    if not isinstance(values, Sequence | np.ndarray) or not all(
        isinstance(one, Real) for one in values
    ):
        raise UserError(f"{what} should be a number, or a tuple of numbers, not {value!r:.200}")
    plain = tuple(map(float, values))
    if not all(map(math.isfinite, plain)):
        raise FloatingPointError(f"scores are not finite: {what} is {list(plain)}")
    return plain[0] if single else plain
