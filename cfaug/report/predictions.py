"""Comparisons of arms with a smallest effect that matters, predicted from other data or not.

What was found on one kind of data is a claim; a prediction for another kind, declared before
anything is trained on it, tests the claim.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, cast, get_args

from cfaug.core.errors import UserError
from cfaug.core.validation import check_fields
from cfaug.report.arm_results import Runs
from cfaug.report.document import BarPlot, Column, Document, Entry, Part, make_part, text_column
from cfaug.report.joint_tests import JointComparison, compare_over_seeds_and_items
from cfaug.report.page import DASH, span_text
from cfaug.report.results import Result
from cfaug.report.significance_rows import Table
from cfaug.report.significance_table import items_of_arms
from cfaug.report.training_table import TrainingColumn, TrainingTable, find_undeclared

Finding = Literal["better", "worse", "equal", "undecided"]
Verdict = Literal["held", "did not hold", "undecided"]
FINDINGS = tuple(finding for finding in get_args(Finding) if finding != "undecided")
TITLE, BASIS = "Predictions", "Comparisons, from which others may be predicted"


@dataclass(frozen=True, kw_only=True)
class PredictionTable(TrainingTable):
    """Arms by their comparisons, each with a prediction; other arguments as for ``TrainingTable``.

    With a prediction, all settings but texts are declared before training (``declare=true``) and
    hashed into the runs (``declared=FILE``); otherwise the page calls its verdicts exploratory.

    Args:
        compared: {name: {``arm``, ``baseline``, ``column``: key of ``columns``, ``useful``: the
            smallest difference that matters, such as 0.02, ``expected``: ``better``, ``worse`` or
            ``equal``; ``null`` predicts nothing}}.
        basis: the source of the predictions, such as the name of another world.
    """

    compared: Mapping[str, Mapping[str, str | float | None]]
    basis: str = ""

    seeds_and_items: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        check_fields(self, "table")

    @property
    def hashed(self) -> bool:
        """Whether anything is predicted."""
        return any(entry.get("expected") is not None for entry in self.compared.values())

    def check(self) -> None:
        """Refuse comparisons that are incomplete, or name what the table lacks."""
        super().check()
        for entry in self.compared.values():
            self.check_comparison("compared", entry, {"useful", "expected"})
            useful, expected = entry.get("useful"), entry.get("expected")
            if not isinstance(useful, float) or not 0 < useful < 1:
                raise UserError(
                    f"table={self.name}: compared useful={useful!r} is invalid: it is the smallest "
                    "difference that matters, above 0 and below 1"
                )
            if expected is not None and expected not in FINDINGS:
                raise UserError(
                    f"table={self.name}: compared expected={expected!r} is invalid: choose from "
                    f"{', '.join(FINDINGS)}, null"
                )

    def build(self, runs: Runs) -> Document:
        """Return the table, with what was predicted and found."""
        self.check()
        document = super().build(runs)
        part = next((part for part in document.parts if part.title in (TITLE, BASIS)), None)
        if part is not None:
            # The differences, a group of bars for each comparison.
            shown: dict[str, dict[str, Mapping[str, float]]] = {}
            for (compared, of), (difference, *_) in part.rows:
                shown.setdefault(compared, {})[of] = difference.numbers
            every = dict.fromkeys(labels[1] for labels, _ in part.rows)
            groups = {}
            for compared, numbers in shown.items():
                known = [(of, numbers.get(of, {})) for of in every]
                groups[compared] = [
                    (of, ends.get("value"), ends.get("low"), ends.get("high")) for of, ends in known
                ]
            bars = BarPlot(
                "Differences with their 95 % intervals over seeds and items",
                "points", groups, legend=tuple(every),
            )  # fmt: skip
            document = replace(document, bars=(*document.bars, bars))
        if not self.hashed:
            return document
        declared = sum(entry.get("expected") is not None for entry in self.compared.values())
        verdicts = [entries[-1].text for _, entries in part.rows] if part else []
        answer, title = count_verdicts(verdicts, declared, self.basis), TITLE
        arms = [runs.arm(f"{self.experiment}/{arm}") for arm in self.arms]
        if why := find_undeclared(self, runs.root, arms):
            title = "Exploratory: not declared before training"
            answer = f"Exploratory, {why}: {answer[0].lower()}{answer[1:]}"
        said = None if part is None else replace(part, title=title, notes=(answer, *part.notes))
        parts = tuple(said if said and other is part else other for other in document.parts)
        return replace(document, parts=parts, answer=answer)

    def _over_both(
        self,
        runs: Runs,
        table: Table,
        columns: Mapping[str, TrainingColumn],
        results: Sequence[Result],
    ) -> tuple[Part, ...]:
        items = items_of_arms(runs, self.experiment, self.arms)
        names = [column.name for column in columns.values()]
        distinct = len(set(names)) == len(names)
        rows: list[tuple[tuple[str, ...], _Compared]] = []
        lacking: list[str] = []
        for entry in self.compared.values():
            arm, baseline, key = (str(entry[name]) for name in ("arm", "baseline", "column"))
            column = columns[key]
            row = table.get(arm, column.cell, baseline)
            joint, refused = compare_over_seeds_and_items(
                [row] if row is not None else [], results, items, self.arms
            )
            lacking += refused
            compared = f"{self.arms[arm]} against {self.arms[baseline]}"
            labels = (compared, column.name if distinct else column.group)
            about = cast("float", entry["useful"]), cast("str | None", entry.get("expected"))
            rows += [(labels, _Compared(comparison, *about)) for comparison in joint]
        if not rows:
            return ()
        title = TITLE if self.hashed else BASIS
        columns_shown: list[Column[_Compared]] = [
            Column("difference", lambda row: row.difference),
            text_column("95 % interval", lambda row: row.interval),
            text_column("found", lambda row: row.found),
        ]
        if self.hashed:
            columns_shown[-1:] = [
                text_column("predicted", lambda row: row.expected or DASH),
                text_column("verdict", lambda row: row.verdict or f"found: {row.found}"),
            ]
        useful = sorted({row.useful for _, row in rows})
        smallest = " or ".join(f"{100 * value:g}" for value in useful)
        source = f" Predictions follow from {self.basis} by the same rules." if self.basis else ""
        how = (
            "Differences in points, with 95 % intervals over seeds and items at once. Better or "
            "worse: the interval leaves out 0 and the difference is at least "
            f"{smallest} points; equal: the interval lies within {smallest} points of 0; "
            "undecided: none of these. A prediction did not hold if something else was found, or "
            "if the interval leaves out every such difference in its direction."
            f"{source} One in twenty of such intervals leaves out the truth."
        )
        notes = (how, *dict.fromkeys(lacking))
        return (make_part(title, ("Comparison", "Of"), columns_shown, rows, notes),)


@dataclass(frozen=True)
class _Compared:
    joint: JointComparison
    useful: float
    expected: str | None

    @property
    def gains(self) -> tuple[float, float, float]:
        """Lower end, mean and upper end of the improvement."""
        gain = self.joint.row.measure.gain
        low, high = sorted(map(gain, self.joint.interval))
        return low, gain(self.joint.difference.mean), high

    @property
    def difference(self) -> Entry:
        value, (low, high) = self.joint.difference.mean, self.joint.interval
        numbers = {"value": value, "low": low, "high": high}
        return Entry(self.joint.row.measure.difference(value), numbers=numbers)

    @property
    def interval(self) -> str:
        return span_text(self.joint.row.measure.difference, *self.joint.interval)

    @property
    def found(self) -> Finding:
        return find_effect(*self.gains, useful=self.useful)

    @property
    def verdict(self) -> Verdict | None:
        return judge_prediction(self.expected, *self.gains, useful=self.useful)


def find_effect(low: float, mean: float, high: float, useful: float) -> Finding:
    """Return what an improvement with its 95 % interval says about an effect that matters.

    ``better``: the interval is above 0 and the mean at least ``useful``; ``worse``: the same below;
    ``equal``: the whole interval is nearer to 0 than ``useful``.

    >>> [find_effect(*gain, useful=0.02) for gain in ((0.01, 0.03, 0.05), (-0.01, 0, 0.01))]
    ['better', 'equal']
    >>> [find_effect(*gain, useful=0.02) for gain in ((-0.05, -0.03, -0.01), (0.005, 0.01, 0.03))]
    ['worse', 'undecided']
    """
    if -useful < low and high < useful:
        return "equal"
    if low > 0 and mean >= useful:
        return "better"
    if high < 0 and mean <= -useful:
        return "worse"
    return "undecided"


def judge_prediction(
    expected: str | None, low: float, mean: float, high: float, useful: float
) -> Verdict | None:
    """Return whether a prediction held; ``None`` without one.

    It held if it was found. It did not hold if something else was found, or if the interval leaves
    out every effect of the predicted direction that matters.

    >>> judge_prediction("better", 0.01, 0.03, 0.05, useful=0.02)
    'held'
    >>> judge_prediction("better", -0.04, -0.01, 0.015, useful=0.02)  # undecided, but not better
    'did not hold'
    >>> judge_prediction("equal", -0.01, 0.01, 0.03, useful=0.02)
    'undecided'
    """
    if expected is None:
        return None
    finding = find_effect(low, mean, high, useful)
    if finding == expected:
        return "held"
    excluded = {"better": high < useful, "worse": low > -useful, "equal": False}[expected]
    return "did not hold" if finding != "undecided" or excluded else "undecided"


def count_verdicts(verdicts: Sequence[str], declared: int, basis: str = "") -> str:
    """Return the number of predictions with each verdict as a sentence.

    Args:
        verdicts: verdicts of the comparisons that could be made; others count as missing.
        declared: number of all predictions.

    >>> count_verdicts(["held", "–", "undecided", "held"], 3, "ShapeScapes")
    'Of 3 predictions from ShapeScapes, 2 held, 0 did not hold, and 1 is undecided.'
    >>> count_verdicts(["held"], 3)
    'Of 3 predictions, 1 held, 0 did not hold, 0 are undecided, and 2 are missing without results.'
    """
    counts = Counter(verdict for verdict in verdicts if verdict in get_args(Verdict))
    undecided, missing = counts["undecided"], declared - counts.total()
    source = f" from {basis}" * bool(basis)
    parts = [
        f"{counts['held']} held",
        f"{counts['did not hold']} did not hold",
        f"{undecided} {'is' if undecided == 1 else 'are'} undecided",
    ]
    if missing:
        parts.append(f"{missing} {'is' if missing == 1 else 'are'} missing without results")
    parts[-1] = f"and {parts[-1]}"
    return f"Of {declared} prediction{'s' * (declared > 1)}{source}, {', '.join(parts)}."
