"""The terminal summary of a choice among captions."""

from __future__ import annotations

from collections.abc import Sequence
from math import comb

import numpy as np

from cfaug.compositional.item_tags import CATEGORY
from cfaug.core.types import Evaluation
from cfaug.stats.caption_choice import FALSE, TRUE

SHOWN = 12
"""Most categories whose accuracy is shown."""

WORDS = {
    "accuracy_macro": "mean over {count} categories",
    "accuracy_macro_groups": "mean over groups",
    "original_accuracy": "first true caption alone",
    "brittleness": "brittleness",
    "text_only": "captions alone, by the text tower",
    "blind_language_sum": "without the image, by a language model",
    "blind_language_mean": "per token",
    "blind_model": "without the image, by the model",
}
"""Names of metrics in a sentence."""


def describe_choice(
    found: Evaluation, truth_NK: np.ndarray, ties: str, categories: Sequence[str]
) -> list[str]:
    """Return a few lines: accuracy beside chance, averages, blind rows, categories.

    Args:
        found: an evaluation by ``benchmark=choice``.
        truth_NK: labels of captions, as for ``cfaug.stats.caption_choice.choice_hits``.
        ties: the value of ties: ``miss``, ``half`` or ``hit``.
        categories: names of the categories that count in averages.
    """
    values = {(one.metric, *one.by.items()): f"{100 * one.value:.1f} %" for one in found.outcomes}
    true, false = ((truth_NK == what).sum(axis=1).tolist() for what in (TRUE, FALSE))
    chance = np.mean([1 / comb(a + b, a) for a, b in zip(true, false, strict=True)])
    lines = [
        f"accuracy {values['accuracy',]} of {len(truth_NK)} items; "
        f"chance is {100 * chance:.1f} %; "
        f"{int(np.sum(found.items['ties']))} ties count as ties={ties}"
    ]
    told = [
        f"{words.format(count=len(categories))} {values[one,]}"
        for one, words in WORDS.items()
        if (one,) in values
    ]
    if told:
        lines.append("; ".join(told))
    shown = [one for one in categories if ("accuracy", (CATEGORY, one)) in values]
    if shown:
        of = [f"{one} {values['accuracy', (CATEGORY, one)]}" for one in shown[:SHOWN]]
        more = f", and {len(shown) - SHOWN} more categories" if len(shown) > SHOWN else ""
        lines.append(", ".join(of) + more)
    return lines
