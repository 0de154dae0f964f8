"""``results.jsonl``: one number per line, appended as benchmarks finish, read over many runs."""

from __future__ import annotations

import errno
import json
import math
import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, get_args

from cfaug.core.errors import UserError, say, visible
from cfaug.core.files import require_regular
from cfaug.core.processes import acquire
from cfaug.core.safety.json_text import load_json
from cfaug.core.types import Better

RESULTS = "results.jsonl"
RECORD = "run.json"
WEIGHTS = "weights"
"""The experiment of checkpoints that are not runs."""


def append_results(path: Path, rows: Iterable[Result], *, once: bool = False) -> None:
    """Append rows to ``path`` in one write of whole lines; several processes may do so at once.

    A torn last line of a killed process is removed first, with a message on stderr; a complete last
    line that lacks only its newline gets one.

    Args:
        once: whether nothing is appended if the file has all numbers of these benchmarks, weights
            and data by now: another process had the same task.
    """
    rows = list(rows)
    for row in rows:
        if not math.isfinite(row.value):
            raise UserError(f"{path}: {row.benchmark} {row.metric} of {row.run} is {row.value}")
        if row.n < 1:
            raise UserError(
                f"{path}: {row.benchmark} {row.metric} of {row.run} is of {row.n} items"
            )
    if not rows:
        return
    payload = b""
    for row in rows:
        content = {k: v for k, v in vars(row).items() if k not in DEFAULTS or v != DEFAULTS[k]}
        payload += f"{json.dumps(content, allow_nan=False)}\n".encode()
    if path.is_symlink():  # in a run from elsewhere, a link could lead to any file
        raise UserError(
            f"{path} is a link, and nothing is written through it: put a file in its place"
        )
    try:
        require_regular(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            acquire(handle)
            end = _mend_tail(handle, path)
            there = every_result(path)
            _check_directions([*there, *rows], str(path))
            if once and {(row.benchmark, row.weights, row.data) for row in rows} <= _whole(there):
                return
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
        load_json(line)
    except ValueError:
        return False
    return True


def _say_torn(path: Path, tail: bytes) -> None:
    match = re.search(rb'"benchmark": "([\w.:-]+)"', tail)
    benchmark = f" {match[1].decode(errors='replace')}" if match else ""
    say(
        f"{path}: the last line is torn ({len(tail)} bytes without a newline) and is left out: "
        f"a process was killed while it wrote; run evaluate.py to measure{benchmark} again"
    )


_say_torn_once = lru_cache(maxsize=256)(_say_torn)  # as one command reads a file several times


def read_results(path: Path) -> list[Result]:
    """Read the last row of each benchmark and metric of one run, in order of appearance.

    The run's name in a row is ignored, so that a run may be renamed or moved. A torn last line (no
    newline, invalid JSON) is left out with a message on stderr.
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
    """Read all rows of one run, including those of other weights or data that were replaced."""
    try:
        lines = require_regular(path).read_bytes().split(b"\n")
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from error
    tail = lines[-1]
    if tail and not _is_json(tail):
        _say_torn_once(path, lines.pop())
    rows = [read_row(line, f"{path}, line {i}") for i, line in enumerate(lines, 1) if line.strip()]
    _check_directions(rows, str(path))
    return rows


EvaluationKey = tuple[str, str, str]
"""A benchmark, the hash of the weights and the hash of the data."""


def answered(path: Path) -> set[EvaluationKey]:
    """Return the benchmarks whose rows are complete in a run's file, with weights and data.

    A benchmark with a lost metric, for example by a torn line, is left out.
    """
    return _whole(every_result(path)) if path.exists() else set()


def _whole(rows: Iterable[Result]) -> set[EvaluationKey]:
    """Return the benchmarks, weights and data of which rows hold every number."""
    metrics: dict[EvaluationKey, set[Cell]] = {}
    together: dict[EvaluationKey, int] = {}
    for row in _last(rows):
        key = (row.benchmark, row.weights, row.data)
        metrics.setdefault(key, set()).add(row.cell)
        together[key] = max(together.get(key, 0), row.together)
    return {key for key, cells in metrics.items() if len(cells) >= together[key]}


def read_record(path: Path) -> dict[str, Any]:
    """Read a JSON object, such as ``run.json``."""
    try:
        record = load_json(require_regular(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read: {error}") from error
    if not isinstance(record, dict):
        raise UserError(f"{path} should hold a JSON object")
    return record


def by_seed(rows: Iterable[Result], arm: str, cell: Cell) -> dict[int, float]:
    """Return {seed: value} of one arm on one benchmark and metric."""
    return {row.seed: row.value for row in rows if row.arm == arm and row.cell == cell}


def cells_of(rows: Iterable[Result]) -> list[Cell]:
    """Return every (benchmark, metric), in order of appearance."""
    return list(dict.fromkeys(row.cell for row in rows))


def arms_of(rows: Iterable[Result], first: Sequence[str] = ()) -> list[str]:
    """Return every arm, beginning with those of ``first``, in that order."""
    arms = list(dict.fromkeys(row.arm for row in rows))
    return [a for a in dict.fromkeys(first) if a in arms] + [a for a in arms if a not in first]


def require_equal_seeds(
    rows: Sequence[Result], baseline: str, untrained: Collection[str] = ()
) -> None:
    """Refuse a table whose arms were not run on the baseline's seeds.

    An arm without a benchmark is a gap, not a mistake; one with seeds other than the baseline's is
    a mistake. Untrained arms have no seed of their own and are exempt.
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
            "the missing ones, or choose seeds that all arms have with seeds=[...]"
        )


def join_seeds(seeds: Iterable[int]) -> str:
    """Return the seeds in order, as text for a message."""
    return ", ".join(map(str, sorted(seeds)))


# One row of ``results.jsonl``: a number of one run, and the checks of a line.

Cell = tuple[str, str]
"""A benchmark, with a part of it in brackets if there is one, and a metric."""


@dataclass(frozen=True)
class Result:
    """One number of one run.

    Attributes:
        run: the run's name when it was evaluated.
        n: number of queries or images that it is the mean of.
        data: the hash of the test data; empty if a row has none.
        together: number of rows that its benchmark wrote together; 0 if a row does not say.
        better: whether higher or lower values are better.
        unit: ``fraction`` or another unit, see ``cfaug.core.types.Outcome``.
        by: part of the benchmark that it is about; empty for the whole benchmark.
        chance: the expected value of a model that answers at random; ``None`` if it is not known.
    """

    run: str
    arm: str
    seed: int
    benchmark: str
    metric: str
    value: float
    n: int
    weights: str
    data: str = ""
    together: int = 0
    better: Better = "higher"
    unit: str = "fraction"
    by: Mapping[str, str] = field(default_factory=dict)
    chance: float | None = None

    @property
    def cell(self) -> Cell:
        """The benchmark, or part of one, and the metric of this value."""
        return name_part(self.benchmark, self.by), self.metric


NAME_OF_PART = re.compile(r" \[[^\[\]]*=[^\[\]]*\]$")
"""The end of a part's name, which a benchmark's name may not have."""


def name_part(benchmark: str, by: Mapping[str, str]) -> str:
    """Return the name of a benchmark's part in tables, whatever the order of its keys.

    >>> name_part("stress", {"edit": "background", "a": "b"})
    'stress [a=b, edit=background]'
    >>> name_part("stress", {})
    'stress'
    """
    inside = ", ".join(f"{name}={value}" for name, value in sorted(by.items()))
    return f"{benchmark} [{inside}]" if by else benchmark


FIELDS: dict[str, type | tuple[type, ...]] = {
    "run": str, "arm": str, "seed": int, "benchmark": str, "metric": str,
    "value": (int, float), "n": int, "weights": (str, type(None)),
}  # fmt: skip
DEFAULTS: dict[str, Any] = {
    "data": "", "together": 0, "better": "higher", "unit": "fraction", "by": {},
    "chance": None,
}  # fmt: skip
"""Default values of fields that a row may lack."""


def read_row(line: bytes, where: str) -> Result:
    """Read one line of a file of results.

    Args:
        where: location of the line for error messages, such as ``results.jsonl, line 3``.
    """
    try:
        content = load_json(line)
    except ValueError as error:
        raise UserError(f"{where} is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise UserError(f"{where} should be a JSON object with {', '.join(FIELDS)}")
    for name, kind in FIELDS.items():
        value = content.get(name)
        if name not in content or not isinstance(value, kind) or isinstance(value, bool):
            raise UserError(f"{where}: {name!r} is {value!r}; a row has {', '.join(FIELDS)}")
    for name in ("benchmark", "metric"):
        if not _is_printable(content[name]):
            raise UserError(f"{where}: {name!r} has control characters: {content[name]!r}")
    row: dict[str, Any] = {name: content[name] for name in FIELDS}
    row |= {name: content.get(name, default) for name, default in DEFAULTS.items()}
    if not _is_finite(row["value"]):
        raise UserError(f"{where}: 'value' is not a number to compare")
    if row["n"] < 1:
        raise UserError(f"{where}: 'n' is {row['n']}; it should be at least 1")
    if not isinstance(row["data"], str):
        raise UserError(f"{where}: 'data' is {row['data']!r}, not the hash of the test data")
    together = row["together"]
    if not isinstance(together, int) or isinstance(together, bool) or together < 0:
        raise UserError(f"{where}: 'together' is {together!r}, not a number of metrics")
    better, unit, by, chance = (row[name] for name in ("better", "unit", "by", "chance"))
    if better not in get_args(Better):
        raise UserError(f"{where}: 'better' is {better!r}; choose {' or '.join(get_args(Better))}")
    texts = [unit, *by, *by.values()] if isinstance(by, dict) else [None]
    if any(not isinstance(text, str) or not _is_printable(text) for text in texts):
        raise UserError(f"{where}: 'unit' or 'by' is invalid: {unit!r}, {by!r}")
    number = isinstance(chance, (int, float)) and not isinstance(chance, bool)
    if chance is not None and not (number and _is_finite(chance)):
        raise UserError(f"{where}: 'chance' is {chance!r}, not a number")
    row |= {"value": float(row["value"]), "weights": row["weights"] or ""}
    return Result(**row | {"chance": None if chance is None else float(chance)})


def _is_printable(text: str) -> bool:
    return text == visible(text) and not set(text) & set("\n\r\t")


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number too large for a float
        return False
