"""``report.html``: one file that opens anywhere, offline; its first line is the verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup

from cfaug.metrics.significance import summarise
from cfaug.report.figures import curve, strip_plot
from cfaug.report.labels import full_names
from cfaug.report.layout import blocks, interval_text, legend
from cfaug.report.page import render, write_page
from cfaug.report.results import Cell, Result, by_seed, untrained_arms
from cfaug.report.samples import show_all
from cfaug.report.summary_text import Headline, cost, how_tested, pairing, pairing_says, verdict
from cfaug.report.tables import Table
from cfaug.types import CounterfactualSet

COUNTS = ("real", "counterfactual", "train", "seen")


@dataclass(frozen=True)
class Effort:
    """What one arm was given, over its runs: shows whether the arms are comparable."""

    arm: str
    runs: int
    cf_ratio: str
    counts: tuple[str, ...]
    steps: str
    wall_s: str


def write_report(
    folder: Path,
    *,
    title: str,
    rows: Sequence[Result],
    runs: Sequence[Mapping[str, Any]],
    samples: Sequence[CounterfactualSet],
    config_text: str,
    table: Table,
    headline: Headline,
) -> Path:
    """Write ``report.html`` and return its path.

    Args:
        folder: where to; made if missing.
        title: what the page is called.
        rows: results of all runs.
        runs: contents of their ``run.json``.
        samples: sets to show, in order.
        config_text: the configuration, shown as it is.
        table: the comparisons of these rows, with its notes.
        headline: what the first line is about.

    Raises:
        UserError: if a sample's image cannot be decoded.
    """
    text = render(
        "report.html",
        title=title,
        config_text=config_text,
        headline=headline,
        samples=show_all(samples),
        **_sentences(rows, headline, table.baselines),
        **_numbers(rows, runs, table, headline),
        **_background(runs),
    )
    return write_page(folder / "report.html", text)


def _sentences(
    rows: Sequence[Result], headline: Headline, baselines: Sequence[str]
) -> dict[str, Any]:
    compared = pairing(rows, headline)
    return {
        "verdict": verdict(rows, headline, baselines),
        "cost": cost(rows, headline, baselines),
        "how_tested": how_tested(rows, headline, baselines),
        "pairing": compared,
        "pairing_says": pairing_says(compared, headline),
    }


def _numbers(
    rows: Sequence[Result],
    runs: Sequence[Mapping[str, Any]],
    table: Table,
    headline: Headline,
) -> dict[str, Any]:
    return {
        "table": table,
        "columns": _columns(rows, headline),
        "strips": _strips(rows, table, headline),
        "ratio": _ratio(rows, runs, headline),
        "blocks": blocks(table),
        "legend": [*legend(table), table.note(), *table.notes],
        "full_names": full_names(table.labels, table.arms),
        "interval": interval_text,
    }


def _background(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {
        "efforts": _efforts(runs),
        "count_names": COUNTS,
        "provenance": _provenance(runs),
    }


def _columns(rows: Sequence[Result], headline: Headline) -> list[tuple[str, Cell]]:
    """Return the cells of the headline table: the gain, and the cost beside it."""
    found = [("Out of distribution", headline.cell), ("In distribution", headline.cost_cell(rows))]
    present = {row.cell for row in rows}
    shown = [(name, cell) for name, cell in found if cell in present and cell is not None]
    # Without a counterpart there is nothing to be in or out of.
    return shown if len(shown) == 2 else [(cell[0], cell) for _, cell in shown]


def _strips(
    rows: Sequence[Result], table: Table, headline: Headline
) -> list[tuple[str, Cell, Markup]]:
    strips = []
    for name, cell in _columns(rows, headline):
        arms = {headline.label(a): v for a in table.arms if (v := by_seed(rows, a, cell))}
        drawn = strip_plot(arms, f"{cell[1]}, %", [headline.label(a) for a in headline.tested])
        strips.append((name, cell, drawn))
    return strips


def _ratio(
    rows: Sequence[Result], runs: Sequence[Mapping[str, Any]], headline: Headline
) -> Markup | None:
    """Draw metric against ratio over arms that differ in nothing else, if there are three or more.

    Those are the arms named after their ratio, the trained arms of the headline's order, and the
    main arm under test: others have other sources.
    """
    untrained = untrained_arms(runs)
    named = (*headline.order, *headline.tested[:1])
    ratios = {
        str(run["arm"]): float(run["cf_ratio"])
        for run in runs
        if run.get("cf_ratio") is not None
        and ("cf_ratio=" in str(run["arm"]) or run["arm"] in named)
        and run["arm"] not in untrained
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
    return curve(drawn, "share of counterfactual examples (cf_ratio)", f"{headline.metric}, %")


def _efforts(runs: Sequence[Mapping[str, Any]]) -> list[Effort]:
    found = []
    for arm in dict.fromkeys(str(run["arm"]) for run in runs):
        own = [run for run in runs if run["arm"] == arm]
        counts = [[(run.get("counts") or {}).get(name) for run in own] for name in COUNTS]
        found.append(
            Effort(
                arm=arm,
                runs=len(own),
                cf_ratio=_spread([run.get("cf_ratio") for run in own]),
                counts=tuple(map(_spread, counts)),
                steps=_spread([run.get("steps") for run in own]),
                wall_s=_average([run.get("wall_s") for run in own]),
            )
        )
    return found


def _spread(values: Sequence[Any]) -> str:
    """Return the common value, or the range: an average would hide unequal arms."""
    known = [v for v in values if v is not None]
    if not known:
        return "–"
    low, high = min(known), max(known)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _average(values: Sequence[Any]) -> str:
    known = [float(v) for v in values if v is not None]
    return f"{summarise(known).mean:.1f}" if known else "–"


def _provenance(runs: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return what the runs say of the machine and the code, each distinct value once."""
    found: dict[str, list[str]] = {}
    for run in runs:
        for name in ("experiment", "hardware", "threads", "versions", "git"):
            text = _flat(run.get(name))
            if text and text not in found.setdefault(name, []):
                found[name].append(text)
    return {name: " | ".join(texts) for name, texts in found.items() if texts}


def _flat(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_flat(v)}" for key, v in value.items())
    return "" if value is None else str(value)
