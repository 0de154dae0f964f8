"""Models compared over all tasks that they share: one sentence, one row a task, one mean."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from cfaug.core.errors import UserError, name_some
from cfaug.report.item_lists.evaluation_folders import SharedTasks
from cfaug.report.item_lists.evaluator_logs import filters_of
from cfaug.report.item_lists.item_files import (
    WHOLE,
    FileComparison,
    ItemAnswers,
    compare_item_files,
    read_item_files,
)
from cfaug.report.item_lists.item_tables import ItemColumns
from cfaug.report.page import p_text
from cfaug.report.significance_rows import ALPHA
from cfaug.stats.item_tests import least_visible
from cfaug.stats.power import Components, variance_components
from cfaug.stats.significance import cochran_q, holm


@dataclass(frozen=True)
class TaskResult:
    """One task of several models: the answers of all, and their comparisons by metric and part.

    Attributes:
        task: its printed name, with the filter of the answers where it has several.
        base: its name without one.
    """

    task: str
    base: str
    answers: ItemAnswers
    comparisons: Sequence[FileComparison]


@dataclass(frozen=True)
class TaskDifference:
    """Two models on one metric of one task, over all items; Holm over all such rows.

    Attributes:
        base: the task without the filter of its answers.
        components: variances of the item differences, between clusters and within them; ``None``
            with fewer than two clusters.
    """

    task: str
    base: str
    row: FileComparison
    p_holm: float
    components: Components | None

    @property
    def error(self) -> float:
        """The standard error over clusters, or over items where each is its own cluster."""
        row = self.row
        return row.error if math.isnan(row.cluster_error) else row.cluster_error

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the test that gave p."""
        return self.row.drawn.low, self.row.drawn.high

    @property
    def shown(self) -> bool:
        """Whether the difference is significant, corrected over all rows."""
        return self.p_holm <= ALPHA

    @property
    def visible(self) -> float:
        """The smallest true difference that 80 % of such tests find."""
        return least_visible(self.error, self.row.drawn.clusters)

    @property
    def items_needed(self) -> int | None:
        """Items with which 80 % of tests find a true difference of the size that was measured."""
        if self.components is None:
            return None
        clusters = self.components.clusters_needed(self.row.drawn.mean)
        return None if clusters is None else math.ceil(clusters * self.components.per_cluster)


@dataclass(frozen=True)
class PooledDifference:
    """The mean of the differences of several tasks, each counted once.

    Attributes:
        heterogeneity_p: p of Cochran's Q: do the tasks differ among each other by more than chance?
    """

    first: str
    other: str
    metric: str
    tasks: int
    mean: float
    error: float
    heterogeneity_p: float

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval over items of these tasks, which are not a sample of tasks."""
        return self.mean - 1.959964 * self.error, self.mean + 1.959964 * self.error

    @property
    def p(self) -> float:
        """Two-sided p of the mean."""
        if not self.error:
            return math.nan
        return math.erfc(abs(self.mean) / self.error / math.sqrt(2))


def compare_tasks(shared: SharedTasks, columns: ItemColumns) -> tuple[list[TaskResult], list[str]]:
    """Compare the places on every task.

    Returns:
        The results, and a sentence for each task that was not compared.

    Raises:
        UserError: if no task can be compared, with the reason of the first.
    """
    results, left, first_error = [], [], None
    for task in shared.tasks:
        try:
            for name, chosen in _by_filter(task.task, task.files, columns):
                answers = read_item_files(task.files, chosen)
                if task.task:  # of folders; files have names of their own
                    answers = replace(answers, names=shared.names)
                base = task.task or answers.task or "all items"
                compared = compare_item_files(answers)
                results.append(TaskResult(name or base, base, answers, compared))
        except UserError as error:
            if len(shared.tasks) == 1:
                raise
            first_error = first_error or error
            left.append(f"{task.task} is not compared: {error}.")
    if not results and first_error is not None:
        raise UserError(f"no task can be compared; the first: {first_error}") from first_error
    return results, left


def _by_filter(
    task: str, files: Sequence[Path], columns: ItemColumns
) -> list[tuple[str, ItemColumns]]:
    """Return (name, columns) for each filter that all logs of a task have, or for none."""
    known = [filters_of(file) for file in files]
    common = [name for name in known[0] if all(name in other for other in known[1:])]
    if max(map(len, known)) < 2:
        return [(task, replace(columns, filter=None) if any(known) else columns)]
    if columns.filter is not None and columns.filter not in common:
        raise UserError(
            f"columns.filter={columns.filter} is not a filter of its logs, which have "
            f"{name_some(common) or 'none in common'}"
        )
    chosen = common if columns.filter is None else [columns.filter]
    return [(f"{task}, {name}".lstrip(", "), replace(columns, filter=name)) for name in chosen]


def list_differences(results: Sequence[TaskResult]) -> list[TaskDifference]:
    """Return the comparisons over all items of every task, corrected over all of them (Holm)."""
    rows = [(result, row) for result in results for row in result.comparisons if row.part == WHOLE]
    corrected = holm([row.p for _, row in rows]).tolist()
    return [
        TaskDifference(result.task, result.base, row, p, _components(result.answers, row))
        for (result, row), p in zip(rows, corrected, strict=True)
    ]


def _components(answers: ItemAnswers, row: FileComparison) -> Components | None:
    names = list(answers.names)
    values = answers.metrics[row.metric]
    ours, theirs = values[names.index(row.first)], values[names.index(row.other)]
    counted = np.flatnonzero(~np.isnan(ours))
    clusters = answers.clusters
    groups = counted if clusters is None else clusters[counted]
    if len(np.unique(groups)) < 2:
        return None
    return variance_components(ours[counted] - theirs[counted], groups.tolist())


def pool(differences: Sequence[TaskDifference]) -> list[PooledDifference]:
    """Return the means over tasks: of all tasks if each has one row, else of each metric.

    A task with several metrics or filters would count several times, and is in no mean of all.
    """
    pooled = []
    pairs = dict.fromkeys((d.row.first, d.row.other) for d in differences)
    for first, other in pairs:
        rows = [d for d in differences if (d.row.first, d.row.other) == (first, other)]
        rows = [d for d in rows if d.row.measure.is_fraction and not math.isnan(d.error)]
        for metric in [""] if _is_each_once(rows) else dict.fromkeys(d.row.metric for d in rows):
            chosen = [d for d in rows if metric in ("", d.row.metric)]
            if len(chosen) < 2 or not _is_each_once(chosen):
                continue
            errors = np.array([d.error for d in chosen])
            means = np.array([d.row.drawn.mean for d in chosen])
            pooled.append(
                PooledDifference(
                    first,
                    other,
                    metric=metric,
                    tasks=len(chosen),
                    mean=float(means.mean()),
                    error=float(np.sqrt((errors**2).sum()) / len(chosen)),
                    heterogeneity_p=cochran_q(means, errors),
                )
            )
    return pooled


def _is_each_once(rows: Sequence[TaskDifference]) -> bool:
    return len({d.base for d in rows}) == len(rows)


def describe_difference(difference: TaskDifference) -> str:
    """Return one sentence on two models on one task, which one may quote.

    It names the better model first; without significance it says what could have been found.
    """
    row, measure = difference.row, difference.row.measure
    ahead = row.drawn.mean > 0
    better, worse = (row.first, row.other) if ahead else (row.other, row.first)
    size = measure.text(abs(row.drawn.mean), 1)
    ends = sorted(
        abs(end) if end * row.drawn.mean > 0 else -abs(end) for end in difference.interval
    )
    where = difference.task if difference.task != "all items" else row.metric
    low, high = (measure.text(end, 1) for end in ends)
    p = f"p = {p_text(difference.p_holm)}"
    if row.better + row.worse == 0:
        return f"{row.first} and {row.other} answer every item of {where} alike."
    if difference.shown:
        amount = f"{size} points more" if measure.is_fraction else f"{size} higher"
        verb = "answers" if measure.is_fraction else "scores"
        on = "of" if measure.is_fraction else "on"
        return f"{better} {verb} {amount} {on} {where} than {worse} (95 % {low} to {high}, {p})."
    sentence = f"No difference between {row.first} and {row.other} is shown on {where} ({p})"
    if not math.isnan(difference.visible):
        unit = " points" if measure.is_fraction else ""
        least = f"{measure.text(difference.visible, 1)}{unit}"
        sentence += f"; only one of {least} or more would be found in 80 % of such tests"
    return f"{sentence}."


def verdict(differences: Sequence[TaskDifference], pooled: Sequence[PooledDifference]) -> list[str]:
    """Return what a reader may quote: a sentence for each pair of models."""
    sentences = []
    for first, other in dict.fromkeys((d.row.first, d.row.other) for d in differences):
        rows = [d for d in differences if (d.row.first, d.row.other) == (first, other)]
        if len(rows) == 1:
            sentences.append(describe_difference(rows[0]))
            continue
        ours = [d for d in rows if d.shown and d.row.drawn.mean > 0]
        theirs = [d for d in rows if d.shown and d.row.drawn.mean < 0]
        means = [m for m in pooled if (m.first, m.other, m.metric) == (first, other, "")]
        many = f"{len(rows)} {'tasks' if _is_each_once(rows) else 'comparisons'}"
        if not ours and not theirs:
            start = f"No difference between {first} and {other} is shown on any of {many}"
        else:
            start = f"Of {many}, {first} is better on {len(ours)} and {other} on {len(theirs)}"
        if means:
            [mean] = means
            ahead = mean.mean > 0
            low, high = sorted(100 * end if ahead else -100 * end for end in mean.interval)
            about = f"95 % {low:.1f} to {high:.1f}"
            size = f"{100 * abs(mean.mean):.1f} points"
            better = first if ahead else other
            if mean.p <= ALPHA:
                start += f"; on average {better} answers {size} more ({about})"
            else:
                start += f"; no difference is shown on average ({size} for {better}, {about})"
        sentences.append(f"{start}.")
    return sentences
