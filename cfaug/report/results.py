"""``results.jsonl``: one number per line, appended as benchmarks finish, read over many runs."""

from __future__ import annotations

import errno
import json
import math
import os
import re
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from cfaug.core.errors import UserError
from cfaug.core.files import require_regular
from cfaug.core.locks import acquire
from cfaug.core.messages import say
from cfaug.report.result_row import DEFAULTS, Cell, Result, read_row

RESULTS = "results.jsonl"
RECORD = "run.json"


def append_results(path: Path, rows: Iterable[Result]) -> None:
    """Append rows to ``path`` in one write of whole lines; several processes may do so at once.

    A torn last line of a killed process is removed first, with a message on stderr; a complete last
    line that lacks only its newline gets one.

    Args:
        path: path of the run's ``results.jsonl``.
        rows: results to append.

    Raises:
        UserError: naming the row, if a value is NaN, infinite or over no items or its metric's
            direction differs from earlier rows of the file; or if the file cannot be written, which
            is left as it was.
    """
    lines = []
    rows = list(rows)
    for row in rows:
        if not math.isfinite(row.value):
            raise UserError(f"{path}: {row.benchmark} {row.metric} of {row.run} is {row.value}")
        if row.n < 1:
            raise UserError(
                f"{path}: {row.benchmark} {row.metric} of {row.run} is of {row.n} items"
            )
        content = {k: v for k, v in vars(row).items() if k not in DEFAULTS or v != DEFAULTS[k]}
        lines.append(json.dumps(content, allow_nan=False))
    if not lines:
        return
    payload = ("\n".join(lines) + "\n").encode()
    if path.is_symlink():  # in a run from elsewhere, a link could lead to any file
        raise UserError(
            f"{path} is a link, and nothing is written through it: put a file in its place"
        )
    _check_directions([*(every_result(path) if path.exists() else ()), *rows], str(path))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            acquire(handle)
            end = _mend_tail(handle, path)
            if os.write(handle, payload) != len(payload):
                os.ftruncate(handle, end)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        finally:
            os.close(handle)
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}") from error


def _mend_tail(handle: int, path: Path) -> int:
    """Make the file end with a newline, and return its length."""
    content = path.read_bytes()
    whole, newline, tail = content.rpartition(b"\n")
    if not tail:
        return len(content)
    if _is_json(tail):
        os.write(handle, b"\n")
        return len(content) + 1
    _say_torn(path, tail)
    keep = len(whole) + len(newline)
    os.ftruncate(handle, keep)
    return keep


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def _say_torn(path: Path, tail: bytes) -> None:
    found = re.search(rb'"benchmark": "([\w.:-]+)"', tail)
    asked = f" {found[1].decode(errors='replace')}" if found else ""
    say(
        f"{path}: the last line is torn ({len(tail)} bytes without a newline) and is left out: "
        f"a process was killed while it wrote; run evaluate.py to measure{asked} again",
    )


_say_torn_once = lru_cache(maxsize=256)(_say_torn)  # as one command reads a file several times


def read_results(path: Path) -> list[Result]:
    """Read the last row of each benchmark and metric of one run, in order of appearance.

    The run's name in a row is ignored, so that a run may be renamed or moved. A torn last line (no
    newline, invalid JSON) is left out with a message on stderr.

    Raises:
        UserError: naming file and line, if any other line is not a row.
    """
    return _last(every_result(path))


def _last(rows: Iterable[Result]) -> list[Result]:
    return list({(row.seed, *row.cell): row for row in rows}.values())


def _check_directions(rows: Iterable[Result], where: str) -> None:
    """Refuse rows of one metric that disagree on whether higher or lower is better."""
    known: dict[Cell, str] = {}
    for row in rows:
        better = known.setdefault((row.benchmark, row.metric), row.better)
        if row.better != better:
            raise UserError(
                f"{where}: {row.benchmark} {row.metric}: {better} values are better in earlier "
                f"rows, {row.better} values in this one; give the benchmark another name, or "
                "remove its earlier rows"
            )


def every_result(path: Path) -> list[Result]:
    """Read all rows of one run, including those of other weights or data that were replaced.

    Raises:
        UserError: as ``read_results``.
    """
    try:
        lines = require_regular(path).read_bytes().split(b"\n")
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from error
    tail = lines.pop()
    if tail and _is_json(tail):
        lines.append(tail)
    elif tail:
        _say_torn_once(path, tail)
    rows = [read_row(line, f"{path}, line {i}") for i, line in enumerate(lines, 1) if line.strip()]
    _check_directions(rows, str(path))
    return rows


Asked = tuple[str, str, str]
"""A benchmark, the hash of the weights and the hash of the data."""


def answered(path: Path) -> set[Asked]:
    """Return the benchmarks whose rows are complete in a run's file, with weights and data.

    A benchmark with a lost metric, for example by a torn line, is left out. Rows of older versions
    do not say how many belong together: for these, the last benchmark before a torn line counts as
    incomplete.

    Raises:
        UserError: as ``read_results``.
    """
    if not path.exists():
        return set()
    every = every_result(path)
    metrics: dict[Asked, set[Cell]] = {}
    together: dict[Asked, int] = {}
    for row in _last(every):
        key = (row.benchmark, row.weights, row.data)
        metrics.setdefault(key, set()).add(row.cell)
        together[key] = max(together.get(key, 0), row.together)
    cut = every[-1:] if _is_torn(path) else []
    torn = {row.benchmark for row in cut if not row.together}
    return {
        key for key, found in metrics.items() if len(found) >= together[key] and key[0] not in torn
    }


def _is_torn(path: Path) -> bool:
    tail = path.read_bytes().rpartition(b"\n")[2]
    return bool(tail) and not _is_json(tail)


def read_record(path: Path) -> dict[str, Any]:
    """Read a JSON object, such as ``run.json``.

    Raises:
        UserError: naming the file, if it is not one.
    """
    try:
        record = json.loads(require_regular(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path} cannot be read: {error}") from error
    if not isinstance(record, dict):
        raise UserError(f"{path} should hold a JSON object")
    return record


def by_seed(rows: Iterable[Result], arm: str, cell: Cell) -> dict[int, float]:
    """Return {seed: value} of one arm on one benchmark and metric.

    Args:
        rows: results of all arms.
        arm: name of the arm.
        cell: benchmark and metric.
    """
    return {row.seed: row.value for row in rows if row.arm == arm and row.cell == cell}


def cells_of(rows: Iterable[Result]) -> list[Cell]:
    """Return every (benchmark, metric), in order of appearance."""
    return list(dict.fromkeys(row.cell for row in rows))


def arms_of(rows: Iterable[Result], first: Sequence[str] = ()) -> list[str]:
    """Return every arm, beginning with those of ``first``, in that order."""
    found = list(dict.fromkeys(row.arm for row in rows))
    return [a for a in dict.fromkeys(first) if a in found] + [a for a in found if a not in first]


def require_equal_seeds(
    rows: Sequence[Result], baseline: str, untrained: Collection[str] = ()
) -> None:
    """Refuse a table whose arms were not run on the baseline's seeds.

    An arm without a benchmark is a gap, not a mistake; one with seeds other than the baseline's is
    a mistake. Untrained arms have no seed of their own and are exempt.

    Args:
        rows: results of all arms.
        baseline: name of the arm that others are compared with.
        untrained: names of arms that may have other seeds.

    Raises:
        UserError: naming the arm, the benchmark and the seeds that are missing on either side.
    """
    arms = arms_of(rows)
    if baseline not in arms:
        raise UserError(f"no results of baseline {baseline!r}; there are {', '.join(arms)}")
    seeds: dict[tuple[str, Cell], set[int]] = {}
    for row in rows:
        seeds.setdefault((row.arm, row.cell), set()).add(row.seed)
    for (arm, cell), ours in seeds.items():
        theirs = seeds.get((baseline, cell), set())
        if arm in untrained or ours == theirs:
            continue
        lacks = [
            f"{name} lacks seed{'s' if len(missing) > 1 else ''} {join_seeds(missing)}"
            for name, missing in ((arm, theirs - ours), (baseline, ours - theirs))
            if missing
        ]
        raise UserError(
            f"{cell[0]} {cell[1]}: {'; '.join(lacks)}. Arms are compared by seed: run and evaluate "
            "the missing ones, or leave the arm out"
        )


def join_seeds(seeds: Iterable[int]) -> str:
    """Return the seeds in order, as text for a message."""
    return ", ".join(map(str, sorted(seeds)))
