"""Human labels of counterfactual images: the caption that people chose for each.

A label file is jsonl, csv or tsv, with an answer on each line: ``key`` (of the set; also ``id`` or
``pair``), ``member`` (whose image was shown, from 0), ``label``, and optionally ``annotator``. The
paper's question has four answers (COCO-CFs, section 4.1): the original caption, the counterfactual
one, both, or neither. An image is validated if more than half of its answers chose its own caption.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cfaug.core.errors import UserError
from cfaug.data.sources.lists import list_records
from cfaug.data.sources.row import NAMED_AT_ONCE, ErrorCollector, clean_key

if TYPE_CHECKING:
    from cfaug.data.index import Index

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
        found = np.zeros(len(index), bool)
        for name, answers in self.answers.items():
            found[names[name]] = 2 * sum(answers) > len(answers)
        if not found.any():
            raise UserError(f"{self.file} validates no image of {index.source}")
        return found

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
            own = "original" if int(member) == 0 else "counterfactual"
            name = f"{clean_key(str(key).strip())}_{int(member)}"
            if record.get("annotator") not in (None, ""):
                one = (name, str(record["annotator"]))
                if one in given:
                    raise UserError(f"{where}: {one[1]!r} answered {name} before, in {given[one]}")
                given[one] = where
            answers.setdefault(name, []).append(choice in (own, "correct"))
    errors.report()
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return Labels(path, {name: tuple(found) for name, found in answers.items()}, digest)
