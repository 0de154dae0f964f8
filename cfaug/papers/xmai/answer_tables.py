"""Models' answers to changed texts, and the settings with which these were made, for tables."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from cfaug.core.errors import UserError
from cfaug.core.files import require_regular
from cfaug.core.types import Better
from cfaug.data.sources.lists import list_records
from cfaug.evaluation.text_pairs.text_pair_items import TextPairItems
from cfaug.generate.folder import read_record
from cfaug.report.arm_results import Runs
from cfaug.report.arm_table import mark_best_two
from cfaug.report.document import Column, Document, Entry, Part, make_part
from cfaug.report.items import Items
from cfaug.report.page import DASH
from cfaug.report.paper_tables import ModelsTable, published
from cfaug.stats.significance import summarise

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
    """

    title: str
    metric: str
    original: str = ""
    better: Better = "higher"
    group: str = ""

    def is_known(self, items: TextPairItems) -> bool:
        """Return whether a model's items have the columns it needs."""
        return items.has(self.metric)

    def measure(self, checkpoints: Checkpoints, method: str) -> Entry:
        """Return the mean over a method's texts; for several checkpoints their mean and spread."""
        known = [checkpoint for checkpoint in checkpoints if checkpoint.has(self.metric)]
        return mean_entry(
            [list(checkpoint.by_key(self.metric, method).values()) for checkpoint in known]
        )

    def measure_original(self, checkpoints: Checkpoints, methods: Sequence[str]) -> Entry:
        """Return the mean over the distinct original texts of some methods."""
        if not self.original:
            return Entry(DASH)
        every = []
        for checkpoint in checkpoints:
            values: dict[str, float] = {}
            for method in methods if checkpoint.has(self.original) else ():
                values |= checkpoint.by_key(self.original, method)
            every.append(list(values.values()))
        return mean_entry(every)

    def column(self, checkpoints: Checkpoints, methods: Sequence[str]) -> Column[str | None]:
        """Return the column of a table: a row is a method, ``None`` the original texts.

        A method that is not among ``methods`` has a dash.
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


def value_entry(value: float | None) -> Entry:
    """Return a value as printed; a dash without a value."""
    if value is None:
        return Entry(DASH)
    return Entry(f"{value:.{DIGITS}f}", numbers={"value": value})


def mean_entry(values: Sequence[Sequence[float]]) -> Entry:
    """Return the mean of a number over texts; a dash without texts.

    Args:
        values: the texts' values by checkpoint; a checkpoint without any is left out.
    """
    known = [scores for scores in values if scores]
    if not known:
        return Entry(DASH)
    return number_entry([math.fsum(scores) / len(scores) for scores in known], len(known[0]))


def number_entry(values: Sequence[float], n: int) -> Entry:
    """Return a number in the paper's format, with its spread over checkpoints.

    Args:
        values: a value per checkpoint, at least one.
    """
    summary = summarise(values)
    entry = Entry(f"{summary.mean:.{DIGITS}f}", numbers={"value": summary.mean, "n": float(n)})
    if math.isnan(summary.sd):
        return entry
    spread = {**entry.numbers, "sd": summary.sd}
    return replace(entry, sub=f"{summary.sd:.{DIGITS}f}", numbers=spread)


def known_columns(
    columns: Sequence[MeasureColumn], by_model: Mapping[str, Checkpoints]
) -> list[MeasureColumn]:
    """Return the columns with values of any model."""
    return [
        column
        for column in columns
        if any(
            column.is_known(checkpoint)
            for checkpoints in by_model.values()
            for checkpoint in checkpoints
        )
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
    """the commands that make what it needs"""

    def read(
        self, runs: Runs, wrap: Callable[[str, Items], TextPairItems]
    ) -> dict[str, Checkpoints]:
        """Return the answers of each model, of the kind that ``wrap`` makes of its items."""
        return {
            name: [checkpoint for _, checkpoint in folders]
            for name, folders in self.answers(runs, wrap).items()
        }

    def named(self, checkpoints: Checkpoints) -> dict[str, str]:
        """Return {printed name: method} of the methods that all checkpoints have."""
        every = [checkpoint.methods for checkpoint in checkpoints]
        return name_methods(
            self.methods, [name for name in every[0] if all(name in there for there in every)]
        )

    def theirs(self) -> Part:
        """Return the paper's numbers, with the best and second-best method marked."""
        paper = published(self.name)
        beside = [n for n, row in enumerate(paper["rows"]) if row["method"] == ORIGINAL]
        better = dict(zip(paper["columns"], paper["better"], strict=True))
        part = self.printed(
            "Method",
            "method",
            lambda _, value: value_entry(value),
            lambda name: f"{name} {'↑' if better[name] == 'higher' else '↓'}",
        )
        return mark_best_two(part, paper["better"], beside)

    def ours(
        self,
        model: str,
        checkpoints: Checkpoints,
        columns: Sequence[MeasureColumn],
        others: Sequence[tuple[MeasureColumn, Column[str | None]]] = (),
    ) -> Part:
        """Return our numbers in the paper's layout.

        Args:
            others: further columns, of other answers.
        """
        named = self.named(checkpoints)
        cells = [column.column(checkpoints, [*named.values()]) for column in columns]
        cells += [cell for _, cell in others]
        rows = [((ORIGINAL,), None), *(((printed,), method) for printed, method in named.items())]
        part = make_part(f"Ours: {model}", ("Method",), cells, rows, [OURS_NOTE])
        better = [column.better for column in (*columns, *(column for column, _ in others))]
        return mark_best_two(part, better, [0])

    def nothing(self, answers: object) -> Document | None:
        """Refuse a table without data; a partial one has only the paper's numbers."""
        self.require(answers, f"answers to benchmark={self.benchmark}")
        return None if answers else self.document(self.theirs())


OURS_NOTE = (
    "Bold: best; underlined: second best of the methods by the paper's arrows, whatever the tests "
    "say. A dash: a text compared with itself, or no measurement."
)


def name_methods(printed: Mapping[str, str], there: Iterable[str]) -> dict[str, str]:
    """Return {printed name: method} of the methods there; others follow under their own names."""
    methods = list(there)
    known = {name: method for name, method in printed.items() if method in methods}
    return known | {method: method for method in methods if method not in known.values()}


# The settings with which a folder of changed texts was made, and the time it took.

NEEDED = ("method", "seconds_per_caption", "captions", "machine")
"""Columns of ``timing.csv``."""


def read_settings(folder: str | Path, names: Mapping[str, str]) -> dict[str, float] | None:
    """Return numeric settings of a folder, read from its record.

    Args:
        names: {name: dotted key of ``run.json``, with ``[n]`` for an element of a list, such as
            ``recipe.editor.weights[0]``}.

    Returns:
        {name: number}; ``None`` if the folder has no record, or lacks one of the settings.
    """
    record = read_record(Path(folder))
    if record is None:
        return None
    settings = {}
    for printed, key in names.items():
        element = re.fullmatch(r"(.*)\[(\d+)\]", key)
        value = record.captions.get(key if element is None else element[1])
        if element is not None:
            index = int(element[2])
            value = value[index] if isinstance(value, list) and index < len(value) else None
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise UserError(f"{folder}: the setting {key}={value!r} is not a number")
        settings[printed] = float(value)
    return settings


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
    """Read the output of ``benchmarks/insertion.py --out``: ``timing.csv``."""
    if not Path(file).exists():
        raise UserError(
            f"{file} is missing: write it with `python benchmarks/insertion.py --out FOLDER`"
        )
    timings: list[Timing] = []
    for where, record in list_records(require_regular(Path(file))):
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
        settings = {
            name: str(value)
            for name, value in record.items()
            if name not in NEEDED and value not in (None, "")
        }
        method = str(record["method"])
        if any((earlier.method, earlier.settings) == (method, settings) for earlier in timings):
            raise UserError(f"{where}: the time of {method!r} is duplicated; remove one line")
        timings.append(Timing(method, seconds, captions, str(record["machine"]), settings))
    if not timings:
        raise UserError(f"{file} has no rows: write it again with `python benchmarks/insertion.py`")
    return timings
