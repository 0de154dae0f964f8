"""Table 2 of CFMM: accuracies by category, a row per model and prompt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cfaug.cfmm.question_items import ACCURACIES, SEEN
from cfaug.cfmm.tables.answers import (
    DIGITS,
    HEADERS,
    PromptAnswers,
    QuestionTable,
    in_every_way,
    percent_entry,
)
from cfaug.report.arm_results import Runs
from cfaug.report.document import Document, Entry, Part, rules_of
from cfaug.report.published import published
from cfaug.report.ranked import Row, mark_best_two

OFF_GRID = "‡"

OURS_NOTE = (
    "Per cent: acc_b over images, acc_c over counterfactual questions, acc+ over pairs of the "
    "basic and one counterfactual question. Chance, with two options: 50, 50 and 25. Bold: best; "
    "underlined: second best, whatever the tests say. Answers without the image, or with neither "
    "image nor question, are not ranked. ± is over checkpoints."
)


@dataclass(frozen=True, kw_only=True)
class CategoryTable(QuestionTable):
    """A row per model and prompt, three columns per category."""

    def build(self, runs: Runs) -> Document:
        """Return the paper's numbers and ours.

        Raises:
            MissingError: if no model has answers, unless ``partial``.
            UserError: if items cannot be read.
        """
        asked = self.read(runs)
        self.require(asked, f"answers to benchmark={', '.join(self.benchmarks.values())}")
        ours = (self._ours(asked),) if asked else ()
        return self.document(self._theirs(), *ours)

    def _theirs(self) -> Part:
        found = published(self.name)
        odd = {(one["model"], one["prompt"], one["column"]) for one in found["off_grid"]}
        rows: list[Row] = []
        for row in found["rows"]:
            about = row["model"], row["prompt"]
            cells = tuple(
                Entry(f"{value:.{DIGITS}f}", signs=OFF_GRID * ((*about, column) in odd),
                      numbers={"value": value / 100})
                for column, value in zip(found["columns"], row["values"], strict=True)
            )  # fmt: skip
            rows.append((about, cells))
        return _part(self.paper, found["categories"], rows, (), (found["note"],), ours=False)

    def _ours(self, asked: Sequence[PromptAnswers]) -> Part:
        categories, every = self.named_categories(asked), in_every_way(asked)
        rows: list[Row] = [(one.labels, _cells(one, categories)) for one in every]
        beside = [place for place, one in enumerate(every) if one.way != SEEN]
        return _part("Ours", [*categories], rows, beside, (OURS_NOTE,), ours=True)


def _part(
    title: str,
    categories: Sequence[str],
    rows: Sequence[Row],
    beside: Sequence[int],
    notes: tuple[str, ...],
    *,
    ours: bool,
) -> Part:
    columns = HEADERS * len(categories)
    return Part(
        title, ("Model", "Prompt"), tuple((name, len(HEADERS)) for name in categories), columns,
        mark_best_two(rows, ["higher"] * len(columns), beside),
        rules_of([labels[0] for labels, _ in rows]), notes, ours=ours, ranked=True,
    )  # fmt: skip


def _cells(one: PromptAnswers, categories: Mapping[str, str]) -> tuple[Entry, ...]:
    found = {
        name: [own.by_category(one.metric(name)) for own in one.checkpoints] for name in ACCURACIES
    }
    return tuple(
        percent_entry(
            [float(own[category].mean()) for own in found[name] if category in own],
            len(found[name][0].get(category, ())),
        )
        for category in categories.values()
        for name in ACCURACIES
    )
