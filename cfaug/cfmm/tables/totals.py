"""Table 3 of CFMM: totals over categories, with tests, phi, and answers without the image."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import ClassVar

from cfaug.cfmm.question_items import ACCURACIES, SEEN
from cfaug.cfmm.question_tests import (
    ALPHA,
    CounterfactualDrop,
    ModelComparison,
    compare_kinds,
    compare_models,
)
from cfaug.cfmm.tables.answers import (
    DIGITS,
    HEADERS,
    PromptAnswers,
    QuestionTable,
    in_every_way,
    percent_entry,
)
from cfaug.cfmm.tables.claims import derived_part, text_part
from cfaug.core.read_with import ReadWith
from cfaug.report.arm_results import Runs
from cfaug.report.document import Document, Entry, Part, rules_of
from cfaug.report.numbers import DASH, p_text, points
from cfaug.report.published import published
from cfaug.report.ranked import Row, mark_best_two
from cfaug.stats.significance import SeedSummary

TOTALS_NOTE = (
    "Sums of the categories' percentages, up to 100 per category: a small category counts as much "
    "as a large one. Marks, rows without the image and ± are as in Table 2."
)
DROPS_NOTE = (
    "Over all images together (micro). Drop: acc_b minus the mean over images of the share of "
    "counterfactual questions that are right, in points. Interval: bootstrap over images. p: a "
    "permutation that exchanges basic and counterfactual answers of whole images (two-sided), Holm "
    "over the rows. phi: correlation of right answers over pairs; below 0, a right basic answer "
    "goes with a wrong counterfactual one. Strict: share of images with all questions right. "
    "Consistency: acc+ divided by acc_b."
)
PAIRS_NOTE = (
    "First minus other, in points of micro accuracy, on images about which both answered every "
    "question. Interval: bootstrap over images. p: McNemar's exact test if each question has an "
    "image of its own, otherwise the bootstrap's (two-sided); Holm over the whole table."
)
DROP_COLUMNS = ("images", "acc_b", "acc_c", "drop", "p", "Holm", "phi", "strict", "consistency")


@dataclass(frozen=True, kw_only=True)
class TotalTable(QuestionTable):
    """A row per model and prompt; then tests.

    Args:
        zero_shot: printed name of the prompt with which each model's other prompts are compared.
    """

    zero_shot: str = "0-shot"

    read_with: ClassVar[ReadWith] = {"categories": ()}  # totals are over all of them

    def build(self, runs: Runs) -> Document:
        """Return the paper's numbers, quantities derived from them, and ours with tests.

        Raises:
            MissingError: if no model has answers, unless ``partial``.
            UserError: if items cannot be read.
        """
        asked = self.read(runs)
        self.require(asked, f"answers to benchmark={', '.join(self.benchmarks.values())}")
        theirs = (self._theirs(), derived_part(), text_part())
        if not asked:
            return self.document(*theirs)
        compared, refused = compare_models(
            [((one.name, one.checkpoints), (other.name, other.checkpoints))
             for one, other in self._pairs(asked)]
        )  # fmt: skip
        parts = [self._ours(asked), _drops_part(asked), _pairs_part(compared)]
        ours = (one for one in parts if one is not None)
        return self.document(*theirs, *ours, notes=(*refused, *_left_out(asked)))

    def _pairs(self, asked: Sequence[PromptAnswers]) -> list[tuple[PromptAnswers, PromptAnswers]]:
        """Return pairs of models with the same prompt, and of a model's prompts with 0-shot."""
        return [
            (two, one) if one.model == two.model else (one, two)
            for one, two in combinations(asked, 2)
            if one.prompt == two.prompt or (one.model == two.model and one.prompt == self.zero_shot)
        ]

    def _theirs(self) -> Part:
        found = published(self.name)
        rows: list[Row] = [
            ((row["model"], row["prompt"]),
             tuple(Entry(f"{v:.{DIGITS}f}", numbers={"value": v}) for v in row["values"]))
            for row in found["rows"]
        ]  # fmt: skip
        return _totals_part(self.paper, rows, (), found["note"], ours=False)

    def _ours(self, asked: Sequence[PromptAnswers]) -> Part:
        every = in_every_way(asked)
        rows: list[Row] = [(one.labels, tuple(_total(one, name) for name in ACCURACIES))
                           for one in every]  # fmt: skip
        beside = [place for place, one in enumerate(every) if one.way != SEEN]
        return _totals_part("Ours", rows, beside, TOTALS_NOTE, ours=True)


def _totals_part(
    title: str, rows: Sequence[Row], beside: Sequence[int], note: str, *, ours: bool
) -> Part:
    return Part(
        title, ("Model", "Prompt"), (("Total score", len(HEADERS)),), HEADERS,
        mark_best_two(rows, ["higher"] * len(HEADERS), beside),
        rules_of([labels[0] for labels, _ in rows]), (note,), ours=ours, ranked=True,
    )  # fmt: skip


def _total(one: PromptAnswers, name: str) -> Entry:
    metric = one.metric(name)
    n = sum(map(len, one.checkpoints[0].by_category(metric).values()))
    return percent_entry([own.total(metric) for own in one.checkpoints], n, factor=1.0)


def _drops_part(asked: Sequence[PromptAnswers]) -> Part | None:
    found = compare_kinds([one.checkpoints for one in asked])
    rows = tuple(
        (one.labels, _drop_cells(one, drop))
        for one, drop in zip(asked, found, strict=True)
        if drop is not None
    )
    if not rows:
        return None
    return Part(
        "Ours: basic against counterfactual questions", ("Model", "Prompt"), (), DROP_COLUMNS, rows,
        rules_of([labels[0] for labels, _ in rows]), (DROPS_NOTE,),
    )  # fmt: skip


def _drop_cells(one: PromptAnswers, drop: CounterfactualDrop) -> tuple[Entry, ...]:
    measured = [own.images.measure() for own in one.checkpoints]
    mean, n = drop.test.mean, drop.images
    return (
        Entry(f"{n:,}"),
        *(percent_entry([getattr(own, name) for own in measured], n) for name in ACCURACIES[:2]),
        Entry(points(mean.mean), small=_interval(mean.low, mean.high),
              numbers={"value": mean.mean, "n": float(n)}),
        Entry(p_text(drop.p)),
        Entry(p_text(drop.p_holm), bold=drop.p_holm <= ALPHA),
        _phi(drop.phi, drop.phi_low, drop.phi_high),
        *(percent_entry([getattr(own, name) for own in measured], n)
          for name in ("strict", "consistency")),
    )  # fmt: skip


def _interval(low: float, high: float) -> str:
    return "" if math.isnan(low) else f"[{points(low)}, {points(high)}]"


def _phi(found: SeedSummary | None, low: float, high: float) -> Entry:
    if found is None:
        return Entry(DASH)
    return Entry(
        f"{found.mean:+.3f}",
        "" if math.isnan(found.sd) else f"{found.sd:.3f}",
        small="" if math.isnan(low) else f"[{low:+.3f}, {high:+.3f}]",
        numbers={"value": found.mean, "n": float(found.n)},
    )


def _pairs_part(found: Sequence[ModelComparison]) -> Part | None:
    if not found:
        return None
    rows = tuple(((one.first, one.other), tuple(_pair_cells(one))) for one in found)
    return Part(
        "Ours: models and prompts, question by question", ("First", "Other"),
        (("", 1), *((name, 2) for name in HEADERS)),
        ("left out", *("difference", "Holm") * len(HEADERS)), rows, notes=(PAIRS_NOTE,),
    )  # fmt: skip


def _pair_cells(one: ModelComparison) -> list[Entry]:
    cells = [Entry(f"{one.left_out:,}")]
    for name in ACCURACIES:
        test = one.tests.get(name)
        if test is None:
            cells += [Entry(DASH), Entry(DASH)]
            continue
        p = one.p_holm[name]
        cells.append(Entry(points(test.gain), small=_interval(test.low, test.high),
                           numbers={"value": test.gain, "n": float(test.items)}))  # fmt: skip
        cells.append(Entry(p_text(p), bold=p <= ALPHA))
    return cells


def _left_out(asked: Sequence[PromptAnswers]) -> list[str]:
    """Return a sentence for each model with questions that were left out."""
    found = []
    for one in asked:
        reasons: dict[str, int] = {}
        for own in one.checkpoints:
            for reason, count in own.count_left_out().items():
                reasons[reason] = reasons.get(reason, 0) + count
        said = ", ".join(f"{count:,} ({reason})" for reason, count in reasons.items())
        found += [f"{one.name}: questions left out: {said}."] if said else []
    return found
