"""Table 1 of XMAI: retrieval and similarity before and after a change, and paired tests."""

from __future__ import annotations

from dataclasses import dataclass

from cfaug.report.arm_results import Runs
from cfaug.report.document import Document, Part
from cfaug.xmai.tables.answers import RELEVANCE, RETRIEVAL, PairTable, known_columns
from cfaug.xmai.tables.drops import change_part, methods_part
from cfaug.xmai.text_pair_items import InsertionItems


@dataclass(frozen=True, kw_only=True)
class RetrievalTable(PairTable):
    """A row per method, a part per model; then each method against its originals and the others.

    Args:
        first: the printed name of the method to compare with each other one.
    """

    first: str = "XMAI"

    def build(self, runs: Runs) -> Document:
        """Return the paper's numbers, and ours in the paper's layout and with tests.

        Raises:
            MissingError: if no model has answers, unless ``partial``.
            UserError: if items cannot be read.
        """
        found = self.read(runs, InsertionItems)
        nothing = self.nothing(found)
        if nothing is not None:
            return nothing
        columns = known_columns((*RETRIEVAL, *RELEVANCE), found)
        parts: list[Part | None] = [self.theirs()]
        parts += [self.ours(model, own, columns) for model, own in found.items()]
        for model, own in found.items():
            named = self.named(own)
            title = f"Ours: {model}, MRR among all photos"
            parts.append(change_part(title, own, named, ("mrr_original", "mrr")))
            parts.append(methods_part(f"{title}, method by method", own, named, "mrr", self.first))
        return self.document(*(part for part in parts if part is not None))
