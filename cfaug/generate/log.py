"""Every candidate's scores, not only the winners': ``NNNNN.parquet`` beside the shard.

A row a candidate and edited member: thresholds can be moved, acceptance modelled, a second encoder
compared, without drawing anything again.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence, Set
from typing import Any

from cfaug.generate.candidate_scoring import Drawn
from cfaug.score.select import Scores
from cfaug.types import Proposal

SUFFIX = ".parquet"
SCORES = ("sim_0", "sim_1", "sim_image", "sim_direction")


def candidate_log(
    sets: Sequence[Proposal], drawn: Sequence[Drawn], kept: Set[tuple[int, int]], *, report: bool
) -> bytes:
    """Return the parquet file of a shard; the same candidates give the same bytes.

    Columns: set, candidate, member (from 1), seed, p, cfg, sim_0, sim_1, sim_image, sim_direction
    (null where an early exit made them unnecessary), accepted, kept (the winners), reason ("" if
    accepted), and with ``report`` a second encoder's scores as report_*.

    Args:
        sets: of the shard.
        drawn: what came of them, in the order of sets and candidates.
        kept: (place, candidate) of the winners.
        report: whether there are columns for a second encoder.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [row for one in drawn for row in _rows(sets[one.place], one, kept, report)]
    numbers = [*SCORES, *(f"report_{name}" for name in SCORES if report)]
    schema = pa.schema(
        [
            ("set", pa.string()), ("candidate", pa.int32()), ("member", pa.int32()),
            ("seed", pa.uint64()), ("p", pa.float32()), ("cfg", pa.float32()),
            *((name, pa.float32()) for name in numbers),
            ("accepted", pa.bool_()), ("kept", pa.bool_()), ("reason", pa.string()),
        ]
    )  # fmt: skip
    buffer = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, schema), buffer, compression="zstd")
    return buffer.getvalue()


def _rows(
    one: Proposal, drawn: Drawn, kept: Set[tuple[int, int]], report: bool
) -> Iterator[dict[str, Any]]:
    for judged in drawn.judged:
        for member in range(1, len(one.texts)):
            yield {
                "set": one.key,
                "candidate": judged.number,
                "member": member,
                "seed": judged.draw.seed,
                "p": judged.draw.p,
                "cfg": judged.draw.cfg,
                **_cells(judged.scores, member, ""),
                **(_cells(judged.report or Scores(), member, "report_") if report else {}),
                "accepted": not judged.reason,
                "kept": (drawn.place, judged.number) in kept,
                "reason": judged.reason,
            }


def _cells(scores: Scores, member: int, prefix: str) -> dict[str, float | None]:
    columns = (scores.sim_1, scores.image, scores.direction)
    values = [scores.sim_0, *(c[member - 1] if c else None for c in columns)]
    return {prefix + name: value for name, value in zip(SCORES, values, strict=True)}
