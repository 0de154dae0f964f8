"""The frequency of findings in worlds where nothing was planted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from cfaug.report.document import Entry, Part
from cfaug.report.numbers import DASH, percent
from cfaug.shapescapes.oracles.social_planted import WorldRun, WorldRuns, choose_question
from cfaug.shapescapes.settings import SKEWED
from cfaug.social.skew_items import SkewItems
from cfaug.stats.effects import wilson_interval

LEVEL = 0.05
"""Nominal level of every test here."""

NOTES = (
    "Nothing was planted in the worlds of these models. Placement: the exact test of the table "
    "above, for the labels that would have been planted; a world's three kinds of label are not "
    "independent. Shuffled: the pictures of each set have changed places, so labels mean nothing "
    "and every finding is a false alarm. Not shuffled: even a model that was trained without any "
    "skew has preferences, such as for one colour's contrast. MaxSkew rightly finds them, but they "
    "say nothing about the data. Only differences between subjects, or between before and after, "
    "do.",
)


@dataclass(frozen=True)
class Alarms:
    """The alarms of a test.

    Attributes:
        count: number of alarms.
        tests: number of tests.
        expected: share of alarms to expect if nothing was planted; ``nan`` if unknown.
    """

    count: int
    tests: int
    expected: float


def alarm_part(worlds: WorldRuns, sets: Sequence[str], shuffled: str, k: int | None) -> Part | None:
    """Return the table of alarms; ``None`` if there is no world without a skew.

    Args:
        worlds: the runs of all worlds.
        sets: names of the sets, in order.
        shuffled: name of the sets with shuffled labels.
        k: number of retrieved images, as for ``SkewItems.choose``.
    """
    own = worlds.nothing
    if not own:
        return None
    rows = []
    for name in sets:
        rows.append(_row(f"{name} sets", "a planted label is found (placement)", own,
                         _placements(own, name, k)))  # fmt: skip
    for name in (shuffled, *sets):
        if not any(name in one.answers for one in own):
            continue
        for which, alarms in _blind(own, name, k):
            rows.append(_row(f"{name} sets", which, own, alarms))
    return Part(
        title=f"Ours: alarms in {len(own)} worlds in which nothing was planted",
        labels=("Asked about", "Alarm"),
        groups=(),
        columns=("alarms", "tests", "share, %", "95 % interval", "if nothing is there, %"),
        rows=tuple(rows),
        notes=NOTES,
    )


def _placements(own: Sequence[WorldRun], sets: str, k: int | None) -> Alarms:
    found = [one.find(sets, kind, k) for one in own for kind in SKEWED]
    ps = [one.placement.p for one in found if one is not None]
    return Alarms(sum(p <= LEVEL for p in ps), len(ps), LEVEL)


def _blind(own: Sequence[WorldRun], sets: str, k: int | None) -> Iterable[tuple[str, Alarms]]:
    """Yield the alarms for a reader of the page who does not know what was planted."""
    asked = [
        (one.answers[sets], question)
        for one in own
        if sets in one.answers
        for kind in SKEWED
        for question in [choose_question(one.answers[sets], kind, k)]
        if question is not None
    ]

    def worlds(name: str) -> Alarms:
        least = [min(items.values(q, name).values(), default=1.0) for items, q in asked]
        return Alarms(sum(p <= LEVEL for p in least), len(least), LEVEL)

    def subjects(name: str, level: Callable[[SkewItems, object], float]) -> Alarms:
        values = [v for items, q in asked for v in items.values(q, name).values()]
        levels = [level(items, q) for items, q in asked]
        return Alarms(sum(p <= LEVEL for p in values), len(values), float(np.mean(levels)))

    yield "a subject's MaxSkew, p without correction", subjects("p_permutation", _level)
    yield "some subject's MaxSkew after correction (Holm), a question", worlds("p_holm")
    yield "some subject's paired gaps after correction (Holm), a question", worlds("p_gap_holm")


def _level(items: SkewItems, question: object) -> float:
    """Return the chance that p is at most 0.05, which differs as MaxSkew takes few values."""
    levels = items.values(question, "p_level")  # type: ignore[arg-type]
    return float(np.mean(list(levels.values()))) if levels else LEVEL


def _row(
    asked: str, which: str, own: Sequence[WorldRun], found: Alarms
) -> tuple[tuple[str, ...], tuple[Entry, ...]]:
    if not found.tests:
        return (asked, which), (Entry(DASH),) * 5
    low, high = wilson_interval(found.count, found.tests)
    share = found.count / found.tests
    return (asked, which), (
        Entry(str(found.count)),
        Entry(str(found.tests)),
        Entry(percent(share, 1), numbers={"value": share, "n": float(found.tests)}),
        Entry(f"{percent(low, 1)} to {percent(high, 1)}"),
        Entry(DASH if np.isnan(found.expected) else percent(found.expected, 1)),
    )
