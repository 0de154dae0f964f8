"""Table 4 of LANCE: what people say of the edited images, from ``ratings.json``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cfaug.annotation.ratings import FILE, read_summary
from cfaug.annotation.ratings_report import ratings_part
from cfaug.papers.published import published
from cfaug.report.arm_results import MissingError, Runs
from cfaug.report.document import Document, Entry, Part
from cfaug.report.numbers import DASH

FOLDER = "annotation"
"""Below ``paths.runs``: where ``annotate=read`` writes."""


@dataclass(frozen=True)
class HumanStudyTable:
    """A row a question, a column a kind of edit.

    Args:
        name: of the paper's numbers and of the files written.
        title: above the table.
        paper: whose numbers the paper's are.
        commands: what asks people and reads their answers.
        folder: where the answers were read to, below ``paths.runs``.
        notes: printed below everything.
        partial: print the paper's numbers alone where nobody answered.
    """

    name: str
    title: str
    paper: str
    commands: Sequence[str]
    folder: str = FOLDER
    notes: Sequence[str] = ()
    partial: bool = False

    def build(self, runs: Runs) -> Document:
        """Return the paper's numbers and those of the people who were asked.

        Raises:
            MissingError: if nobody was, unless ``partial``.
            UserError: if their answers cannot be read.
        """
        file = runs.root / self.folder / FILE
        if not file.exists():
            if not self.partial:
                raise MissingError(self.name, [f"{file}: nobody was asked"], self.commands)
            said = f"Ours: {DASH}. Nobody was asked; the page is made with {self.commands[0]}"
            return Document(self.name, self.title, (self._theirs(),), (*self.notes, said))
        ours = ratings_part(read_summary(file))
        return Document(self.name, self.title, (self._theirs(), ours), tuple(self.notes))

    def _theirs(self) -> Part:
        found = published(self.name)
        rows = tuple(
            (
                (row["metric"],),
                tuple(_entry(value, "%" in row["metric"]) for value in row["values"]),
            )
            for row in found["rows"]
        )
        return Part(self.paper, ("Metric",), (), tuple(found["columns"]), rows,
                    notes=(found["note"],), ours=False)  # fmt: skip


def _entry(value: Sequence[float], is_share: bool) -> Entry:
    mean, sd = value
    factor = 100 if is_share else 1
    numbers = {"value": mean / factor, "sd": sd / factor}
    return Entry(f"{mean:.1f}", f"{sd:.1f}", numbers=numbers)
