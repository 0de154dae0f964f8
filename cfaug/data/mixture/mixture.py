"""The exact mixture: the rows of each source for training, and those for validation.

The unit is an image-text pair. A plan is a pure function of two indexes, a ratio, a size and a
seed; it uses only integer arrays, so that ten million rows are planned in seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

import numpy as np

from cfaug.core.errors import UserError
from cfaug.core.validation import Share, check
from cfaug.data.mixture.hard_negatives import find_pairs, keep_whole_sets, show_originals
from cfaug.data.mixture.leakage import Withheld, hold_out, join_groups, withhold
from cfaug.data.mixture.pool import (
    Labels,
    Wanted,
    choose_one_of_each,
    divide,
    first_members,
    make_pool,
    match_edited_rows,
    share_out,
)
from cfaug.data.mixture.records import (
    COUNTERFACTUAL,
    REAL,
    Eligible,
    HeldOutTest,
    Join,
    Mixture,
    PhotoCaptions,
    Split,
    decimal,
    half_up,
    is_among,
)
from cfaug.data.mixture.settings import Sources

if TYPE_CHECKING:
    from cfaug.data.index import Index
    from cfaug.data.mixture.near_duplicates import NearDuplicates
    from cfaug.data.mixture.settings import DataSettings


CONTROL = 2
"""The index of ``data.control_source`` after the two sources of a plan."""


@dataclass(frozen=True)
class Barred:
    """The exclusions of test sets from every source: their groups, and rows with their images.

    Attributes:
        allowed: masks of the rows of each source that may be drawn, bool (rows,); empty without a
            test set.
        held_out: the test set that ``data.holdout`` keeps out; ``None`` without one.
        near: the images that might be drawn and nearly equal an image of a test set; ``None`` if
            they were not looked for.
    """

    allowed: Sequence[np.ndarray] = ()
    held_out: HeldOutTest | None = None
    near: NearDuplicates | None = None

    def find_allowed(self, source: int) -> np.ndarray | None:
        """Return which rows of a source may be drawn, bool (rows,); ``None`` is all."""
        return self.allowed[source] if self.allowed and len(self.allowed[source]) else None


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
    groups = join_groups(sources, again=True)
    kept_out = {
        name: replace(withheld, groups=np.unique(groups[at][withheld.rows]))
        for name, (at, withheld) in chosen.items()
    }
    masks = {
        name: [test.find_allowed(codes) for codes in groups] for name, test in kept_out.items()
    }
    held_out = None
    if "holdout" in chosen:
        assert source is not None
        _, test = chosen["holdout"]
        not_drawn, copies = [], 0
        for index, allowed in zip(sources, masks["holdout"], strict=True):
            barred = np.flatnonzero(~allowed)
            not_drawn.append(len(barred) - (len(test.rows) if index is source else 0))
            if index is not None:
                copies += int(test.find_allowed(index.groups[barred]).sum())
        images = len(np.unique(source.images[test.rows]))
        held_out = HeldOutTest(source, test.rows, images, tuple(not_drawn), copies)
    every = zip(*masks.values(), strict=True)
    drawable = [np.logical_and.reduce(some) for some in every]
    if settings.near_rule is None:
        return Barred(drawable, held_out)
    from cfaug.data.mixture.near_duplicates import find_near_duplicates

    searched = [
        (index, np.flatnonzero(mask), codes)
        for index, mask, codes in zip(sources, drawable, groups, strict=True)
        if index is not None
    ]
    tests = [(cast("Index", sources[at]), test.rows) for at, test in chosen.values()]
    near = find_near_duplicates(
        [(index, rows) for index, rows, _ in searched], tests, settings.near_rule, "training"
    )
    if near.left_out:  # with their whole groups, as what was made of a photo resembles it
        near_groups = np.unique(
            np.concatenate([codes[near.rows(index)] for index, _, codes in searched])
        )
        drawable = [
            mask & ~is_among(codes, near_groups)
            for mask, codes in zip(drawable, groups, strict=True)
        ]
    return Barred(drawable, held_out, near)


def find_eligible(
    settings: DataSettings,
    real: Index | None,
    counterfactual: Index | None,
    labels: Labels | None,
    barred: Barred,
    captions: PhotoCaptions | None = None,
    unchanged: np.ndarray | None = None,
) -> tuple[Eligible, Join | None]:
    """Return which rows may be drawn; of photos of whose ``captions`` one is drawn, the first.

    Args:
        unchanged: the rows that ``find_unchanged`` finds in the counterfactual source.
    """
    masks: list[np.ndarray | None] = [None, None]

    def only(source: int, mask: np.ndarray) -> None:
        before = masks[source]
        masks[source] = mask if before is None else before & mask

    join = None
    if real is not None and counterfactual is not None and settings.real_captions == "edited":
        join = match_edited_rows(real, counterfactual)
        only(REAL, join.rows)
    if captions is not None:
        only(REAL, captions.first)
    for source in (REAL, COUNTERFACTUAL):
        if (allowed := barred.find_allowed(source)) is not None:
            only(source, allowed)
    if counterfactual is not None and labels is not None:
        only(COUNTERFACTUAL, labels.find_validated(counterfactual))
    if counterfactual is not None:
        if unchanged is not None:
            only(COUNTERFACTUAL, ~unchanged)
        if settings.counterfactual_members == "unedited":
            only(COUNTERFACTUAL, first_members(counterfactual))
        elif settings.counterfactual_members == "edited":
            only(COUNTERFACTUAL, find_edited(counterfactual))
        elif settings.counterfactual_members == "one":
            assert settings.seed is not None
            chosen = choose_one_of_each(counterfactual, settings.seed, masks[COUNTERFACTUAL])
            only(COUNTERFACTUAL, chosen)
        if settings.negatives is not None and settings.drawn[COUNTERFACTUAL]:
            only(COUNTERFACTUAL, find_pairs(counterfactual, settings.negatives))
            if not counterfactual.has_negatives:
                rows = cast("np.ndarray", masks[COUNTERFACTUAL])
                only(COUNTERFACTUAL, keep_whole_sets(counterfactual, rows))
    return (masks[REAL], masks[COUNTERFACTUAL]), join


def draw_captions(real: Index, barred: Barred) -> PhotoCaptions:
    """Return the captions of which every epoch draws one for each photo of the real source."""
    if real.has_negatives:
        raise UserError(
            f"data.real_captions=one draws a caption anew for each epoch, and {real.source} has "
            "wrong captions beside each, whose number would change with it: choose "
            "data.real_captions=all"
        )
    captions = PhotoCaptions.of(real, barred.find_allowed(REAL))
    if not (captions.sizes > 1).any():
        raise UserError(
            f"data.real_captions=one draws one of a photo's captions for each epoch, and no photo "
            f"of {real.source} has two: choose data.real_captions=all"
        )
    return captions


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
    import pyarrow as pa

    bits = index.extra(EDIT_KIND).is_valid().cast(pa.uint8())  # numpy's own view imports pandas
    return np.concatenate([np.empty(0, bool), *map(np.from_dlpack, bits.chunks)]).astype(bool)


def find_unchanged(index: Index) -> np.ndarray | None:
    """Return which rows belong to sets of one image and several unedited captions.

    Returns:
        bool (rows,); ``None`` without such rows, as in a source without a column of edits.
    """
    if EDIT_KIND not in index.extra_names or not len(index.sets):
        return None
    sets, images = np.asarray(index.sets), np.asarray(index.images)
    starts = np.flatnonzero(first_members(index))
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


def count_unchanged(index: Index, unchanged: np.ndarray | None) -> int:
    """Return the number of sets of the rows that ``find_unchanged`` finds."""
    return 0 if unchanged is None else len(np.unique(np.asarray(index.sets)[unchanged]))


# The mixture of the rows that may be drawn.


def largest_size(real: int, counterfactual: int, cf_ratio: float) -> int:
    """Return the largest total at a ratio without repeating examples.

    >>> largest_size(17410, 34820, 0.6)  # the paper's medium (COCO-CFs, section B.3.1)
    43525
    """
    ratio = decimal(cf_ratio)
    limits = []
    if ratio < 1:
        limits.append(real / (1 - ratio))
    if ratio > 0:
        limits.append(counterfactual / ratio)
    return int(min(limits))


def choose_total(available: tuple[int, int], cf_ratio: float, size: int | None) -> int:
    """Return the total of a mixture by ratio, before the split."""
    largest = largest_size(*available, cf_ratio)
    total = largest if size is None else size
    there = f"{available[REAL]} real and {available[COUNTERFACTUAL]} counterfactual examples"
    if size is None and total == 0:
        raise UserError(f"data.cf_ratio={cf_ratio} cannot be drawn: there are {there}")
    if total > largest or total == 0:
        raise UserError(
            f"data.size={size} at data.cf_ratio={cf_ratio} asks for more than there is: "
            f"{there} make at most data.size={largest}"
        )
    return total


def plan_mixture(
    real: Index | None,
    counterfactual: Index | None,
    *,
    cf_ratio: float,
    size: int | None,
    seed: int,
    validation: float = 0.2,
    split: Split = "group",
    eligible: Eligible = (None, None),
) -> Mixture:
    """Draw the training and validation rows of a mixture by ratio.

    Groups, which both sources may share, are in a random order that depends only on the seed. Each
    source's rows are taken in that order, so that whole groups are drawn and only the last one is
    cut; a group with a row in train has none in validation. Train counts are exact; validation
    takes rows of the other groups, up to its share.

    Args:
        real: the index of the real source; not needed at ratio 1.
        counterfactual: the index of the counterfactual source; not needed at ratio 0.
        cf_ratio: the share of train from ``counterfactual``, in [0, 1].
        size: the total before the split; ``None`` is the largest without repeating examples.
        validation: the share held out for validation, in [0, 1).
        split: the unit of the split: ``group``, or ``random`` for single rows.
        eligible: the rows of each source that may be drawn, see ``make_pool``.
    """
    check(cf_ratio, Share, "data.cf_ratio")
    pool = make_pool(real, counterfactual, seed=seed, split=split, eligible=eligible)
    total, ratio = choose_total(pool.available, cf_ratio, size), decimal(cf_ratio)
    wanted = share_out(total, half_up(ratio * total), ratio, validation)
    return replace(divide(pool, wanted), size=total)


def mix(settings: DataSettings, sources: Sources) -> Mixture:
    """Draw the rows that the data settings request.

    Args:
        sources: the opened sources: those in ``settings.needed``, and the control's.
    """
    assert settings.seed is not None
    barred = find_barred(settings, sources.real, sources.counterfactual, sources.control)
    captions = None
    if sources.real is not None and settings.drawn[REAL] and settings.real_captions == "one":
        captions = draw_captions(sources.real, barred)
    unchanged = None if sources.counterfactual is None else find_unchanged(sources.counterfactual)
    eligible, join = find_eligible(
        settings, sources.real, sources.counterfactual, sources.labels, barred, captions, unchanged
    )
    # A source from which nothing is drawn only decided which rows of the other are eligible.
    real = sources.real if settings.drawn[REAL] else None
    counterfactual = sources.counterfactual if settings.drawn[COUNTERFACTUAL] else None
    try:
        mixture = _draw(settings, sources, (real, counterfactual), eligible, barred)
    except UserError as error:
        held = barred.held_out
        if held is None or not any(held.not_drawn):
            raise
        roles = zip(("real", "counterfactual", "control"), held.not_drawn, strict=True)
        lost = " and ".join(f"{count:,} {role}" for role, count in roles if count)
        raise UserError(
            f"{error}. data.holdout={settings.holdout} holds out {held.images:,} images as a test, "
            f"and {lost} examples are linked with them, from set to set, by common groups or equal "
            "images: they are not trained on either. data.holdout=0 holds out nothing; then name a "
            "test, benchmark=retrieval benchmark.data=FOLDER"
        ) from error
    counts = dict(mixture.counts)
    if (held := barred.held_out) is not None:
        counts |= {"held_out": len(held.rows), "held_out_images": held.images}
    mixture = replace(
        mixture, join=join, held_out=held, counts=counts, near=barred.near, captions=captions
    )
    if settings.negatives is not None and counterfactual is not None:
        mixture = show_originals(mixture, counterfactual, settings.negatives)
    left_out = 0 if counterfactual is None else count_unchanged(counterfactual, unchanged)
    counts = {"unchanged": left_out} if left_out else {}
    return replace(mixture, counts={**mixture.counts, **counts})


def _draw(
    settings: DataSettings,
    sources: Sources,
    drawn: tuple[Index | None, Index | None],
    eligible: Eligible,
    barred: Barred,
) -> Mixture:
    real, counterfactual = drawn
    assert settings.seed is not None
    if settings.plan is None:
        return plan_mixture(
            real, counterfactual, cf_ratio=settings.ratio, size=settings.size, seed=settings.seed,
            validation=settings.validation, split=settings.split, eligible=eligible,
        )  # fmt: skip
    pool = make_pool(
        real, counterfactual, seed=settings.seed, split=settings.split, eligible=eligible
    )
    if settings.control is None:
        return settings.plan.draw(pool, settings.validation)
    # As many training rows as the plan needs, all from one source.
    wanted = settings.plan.wanted(pool, settings.validation)
    only = REAL if settings.control == "real" else COUNTERFACTUAL
    if (control := sources.control) is not None:
        allowed = barred.find_allowed(CONTROL)
        pool = make_pool(
            control if only == REAL else None, control if only == COUNTERFACTUAL else None,
            seed=pool.seed, split=pool.split, eligible=(allowed, allowed),
        )  # fmt: skip
    train, held = [0, 0], [0, 0]
    train[only], held[only] = sum(wanted.train), sum(wanted.validation)
    if train[only] + bool(held[only]) > pool.available[only]:
        raise UserError(
            f"data.control={settings.control} needs {train[only]} training examples, as many as "
            f"data.plan={settings.plan.name}, and others to validate on; there are "
            f"{pool.available[only]}: name a larger source with data.control_source=FOLDER"
        )
    mixture = divide(pool, Wanted((train[0], train[1]), (held[0], held[1])))
    alone = (pool.sources[REAL], None) if only == REAL else (None, pool.sources[COUNTERFACTUAL])
    return replace(mixture, sources=alone)
