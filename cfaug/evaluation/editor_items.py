"""The items of ``benchmark=edit_quality``: their columns, and means with intervals over photos."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from cfaug.core.item_schema import ItemColumn, ItemSchema
from cfaug.core.rng import generator
from cfaug.core.types import CLUSTER, RECONSTRUCTION
from cfaug.report.items import ModelItems
from cfaug.report.page import FRACTION, Measure
from cfaug.stats.item_tests import MeanDifference, cluster_bootstrap

EDITED = "edited"
"""The name of a single editor."""
MEASURES: Mapping[str, Measure] = {
    "psnr": Measure("dB"),
    "ssim": Measure("SSIM"),
    "feature_distance": Measure("1 - cosine", "lower"),
    "success": Measure(FRACTION),
    "direction": Measure("cosine"),
    "text_similarity": Measure("cosine"),
    "rest_kept": Measure(FRACTION),
}
"""The numbers of an edit, with their units and directions."""
EDIT_ITEMS = ItemSchema(
    "an edit of a photo",
    (
        ItemColumn("item", "``<set>/<folder>/<key>_<member>``", "text", always=True),
        ItemColumn("cluster", "the photo", "text", always=True),
        ItemColumn("set", "the editor: a name of ``data``, or ``edited``", "text", always=True),
        ItemColumn("folder", "the number of its folder: the seed", "whole number", always=True),
        ItemColumn("photo", "the name of the photo, as ``item``", "text", always=True),
        ItemColumn(
            "kind",
            "the kind of the edit; ``reconstruction`` if the caption did not change",
            "text",
            always=True,
        ),
        ItemColumn("before", "the words that the edit replaces", "text"),
        ItemColumn("after", "the words that replace them", "text"),
        ItemColumn("text_before", "the caption of the photo", "text", always=True),
        ItemColumn("text", "the edited caption", "text", always=True),
        ItemColumn("masked", "the share of pixels that the edit may change"),
        ItemColumn(
            "psnr",
            "PSNR to the photo outside the mask, dB, at most 100 (equal); null without an outside",
            always=True,
        ),
        ItemColumn("ssim", "SSIM outside the mask, of windows without masked pixels", always=True),
        ItemColumn(
            "feature_distance",
            "1 - cosine of the model's features of the photo, and of the photo with everything "
            "outside the mask taken from the edit",
            always=True,
        ),
        ItemColumn(
            "success",
            "1 if the judge sees the edit, 0 if not, 0.5 for a tie; null for a reconstruction",
            always=True,
        ),
        ItemColumn(
            "direction",
            "cosine of the change of the picture and of the change of the caption, in the model's "
            "features; null where one of them did not change",
            always=True,
        ),
        ItemColumn("text_similarity", "cosine of the edit and the edited caption", always=True),
        ItemColumn("rest_kept", "1 if the oracle's judge sees everything else as in the photo"),
    ),
)
"""The items of ``benchmark=edit_quality``."""


@dataclass(frozen=True)
class EditedItems(ModelItems):
    """The edits of photos by some editors, with a model's similarities."""

    schema: ClassVar[ItemSchema] = EDIT_ITEMS
    ASKED_BY: ClassVar[str] = "edit_quality"

    @property
    def sets(self) -> list[str]:
        """The editors, in order."""
        return list(dict.fromkeys(self.texts("set")))

    def rows(self, name: str, kind: str | None = None) -> np.ndarray:
        """Return the rows of an editor, int64: of one kind, or all but reconstructions."""
        sets, kinds = np.array(self.texts("set")), np.array(self.texts("kind"))
        wanted = kinds != RECONSTRUCTION if kind is None else kinds == kind
        return np.flatnonzero((sets == name) & wanted)

    def kinds(self, name: str) -> list[str]:
        """Return the kinds of an editor's edits, in alphabetical order."""
        every = zip(self.texts("set"), self.texts("kind"), strict=True)
        return sorted({kind for editor, kind in every if editor == name})

    def estimate(self, metric: str, rows: np.ndarray) -> MeanDifference | None:
        """Return a mean with its 95 % interval, a bootstrap over photos; ``None`` without values.

        All edits of a photo, of all folders, are drawn together.
        """
        if metric not in self.items.columns:
            return None
        values = self.items.metric(metric)[rows]
        known = ~np.isnan(values)
        if not known.any():
            return None
        photos = np.array(self.texts(CLUSTER))[rows]
        return cluster_bootstrap(values[known], photos[known], generator(0, "edits", metric))

    def by_folder(self, metric: str, name: str) -> dict[int, float]:
        """Return the mean of a metric of each folder of an editor, by its number."""
        rows = self.rows(name)
        folders = np.asarray(self.items.columns["folder"])[rows]
        values = self.items.metric(metric)[rows]
        return {
            int(number): float(np.nanmean(values[folders == number]))
            for number in np.unique(folders)
            if not np.isnan(values[folders == number]).all()
        }


def estimate_text(measure: Measure, estimate: MeanDifference | None, missing: str) -> str:
    """Return a mean with its interval, as printed."""
    if estimate is None:
        return missing
    text = measure.text(estimate.mean, 1)
    if math.isnan(estimate.low):
        return text
    return f"{text} [{measure.text(estimate.low, 1)}, {measure.text(estimate.high, 1)}]"


def verdicts(answers: EditedItems) -> list[str]:
    """Say in a sentence for each editor what it keeps, and how often its edits succeed."""
    lines = []
    for name in answers.sets:
        rows = answers.rows(name)
        kept, success = (answers.estimate(metric, rows) for metric in ("psnr", "success"))
        psnr = estimate_text(MEASURES["psnr"], kept, "unknown")
        share = estimate_text(MEASURES["success"], success, "unknown")
        photos = len(set(np.array(answers.texts(CLUSTER))[rows].tolist()))
        lines.append(
            f"{name}: {len(rows):,} edits of {photos:,} photos, {psnr} dB outside the edit, "
            f"{share} % succeed"
        )
    return lines
