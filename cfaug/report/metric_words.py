"""Metrics in words, for two header rows: ``image_to_text_R@1`` is "R@1" of "image to text"."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

from cfaug.report.document import Part

WORDS = {
    "acc": "accuracy",
    "p": "probability of the class",
    "delta_p": "change of probability",
    "p_drop": "probability lost",
    "photo_acc": "accuracy on the photos",
    "drop": "accuracy lost",
    "paired_drop": "lost on the same photos",
    "net_drop": "lost beyond reconstruction",
}
"""{metric: its words}, without the "1" and "5" that count the first answers."""
FIRST_ANSWERS = re.compile(r"((?:\w+_)?(?:acc|drop))(\d+)")
AMONG_FIRST = re.compile(r"(?:(.*)_)?([Rr](?:ecall)?@\d+)")
CLASS_MEAN = "mean_per_class_recall"
SCORES = re.compile(r"(text|image|group)_score")


def split_metric(metric: str) -> tuple[str, str]:
    """Return a metric as the header of its group, and that of its column; either may be empty.

    >>> split_metric("image_to_text_R@10"), split_metric("acc5"), split_metric("blind_right")
    (('image to text', 'R@10'), ('accuracy', 'top 5'), ('', 'blind right'))
    """
    if match := AMONG_FIRST.fullmatch(metric):
        return (match[1] or "").replace("_", " "), match[2]
    if match := FIRST_ANSWERS.fullmatch(metric):
        return WORDS.get(match[1], match[1].replace("_", " ")), f"top {match[2]}"
    if metric == CLASS_MEAN:
        return "accuracy", "class mean"
    if match := SCORES.fullmatch(metric):
        return "score", match[1]
    return "", WORDS.get(metric, metric.replace("_", " "))


def with_columns(part: Part, columns: Sequence[int]) -> Part:
    """Return a table with some of its columns, by their places, in this order."""
    rows = [(labels, tuple(cells[i] for i in columns)) for labels, cells in part.rows]
    return replace(part, columns=tuple(part.columns[i] for i in columns), rows=tuple(rows))


LOWER = "lower is better"


def spell_out(part: Part, metrics: Sequence[str]) -> Part:
    """Return a table of metrics with words in two header rows: "Image to text: R@1 R@5 R@10".

    Columns of a group stand together, and notes say of which lower values are better.

    Args:
        metrics: the metrics of which the table's headers, or the first of them, begin with one.
    """
    if part.groups:
        return part
    heads, lower = [], []
    for header in part.columns:
        metric = next((m for m in metrics if header == m or header.startswith(f"{m} (")), header)
        group, column = split_metric(metric)
        unit = re.sub(rf",? ?{LOWER}", "", header[len(metric) :]).replace(" ()", "")
        heads.append((group[:1].upper() + group[1:], f"{column}{unit}"))
        if LOWER in header:
            lower.append(" ".join(filter(None, (group, column))))
    first = {head[0]: place for place, head in reversed(list(enumerate(heads)))}
    order = sorted(range(len(heads)), key=lambda i: first[heads[i][0]] if heads[i][0] else i)
    heads = [heads[i] for i in order]
    spans = tuple((name, len(list(some))) for name, some in groupby(heads, key=lambda h: h[0]))
    return replace(
        with_columns(part, order),
        groups=spans if any(name for name, _ in spans) else (),
        columns=tuple(column for _, column in heads),
        notes=(*part.notes, *([f"Lower is better: {', '.join(lower)}."] if lower else [])),
    )
