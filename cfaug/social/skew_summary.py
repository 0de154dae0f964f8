"""The results of a skew benchmark in a few lines for a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from cfaug.report.items import Items
from cfaug.social.skew_items import ALPHA, RankingTask, SkewItems

MOST = 6
"""Most questions that are reported one by one."""


def summarise(benchmark: str, items: Mapping[str, Any], permutations: int) -> list[str]:
    """Say which subjects stand out after correction, how many would by chance, what is left out.

    Conditional labellings are only counted.

    Args:
        benchmark: the benchmark's name.
        items: the columns that ``cfaug.social.skew`` describes.
        permutations: the number of permutations behind each p; 0 if p was computed exactly.
    """
    read = SkewItems(benchmark, Items(benchmark, "", "", items))
    told = [one for one in read.questions if one.condition is None and read.rows(one)]
    lines = [line for one in told[:MOST] for line in _tell(read, one)]
    if len(told) > MOST:
        lines.append(f"and {len(told) - MOST} more questions in the items")
    lines += _tell_conditional(read)
    lines += _tell_left_out(items)
    most = max((read.standing(one).tested for one in read.questions), default=0)
    if permutations and most / (permutations + 1) > ALPHA:
        lines.append(
            f"{permutations:,} permutations are too few: of {most} subjects none can stand out "
            f"after correction; give benchmark.permutations={int(most / ALPHA)} or more"
        )
    return lines


def _tell(read: SkewItems, question: RankingTask) -> list[str]:
    def mean(metric: str) -> float:
        return float(np.mean(list(read.values(question, metric).values())))

    preferred = read.values(question, "p_gap_holm")
    count = sum(p <= ALPHA for p in preferred.values())
    return [
        f"{question.grid} by {question.labelling}, K={question.k}: mean MaxSkew "
        f"{mean('max_skew'):.2f}, a random ranking's {mean('max_skew_chance'):.2f}. "
        f"{read.standing(question).say()}",
        f"  within sets: {count:,} of {len(preferred):,} subjects prefer a label after correction "
        f"(Friedman, Holm), mean gap of places {mean('rank_gap'):.2f}, by chance "
        f"{mean('rank_gap_chance'):.2f}",
    ]


def _tell_conditional(read: SkewItems) -> list[str]:
    asked = [one for one in read.questions if one.condition is not None]
    found = [read.standing(one) for one in asked]
    if not found:
        return []
    standing = sum(len(one.corrected) for one in found)
    return [
        f"under a condition ({asked[0].labelling} and {len(asked) - 1} more): {standing:,} of "
        f"{sum(one.tested for one in found):,} stand out after correction within their labelling"
    ]


def _tell_left_out(items: Mapping[str, Any]) -> list[str]:
    reasons = Counter(reason for reason in items["left_out"] if reason is not None)
    return [f"left out {count:,} times: {reason}" for reason, count in reasons.most_common(3)]
