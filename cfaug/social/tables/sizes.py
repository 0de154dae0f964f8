"""Table 5 of the paper: the number of sets and images of each grid."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from cfaug.core.read_with import ReadWith
from cfaug.editing.caption_grids import CaptionGrid, read_grid
from cfaug.report.arm_results import Runs
from cfaug.report.document import Document, Entry, Part
from cfaug.report.paper_tables import PaperTable
from cfaug.report.published import published

LABELS = ("Subject", "Attribute Pair")


@dataclass(frozen=True, kw_only=True)
class SizesTable(PaperTable):
    """The printed sizes beside those of the grids, with and without duplicates.

    Args:
        grids: {name or file of a grid: [printed subjects, printed attributes]}.
        candidates: number of images generated per caption.
    """

    grids: Mapping[str, Sequence[str]]
    candidates: int = 100

    read_with: ClassVar[ReadWith] = {"partial": (), "commands": ()}  # nothing can be missing

    def build(self, runs: Runs) -> Document:
        """Return the paper's sizes, and ours with the lists as printed and without duplicates.

        Raises:
            UserError: if a grid cannot be read.
        """
        lists = [{name: read_grid(name, keep_duplicates=kept) for name in self.grids}
                 for kept in (True, False)]  # fmt: skip
        removed = sorted({one for grid in lists[1].values() for one in grid.left_out})
        note = (
            f"{len(removed):,} entries are duplicated in the lists, ignoring case, such as "
            f"{', '.join(removed[:4])}."
            if removed
            else "No entry is duplicated."
        )
        return self.document(
            self._theirs(),
            self._part("Ours: the grids with every entry of the lists", lists[0], ()),
            self._part("Ours: the grids as they are used, without duplicates", lists[1], (note,)),
        )

    def _theirs(self) -> Part:
        found = published(self.name)
        rows = [((row["subject"], row["pair"]), row["values"]) for row in found["rows"]]
        return _lay_out(self.paper, rows, (found["note"],), found["columns"], ours=False)

    def _part(self, title: str, grids: Mapping[str, CaptionGrid], notes: Sequence[str]) -> Part:
        rows = []
        for name, grid in grids.items():
            subject, pair = self.grids[name]
            rows.append(((subject, pair), (grid.sets, grid.members, self._images(grid))))
        columns = published(self.name)["columns"]
        return _lay_out(title, rows, notes, columns, ours=True)

    def _images(self, grid: CaptionGrid) -> int:
        return grid.captions * self.candidates


def _lay_out(
    title: str,
    rows: Sequence[tuple[tuple[str, str], Sequence[int]]],
    notes: Sequence[str],
    columns: Sequence[Any],
    *,
    ours: bool,
) -> Part:
    """Return a part with a last row of sums where values can be added."""
    sets, images = (sum(values[at] for _, values in rows) for at in (0, 2))
    told = [(labels, tuple(map(_count, values))) for labels, values in rows]
    told.append((("Sum", ""), (_count(sets), Entry(""), _count(images))))
    return Part(title, LABELS, (), tuple(columns), tuple(told), rules=(len(rows),),
                notes=tuple(notes), ours=ours)  # fmt: skip


def _count(value: int) -> Entry:
    return Entry(f"{value:,}", numbers={"value": float(value)})
