"""The second stage: images for a shard's proposals, batch by batch, and the shard's files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cfaug.core.errors import UserError
from cfaug.core.types import CounterfactualSet, Member, Proposal
from cfaug.data.shards.shards import write_shard
from cfaug.generate.candidate_scoring import (
    SUFFIX,
    Journal,
    ScoredCandidate,
    ScoredSlice,
    ShardScorer,
    candidate_log,
    choose,
    draw_columns,
    reject_slice,
)
from cfaug.generate.failures import Attempt, ProgressReporter, attempt, say_some
from cfaug.generate.recipe import Batch, ShardPlan, digest
from cfaug.generate.sampling import Trial

Winners = Mapping[int, Sequence[ScoredCandidate]]
"""The kept candidates, the best first, by the place of their proposal."""


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
        journal: the completed batches; a batch in which an item failed is never completed.
        overlap: whether a batch is scored in a second thread while the next one is drawn.
        stop_at_failure: whether drawing stops after a round in which an item failed.

    Returns:
        Every slice by its place in the plan, and the failures.
    """
    select = shard.pipeline.select
    whole: Attempt[ScoredSlice] = Attempt({}, {})
    trials: dict[int, list[Trial]] = {}
    lost: set[int] = set()
    of_set: dict[int, list[ScoredSlice]] = {}
    planned = start = 0
    for round_number in range(plan.rounds):
        batches = dict(enumerate(plan.batches(round_number, trials, lost), planned))
        planned += len(batches)
        plans = {number: digest(batch, shard.proposals) for number, batch in batches.items()}
        attempts: dict[int, Attempt[ScoredSlice]] = {}
        for number, batch_plan in plans.items():
            scored = journal.load(number, batch_plan)
            if scored is not None:
                attempts[number] = Attempt(dict(enumerate(scored)), {})
                _drop_overtaken(shard, scored, of_set)
                progress.skip(sum(len(piece.candidates) for piece in scored))
        missing = [(number, batch) for number, batch in batches.items() if number not in attempts]
        drawn = (
            _overlap(shard, missing)
            if overlap
            else ((number, _attempt(shard, batch)) for number, batch in missing)
        )
        for number, attempted in drawn:
            attempts[number] = attempted
            if not attempted.failed:
                scored = [attempted.done[i] for i in range(len(attempted.done))]
                journal.save(number, plans[number], scored)
            _drop_overtaken(shard, attempted.done.values(), of_set)
            candidates = [c for piece in attempted.done.values() for c in piece.candidates]
            progress.count(len(candidates), sum(not candidate.reason for candidate in candidates))
        for number, batch in batches.items():
            done, failed = attempts[number].done, attempts[number].failed
            whole.done.update({start + i: piece for i, piece in done.items()})
            whole.failed.update({start + i: failure for i, failure in failed.items()})
            start += len(batch)
            lost.update(batch[i].place for i in attempts[number].lost_by_place())
            for i in sorted(done):
                trials.setdefault(batch[i].place, []).extend(
                    (candidate.draw.p, select.compute_margins(candidate.scores))
                    for candidate in done[i].candidates
                )
        if stop_at_failure and whole.failed:
            break
    return whole


def _drop_overtaken(
    shard: ShardScorer, scored: Iterable[ScoredSlice], of_set: dict[int, list[ScoredSlice]]
) -> None:
    """Drop images once better ones of their set are known: memory is too small for all.

    Args:
        of_set: the earlier slices of each set, extended here.
    """
    select = shard.pipeline.select
    for piece in scored:
        proposal = shard.proposals[piece.place]
        if select.per != "set" or select.is_control(proposal.edits):
            continue
        slices = of_set.setdefault(piece.place, [])
        slices.append(piece)
        every = [candidate for part in slices for candidate in part.candidates]
        best = set(choose(select, proposal, every))
        for part in slices:
            for number in part.images.keys() - best:
                del part.images[number]


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
    attempted = attempt(
        batch,
        lambda slices: shard.score(slices, shard.sample(slices)),
        lambda piece: shard.proposals[piece.place].key,
    )
    rejected, failed = attempted.split_rejections()
    done = attempted.done | {
        i: reject_slice(batch[i], rejection.reason) for i, rejection in rejected.items()
    }
    say_some(
        [
            f"rejected: {rejection.key} ({rejection.reason}): {rejection.error}"
            for rejection in rejected.values()
        ]
    )
    return Attempt(done, failed)


def publish(
    shard: ShardScorer,
    attempted: Attempt[ScoredSlice],
    folder: Path,
    number: int,
    provenance: Provenance,
) -> None:
    """Choose the winners of a shard and write its tar, its candidate log and its commit.

    Sets without a result are left out of the tar and the log, and the commit lists them.
    """
    lost = attempted.lost
    whole = [
        piece
        for piece in merge([attempted.done[i] for i in sorted(attempted.done)])
        if shard.proposals[piece.place].key not in lost
    ]
    winners = choose_winners(shard, whole)
    kept = {(index, winner.number) for index, chosen in winners.items() for winner in chosen}
    sets = make_sets(shard, whole, winners, provenance)
    reasons = Counter(candidate.reason for piece in whole for candidate in piece.candidates)
    passed = reasons.pop("", 0)
    about = {
        **provenance.about,
        "models": {name: dict(model) for name, model in provenance.models.items()},
        "edits": provenance.edits,
        "caption_sets": len(shard.proposals),
        "candidates": passed + reasons.total(),
        "accepted": passed,
        "rejected": dict(reasons),
        "without": sum(not piece.images for piece in whole),
        "failed": [asdict(failure) for failure in lost.values()],
    }
    if (by := shard.pipeline.count_by) is not None:
        counts = count_yields(by, shard.proposals, whole, winners)
        about["yields"] = {"by": by, "of": counts}
    log = candidate_log(shard, whole, kept)
    write_shard(sets, folder, number, about=about, beside={SUFFIX: log})


def merge(slices: Sequence[ScoredSlice]) -> list[ScoredSlice]:
    """Join the slices of one set from several batches."""
    of: dict[int, list[ScoredSlice]] = {}
    for piece in slices:
        of.setdefault(piece.place, []).append(piece)
    return [
        ScoredSlice(
            index,
            tuple(candidate for part in parts for candidate in part.candidates),
            {k: images for part in parts for k, images in part.images.items()},
        )
        for index, parts in sorted(of.items())
    ]


def choose_winners(
    shard: ShardScorer, whole: Sequence[ScoredSlice]
) -> dict[int, list[ScoredCandidate]]:
    """Return the kept candidates, the best first, by the place of their set."""
    select = shard.pipeline.select
    of: dict[int | str, list[tuple[int, ScoredCandidate]]] = {}
    winners: dict[int, list[ScoredCandidate]] = {}
    for piece in whole:
        accepted = [candidate for candidate in piece.candidates if not candidate.reason]
        proposal = shard.proposals[piece.place]
        if select.is_control(proposal.edits):
            if accepted:
                winners[piece.place] = accepted
            continue
        unit = piece.place if select.per == "set" else proposal.group
        of.setdefault(unit, []).extend((piece.place, candidate) for candidate in accepted)
    for pool in of.values():
        ranked = select.best([(i, c.draw.seed, c.scores) for i, (_, c) in enumerate(pool)])
        for i in ranked:
            index, candidate = pool[i]
            winners.setdefault(index, []).append(candidate)
    return winners


@dataclass(frozen=True)
class Provenance:
    """The provenance of a shard and its sets.

    Attributes:
        models: the descriptions of the models that edited, drew and scored, by their role.
        edits: the hash of the edits that the shard is made from.
    """

    about: Mapping[str, Any]
    models: Mapping[str, Mapping[str, str]]
    edits: str

    def describe(self, proposals: Mapping[str, Any]) -> dict[str, Any]:
        """Return the provenance of a set; ``proposals`` describes its edits."""
        models = {name: dict(model) for name, model in self.models.items()}
        return {**self.about, "caption": dict(proposals), "models": models}


def make_sets(
    shard: ShardScorer, whole: Sequence[ScoredSlice], winners: Winners, provenance: Provenance
) -> list[CounterfactualSet]:
    """Return the sets of a shard, in the order of its proposals."""
    if shard.pipeline.set_per == "example":
        of: dict[str, list[ScoredSlice]] = {}
        for piece in whole:
            if piece.place in winners:
                of.setdefault(shard.proposals[piece.place].example.key, []).append(piece)
        return [_join(shard, slices, winners, provenance) for slices in of.values()]
    several = shard.pipeline.select.keep > 1 and shard.draws is not None
    sets = []
    for piece in whole:
        proposal = shard.proposals[piece.place]
        example = proposal.example
        for rank, winner in enumerate(winners.get(piece.place, ())):
            images = piece.images[winner.number]
            chance = _chance(shard, winner)
            members = []
            for text, edit, about, i in zip(
                proposal.texts, proposal.edits, _details(proposal), images.shown, strict=True
            ):
                extra = {**example.extra, **about, **chance}
                members.append(Member(text, str(i), proposal.key, edit, example.label, extra))
            made = CounterfactualSet(
                key=f"{proposal.key}-{rank}" if several else proposal.key,
                group=proposal.group,
                members=tuple(members),
                images={str(i): bytes(image) for i, image in enumerate(images.images)},
                scores=shard.pipeline.select.pool_all(_written_scores(shard, winner)),
                provenance=provenance.describe(proposal.extra),
            )
            sets.append(made)
    return sets


def _details(proposal: Proposal) -> Sequence[Mapping[str, Any]]:
    return proposal.details or ({},) * len(proposal.texts)


def _chance(shard: ShardScorer, winner: ScoredCandidate) -> dict[str, Any]:
    """Return the random parameters of a candidate in the form that members store."""
    if shard.draws is None:
        return {}
    # Many readers of JSON lose precision above 2 ** 53.
    drawn = draw_columns(winner.draw) | {"seed": str(winner.draw.seed)}
    return {**drawn, "candidate": winner.number}


def _written_scores(
    shard: ShardScorer, winner: ScoredCandidate
) -> dict[str, float | tuple[float, ...]]:
    """Return the scores that the selection can use; other scores are only in the log."""
    names = [name for scorer in shard.pipeline.scorers.values() for name in scorer.names]
    return {name: winner.scores[name] for name in names if name in winner.scores}


def _join(
    shard: ShardScorer,
    slices: Sequence[ScoredSlice],
    winners: Winners,
    provenance: Provenance,
) -> CounterfactualSet:
    """Return one set of an example's kept candidates: its unedited member, then every edit.

    Each image is stored once. The edited members have the scores and the random parameters of
    their candidate.
    """
    select = shard.pipeline.select
    example = shard.proposals[slices[0].place].example
    names: dict[bytes, str] = {}
    members: list[Member] = []
    scores: dict[str, list[float]] = {}
    for piece in slices:
        proposal = shard.proposals[piece.place]
        for winner in winners[piece.place]:
            images, written = piece.images[winner.number], _written_scores(shard, winner)
            shown = [bytes(images.images[number]) for number in images.shown]
            of_texts = zip(proposal.texts, proposal.edits, _details(proposal), shown, strict=True)
            joined = []
            for position, (text, edit, about, image) in enumerate(of_texts):
                extra: dict[str, Any] = {**example.extra, **about}
                if edit is not None:
                    # A score of the set has one value, a score of the edits one for each.
                    edit_scores = {
                        name: value if isinstance(value, int | float) else value[position - 1]
                        for name, value in written.items()
                    }
                    extra = {
                        **proposal.extra,
                        **extra,
                        **_chance(shard, winner),
                        "scores": edit_scores,
                    }
                name = names.setdefault(image, str(len(names)))
                if edit is None and name != "0":
                    raise UserError(
                        "recipe.set_per=example: the unedited image of example "
                        f"{example.key!r} differs between its proposals; it needs an image editor "
                        "whose first image is the source's"
                    )
                joined.append(Member(text, name, proposal.key, edit, example.label, extra))
            members += [member for member in joined if member.edit or not members]
            if not select.is_control(proposal.edits):
                for name, pooled in select.pool_all(written).items():
                    scores.setdefault(name, []).append(pooled)
    return CounterfactualSet(
        key=example.key,
        group=example.group,
        members=tuple(members),
        images={name: image for image, name in names.items()},
        scores=select.pool_all({name: tuple(values) for name, values in scores.items()}),
        provenance=provenance.describe({}),
    )


# Counts of candidates that became sets, by an entry of the examples, such as their grid.

COUNTS = ("sets", "candidates", "accepted", "without", "kept")
"""The counts of a value: caption sets, their candidates, accepted candidates, caption sets without
any accepted candidate, and kept sets of images."""
UNKNOWN = "(none)"
"""The value of an example without the entry."""
Yields = dict[str, dict[str, int]]
"""Counts by value and name, in the order in which the values occur."""


def count_yields(
    by: str, proposals: Sequence[Proposal], whole: Sequence[ScoredSlice], winners: Winners
) -> Yields:
    """Count the results of some sets.

    Args:
        by: the name in ``Example.extra`` by whose values the sets are counted.
    """
    yields: Yields = {}
    for piece in whole:
        value = proposals[piece.place].example.extra.get(by)
        of = yields.setdefault(UNKNOWN if value is None else str(value), dict.fromkeys(COUNTS, 0))
        accepted = sum(not candidate.reason for candidate in piece.candidates)
        of["sets"] += 1
        of["candidates"] += len(piece.candidates)
        of["accepted"] += accepted
        of["without"] += not accepted
        of["kept"] += len(winners.get(piece.place, ()))
    return yields


def add_yields(every: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the sum of several shards' yields: ``{"by": NAME, "of": counts by value}``.

    Args:
        every: the yields of each shard, at least one, all with the same ``by``.
    """
    total: Yields = {}
    for yields in every:
        for value, counts in yields["of"].items():
            of = total.setdefault(value, dict.fromkeys(COUNTS, 0))
            for name in COUNTS:
                of[name] += counts[name]
    return {"by": every[0]["by"], "of": total}


def yield_lines(yields: Mapping[str, Any]) -> list[str]:
    r"""Return a table for a terminal.

    >>> counts = {"sets": 4, "candidates": 400, "accepted": 30, "without": 1, "kept": 24}
    >>> print("\n".join(yield_lines({"by": "grid", "of": {"race_gender": counts}})))
    grid         caption sets  without any  candidates  accepted         kept
    race_gender             4            1         400        30  7.50%    24
    """
    head = (yields["by"], "caption sets", "without any", "candidates", "accepted", "", "kept")
    rows = [
        (
            value, f"{of['sets']:,}", f"{of['without']:,}", f"{of['candidates']:,}",
            f"{of['accepted']:,}", f"{of['accepted'] / max(of['candidates'], 1):.2%}",
            f"{of['kept']:,}",
        )
        for value, of in yields["of"].items()
    ]  # fmt: skip
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    return [
        "  ".join(
            [
                row[0].ljust(widths[0]),
                *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True)),
            ]
        )
        for row in (head, *rows)
    ]
