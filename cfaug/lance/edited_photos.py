"""The common base of benchmarks of photos and their edits: their shards and their identity."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from cfaug.core.errors import UserError
from cfaug.core.types import CLUSTER, ITEM, ORIGINAL, RECONSTRUCTION
from cfaug.evaluation.fingerprint import fingerprint
from cfaug.evaluation.item_names import cluster_rows
from cfaug.evaluation.source import SourceBenchmark
from cfaug.lance.stress_columns import choose, concatenate_columns, item_names
from cfaug.lance.stress_sets import (
    EDITED,
    RANDOM,
    JoinedSets,
    check_same_photos,
    read_joined,
)

if TYPE_CHECKING:
    from cfaug.data.index import Index
    from cfaug.evaluation.context import EvaluationContext

IDENTIFYING = ("edit_kind", "edit_before", "edit_after")
"""Columns of a source that change the test or the content of its items."""


@dataclass
class JoinedBenchmark(SourceBenchmark):
    """A benchmark of photos, their reconstructions and their edits.

    Args:
        data: shards of photos with their edits; the edits are the set ``edited``.
        name: the name in tables, ending in the kind; ``None`` takes the folder's name.
        batch_size: number of images or texts computed at once.
        without_leaks: whether to leave out photos that the run was trained on, with everything made
            from them.
        random: shards of edits of random words (LANCE-R), the set ``random``; ``None`` omits it.
        more: {name: shards} of further sets, such as the oracle's edits.
        control: the kind of edit that changes nothing: photos that are only inverted and redrawn.
    """

    random: str | None = None
    more: Mapping[str, str] = field(default_factory=dict)
    control: str = RECONSTRUCTION
    _sets: tuple[JoinedSets, ...] = field(default=(), init=False, repr=False)

    whole_sets: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        taken = {ORIGINAL, RECONSTRUCTION, EDITED, RANDOM} & set(self.more)
        if taken:
            raise UserError(f"benchmark.more: the name {taken.pop()!r} is taken; choose another")

    def prepare(self, context: EvaluationContext, index: Index, rows: np.ndarray | None) -> None:
        """Store the data that ``run`` evaluates."""
        others: dict[str, str] = {} if self.random is None else {RANDOM: self.random}
        found = [(EDITED, index, rows)]
        for name, source in {**others, **self.more}.items():
            chosen = None
            if self.without_leaks:
                chosen, _ = context.without_leaks(source, None, whole_sets=True)
            found.append((name, context.open(source), chosen))
        sets = [read_joined(*one, self.control) for one in found]
        for other in sets[1:]:
            check_same_photos(sets[0], other)
        if self.control != RECONSTRUCTION and not any((one.controls >= 0).any() for one in sets):
            raise UserError(
                f"benchmark.control={self.control}: no edit is of that kind; there are "
                + ", ".join(sorted({str(kind) for one in sets for kind in one.kinds} - {ORIGINAL}))
            )
        self.ask(*sets)

    @abstractmethod
    def ask(self, *sets: JoinedSets) -> object:
        """Ask about open sources, and return this benchmark.

        Args:
            sets: photos with their edits, one for each folder, the main folder first.
        """

    def settings_asked(self) -> list[Any]:
        """Return the settings that change the test, for ``data_hash``."""
        return []

    @property
    def data_hash(self) -> str:
        """A hash of the data and settings, so that a result is not taken for another test's."""
        told: list[Any] = [self.control, *self.settings_asked()]
        for one in self._sets:
            columns = [name for name in IDENTIFYING if name in one.index.extra_names]
            told += [one.name, one.index.hash_with(columns), one.rows]
        return fingerprint(*told)

    def _shown(self) -> list[tuple[JoinedSets, np.ndarray]]:
        """Return each folder with a mask of the rows that are items.

        In folders other than the main one, items are the edits and photos that only this folder
        has.
        """
        main, *others = self._sets
        known = {key for key, is_photo in zip(main.keys, main.is_photo, strict=True) if is_photo}
        found = [(main, np.ones(len(main.rows), bool))]
        for one in others:
            new = one.is_photo & one.has_edit & np.array([key not in known for key in one.keys])
            known.update(key for key, is_new in zip(one.keys, new, strict=True) if is_new)
            found.append((one, one.is_edit | new))
        return found

    def _items(self) -> dict[str, Any]:
        """Return the columns that name the items and their parts."""
        columns = []
        for one, shown in self._shown():
            found: dict[str, Any] = {
                ITEM: item_names(one),
                CLUSTER: cluster_rows(one.index, one.rows),
                "set": one.parts,
                "photos": one.counted,
                "kind": one.kinds,
                "class": one.labels,
                "text": [one.index.text(int(row)) for row in one.rows],
            }
            columns.append({name: choose(values, shown) for name, values in found.items()})
        return concatenate_columns(columns)
