"""The sets of a shard's kept candidates: one for each proposal, or one for each example."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cfaug.core.errors import UserError
from cfaug.core.types import CounterfactualSet, Images, Member, Proposal
from cfaug.generate.candidate_scoring import ScoredCandidate, ScoredSlice, ShardScorer, draw_columns


@dataclass(frozen=True)
class Provenance:
    """The provenance of a shard and its sets.

    Attributes:
        about: the names of recipe, zoo and other parts of the run, as JSON.
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


Winners = Mapping[int, Sequence[ScoredCandidate]]
"""The kept candidates, the best first, by the place of their proposal."""


def make_sets(
    shard: ShardScorer, whole: Sequence[ScoredSlice], winners: Winners, provenance: Provenance
) -> list[CounterfactualSet]:
    """Return the sets of a shard, in the order of its proposals.

    Args:
        whole: the candidates of each proposal, in the order of proposals.
        winners: the kept candidates of each proposal.
    """
    if shard.pipeline.set_per == "proposal":
        return [
            _make_set(shard, one, rank, winners[one.place], provenance)
            for one in whole
            for rank in range(len(winners.get(one.place, ())))
        ]
    of: dict[str, list[ScoredSlice]] = {}
    for one in whole:
        if one.place in winners:
            of.setdefault(shard.proposals[one.place].example.key, []).append(one)
    return [_join(shard, slices, winners, provenance) for slices in of.values()]


def _make_set(
    shard: ShardScorer,
    scored: ScoredSlice,
    rank: int,
    winners: Sequence[ScoredCandidate],
    provenance: Provenance,
) -> CounterfactualSet:
    proposal, winner = shard.proposals[scored.place], winners[rank]
    pipeline, example = shard.pipeline, proposal.example
    images = scored.images[winner.number]
    several = pipeline.select.keep > 1 and shard.draws is not None
    chance = _chance(shard, winner)
    details = proposal.details or ({},) * len(proposal.texts)
    return CounterfactualSet(
        key=f"{proposal.key}-{rank}" if several else proposal.key,
        group=proposal.group,
        members=tuple(
            Member(
                text,
                str(i),
                proposal.key,
                edit,
                example.label,
                {**example.extra, **about, **chance},
            )
            for text, edit, about, i in zip(
                proposal.texts, proposal.edits, details, images.shown, strict=True
            )
        ),
        images={str(i): bytes(image) for i, image in enumerate(images.images)},
        scores=pipeline.select.pool_all(_written_scores(shard, winner)),
        provenance=provenance.describe(proposal.extra),
    )


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
    """Return one set of an example's kept candidates: its unedited member, then every edit."""
    example = shard.proposals[slices[0].place].example
    images = _ImageNames(example.key)
    members: list[Member] = []
    scores: dict[str, list[float]] = {}
    for one in slices:
        proposal = shard.proposals[one.place]
        for winner in winners[one.place]:
            found = _members(shard, proposal, winner, one.images[winner.number], images)
            members += [member for member in found if member.edit or not members]
            if not shard.pipeline.select.is_control(proposal.edits):
                pooled = shard.pipeline.select.pool_all(_written_scores(shard, winner))
                for name, value in pooled.items():
                    scores.setdefault(name, []).append(value)
    return CounterfactualSet(
        key=example.key,
        group=example.group,
        members=tuple(members),
        images=images.files,
        scores=shard.pipeline.select.pool_all({k: tuple(v) for k, v in scores.items()}),
        provenance=provenance.describe({}),
    )


class _ImageNames:
    """The images of a joined set, each stored once: the unedited image, then all others."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.files: dict[str, bytes] = {}
        self._names: dict[bytes, str] = {}

    def name_of(self, image: bytes, *, unedited: bool) -> str:
        """Store an encoded image and return its name."""
        name = self._names.setdefault(image, str(len(self._names)))
        if unedited and name != "0":
            raise UserError(
                f"recipe.set_per=example: the unedited image of example {self.key!r} differs "
                "between its proposals; it needs an image editor whose first image is the source's"
            )
        self.files[name] = image
        return name


def _members(
    shard: ShardScorer,
    proposal: Proposal,
    winner: ScoredCandidate,
    images: Images,
    names: _ImageNames,
) -> list[Member]:
    """Return a candidate's members; the edited ones have its scores and random parameters."""
    example, found = proposal.example, list[Member]()
    scores = _written_scores(shard, winner)
    details = proposal.details or ({},) * len(proposal.texts)
    shown = [bytes(images.images[number]) for number in images.shown]
    pairs = zip(proposal.texts, proposal.edits, details, shown, strict=True)
    for place, (text, edit, about, image) in enumerate(pairs):
        extra: dict[str, Any] = {**example.extra, **about}
        if edit is not None:
            own = {name: _score_of(value, place) for name, value in scores.items()}
            extra = {**proposal.extra, **extra, **_chance(shard, winner), "scores": own}
        name = names.name_of(image, unedited=edit is None)
        found.append(Member(text, name, proposal.key, edit, example.label, extra))
    return found


def _score_of(value: float | tuple[float, ...], place: int) -> float:
    """Return the score of the text at ``place``, from one value of a set or one for each edit."""
    return value if isinstance(value, int | float) else value[place - 1]


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
        winners: the kept candidates of each set.
    """
    yields: Yields = {}
    for one in whole:
        value = proposals[one.place].example.extra.get(by)
        of = yields.setdefault(UNKNOWN if value is None else str(value), dict.fromkeys(COUNTS, 0))
        accepted = sum(not candidate.reason for candidate in one.candidates)
        of["sets"] += 1
        of["candidates"] += len(one.candidates)
        of["accepted"] += accepted
        of["without"] += not accepted
        of["kept"] += len(winners.get(one.place, ()))
    return yields


def add_yields(every: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the sum of several shards' yields: ``{"by": NAME, "of": counts by value}``.

    Args:
        every: the yields of each shard, at least one, all with the same ``by``.
    """
    total: Yields = {}
    for one in every:
        for value, counts in one["of"].items():
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
