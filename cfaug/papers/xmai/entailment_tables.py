"""Table 2 of XMAI: entailment and similarity before and after a change, and paired tests."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cfaug.core.errors import UserError
from cfaug.evaluation.text_pairs.entailment_items import EntailmentItems, ScoreDrop
from cfaug.evaluation.text_pairs.text_pair_items import (
    ALPHA,
    CHANGED,
    KEPT,
    InsertionItems,
    PairedTest,
    TextPairItems,
    compare_changes,
    compare_methods,
)
from cfaug.papers.xmai.answer_tables import (
    DIGITS,
    RELEVANCE,
    RETRIEVAL,
    Checkpoints,
    MeasureColumn,
    PairTable,
    known_columns,
    number_entry,
    value_entry,
)
from cfaug.report.arm_results import Runs
from cfaug.report.document import Column, Document, Entry, Part, make_part, text_column
from cfaug.report.page import DASH, p_text
from cfaug.report.paper_tables import Models, read_answers
from cfaug.stats.classification import macro_scores
from cfaug.stats.significance import holm

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

    def is_known(self, items: TextPairItems) -> bool:
        return isinstance(items, EntailmentItems)

    def measure(self, checkpoints: Checkpoints, method: str) -> Entry:
        return self._entry(checkpoints, method, before=False)

    def measure_original(self, checkpoints: Checkpoints, methods: Sequence[str]) -> Entry:
        return self._entry(checkpoints, methods[0], before=True)

    def _entry(self, checkpoints: Checkpoints, method: str, *, before: bool) -> Entry:
        matrices = [
            _entailed(checkpoint).matrix(method, before=before) for checkpoint in checkpoints
        ]
        values = [float(getattr(macro_scores(matrix), self.score)) for matrix in matrices]
        return number_entry(values, int(matrices[0].sum()))


def _entailed(items: TextPairItems) -> EntailmentItems:
    if not isinstance(items, EntailmentItems):
        raise TypeError(f"{items.model}: not the items of benchmark=entailment")
    return items


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
    """the commands that make what it needs"""

    def build(self, runs: Runs) -> Document:
        """Return the paper's numbers, and ours in the paper's layout and with tests."""
        by_model = {
            model: checkpoints
            for model, checkpoints in self.read(runs, EntailmentItems).items()
            if all(_entailed(checkpoint).has_after for checkpoint in checkpoints)
        }
        nothing = self.nothing(by_model)
        if nothing is not None:
            return nothing
        answers = read_answers(runs.root, self.relevance, self.relevance_models, InsertionItems)
        if len(answers) > 1:
            raise UserError(
                f"{', '.join(answers)} answered benchmark={self.relevance}: name one in "
                "table.relevance_models={NAME: FOLDER}"
            )
        likeness = [checkpoint for folders in answers.values() for _, checkpoint in folders]
        parts: list[Part | None] = [self.theirs()]
        for model, checkpoints in by_model.items():
            there = set(self.named(checkpoints).values()).intersection(
                *(checkpoint.methods for checkpoint in likeness)
            )
            columns = known_columns(RELEVANCE, {model: likeness}) if likeness and there else []
            others = [(column, column.column(likeness, [*there])) for column in columns]
            parts.append(self.ours(model, checkpoints, SCORES, others))
        for model, checkpoints in by_model.items():
            named, title = self.named(checkpoints), f"Ours: {model}, accuracy"
            parts.append(change_part(title, checkpoints, named, ("accuracy_original", "accuracy")))
            parts.append(_f1_part(f"Ours: {model}, macro F1", checkpoints, named))
            parts.append(
                methods_part(
                    f"{title}, method by method", checkpoints, named, "accuracy", self.first
                )
            )
        return self.document(*(part for part in parts if part is not None))


def _f1_part(title: str, checkpoints: Checkpoints, methods: Mapping[str, str]) -> Part:
    """Return the change of macro F1 of each method, a row per checkpoint if there are several."""
    drops: list[tuple[str, ScoreDrop, int]] = []
    for printed, method in methods.items():
        for number, checkpoint in enumerate(map(_entailed, checkpoints), 1):
            name = printed if len(checkpoints) == 1 else f"{printed}, {number}"
            f1_drops = [drop for drop in checkpoint.drops(method) if drop.name == "f1"]
            drops += [(name, drop, len(checkpoint.rows(method))) for drop in f1_drops]
    corrected = holm([drop.p for _, drop, _ in drops]).tolist() if drops else []

    def change(row: tuple[ScoreDrop, int, float]) -> Entry:
        drop, n, _ = row
        small = "" if math.isnan(drop.low) else f"[{signed(-drop.high)}, {signed(-drop.low)}]"
        return Entry(signed(-drop.drop), small=small, numbers={"value": -drop.drop, "n": float(n)})

    columns: tuple[Column[tuple[ScoreDrop, int, float]], ...] = (
        text_column("hypotheses", lambda row: f"{row[1]:,}"),
        Column("change", change),
        text_column("p", lambda row: p_text(row[0].p)),
        Column("Holm", lambda row: Entry(p_text(row[2]), bold=row[2] <= ALPHA)),
    )
    rows = [((name,), (drop, n, p)) for (name, drop, n), p in zip(drops, corrected, strict=True)]
    return make_part(title, ("Method",), columns, rows, [F1_NOTE])


# Table 1 of XMAI: retrieval and similarity before and after a change, and paired tests.


@dataclass(frozen=True, kw_only=True)
class RetrievalTable(PairTable):
    """A row per method, a part per model; then each method against its originals and the others.

    Args:
        first: the printed name of the method to compare with each other one.
    """

    first: str = "XMAI"

    def build(self, runs: Runs) -> Document:
        """Return the paper's numbers, and ours in the paper's layout and with tests."""
        by_model = self.read(runs, InsertionItems)
        nothing = self.nothing(by_model)
        if nothing is not None:
            return nothing
        columns = known_columns((*RETRIEVAL, *RELEVANCE), by_model)
        parts: list[Part | None] = [self.theirs()]
        parts += [self.ours(model, checkpoints, columns) for model, checkpoints in by_model.items()]
        for model, checkpoints in by_model.items():
            named = self.named(checkpoints)
            title = f"Ours: {model}, MRR among all photos"
            parts.append(change_part(title, checkpoints, named, ("mrr_original", "mrr")))
            parts.append(
                methods_part(f"{title}, method by method", checkpoints, named, "mrr", self.first)
            )
        return self.document(*(part for part in parts if part is not None))


# Are answers to changed texts worse? Tests that are not in the paper, as parts of its tables.

CHANGES_NOTE = (
    "Each text is compared with itself before the change. Interval: 95 %, over photos. "
    "p: a permutation that flips whole photos (two-sided), Holm over methods. Share: texts that "
    "kept their right answer, of those that an oracle or people judged. The change on these texts "
    "excludes texts that became false; a text that says less may fit other photos as well."
)
METHODS_NOTE = (
    "On the texts to which both methods were applied. Interval, p and Holm as above. Below 0, the "
    "first method lowers the value further."
)


def change_part(
    title: str, checkpoints: Checkpoints, methods: Mapping[str, str], columns: tuple[str, str]
) -> Part:
    """Return the tests of each method's texts against the originals.

    Args:
        columns: the items' columns with the values of the original and of the changed text.
    """
    compared_methods = [*methods.values()]

    def compare(*, kept_only: bool) -> dict[str, PairedTest]:
        tests = compare_changes(checkpoints, *columns, compared_methods, kept_only=kept_only)
        return {test.method: test for test in tests}

    every = compare(kept_only=False)
    judged = any("label_kept" in checkpoint.items.columns for checkpoint in checkpoints)
    kept = compare(kept_only=True) if judged else {}

    def share_kept(row: Changes) -> Entry:
        """Return the share of the judged texts whose right answer was kept."""
        first = checkpoints[0]
        if "label_kept" not in first.items.columns:
            return Entry(DASH)
        checks = [first.label_kept[at] for at in first.rows(row[0].method).tolist()]
        judged = checks.count(KEPT) + checks.count(CHANGED)
        if not judged:
            return Entry(DASH)
        share = checks.count(KEPT) / judged
        return Entry(f"{share:.{DIGITS}f}", numbers={"value": share, "n": float(judged)})

    every_text, true = "all texts", "right answer kept"
    shown: list[Column[Changes]] = [
        text_column("texts", lambda row: f"{row[0].keys:,}"),
        text_column("photos", lambda row: f"{row[0].test.mean.clusters:,}"),
        Column("before", lambda row: value_entry(row[0].test.before), every_text),
        Column("after", lambda row: value_entry(row[0].test.after), every_text),
        Column("change", lambda row: change_entry(row[0], -1), every_text),
        text_column("p", lambda row: p_text(row[0].p), every_text),
        Column("Holm", lambda row: holm_entry(row[0]), every_text),
        Column("share", share_kept, true),
        Column("texts", lambda row: keys_entry(row[1]), true),
        Column("change", lambda row: change_entry(row[1], -1), true),
        Column("Holm", lambda row: holm_entry(row[1]), true),
    ]
    if len(checkpoints) > 1:
        shown.append(Column("over seeds", lambda row: _over_seeds(row[0], -1)))
        shown.append(Column("p", lambda row: _p_over_seeds(row[0])))
    rows = [
        ((printed,), (every[name], kept.get(name)))
        for printed, name in methods.items()
        if name in every
    ]
    return make_part(title, ("Method",), shown, rows, [CHANGES_NOTE])


Changes = tuple[PairedTest, PairedTest | None]
"""The test over all texts, and over those that kept their right answer; ``None`` without such."""


def methods_part(
    title: str,
    checkpoints: Checkpoints,
    methods: Mapping[str, str],
    column: str,
    first: str,
) -> Part | None:
    """Return the tests of one method against each other; ``None`` if there is no other.

    Args:
        column: the items' column with the value of the changed text.
        first: the printed name of the method to compare with the others.
    """
    if first not in methods or len(methods) < 2:
        return None
    others = {printed: name for printed, name in methods.items() if printed != first}
    tests = {
        method.other: method
        for method in compare_methods(checkpoints, column, methods[first], [*others.values()])
    }

    def texts_of_both(test: PairedTest) -> Entry:
        left_out = f"{test.left_out:,} of one only" if test.left_out else ""
        return Entry(f"{test.keys:,}", small=left_out)

    columns: list[Column[PairedTest]] = [
        Column("texts of both", texts_of_both),
        Column("first", lambda test: value_entry(test.test.before)),
        Column("other", lambda test: value_entry(test.test.after)),
        Column("difference", lambda test: change_entry(test, 1)),
        text_column("p", lambda test: p_text(test.p)),
        Column("Holm", holm_entry),
    ]
    if len(checkpoints) > 1:
        columns += [
            Column("over seeds", lambda test: _over_seeds(test, 1)),
            Column("p", _p_over_seeds),
        ]
    rows = [
        ((f"{first} against {printed}",), tests[name])
        for printed, name in others.items()
        if name in tests
    ]
    return make_part(title, ("Methods",), columns, rows, [METHODS_NOTE])


def keys_entry(test: PairedTest | None) -> Entry:
    """Return the number of texts; a dash without a test."""
    return Entry(DASH) if test is None else Entry(f"{test.keys:,}")


def change_entry(test: PairedTest | None, sign: int) -> Entry:
    """Return the mean difference with its interval; a dash without a test.

    Args:
        sign: the sign of the difference: 1 for the first value minus the second, or -1.
    """
    if test is None:
        return Entry(DASH)
    mean = test.test.mean
    low, high = sorted((sign * mean.low, sign * mean.high))
    small = "" if math.isnan(low) else f"[{signed(low)}, {signed(high)}]"
    return Entry(
        signed(sign * mean.mean),
        small=small,
        numbers={"value": sign * mean.mean, "n": float(test.keys)},
    )


def signed(value: float) -> str:
    """Return a difference as printed.

    >>> signed(0.0961), signed(-0.0001)
    ('+0.096', '+0.000')
    """
    return f"{round(value, DIGITS) + 0.0:+.{DIGITS}f}"


def holm_entry(test: PairedTest | None) -> Entry:
    """Return the corrected p, bold if the difference is significant; a dash without a test."""
    return Entry(DASH) if test is None else Entry(p_text(test.p_holm), bold=test.is_significant)


def _over_seeds(test: PairedTest, sign: int) -> Entry:
    summary = test.over_seeds
    if summary is None:
        return Entry(DASH)
    spread = f"{summary.sd:.{DIGITS}f}"
    return Entry(signed(sign * summary.mean), spread, numbers={"n": float(summary.n)})


def _p_over_seeds(test: PairedTest) -> Entry:
    return Entry(DASH if test.over_seeds is None else p_text(test.p_seeds))
