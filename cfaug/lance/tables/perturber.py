"""Table 3 of LANCE: do caption edits succeed, and does the label filter work?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cfaug.core.errors import UserError
from cfaug.data.shards.edits import FOLDER, read_all_edits
from cfaug.editing.edit_measures import OVERALL, EditMeasures, measure_edits
from cfaug.report.arm_results import Runs
from cfaug.report.document import Document, Entry, Part
from cfaug.report.numbers import DASH, percent
from cfaug.report.paper_tables import PaperTable

ROWS: Mapping[str, tuple[str, str]] = {
    "Edit Success (%)": ("success", "edits"),
    "Label kept before the filter (%)": ("label_kept", "labelled"),
    "Filter precision (%)": ("precision", "rejected"),
    "Filter recall (%)": ("recall", ""),
}
"""{printed name: (share of ``EditMeasures``, its count)}."""


@dataclass(frozen=True, kw_only=True)
class PerturberTable(PaperTable):
    """A column per kind of edit, a part per backend that writes edits.

    Args:
        backends: {printed name: folder of shards with the backend's edits}.
        kinds: the kinds of edits, in order; others follow.
    """

    backends: Mapping[str, str]
    kinds: Sequence[str]

    def build(self, runs: Runs) -> Document:
        """Return the paper's numbers, and those of every folder.

        Raises:
            MissingError: if a folder has no checked edits, unless ``partial``.
            UserError: if the edits cannot be read.
        """
        found = {name: _measure(Path(folder)) for name, folder in self.backends.items()}
        lacking = [f"checked edits in {self.backends[name]}" for name, own in found.items()
                   if not own]  # fmt: skip
        self.require(found and not lacking, *(lacking or ["table.backends={NAME: SHARDS}"]))
        ours = [self._ours(name, own) for name, own in found.items() if own]
        return self.document(self._theirs(), *ours)

    def _theirs(self) -> Part:
        return self.printed(
            "Metric", "metric", lambda _, v: Entry(f"{v:g}", numbers={"value": v / 100})
        )

    def _ours(self, name: str, measures: Sequence[EditMeasures]) -> Part:
        by = {one.kind: one for one in measures}
        others = [kind for kind in by if kind not in (*self.kinds, OVERALL)]
        kinds = [*(kind for kind in self.kinds if kind in by), *others, OVERALL]
        overall = by[OVERALL]
        return Part(
            title=f"Ours: {name}",
            labels=("Metric",),
            groups=(),
            columns=tuple(kind.capitalize() for kind in kinds),
            rows=tuple(
                ((printed,), tuple(_share(by[kind], *about) for kind in kinds))
                for printed, about in ROWS.items()
            ),
            notes=(
                f"Checks judged {overall.edits:,} edits. For {overall.labelled:,} it is known "
                f"whether they keep the label; the filter rejected {overall.rejected:,}. A dash: "
                "nothing to judge.",
            ),
        )


def _measure(folder: Path) -> list[EditMeasures]:
    if not (folder / FOLDER).is_dir():
        return []
    try:
        return measure_edits([edited for _, edited in read_all_edits(folder)])
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{folder / FOLDER} does not hold edits of captions: {error}") from error


def _share(one: EditMeasures, share: str, count: str) -> Entry:
    value = getattr(one, share)
    n = getattr(one, count) if count else one.labelled - one.kept
    if value is None:
        return Entry(DASH)
    return Entry(percent(value, 1), numbers={"value": value, "n": float(n)})
