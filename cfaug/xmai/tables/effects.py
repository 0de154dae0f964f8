"""Truth of insertions and their effect on retrieval, setting by setting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import fsum

from cfaug.report.document import Curve, Entry, Part
from cfaug.report.numbers import DASH
from cfaug.stats.item_tests import MeanDifference
from cfaug.xmai.tables.answers import Checkpoints
from cfaug.xmai.tables.drops import change_entry, holm_entry
from cfaug.xmai.tables.settings import read_settings
from cfaug.xmai.tables.truth import interval_entry, texts_kept, words_true
from cfaug.xmai.text_pair_tests import PairedTest, compare_changes

EFFECT_COLUMNS = (
    "texts", "inserted words true", "texts kept true", "change of MRR", "Holm",
    "texts kept", "change of MRR", "Holm",
)  # fmt: skip
EFFECT_GROUPS = (("", 3), ("all texts", 2), ("texts kept true", 3))


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

    Raises:
        UserError: if a record or a set cannot be read.
    """
    first, found = checkpoints[0], []
    columns = ("mrr_original", "mrr")
    every = {one.method: one for one in compare_changes(checkpoints, *columns)}
    kept = {one.method: one for one in compare_changes(checkpoints, *columns, kept_only=True)}
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
        title: the title of the part.
        names: the names of the settings.
        effects: the effects of the combinations of settings.
    """
    rows = []
    for one in effects:
        kept = one.kept_texts
        cells = (
            Entry(f"{one.all_texts.keys:,}"),
            interval_entry(one.words),
            interval_entry(one.kept),
            change_entry(one.all_texts, -1),
            holm_entry(one.all_texts),
            *(
                (Entry(DASH),) * 3
                if kept is None
                else (Entry(f"{kept.keys:,}"), change_entry(kept, -1), holm_entry(kept))
            ),
        )
        rows.append((tuple(f"{value:g}" for value in one.settings), cells))
    return Part(title, tuple(names), EFFECT_GROUPS, EFFECT_COLUMNS, tuple(rows))


def effect_curves(title: str, names: Sequence[str], effects: Sequence[Effect]) -> list[Curve]:
    """Return curves of truth and of effect over the first setting.

    With several settings there is a line for each value of the others, over all texts; with one
    there are lines for inserted words and texts, and for all texts and those that stayed true.

    Args:
        title: the beginning of both curves' titles.
        names: the names of the settings.
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
