"""Models' answers to changed texts, and the settings with which these were made, for tables."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cfaug.core.errors import UserError
from cfaug.core.files import require_regular
from cfaug.core.types import Better
from cfaug.data.sources.lists import list_records
from cfaug.generate.folder import read_record
from cfaug.report.arm_results import Runs
from cfaug.report.arm_table import mark_best_two
from cfaug.report.document import Column, Document, Entry, Part, make_part
from cfaug.report.items import Items
from cfaug.report.page import DASH
from cfaug.report.paper_tables import ModelsTable, published
from cfaug.stats.significance import summarise
from cfaug.xmai.text_pair_items import TextPairItems

# Models' answers to texts before and after a change, for the paper's tables.

RETRIEVAL_COMMANDS = (
    "python generate.py recipe=xmai data.source=CAPTIONS paths.shards=shards/xmai",
    "python generate.py recipe=eda data.source=CAPTIONS paths.shards=shards/eda  # and the others",
    "python evaluate.py model=open_clip benchmark=insertion "
    "'benchmark.data={xmai: shards/xmai, eda: shards/eda}'",
)
ORIGINAL = "Original"
DIGITS = 3
Checkpoints = Sequence[TextPairItems]
"""The answers of the checkpoints of one model, at least one."""


@dataclass(frozen=True)
class MeasureColumn:
    """A column of a table: a measure of a method's texts.

    Attributes:
        metric: the items' column with the value of the changed text.
        original: the items' column with the value of the original text; empty if a text is compared
            with itself.
        better: the better direction as the paper marks it: methods aim at a lower MRR.
        group: the header above the column.
    """

    title: str
    metric: str
    original: str = ""
    better: Better = "higher"
    group: str = ""

    def is_known(self, one: TextPairItems) -> bool:
        """Return whether a model's items have the columns it needs."""
        return one.has(self.metric)

    def values(self, one: TextPairItems, method: str) -> Mapping[str, float]:
        """Return the value of each changed text of a method by its key."""
        return one.by_key(self.metric, method)

    def measure(self, checkpoints: Checkpoints, method: str) -> Entry:
        """Return the mean over a method's texts; for several checkpoints their mean and spread."""
        found = [
            self.values(checkpoint, method)
            for checkpoint in checkpoints
            if checkpoint.has(self.metric)
        ]
        return mean_entry([list(own.values()) for own in found if own])

    def measure_original(self, checkpoints: Checkpoints, methods: Sequence[str]) -> Entry:
        """Return the mean over the distinct original texts of some methods."""
        if not self.original:
            return Entry(DASH)
        found = []
        for checkpoint in checkpoints:
            own: dict[str, float] = {}
            for method in methods if checkpoint.has(self.original) else ():
                own |= checkpoint.by_key(self.original, method)
            found.append(list(own.values()))
        return mean_entry([own for own in found if own])

    def column(self, checkpoints: Checkpoints, methods: Sequence[str]) -> Column[str | None]:
        """Return the column of a table: a row is a method, ``None`` the original texts.

        Args:
            methods: all methods with values; another has a dash.
        """

        def cell(method: str | None) -> Entry:
            if method is None:
                return self.measure_original(checkpoints, methods)
            return self.measure(checkpoints, method) if method in methods else Entry(DASH)

        return Column(self.title, cell, self.group)


RETRIEVAL = (
    MeasureColumn("all photos", "mrr", "mrr_original", "lower", "MRR ↓"),
    MeasureColumn("batches", "mrr_batches", "mrr_original_batches", "lower", "MRR ↓"),
)
RELEVANCE = (
    MeasureColumn("Sim T-T' ↑", "similarity_text"),
    MeasureColumn("Sim I-T' ↑", "similarity_image", "similarity_image_original"),
    MeasureColumn("BLEU ↑", "bleu"),
    MeasureColumn("METEOR ↑", "meteor"),
)


def mean_entry(values: Sequence[Sequence[float]]) -> Entry:
    """Return the mean of a number over texts.

    Args:
        values: a list of the texts' values per checkpoint; a dash is printed without checkpoints.
    """
    if not values:
        return Entry(DASH)
    return number_entry([math.fsum(own) / len(own) for own in values], len(values[0]))


def number_entry(values: Sequence[float], n: int) -> Entry:
    """Return a number in the paper's format, with its spread over checkpoints.

    Args:
        values: a value per checkpoint, at least one.
    """
    found = summarise(values)
    known = not math.isnan(found.sd)
    return Entry(
        f"{found.mean:.{DIGITS}f}",
        f"{found.sd:.{DIGITS}f}" if known else "",
        numbers={"value": found.mean, "n": float(n), **({"sd": found.sd} if known else {})},
    )


def known_columns(
    columns: Sequence[MeasureColumn], found: Mapping[str, Checkpoints]
) -> list[MeasureColumn]:
    """Return the columns with values of any model."""
    return [
        column
        for column in columns
        if any(column.is_known(one) for own in found.values() for one in own)
    ]


@dataclass(frozen=True, kw_only=True)
class PairTable(ModelsTable):
    """A table of texts before and after a change; other arguments as for ``ModelsTable``.

    Args:
        methods: {printed name: method of the items}, in order; others follow under their own names.
    """

    benchmark: str = "insertion"
    methods: Mapping[str, str] = field(default_factory=dict)
    commands: Sequence[str] = RETRIEVAL_COMMANDS

    def read(
        self, runs: Runs, wrap: Callable[[str, Items], TextPairItems]
    ) -> dict[str, Checkpoints]:
        """Return the answers of each model.

        Args:
            wrap: a function that makes items of the right kind from a model's name and its items.
        """
        return {name: [one for _, one in own] for name, own in self.answers(runs, wrap).items()}

    def named(self, checkpoints: Checkpoints) -> dict[str, str]:
        """Return {printed name: method} of the methods that all checkpoints have."""
        there = [
            name for name in checkpoints[0].methods if all(name in o.methods for o in checkpoints)
        ]
        known = {printed: name for printed, name in self.methods.items() if name in there}
        return known | {name: name for name in there if name not in known.values()}

    def theirs(self) -> Part:
        """Return the paper's numbers, with the best and second-best method marked."""
        found = published(self.name)
        beside = [n for n, row in enumerate(found["rows"]) if row["method"] == ORIGINAL]
        arrows = dict(
            zip(
                found["columns"],
                ("↑" if b == "higher" else "↓" for b in found["better"]),
                strict=True,
            )
        )
        part = self.printed(
            "Method",
            "method",
            lambda _, value: _printed(value),
            lambda name: f"{name} {arrows[name]}",
        )
        return mark_best_two(part, found["better"], beside)

    def ours(self, model: str, checkpoints: Checkpoints, columns: Sequence[MeasureColumn]) -> Part:
        """Return our numbers in the paper's layout.

        Args:
            checkpoints: the answers of the model's checkpoints.
        """
        named = self.named(checkpoints)
        cells = [column.column(checkpoints, [*named.values()]) for column in columns]
        rows = [((ORIGINAL,), None), *(((printed,), method) for printed, method in named.items())]
        part = make_part(f"Ours: {model}", ("Method",), cells, rows, [OURS_NOTE])
        return mark_best_two(part, [column.better for column in columns], [0])

    def nothing(self, found: object) -> Document | None:
        """Refuse a table without data; a partial one has only the paper's numbers.

        Raises:
            MissingError: if there are no answers, unless ``partial``.
        """
        self.require(found, f"answers to benchmark={self.benchmark}")
        return None if found else self.document(self.theirs())


OURS_NOTE = (
    "Bold: best; underlined: second best of the methods by the paper's arrows, whatever the tests "
    "say. A dash: a text compared with itself, or no measurement."
)


def _printed(value: float | None) -> Entry:
    if value is None:
        return Entry(DASH)
    return Entry(f"{value:.{DIGITS}f}", numbers={"value": value})


# The settings with which a folder of changed texts was made, and the time it took.

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
        seconds: mean seconds per caption.
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
    """
    path = require_regular(Path(file)) if Path(file).exists() else None
    if path is None:
        raise UserError(
            f"{file} is missing: write it with `python benchmarks/insertion.py --out FOLDER`"
        )
    timings: list[Timing] = []
    for where, record in list_records(path):
        one = _timing(record, where)
        if any((own.method, own.settings) == (one.method, one.settings) for own in timings):
            raise UserError(f"{where}: the time of {one.method!r} is duplicated; remove one line")
        timings.append(one)
    if not timings:
        raise UserError(f"{file} has no rows: write it again with `python benchmarks/insertion.py`")
    return timings


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
