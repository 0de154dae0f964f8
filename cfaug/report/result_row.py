"""One row of ``results.jsonl``: a number of one run, and the checks of a line."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, get_args

from cfaug.core.errors import UserError
from cfaug.core.messages import visible
from cfaug.core.types import Better

Cell = tuple[str, str]
"""A benchmark, with a part of it in brackets if there is one, and a metric."""


@dataclass(frozen=True)
class Result:
    """One number of one run.

    Attributes:
        run: the run's name when it was evaluated.
        arm: name of its arm.
        seed: training seed of the run.
        benchmark: the benchmark's name.
        metric: the metric's name.
        value: the number.
        n: number of queries or images that it is the mean of.
        weights: the hash of the weights.
        data: the hash of the test data; empty if a row has none.
        together: number of rows that its benchmark wrote together; 0 if a row does not say.
        better: whether higher or lower values are better.
        unit: ``fraction`` or another unit, see ``cfaug.core.types.Outcome``.
        by: part of the benchmark that it is about; empty for the whole benchmark.
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
}  # fmt: skip
"""Default values of fields that a row may lack."""


def read_row(line: bytes, where: str) -> Result:
    """Read one line of a file of results.

    Args:
        line: the line, without its newline.
        where: location of the line for error messages, such as ``results.jsonl, line 3``.

    Raises:
        UserError: if the line is not a row.
    """
    try:
        content = json.loads(line)
    except (ValueError, RecursionError) as error:
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
    if not _is_finite(content["value"]):
        raise UserError(f"{where}: 'value' is not a number to compare")
    if content["n"] < 1:
        raise UserError(f"{where}: 'n' is {content['n']}; it should be at least 1")
    row = {name: content[name] for name in FIELDS}
    return Result(
        **{**row, "value": float(row["value"]), "weights": row["weights"] or ""},
        data=_data(content, where),
        together=_together(content, where),
        **_direction(content, where),
    )


def _direction(content: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the metric's direction, unit and part from a row."""
    better, unit, by = (content.get(name, DEFAULTS[name]) for name in ("better", "unit", "by"))
    if better not in get_args(Better):
        raise UserError(f"{where}: 'better' is {better!r}; choose {' or '.join(get_args(Better))}")
    texts = [unit, *by, *by.values()] if isinstance(by, dict) else [None]
    if any(not isinstance(text, str) or not _is_printable(text) for text in texts):
        raise UserError(f"{where}: 'unit' or 'by' is invalid: {unit!r}, {by!r}")
    return {"better": better, "unit": unit, "by": by}


def _is_printable(text: str) -> bool:
    """Return whether a text is one line without control characters, as a table's cell must be."""
    return text == visible(text) and not set(text) & set("\n\r\t")


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number too large for a float
        return False


def _data(content: Mapping[str, Any], where: str) -> str:
    data = content.get("data", "")
    if not isinstance(data, str):
        raise UserError(f"{where}: 'data' is {data!r}, not the hash of the test data")
    return data


def _together(content: Mapping[str, Any], where: str) -> int:
    found = content.get("together", 0)
    if not isinstance(found, int) or isinstance(found, bool) or found < 0:
        raise UserError(f"{where}: 'together' is {found!r}, not a number of metrics")
    return found
