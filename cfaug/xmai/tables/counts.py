"""Tables 4 and 5 of XMAI: the number of inserted words and of changed texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cfaug.report.arm_results import Runs
from cfaug.report.document import Document, Entry, Part
from cfaug.report.numbers import DASH, percent
from cfaug.xmai.tables.answers import DIGITS, Checkpoints, PairTable
from cfaug.xmai.text_pair_items import OverlapItems

OVERLAP_COMMANDS = (
    "python evaluate.py benchmark=text_overlap "
    "'benchmark.data={eda: shards/eda, xmai: shards/xmai}'",
)

NEW_WORDS = (
    "Distinct words of the changed text that the original does not have, without punctuation, case "
    "kept. ± is the population standard deviation over texts."
)


@dataclass(frozen=True, kw_only=True)
class CountTable(PairTable):
    """A row per method; counts need no model, so each of our columns is one set of answers."""

    commands: Sequence[str] = OVERLAP_COMMANDS
    benchmark: str = "text_overlap"

    def read_all(self, runs: Runs) -> dict[str, Checkpoints]:
        """Return the counts of every set of answers."""
        return self.read(runs, OverlapItems)

    def build(self, runs: Runs) -> Document:
        """Return the paper's numbers and ours.

        Raises:
            MissingError: if there are no answers, unless ``partial``.
            UserError: if items cannot be read.
        """
        found = self.read_all(runs)
        self.require(found, f"answers to benchmark={self.benchmark}")
        theirs = self.printed("Method", "method", lambda _, value: self.show_printed(value))
        return self.document(theirs, *([self.measure(found)] if found else ()))

    def show_printed(self, value: Any) -> Entry:
        """Return a value of the paper's table as a cell."""
        raise NotImplementedError

    def measure(self, found: Mapping[str, Checkpoints]) -> Part:
        """Return our columns of the table."""
        raise NotImplementedError

    def rows_of(self, found: Mapping[str, Checkpoints]) -> dict[str, list[tuple[Any, str]]]:
        """Return {printed name of the method: [(items, method)]}, a pair per column of ours."""
        names: dict[str, None] = {}
        for own in found.values():
            names |= dict.fromkeys(self.named(own))
        order = [*(name for name in self.methods if name in names),
                 *(name for name in names if name not in self.methods)]  # fmt: skip
        return {
            printed: [(own[0], self.named(own).get(printed, "")) for own in found.values()]
            for printed in order
        }


@dataclass(frozen=True, kw_only=True)
class InsertedWordsTable(CountTable):
    """Mean and standard deviation of the number of new words (Table 4)."""

    def show_printed(self, value: Sequence[float]) -> Entry:
        """Return a mean and a standard deviation."""
        return _mean_sd(value)

    def measure(self, found: Mapping[str, Checkpoints]) -> Part:
        """Return the new words of each method."""
        rows = tuple(
            ((printed,), tuple(_words(one, method) for one, method in own))
            for printed, own in self.rows_of(found).items()
        )
        return Part("Ours", ("Method",), (), tuple(found), rows, notes=(NEW_WORDS,))


def _mean_sd(value: Sequence[float]) -> Entry:
    mean, sd = value
    return Entry(f"{mean:.{DIGITS}f}", f"{sd:.{DIGITS}f}", numbers={"value": mean, "sd": sd})


def _words(one: OverlapItems, method: str) -> Entry:
    if not method:
        return Entry(DASH)
    values = np.array(list(one.by_key("inserted_words", method).values()))
    found = _mean_sd((float(values.mean()), float(values.std())))
    return replace(found, numbers={**found.numbers, "n": float(len(values))})


@dataclass(frozen=True, kw_only=True)
class ModifiedTable(CountTable):
    """The numbers of texts with a new word, and of texts with any change (Table 5)."""

    def show_printed(self, value: int) -> Entry:
        """Return a number of texts."""
        return _count(value, 0)

    def measure(self, found: Mapping[str, Checkpoints]) -> Part:
        """Return the changed texts of each method."""
        rows = tuple(
            (
                (printed,),
                tuple(
                    _changed(one, method, metric)
                    for one, method in own
                    for metric in ("novel", "changed")
                ),
            )
            for printed, own in self.rows_of(found).items()
        )
        return Part(
            "Ours", ("Method",), tuple((name, 2) for name in found), ("r/i", "any") * len(found),
            rows, notes=("r/i: texts with a new word, by replacement or insertion. Small: the "
                         "share of all texts.",),
        )  # fmt: skip


def _changed(one: OverlapItems, method: str, metric: str) -> Entry:
    if not method:
        return Entry(DASH)
    values = one.by_key(metric, method).values()
    return _count(int(sum(values)), len(values))


def _count(n: int, of: int) -> Entry:
    share = f"{percent(n / of, 1)} %" if of else ""
    return Entry(
        f"{n:,}", small=share, numbers={"value": float(n), **({"n": float(of)} if of else {})}
    )
