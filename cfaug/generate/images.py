"""The second stage: images for a shard's proposals, batch by batch, and the shard's files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

from cfaug.data.shards.shards import write_shard
from cfaug.generate.candidate_scoring import (
    SUFFIX,
    Journal,
    ScoredCandidate,
    ScoredSlice,
    ShardScorer,
    candidate_log,
    choose,
    reject_slice,
)
from cfaug.generate.failures import Attempt, ProgressReporter, attempt, say_some
from cfaug.generate.recipe import Batch, ShardPlan, digest
from cfaug.generate.sampling import Trial
from cfaug.generate.sets import Provenance, count_yields, make_sets


def draw_shard(
    shard: ShardScorer,
    plan: ShardPlan,
    journal: Journal,
    progress: ProgressReporter,
    *,
    overlap: bool,
    stop_at_failure: bool = False,
) -> Attempt[ScoredSlice]:
    """Draw the batches that the journal does not have yet, round by round, and return all of them.

    Args:
        shard: the shard's sets, and the parts that draw and score them.
        plan: the shard's rounds of batches.
        journal: the completed batches; a batch in which an item failed is never completed.
        progress: the counter of finished candidates.
        overlap: whether a batch is scored in a second thread while the next one is drawn.
        stop_at_failure: whether drawing stops after a round in which an item failed.

    Returns:
        Every slice by its place in the plan, and the failures.
    """
    drawn = _Drawn(shard)
    done = 0
    for number in range(plan.rounds):
        batches = dict(enumerate(plan.batches(number, drawn.trials, drawn.lost), done))
        done += len(batches)
        found = _draw_round(shard, batches, journal, progress, drawn, overlap=overlap)
        for at, batch in batches.items():
            drawn.settle(batch, found[at])
        if stop_at_failure and drawn.whole.failed:
            break
    return drawn.whole


def _draw_round(
    shard: ShardScorer,
    batches: Mapping[int, Batch],
    journal: Journal,
    progress: ProgressReporter,
    drawn: _Drawn,
    *,
    overlap: bool,
) -> dict[int, Attempt[ScoredSlice]]:
    plans = {number: digest(batch, shard.proposals) for number, batch in batches.items()}
    found: dict[int, Attempt[ScoredSlice]] = {}
    for number, plan in plans.items():
        scored = journal.load(number, plan)
        if scored is not None:
            found[number] = Attempt(dict(enumerate(scored)), {})
            drawn.drop_overtaken(scored)
            progress.skip(sum(len(one.candidates) for one in scored))
    missing = [(number, batch) for number, batch in batches.items() if number not in found]
    for number, attempted in (_overlap if overlap else _take_turns)(shard, missing):
        found[number] = attempted
        if not attempted.failed:
            scored = [attempted.done[i] for i in range(len(attempted.done))]
            journal.save(number, plans[number], scored)
        drawn.drop_overtaken(attempted.done.values())
        candidates = [
            candidate for scored in attempted.done.values() for candidate in scored.candidates
        ]
        progress.count(len(candidates), sum(not candidate.reason for candidate in candidates))
    return found


class _Drawn:
    """The slices of a shard that were drawn so far.

    Attributes:
        whole: the slices by their places in the plan, and the failures.
        trials: the scored candidates of each set, in order, by the set's place.
        lost: the places of sets in which an item failed.
    """

    def __init__(self, shard: ShardScorer) -> None:
        self.whole: Attempt[ScoredSlice] = Attempt({}, {})
        self.trials: dict[int, list[Trial]] = {}
        self.lost: set[int] = set()
        self._shard, self._slices = shard, 0
        self._of: dict[int, list[ScoredSlice]] = {}

    def settle(self, batch: Batch, found: Attempt[ScoredSlice]) -> None:
        """Add the results of a batch; batches come in the order of the plan."""
        start = self._slices
        self._slices += len(batch)
        self.whole.done.update({start + i: one for i, one in found.done.items()})
        self.whole.failed.update({start + i: one for i, one in found.failed.items()})
        self.lost.update(batch[i].place for i in found.lost_by_place())
        select = self._shard.pipeline.select
        for i in sorted(found.done):
            self.trials.setdefault(batch[i].place, []).extend(
                (candidate.draw.p, select.find_margins(candidate.scores))
                for candidate in found.done[i].candidates
            )

    def drop_overtaken(self, scored: Iterable[ScoredSlice]) -> None:
        """Drop images once better ones of their set are known: memory is too small for all."""
        select = self._shard.pipeline.select
        for one in scored:
            proposal = self._shard.proposals[one.place]
            if select.per != "set" or select.is_control(proposal.edits):
                continue
            slices = self._of.setdefault(one.place, [])
            slices.append(one)
            every = [candidate for part in slices for candidate in part.candidates]
            best = set(choose(select, proposal, every))
            for part in slices:
                for number in part.images.keys() - best:
                    del part.images[number]


def _take_turns(
    shard: ShardScorer, batches: Sequence[tuple[int, Batch]]
) -> Iterator[tuple[int, Attempt[ScoredSlice]]]:
    for number, batch in batches:
        yield number, _attempt(shard, batch)


def _overlap(
    shard: ShardScorer, batches: Sequence[tuple[int, Batch]]
) -> Iterator[tuple[int, Attempt[ScoredSlice]]]:
    """Draw in this thread and score in another, so that decoding, CLIP and PNG cost no time."""
    with ThreadPoolExecutor(1) as pool:
        before: tuple[int, Batch, Future[list[ScoredSlice]] | None] | None = None
        for number, batch in batches:
            try:
                made = shard.sample(batch)
            except Exception:
                made = None
            if before is not None:
                yield before[0], _settle(shard, *before[1:])
            scored = None if made is None else pool.submit(shard.score, batch, made)
            before = number, batch, scored
        if before is not None:
            yield before[0], _settle(shard, *before[1:])


def _settle(
    shard: ShardScorer, batch: Batch, scored: Future[list[ScoredSlice]] | None
) -> Attempt[ScoredSlice]:
    """Wait for a batch; a failed one is repeated in this thread to find the faulty items."""
    if scored is None or scored.exception() is not None:
        return _attempt(shard, batch)
    return Attempt(dict(enumerate(scored.result())), {})


def _attempt(shard: ShardScorer, batch: Batch) -> Attempt[ScoredSlice]:
    """Draw and score a batch; candidates of a rejected item have its reason and no images."""
    found = attempt(
        batch,
        lambda slices: shard.score(slices, shard.sample(slices)),
        lambda one: shard.proposals[one.place].key,
    )
    rejected, failed = found.split_rejections()
    done = found.done | {i: reject_slice(batch[i], one.reason) for i, one in rejected.items()}
    say_some([f"rejected: {one.key} ({one.reason}): {one.error}" for one in rejected.values()])
    return Attempt(done, failed)


def publish(
    shard: ShardScorer,
    found: Attempt[ScoredSlice],
    folder: Path,
    number: int,
    provenance: Provenance,
) -> None:
    """Choose the winners of a shard and write its tar, its candidate log and its commit.

    Sets without a result are left out of the tar and the log, and the commit lists them.
    """
    lost = found.lost
    whole = [
        one
        for one in merge([found.done[i] for i in sorted(found.done)])
        if shard.proposals[one.place].key not in lost
    ]
    winners = choose_winners(shard, whole)
    kept = {(place, winner.number) for place, chosen in winners.items() for winner in chosen}
    sets = make_sets(shard, whole, winners, provenance)
    reasons = Counter(candidate.reason for one in whole for candidate in one.candidates)
    passed = reasons.pop("", 0)
    about = {
        **provenance.about,
        "models": {name: dict(model) for name, model in provenance.models.items()},
        "edits": provenance.edits,
        "caption_sets": len(shard.proposals),
        "candidates": passed + reasons.total(),
        "accepted": passed,
        "rejected": dict(reasons),
        "without": sum(not one.images for one in whole),
        "failed": [asdict(one) for one in lost.values()],
    }
    if (by := shard.pipeline.count_by) is not None:
        counts = count_yields(by, shard.proposals, whole, winners)
        about["yields"] = {"by": by, "of": counts}
    log = candidate_log(shard, whole, kept)
    write_shard(sets, folder, number, about=about, beside={SUFFIX: log})


def merge(slices: Sequence[ScoredSlice]) -> list[ScoredSlice]:
    """Join the slices of one set from several batches."""
    of: dict[int, list[ScoredSlice]] = {}
    for one in slices:
        of.setdefault(one.place, []).append(one)
    return [
        ScoredSlice(
            place,
            tuple(candidate for part in parts for candidate in part.candidates),
            {k: images for part in parts for k, images in part.images.items()},
        )
        for place, parts in sorted(of.items())
    ]


def choose_winners(
    shard: ShardScorer, whole: Sequence[ScoredSlice]
) -> dict[int, list[ScoredCandidate]]:
    """Return the kept candidates, the best first, by the place of their set.

    Args:
        whole: the candidates of each set, in the order of sets.
    """
    select = shard.pipeline.select
    of: dict[int | str, list[tuple[int, ScoredCandidate]]] = {}
    winners: dict[int, list[ScoredCandidate]] = {}
    for one in whole:
        accepted = [candidate for candidate in one.candidates if not candidate.reason]
        proposal = shard.proposals[one.place]
        if select.is_control(proposal.edits):
            if accepted:
                winners[one.place] = accepted
            continue
        unit = one.place if select.per == "set" else proposal.group
        of.setdefault(unit, []).extend((one.place, candidate) for candidate in accepted)
    for found in of.values():
        ranked = select.best([(i, c.draw.seed, c.scores) for i, (_, c) in enumerate(found)])
        for i in ranked:
            place, candidate = found[i]
            winners.setdefault(place, []).append(candidate)
    return winners
