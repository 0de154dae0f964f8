"""Candidates are drawn, looked at, and judged: a batch in, its scores and its best images out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from cfaug.generate.pipeline import Pipeline
from cfaug.generate.plan import CandidateSlice
from cfaug.score.select import Scores
from cfaug.score.similarity import cosine, direction
from cfaug.types import Draw, ImageJob, Proposal

if TYPE_CHECKING:
    from torch import Tensor

LOOK = 32
"""Images that are decoded and embedded together: bounds the memory of a batch of large images."""

Place = tuple[int, int]
"""An image of a batch: number of its job, number within the job."""


@dataclass(frozen=True)
class Judged:
    """One candidate: its chance, its cosines, and why it is rejected ("" if it is not).

    ``report`` are the cosines of a second encoder, which decides nothing.
    """

    number: int
    draw: Draw
    reason: str
    scores: Scores
    report: Scores | None = None


@dataclass(frozen=True)
class Drawn:
    """What came of a portion: every candidate, and the encoded images of its best accepted ones."""

    place: int
    judged: tuple[Judged, ...]
    images: dict[int, tuple[bytes, ...]]


@dataclass(frozen=True)
class ShardScorer:
    """A shard's sets on a studio's desk: texts embedded once, sets without a difference known.

    Attributes:
        studio: draws and judges.
        sets: of the shard.
        rounds: how often on the way the candidates of a set are halved.
        texts: embeddings of every text, (dim,), for each scorer.
        same: sets with an edit that the editor or the scorer, which read so many tokens only,
            cannot see. They are not drawn: the two images could only be the same.
    """

    studio: Pipeline
    sets: Sequence[Proposal]
    rounds: int = 0
    texts: tuple[dict[str, Tensor], ...] = field(init=False)
    same: frozenset[int] = field(init=False)

    def __post_init__(self) -> None:
        words = list(dict.fromkeys(text for one in self.sets for text in one.texts))
        embedded = tuple(
            dict(zip(words, scorer.texts(words).cpu(), strict=True))
            for scorer in (self.studio.scorers if words else ())
        )
        object.__setattr__(self, "texts", embedded)
        same = (place for place, one in enumerate(self.sets) if self._is_same(one.texts))
        object.__setattr__(self, "same", frozenset(same))

    def _is_same(self, texts: Sequence[str]) -> bool:
        base, *edited = (self.texts[0][text] for text in texts)
        return any(base.equal(one) for one in edited) or self.studio.editor.same_text(texts)

    def jobs(self, portions: Sequence[CandidateSlice]) -> list[ImageJob]:
        """Return what is to be drawn, portion by portion."""
        return [
            ImageJob(self.sets[portion.place], draw)
            for portion in portions
            if portion.place not in self.same
            for draw in portion.draws
        ]

    def sample(self, portions: Sequence[CandidateSlice]) -> dict[int, Tensor]:
        """Draw a batch: latents (texts, channels, height, width) by number of the job.

        Jobs that were given up on the way have none.
        """
        jobs = self.jobs(portions)
        editor = self.studio.editor
        if not self.rounds:
            return dict(enumerate(editor.sample(jobs))) if jobs else {}
        of_set = [
            portion.place
            for portion in portions
            if portion.place not in self.same
            for _ in portion.draws
        ]

        def better_halves(left: Sequence[int], guesses: list[Tensor]) -> list[int]:
            values = self._directions([jobs[j] for j in left], guesses)
            return better_half({j: (of_set[j], v) for j, v in zip(left, values, strict=True)})

        return editor.sample_halving(jobs, self.rounds, better_halves)

    def _directions(self, jobs: Sequence[ImageJob], latents: Sequence[Tensor]) -> list[float]:
        """Return the pooled directional similarity of each job, to the scorer that decides."""
        import torch

        rows = torch.cat(list(latents)).split(LOOK)
        images = [self.studio.scorer.images(self.studio.editor.decode(part)).cpu() for part in rows]
        seen = torch.cat(images).split([len(job.texts) for job in jobs])
        found = []
        for job, (base, *edited) in zip(jobs, seen, strict=True):
            text, *after = (self.texts[0][words] for words in job.texts)
            shown, said = torch.stack(edited), torch.stack(after)
            values = direction(base.expand_as(shown), shown, text.expand_as(said), said)[0]
            found.append(self.studio.select.pooled(_finite(values.tolist())))
        return found

    def judge(
        self, portions: Sequence[CandidateSlice], latents: Mapping[int, Tensor]
    ) -> list[Drawn]:
        """Score a batch; edits of a base image that misses its caption are not even decoded.

        Raises:
            FloatingPointError: for a score that is not finite.
        """
        every = self.jobs(portions)
        left = sorted(latents)
        sitting = BatchScores(self, [every[j] for j in left], [latents[j] for j in left])
        at = {j: seat for seat, j in enumerate(left)}
        drawn, j = [], 0
        for portion in portions:
            if portion.place in self.same:
                judged = [
                    Judged(number, draw, "same_text", Scores())
                    for number, draw in enumerate(portion.draws, portion.first)
                ]
                drawn.append(Drawn(portion.place, tuple(judged), {}))
                continue
            jobs = range(j, j + len(portion.draws))
            j = jobs.stop
            judged = [
                sitting.judged(at[job], number)
                if job in at
                else Judged(number, every[job].draw, "halving", Scores())
                for number, job in enumerate(jobs, portion.first)
            ]
            # Whoever is kept of the whole set is among the best of its portion.
            best = self.studio.select.best(
                [(one.number, one.draw.seed, one.scores) for one in judged if not one.reason]
            )
            images = {k: sitting.encoded(at[jobs[k - portion.first]]) for k in sorted(best)}
            drawn.append(Drawn(portion.place, tuple(judged), images))
        return drawn


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
    """One batch while it is judged: every image that was decoded, and what was seen in it."""

    def __init__(
        self, desk: ShardScorer, jobs: Sequence[ImageJob], latents: Sequence[Tensor]
    ) -> None:
        self.studio, self.texts, self.jobs, self.latents = desk.studio, desk.texts, jobs, latents
        self.embeddings: list[dict[Place, Tensor]] = [{} for _ in self.studio.scorers]
        self.pixels: dict[Place, np.ndarray] = {}
        self.unsafe: set[Place] = set()
        # The base image does not depend on p: candidates of a tree have one between them.
        first: dict[tuple[str, int, float], int] = {}
        self.base = [
            first.setdefault((job.texts[0], job.draw.seed, job.draw.cfg), j)
            for j, job in enumerate(jobs)
        ]
        self._look((j, 0) for j in first.values())
        self.hopeful = [self._base_passes(j) for j in range(len(jobs))]
        self._look(
            place for j, hope in enumerate(self.hopeful) if hope for place in self.places(j)[1:]
        )

    def places(self, j: int) -> list[Place]:
        """Return where a job's images are, the base first."""
        return [(self.base[j], 0), *((j, i) for i in range(1, len(self.jobs[j].texts)))]

    def _look(self, places: Iterable[Place]) -> None:
        import torch

        which = list(places)
        for start in range(0, len(which), LOOK):
            part = which[start : start + LOOK]
            images = self.studio.editor.decode(torch.stack([self.latents[j][i] for j, i in part]))
            for scorer, known in zip(self.studio.scorers, self.embeddings, strict=True):
                known.update(zip(part, scorer.images(images).cpu(), strict=True))
            flags = self.studio.editor.unsafe(images)
            self.unsafe.update(place for place, flag in zip(part, flags, strict=True) if flag)
            rounded = (images * 255).round().clamp(0, 255).to(torch.uint8)
            self.pixels.update(zip(part, rounded.permute(0, 2, 3, 1).cpu().numpy(), strict=True))

    def _base_passes(self, j: int) -> bool:
        safe = (self.base[j], 0) not in self.unsafe
        return safe and self.studio.select.passes_base(self._sim_0(0, j))

    def _sim_0(self, scorer: int, j: int) -> float:
        image = self.embeddings[scorer][self.base[j], 0]
        text = self.texts[scorer][self.jobs[j].texts[0]]
        return _finite(cosine(image[None], text[None])[0].tolist())[0]

    def judged(self, j: int, number: int) -> Judged:
        """Return what is to be said of a job's candidate."""
        scores, *others = (self._scores(scorer, j) for scorer in range(len(self.texts)))
        flagged = self.unsafe.intersection(self.places(j))
        reason = "unsafe" if flagged else self.studio.select.reason(scores)
        return Judged(number, self.jobs[j].draw, reason, scores, others[0] if others else None)

    def _scores(self, scorer: int, j: int) -> Scores:
        import torch

        sim_0 = self._sim_0(scorer, j)
        if not self.hopeful[j]:
            return Scores(sim_0)
        image, *edited = (self.embeddings[scorer][place] for place in self.places(j))
        text, *after = (self.texts[scorer][words] for words in self.jobs[j].texts)
        images, texts = torch.stack(edited), torch.stack(after)
        bases = image.expand_as(images)
        return Scores(
            sim_0,
            _finite(cosine(images, texts)[0].tolist()),
            _finite(cosine(images, bases)[0].tolist()),
            _finite(direction(bases, images, text.expand_as(texts), texts)[0].tolist()),
        )

    def encoded(self, j: int) -> tuple[bytes, ...]:
        """Encode a job's images."""
        images = (Image.fromarray(self.pixels[place]) for place in self.places(j))
        return tuple(self.studio.encode(image, self.jobs[j]) for image in images)


def _finite(values: Sequence[float]) -> tuple[float, ...]:
    if not np.isfinite(values).all():
        raise FloatingPointError(f"scores are not finite: {list(values)}")
    return tuple(values)
