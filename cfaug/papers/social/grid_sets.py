"""Sets of attribute grids as columns: each image's subject and the attributes in its caption.

Sets from all origins (``recipe=social``, the Hub's SocialCounterfactuals, the oracle) describe
themselves in the same way (``cfaug.data.grids``); benchmarks read only ``GridSets``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import compress, product
from math import prod
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

import numpy as np

from cfaug.core.errors import UserError
from cfaug.core.safety.json_text import load_json
from cfaug.core.validation import check
from cfaug.data.grids import (
    ATTRIBUTES,
    GRID,
    NEUTRAL,
    SUBJECT,
    SUBJECT_TYPE,
    TEXTS,
    attribute_combinations,
    require_attributes,
)

if TYPE_CHECKING:
    from cfaug.data.index import Index


Invalid = Literal["refuse", "leave_out"]
"""What to do with sets that do not have one image for each combination of the grid."""
Composition = tuple[int, ...]


@dataclass(frozen=True)
class GridImages:
    """The images of one grid, set by set.

    Attributes:
        attributes: {attribute: its values}, both in the grid's order.
        rows: the images' rows of the index, int64 (images,), ascending.
        sets: the position of each image's set in ``GridSets.set_names``, int64 (images,).
        subjects: the position of each image's subject in ``GridSets.subjects``, int64 (images,).
        values: the position of each attribute's value among its values, int64 (images, attributes).
    """

    name: str
    attributes: Mapping[str, tuple[str, ...]]
    rows: np.ndarray
    sets: np.ndarray
    subjects: np.ndarray
    values: np.ndarray

    def label(self, names: Sequence[str]) -> tuple[np.ndarray, list[str]]:
        """Return each image's label by some attributes.

        Returns:
            The number of each image's label, int64 (images,), and the labels: every combination,
            the first attribute in the outer loop, values joined by a space, or by " + " if two
            labels would be the same.
        """
        unknown = [name for name in names if name not in self.attributes]
        if unknown or not names:
            wrong = f"{unknown[0]!r} is not one of them" if unknown else "none given"
            raise UserError(
                f"labels of the grid {self.name}: {wrong}; choose from its attributes "
                f"{', '.join(self.attributes)}"
            )
        order = list(self.attributes)
        codes = np.zeros(len(self.rows), np.int64)
        for name in names:
            codes = codes * len(self.attributes[name]) + self.values[:, order.index(name)]
        every = attribute_combinations({name: self.attributes[name] for name in names})
        labels = [" ".join(combination.values()) for combination in every]
        if len(set(labels)) < len(labels):
            labels = [" + ".join(combination.values()) for combination in every]
        return codes, labels


@dataclass(frozen=True)
class GridSets:
    """Whole sets of one or several grids.

    Attributes:
        grids: {name: images of the grid}, in the order of the source.
        subjects: the subjects in lower case, in the order of the source.
        set_names: the key of each set, the unit of a bootstrap.
        set_prompts: the neutral prompt of each set, its caption without attributes.
    """

    index: Index
    grids: Mapping[str, GridImages]
    subjects: tuple[str, ...]
    subject_types: tuple[str, ...]
    set_names: tuple[str, ...]
    set_prompts: tuple[str, ...]
    left_out: Mapping[str, str]

    def prompts(self, grid: GridImages, subject: int) -> list[str]:
        """Return the neutral prompts of a subject, one for each prefix, in the source's order.

        Args:
            subject: the subject's position in ``subjects``.
        """
        sets = np.unique(grid.sets[grid.subjects == subject])
        return list(dict.fromkeys(self.set_prompts[number] for number in sets.tolist()))


def read_grid_sets(
    index: Index, rows: np.ndarray | None = None, invalid: Invalid = "refuse"
) -> GridSets:
    """Read the attributes of a source's images, and check that the sets are complete.

    A grid's combinations are those of the composition that most of its sets have.

    Args:
        index: an index of shards, of SocialCounterfactuals' parquet files, or of any other source
            of such sets.
        rows: the rows to use, of whole sets; ``None`` for all.
        invalid: ``refuse`` or ``leave_out`` (with the reason) sets that are incomplete, have a
            duplicated combination, or one outside of their grid.
    """
    check(invalid, Invalid, "invalid")
    table = _GridColumns(index, np.arange(len(index)) if rows is None else np.sort(rows))
    left_out = table.find_invalid()
    if left_out and (invalid == "refuse" or len(left_out) == len(table.names)):
        named = "; ".join(f"{key}: {reason}" for key, reason in list(left_out.items())[:3])
        more = "; ..." if len(left_out) > 3 else ""
        raise UserError(
            f"{index.source}: {len(left_out)} of {len(table.names)} sets are invalid: {named}"
            f"{more}. A set has one image for each combination of its grid: make or fetch them "
            "again, or ask about the others with benchmark.invalid=leave_out"
        )
    return table.build(left_out)


def _unshown(index: Index, row: int, name: str = SUBJECT) -> str:
    """Say which image lacks a column of its grid, and why if its other columns show it."""
    text = f"{index.image_name(row)} has no {name}: it is of no grid"
    a1, a2 = (index.extra_row(row).get(column) for column in ("a1", "a2"))
    if a1 is None or a2 is None:
        return text
    return (
        f"{text}, as its caption {index.text(row)[:200]!r} does not have its a1 and a2, {a1!r} and "
        f"{a2!r}, one after the other before a subject: correct the row, or remove its set"
    )


class _GridColumns:
    """The columns of an index that describe grids, row by row and set by set."""

    def __init__(self, index: Index, rows: np.ndarray) -> None:
        missing = [name for name in (*TEXTS, ATTRIBUTES) if name not in index.extra_names]
        if missing and {"a1", "a2"} <= set(index.extra_names):
            raise UserError(_unshown(index, 0))
        if missing:
            raise UserError(
                f"{index.source} holds no sets of attribute grids: the column {missing[0]!r} is "
                "missing. Name shards that `python generate.py recipe=social` made, or the folder "
                "of SocialCounterfactuals' parquet files"
            )
        if not len(rows):
            raise UserError(f"{index.source}: no row is selected")
        self.index, self.rows = index, rows
        _, self.first, self.place = np.unique(
            np.asarray(index.sets)[rows], return_index=True, return_inverse=True
        )
        self.names = [key.rpartition("_")[0] for key in index.keys(rows[self.first])]
        self.texts = {name: self._column(name) for name in TEXTS}
        self.codes, encoded = self._column(ATTRIBUTES)
        _, first = np.unique(self.codes, return_index=True)
        self.known = []
        for text, row in zip(encoded, rows[first].tolist(), strict=True):
            where = index.image_name(row)
            try:
                self.known.append(require_attributes(load_json(text), where))
            except ValueError as error:
                raise UserError(f"{where}: attributes {text!r} are no JSON: {error}") from error

    def _column(self, name: str) -> tuple[np.ndarray, list[str]]:
        """Return the number of each row's value, int64 (rows,), and the values."""
        import pyarrow as pa

        column = self.index.extra(name)
        if name != ATTRIBUTES:
            # The index would give other values than texts as JSON.
            row = int(self.rows[0])
            shown = self.index.extra_row(row).get(name)
            if not pa.types.is_string(column.type) or shown != column[row].as_py():
                every = ((int(row), self.index.extra_row(int(row)).get(name)) for row in self.rows)
                row, value = next(pair for pair in every if not isinstance(pair[1], str))
                where = self.index.image_name(row)
                raise UserError(f"{where}: {name} should be a text, not {value!r}")
        encoded = column.take(pa.array(self.rows)).combine_chunks().dictionary_encode()
        if encoded.null_count:
            row = int(self.rows[int(np.flatnonzero(encoded.is_null())[0])])
            raise UserError(_unshown(self.index, row, name))
        return encoded.indices.to_numpy().astype(np.int64), encoded.dictionary.to_pylist()

    def of_set(self, name: str) -> list[str]:
        """Return one text per set: that of its first member."""
        codes, values = self.texts[name]
        return [values[code] for code in codes[self.first].tolist()]

    @cached_property
    def compositions(self) -> list[Composition]:
        """The composition of each set: the number of each member's attributes, in order."""
        ends = [*self.first[1:].tolist(), len(self.rows)]
        codes = self.codes.tolist()
        return [tuple(codes[a:b]) for a, b in zip(self.first.tolist(), ends, strict=True)]

    @cached_property
    def values(self) -> dict[str, dict[str, tuple[str, ...]]]:
        """The values of each grid's attributes, as in most of its sets."""
        counts: dict[str, Counter[Composition]] = {}
        for grid, composition in zip(self.of_set(GRID), self.compositions, strict=True):
            counts.setdefault(grid, Counter())[composition] += 1
        of_grid = {}
        for grid, count in counts.items():
            usual = [self.known[code] for code in count.most_common(1)[0][0]]
            names = list(usual[0])
            of_grid[grid] = {n: tuple(dict.fromkeys(o[n] for o in usual if n in o)) for n in names}
        return of_grid

    def find_invalid(self) -> dict[str, str]:
        """Return why sets do not belong to their grid, by key."""
        invalid: dict[str, str] = {}
        for name, (codes, _) in self.texts.items():
            for number in np.unique(self.place[codes != codes[self.first][self.place]]).tolist():
                invalid.setdefault(self.names[number], f"its members differ in {name}")
        reasons: dict[tuple[str, Composition], str | None] = {}
        rows = zip(self.names, self.of_set(GRID), self.compositions, strict=True)
        for name, grid, composition in rows:
            if (grid, composition) not in reasons:
                members = [self.known[code] for code in composition]
                reasons[grid, composition] = find_mistake(members, self.values[grid])
            reason = reasons[grid, composition]
            if reason is not None:
                invalid.setdefault(name, reason)
        return invalid

    def build(self, left_out: Mapping[str, str]) -> GridSets:
        """Return the sets that are not left out."""
        kept = np.array([name not in left_out for name in self.names])
        new = np.cumsum(kept) - 1
        subjects = [text.lower() for text in self.of_set(SUBJECT)]
        names = list(dict.fromkeys(compress(subjects, kept)))
        number = {name: at for at, name in enumerate(names)}
        subject_of = np.array([number.get(subject, -1) for subject in subjects])
        types: dict[str, str] = {}
        for subject, kind in zip(subjects, self.of_set(SUBJECT_TYPE), strict=True):
            types.setdefault(subject, kind)
        grids = np.array(self.of_set(GRID), object)
        images = {}
        for grid, values in self.values.items():
            chosen = np.flatnonzero((kept & (grids == grid))[self.place])
            if len(chosen):
                in_set = self.place[chosen]
                number_of = {n: {v: at for at, v in enumerate(some)} for n, some in values.items()}
                of_code = np.array([
                    [numbers.get(known.get(n, ""), -1) for n, numbers in number_of.items()]
                    for known in self.known
                ])  # fmt: skip
                images[grid] = GridImages(
                    grid, MappingProxyType(values), self.rows[chosen], new[in_set],
                    subject_of[in_set], of_code[self.codes[chosen]],
                )  # fmt: skip
        return GridSets(
            self.index, MappingProxyType(images), tuple(names),
            tuple(types[name] for name in names), tuple(compress(self.names, kept)),
            tuple(compress(self.of_set(NEUTRAL), kept)), MappingProxyType(dict(left_out)),
        )  # fmt: skip


# Find mistakes in a set of an attribute grid.


def find_mistake(
    members: Sequence[Mapping[str, str]], values: Mapping[str, Sequence[str]]
) -> str | None:
    """Say why a set does not have one member per combination of its grid; ``None`` if it does.

    Args:
        values: the grid's attributes, {name: its values}.
    """
    for member in members:
        if set(member) != set(values):
            there, wanted = ", ".join(member), ", ".join(values)
            return f"a member has the attributes {there}; its grid has {wanted}"
    counter = Counter(tuple(member[name] for name in values) for member in members)
    known = [set(some) for some in values.values()]
    for combination, count in counter.items():
        if any(value not in some for value, some in zip(combination, known, strict=True)):
            return f"{' '.join(combination)!r} is outside its grid"
        if count > 1:
            return f"{' '.join(combination)!r} is duplicated: it has {count} images"
    every = prod(map(len, values.values()))
    if len(counter) == every:
        return None
    # For a grid of millions of combinations, stop after the first missing one.
    such = " ".join(
        next(combination for combination in product(*values.values()) if combination not in counter)
    )
    return f"incomplete: {every - len(counter):,} of {every:,} missing, such as {such!r}"
