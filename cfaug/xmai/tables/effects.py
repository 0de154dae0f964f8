"""Truth of insertions and their effect on retrieval, setting by setting."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import fsum
from pathlib import Path

from cfaug.core.rng import generator
from cfaug.data.shards.shards import read_scores
from cfaug.report.document import Column, Curve, Entry, Part, make_part, text_column
from cfaug.report.page import DASH
from cfaug.stats.item_tests import MeanDifference, cluster_bootstrap
from cfaug.xmai.tables.answers import DIGITS, Checkpoints, read_settings
from cfaug.xmai.tables.entailment import (
    change_entry,
    holm_entry,
    keys_entry,
    signed,
    value_entry,
)
from cfaug.xmai.text_pair_items import (
    CHANGED,
    KEPT,
    UNKNOWN,
    PairedTest,
    TextPairItems,
    compare_changes,
)

ALL_TEXTS, TRUE_TEXTS = "all texts", "texts kept true"
"""Lines of the figures."""


@dataclass(frozen=True)
class Effect:
    """The effect of one setting.

    Attributes:
        settings: the values of the settings, in order.
        words: share of inserted words that are true; ``None`` if unknown.
        kept: share of texts whose right answer is kept; ``None`` if unknown.
        all_texts: the test of the change of MRR, over all texts.
        kept_texts: the same test over texts whose right answer is kept; ``None`` without such
            texts.
        by_seed: {line of the figure: {checkpoint: change of MRR}}.
    """

    settings: tuple[float, ...]
    words: MeanDifference | None
    kept: MeanDifference | None
    all_texts: PairedTest
    kept_texts: PairedTest | None
    by_seed: Mapping[str, Mapping[int, float]]


def measure_effects(checkpoints: Checkpoints, keys: Mapping[str, str]) -> list[Effect]:
    """Return truth and effect of every folder that has these settings, in their order.

    Args:
        checkpoints: the answers of one model's checkpoints.
        keys: {name: key of the folders' ``run.json``}.
    """
    first, found = checkpoints[0], []
    columns = ("mrr_original", "mrr")
    every = {change.method: change for change in compare_changes(checkpoints, *columns)}
    kept = {
        change.method: change for change in compare_changes(checkpoints, *columns, kept_only=True)
    }
    for method in first.methods:
        settings = read_settings(first.sources(method)[0], keys)
        if settings is not None and method in every:
            truth = words_true(first, method), texts_kept(first, method)
            numbers = tuple(settings.values())
            lines = {ALL_TEXTS: _by_seed(checkpoints, method, kept_only=False)}
            if method in kept:
                lines[TRUE_TEXTS] = _by_seed(checkpoints, method, kept_only=True)
            found.append(Effect(numbers, *truth, every[method], kept.get(method), lines))
    return sorted(found, key=lambda one: one.settings)


def _by_seed(checkpoints: Checkpoints, method: str, *, kept_only: bool) -> dict[int, float]:
    """Return the mean change of MRR of each checkpoint."""
    found = {}
    for seed, one in enumerate(checkpoints):
        before, after = (one.by_key(name, method, kept_only) for name in ("mrr_original", "mrr"))
        found[seed] = fsum(after[key] - before[key] for key in after) / len(after)
    return found


def effects_part(title: str, names: Sequence[str], effects: Sequence[Effect]) -> Part:
    """Return a row per setting.

    Args:
        effects: the effects of the combinations of settings.
    """
    rows = [(tuple(f"{value:g}" for value in effect.settings), effect) for effect in effects]
    return make_part(title, names, EFFECT_COLUMNS, rows)


def effect_curves(title: str, names: Sequence[str], effects: Sequence[Effect]) -> list[Curve]:
    """Return curves of truth and of effect over the first setting.

    With several settings there is a line for each value of the others, over all texts; with one
    there are lines for inserted words and texts, and for all texts and those that stayed true.

    Args:
        effects: the effects of the combinations of settings.
    """
    truth: dict[str, dict[float, dict[int, float]]] = {}
    effect: dict[str, dict[float, dict[int, float]]] = {}
    for one in effects:
        about = zip(names[1:], one.settings[1:], strict=True)
        line = ", ".join(f"{name} = {value:g}" for name, value in about)
        x = one.settings[0]
        shares = {line or TRUE_TEXTS: one.kept} | ({} if line else {"inserted words": one.words})
        for name, found in shares.items():
            if found is not None:
                truth.setdefault(name, {})[x] = {0: found.mean}
        for name, seeds in one.by_seed.items():
            if not line or name == ALL_TEXTS:
                effect.setdefault(line or name, {})[x] = dict(seeds)
    of = "texts kept true" if len(names) > 1 else "share that is true"
    return [
        Curve(f"{title}: {of}, %", names[0], "share", truth, unit="fraction"),
        Curve(f"{title}: change of MRR, points", names[0], "change", effect, unit="fraction"),
    ]


# The oracle's judgements of changed texts, the shares that are true, as parts of tables.

INSERTED_TRUE = "inserted_true"
"""The score of a set that the oracle gives: see ``cfaug.shapescapes.detector.CaptionTruth``."""
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
    """

    def share(check: str, method: str) -> Entry:
        checks = [one.label_kept[row] for row in one.rows(method).tolist()]
        return value_entry(checks.count(check) / len(checks))

    def changed(method: str) -> Entry:
        return value_entry(float(one.items.metric("changed")[one.rows(method).tolist()].mean()))

    true, right = "share that is true", "right answer"
    columns: list[Column[str]] = [
        text_column("texts", lambda method: f"{len(one.rows(method)):,}"),
        Column("changed", changed),
        Column("inserted words", lambda method: interval_entry(words_true(one, method)), true),
        Column(CHECKS[0], lambda method: interval_entry(texts_kept(one, method)), right),
        *(Column(check, partial(share, check), right) for check in CHECKS[1:]),
    ]
    title = "The oracle's judgements of the texts"
    rows = [((printed,), method) for printed, method in methods.items()]
    return make_part(title, ("Method",), columns, rows, [TEXTS_NOTE])


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
        name: the name of the random stream.
    """
    if not values:
        return None
    return cluster_bootstrap(values, clusters, generator(0, "xmai-oracle", name))


def _scores(items: TextPairItems, method: str) -> dict[str, Mapping[str, float]]:
    """Return the oracle's scores of a model's sets."""
    every: dict[str, Mapping[str, float]] = {}
    for source in items.sources(method):
        every |= read_scores(Path(source))
    keys = items.texts("key")
    asked = [keys[row] for row in items.rows(method).tolist()]
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


EFFECT_COLUMNS: tuple[Column[Effect], ...] = (
    text_column("texts", lambda effect: f"{effect.all_texts.keys:,}"),
    Column("inserted words true", lambda effect: interval_entry(effect.words)),
    Column("texts kept true", lambda effect: interval_entry(effect.kept)),
    Column("change of MRR", lambda effect: change_entry(effect.all_texts, -1), ALL_TEXTS),
    Column("Holm", lambda effect: holm_entry(effect.all_texts), ALL_TEXTS),
    Column("texts kept", lambda effect: keys_entry(effect.kept_texts), TRUE_TEXTS),
    Column("change of MRR", lambda effect: change_entry(effect.kept_texts, -1), TRUE_TEXTS),
    Column("Holm", lambda effect: holm_entry(effect.kept_texts), TRUE_TEXTS),
)
