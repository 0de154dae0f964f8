"""Are answers to changed texts worse? Tests that are not in the paper, as parts of its tables."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from cfaug.report.document import Entry, Part
from cfaug.report.numbers import DASH, p_text
from cfaug.xmai.tables.answers import DIGITS, Checkpoints
from cfaug.xmai.text_pair_items import CHANGED, KEPT, TextPairItems
from cfaug.xmai.text_pair_tests import PairedTest, compare_changes, compare_methods

CHANGE_GROUPS = (("", 2), ("all texts", 5), ("right answer kept", 4))
CHANGE_COLUMNS = ("texts", "photos", "before", "after", "change", "p", "Holm", "share", "texts",
                  "change", "Holm")  # fmt: skip
METHOD_COLUMNS = ("texts of both", "first", "other", "difference", "p", "Holm")
SEED_COLUMNS = ("over seeds", "p")

CHANGES_NOTE = (
    "Each text is compared with itself before the change. Interval: 95 %, bootstrap over photos. "
    "p: a permutation that flips whole photos (two-sided), Holm over methods. Share: texts that "
    "kept their right answer, of those that an oracle or people judged. The change on these texts "
    "excludes texts that became false; a text that says less may fit other photos as well."
)
METHODS_NOTE = (
    "On the texts to which both methods were applied. Interval, p and Holm as above. Below 0, the "
    "first method lowers the value further."
)


def change_part(
    title: str, checkpoints: Checkpoints, methods: Mapping[str, str], columns: tuple[str, str]
) -> Part:
    """Return the tests of each method's texts against the originals.

    Args:
        title: the title of the part.
        checkpoints: the answers of one model's checkpoints.
        methods: {printed name: method}.
        columns: the items' columns with the values of the original and of the changed text.
    """
    every = _by_method(compare_changes(checkpoints, *columns, [*methods.values()]))
    is_judged = any("label_kept" in one.items.columns for one in checkpoints)
    kept = (
        _by_method(compare_changes(checkpoints, *columns, [*methods.values()], kept_only=True))
        if is_judged
        else {}
    )
    several = len(checkpoints) > 1
    rows = [
        ((printed,), _change_cells(every[name], kept.get(name), checkpoints[0], several))
        for printed, name in methods.items()
        if name in every
    ]
    return Part(
        title, ("Method",), (*CHANGE_GROUPS, *((("", 2),) if several else ())),
        (*CHANGE_COLUMNS, *(SEED_COLUMNS if several else ())), tuple(rows), notes=(CHANGES_NOTE,),
    )  # fmt: skip


def methods_part(
    title: str,
    checkpoints: Checkpoints,
    methods: Mapping[str, str],
    column: str,
    first: str,
) -> Part | None:
    """Return the tests of one method against each other; ``None`` if there is no other.

    Args:
        title: the title of the part.
        checkpoints: the answers of one model's checkpoints.
        methods: {printed name: method}.
        column: the items' column with the value of the changed text.
        first: the printed name of the method to compare with the others.
    """
    if first not in methods or len(methods) < 2:
        return None
    others = {printed: name for printed, name in methods.items() if printed != first}
    found = {
        one.other: one
        for one in compare_methods(checkpoints, column, methods[first], [*others.values()])
    }
    several = len(checkpoints) > 1
    rows = [
        ((f"{first} against {printed}",), _method_cells(found[name], several))
        for printed, name in others.items()
        if name in found
    ]
    columns = (*METHOD_COLUMNS, *(SEED_COLUMNS if several else ()))
    return Part(title, ("Methods",), (), columns, tuple(rows), notes=(METHODS_NOTE,))


def _by_method(found: Sequence[PairedTest]) -> dict[str, PairedTest]:
    return {one.method: one for one in found}


def _change_cells(
    every: PairedTest, kept: PairedTest | None, first: TextPairItems, several: bool
) -> tuple[Entry, ...]:
    return (
        Entry(f"{every.keys:,}"),
        Entry(f"{every.test.mean.clusters:,}"),
        value_entry(every.test.before),
        value_entry(every.test.after),
        change_entry(every, -1),
        Entry(p_text(every.p)),
        holm_entry(every),
        _share_kept(every.method, first),
        *(
            (Entry(DASH),) * 3
            if kept is None
            else (Entry(f"{kept.keys:,}"), change_entry(kept, -1), holm_entry(kept))
        ),
        *_over_seeds(every, several, -1),
    )


def _method_cells(one: PairedTest, several: bool) -> tuple[Entry, ...]:
    left_out = f"{one.left_out:,} of one only" if one.left_out else ""
    return (
        Entry(f"{one.keys:,}", small=left_out),
        value_entry(one.test.before),
        value_entry(one.test.after),
        change_entry(one, 1),
        Entry(p_text(one.p)),
        holm_entry(one),
        *_over_seeds(one, several, 1),
    )


def value_entry(value: float) -> Entry:
    """Return a value as printed."""
    return Entry(f"{value:.{DIGITS}f}", numbers={"value": value})


def change_entry(one: PairedTest, sign: int) -> Entry:
    """Return the mean difference with its interval.

    Args:
        one: the test.
        sign: the sign of the difference: 1 for the first value minus the second, or -1.
    """
    mean = one.test.mean
    low, high = sorted((sign * mean.low, sign * mean.high))
    small = "" if math.isnan(low) else f"[{signed(low)}, {signed(high)}]"
    return Entry(
        signed(sign * mean.mean),
        small=small,
        numbers={"value": sign * mean.mean, "n": float(one.keys)},
    )


def signed(value: float) -> str:
    """Return a difference as printed.

    >>> signed(0.0961), signed(-0.0001)
    ('+0.096', '+0.000')
    """
    return f"{round(value, DIGITS) + 0.0:+.{DIGITS}f}"


def holm_entry(one: PairedTest) -> Entry:
    """Return the corrected p, bold if the difference is significant."""
    return Entry(p_text(one.p_holm), bold=one.is_significant)


def _over_seeds(one: PairedTest, several: bool, sign: int) -> tuple[Entry, ...]:
    if not several:
        return ()
    if one.over_seeds is None:
        return (Entry(DASH), Entry(DASH))
    found = one.over_seeds
    return (
        Entry(signed(sign * found.mean), f"{found.sd:.{DIGITS}f}", numbers={"n": float(found.n)}),
        Entry(p_text(one.p_seeds)),
    )


def _share_kept(method: str, one: TextPairItems) -> Entry:
    """Return the share of the judged texts whose right answer was kept."""
    if "label_kept" not in one.items.columns:
        return Entry(DASH)
    found = [one.label_kept[row] for row in one.rows(method).tolist()]
    judged = found.count(KEPT) + found.count(CHANGED)
    if not judged:
        return Entry(DASH)
    share = found.count(KEPT) / judged
    return Entry(f"{share:.{DIGITS}f}", numbers={"value": share, "n": float(judged)})
