"""Models compared over all tasks that they share: one sentence, one row a task, one mean."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from cfaug.core.errors import UserError, name_some
from cfaug.report.item_lists.evaluation_folders import SharedTasks
from cfaug.report.item_lists.evaluator_logs import filters_of
from cfaug.report.item_lists.item_cautions import is_wrongness
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
from cfaug.stats.significance import cochran_q, holm, smallest_exact_p


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
        shares: part of the mean's error by cluster, or by question that is asked once: the sum of
            its items' deviations from the mean, over all items.
    """

    task: str
    base: str
    row: FileComparison
    p_holm: float
    components: Components | None
    shares: Mapping[str, float]

    @property
    def is_lower_better(self) -> bool:
        """Whether lower values are better, by the name of the metric."""
        return is_wrongness(self.row.metric)

    @property
    def gain(self) -> float:
        """By how much the first model is better: the difference, or minus it."""
        return -self.row.drawn.mean if self.is_lower_better else self.row.drawn.mean

    @property
    def lowest_p(self) -> float:
        """The smallest p that a test of so many clusters can give, whatever the answers."""
        return smallest_exact_p(self.row.drawn.clusters, "two-sided")

    @property
    def error(self) -> float:
        """The standard error over clusters, or over items where each is its own cluster.

        It is ``nan`` for a single cluster, however many items it has.
        """
        row = self.row
        if row.drawn.clusters < 2:
            return math.nan
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
        """The smallest true difference that 80 % of such tests find, without a correction.

        It is ``nan`` where no p can be small, or where no spread was seen.
        """
        if not self.error or self.lowest_p > ALPHA:
            return math.nan
        return least_visible(self.error, self.row.drawn.clusters)

    @property
    def items_needed(self) -> int | None:
        """Items with which 80 % of tests find a true difference of the measured size."""
        if self.components is None:
            return None
        clusters = self.components.clusters_needed(self.row.drawn.mean)
        return None if clusters is None else math.ceil(clusters * self.components.per_cluster)


@dataclass(frozen=True)
class PooledDifference:
    """The mean of the differences of several tasks, each counted once.

    Attributes:
        names: the tasks.
        shared: clusters, or questions, that are in more than one of the tasks.
        freedom: degrees of freedom of the error (Satterthwaite's).
        heterogeneity_p: p of Cochran's Q: do the tasks differ among each other by more than chance?
            ``nan`` where tasks share clusters or questions, since Q is for independent ones.
    """

    first: str
    other: str
    metric: str
    names: Sequence[str]
    mean: float
    error: float
    shared: int
    freedom: float
    heterogeneity_p: float

    @property
    def tasks(self) -> int:
        """The number of tasks."""
        return len(self.names)

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval over items of these tasks, which are not a sample of tasks."""
        from scipy.special import stdtrit

        reach = float(stdtrit(self.freedom, 0.975)) * self.error
        return self.mean - reach, self.mean + reach

    @property
    def p(self) -> float:
        """Two-sided p of the mean."""
        from scipy.special import stdtr

        return 2 * float(stdtr(self.freedom, -abs(self.mean) / self.error))


def compare_tasks(
    shared: SharedTasks, columns: ItemColumns
) -> tuple[list[TaskResult], dict[str, str]]:
    """Compare the places on every task.

    Returns:
        The results, and {task that was not compared: a sentence on it}.

    Raises:
        UserError: if no task can be compared, with the reason of the first.
    """
    results, first_error = [], None
    left = {
        task: f"{task} is not compared: only {' and '.join(names)} "
        f"{'has' if len(names) == 1 else 'have'} it."
        for task, names in shared.lacking.items()
    } | {**shared.unlike}
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
            left[task.task] = f"{task.task} is not compared: {str(error).rstrip('.?')}."
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
    return [(f"{task}, {name}" if task else name, replace(columns, filter=name)) for name in chosen]


def list_differences(results: Sequence[TaskResult]) -> list[TaskDifference]:
    """Return the comparisons over all items of every task, corrected over all of them (Holm)."""
    rows = [(result, row) for result in results for row in result.comparisons if row.part == WHOLE]
    corrected = holm([row.p for _, row in rows]).tolist()
    compared = []
    for (result, row), p in zip(rows, corrected, strict=True):
        models, values = list(result.answers.names), result.answers.metrics[row.metric]
        ours, theirs = values[models.index(row.first)], values[models.index(row.other)]
        counted = np.flatnonzero(~np.isnan(ours))
        differences = ours[counted] - theirs[counted]
        clusters = result.answers.clusters
        groups = counted if clusters is None else clusters[counted]
        components = None
        if len(np.unique(groups)) > 1:
            components = variance_components(differences, groups.tolist())
        names = groups.tolist()
        if clusters is None:
            questions = [result.answers.questions[item] for item in counted.tolist()]
            times = Counter(questions)
            # A question asked twice names no item.
            names = [name if times[name] == 1 else None for name in questions]
        deviations = ((differences - differences.mean()) / len(differences)).tolist()
        shares: dict[str, float] = defaultdict(float)
        for name, deviation in zip(names, deviations, strict=True):
            if name is not None:
                shares[name] += deviation
        compared.append(TaskDifference(result.task, result.base, row, p, components, dict(shares)))
    return compared


def pool(differences: Sequence[TaskDifference]) -> list[PooledDifference]:
    """Return the means over tasks: of all tasks if each has one row, else of each metric.

    A task with several metrics or filters would count several times, and is in no mean of all. A
    metric of which lower values are better is in a mean of its own.
    """
    pooled = []
    pairs = dict.fromkeys((d.row.first, d.row.other) for d in differences)
    for first, other in pairs:
        rows = [d for d in differences if (d.row.first, d.row.other) == (first, other)]
        rows = [d for d in rows if d.row.measure.is_fraction and not math.isnan(d.error)]
        higher = [d for d in rows if not d.is_lower_better]
        families = [("", higher)]
        if not _is_each_once(higher):
            families = _by_metric(higher)
        for metric, chosen in [*families, *_by_metric([d for d in rows if d.is_lower_better])]:
            if len(chosen) > 1 and _is_each_once(chosen) and any(d.error for d in chosen):
                pooled.append(_mean_of(metric, chosen))
    return pooled


def _by_metric(rows: Sequence[TaskDifference]) -> list[tuple[str, list[TaskDifference]]]:
    metrics = dict.fromkeys(d.row.metric for d in rows)
    return [(metric, [d for d in rows if d.row.metric == metric]) for metric in metrics]


def _mean_of(metric: str, rows: Sequence[TaskDifference]) -> PooledDifference:
    """Return the mean of tasks, of which some may ask about the same clusters or questions.

    What two tasks share varies together. The covariance is added where it makes the error larger,
    and not where it would make it smaller: clusters of two tasks may be called alike by chance.
    """
    errors = np.array([d.error for d in rows])
    means = np.array([d.row.drawn.mean for d in rows])
    together: dict[str, list[float]] = defaultdict(list)
    for d in rows:
        for name, share in d.shares.items():
            together[name].append(share)
    shared = [shares for shares in together.values() if len(shares) > 1]
    covariance = sum(sum(shares) ** 2 - sum(share**2 for share in shares) for shares in shared)
    variance = float((errors**2).sum())
    freedoms = np.array([d.row.drawn.clusters - 1 for d in rows])
    return PooledDifference(
        rows[0].row.first,
        rows[0].row.other,
        metric=metric,
        names=[d.base for d in rows],
        mean=float(means.mean()),
        error=math.sqrt(variance + max(covariance, 0.0)) / len(rows),
        shared=len(shared),
        freedom=variance**2 / float((errors**4 / freedoms).sum()),
        heterogeneity_p=math.nan if shared else cochran_q(means, errors),
    )


def _is_each_once(rows: Sequence[TaskDifference]) -> bool:
    return len({d.base for d in rows}) == len(rows)


def shown_p(p: float) -> str:
    """Return p as ``p_text`` does; one that is too small for a number of the computer is not 0.

    >>> shown_p(0.03), shown_p(0.0)
    ('0.030', '< 1e-300')
    """
    return p_text(p) if p else "< 1e-300"


def describe_difference(difference: TaskDifference) -> str:
    """Return one sentence on two models on one task, which one may quote.

    It names the better model first; without significance it says what could have been found.
    """
    row, measure = difference.row, difference.row.measure
    lower, mean = difference.is_lower_better, row.drawn.mean
    better, worse = (row.first, row.other) if difference.gain > 0 else (row.other, row.first)
    points = " points" if measure.is_fraction else ""
    size = f"{measure.text(abs(mean), 1)}{points}"
    where, is_named = difference.task, difference.task != "all items"
    if not is_named:
        where = row.metric
    elif lower or not measure.is_fraction:
        where = f"{where} ({row.metric})"
    p = f"p {'' if not difference.p_holm else '= '}{shown_p(difference.p_holm)}"
    if math.isnan(difference.p_holm):
        return (
            f"A difference between {row.first} and {row.other} on {where} cannot be tested: "
            "all items are of one cluster."
        )
    if row.better + row.worse == 0:
        of_task = f" of {where}" if is_named else ""
        return f"{row.first} and {row.other} score the same on every item{of_task}."
    if difference.shown:
        ends = sorted(end if mean > 0 else -end for end in difference.interval)
        low, high = (measure.text(end, 1) for end in ends)
        amount = f"scores {size} {'lower, so better,' if lower else 'higher'} on {where}"
        if measure.is_fraction and not lower and is_named:
            amount = f"answers {size} more of {where}"
        return f"{better} {amount} than {worse} (95 % {low} to {high}, {p})."
    sentence = f"No difference between {row.first} and {row.other} is shown on {where} ({p})"
    if difference.lowest_p > ALPHA:
        many = row.drawn.clusters
        unit = "item" if math.isnan(row.cluster_error) and many == row.drawn.items else "cluster"
        least = p_text(difference.lowest_p)
        sentence += f"; with {many} {unit}{'s' * (many != 1)} no p is below {least}"
    elif not math.isnan(difference.visible):
        least = measure.text(difference.visible, 1)
        sentence += f"; 80 % of such tests would find one of {least}{points}"
    return f"{sentence}."


MOST_WORDS = 25
"""Words of a sentence that one may quote."""
MOST_NAMED = 3
"""Tasks that such a sentence names."""


def verdict(differences: Sequence[TaskDifference], pooled: Sequence[PooledDifference]) -> list[str]:
    """Return what a reader may quote: a sentence for each pair of models."""
    sentences = []
    for first, other in dict.fromkeys((d.row.first, d.row.other) for d in differences):
        rows = [d for d in differences if (d.row.first, d.row.other) == (first, other)]
        if len(rows) == 1:
            sentences.append(describe_difference(rows[0]))
            continue
        none_shown = not any(d.shown for d in rows)
        many = f"{len(rows)} {'tasks' if _is_each_once(rows) else 'comparisons'}"
        mean_said = ""
        for mean in pooled:
            # A mean of some of the tasks is under the table, and not in a sentence on all of them.
            if (mean.first, mean.other, mean.metric) == (first, other, "") and mean.tasks == len(
                rows
            ):
                mean_said = _describe_mean(mean, none_shown=none_shown)
        if none_shown:
            start = f"No difference between {first} and {other} is shown on any of {many}"
            sentences.append(f"{start}{mean_said}.")
            continue
        starts = _name_better(rows)
        short = (start for start in starts if len(f"{start}{mean_said}".split()) <= MOST_WORDS)
        sentences.append(f"{next(short, starts[-1])}{mean_said}.")
    return sentences


def _name_better(rows: Sequence[TaskDifference]) -> list[str]:
    """Return sentences on where which of two models is better, from the longest to the shortest."""
    first, other = rows[0].row.first, rows[0].row.other
    ours = [d for d in rows if d.shown and d.gain > 0]
    theirs = [d for d in rows if d.shown and d.gain < 0]
    once = _is_each_once(rows)
    many = f"{len(rows)} {'tasks' if once else 'comparisons'}"
    counts = f"Of {many}, {first} is better on {len(ours)} and {other} on {len(theirs)}"
    ahead = [(name, won) for name, won in ((first, ours), (other, theirs)) if won]
    if any(len(won) > MOST_NAMED for _, won in ahead):
        return [counts]
    named: list[str] = []
    for name, won in ahead:
        tasks = [d.task if once else f"{d.task} ({d.row.metric})" for d in won]
        *before, last = tasks
        listed = f"{', '.join(before)} and {last}" if before else last
        named.append(f"{name} {'' if named else 'is better '}on {listed}")
    start = ", ".join(named)
    rest = [d for d in rows if not d.shown]
    if not rest:
        return [start, counts]
    number = f" {len(rest)}" * (len(rest) > 1)
    unit = f"{'task' if once else 'row'}{'s' * (len(rest) > 1)}"
    tasks_of_rest = len({d.base for d in rest})
    of_tasks = "" if once else f" of {tasks_of_rest} task{'s' * (tasks_of_rest > 1)}"
    return [
        f"{start}; no difference is shown on the other{number} {unit}{of_tasks}",
        f"{start}; no other difference is shown",
        start,
        counts,
    ]


def _describe_mean(mean: PooledDifference, *, none_shown: bool) -> str:
    """Return the end of a sentence, on the mean over all tasks."""
    ahead = mean.mean > 0
    better = mean.first if ahead else mean.other
    low, high = sorted(100 * end if ahead else -100 * end for end in mean.interval)
    about = f"95 % {low:.1f} to {high:.1f}"
    size = f"{100 * abs(mean.mean):.1f} points"
    if mean.p <= ALPHA:
        return f"; on average {better} answers {size} more ({about})"
    if abs(mean.mean) >= 0.0005:
        size += f" for {better}"
    start = " or on average" if none_shown else "; no average difference is shown"
    return f"{start} ({size}, {about})"
