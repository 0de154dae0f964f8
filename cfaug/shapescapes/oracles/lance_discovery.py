"""LANCE on ShapeScapes, by an oracle: is the planted shortcut of a classifier found?

Each of the zoo's classifiers was trained in a world with one planted factor, or none. As the
planted factor is known, the findings of a stress test can be counted as right or wrong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cfaug.core.types import CLUSTER
from cfaug.lance.edit_effects import group_effects
from cfaug.lance.slice_recovery import (
    MINIMUM,
    TOP_MEMBERS,
    compare_factors,
    discover_factors,
    precision_at,
)
from cfaug.lance.stress_items import StressItems
from cfaug.lance.tables.answers import StressTable
from cfaug.report.arm_results import Runs
from cfaug.report.document import Document, Entry, Part
from cfaug.report.numbers import DASH, percent
from cfaug.report.paper_answers import Models
from cfaug.shapescapes.grammar import parse
from cfaug.shapescapes.vocabulary import PHOTO

OTHER = "other"
"""The factor of an edit that does not change exactly one factor of the world."""

FACTORS = ("subject", "colour", "background", "domain")


def changed_factor(before: str, after: str) -> str:
    """Return the one factor in which two captions differ; ``other`` if there is no such factor.

    >>> changed_factor("a red ball on the beach", "a sketch of a red ball on the beach")
    'domain'
    >>> changed_factor("a red ball on the beach", "a blue cube on the beach")
    'other'
    """
    old, new = parse(before), parse(after)
    if old is None or new is None:
        return OTHER
    first, second = ({**vars(one), "domain": one.domain or PHOTO} for one in (old, new))
    found = [name for name in FACTORS if first[name] != second[name]]
    return found[0] if len(found) == 1 else OTHER


@dataclass(frozen=True)
class SliceFinding:
    """The finding of a stress test about one classifier.

    Attributes:
        strongest: the found factor that moves the classifier farthest; ``None`` if none was found.
        found: all factors found, the strongest first.
        precision: share of edits of the planted factor among the ten that move the classifier
            farthest; ``None`` if no factor was planted.
        chance: share of edits of the planted factor among all edits; ``None`` likewise.
        edits: number of edits.
    """

    strongest: str | None
    found: tuple[str, ...]
    precision: float | None
    chance: float | None
    edits: int


def find_factor(
    answers: StressItems, part: str, planted: str | None, *, minimum: float, alpha: float
) -> SliceFinding:
    """Look for the factor that a classifier relies on, by the drop of its class's probability.

    Args:
        answers: the answers of the classifier.
        part: the set of edits.
        planted: the factor that the classifier was trained to rely on; ``None`` for no factor.
        minimum: least excess over the reconstruction, see
            ``cfaug.lance.slice_recovery.discover_factors``.
        alpha: largest corrected p of a found factor.
    """
    rows = answers.rows(part)
    before, after = answers.texts("text_before"), answers.texts("text")
    factors = np.array([changed_factor(before[row], after[row]) for row in rows])
    delta, control = answers.deltas(rows, "drop")
    clusters = np.array(answers.texts(CLUSTER))[rows]
    effects = group_effects(delta, control, clusters, factors)
    found = tuple(map(str, discover_factors(effects, minimum=minimum, alpha=alpha)))
    precision = chance = None
    if planted is not None:
        order = np.argsort(-delta, kind="stable").tolist()
        right = set(np.flatnonzero(factors == planted).tolist())
        precision, chance = precision_at(order, right), len(right) / len(rows)
    return SliceFinding(found[0] if found else None, found, precision, chance, len(rows))


@dataclass(frozen=True, kw_only=True)
class DiscoveryTable(StressTable):
    """Precision and recall of finding the planted factors of classifiers, by set of edits.

    Args:
        models: {planted factor, or ``none``: checkpoints}, as in other tables of answers.
        sets: {printed name: set of edits}.
        minimum: least excess over the reconstruction, in probability.
        alpha: largest corrected p of a found factor.
    """

    models: Models
    sets: Mapping[str, str]
    minimum: float = MINIMUM
    alpha: float = 0.05

    def build(self, runs: Runs) -> Document:
        """Return a part with precision and recall, and one with the finding for each classifier.

        Raises:
            MissingError: if no classifier has answers, unless ``partial``.
        """
        answers = self.read(runs)
        findings = {
            printed: [
                (planted, find)
                for planted, own in answers.items()
                for _, one in own
                if part in one.sets
                for find in [self._find(one, part, planted)]
            ]
            for printed, part in self.sets.items()
        }
        findings = {printed: own for printed, own in findings.items() if own}
        self.require(findings, "answers of classifiers")
        parts = (self._summary(findings), self._each(findings)) if findings else ()
        return self.document(*parts)

    def _find(self, answers: StressItems, part: str, planted: str) -> SliceFinding:
        factor = None if planted == "none" else planted
        return find_factor(answers, part, factor, minimum=self.minimum, alpha=self.alpha)

    def _summary(self, findings: Mapping[str, Sequence[tuple[str, SliceFinding]]]) -> Part:
        rows = tuple(((printed,), _summarise(own)) for printed, own in findings.items())
        return Part(
            title="Ours: the factor that moves a classifier most, against the planted one",
            labels=("Edits",),
            groups=(),
            columns=(
                "Classifiers", "Precision", "Recall", f"Precision@{TOP_MEMBERS}", "by chance",
                "Edits each",
            ),
            rows=rows,
            notes=(
                "Found: the class's probability drops by at least "
                f"{self.minimum:g} more than under a reconstruction (sign-flip permutation over "
                f"photos, Holm over factors, p <= {self.alpha:g}). A factor found in a classifier "
                f"without a planted one lowers precision. Precision@{TOP_MEMBERS}: share of edits "
                f"of the planted factor among the {TOP_MEMBERS} that move the classifier most; by "
                "chance: among all edits.",
            ),
        )  # fmt: skip

    def _each(self, findings: Mapping[str, Sequence[tuple[str, SliceFinding]]]) -> Part:
        planted = list(dict.fromkeys(name for own in findings.values() for name, _ in own))
        rows = tuple(
            ((printed,), tuple(_list(own, name) for name in planted))
            for printed, own in findings.items()
        )
        return Part(
            "Ours: the factors found, classifier by classifier",
            ("Edits",),
            (),
            tuple(f"planted: {name}" for name in planted),
            rows,
            notes=("The strongest factor of each seed's classifier; a dash: none.",),
        )


def _list(own: Sequence[tuple[str, SliceFinding]], planted: str) -> Entry:
    return Entry(", ".join(one.strongest or DASH for name, one in own if name == planted))


def _summarise(own: Sequence[tuple[str, SliceFinding]]) -> tuple[Entry, ...]:
    found = [{one.strongest} - {None} for _, one in own]
    planted = [set() if name == "none" else {name} for name, _ in own]
    fit = compare_factors(found, planted)
    known = [one for _, one in own if one.precision is not None]
    top = [one.precision for one in known if one.precision is not None]
    chance = [one.chance for one in known if one.chance is not None]
    edits = [one.edits for _, one in own]
    return (
        Entry(str(len(own))),
        _share(fit.precision, fit.found),
        _share(fit.recall, fit.planted),
        _share(float(np.mean(top)) if top else float("nan"), len(top)),
        _share(float(np.mean(chance)) if chance else float("nan"), len(chance)),
        Entry(f"{np.mean(edits):.0f}"),
    )


def _share(value: float, n: int) -> Entry:
    if np.isnan(value):
        return Entry(DASH)
    return Entry(percent(value, 1), numbers={"value": value, "n": float(n)})
