"""Making and scoring candidates: a batch yields scores and its best images.

Each image is decoded and embedded once.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import pairwise
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cfaug.core.atomic_files import write_file
from cfaug.core.errors import UserError
from cfaug.core.pixels import as_floats, round_pixels
from cfaug.core.protocols import EmbeddingScorer, Progressive, Scorer
from cfaug.core.safety.json_text import load_json
from cfaug.core.types import Draw, ImageJob, Images, Proposal, Scores
from cfaug.data.shards.shards import disk_errors
from cfaug.generate.failures import check_results
from cfaug.generate.recipe import CandidateSlice, Pipeline
from cfaug.generate.sampling import AnyDraws
from cfaug.imaging.select import HALVING, SAME_TEXT, UNSAFE, Selection

if TYPE_CHECKING:
    from torch import Tensor


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

    def decode(self, places: Iterable[Place]) -> Iterator[tuple[list[Place], Tensor]]:
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
        """Return the images of job ``j``, all of which were decoded by ``decode``."""
        return Images(tuple(self._pixels[place] for place in self.places(j)))


class ReadyImages:
    """Finished images: pixels or files.

    Args:
        decode: whether images are decoded, for scorers that embed them.
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

    def decode(self, places: Iterable[Place]) -> Iterator[tuple[list[Place], Tensor]]:
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
        self._embed_images(images.places(j)[0] for j in jobs)
        self._base_scores = [self._compare(j, base_only=True) for j in jobs]
        find_miss = self._pipeline.select.find_miss
        hopeful = [
            j
            for j in jobs
            if images.places(j)[0] not in images.unsafe
            and (self._is_control(j) or not find_miss(self._base_scores[j]))
        ]
        self._embed_images(place for j in hopeful for place in images.places(j)[1:])
        self._others: dict[int, dict[str, float | tuple[float, ...]]] = {j: {} for j in hopeful}
        proposals = [images.jobs[j].proposal for j in hopeful]
        for scorer in self._pipeline.every_scorer:
            if hopeful and not isinstance(scorer, EmbeddingScorer):
                made = [images.images(j) for j in hopeful]
                results = scorer.score(proposals, made)
                every = check_results(results, made, type(scorer).__name__)
                for j, scores in zip(hopeful, every, strict=True):
                    self._others[j] |= check_scores(scores, scorer)

    def _embed_images(self, places: Iterable[Place]) -> None:
        seen = self._embeddings[0] if self._embeddings else {}
        new = [place for place in dict.fromkeys(places) if place not in seen]
        for part, images in self._images.decode(new):
            for scorer, known in zip(self._embedders, self._embeddings, strict=True):
                known.update(zip(part, scorer.images(images).cpu(), strict=True))

    def _compare(self, j: int, *, base_only: bool = False) -> dict[str, float | tuple[float, ...]]:
        """Return the scores by embeddings of a job's base image, or of all its images."""
        places = self._images.places(j)[: 1 if base_only else None]
        scores: dict[str, float | tuple[float, ...]] = {}
        for scorer, texts, seen in zip(self._embedders, self._texts, self._embeddings, strict=True):
            embedded = [
                texts[text] for text in compared_texts(scorer, self._images.jobs[j].proposal)
            ]
            compared = scorer.compare(embedded, [seen[place] for place in places])
            scores |= check_scores(compared, scorer)
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
        where, single = f"{who}: the score {name!r}", isinstance(value, Real)
        values: Any = (value,) if single else value
        if not isinstance(values, Sequence | np.ndarray) or not all(
            isinstance(number, Real) for number in values
        ):
            raise UserError(
                f"{where} should be a number, or a tuple of numbers, not {value!r:.200}"
            )
        plain = tuple(map(float, values))
        if not all(map(math.isfinite, plain)):
            raise FloatingPointError(f"scores are not finite: {where} is {list(plain)}")
        checked[name] = plain[0] if single else plain
    return checked


Made = Mapping[int, "Tensor | Images"]
"""The output for a batch by number of the job: latents (texts, channels, height, width) that a
progressive editor still has to decode, or images. Jobs that were dropped on the way have none."""


@dataclass(frozen=True)
class ScoredSlice:
    """The results of a slice of candidates.

    Attributes:
        images: the encoded files of the best accepted candidates, by the candidate's number.
    """

    place: int
    candidates: tuple[ScoredCandidate, ...]
    images: dict[int, Images]


@dataclass(frozen=True)
class ShardScorer:
    """Makes and scores the candidates of one shard; its texts are embedded once.

    Attributes:
        texts: {text: embedding (dim,)} for each scorer that embeds, deciding scorers first.
        same: the places of sets with an edit that a progressive editor or a deciding scorer cannot
            see, because it lies after their limit of tokens. They are not drawn: the two images
            would be the same.
    """

    pipeline: Pipeline
    proposals: Sequence[Proposal]
    draws: AnyDraws | None = None
    texts: tuple[dict[str, Tensor], ...] = field(init=False)
    same: frozenset[int] = field(init=False)

    def __post_init__(self) -> None:
        if self.rounds:
            self._halving_scorer()
        embedded = []
        for scorer in self.embedders if self.proposals else ():
            words = [
                text for proposal in self.proposals for text in compared_texts(scorer, proposal)
            ]
            once = list(dict.fromkeys(words))
            embedded.append(dict(zip(once, scorer.texts(once).cpu(), strict=True)))
        object.__setattr__(self, "texts", tuple(embedded))
        same = set()
        editor, select = self.pipeline.editor, self.pipeline.select
        if isinstance(editor, Progressive):
            deciding = sum(isinstance(s, EmbeddingScorer) for s in self.pipeline.scorers.values())
            for i, proposal in enumerate(self.proposals):
                first, *others = proposal.texts
                if not select.is_control(proposal.edits) and (
                    any(
                        known[first].equal(known[text])
                        for known in embedded[:deciding]
                        for text in others
                    )
                    or editor.same_text(proposal.texts)
                ):
                    same.add(i)
        object.__setattr__(self, "same", frozenset(same))

    @property
    def rounds(self) -> int:
        """The number of times that the candidates of a set are halved during denoising."""
        return 0 if self.draws is None else self.draws.rounds

    @property
    def embedders(self) -> list[EmbeddingScorer]:
        """The scorers that embed; those whose scores decide come first."""
        return [
            scorer for scorer in self.pipeline.every_scorer if isinstance(scorer, EmbeddingScorer)
        ]

    def jobs(self, slices: Sequence[CandidateSlice]) -> list[ImageJob]:
        """Return the jobs of some slices, slice by slice."""
        return [
            ImageJob(self.proposals[piece.place], draw)
            for piece in slices
            if piece.place not in self.same
            for draw in piece.draws
        ]

    def sample(self, slices: Sequence[CandidateSlice]) -> Made:
        """Make the candidates of a batch, without decoding latents yet."""
        jobs = self.jobs(slices)
        editor = self.pipeline.editor
        if not jobs:
            return {}
        if not isinstance(editor, Progressive):
            return dict(zip(range(len(jobs)), editor.edit(jobs), strict=True))
        if not self.rounds:
            return dict(enumerate(editor.sample(jobs)))
        scorer, number = self._halving_scorer()
        select, known = self.pipeline.select, self.texts[number]
        of_set = [
            piece.place for piece in slices if piece.place not in self.same for _ in piece.draws
        ]

        def keep_better_halves(left: Sequence[int], guesses: list[Tensor]) -> list[int]:
            import torch

            assert select.maximise is not None
            rows = torch.cat(guesses).split(TOGETHER)
            images = [scorer.images(editor.decode(part)).cpu() for part in rows]
            seen = torch.cat(images).split([len(jobs[j].texts) for j in left])
            ranked = {}
            for j, shown in zip(left, seen, strict=True):
                texts = [known[text] for text in compared_texts(scorer, jobs[j].proposal)]
                scores = check_scores(scorer.compare(texts, list(shown)), scorer)
                ranked[j] = of_set[j], select.pool_rank(scores[select.maximise])
            return better_half(ranked)

        return editor.sample_halving(jobs, self.rounds, keep_better_halves)

    def _halving_scorer(self) -> tuple[EmbeddingScorer, int]:
        """Return the scorer that ranks candidates, and its number among the embedding scorers."""
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

    def score(self, slices: Sequence[CandidateSlice], made: Made) -> list[ScoredSlice]:
        """Score a batch; edits of a base image that misses its caption are not even decoded."""
        every = self.jobs(slices)
        reasons = dict.fromkeys(range(len(every)), HALVING)
        reasons |= {
            j: result.rejected if isinstance(result, Images) else "" for j, result in made.items()
        }
        left = [j for j in sorted(made) if not reasons[j]]
        jobs, kept = [every[j] for j in left], [made[j] for j in left]
        ready = [result for result in kept if isinstance(result, Images)]
        images: CandidateImages = ReadyImages(jobs, ready, decode=bool(self.embedders))
        editor = self.pipeline.editor
        if isinstance(editor, Progressive):
            images = LazyImages(
                editor, jobs, [result for result in kept if not isinstance(result, Images)]
            )
        batch = BatchScores(self, images)
        at = {j: seat for seat, j in enumerate(left)}
        scored, j = [], 0
        for piece in slices:
            if piece.place in self.same:
                scored.append(reject_slice(piece, SAME_TEXT))
                continue
            numbered = enumerate(piece.draws, piece.first)
            numbers = range(j, j + len(piece.draws))
            j = numbers.stop
            candidates = [
                batch.score(at[job], number, draw)
                if job in at
                else ScoredCandidate(number, draw, reasons[job])
                for job, (number, draw) in zip(numbers, numbered, strict=True)
            ]
            # The candidates kept of the whole set are among the best of their slice.
            best = choose(self.pipeline.select, self.proposals[piece.place], candidates)
            files = {k: batch.encode(at[numbers[k - piece.first]]) for k in sorted(best)}
            scored.append(ScoredSlice(piece.place, tuple(candidates), files))
        return scored


def choose(
    select: Selection, proposal: Proposal, candidates: Sequence[ScoredCandidate]
) -> list[int]:
    """Return the numbers of a proposal's kept candidates, the best first."""
    accepted = [candidate for candidate in candidates if not candidate.reason]
    if select.is_control(proposal.edits):
        return [candidate.number for candidate in accepted]
    return select.best(
        [(candidate.number, candidate.draw.seed, candidate.scores) for candidate in accepted]
    )


def reject_slice(piece: CandidateSlice, reason: str) -> ScoredSlice:
    """Return a slice whose candidates are all rejected."""
    numbered = enumerate(piece.draws, piece.first)
    candidates = tuple(ScoredCandidate(number, draw, reason) for number, draw in numbered)
    return ScoredSlice(piece.place, candidates, {})


def better_half(candidates: Mapping[int, tuple[int, float]]) -> list[int]:
    """Return the better half of every set's candidates, rounded up; ties go to the lower number.

    Args:
        candidates: {number of the candidate: (set, score)}.
    """
    of: dict[int, list[int]] = {}
    for number in sorted(candidates, key=lambda number: (-candidates[number][1], number)):
        of.setdefault(candidates[number][0], []).append(number)
    return sorted(number for ranked in of.values() for number in ranked[: -(-len(ranked) // 2)])


SUFFIX = ".parquet"
"""The end of the name of a candidate log."""


def candidate_log(
    shard: ShardScorer, scored: Sequence[ScoredSlice], kept: Set[tuple[int, int]]
) -> bytes:
    """Return the parquet file of a shard; the same candidates give the same bytes.

    It has one row for each candidate and edited member, not only for winners, so that thresholds
    can be moved, acceptance modelled and a second encoder compared without drawing images again.
    The columns are set, candidate, member (from 1; 0 in a set with a single text), the random
    parameters (seed, p, cfg and further ones by name, p_density if p is not uniform; absent without
    random parameters), every score by its name (null where an early exit made it unnecessary),
    accepted, kept (the winners), and reason ("" if accepted).

    Args:
        kept: the winners: pairs of the set's place and the candidate's number.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    drawn = []
    if shard.draws is not None:
        floats = [(name, pa.float32()) for name in shard.draws.columns]
        drawn = [("seed", pa.uint64()), *floats]
    schema = pa.schema(
        [
            ("set", pa.string()), ("candidate", pa.int32()), ("member", pa.int32()), *drawn,
            *((name, pa.float32()) for name in shard.pipeline.score_names),
            ("accepted", pa.bool_()), ("kept", pa.bool_()), ("reason", pa.string()),
        ]
    )  # fmt: skip
    rows = []
    for piece in scored:
        proposal = shard.proposals[piece.place]
        for candidate in piece.candidates:
            for member in range(1, len(proposal.texts)) or (0,):
                scores = {
                    name: value if isinstance(value, int | float) else value[member - 1]
                    for name, value in candidate.scores.items()
                    if member or isinstance(value, int | float)
                }
                rows.append(
                    {
                        **scores,
                        **draw_columns(candidate.draw),
                        "set": proposal.key,
                        "candidate": candidate.number,
                        "member": member,
                        "accepted": not candidate.reason,
                        "kept": (piece.place, candidate.number) in kept,
                        "reason": candidate.reason,
                    }
                )
    buffer = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, schema), buffer, compression="zstd")
    return buffer.getvalue()


def draw_columns(draw: Draw) -> dict[str, Any]:
    """Return the random parameters of a candidate by their names on disk."""
    density = {} if draw.p_density is None else {"p_density": draw.p_density}
    return {"seed": draw.seed, "p": draw.p, "cfg": draw.cfg, **draw.parameters, **density}


class Journal:
    """The completed batches of one shard, in a separate folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def save(self, number: int, plan: str, scored: Sequence[ScoredSlice]) -> None:
        """Save a batch; ``plan`` is the digest of its plan."""
        files = [
            file for piece in scored for images in piece.images.values() for file in images.images
        ]
        slices = []
        for piece in scored:
            candidates = []
            for candidate in piece.candidates:
                draw = {**vars(candidate.draw), "parameters": dict(candidate.draw.parameters)}
                scores = dict(candidate.scores)
                candidates.append({**vars(candidate), "draw": draw, "scores": scores})
            images = [
                [number, [len(file) for file in images.images], images.shown]
                for number, images in piece.images.items()
            ]
            slices.append({"place": piece.place, "candidates": candidates, "images": images})
        head = json.dumps({"plan": plan, "slices": slices}).encode()
        content = b"".join([len(head).to_bytes(8, "little"), head, *map(bytes, files)])
        with disk_errors(self.folder.parent, f"batch {number}", len(content)):
            self.folder.mkdir(parents=True, exist_ok=True)
            write_file(self._file(number), hashlib.sha256(content).digest() + content)

    def load(self, number: int, plan: str) -> list[ScoredSlice] | None:
        """Return a batch; ``None`` if it is missing, damaged, or belongs to another plan."""
        try:
            data = self._file(number).read_bytes()
        except OSError:
            return None
        digest, content = data[:32], memoryview(data)[32:]
        if hashlib.sha256(content).digest() != digest:
            return None
        start = 8 + int.from_bytes(content[:8], "little")
        about = load_json(bytes(content[8:start]))
        if about["plan"] != plan:
            return None
        scored = []
        for entry in about["slices"]:
            images = {}
            for candidate, lengths, shown in entry["images"]:
                cut = [start + sum(lengths[:i]) for i in range(len(lengths) + 1)]
                files = tuple(bytes(content[a:b]) for a, b in pairwise(cut))
                images[candidate] = Images(files, tuple(shown))
                start = cut[-1]
            candidates = []
            for candidate in entry["candidates"]:
                scores = {
                    name: tuple(value) if isinstance(value, list) else value
                    for name, value in candidate["scores"].items()
                }
                draw = Draw(**candidate["draw"])
                candidates.append(ScoredCandidate(**{**candidate, "draw": draw, "scores": scores}))
            scored.append(ScoredSlice(entry["place"], tuple(candidates), images))
        return scored

    def clear(self) -> None:
        """Remove every batch: the shard is complete."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _file(self, number: int) -> Path:
        return self.folder / f"{number:05d}.batch"
