"""The candidate log: scores of all candidates, not only winners, in ``NNNNN.parquet``.

It lies beside the shard and has one row for each candidate and edited member, so that thresholds
can be moved, acceptance modelled and a second encoder compared without drawing images again.
"""

from __future__ import annotations

import hashlib
import io
import json
import shutil
from collections.abc import Iterator, Sequence, Set
from itertools import pairwise
from pathlib import Path
from typing import Any

from cfaug.core.files import write_file
from cfaug.core.types import Draw, Images, Proposal, Scores
from cfaug.data.shards.shards import disk_errors
from cfaug.generate.candidate_scoring import ScoredCandidate, ScoredSlice, ShardScorer

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


# Completed batches of an unfinished shard, so that a restarted process does not redraw them.
#
# Each batch has a file whose bytes depend only on that batch. A file that is damaged or belongs to
# another batch is ignored.
#
# The few records before the images are read without a validation library: a digest ensures that
# they are unchanged since they were written.

HASH = 32
"""Length in bytes of the sha256 at the beginning of a file."""


class Journal:
    """The completed batches of one shard, in a separate folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def save(self, number: int, plan: str, scored: Sequence[ScoredSlice]) -> None:
        """Save a batch; ``plan`` is the digest of its plan.

        Raises:
            UserError: if the disk is full or cannot be written.
        """
        files = [file for one in scored for images in one.images.values() for file in images.images]
        about = {"plan": plan, "slices": [_describe(one) for one in scored]}
        head = json.dumps(about).encode()
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
        digest, content = data[:HASH], memoryview(data)[HASH:]
        if hashlib.sha256(content).digest() != digest:
            return None
        start = 8 + int.from_bytes(content[:8], "little")
        about = json.loads(bytes(content[8:start]))
        if about["plan"] != plan or "slices" not in about:  # the latter in an older version
            return None
        scored = []
        for one in about["slices"]:
            images = {}
            for candidate, lengths, shown in one["images"]:
                cut = [start + sum(lengths[:i]) for i in range(len(lengths) + 1)]
                files = tuple(bytes(content[a:b]) for a, b in pairwise(cut))
                images[candidate] = Images(files, tuple(shown))
                start = cut[-1]
            candidates = tuple(map(_read_candidate, one["candidates"]))
            scored.append(ScoredSlice(one["place"], candidates, images))
        return scored

    def clear(self) -> None:
        """Remove every batch: the shard is complete."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _file(self, number: int) -> Path:
        return self.folder / f"{number:05d}.batch"


def _describe(one: ScoredSlice) -> dict[str, Any]:
    return {
        "place": one.place,
        "candidates": [
            {
                "number": candidate.number,
                "draw": {**vars(candidate.draw), "parameters": dict(candidate.draw.parameters)},
                "reason": candidate.reason,
                "scores": dict(candidate.scores),
            }
            for candidate in one.candidates
        ],
        "images": [
            [k, [len(file) for file in images.images], images.shown]
            for k, images in one.images.items()
        ],
    }


def _read_candidate(about: dict[str, Any]) -> ScoredCandidate:
    scores = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in about["scores"].items()
    }
    return ScoredCandidate(about["number"], Draw(**about["draw"]), about["reason"], scores)
