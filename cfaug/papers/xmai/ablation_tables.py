"""Tables 3 and 6 and Figures 4 to 6 of XMAI: its settings, what they insert and what that does.

The settings of a folder of sets are read from its record, not from its name.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import fsum
from pathlib import Path
from typing import Annotated, Any

from cfaug.core.errors import UserError
from cfaug.data.shards.shards import read_scores
from cfaug.evaluation.text_pairs.entailment_items import EntailmentItems
from cfaug.evaluation.text_pairs.text_pair_items import (
    CHANGED,
    KEPT,
    UNKNOWN,
    InsertionItems,
    PairedTest,
    TextPairItems,
    compare_changes,
)
from cfaug.papers.xmai.answer_tables import (
    DIGITS,
    RELEVANCE,
    RETRIEVAL,
    Checkpoints,
    MeasureColumn,
    PairTable,
    Timing,
    known_columns,
    read_settings,
    read_timings,
    value_entry,
)
from cfaug.papers.xmai.entailment_tables import (
    SCORES,
    change_entry,
    holm_entry,
    keys_entry,
    signed,
)
from cfaug.report.arm_results import Runs
from cfaug.report.document import Column, Curve, Document, Entry, Part, make_part, text_column
from cfaug.report.page import DASH
from cfaug.report.paper_tables import published, read_answers
from cfaug.settings.read_if import GIVEN, ReadIf
from cfaug.stats.cluster_tests import MeanDifference, cluster_mean

TASKS: Mapping[str, tuple[type[TextPairItems], Sequence[MeasureColumn]]] = {
    "insertion": (InsertionItems, (*RETRIEVAL, *RELEVANCE)),
    "entailment": (EntailmentItems, SCORES),
}
"""{benchmark, or the end of its name: (class of its items, measured columns)}."""
Setting = Mapping[str, float]
"""{printed name of a setting: number} of one folder."""


@dataclass(frozen=True, kw_only=True)
class Ablation(PairTable):
    """A table or figure over settings; other arguments as for ``PairTable``.

    Args:
        settings: {name: key of the folders' ``run.json``}, every relevant setting.
        held: {name: number}, the value of each setting when it is not varied.
    """

    settings: Mapping[str, str]
    held: Mapping[str, float] = field(default_factory=dict)

    def variants(self, checkpoints: Checkpoints) -> list[tuple[Setting, str]]:
        """Return the settings of each method that has them, sorted by settings."""
        variants = []
        for method in self.named(checkpoints).values():
            sources = checkpoints[0].sources(method)
            settings = [read_settings(source, self.settings) for source in sources]
            first = settings[0]
            if first is not None and all(setting == first for setting in settings):
                variants.append((first, method))
        return sorted(variants, key=lambda variant: [*variant[0].values()])


@dataclass(frozen=True, kw_only=True)
class AblationTable(Ablation):
    """A row per setting (Tables 3 and 6).

    Args:
        shown: the settings that name a row; the others are held fixed.
        timing: file of ``benchmarks/insertion.py``, for a column of seconds; ``None`` for no
            column.
        timed: the method of the timing file to show.
    """

    shown: Sequence[str]
    timing: str | None = None
    timed: Annotated[str, ReadIf({"timing": GIVEN})] = "xmai"

    def build(self, runs: Runs) -> Document:
        """Return the paper's numbers and ours."""
        kind, columns = TASKS["insertion"]
        by_model = self.read(runs, kind)
        held = {name: value for name, value in self.held.items() if name not in self.shown}
        variants = {
            model: [
                ({name: settings[name] for name in self.shown}, method)
                for settings, method in self.variants(checkpoints)
                if all(settings[name] == value for name, value in held.items())
            ]
            for model, checkpoints in by_model.items()
        }
        variants = {model: listed for model, listed in variants.items() if listed}
        self.require(
            variants, f"answers to benchmark={self.benchmark} about folders made with "
            f"{', '.join(self.settings.values())}",
        )  # fmt: skip
        known = known_columns(columns, by_model)
        times = [] if self.timing is None else read_timings(self.timing)
        parts = [
            self._part(model, by_model[model], listed, known, times)
            for model, listed in variants.items()
        ]
        theirs = published(self.name)
        labels = [name for name in theirs["rows"][0] if name != "values"]

        def cell(at: int, row: Mapping[str, Any]) -> Entry:
            return value_entry(row["values"][at])

        part = make_part(
            self.paper,
            [*map(_letter, labels)],
            [Column(name, partial(cell, at)) for at, name in enumerate(theirs["columns"])],
            [(tuple(_number(row[name]) for name in labels), row) for row in theirs["rows"]],
            [theirs["note"]],
            ours=False,
        )
        return self.document(part, *parts)

    def _part(
        self,
        model: str,
        checkpoints: Checkpoints,
        variants: Sequence[tuple[Setting, str]],
        columns: Sequence[MeasureColumn],
        times: Sequence[Timing],
    ) -> Part:
        def cell(column: MeasureColumn, row: tuple[Setting, str]) -> Entry:
            return column.measure(checkpoints, row[1])

        def seconds(row: tuple[Setting, str]) -> Entry:
            for time in times:
                if time.method == self.timed and all(
                    time.settings.get(name) == _number(value) for name, value in row[0].items()
                ):
                    numbers = {"value": time.seconds, "n": float(time.captions)}
                    return Entry(f"{time.seconds:.{DIGITS}f}", numbers=numbers)
            return Entry(DASH)

        cells = [Column(column.title, partial(cell, column), column.group) for column in columns]
        if times:
            cells.append(Column("Time (s) ↓", seconds))
        machines = ", ".join(dict.fromkeys(time.machine for time in times))
        return make_part(
            f"Ours: {model}",
            [*map(_letter, self.shown)],
            cells,
            [
                (tuple(map(_number, settings.values())), (settings, method))
                for settings, method in variants
            ],
            (f"Seconds a caption on {machines}.",) if times else (),
        )


@dataclass(frozen=True, kw_only=True)
class AblationFigure(Ablation):
    """The effect of one setting while the others stay fixed (Figures 4 to 6).

    Args:
        vary: the settings to vary, each with its own line.
        tasks: {printed name: end of the benchmark's name}, in order, with a panel for each metric.
        metrics: headers, as in tables, of the numbers to show; ``None`` for all.
    """

    vary: Sequence[str]
    x_title: str
    """the label of the horizontal axis"""
    tasks: Mapping[str, str] = field(default_factory=lambda: {"Retrieval": "insertion"})
    metrics: Sequence[str] | None = None

    benchmark: str = field(default="", init=False)  # those of ``tasks``

    def build(self, runs: Runs) -> Document:
        """Return a panel for each task, model and metric."""
        curves: list[Curve] = []
        for title, benchmark in self.tasks.items():
            task = next((task for name, task in TASKS.items() if benchmark.endswith(name)), None)
            if task is None:
                raise UserError(
                    f"table.tasks: {benchmark!r} is invalid: choose from {', '.join(TASKS)}"
                )
            kind, columns = task
            answers = read_answers(runs.root, benchmark, self.models, kind)
            for model, folders in answers.items():
                checkpoints = [checkpoint for _, checkpoint in folders]
                curves += self._curves(f"{title}, {model}", checkpoints, columns)
        self.require(
            curves, f"answers to benchmark={' and '.join(self.tasks.values())} about folders that "
            f"differ only in {' or '.join(self.vary)}",
        )  # fmt: skip
        return self.document(curves=curves)

    def _curves(
        self, title: str, checkpoints: Checkpoints, columns: Sequence[MeasureColumn]
    ) -> list[Curve]:
        # {value of a setting: method}, with every other setting at its default
        lines: dict[str, dict[float, str]] = {}
        for varied in self.vary:
            line = {
                settings[varied]: method
                for settings, method in self.variants(checkpoints)
                if all(settings[other] == v for other, v in self.held.items() if other != varied)
            }
            if len(line) > 1:
                lines[_letter(varied)] = line
        curves = []
        for column in known_columns(columns, {title: checkpoints}) if lines else ():
            header = " ".join((column.group, column.title)).strip()
            if self.metrics is not None and header not in self.metrics:
                continue
            points = {
                name: {
                    x: {
                        number: column.measure([checkpoint], method).numbers["value"]
                        for number, checkpoint in enumerate(checkpoints)
                    }
                    for x, method in line.items()
                }
                for name, line in lines.items()
            }
            curves.append(Curve(f"{title}: {header}", self.x_title, header, points, unit=""))
        return curves


def _letter(name: str) -> str:
    """Return a setting in the paper's notation.

    >>> _letter("lambda_2"), _letter("k")
    ('λ2', 'k')
    """
    return name.replace("lambda_", "λ")


def _number(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:g}"


# Truth of insertions and their effect on retrieval, setting by setting.

ALL_TEXTS, TRUE_TEXTS = "all texts", "texts kept true"
"""Lines of the figures."""


@dataclass(frozen=True)
class Effect:
    """The effect of one setting.

    Attributes:
        settings: the values of the settings, in order.
        words: share of inserted words that are true; ``None`` if unknown.
        kept: share of texts whose right answer is kept; ``None`` if unknown.
        all_texts: the test of the change of MRR, over all texts.
        kept_texts: the same test over texts whose right answer is kept; ``None`` without such
            texts.
        by_seed: {line of the figure: {checkpoint: change of MRR}}.
    """

    settings: tuple[float, ...]
    words: MeanDifference | None
    kept: MeanDifference | None
    all_texts: PairedTest
    kept_texts: PairedTest | None
    by_seed: Mapping[str, Mapping[int, float]]


def measure_effects(checkpoints: Checkpoints, keys: Mapping[str, str]) -> list[Effect]:
    """Return truth and effect of every folder that has these settings, in their order.

    Args:
        keys: {name: key of the folders' ``run.json``}.
    """
    first, effects = checkpoints[0], []
    columns = ("mrr_original", "mrr")
    every = {change.method: change for change in compare_changes(checkpoints, *columns)}
    kept = {
        change.method: change for change in compare_changes(checkpoints, *columns, kept_only=True)
    }
    for method in first.methods:
        settings = read_settings(first.sources(method)[0], keys)
        if settings is not None and method in every:
            truth = words_true(first, method), texts_kept(first, method)
            numbers = tuple(settings.values())
            lines = {ALL_TEXTS: _by_seed(checkpoints, method, kept_only=False)}
            if method in kept:
                lines[TRUE_TEXTS] = _by_seed(checkpoints, method, kept_only=True)
            effects.append(Effect(numbers, *truth, every[method], kept.get(method), lines))
    return sorted(effects, key=lambda effect: effect.settings)


def _by_seed(checkpoints: Checkpoints, method: str, *, kept_only: bool) -> dict[int, float]:
    """Return the mean change of MRR of each checkpoint."""
    by_seed = {}
    for seed, checkpoint in enumerate(checkpoints):
        before, after = (
            checkpoint.by_key(name, method, kept_only) for name in ("mrr_original", "mrr")
        )
        by_seed[seed] = fsum(after[key] - before[key] for key in after) / len(after)
    return by_seed


def effects_part(title: str, names: Sequence[str], effects: Sequence[Effect]) -> Part:
    """Return a row per setting."""
    rows = [(tuple(f"{value:g}" for value in effect.settings), effect) for effect in effects]
    return make_part(title, names, EFFECT_COLUMNS, rows)


def effect_curves(title: str, names: Sequence[str], effects: Sequence[Effect]) -> list[Curve]:
    """Return curves of truth and of effect over the first setting.

    With several settings there is a line for each value of the others, over all texts; with one
    there are lines for inserted words and texts, and for all texts and those that stayed true.
    """
    truth: dict[str, dict[float, dict[int, float]]] = {}
    effect: dict[str, dict[float, dict[int, float]]] = {}
    for measured in effects:
        about = zip(names[1:], measured.settings[1:], strict=True)
        line = ", ".join(f"{name} = {value:g}" for name, value in about)
        x = measured.settings[0]
        shares = {line or TRUE_TEXTS: measured.kept} | (
            {} if line else {"inserted words": measured.words}
        )
        for name, share in shares.items():
            if share is not None:
                truth.setdefault(name, {})[x] = {0: share.mean}
        for name, seeds in measured.by_seed.items():
            if not line or name == ALL_TEXTS:
                effect.setdefault(line or name, {})[x] = dict(seeds)
    of = "texts kept true" if len(names) > 1 else "share that is true"
    return [
        Curve(f"{title}: {of}, %", names[0], "share", truth, unit="fraction"),
        Curve(f"{title}: change of MRR, points", names[0], "change", effect, unit="fraction"),
    ]


INSERTED_TRUE = "inserted_true"
"""The score of a set that the oracle of a world gives, such as ShapeScapes' ``CaptionTruth``."""
TEXTS_NOTE = (
    "Inserted words: words of the changed text that the original does not have, if they name "
    "something that the world knows; a mean over texts. Kept: the changed text is as true of its "
    "photo as the original. Changed: it no longer is. Unknown: nothing in it is false, but the "
    "world does not know some word. Brackets: 95 % over photos."
)


def texts_part(items: TextPairItems, methods: Mapping[str, str]) -> Part:
    """Return the oracle's judgements of each method's texts, by the items of one checkpoint."""

    def share(check: str, method: str) -> Entry:
        checks = [items.label_kept[row] for row in items.rows(method).tolist()]
        return value_entry(checks.count(check) / len(checks))

    def changed(method: str) -> Entry:
        return value_entry(float(items.items.metric("changed")[items.rows(method).tolist()].mean()))

    true, right = "share that is true", "right answer"
    columns: list[Column[str]] = [
        text_column("texts", lambda method: f"{len(items.rows(method)):,}"),
        Column("changed", changed),
        Column("inserted words", lambda method: interval_entry(words_true(items, method)), true),
        Column(KEPT, lambda method: interval_entry(texts_kept(items, method)), right),
        *(Column(check, partial(share, check), right) for check in (CHANGED, UNKNOWN)),
    ]
    title = "The oracle's judgements of the texts"
    rows = [((printed,), method) for printed, method in methods.items()]
    return make_part(title, ("Method",), columns, rows, [TEXTS_NOTE])


def words_true(items: TextPairItems, method: str) -> MeanDifference | None:
    """Return the share of a method's inserted words that are true; ``None`` if none is known."""
    scores: dict[str, Mapping[str, float]] = {}
    for source in items.sources(method):
        scores |= read_scores(Path(source))
    keys = items.texts("key")
    row_keys = [keys[row] for row in items.rows(method).tolist()]
    known = {
        key: scores[key][INSERTED_TRUE] for key in row_keys if INSERTED_TRUE in scores.get(key, {})
    }
    return share_over_photos(list(known.values()), [items.clusters[key] for key in known])


def texts_kept(items: TextPairItems, method: str) -> MeanDifference | None:
    """Return the share of a method's texts whose right answer is known to be kept."""
    rows, keys = items.rows(method).tolist(), items.texts("key")
    kept = [float(items.label_kept[row] == KEPT) for row in rows]
    return share_over_photos(kept, [items.clusters[keys[row]] for row in rows])


def share_over_photos(values: Sequence[float], clusters: Sequence[str]) -> MeanDifference | None:
    """Return the share of texts with its interval over photos; ``None`` without texts."""
    return cluster_mean(values, clusters, bounds=(0.0, 1.0)) if values else None


def interval_entry(difference: MeanDifference | None, *, sign: bool = False) -> Entry:
    """Return a mean with its interval; a dash without a mean.

    Args:
        sign: whether the mean is a difference, printed with its sign.
    """
    if difference is None:
        return Entry(DASH)
    text = signed if sign else (lambda value: f"{value:.{DIGITS}f}")
    small = (
        "" if math.isnan(difference.low) else f"[{text(difference.low)}, {text(difference.high)}]"
    )
    numbers = {"value": difference.mean, "n": float(difference.items)}
    return Entry(text(difference.mean), small=small, numbers=numbers)


EFFECT_COLUMNS: tuple[Column[Effect], ...] = (
    text_column("texts", lambda effect: f"{effect.all_texts.keys:,}"),
    Column("inserted words true", lambda effect: interval_entry(effect.words)),
    Column("texts kept true", lambda effect: interval_entry(effect.kept)),
    Column("change of MRR", lambda effect: change_entry(effect.all_texts, -1), ALL_TEXTS),
    Column("Holm", lambda effect: holm_entry(effect.all_texts), ALL_TEXTS),
    Column("texts kept", lambda effect: keys_entry(effect.kept_texts), TRUE_TEXTS),
    Column("change of MRR", lambda effect: change_entry(effect.kept_texts, -1), TRUE_TEXTS),
    Column("Holm", lambda effect: holm_entry(effect.kept_texts), TRUE_TEXTS),
)
