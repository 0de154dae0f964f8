"""Table 4 of LANCE: people's ratings of the edited images, from ``ratings.json``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from cfaug.annotation.ratings import FILE, read_summary
from cfaug.annotation.ratings_report import ratings_part
from cfaug.report.arm_results import Runs
from cfaug.report.document import Document, Entry, Part
from cfaug.report.numbers import DASH
from cfaug.report.paper_tables import PaperTable

ANNOTATION_FOLDER = "annotation"
"""The folder below ``paths.runs`` that ``annotate=read`` writes."""


@dataclass(frozen=True, kw_only=True)
class HumanStudyTable(PaperTable):
    """A row per question, a column per kind of edit.

    Args:
        folder: the folder below ``paths.runs`` with the answers that ``annotate=read`` wrote.
    """

    folder: str = ANNOTATION_FOLDER

    def build(self, runs: Runs) -> Document:
        """Return the paper's numbers and ours.

        Raises:
            MissingError: if there are no answers, unless ``partial``.
            UserError: if the answers cannot be read.
        """
        file = runs.root / self.folder / FILE
        self.require(file.exists(), f"{file}: nobody was asked")
        if not file.exists():
            said = f"Ours: {DASH}. Nobody was asked; the page is made with {self.commands[0]}"
            alone = self.document(self._theirs())
            return replace(alone, notes=(*alone.notes, said))
        return self.document(self._theirs(), ratings_part(read_summary(file)))

    def _theirs(self) -> Part:
        return self.printed(
            "Metric", "metric", lambda row, value: _entry(value, "%" in row["metric"])
        )


def _entry(value: Sequence[float], is_share: bool) -> Entry:
    mean, sd = value
    factor = 100 if is_share else 1
    numbers = {"value": mean / factor, "sd": sd / factor}
    return Entry(f"{mean:.1f}", f"{sd:.1f}", numbers=numbers)
