"""Table 2 of XMAI: entailment and similarity before and after a change, and paired tests."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cfaug.core.errors import UserError
from cfaug.report.arm_results import Runs
from cfaug.report.document import Document, Entry, Part
from cfaug.report.numbers import DASH, p_text
from cfaug.report.paper_answers import Models, read_answers
from cfaug.report.ranked import Row, mark_best_two
from cfaug.stats.confusion import macro_scores
from cfaug.stats.significance import holm
from cfaug.xmai.entailment_items import EntailmentItems
from cfaug.xmai.macro_drop import ScoreDrop
from cfaug.xmai.tables.answers import (
    ORIGINAL,
    OURS_NOTE,
    RELEVANCE,
    Checkpoints,
    MeasureColumn,
    PairTable,
    known_columns,
    number_entry,
)
from cfaug.xmai.tables.drops import change_part, methods_part, signed
from cfaug.xmai.text_pair_items import InsertionItems, TextPairItems
from cfaug.xmai.text_pair_tests import ALPHA

ENTAILMENT_COMMANDS = (
    "python generate.py recipe=xmai data.source=SNLI_VE paths.shards=shards/ve-xmai  # and others",
    "python evaluate.py model=vilt_entailer benchmark=entailment "
    "'benchmark.data={xmai: shards/ve-xmai, eda: shards/ve-eda}'",
    "python evaluate.py model=open_clip benchmark=insertion benchmark.name=ve_insertion "
    "'benchmark.data={xmai: shards/ve-xmai, eda: shards/ve-eda}'",
)

F1_NOTE = (
    "Macro F1 of a method's hypotheses minus that of the originals. Interval: 95 %, bootstrap over "
    "photos. p: a permutation that exchanges before and after for whole photos, Holm over methods."
)


@dataclass(frozen=True)
class ScoreColumn(MeasureColumn):
    """A score of all hypotheses together, which is not a mean over them.

    Attributes:
        score: the name of the score, a field of ``MacroScores``.
    """

    score: str = "accuracy"

    def is_known(self, one: TextPairItems) -> bool:
        """Return whether a model's items have the columns it needs."""
        return isinstance(one, EntailmentItems)

    def measure(self, checkpoints: Checkpoints, method: str) -> Entry:
        """Return the score of a method's hypotheses, or for several checkpoints mean and spread."""
        return self._entry([_entailed(one).matrix(method, before=False) for one in checkpoints])

    def measure_original(self, checkpoints: Checkpoints, methods: Sequence[str]) -> Entry:
        """Return the score of the original hypotheses, from the first method.

        All methods have the same original hypotheses.
        """
        return self._entry([_entailed(one).matrix(methods[0], before=True) for one in checkpoints])

    def _entry(self, matrices: Sequence[np.ndarray]) -> Entry:
        values = [float(getattr(macro_scores(one), self.score)) for one in matrices]
        return number_entry(values, int(matrices[0].sum()))


def _entailed(one: TextPairItems) -> EntailmentItems:
    if not isinstance(one, EntailmentItems):
        raise TypeError(f"{one.model}: not the items of benchmark=entailment")
    return one


SCORES = tuple(
    ScoreColumn(title, "predicted", "predicted_original", "lower", score=score)
    for title, score in (("Acc. ↓", "accuracy"), ("Precision ↓", "precision"),
                         ("Recall ↓", "recall"), ("F1 ↓", "f1"))
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class EntailmentTable(PairTable):
    """A row per method, a part per model; then each method against its originals and the others.

    Args:
        relevance: benchmark of the items with similarities of the same hypotheses, or the end of
            its name.
        relevance_models: the dual encoder to use; ``None`` if only one has answers.
        first: the printed name of the method to compare with each other one.
    """

    benchmark: str = "entailment"
    relevance: str = "insertion"
    relevance_models: Models | None = None
    first: str = "XMAI"
    commands: Sequence[str] = ENTAILMENT_COMMANDS

    def build(self, runs: Runs) -> Document:
        """Return the paper's numbers, and ours in the paper's layout and with tests.

        Raises:
            MissingError: if no model has answers, unless ``partial``.
            UserError: if items cannot be read, or several models have similarities.
        """
        found = {
            model: own
            for model, own in self.read(runs, EntailmentItems).items()
            if all(_entailed(one).has_after for one in own)
        }
        nothing = self.nothing(found)
        if nothing is not None:
            return nothing
        likeness = self._likeness(runs)
        parts: list[Part | None] = [self.theirs()]
        parts += [self._scores(model, own, likeness) for model, own in found.items()]
        for model, own in found.items():
            named, title = self.named(own), f"Ours: {model}, accuracy"
            parts.append(change_part(title, own, named, ("accuracy_original", "accuracy")))
            parts.append(_f1_part(f"Ours: {model}, macro F1", own, named))
            parts.append(
                methods_part(f"{title}, method by method", own, named, "accuracy", self.first)
            )
        return self.document(*(part for part in parts if part is not None))

    def _likeness(self, runs: Runs) -> Checkpoints:
        """Return the answers of the dual encoder; empty without any."""
        found = read_answers(runs.root, self.relevance, self.relevance_models, InsertionItems)
        if len(found) > 1:
            raise UserError(
                f"{', '.join(found)} answered benchmark={self.relevance}: name one in "
                "table.relevance_models={NAME: FOLDER}"
            )
        return [one for own in found.values() for _, one in own]

    def _scores(self, model: str, checkpoints: Checkpoints, likeness: Checkpoints) -> Part:
        named = self.named(checkpoints)
        there = set(named.values()).intersection(*(one.methods for one in likeness))
        columns = known_columns(RELEVANCE, {model: likeness}) if likeness and there else []
        rows: list[Row] = [
            (
                (ORIGINAL,),
                (
                    *(one.measure_original(checkpoints, [*named.values()]) for one in SCORES),
                    *(one.measure_original(likeness, [*there]) for one in columns),
                ),
            )
        ]
        for printed, method in named.items():
            cells = [one.measure(checkpoints, method) for one in SCORES]
            for column in columns:
                is_known = method in there
                cells.append(column.measure(likeness, method) if is_known else Entry(DASH))
            rows.append(((printed,), tuple(cells)))
        every = (*SCORES, *columns)
        return Part(
            f"Ours: {model}", ("Method",), (), tuple(one.title for one in every),
            mark_best_two(rows, [one.better for one in every], [0]), ranked=True,
            notes=(OURS_NOTE,),
        )  # fmt: skip


def _f1_part(title: str, checkpoints: Checkpoints, methods: Mapping[str, str]) -> Part:
    """Return the change of macro F1 of each method, a row per checkpoint if there are several."""
    found: list[tuple[str, ScoreDrop, int]] = []
    for printed, method in methods.items():
        for number, one in enumerate(map(_entailed, checkpoints), 1):
            name = printed if len(checkpoints) == 1 else f"{printed}, {number}"
            own = [drop for drop in one.drops(method) if drop.name == "f1"]
            found += [(name, drop, len(one.rows(method))) for drop in own]
    corrected = holm([drop.p for _, drop, _ in found]).tolist() if found else []
    rows = []
    for (name, drop, n), p in zip(found, corrected, strict=True):
        known = not math.isnan(drop.low)
        small = f"[{signed(-drop.high)}, {signed(-drop.low)}]" if known else ""
        cells = (
            Entry(f"{n:,}"),
            Entry(signed(-drop.drop), small=small, numbers={"value": -drop.drop, "n": float(n)}),
            Entry(p_text(drop.p)),
            Entry(p_text(p), bold=p <= ALPHA),
        )
        rows.append(((name,), cells))
    return Part(
        title, ("Method",), (), ("hypotheses", "change", "p", "Holm"), tuple(rows),
        notes=(F1_NOTE,),
    )  # fmt: skip
