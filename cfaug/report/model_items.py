"""One model's answers to the items of a benchmark, with the model's name on pages and in tables."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from cfaug.core.errors import UserError
from cfaug.report.items import Items, how_to_renew

NAMED = 5
"""Most missing columns that a message names."""


@dataclass(frozen=True)
class ModelItems:
    """The answers of one model; a benchmark has a subclass that reads its own columns.

    Attributes:
        NEEDED: the columns of every run of the benchmark.
        ASKED_BY: value of ``benchmark=`` with which ``evaluate.py`` writes them.
        model: the model's name on pages and in tables.
        items: the items, as written.

    Raises:
        UserError: if a column is missing.
    """

    NEEDED: ClassVar[tuple[str, ...]] = ()
    ASKED_BY: ClassVar[str] = ""

    model: str
    items: Items

    def __post_init__(self) -> None:
        lacking = [name for name in self.NEEDED if name not in self.items.columns]
        if lacking:
            raise UserError(
                f"the items of {self.items.benchmark} lack {', '.join(lacking[:NAMED])}: they are "
                f"not those of benchmark={self.ASKED_BY}, or of an older version; {self.renew}"
            )

    def __len__(self) -> int:
        return len(self.items)

    @property
    def renew(self) -> str:
        """The part of a message that says how to renew the items."""
        return how_to_renew(self.items.benchmark)

    @cached_property
    def _texts(self) -> dict[str, list[str]]:
        return {}

    def texts(self, name: str) -> list[str]:
        """Return a column of texts; empty where an item has none."""
        if name not in self._texts:
            values = np.asarray(self.items.columns[name]).tolist()
            self._texts[name] = ["" if value is None else str(value) for value in values]
        return self._texts[name]
