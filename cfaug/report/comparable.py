"""Which arms may be compared: those evaluated on the same test data, with different weights.

A number on 2 images is not lower than one on 22 because of the training, and a difference between
arms with the same weights is not an effect of training. Such pairs get no test, no mark and no
verdict.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from cfaug.core.errors import UserError
from cfaug.report.numbers import Measure
from cfaug.report.results import Cell, Result, arms_of, join_seeds

Answers = Mapping[int, Result]
"""{seed: row} of one arm on one benchmark and metric."""

OTHER_DATA = "other test data"
SAME_WEIGHTS = "the same weights"

ONE_TEST = (
    "Evaluate all arms on the same data: set benchmark.data=FOLDER; for your own data, "
    "data.holdout=0.1 keeps one held-out set for every arm; on the embedded world, compare arms of "
    "one data.world."
)


def answers(rows: Iterable[Result]) -> dict[tuple[str, Cell], dict[int, Result]]:
    """Return the rows by arm, by benchmark and metric, and by seed."""
    found: dict[tuple[str, Cell], dict[int, Result]] = {}
    for row in rows:
        found.setdefault((row.arm, row.cell), {})[row.seed] = row
    return found


def measures(rows: Iterable[Result]) -> dict[Cell, Measure]:
    """Return the unit and the direction of every benchmark and metric.

    Raises:
        UserError: if two rows of one metric disagree, naming both runs.
    """
    first: dict[Cell, Result] = {}
    for row in rows:
        other = first.setdefault(row.cell, row)
        if (row.unit, row.better) != (other.unit, other.better):
            raise UserError(
                f"{row.cell[0]} {row.metric}: {other.run} says {other.better} is better, in "
                f"{other.unit}; {row.run} says {row.better} is better, in {row.unit}: remove the "
                f"rows of {row.benchmark} from results.jsonl of one of them, and evaluate it again"
            )
    return {cell: Measure(row.unit, row.better) for cell, row in first.items()}


def values(found: Answers) -> dict[int, float]:
    """Return {seed: value}."""
    return {seed: row.value for seed, row in found.items()}


def obstacle(ours: Answers, theirs: Answers) -> str:
    """Return why two arms cannot be compared on a benchmark and metric; empty if they can.

    A seed's test data must be the same in both arms; arms with different seeds must share the same
    set of tests. Rows without hashes of data or weights count as comparable.

    Args:
        ours: rows of the first arm by seed, on one benchmark and metric.
        theirs: rows of the second arm by seed, on the same.
    """
    shared = ours.keys() & theirs.keys()
    if any(_differ(ours[seed].data, theirs[seed].data) for seed in shared):
        return OTHER_DATA
    if ours.keys() != theirs.keys() and _differ(_tests(ours), _tests(theirs)):
        return OTHER_DATA
    same = same_weights(ours, theirs)
    return SAME_WEIGHTS if same and same == shared else ""


def same_weights(ours: Answers, theirs: Answers) -> set[int]:
    """Return the seeds at which both arms have the same weights."""
    shared = ours.keys() & theirs.keys()
    return {s for s in shared if ours[s].weights and ours[s].weights == theirs[s].weights}


def _differ(one: str | frozenset[str], other: str | frozenset[str]) -> bool:
    return bool(one and other and one != other)


def _tests(found: Answers) -> frozenset[str]:
    """Return the hashes of an arm's test data; empty if a row has none."""
    asked = {row.data for row in found.values()}
    return frozenset() if "" in asked else frozenset(asked)


def one_test(found: Sequence[Answers]) -> bool:
    """Return whether all arms have the same test data, so that one of them can be the best."""
    return not any(
        obstacle(ours, theirs) == OTHER_DATA for i, ours in enumerate(found) for theirs in found[:i]
    )


def different_tests(rows: Iterable[Result], labels: Mapping[str, str] | None = None) -> list[str]:
    """Return a sentence for each benchmark whose test data differ between arms.

    Examples are tests of two worlds, or rows that each arm held out of its own training data.

    Args:
        rows: results of all arms.
        labels: label of each arm in tables, by its name.
    """
    names = labels or {}
    said: dict[str, str] = {}
    by_cell: dict[Cell, dict[str, Answers]] = {}
    for (arm, cell), found in answers(rows).items():
        by_cell.setdefault(cell, {})[arm] = found
    for (benchmark, _), arms in by_cell.items():
        first = next((arm for arm, found in arms.items() if _tests(found)), None)
        if first is None or benchmark in said:
            continue
        others = [a for a, found in arms.items() if obstacle(arms[first], found) == OTHER_DATA]
        if others:
            told = ", ".join(names.get(arm, arm) for arm in others)
            said[benchmark] = (
                f"{benchmark} is not one test for all arms: {names.get(first, first)} and {told} "
                f"have different test data ({_where(arms[first], arms[others[0]])}). Their "
                f"numbers are shown but not compared. {ONE_TEST}"
            )
    return list(said.values())


def _where(ours: Answers, theirs: Answers) -> str:
    shared = sorted(ours.keys() & theirs.keys())
    for seed in shared:
        if _differ(ours[seed].data, theirs[seed].data):
            return f"seed {seed}: {ours[seed].n:,} and {theirs[seed].n:,} queries"
    return f"{len(_tests(ours))} and {len(_tests(theirs))} tests over their seeds"


def equal_weights(
    rows: Sequence[Result], baselines: Iterable[str], labels: Mapping[str, str] | None = None
) -> list[str]:
    """Return a sentence for each arm that has weights in common with a baseline.

    Args:
        rows: results of all arms.
        baselines: the arms that others are compared with.
        labels: label of each arm in tables, by its name.
    """
    names, found, said = labels or {}, answers(rows), {}
    for base in baselines:
        for (arm, cell), ours in found.items():
            theirs = found.get((base, cell), {})
            same = same_weights(ours, theirs)
            if arm == base or not same or (base, arm) in said or (arm, base) in said:
                continue
            shared = ours.keys() & theirs.keys()
            said[arm, base] = same_weights_say(
                names.get(arm, arm), names.get(base, base), same, every=same == shared
            )
    return list(said.values())


def same_weights_say(arm: str, other: str, same: Iterable[int], *, every: bool) -> str:
    """Return a sentence on two arms with the same weights at some or all of their common seeds.

    Args:
        arm: printed name of the first arm.
        other: printed name of the second arm.
        same: seeds at which the weights are the same.
        every: whether these are all common seeds.
    """
    both = f"{arm} and {other} have the same weights"
    if every:
        return f"{both} at every seed: no comparison."
    return f"{both} at seed {join_seeds(same)}: those pairs are no evidence of a difference."


def unknown_tests(rows: Sequence[Result], labels: Mapping[str, str] | None = None) -> list[str]:
    """Return at most one sentence, naming arms whose results do not record their test data.

    Args:
        rows: results of all arms.
        labels: label of each arm in tables, by its name.
    """
    names = labels or {}
    silent = [row for row in rows if not row.data]
    if not silent or len(arms_of(rows)) < 2:
        return []
    told = ", ".join(names.get(arm, arm) for arm in arms_of(silent))
    benchmarks = ", ".join(dict.fromkeys(row.benchmark for row in silent))
    return [
        f"The test data of {told} are not recorded ({benchmarks}): they are compared as if they "
        "were the same; evaluate again to find out."
    ]
