"""Plain sentences on what the numbers show, computed from the rows."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from statistics import fmean

from cfaug.core.errors import UserError
from cfaug.report.comparison import (
    BOTH_AT_CHANCE,
    OTHER_DATA,
    SAME_WEIGHTS,
    Headline,
    answers,
    at_chance,
    join_words,
    measures,
    obstacle,
    values,
)
from cfaug.report.document import Column, Part, make_part, text_column
from cfaug.report.item_tests import ItemTest
from cfaug.report.page import DASH, PERCENT, Measure, p_text, span_text
from cfaug.report.results import Cell, Result, arms_of, cells_of
from cfaug.report.significance_rows import ALPHA, describe_no_spread
from cfaug.report.significance_table import ItemSource, compare_pair
from cfaug.stats.effects import ArmComparison, compare
from cfaug.stats.significance import holm, smallest_exact_p

SPELLED_OUT = 3
"""Most comparisons in one sentence."""


def expected(
    rows: Sequence[Result],
    headline: Headline,
    baselines: Sequence[str],
    items: ItemSource | None = None,
) -> list[Finding]:
    """Test each step of the expected order, and the arms under test against every baseline.

    Args:
        items: reader of the arms' items; ``None`` for no tests over items.
    """
    order = headline.order
    steps = list(zip(order[1:], order[:-1], strict=True))
    for arm in headline.tested:
        steps += [(arm, other) for other in (*order[-1:], *baselines) if other != arm]
    pairs = [(arm, other, headline.cell) for arm, other in dict.fromkeys(steps)]
    return findings(rows, pairs, items, two_sided=False)


def verdict(
    rows: Sequence[Result],
    headline: Headline,
    baselines: Sequence[str],
    items: ItemSource | None = None,
) -> str:
    """Return the sentence that a reader may quote: the main arm against the main one to beat.

    With one seed it has no p: a test over items says nothing about training again.
    """
    checks = expected(rows, headline, baselines, items)
    if not checks:
        tested = join_words([headline.label(arm) for arm in headline.tested])
        return f"Nothing was compared: {tested} without an arm to beat."
    main = headline.tested[0]
    steps = [check for check in checks if check.arm == main] or checks
    check = next((step for step in steps if step.other in headline.order[-1:]), steps[0])
    arm, other = headline.label(check.arm), headline.label(check.other)
    shifted = headline.in_distribution is not None
    where = "out of distribution" if shifted else f"on {headline.benchmark}"
    metric = METRICS.get(headline.metric, headline.metric)
    if check.obstacle == BOTH_AT_CHANCE:
        return f"Neither {arm} nor {other} is shown to be better than chance {where} ({metric})."
    if check.comparison is None:
        return f"{arm} was not compared with {other} {where}, because {_why_not_compared(check)}."
    if headline.share is not None and re.fullmatch(r"cf_ratio=[\d.]+", arm):
        arm = f"{100 * headline.share:g} % counterfactual examples"
    measure, rises = check.measure, check.comparison.diff > 0
    if check.seeds < 2:
        known = answers(rows)
        after, before = (
            measure.text(fmean(values(known[name, headline.cell]).values()), 1)
            for name in (check.arm, check.other)
        )
        moved = f"{'rose' if rises else 'fell'} from {before} to {after}"
        change = f"stayed at {after}" if after == before else moved
        ending = "one training each: more seeds are needed to know"
        return f"With {arm}, {metric} {where} {change} {measure.sign} ({ending})."
    if check.shown or check.lost:
        size = measure.amount(abs(check.comparison.diff)).lstrip("+")
        moved = f"{'rises' if rises else 'falls'} by {size} against {other}"
        sided, p = ("one", check.p) if check.shown else ("two", check.p_two_sided)
        tested = f"{sided}-sided p = {p_text(p)}"
        return f"With {arm}, {metric} {where} {moved} ({_interval(check)}{tested})."
    ending = f"one-sided p = {p_text(check.p)}"
    if math.isnan(check.p):
        ending = "these seeds cannot test it"
        if check.paired:
            ending = describe_no_spread(check.comparison.diff, measure)
    said = f"With {arm}, no gain of {metric} {where} against {other} is shown"
    return f"{said}: {check.amount} ({_interval(check)}{ending})."


METRICS = {"acc1": "accuracy", "acc5": "accuracy among the first five"}
"""Metrics in words."""


def _interval(check: Finding) -> str:
    """Return the 95 % interval of a size, in the direction of the change, before a comma."""
    low, high = check.interval
    if math.isnan(low) or check.comparison is None:
        return ""
    text = check.measure.text
    if not (check.shown or check.lost):
        return f"95 % {check.measure.difference(low)} to {check.measure.difference(high)}, "
    low, high = sorted(end if check.comparison.diff > 0 else -end for end in (low, high))
    return f"95 % {text(low, 1)} to {text(high, 1)}, "


def _why_not_compared(check: Finding) -> str:
    return {
        OTHER_DATA: "they have different test data",
        SAME_WEIGHTS: "both have the same weights",
        BOTH_AT_CHANCE: "neither is shown to be better than chance",
    }.get(check.obstacle, "one of them has no results")


def steps_part(
    rows: Sequence[Result],
    headline: Headline,
    baselines: Sequence[str],
    items: ItemSource | None = None,
) -> Part | None:
    """Return every step of the expected order as a table; ``None`` for a single one.

    Its last column says whether a step was reached: by its one-sided test, corrected over them.
    """
    checks = expected(rows, headline, baselines, items)
    if len(checks) < 2:
        return None

    def outcome(check: Finding) -> str:
        if check.comparison is None:
            return f"not compared: {_why_not_compared(check)}"
        if check.shown:
            return "reached"
        if check.lost:
            return f"worse (two-sided p = {p_text(check.p_two_sided)})"
        return "not tested" if math.isnan(check.p) else "not shown"

    columns: list[Column[Finding]] = [
        text_column("difference", lambda check: check.amount or DASH),
        text_column(
            "95 % interval",
            lambda check: span_text(check.measure.difference, *check.interval, DASH),
        ),
        text_column("p (one-sided, Holm)", lambda check: p_text(check.p)),
        text_column("step", outcome),
    ]
    title = f"The expected order {headline.expectation}" if headline.expected else "Step by step"
    labelled = [((headline.label(c.arm), headline.label(c.other)), c) for c in checks]
    return make_part(title, ("arm", "better than"), columns, labelled)


def how_tested(
    rows: Sequence[Result],
    headline: Headline,
    baselines: Sequence[str],
    items: ItemSource | None = None,
) -> str:
    """Return the note under the steps: the test, and the smallest p possible with n seeds.

    Without a step whose p is printed, in the sentence or in the steps' table, there is none.
    """
    steps = expected(rows, headline, baselines, items)
    compared = [c for c in steps if c.comparison is not None]
    in_distribution = "In distribution, p and the 95 % interval are of one test, and not corrected"
    if all(math.isnan(c.p) for c in compared) or (len(steps) < 2 and compared[0].seeds < 2):
        alone = "p = " in cost(rows, headline, baselines, items)
        return f"{in_distribution}." if alone else ""
    checks = [c for c in compared if c.test is None]
    over_items = [c for c in compared if c.test is not None]
    text = "p: one-sided t-test paired by seed, Holm-corrected over the steps of this sentence"
    if over_items:
        tests = join_words(list(dict.fromkeys(c.test.test for c in over_items if c.test)))
        asks = "a test of these models, not of what training again would give"
        if checks:
            arms = dict.fromkeys(headline.label(a) for c in over_items for a in (c.arm, c.other))
            text += f"; {tests}, where there is one seed ({join_words(list(arms))}): "
        else:
            text = "p: one-sided, Holm-corrected over the steps of this sentence; one seed, so "
            text += f"{tests}: "
        text += asks
    unpaired = [headline.label(a) for c in checks if not c.paired for a in (c.arm, c.other)]
    if unpaired:
        names = join_words(list(dict.fromkeys(unpaired)))
        text += f"; Welch's test between arms that do not share their seeds ({names})"
    sizes = sorted({c.comparison.n for c in checks if c.comparison is not None and c.paired} - {1})
    least = [f"With {n} seeds no exact test can go below {smallest_exact_p(n):.2g}" for n in sizes]
    if any(check.lost and not check.shown for check in compared):
        text += ". The p of a fall is two-sided"
    if headline.cost_cell(rows) is not None:
        text += f". {in_distribution}"
    return ". ".join([text, *least]) + "."


def cost(
    rows: Sequence[Result],
    headline: Headline,
    baselines: Sequence[str],
    items: ItemSource | None = None,
) -> str:
    """Return one sentence on what the main arm under test loses or gains in distribution.

    Empty if the headline is not about a distribution shift.
    """
    cell = headline.cost_cell(rows)
    if headline.in_distribution is None:
        return ""
    arm = headline.tested[0]
    pairs = [(arm, other, cell) for other in baselines if cell and other != arm]
    compared = findings(rows, pairs, items, two_sided=True, corrected=False)
    made = next((finding for finding in compared if finding.comparison is not None), None)
    if made is None or made.comparison is None:
        return "In distribution nothing was compared, so the cost of the gain is not known."
    other, size = headline.label(made.other), made.measure.amount(abs(made.comparison.diff))
    once = made.seeds < 2
    better, worse = ("gained", "lost") if once else ("gains", "loses")
    if made.measure.better == "lower":  # to gain a loss would mean two things
        better, worse = ("improved by", "was worse by") if once else ("improves by", "is worse by")
    verb = better if made.gain > 0 else worse
    if once:
        return f"In distribution it {verb} {size.lstrip('+')} against {other} (one training each)."
    interval = _interval(made)
    if made.shown:
        said = f"it {verb} {size.lstrip('+')} against {other} ({interval}p = {p_text(made.p)})"
        return f"In distribution {said}."
    tested = "not tested" if math.isnan(made.p) else f"p = {p_text(made.p)}"
    said = f"no difference from {other} is shown: {made.amount} ({interval}{tested})"
    return f"In distribution {said}."


def pairing(
    rows: Sequence[Result], headline: Headline, items: ItemSource | None = None
) -> list[Finding]:
    """Compare the arms under test, also those with pairs in one batch, with unpaired controls.

    On the headline, its in-distribution counterpart and every ``group_score``.
    """
    arms = arms_of(rows)
    treated = [arm for arm in headline.paired or headline.tested if arm in arms]
    controls = [arm for arm in arms if arm in headline.controls and arm not in treated]
    cells = [headline.cell, headline.cost_cell(rows)]
    cells += [cell for cell in cells_of(rows) if cell[1] == "group_score"]
    pairs = [(t, c, cell) for cell in cells if cell for t in treated for c in controls]
    return [f for f in findings(rows, pairs, items, two_sided=True) if f.comparison is not None]


def describe_pairing(made: Sequence[Finding], headline: Headline) -> str:
    """Return one or two sentences on what pairing gains and does not gain."""
    if not made:
        return (
            "No arm with the same number of unpaired images of the same kind was run, so these "
            "results do not show whether the pairing itself matters or only the wider variety it "
            "brings."
        )
    groups: dict[str, list[str]] = {"more": [], "less": [], "same": []}
    for f in made:
        kind = "same" if not f.shown else "more" if f.gain > 0 else "less"
        name = f"{headline.label(f.arm)} against {headline.label(f.other)} on {f.cell[0]}"
        groups[kind].append(f"{name} ({f.amount}, p = {p_text(f.p)})")
    # A few are named, many only counted: the page's table has them all.
    named = {
        kind: join_words(parts)
        if len(parts) <= SPELLED_OUT
        else f"{len(parts)} of the {len(made)} comparisons below"
        for kind, parts in groups.items()
        if parts
    }
    sentences = [
        f"Counterfactual pairs bring {kind} in {named[kind]}."
        for kind in ("more", "less")
        if kind in named
    ]
    if "same" in named:
        sentences.append(
            f"No difference is shown in {named['same']}: as far as these seeds can tell, the gain "
            "there does not need pairs; the intervals show how large a difference is still "
            "possible."
        )
    return " ".join(sentences)


# Comparisons of arms, each in one cell, for sentences; corrected over their list.


@dataclass(frozen=True)
class Finding:
    """One comparison in one cell; ``p`` and ``p_two_sided`` may be corrected (Holm) over its list.

    ``obstacle`` says why the two were not compared although both have results; ``comparison`` is
    then ``None``, as it is if one has no results. ``test`` is the test over items that gave p if
    there is only one seed.
    """

    arm: str
    other: str
    cell: Cell
    comparison: ArmComparison | None
    p: float
    paired: bool
    p_two_sided: float = math.nan
    obstacle: str = ""
    measure: Measure = PERCENT
    test: ItemTest | None = None
    seeds: int = 0

    @property
    def amount(self) -> str:
        """The difference with its sign and unit."""
        return "" if self.comparison is None else self.measure.amount(self.comparison.diff)

    @property
    def gain(self) -> float:
        """The improvement by the arm, in the metric's own direction; ``nan`` if not compared."""
        return math.nan if self.comparison is None else self.measure.gain(self.comparison.diff)

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of arm minus other, of the test that gave p; ``nan`` without one."""
        if self.test is not None:
            return self.test.interval(self.measure)
        if self.comparison is None:
            return math.nan, math.nan
        return self.comparison.t_low, self.comparison.t_high

    @property
    def shown(self) -> bool:
        """Whether the difference is significant in the direction tested."""
        return self.p <= ALPHA

    @property
    def lost(self) -> bool:
        """Whether the arm is significantly worse, which only a two-sided test can show."""
        return self.gain < 0 and self.p_two_sided <= ALPHA


def findings(
    rows: Sequence[Result],
    pairs: Sequence[tuple[str, str, Cell]],
    items: ItemSource | None = None,
    *,
    two_sided: bool,
    corrected: bool = True,
) -> list[Finding]:
    """Compare arms, by seed where they share their seeds, else by Welch's test.

    If an arm has only one seed, the two are compared over items, if both have them. The one-sided
    test asks whether the first of a pair is better. ``comparison`` is ``None`` and p is
    ``nan`` where an arm has no results, or where the two cannot be compared.

    Args:
        pairs: arm, arm it is compared with, and cell of each comparison.
        corrected: whether p is corrected (Holm) over these comparisons.
    """
    made, known, printed = [], answers(rows), measures(rows)
    for arm, other, cell in pairs:
        ours, theirs = known.get((arm, cell), {}), known.get((other, cell), {})
        paired = ours.keys() == theirs.keys()
        measure = printed.get(cell, PERCENT)
        why = obstacle(ours, theirs)
        comparison = test = None
        one_sided = both = math.nan
        if ours and theirs and not why and at_chance(ours) and at_chance(theirs):
            why = BOTH_AT_CHANCE
        if ours and theirs and not why:
            comparison = compare(values(ours), values(theirs), better=measure.better)
            one_sided, both = (
                (comparison.p_paired, comparison.p_paired_two_sided)
                if paired
                else (comparison.p_welch, comparison.p_welch_two_sided)
            )
            if items is not None and min(len(ours), len(theirs)) < 2:
                with suppress(UserError):  # the table's notes say why
                    test = compare_pair(arm, other, next(iter(ours.values())), measure, items)
        if test is not None:
            one_sided, both = test.p, test.p_two_sided
        p = both if two_sided else one_sided
        fewest = min(len(ours), len(theirs))
        made.append(
            Finding(arm, other, cell, comparison, p, paired, both, why, measure, test, fewest)
        )
    if not corrected:
        return made
    one_side, both_sides = (holm([getattr(f, p) for f in made]) for p in ("p", "p_two_sided"))
    return [
        replace(f, p=float(p), p_two_sided=float(q))
        for f, p, q in zip(made, one_side, both_sides, strict=True)
    ]
