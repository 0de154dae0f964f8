"""The rows that a plan may draw, in random order, and their split into train and validation.

Rows are drawn group by group: the order depends only on the seed and the groups, only the last
group is cut, and its remaining rows are not used.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from cfaug.core.errors import UserError
from cfaug.core.text import normalise_caption
from cfaug.data.mixture.leakage import join_groups
from cfaug.data.mixture.records import (
    COUNTERFACTUAL,
    REAL,
    Eligible,
    Join,
    Mixture,
    Split,
    count_earlier,
    decimal,
    half_up,
    is_among,
    random_keys,
    sort_rows,
)
from cfaug.data.sources.lists import list_records
from cfaug.data.sources.row import NAMED_AT_ONCE, ErrorCollector, clean_key

if TYPE_CHECKING:
    from cfaug.data.index import Index


@dataclass(frozen=True)
class Wanted:
    """The numbers of rows of each source for train and validation."""

    train: tuple[int, int]
    validation: tuple[int, int]


@dataclass(frozen=True)
class Pool:
    """The rows that a plan may draw, in the random order in which it draws them.

    Attributes:
        keys: key of every row of each source, uint64; rows with equal keys go to the same side of
            the split.
        rows: rows of each source that may be drawn, int64, in the order of their keys.
        split: whether keys belong to groups or to single rows.
    """

    sources: tuple[Index | None, Index | None]
    keys: tuple[np.ndarray, np.ndarray]
    rows: tuple[np.ndarray, np.ndarray]
    seed: int
    split: Split

    @property
    def available(self) -> tuple[int, int]:
        """Number of rows of each source."""
        return len(self.rows[REAL]), len(self.rows[COUNTERFACTUAL])


class MixturePlan(Protocol):
    """A data set that a paper describes: the number of rows of each source, and their choice."""

    @property
    def name(self) -> str:
        """The name of the plan with all its settings, a part of a run's identity."""
        ...

    @property
    def sources(self) -> tuple[bool, bool]:
        """Whether rows of the real and of the counterfactual source are drawn."""
        ...

    @property
    def needs_labels(self) -> bool:
        """Whether the counterfactual images are those that people matched to their caption."""
        ...

    def wanted(self, pool: Pool, validation: float) -> Wanted:
        """Return the numbers of rows that the plan takes from each source.

        Args:
            validation: the share held out for validation, in [0, 1).
        """
        ...

    def draw(self, pool: Pool, validation: float) -> Mixture:
        """Draw the training and validation rows; arguments and errors are as for ``wanted``."""
        ...


def make_pool(
    real: Index | None,
    counterfactual: Index | None,
    *,
    seed: int,
    split: Split = "group",
    eligible: Eligible = (None, None),
) -> Pool:
    """Return rows in a random order that depends only on the seed and on their groups.

    Args:
        split: the unit of the order: ``group`` keeps together groups, which both sources may share,
            and rows that show the same image; ``random`` shuffles single rows.
        eligible: masks of the rows of each source that may be drawn, bool (rows,); ``None`` for
            all.
    """
    sources = (real, counterfactual)
    # The stream is independent of the source: groups in both have the same place, and arms with the
    # same data seed share their real rows.
    if split == "group":
        keys = [random_keys(groups, seed, "mixture", "groups") for groups in join_groups(sources)]
    else:
        counts = [0 if index is None else len(index.groups) for index in sources]
        keys = [
            random_keys(np.arange(count), seed, "mixture", "rows", source)
            for source, count in enumerate(counts)
        ]
    rows = [
        sort_rows(row_keys, mask if len(row_keys) else None)  # there may be a mask without a source
        for row_keys, mask in zip(keys, eligible, strict=True)
    ]
    return Pool(sources, (keys[0], keys[1]), (rows[0], rows[1]), seed=seed, split=split)


def share_out(total: int, counterfactual: int, ratio: Fraction, validation: float) -> Wanted:
    """Split a total into train (rounded down) and validation, each at the same ratio.

    Args:
        counterfactual: number of counterfactual examples among them.
        ratio: the exact share that ``counterfactual`` was rounded from.
    """
    train = int((1 - decimal(validation)) * total)
    if train == 0:
        raise UserError(
            f"data.size={total} with data.validation={validation} leaves nothing to train on"
        )
    in_train = half_up(ratio * train)
    held_real = (total - counterfactual) - (train - in_train)
    return Wanted(
        (train - in_train, in_train), (max(0, held_real), max(0, counterfactual - in_train))
    )


def divide(pool: Pool, wanted: Wanted) -> Mixture:
    """Draw train, then validation from the rows that share no key with it.

    Each source's rows are taken in their order, so that only the last group is cut; train is exact,
    and validation takes rows of the other groups, up to its share.
    """
    train, held, dropped = [], [], 0
    taken_of = [pool.keys[s][pool.rows[s][: wanted.train[s]]] for s in (REAL, COUNTERFACTUAL)]
    for taken in taken_of:
        taken.sort(kind="stable")  # fast, as nearly all ascend
    for source in (REAL, COUNTERFACTUAL):
        drawn, rest = np.split(pool.rows[source], [wanted.train[source]])
        free = rest
        for taken in taken_of:
            codes = pool.keys[source][free]
            also = codes <= taken.max(initial=0)  # few of its own source: rows are in this order
            also[also] = is_among(codes[also], taken)
            free = free[~also]
        dropped += len(rest) - len(free)
        train.append(pair_rows(source, drawn))
        held.append(pair_rows(source, free[: wanted.validation[source]]))
    if sum(wanted.validation) and not sum(map(len, held)):
        raise UserError(
            "no group is left for validation: the training split needs a row of every group. "
            "Ask for a smaller data.size, or data.validation=0 with trainer.checkpoint=last"
        )
    return assemble(pool, train, held, dropped)


def assemble(
    pool: Pool, train: Sequence[np.ndarray], held: Sequence[np.ndarray], dropped: int
) -> Mixture:
    """Return the mixture, with counts of the rows drawn from each source."""
    counts = {
        "real": len(train[REAL]),
        "counterfactual": len(train[COUNTERFACTUAL]),
        "total": sum(map(len, train)),
        "train": sum(map(len, train)),
        "validation": sum(map(len, held)),
        "dropped": dropped,
    }
    return Mixture(np.concatenate(train), np.concatenate(held), counts, pool.sources)


def pair_rows(source: int, rows: np.ndarray) -> np.ndarray:
    """Return (source, row) of each row, int64 (n, 2)."""
    pairs = np.empty((len(rows), 2), np.int64)
    pairs[:, 0], pairs[:, 1] = source, rows
    return pairs


def first_members(source: Index) -> np.ndarray:
    """Return which rows are the first of their set, bool (rows,)."""
    sets = np.asarray(source.sets)
    return np.r_[True, sets[1:] != sets[:-1]]


def choose_one_of_each(source: Index, seed: int, allowed: np.ndarray | None = None) -> np.ndarray:
    """Return a mask of rows with one member of every set, bool (rows,).

    Which one it is depends on the seed, the set's group and its place among the group's sets.

    Args:
        allowed: the rows that may be drawn, bool (rows,); ``None`` for all. A set without any has
            none.
    """
    rows = np.arange(len(source.sets)) if allowed is None else np.flatnonzero(allowed)
    sets = np.asarray(source.sets)
    starts = np.flatnonzero(np.diff(sets[rows], prepend=-1))
    sizes = np.diff(starts, append=len(rows)).astype(np.uint64)
    groups = np.asarray(source.groups)[np.searchsorted(sets, sets[rows[starts]])]
    codes = groups + count_earlier(groups).astype(np.uint64)
    places = random_keys(codes, seed, "mixture", "one of each set") % sizes
    chosen = np.zeros(len(sets), bool)
    chosen[rows[starts + places.astype(np.int64)]] = True
    return chosen


# The real captions that a counterfactual source edited: MS-COCO-17,410 out of MS-COCO.
#
# COCO-Counterfactuals has 17,410 of the 25,014 captions of val2017, and the paper's real data are
# these captions with their photos (COCO-CFs, footnote 11 and section B.3.1 a). The release does not
# list them; they are found by the photo's id and the words of the caption.


def match_edited_rows(real: Index, counterfactual: Index) -> Join:
    """Find the real row of every counterfactual set: same group, same words as the first member.

    If several real rows match, one is taken per set, in file order; several sets made from one real
    row all find that row.
    """
    wanted = Counter[tuple[int, str]]()
    originals = []
    for row in np.flatnonzero(first_members(counterfactual)).tolist():
        name = (int(counterfactual.groups[row]), normalise_caption(counterfactual.text(row)))
        wanted[name] += 1
        originals.append((row, name))
    mask = np.zeros(len(real.groups), bool)
    seen = set()
    # In a large source, only captions of edited photos are compared.
    groups = np.fromiter({group for group, _ in wanted}, np.uint64)
    for row in np.flatnonzero(np.isin(real.groups, groups)).tolist():
        name = (int(real.groups[row]), normalise_caption(real.text(row)))
        if wanted[name] > 0:
            wanted[name] -= 1
            mask[row] = True
            seen.add(name)
    if not seen:
        raise UserError(
            "data.real_captions=edited: no caption of data.real is the original of a set of "
            "data.counterfactual (same group, same words). Is it the source they were made from? "
            "data.real_captions=all takes every caption"
        )
    missed = (
        (counterfactual.key(row), counterfactual.text(row))
        for row, name in originals
        if name not in seen
    )
    return Join(mask, tuple(missed))


# Human labels of counterfactual images: the caption that people chose for each.
#
# A label file is jsonl, csv or tsv, with an answer on each line: ``key`` (of the set; also ``id``
# or ``pair``), ``member`` (whose image was shown, from 0), ``label``, and optionally ``annotator``.
# The paper's question has four answers (COCO-CFs, section 4.1): the original caption, the
# counterfactual one, both, or neither. An image is validated if more than half of its answers chose
# its own caption.

KEYS = ("key", "id", "pair")
CHOICES = {
    "original": "original", "0": "original", "a": "original", "first": "original",
    "counterfactual": "counterfactual", "1": "counterfactual", "b": "counterfactual",
    "second": "counterfactual",
    "both": "both", "neither": "neither", "correct": "correct", "incorrect": "incorrect",
}  # fmt: skip
"""Every spelling of an answer; correct and incorrect refer to the shown image's own caption."""


@dataclass(frozen=True)
class Labels:
    """Answers by image.

    Attributes:
        answers: {``<set>_<member>``, as in ``Index.key``: whether each annotator of the image chose
            its own caption}.
        hash: the sha256 of the file.
    """

    file: Path
    answers: Mapping[str, tuple[bool, ...]]
    hash: str

    def find_validated(self, index: Index) -> np.ndarray:
        """Return which rows of an index most annotators matched to their caption, bool (rows,).

        Rows without labels are not validated.
        """
        names = {index.key(row): row for row in range(len(index))}
        strangers = [name for name in self.answers if name not in names]
        if strangers:
            raise UserError(
                f"{self.file} labels {len(strangers)} images that {index.source} does not hold "
                f"({', '.join(strangers[:NAMED_AT_ONCE])}): is it the file of another source?"
            )
        mask = np.zeros(len(index), bool)
        for name, answers in self.answers.items():
            mask[names[name]] = 2 * sum(answers) > len(answers)
        if not mask.any():
            raise UserError(f"{self.file} validates no image of {index.source}")
        return mask

    def count_unlabelled(self, index: Index) -> int:
        """Return the number of rows of an index without an answer."""
        return sum(index.key(row) not in self.answers for row in range(len(index)))


def read_labels(file: str | Path) -> Labels:
    """Read a label file."""
    path = Path(file).expanduser().resolve()
    if path.suffix not in (".jsonl", ".csv", ".tsv"):
        raise UserError(
            f"{path}: labels are read from .jsonl, .csv or .tsv with key, member, label"
        )
    errors = ErrorCollector()
    answers: dict[str, list[bool]] = {}
    given: dict[tuple[str, str], str] = {}
    for where, record in list_records(path):
        with errors.collect():
            keys = (record[name] for name in KEYS if record.get(name) not in (None, ""))
            key, member = next(keys, None), str(record.get("member", "")).strip().lower()
            if key is None or not member.isdecimal():
                raise UserError(
                    f"{where}: an answer needs key (the set's) and member (whose image was shown, "
                    f"a number from 0); the columns are {', '.join(map(str, record))}"
                )
            label = str(record.get("label", "")).strip().lower()
            choice = CHOICES.get(label)
            if choice is None:
                raise UserError(f"{where}: label={label!r}: choose from {', '.join(CHOICES)}")
            kind = "original" if int(member) == 0 else "counterfactual"
            name = f"{clean_key(str(key).strip())}_{int(member)}"
            if record.get("annotator") not in (None, ""):
                pair = (name, str(record["annotator"]))
                if pair in given:
                    raise UserError(
                        f"{where}: {pair[1]!r} answered {name} before, in {given[pair]}"
                    )
                given[pair] = where
            answers.setdefault(name, []).append(choice in (kind, "correct"))
    errors.report()
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return Labels(path, {name: tuple(choices) for name, choices in answers.items()}, digest)
