"""The real captions that a counterfactual source edited: MS-COCO-17,410 out of MS-COCO.

COCO-Counterfactuals has 17,410 of the 25,014 captions of val2017, and the paper's real data are
these captions with their photos (COCO-CFs, footnote 11 and section B.3.1 a). The release does not
list them; they are found by the photo's id and the words of the caption.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from typing import Protocol

import numpy as np

from cfaug.core.errors import UserError
from cfaug.data.mixture.pool import first_members
from cfaug.data.mixture.records import Join, PlanRows


class Captioned(PlanRows, Protocol):
    """The parts of an index that are needed here."""

    def text(self, row: int) -> str:
        """Return a row's caption."""
        ...

    def key(self, row: int) -> str:
        """Return ``<set>_<member>``."""
        ...


def normalise(text: str) -> str:
    """Return the words of a caption, without case, punctuation, spaces and encoding of accents.

    >>> normalise(" A cat, on the mat . ") == normalise("a cat on the mat")
    True
    """
    folded = unicodedata.normalize("NFKC", text).casefold()
    return " ".join("".join(c if c.isalnum() else " " for c in folded).split())


def find_edited_rows(real: Captioned, counterfactual: Captioned) -> Join:
    """Find the real row of every counterfactual set: same group, same words as the first member.

    If several real rows match, one is taken per set, in file order; several sets made from one real
    row all find that row.

    Raises:
        UserError: if no real row is found.
    """
    wanted = Counter[tuple[int, str]]()
    originals = []
    for row in np.flatnonzero(first_members(counterfactual)).tolist():
        name = (int(counterfactual.groups[row]), normalise(counterfactual.text(row)))
        wanted[name] += 1
        originals.append((row, name))
    found = np.zeros(len(real.groups), bool)
    seen = set()
    # In a large source, only captions of edited photos are compared.
    groups = np.fromiter({group for group, _ in wanted}, np.uint64)
    for row in np.flatnonzero(np.isin(real.groups, groups)).tolist():
        name = (int(real.groups[row]), normalise(real.text(row)))
        if wanted[name] > 0:
            wanted[name] -= 1
            found[row] = True
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
    return Join(found, tuple(missed))
