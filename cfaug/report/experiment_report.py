"""``report.html``: one file that opens anywhere, offline; its first line is the verdict."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from cfaug.core.types import CounterfactualSet
from cfaug.report.arms import RATIO, Arm, full_names, read_arms
from cfaug.report.comparison import Headline, measures
from cfaug.report.document import Column, Entry, Part, make_part, text_column
from cfaug.report.drawing import Drawing, write_pdfs
from cfaug.report.gallery import contrast, show
from cfaug.report.layout import benchmark_parts, full_comparison_part, item_part, legend
from cfaug.report.page import DASH, Measure, p_text, render, span_text, write_page
from cfaug.report.plots import curve, strip_plot
from cfaug.report.records import Run, training_seconds
from cfaug.report.results import Cell, Result, by_seed
from cfaug.report.significance_rows import Table
from cfaug.report.significance_table import RunItems
from cfaug.report.summary_text import (
    Finding,
    cost,
    describe_pairing,
    how_tested,
    pairing,
    steps_part,
    verdict,
)
from cfaug.stats.significance import summarise


def write_report(
    folder: Path,
    *,
    title: str,
    rows: Sequence[Result],
    runs: Sequence[Run],
    samples: Sequence[CounterfactualSet],
    config_text: str,
    table: Table,
    headline: Headline,
) -> list[Path]:
    """Write ``report.html``, and its figures as ``report-1.pdf`` and so on; return the paths.

    Args:
        folder: destination; created if missing.
        table: the comparisons of these rows, with its notes.
    """
    baselines, items = table.baselines, RunItems(runs, rows)
    records = [run.record for run in runs]
    compared = pairing(rows, headline, items)
    ratio = _ratio(rows, read_arms(runs), headline)
    strips = []
    for name, cell in _columns(rows, headline):
        arms = {headline.label(a): v for a in table.arms if (v := by_seed(rows, a, cell))}
        measure = table.measure(cell)
        tested = [headline.label(arm) for arm in headline.tested]
        by_chance = table.chance.get(cell)
        drawn = strip_plot(arms, _axis_title(measure, cell[1]), tested, measure, by_chance)
        strips.append((name, cell, drawn))
    how = "Student's, paired by seed"
    if table.over_items:
        over_items = "over the test's items"
        how = over_items if table.one_seed else f"{how}, or {over_items}"
    shown = [show(example) for example in samples]
    text = render(
        "report.html",
        title=title,
        config_text=config_text,
        samples=shown,
        contrast=contrast(member for sample in shown for member in sample.members),
        verdict=verdict(rows, headline, baselines, items),
        cost=cost(rows, headline, baselines, items),
        steps=steps_part(rows, headline, baselines, items),
        how_tested=how_tested(rows, headline, baselines, items),
        pairing=_pairing_part(compared, headline) if compared else None,
        describe_pairing=describe_pairing(compared, headline),
        table=table,
        headline_part=_headline_part(rows, table, headline),
        strips=strips,
        ratio=ratio,
        benchmark_parts=benchmark_parts(table),
        intervals=f"Differences in percentage points, in brackets the 95 % interval ({how}).",
        comparisons=full_comparison_part(table),
        over_items=item_part(table),
        legend=[*legend(table), *table.own_notes()],
        full_names=full_names(table.labels, table.arms),
        efforts=_effort_part(records, headline.labels) if records else None,
        provenance=_provenance(records),
    )
    drawings = [drawing for _, _, drawing in strips] + ([ratio] if ratio else [])
    return [write_page(folder / "report.html", text), *write_pdfs(drawings, folder, "report")]


def _columns(rows: Sequence[Result], headline: Headline) -> list[tuple[str, Cell]]:
    """Return the cells of the headline table: the gain, and the cost beside it."""
    cells = [("Out of distribution", headline.cell), ("In distribution", headline.cost_cell(rows))]
    present = {row.cell for row in rows}
    shown = [(name, cell) for name, cell in cells if cell in present and cell is not None]
    # Without a counterpart, "in distribution" has no meaning.
    return shown if len(shown) == 2 else [(cell[0], cell) for _, cell in shown]


def _headline_part(rows: Sequence[Result], table: Table, headline: Headline) -> Part | None:
    """Return the arms on the cells of the headline, with their differences over every baseline."""
    cells = _columns(rows, headline)
    if not cells:
        return None

    def mean(cell: Cell, arm: str) -> Entry:
        row = table.get(arm, cell)
        if row is None:
            return Entry(DASH)
        spread = "" if math.isnan(row.sd) else row.measure.spread(row.sd)
        return Entry(row.measure.text(row.mean, 1), sub=spread)

    def difference(cell: Cell, baseline: str, arm: str) -> Entry:
        row = table.get(arm, cell, baseline)
        if row is None or arm == baseline:
            return Entry("")
        over_items = table.get_over_items(arm, cell, baseline)
        low, high = over_items.interval if over_items else (row.t_low, row.t_high)
        small = f"n/a ({row.reason})" if row.reason else ""
        if low == low:
            small = f"[{row.measure.difference(low)}, {row.measure.difference(high)}]"
        return Entry(row.measure.difference(row.diff), small=small)

    columns = []
    for name, cell in cells:
        group = f"{name}: {_axis_title(table.measure(cell), cell[1])}"
        head = "value" if table.one_seed else "mean ± sd"
        columns.append(Column(head, partial(mean, cell), group))
        columns += [
            Column(f"over {headline.label(baseline)}", partial(difference, cell, baseline), group)
            for baseline in table.baselines
        ]
    return make_part(
        "",
        ("arm",),
        columns,
        [((headline.label(arm),), arm) for arm in table.arms],
        accents=tuple(i for i, arm in enumerate(table.arms) if arm in headline.tested),
    )


def _axis_title(measure: Measure, metric: str) -> str:
    """Return a metric with its unit: "acc1, %"."""
    lower = "" if measure.better == "higher" else ", lower is better"
    return f"{metric}, {measure.sign}{lower}"


def _pairing_part(made: Sequence[Finding], headline: Headline) -> Part:
    columns: tuple[Column[Finding], ...] = (
        text_column("difference", lambda finding: finding.amount),
        text_column(
            "95 % interval, uncorrected",
            lambda finding: span_text(finding.measure.difference, *finding.interval),
        ),
        text_column("p (two-sided, Holm)", lambda finding: p_text(finding.p)),
    )
    rows = [
        ((headline.label(finding.arm), headline.label(finding.other), *finding.cell), finding)
        for finding in made
    ]
    return make_part("", ("arm", "against", "benchmark", "metric"), columns, rows)


def _ratio(rows: Sequence[Result], arms: Mapping[str, Arm], headline: Headline) -> Drawing | None:
    """Plot metric against ratio over arms that differ in nothing else, if there are three.

    They differ from the main arm under test only in ``data.cf_ratio``.
    """
    main = arms.get(headline.tested[0])
    ratios = {
        arm.name: arm.cf_ratio
        for arm in arms.values()
        if main is not None
        and arm.trained
        and arm.cf_ratio is not None
        and arm.differs_only_in(RATIO, main)
    }
    if len(set(ratios.values())) < 3:
        return None
    series = {
        name: {
            ratio: values for arm, ratio in ratios.items() if (values := by_seed(rows, arm, cell))
        }
        for name, cell in _columns(rows, headline)
    }
    drawn = {name: points for name, points in series.items() if points}
    if not drawn:
        return None
    measure = measures(rows)[headline.cell]
    title = _axis_title(measure, headline.metric)
    return curve(drawn, "share of counterfactual examples (cf_ratio)", title, measure)


def _effort_part(records: Sequence[Mapping[str, Any]], labels: Mapping[str, str]) -> Part:
    """Return the training effort of each arm over its runs, which shows if arms are comparable."""

    def count(name: str, runs: Sequence[Mapping[str, Any]]) -> str:
        return _spread([(record.get("counts") or {}).get(name) for record in runs])

    def seconds(runs: Sequence[Mapping[str, Any]]) -> str:
        times = [
            (taken, whole) for taken, whole in map(training_seconds, runs) if taken is not None
        ]
        if not times:
            return DASH
        least = "" if all(all_of_it for _, all_of_it in times) else "at least "
        return f"{least}{summarise([taken for taken, _ in times]).mean:.1f}"

    columns: list[Column[Sequence[Mapping[str, Any]]]] = [
        text_column("runs", lambda runs: str(len(runs))),
        text_column("cf_ratio", lambda runs: _spread([record.get("cf_ratio") for record in runs])),
        *(
            text_column(name, partial(count, name))
            for name in ("real", "counterfactual", "train", "seen")
        ),
        text_column("steps", lambda runs: _spread([record.get("steps") for record in runs])),
        text_column("seconds a run", seconds),
    ]
    rows = [
        ((labels.get(arm, arm),), [record for record in records if record["arm"] == arm])
        for arm in dict.fromkeys(str(record["arm"]) for record in records)
    ]
    return make_part("", ("arm",), columns, rows)


def _spread(values: Sequence[Any]) -> str:
    """Return the common value, or the range: an average would hide unequal arms."""
    known = [v for v in values if v is not None]
    if not known:
        return DASH
    low, high = min(known), max(known)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _provenance(runs: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    by_name: dict[str, list[str]] = {}
    for run in runs:
        for name in ("experiment", "hardware", "threads", "versions", "git"):
            text = _flat(run.get(name))
            if text and text not in by_name.setdefault(name, []):
                by_name[name].append(text)
    return {name: " | ".join(texts) for name, texts in by_name.items() if texts}


def _flat(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_flat(v)}" for key, v in value.items())
    return "" if value is None else str(value)
