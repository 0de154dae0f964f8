"""The figures of a document, in the order in which its page shows them."""

from __future__ import annotations

import math

import numpy as np

from cfaug.report.bar_figure import Bar, grouped_bars
from cfaug.report.box_figure import box_plot
from cfaug.report.document import Document
from cfaug.report.drawing import Drawing
from cfaug.report.figures import curve
from cfaug.report.matching_gap import gap_figure
from cfaug.report.numbers import Measure
from cfaug.report.tradeoff_figure import tradeoff_plot

Shown = tuple[str, Drawing, str]
"""The text above a figure, the figure, and the text below it."""


def draw_figures(document: Document) -> list[Shown]:
    """Draw the curves, boxes, bars, trade-offs and gaps of a document that are not empty."""
    figures = [
        (
            one.title,
            curve(one.series, one.x_title, one.y_title, Measure(one.unit), one.chance),
            one.note,
        )
        for one in document.curves
        if any(one.series.values())
    ]
    for box in document.boxes:
        if box.rows:
            drawn = box_plot(box.rows, box.axis, Measure(box.unit), box.chance)
            figures.append((box.title, drawn, box.note))
    for one in document.bars:
        if one.groups:
            groups = {g: [_bar(*bar) for bar in bars] for g, bars in one.groups.items()}
            drawn = grouped_bars(
                groups, one.axis, Measure(one.unit), one.legend, one.chance, one.logarithmic
            )
            figures.append((one.title, drawn, one.note))
    for plot in document.tradeoffs:
        measures = (Measure(plot.units[0]), Measure(plot.units[1]))
        drawn = tradeoff_plot(plot.series, plot.x_title, plot.y_title, measures)
        figures.append((plot.title, drawn, plot.note))
    for gap in document.gaps:
        found = {name: np.array(values, np.float64) for name, values in gap.gaps.items()}
        figures.append(("", gap_figure(found, gap.title, gap.kind), gap.note))
    return figures


def _bar(name: str, *numbers: float | None) -> Bar:
    value, low, high = (math.nan if number is None else number for number in numbers)
    return name, value, low, high
