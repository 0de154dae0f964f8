"""The oracle's judgements of changed texts, the shares that are true, as parts of tables."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from cfaug.core.rng import generator
from cfaug.data.shards.shards import read_scores
from cfaug.report.document import Entry, Part
from cfaug.report.numbers import DASH
from cfaug.stats.item_tests import MeanDifference, cluster_bootstrap
from cfaug.xmai.tables.answers import DIGITS
from cfaug.xmai.tables.drops import signed, value_entry
from cfaug.xmai.text_pair_items import CHANGED, KEPT, UNKNOWN, TextPairItems

INSERTED_TRUE = "inserted_true"
"""The score of a set that the oracle gives: see ``cfaug.shapescapes.truth.CaptionTruth``."""

CHECKS = (KEPT, CHANGED, UNKNOWN)

TEXTS_NOTE = (
    "Inserted words: words of the changed text that the original does not have, if they name "
    "something that the world knows; a mean over texts. Kept: the changed text is as true of its "
    "photo as the original. Changed: it no longer is. Unknown: nothing in it is false, but the "
    "world does not know some word. Brackets: 95 %, bootstrap over photos."
)


def texts_part(one: TextPairItems, methods: Mapping[str, str]) -> Part:
    """Return the oracle's judgements of each method's texts.

    Args:
        one: the items of one checkpoint about the texts.
        methods: {printed name: method}.
    """
    rows = []
    for printed, method in methods.items():
        chosen = one.rows(method).tolist()
        checks = [one.label_kept[row] for row in chosen]
        changed = float(one.items.metric("changed")[chosen].mean())
        cells = [
            Entry(f"{len(chosen):,}"),
            value_entry(changed),
            interval_entry(words_true(one, method)),
        ]
        cells.append(interval_entry(texts_kept(one, method)))
        shares = [checks.count(check) / len(checks) for check in CHECKS[1:]]
        rows.append(((printed,), (*cells, *map(value_entry, shares))))
    return Part(
        "The oracle's judgements of the texts", ("Method",),
        (("", 2), ("share that is true", 1), ("right answer", 3)),
        ("texts", "changed", "inserted words", *CHECKS), tuple(rows), notes=(TEXTS_NOTE,),
    )  # fmt: skip


def words_true(one: TextPairItems, method: str) -> MeanDifference | None:
    """Return the share of a method's inserted words that are true; ``None`` if none is known."""
    scores = _scores(one, method)
    known = {key: own[INSERTED_TRUE] for key, own in scores.items() if INSERTED_TRUE in own}
    return bootstrap_photos(list(known.values()), [one.clusters[key] for key in known], method)


def texts_kept(one: TextPairItems, method: str) -> MeanDifference | None:
    """Return the share of a method's texts whose right answer is known to be kept."""
    rows, keys = one.rows(method).tolist(), one.texts("key")
    kept = [float(one.label_kept[row] == KEPT) for row in rows]
    return bootstrap_photos(kept, [one.clusters[keys[row]] for row in rows], method)


def bootstrap_photos(
    values: Sequence[float], clusters: Sequence[str], name: str
) -> MeanDifference | None:
    """Return the mean of values of texts with an interval over photos; ``None`` without texts.

    Args:
        values: a value per text.
        clusters: the photo of each text.
        name: the name of the random stream.
    """
    if not values:
        return None
    return cluster_bootstrap(values, clusters, generator(0, "xmai-oracle", name))


def _scores(one: TextPairItems, method: str) -> dict[str, Mapping[str, float]]:
    """Return the oracle's scores of a model's sets."""
    every: dict[str, Mapping[str, float]] = {}
    for source in one.sources(method):
        every |= read_scores(Path(source))
    keys = one.texts("key")
    asked = [keys[row] for row in one.rows(method).tolist()]
    return {key: every[key] for key in asked if key in every}


def interval_entry(found: MeanDifference | None, *, sign: bool = False) -> Entry:
    """Return a mean with its interval; a dash without a mean.

    Args:
        found: the mean; ``None`` for a dash.
        sign: whether the mean is a difference, printed with its sign.
    """
    if found is None:
        return Entry(DASH)
    text = signed if sign else (lambda value: f"{value:.{DIGITS}f}")
    small = "" if math.isnan(found.low) else f"[{text(found.low)}, {text(found.high)}]"
    numbers = {"value": found.mean, "n": float(found.items)}
    return Entry(text(found.mean), small=small, numbers=numbers)
