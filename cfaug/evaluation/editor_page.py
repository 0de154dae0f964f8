"""The page of ``benchmark=edit_quality``: photos and edits in the order of their trade-off."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cfaug.core.types import ITEM, RECONSTRUCTION, Edit, Member
from cfaug.evaluation.editor_items import MEASURES, EditedItems, estimate_text, verdicts
from cfaug.report.gallery import mark_changes
from cfaug.report.model_pages import ModelPage
from cfaug.report.page import DASH, short

SIDE = 192


def editor_page(limit: int) -> ModelPage[EditedItems]:
    """Return the definition of the page.

    Args:
        limit: most edits that are shown, spread evenly from the best trade-off to the worst.
    """
    return ModelPage(
        "edit_quality.html", EditedItems, "edits",
        lambda answers: _EditorPageData(answers, trade_off(answers[0]), limit), SIDE,
    )  # fmt: skip


def trade_off(answers: EditedItems) -> np.ndarray:
    """Return the place of each edit between the worst and the best, in [0, 1]: float64 (items,).

    The mean of two ranks among all edits, of kept content (PSNR) and of success (``direction``);
    ``nan`` for reconstructions, and for edits that lack one of them.
    """
    from scipy.stats import rankdata

    psnr, direction = (answers.items.metric(name) for name in ("psnr", "direction"))
    places = np.full(len(answers), np.nan)
    known = ~np.isnan(psnr) & ~np.isnan(direction)
    known &= np.array(answers.texts("kind")) != RECONSTRUCTION
    ranks = [rankdata(values[known]) for values in (psnr, direction)]
    places[known] = (np.mean(ranks, axis=0) - 1) / max(1, known.sum() - 1)
    return places


@dataclass
class _EditorPageData:
    answers: Sequence[EditedItems]
    places: np.ndarray
    limit: int
    images: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.first = self.answers[0]
        order = np.argsort(-self.places, kind="stable")
        order = order[: int((~np.isnan(self.places)).sum())]
        spread = np.linspace(0, len(order) - 1, min(self.limit, len(order))).round().astype(int)
        self._rows: list[int] = order[spread].tolist()

    @property
    def verdicts(self) -> list[str]:
        several = len(self.answers) > 1
        return [
            f"{answers.model}: {line}" if several else line
            for answers in self.answers
            for line in verdicts(answers)
        ]

    @property
    def subtitle(self) -> str:
        return f"{len(self._rows):,} of {len(self.first):,} pictures shown"

    def content(self) -> dict[str, Any]:
        """Return everything but the pictures: the script explains its letters."""
        return {
            "models": [answers.model for answers in self.answers],
            "sets": self.first.sets,
            "kinds": sorted({self.first.texts("kind")[row] for row in self._rows}),
            "tables": [[self._table(answers)] for answers in self.answers],
            "edits": [self._edit(row) for row in self._rows],
        }

    def _table(self, answers: EditedItems) -> dict[str, Any]:
        """Return a table: t title, h headers, r rows of texts."""
        measures = {n: m for n, m in MEASURES.items() if n in answers.items.columns}
        rows = []
        for name in answers.sets:
            for kind in (None, *answers.kinds(name)):
                some = answers.rows(name, kind)
                values = [
                    estimate_text(measure, answers.estimate(metric, some), DASH)
                    for metric, measure in measures.items()
                ]
                rows.append([name, kind or "all edits", f"{len(some):,}", *values])
        headers = [measure.header(name.replace("_", " ")) for name, measure in measures.items()]
        return {"t": "Means by editor", "h": ["Editor", "Kind", "n", *headers], "r": rows}

    def _edit(self, row: int) -> dict[str, Any]:
        """Return an edit: i item, s set, k kind, p pictures, t captions, o trade-off, m numbers.

        The numbers of a model: PSNR, direction, feature distance, success.
        """
        first = self.first
        edit = Edit(first.texts("kind")[row], first.texts("before")[row], first.texts("after")[row])
        members = (
            Member(first.texts("text_before")[row], "0", ""),
            Member(first.texts("text")[row], "1", "", edit),
        )
        names = [first.texts(name)[row] for name in ("photo", ITEM)]
        for name in names:
            self.images.setdefault(name, name)
        places: Mapping[str, int] = {name: at for at, name in enumerate(self.images)}
        return {
            "i": names[1], "s": first.texts("set")[row], "k": edit.kind,
            "p": [places[name] for name in names], "o": short(self.places[row]),
            "t": [mark_changes(members, 0), mark_changes(members, 1)],
            "m": [
                [short(answers.items.metric(name)[row])
                 for name in ("psnr", "direction", "feature_distance", "success")]
                for answers in self.answers
            ],
        }  # fmt: skip
