"""The second stage: a shard's sets to images, batch by batch, and the shard's files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cfaug.data.storage.shards import write_shard
from cfaug.generate.batch_checkpoints import Journal
from cfaug.generate.candidate_scoring import Drawn, Judged, ShardScorer
from cfaug.generate.failures import Attempt, attempt
from cfaug.generate.log import SUFFIX, candidate_log
from cfaug.generate.plan import Batch, digest
from cfaug.generate.progress import ProgressReporter
from cfaug.types import CounterfactualSet, Member, Proposal


def draw_shard(
    desk: ShardScorer,
    batches: Sequence[Batch],
    journal: Journal,
    watch: ProgressReporter,
    *,
    overlap: bool,
) -> Attempt[Drawn]:
    """Draw what the journal does not hold yet, and return everything.

    Args:
        desk: the shard's sets.
        batches: the plan.
        journal: of finished batches; one in which something failed is never finished.
        watch: counts candidates.
        overlap: judge a batch in a second thread while the next one is drawn.

    Returns:
        Every portion by its place in the plan, and what failed.
    """
    plans = [digest(batch, desk.sets) for batch in batches]
    found: dict[int, Attempt[Drawn]] = {}
    for number, plan in enumerate(plans):
        drawn = journal.load(number, plan)
        if drawn is not None:
            found[number] = Attempt(dict(enumerate(drawn)), {})
            watch.skip(sum(len(one.judged) for one in drawn))
    missing = [(number, batch) for number, batch in enumerate(batches) if number not in found]
    for number, attempted in (_overlapped if overlap else _in_turn)(desk, missing):
        found[number] = attempted
        if not attempted.failed:
            drawn = [attempted.done[i] for i in range(len(attempted.done))]
            journal.save(number, plans[number], drawn)
        judged = [one for drawn in attempted.done.values() for one in drawn.judged]
        watch.count(len(judged), sum(not one.reason for one in judged))
    whole: Attempt[Drawn] = Attempt({}, {})
    start = 0
    for number, batch in enumerate(batches):
        whole.done.update({start + i: one for i, one in found[number].done.items()})
        whole.failed.update({start + i: one for i, one in found[number].failed.items()})
        start += len(batch)
    return whole


def _in_turn(
    desk: ShardScorer, batches: Sequence[tuple[int, Batch]]
) -> Iterator[tuple[int, Attempt[Drawn]]]:
    for number, batch in batches:
        yield number, _attempt(desk, batch)


def _overlapped(
    desk: ShardScorer, batches: Sequence[tuple[int, Batch]]
) -> Iterator[tuple[int, Attempt[Drawn]]]:
    """Draw in this thread, judge in another: decoding, CLIP and PNG hide behind the sampler."""
    with ThreadPoolExecutor(1) as pool:
        before: tuple[int, Batch, Future[list[Drawn]] | None] | None = None
        for number, batch in batches:
            try:
                latents = desk.sample(batch)
            except Exception:
                latents = None
            if before is not None:
                yield before[0], _settled(desk, *before[1:])
            judged = None if latents is None else pool.submit(desk.judge, batch, latents)
            before = number, batch, judged
        if before is not None:
            yield before[0], _settled(desk, *before[1:])


def _settled(desk: ShardScorer, batch: Batch, judged: Future[list[Drawn]] | None) -> Attempt[Drawn]:
    """Wait for a batch; one that failed is done again in this thread, to learn who is to blame."""
    if judged is None or judged.exception() is not None:
        return _attempt(desk, batch)
    return Attempt(dict(enumerate(judged.result())), {})


def _attempt(desk: ShardScorer, batch: Batch) -> Attempt[Drawn]:
    return attempt(
        batch,
        lambda portions: desk.judge(portions, desk.sample(portions)),
        lambda portion: desk.sets[portion.place].key,
    )


@dataclass(frozen=True)
class Provenance:
    """What a shard and its sets say of themselves.

    Attributes:
        about: recipe, zoo and whatever else names the run; JSON.
        models: what edited, drew and judged.
        edits: hash of the shard's edits, which it must be made of.
    """

    about: Mapping[str, Any]
    models: Mapping[str, Mapping[str, str]]
    edits: str


def publish(
    desk: ShardScorer, found: Attempt[Drawn], folder: Path, number: int, provenance: Provenance
) -> None:
    """Choose the winners of a shard and write its tar, its candidate log and its commit.

    Sets without a result are left out of tar and log, and listed in the commit.
    """
    lost = found.lost
    whole = [
        one
        for one in _merged([found.done[i] for i in sorted(found.done)])
        if desk.sets[one.place].key not in lost
    ]
    sets, kept = [], set()
    for one in whole:
        winners = _winners(desk, one)
        kept |= {(one.place, winner.number) for winner in winners}
        sets += [_set(desk, one, winner, rank, provenance) for rank, winner in enumerate(winners)]
    reasons = Counter(judged.reason for one in whole for judged in one.judged)
    accepted = reasons.pop("", 0)
    about = {
        **provenance.about,
        "models": {name: dict(model) for name, model in provenance.models.items()},
        "edits": provenance.edits,
        "caption_sets": len(desk.sets),
        "candidates": accepted + reasons.total(),
        "accepted": accepted,
        "rejected": dict(reasons),
        "without": sum(not one.images for one in whole),
        "failed": [asdict(one) for one in lost.values()],
    }
    log = candidate_log(desk.sets, whole, kept, report=desk.studio.report is not None)
    write_shard(sets, folder, number, about=about, beside={SUFFIX: log})


def _merged(portions: Sequence[Drawn]) -> list[Drawn]:
    """Put together what batches had of one set."""
    of: dict[int, list[Drawn]] = {}
    for one in portions:
        of.setdefault(one.place, []).append(one)
    return [
        Drawn(
            place,
            tuple(judged for part in parts for judged in part.judged),
            {k: images for part in parts for k, images in part.images.items()},
        )
        for place, parts in sorted(of.items())
    ]


def _winners(desk: ShardScorer, drawn: Drawn) -> list[Judged]:
    accepted = [(one.number, one.draw.seed, one.scores) for one in drawn.judged if not one.reason]
    by_number = {one.number: one for one in drawn.judged}
    return [by_number[number] for number in desk.studio.select.best(accepted)]


def _set(
    desk: ShardScorer, drawn: Drawn, winner: Judged, rank: int, provenance: Provenance
) -> CounterfactualSet:
    one: Proposal = desk.sets[drawn.place]
    select = desk.studio.select
    chance = {
        "seed": str(winner.draw.seed),  # JSON's numbers end at 2 ** 53 in many a reader
        "p": winner.draw.p,
        "cfg": winner.draw.cfg,
        "candidate": winner.number,
    }
    return CounterfactualSet(
        key=one.key if select.keep == 1 else f"{one.key}-{rank}",
        group=one.group,
        members=tuple(
            Member(text, str(i), one.key, edit, extra=chance)
            for i, (text, edit) in enumerate(zip(one.texts, one.edits, strict=True))
        ),
        images={str(i): image for i, image in enumerate(drawn.images[winner.number])},
        scores=select.overall(winner.scores),
        provenance={
            **provenance.about,
            "caption": dict(one.extra),
            "models": {name: dict(model) for name, model in provenance.models.items()},
        },
    )
