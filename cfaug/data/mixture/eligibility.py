"""The rows that may be drawn: not excluded by a test set, and admitted by every setting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

import numpy as np

from cfaug.core.errors import UserError
from cfaug.data.mixture.hard_negatives import find_pairs, keep_whole_sets
from cfaug.data.mixture.leakage import Withheld, hold_out, join_groups, withhold
from cfaug.data.mixture.pool import Labels, find_edited_rows, first_members
from cfaug.data.mixture.records import COUNTERFACTUAL, REAL, Eligible, HeldOutTest, Join

if TYPE_CHECKING:
    from cfaug.data.index import Index
    from cfaug.data.mixture.settings import DataSettings


CONTROL = 2
"""The index of ``data.control_source`` after the two sources of a plan."""


@dataclass(frozen=True)
class Barred:
    """The exclusions of test sets from every source: their groups, and rows with their images.

    Attributes:
        groups: the groups of each source's rows, joined if they share an image; empty without a
            test set.
        kept_out: the test sets, in terms of these groups.
        held_out: the test set that ``data.holdout`` keeps out; ``None`` without one.
    """

    groups: Sequence[np.ndarray] = ()
    kept_out: Sequence[Withheld] = ()
    held_out: HeldOutTest | None = None

    def find_allowed(self, source: int) -> np.ndarray | None:
        """Return which rows of a source may be drawn, bool (rows,); ``None`` is all."""
        if not self.kept_out or not len(self.groups[source]):
            return None
        return np.logical_and.reduce(
            [withheld.find_allowed(self.groups[source]) for withheld in self.kept_out]
        )


def find_barred(
    settings: DataSettings,
    real: Index | None,
    counterfactual: Index | None,
    control: Index | None,
) -> Barred:
    """Choose the test sets, and find the rows that they exclude from every source."""
    sources = (real, counterfactual, control)
    chosen: dict[str, tuple[int, Withheld]] = {}
    of = COUNTERFACTUAL if real is None else REAL
    source = sources[of]
    if settings.holdout and source is not None:
        chosen["holdout"] = of, hold_out(source, settings.holdout)
    if settings.counterfactual_holdout and counterfactual is not None:
        rows = withhold(counterfactual, settings.counterfactual_holdout)
        chosen["withheld"] = COUNTERFACTUAL, rows
    if not chosen:
        return Barred()
    groups = join_groups(sources)
    kept_out = {
        name: replace(one, groups=np.unique(groups[at][one.rows]))
        for name, (at, one) in chosen.items()
    }
    held_out = None
    if "holdout" in chosen:
        assert source is not None
        (_, test), joined = chosen["holdout"], kept_out["holdout"]
        not_drawn, copies = [], 0
        for one, codes in zip(sources, groups, strict=True):
            barred = ~joined.find_allowed(codes)
            not_drawn.append(int(barred.sum()) - (len(test.rows) if one is source else 0))
            if one is not None:
                copies += int((barred & test.find_allowed(one.groups)).sum())
        images = len(np.unique(source.images[test.rows]))
        held_out = HeldOutTest(source, test.rows, images, tuple(not_drawn), copies)
    return Barred(groups, tuple(kept_out.values()), held_out)


def find_eligible(
    settings: DataSettings,
    real: Index | None,
    counterfactual: Index | None,
    labels: Labels | None,
    barred: Barred,
) -> tuple[Eligible, Join | None]:
    """Return which rows may be drawn."""
    masks: list[np.ndarray | None] = [None, None]

    def only(source: int, mask: np.ndarray) -> None:
        before = masks[source]
        masks[source] = mask if before is None else before & mask

    join = None
    if real is not None and counterfactual is not None and settings.real_captions == "edited":
        join = find_edited_rows(real, counterfactual)
        only(REAL, join.rows)
    for source in (REAL, COUNTERFACTUAL):
        if (allowed := barred.find_allowed(source)) is not None:
            only(source, allowed)
    if counterfactual is not None and labels is not None:
        only(COUNTERFACTUAL, labels.find_validated(counterfactual))
    if counterfactual is not None:
        if (unchanged := find_unchanged(counterfactual)) is not None:
            only(COUNTERFACTUAL, ~unchanged)
        if settings.counterfactual_members == "unedited":
            only(COUNTERFACTUAL, first_members(counterfactual))
        elif settings.counterfactual_members == "edited":
            only(COUNTERFACTUAL, find_edited(counterfactual))
        if settings.negatives is not None and settings.drawn[COUNTERFACTUAL]:
            only(COUNTERFACTUAL, find_pairs(counterfactual, settings.negatives))
            if not counterfactual.has_negatives:
                rows = cast("np.ndarray", masks[COUNTERFACTUAL])
                only(COUNTERFACTUAL, keep_whole_sets(counterfactual, rows))
    return (masks[REAL], masks[COUNTERFACTUAL]), join


EDIT_KIND = "edit_kind"
"""The column of the kind of a row's edit; null for an unedited row."""


def find_edited(index: Index) -> np.ndarray:
    """Return which rows are edits, bool (rows,)."""
    if EDIT_KIND not in index.extra_names:
        raise UserError(
            f"data.counterfactual_members=edited needs a source that says which members are edits, "
            f"and {index.source} has no column {EDIT_KIND!r}: shards of generate.py have it; or "
            "choose all or unedited"
        )
    return np.asarray(index.extra(EDIT_KIND).is_valid())


def find_unchanged(index: Index) -> np.ndarray | None:
    """Return which rows belong to sets of one image and several unedited captions.

    Returns:
        bool (rows,); ``None`` without such rows, as in a source without a column of edits.
    """
    if EDIT_KIND not in index.extra_names or not len(index.sets):
        return None
    sets, images = np.asarray(index.sets), np.asarray(index.images)
    starts = np.flatnonzero(np.r_[True, sets[1:] != sets[:-1]])
    sizes = np.diff(starts, append=len(sets))
    edited = np.logical_or.reduceat(find_edited(index), starts)
    one_image = np.minimum.reduceat(images, starts) == np.maximum.reduceat(images, starts)
    unchanged = (sizes > 1) & one_image & ~edited
    return np.repeat(unchanged, sizes) if unchanged.any() else None


def holds_counterfactuals(index: Index) -> bool:
    """Return whether a source has a set of several images, or an edited member."""
    if EDIT_KIND in index.extra_names and find_edited(index).any():
        return True
    sets, images = np.asarray(index.sets), np.asarray(index.images)
    return bool(((sets[1:] == sets[:-1]) & (images[1:] != images[:-1])).any())


def count_unchanged(index: Index) -> int:
    """Return the number of sets that ``find_unchanged`` finds."""
    rows = find_unchanged(index)
    return 0 if rows is None else len(np.unique(np.asarray(index.sets)[rows]))
