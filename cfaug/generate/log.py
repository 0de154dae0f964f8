"""The candidate log: scores of all candidates, not only winners, in ``NNNNN.parquet``.

It lies beside the shard and has one row for each candidate and edited member, so that thresholds
can be moved, acceptance modelled and a second encoder compared without drawing images again.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence, Set
from typing import Any

from cfaug.core.types import Draw, Proposal, Scores
from cfaug.generate.candidate_scoring import ScoredSlice, ShardScorer

SUFFIX = ".parquet"


def candidate_log(
    shard: ShardScorer, scored: Sequence[ScoredSlice], kept: Set[tuple[int, int]]
) -> bytes:
    """Return the parquet file of a shard; the same candidates give the same bytes.

    The columns are set, candidate, member (from 1; 0 in a set with a single text), the random
    parameters (seed, p, cfg and further ones by name, p_density if p is not uniform; absent without
    random parameters), every score by its name (null where an early exit made it unnecessary),
    accepted, kept (the winners), and reason ("" if accepted).

    Args:
        shard: the shard of the candidates, which names the scores and the parameters.
        scored: the results of the candidates, in the order of sets and candidates.
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
    rows = [row for one in scored for row in _rows(shard.proposals[one.place], one, kept)]
    buffer = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, schema), buffer, compression="zstd")
    return buffer.getvalue()


def _rows(
    proposal: Proposal, scored: ScoredSlice, kept: Set[tuple[int, int]]
) -> Iterator[dict[str, Any]]:
    for one in scored.candidates:
        for member in range(1, len(proposal.texts)) or (0,):
            yield {
                **_score_columns(one.scores, member),
                **draw_columns(one.draw),
                "set": proposal.key,
                "candidate": one.number,
                "member": member,
                "accepted": not one.reason,
                "kept": (scored.place, one.number) in kept,
                "reason": one.reason,
            }


def draw_columns(draw: Draw) -> dict[str, Any]:
    """Return the random parameters of a candidate by their names on disk."""
    density = {} if draw.p_density is None else {"p_density": draw.p_density}
    return {"seed": draw.seed, "p": draw.p, "cfg": draw.cfg, **draw.parameters, **density}


def _score_columns(scores: Scores, member: int) -> dict[str, float]:
    found = {}
    for name, value in scores.items():
        if isinstance(value, int | float):
            found[name] = value
        elif member:
            found[name] = value[member - 1]
    return found
