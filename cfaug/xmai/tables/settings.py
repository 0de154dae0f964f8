"""The settings with which a folder of changed texts was made, and the time it took."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cfaug.core.errors import UserError
from cfaug.core.files import require_regular
from cfaug.data.sources.lists import list_records
from cfaug.generate.folder import read_record

PLACE = re.compile(r"(?P<key>.*)\[(?P<place>\d+)\]")
"""A setting that is an element of a list, such as ``recipe.editor.weights[0]``."""

NEEDED = ("method", "seconds_per_caption", "captions", "machine")
"""Columns of ``timing.csv``."""


def read_settings(folder: str | Path, names: Mapping[str, str]) -> dict[str, float] | None:
    """Return numeric settings of a folder, read from its record.

    Args:
        folder: the folder of shards or of changed captions.
        names: {name: dotted key of ``run.json``, with ``[n]`` for an element of a list}.

    Returns:
        {name: number}; ``None`` if the folder has no record, or lacks one of the settings.

    Raises:
        UserError: if its record cannot be read, or a setting is not a number.
    """
    record = read_record(Path(folder))
    if record is None:
        return None
    found = {}
    for printed, key in names.items():
        value = _look_up(record.captions, key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise UserError(f"{folder}: the setting {key}={value!r} is not a number")
        found[printed] = float(value)
    return found


def _look_up(settings: Mapping[str, Any], key: str) -> Any:
    element = PLACE.fullmatch(key)
    if element is None:
        return settings.get(key)
    values, place = settings.get(element["key"]), int(element["place"])
    return values[place] if isinstance(values, list) and place < len(values) else None


@dataclass(frozen=True)
class Timing:
    """The time that a method takes.

    Attributes:
        method: the name of the method.
        seconds: mean seconds per caption.
        captions: number of captions.
        machine: a description of the machine.
        settings: other columns of the row, as text, such as ``k``.
    """

    method: str
    seconds: float
    captions: int
    machine: str
    settings: Mapping[str, str]


def read_timings(file: str | Path) -> list[Timing]:
    """Read the output of ``benchmarks/insertion.py --out``.

    Args:
        file: the file ``timing.csv``.

    Raises:
        UserError: if a row is invalid, naming file and line, or if there are no rows.
    """
    path = require_regular(Path(file)) if Path(file).exists() else None
    if path is None:
        raise UserError(
            f"{file} is missing: write it with `python benchmarks/insertion.py --out FOLDER`"
        )
    found: list[Timing] = []
    for where, record in list_records(path):
        one = _timing(record, where)
        if any((own.method, own.settings) == (one.method, one.settings) for own in found):
            raise UserError(f"{where}: the time of {one.method!r} is duplicated; remove one line")
        found.append(one)
    if not found:
        raise UserError(f"{file} has no rows: write it again with `python benchmarks/insertion.py`")
    return found


def _timing(record: Mapping[str, Any], where: str) -> Timing:
    missing = [name for name in NEEDED if record.get(name) in (None, "")]
    if missing:
        raise UserError(f"{where} lacks {', '.join(missing)}")
    try:
        seconds, captions = float(record["seconds_per_caption"]), int(record["captions"])
    except (TypeError, ValueError):
        seconds, captions = math.nan, 0
    if not (0 < seconds < math.inf and captions > 0):
        raise UserError(
            f"{where}: seconds_per_caption={str(record['seconds_per_caption'])[:20]!r} and "
            f"captions={str(record['captions'])[:20]!r} should be numbers above 0"
        )
    others = {
        name: str(value)
        for name, value in record.items()
        if name not in NEEDED and value not in (None, "")
    }
    return Timing(str(record["method"]), seconds, captions, str(record["machine"]), others)
