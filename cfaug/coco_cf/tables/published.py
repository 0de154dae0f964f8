"""The paper's own numbers, ``coco_cf_<N>.json`` beside this file, as parts of a table.

A value is a mean or [mean, standard deviation]; ``n`` is the number of seeds of the standard
deviations.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cfaug.coco_cf.tables.columns import ValueColumn
from cfaug.report.document import Entry, Part, groups_of, rules_of
from cfaug.report.measured_cell import label_text
from cfaug.report.published import published
from cfaug.report.tables import ALPHA
from cfaug.stats.significance import SeedSummary, welch

TESTED = (
    "Underlines are recomputed from the printed means, standard deviations and 25 seeds. Every one "
    "agrees with the paper's; a bold cell has lost its own in the paper's text."
)


def mean_sd(value: float | list[float]) -> tuple[float, float]:
    """Return mean and standard deviation of a cell, ``nan`` if missing in the paper."""
    return (value[0], value[1]) if isinstance(value, list) else (value, math.nan)


def published_part(
    name: str,
    title: str,
    labels: Mapping[str, str],
    columns: tuple[ValueColumn, ...],
    baseline: str | None = None,
) -> Part:
    """Lay out the paper's numbers as the paper did.

    Values better than the baseline by the paper's test are underlined. The test is recomputed from
    mean, standard deviation and n, as bold cells lose their underline in the paper's extracted
    text.

    Args:
        name: the name of the table.
        title: the title of the part.
        labels: {key of a row: header}, for the columns that name a row.
        columns: the columns to print.
        baseline: the ``model`` of the row that the others are tested against; ``None`` for no test.
    """
    found = published(name)
    place = {key: i for i, key in enumerate(found["columns"])}
    base = next((row for row in found["rows"] if row.get("model") == baseline), None)
    rows = []
    for row in found["rows"]:
        rivals = [r for r in found["rows"] if r.get("pretrained") == row.get("pretrained")]
        cells = []
        for column in columns:
            at = place[column.key]
            best = max(mean_sd(other["values"][at])[0] for other in rivals)
            rival = base["values"][at] if base is not None and _has_counterfactuals(row) else None
            one = _entry(row["values"][at], rival, found.get("n", 0), best)
            cells.append(one if len(rivals) > 1 else replace(one, bold=False))
        rows.append((tuple(label_text(key, row.get(key)) for key in labels), tuple(cells)))
    return Part(
        title=title,
        labels=tuple(labels.values()),
        groups=groups_of(columns),
        columns=tuple(column.name for column in columns),
        rows=tuple(rows),
        rules=rules_of([labels[0] for labels, _ in rows]) if "pretrained" in labels else (),
        notes=(found["note"], *((TESTED,) if base is not None else ())),
        ours=False,
    )


def _has_counterfactuals(row: Mapping[str, Any]) -> bool:
    return bool(row.get("cf_percent"))


def _entry(
    value: float | list[float], rival: float | list[float] | None, n: int, best: float
) -> Entry:
    mean, sd = mean_sd(value)
    numbers = {"value": mean / 100}
    sub, p = "", math.nan
    if not math.isnan(sd):
        numbers |= {"sd": sd / 100, "n": n}
        sub = f"{sd:g}"
    if rival is not None and n:
        p = welch(SeedSummary(mean, sd, n), SeedSummary(*mean_sd(rival), n))
        numbers["p_independent"] = p
    return Entry(
        text=f"{mean:.2f}", sub=sub, bold=mean == best, underlined=p <= ALPHA, numbers=numbers
    )
