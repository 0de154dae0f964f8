"""Items about texts before and after methods changed them: one row per set and method.

The columns are those of ``benchmark=insertion``, ``text_overlap`` and ``entailment``. No model is
needed here: tables, tests and pages are made from the items alone.
"""

from __future__ import annotations

import math
from collections import Counter
from functools import cached_property
from typing import ClassVar

import numpy as np

from cfaug.core.errors import UserError
from cfaug.core.types import CLUSTER, ITEM
from cfaug.report.model_items import ModelItems

KEPT, CHANGED, UNKNOWN = "kept", "changed", "unknown"
"""Values of the column ``label_kept``: is the right answer still that of the original text?"""

PAIRS = (ITEM, CLUSTER, "method", "key", "source", "changed")
"""Columns of every benchmark of text pairs."""


class TextPairItems(ModelItems):
    """One model's answers to texts before and after methods changed them."""

    NEEDED: ClassVar[tuple[str, ...]] = PAIRS
    ASKED_BY = "insertion"

    @cached_property
    def methods(self) -> tuple[str, ...]:
        """The methods, in the order of the items."""
        return tuple(dict.fromkeys(self.texts("method")))

    def sources(self, method: str) -> tuple[str, ...]:
        """Return the folders of a method's texts, as given."""
        found = self.texts("source")
        return tuple(dict.fromkeys(found[row] for row in self.rows(method)))

    def rows(self, method: str, kept_only: bool = False) -> np.ndarray:
        """Return the rows of a method, int64.

        Args:
            method: name of the method.
            kept_only: whether only rows whose right answer is known to be that of the original text
                are returned.

        Raises:
            UserError: if there is no such method, or ``label_kept`` is missing.
        """
        if method not in self.methods:
            raise UserError(
                f"the items of {self.items.benchmark} ({self.model}) have no method {method!r}; "
                f"there are {', '.join(self.methods)}"
            )
        rows = np.flatnonzero(np.array(self.texts("method")) == method)
        return rows[np.array(self.label_kept)[rows] == KEPT] if kept_only else rows

    @cached_property
    def label_kept(self) -> list[str]:
        """``KEPT``, ``CHANGED`` or ``UNKNOWN`` of each row.

        Raises:
            UserError: if a row has another value, or the column is missing.
        """
        if "label_kept" not in self.items.columns:
            raise UserError(
                f"the items of {self.items.benchmark} lack label_kept: nothing says whether the "
                f"right answers were kept; {self.renew}"
            )
        found = self.texts("label_kept")
        odd = sorted({*found} - {KEPT, CHANGED, UNKNOWN})
        if odd:
            raise UserError(
                f"the items of {self.items.benchmark}: label_kept={odd[0]!r} is invalid: choose "
                f"from {KEPT}, {CHANGED}, {UNKNOWN}; {self.renew}"
            )
        return found

    def judged(self, method: str) -> tuple[int, int]:
        """Count the texts that a method changed and whose right answer is known.

        Returns:
            The number of texts with the same right answer as the original, and with another one.

        Raises:
            UserError: if there is no such method, or the column is missing.
        """
        rows = self.rows(method)
        changed = rows[self.items.metric("changed")[rows] > 0].tolist()
        found = Counter(self.label_kept[row] for row in changed)
        return found[KEPT], found[CHANGED]

    def has(self, metric: str) -> bool:
        """Return whether any row has a value of a metric."""
        return metric in self.items.columns and bool((~np.isnan(self.items.metric(metric))).any())

    def by_key(self, metric: str, method: str, kept_only: bool = False) -> dict[str, float]:
        """Return {key: value} of a method, for rows with a value.

        Args:
            metric: name of a column of numbers.
            method: name of the method.
            kept_only: whether only rows whose right answer is known to be kept are used.

        Raises:
            UserError: if there is no such method or metric, or a key is duplicated.
        """
        values, keys = self.items.metric(metric), self.texts("key")
        rows = [row for row in self.rows(method, kept_only).tolist() if not math.isnan(values[row])]
        found = {keys[row]: float(values[row]) for row in rows}
        if len(found) < len(rows):
            raise UserError(
                f"the items of {self.items.benchmark}: keys of {method} are duplicated; "
                f"{self.renew}"
            )
        return found

    @cached_property
    def clusters(self) -> dict[str, str]:
        """The photo of each key."""
        return dict(zip(self.texts("key"), self.texts(CLUSTER), strict=True))


class InsertionItems(TextPairItems):
    """A model's retrieval of the photos of texts before and after, and the texts' similarity."""

    NEEDED = (*PAIRS, "label_kept", "inserted_words", "novel", "mrr_original", "mrr", "mrr_drop",
              "similarity_image_original", "similarity_image", "bleu", "text_before", "text",
              "image", "rank_original", "rank")  # fmt: skip


class OverlapItems(TextPairItems):
    """The similarity of texts before and after, without a model."""

    NEEDED = (*PAIRS, "inserted_words", "novel", "bleu")
    ASKED_BY = "text_overlap"
