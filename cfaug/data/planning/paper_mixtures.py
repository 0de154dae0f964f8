"""The named data sets of the COCO-Counterfactuals paper (section B.3.1), and their controls.

Sizes follow by formula from those of the sources. With the paper's, 17,410 real examples, 34,820
counterfactual ones in pairs, 25,482 of them validated by people:

    real             all real                                  17,410   13,928 of them train
    base             1/2 of the real, 1/4 of the pairs         17,411   13,928
    medium           all real, 3/4 of the counterfactual rows  43,525   34,820
    all              everything                                52,230   41,784
    human_validated  all real, all validated rows (A.4)        42,892   34,313

``data.split=random`` splits as the paper did: single rows of the whole, 80 % to train. A caption's
counterfactual partner may then be validated on, and the counterfactual share of train is random
(the paper's 6,939, 20,894 and 27,853 are not 0.8 times the whole's). ``data.split=group``, the
default, gives train exactly as many rows, of either source their exact share, and keeps groups
whole: rows are drawn group by group, only the last group is cut, and what is left of it is neither
trained nor validated on. So train is exact, and validation may be a few rows short.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from cfaug.data.planning.caption_matching import Captioned, Join, find_edited_rows
from cfaug.data.planning.duplicates import join_groups
from cfaug.data.planning.holdout import HeldOut, Withheld, hold_out, withhold
from cfaug.data.planning.human_labels import Labels
from cfaug.data.planning.keys import random_keys, sort_rows
from cfaug.data.planning.mixture import (
    COUNTERFACTUAL,
    REAL,
    Eligible,
    Mixture,
    Pool,
    Rows,
    Wanted,
    assemble,
    divide,
    make_pool,
    pair_rows,
    plan_mixture,
    share_out,
)
from cfaug.data.planning.rational import half_up
from cfaug.errors import UserError

if TYPE_CHECKING:
    from cfaug.data.index import Index
    from cfaug.data.planning.settings import DataSettings, Plan


@dataclass(frozen=True)
class Size:
    """How much of either source a plan takes, before the split."""

    real: int
    counterfactual: int

    @property
    def total(self) -> int:
        """Both together."""
        return self.real + self.counterfactual

    def wanted(self, validation: float) -> Wanted:
        """Divide it between train and validation, either source at its share."""
        ratio = Fraction(self.counterfactual, self.total)
        return share_out(self.total, self.counterfactual, ratio, validation)


def plan_size(plan: Plan, pool: Pool) -> Size:
    """Return how many rows a plan takes of what may be drawn; halves are rounded up."""
    real, counterfactual = pool.available
    if plan == "real":
        return Size(real, 0)
    if plan == "base":
        return Size(half_up(Fraction(real, 2)), len(_quarter_of_sets(pool)))
    if plan == "medium":
        return Size(real, half_up(Fraction(3 * counterfactual, 4)))
    return Size(real, counterfactual)


def _quarter_of_sets(pool: Pool) -> np.ndarray:
    """Return the rows of the first quarter of the counterfactual sets, in the pool's order."""
    source, rows = pool.sources[COUNTERFACTUAL], pool.rows[COUNTERFACTUAL]
    if source is None:
        return rows
    sets = np.asarray(source.sets)[rows]
    _, first, set_of_row = np.unique(sets, return_index=True, return_inverse=True)
    place_of_set = np.argsort(np.argsort(first))
    return rows[place_of_set[set_of_row] < half_up(Fraction(len(first), 4))]


def plan_named(pool: Pool, plan: Plan, *, validation: float) -> Mixture:
    """Draw a named plan, groups kept whole.

    Raises:
        UserError: if there is nothing to train on, or no group is left to validate on.
    """
    return divide(pool, _checked(plan, plan_size(plan, pool)).wanted(validation))


def plan_random(pool: Pool, plan: Plan, *, seed: int, validation: float) -> Mixture:
    """Draw a named plan and split its rows at random, as the paper did.

    Args:
        pool: of single rows (``split="random"``).
        plan: which.
        seed: ``data.seed``.
        validation: share held out, in [0, 1).

    Raises:
        UserError: if there is nothing to train on.
    """
    if plan == "base":
        pool = _sets_kept(pool, seed)
    size = _checked(plan, plan_size(plan, pool))
    chosen = [pool.rows[REAL][: size.real], pool.rows[COUNTERFACTUAL][: size.counterfactual]]
    rows = np.concatenate([pair_rows(source, chosen[source]) for source in (REAL, COUNTERFACTUAL)])
    # Keys of the split are not those of the draw: else whoever is drawn first would always train.
    keys = [
        random_keys(chosen[source].astype(np.uint64), seed, "mixture", "split", source)
        for source in (REAL, COUNTERFACTUAL)
    ]
    order = np.argsort(np.concatenate(keys), kind="stable")
    train, held = np.split(rows[order], [sum(size.wanted(validation).train)])
    return assemble(pool, _by_source(train), _by_source(held), dropped=0)


def _by_source(rows: np.ndarray) -> list[np.ndarray]:
    return [rows[rows[:, 0] == source] for source in (REAL, COUNTERFACTUAL)]


def _sets_kept(pool: Pool, seed: int) -> Pool:
    """Put counterfactual rows in a random order that keeps their sets whole."""
    source, rows = pool.sources[COUNTERFACTUAL], np.sort(pool.rows[COUNTERFACTUAL])
    if source is None:
        return pool
    keys = random_keys(np.asarray(source.sets)[rows].astype(np.uint64), seed, "mixture", "sets")
    return replace(pool, rows=(pool.rows[REAL], rows[sort_rows(keys)]))


def _checked(plan: Plan, size: Size) -> Size:
    if not size.total:
        raise UserError(f"data.plan={plan}: the sources hold nothing that it could draw")
    return size


def mix(
    settings: DataSettings,
    real: Index | None,
    counterfactual: Index | None,
    *,
    labels: Labels | None = None,
    control: Index | None = None,
) -> Mixture:
    """Draw the rows that data settings ask for.

    Args:
        settings: with a seed.
        real: index of ``data.real``, where ``settings.needs`` it.
        counterfactual: index of ``data.counterfactual``, the same.
        labels: what ``data.human_labels`` names.
        control: index of ``data.control_source``.

    Raises:
        UserError: if there are not enough examples.
    """
    assert settings.seed is not None
    barred = _barred(settings, real, counterfactual, control)
    eligible, join = _eligible(settings, real, counterfactual, labels, barred)
    if settings.plan == "real" or settings.cf_ratio == 0:
        counterfactual = None  # it only said which real rows are eligible
    if settings.plan is None and settings.cf_ratio == 1:
        real = None  # it only said what is held out
    if settings.plan is None:
        mixture = plan_mixture(
            real, counterfactual, cf_ratio=settings.ratio, size=settings.size, seed=settings.seed,
            validation=settings.validation, split=settings.split, eligible=eligible,
            unedited_only=settings.counterfactual_members == "unedited",
        )  # fmt: skip
        return _with_test_set(replace(mixture, join=join), barred)
    pool = make_pool(
        real, counterfactual, seed=settings.seed, split=settings.split, eligible=eligible
    )
    if settings.control is not None:
        mixture = _control(settings, pool, control, barred)
    elif settings.split == "random":
        mixture = plan_random(
            pool, settings.plan, seed=settings.seed, validation=settings.validation
        )
    else:
        mixture = plan_named(pool, settings.plan, validation=settings.validation)
    return _with_test_set(replace(mixture, join=join), barred)


def _with_test_set(mixture: Mixture, barred: Barred) -> Mixture:
    held = barred.held_out
    if held is None:
        return mixture
    counts = {"held_out": len(held.rows), "held_out_images": held.images}
    return replace(mixture, held_out=held, counts={**mixture.counts, **counts})


CONTROL = 2
"""The place of ``data.control_source`` behind the two sources of a plan."""


@dataclass(frozen=True)
class Barred:
    """What test sets keep out of every source: their groups, and what shows one of their images.

    Attributes:
        groups: of each source's rows, those that share an image joined; empty if nothing is barred.
        kept_out: the test sets, in terms of these groups.
        held_out: what ``data.holdout`` keeps out.
    """

    groups: Sequence[np.ndarray] = ()
    kept_out: Sequence[Withheld] = ()
    held_out: HeldOut | None = None

    def allowed(self, source: int) -> np.ndarray | None:
        """Say which rows of a source may be drawn, bool (rows,); ``None`` is all."""
        if not self.kept_out or not len(self.groups[source]):
            return None
        return np.logical_and.reduce([one.allowed(self.groups[source]) for one in self.kept_out])


def _barred(
    settings: DataSettings,
    real: Index | None,
    counterfactual: Index | None,
    control: Index | None,
) -> Barred:
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
    found = None
    if "holdout" in chosen:
        assert source is not None
        found = _held_out(source, chosen["holdout"][1], kept_out["holdout"], sources, groups)
    return Barred(groups, tuple(kept_out.values()), found)


def _held_out(
    source: Index,
    chosen: Withheld,
    joined: Withheld,
    sources: Sequence[Index | None],
    groups: Sequence[np.ndarray],
) -> HeldOut:
    """Count what is held out, and what may not be drawn because of it."""
    not_drawn, copies = [], 0
    for one, codes in zip(sources, groups, strict=True):
        barred = ~joined.allowed(codes)
        not_drawn.append(int(barred.sum()) - (len(chosen.rows) if one is source else 0))
        if one is not None:
            copies += int((barred & chosen.allowed(one.groups)).sum())
    images = len(np.unique(source.images[chosen.rows]))
    return HeldOut(source, chosen.rows, images, tuple(not_drawn), copies)


def _eligible(
    settings: DataSettings,
    real: Captioned | None,
    counterfactual: Index | None,
    labels: Labels | None,
    barred: Barred,
) -> tuple[Eligible, Join | None]:
    """Say which rows may be drawn at all."""
    masks: list[np.ndarray | None] = [None, None]

    def only(source: int, mask: np.ndarray) -> None:
        before = masks[source]
        masks[source] = mask if before is None else before & mask

    join = None
    if real is not None and counterfactual is not None and settings.real_captions == "edited":
        join = find_edited_rows(real, counterfactual)
        only(REAL, join.rows)
    for source in (REAL, COUNTERFACTUAL):
        if (allowed := barred.allowed(source)) is not None:
            only(source, allowed)
    if counterfactual is not None and labels is not None:
        only(COUNTERFACTUAL, labels.validated(counterfactual))
    return (masks[REAL], masks[COUNTERFACTUAL]), join


def _control(settings: DataSettings, pool: Pool, control: Rows | None, barred: Barred) -> Mixture:
    """Draw as many training rows as the plan has, all of one source."""
    assert settings.plan is not None
    assert settings.seed is not None
    planned = _sets_kept(pool, settings.seed) if settings.split == "random" else pool
    wanted = _checked(settings.plan, plan_size(settings.plan, planned)).wanted(settings.validation)
    only = REAL if settings.control == "real" else COUNTERFACTUAL
    if control is not None:
        allowed = barred.allowed(CONTROL)
        pool = make_pool(
            control if only == REAL else None, control if only == COUNTERFACTUAL else None,
            seed=settings.seed, split=settings.split, eligible=(allowed, allowed),
        )  # fmt: skip
    train, held = [0, 0], [0, 0]
    train[only], held[only] = sum(wanted.train), sum(wanted.validation)
    if train[only] + bool(held[only]) > pool.available[only]:
        raise UserError(
            f"data.control={settings.control} needs {train[only]} training examples, as many as "
            f"data.plan={settings.plan}, and others to validate on; there are "
            f"{pool.available[only]}: name a larger source with data.control_source=FOLDER"
        )
    mixture = divide(pool, Wanted((train[0], train[1]), (held[0], held[1])))
    alone = (pool.sources[REAL], None) if only == REAL else (None, pool.sources[COUNTERFACTUAL])
    return replace(mixture, sources=alone)
