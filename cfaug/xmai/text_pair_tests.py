"""Does a model answer worse after texts were changed? Paired tests over items and over seeds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from cfaug.core.rng import generator
from cfaug.stats.significance import SeedSummary, holm, paired_t, summarise
from cfaug.stats.stress import DropTest, paired_drop
from cfaug.xmai.text_pair_items import TextPairItems

ALPHA = 0.05
"""Level of the tests."""


@dataclass(frozen=True)
class PairedTest:
    """Two values of the same texts, compared text by text.

    Attributes:
        method: name of the method of the first value.
        other: name of the method that it is compared with; empty for the texts before the change.
        test: test of the first value minus the second: before minus after, or method minus other.
        keys: number of texts that both have.
        left_out: number of texts that only one of the two has.
        over_seeds: mean and standard deviation over checkpoints of the mean difference; ``None``
            for a single checkpoint.
        p_seeds: two-sided p of the paired t-test over checkpoints; ``nan`` for a single one.
        p_holm: ``p``, corrected over all tests made together.
    """

    method: str
    other: str
    test: DropTest
    keys: int
    left_out: int
    over_seeds: SeedSummary | None = None
    p_seeds: float = math.nan
    p_holm: float = math.nan

    @property
    def p(self) -> float:
        """The two-sided p of the permutation of whole photos."""
        return self.test.p_photos

    @property
    def is_significant(self) -> bool:
        """Whether the difference is significant after Holm's correction."""
        return self.p_holm <= ALPHA


def compare_changes(
    checkpoints: Sequence[TextPairItems],
    before: str,
    after: str,
    methods: Sequence[str] | None = None,
    *,
    kept_only: bool = False,
) -> list[PairedTest]:
    """Compare each method's texts before and after the change; Holm over methods.

    Args:
        checkpoints: answers of one model's checkpoints, at least one; each text's values are
            averaged over them.
        before: column of the value of the original text.
        after: column of the value of the changed text.
        methods: names of the methods to compare; ``None`` for all. A method without any value is
            left out.
        kept_only: whether only texts whose right answer is known to be kept are used.
    """
    found = []
    for method in checkpoints[0].methods if methods is None else methods:
        pairs = [
            (one.by_key(before, method, kept_only), one.by_key(after, method, kept_only))
            for one in checkpoints
        ]
        found += _compare(checkpoints, (method, "", after), pairs)
    return _correct(found)


def compare_methods(
    checkpoints: Sequence[TextPairItems],
    metric: str,
    first: str,
    others: Sequence[str] | None = None,
    *,
    kept_only: bool = False,
) -> list[PairedTest]:
    """Compare one method with each other one on their common texts; Holm over the others.

    Args:
        checkpoints: answers of one model's checkpoints, at least one; each text's values are
            averaged over them.
        metric: column of the value of the changed text.
        first: name of the method to compare.
        others: names of the methods to compare it with; ``None`` for all others.
        kept_only: whether only texts whose right answers are known to be kept by both are used.
    """
    found = []
    all_others = [one for one in checkpoints[0].methods if one != first]
    for other in all_others if others is None else others:
        pairs = [
            (one.by_key(metric, first, kept_only), one.by_key(metric, other, kept_only))
            for one in checkpoints
        ]
        found += _compare(checkpoints, (first, other, metric), pairs)
    return _correct(found)


Pair = tuple[Mapping[str, float], Mapping[str, float]]
"""{key: value} of the two sides of a comparison."""


def _compare(
    checkpoints: Sequence[TextPairItems], about: tuple[str, str, str], pairs: Sequence[Pair]
) -> list[PairedTest]:
    """Return one test, or none if no text has both values."""
    known = [set(own) for pair in pairs for own in pair]
    shared = sorted(set.intersection(*known))
    if not shared:
        return []
    clusters = checkpoints[0].clusters
    first, second = (
        [math.fsum(pair[side][key] for pair in pairs) / len(pairs) for key in shared]
        for side in (0, 1)
    )
    rng = generator(0, "text_pairs", checkpoints[0].items.benchmark, *about)
    means = [
        math.fsum(one[key] - other[key] for key in shared) / len(shared) for one, other in pairs
    ]
    several = len(means) > 1
    return [
        PairedTest(
            method=about[0],
            other=about[1],
            test=paired_drop(first, second, [clusters[key] for key in shared], rng),
            keys=len(shared),
            left_out=len(set.union(*known)) - len(shared),
            over_seeds=summarise(means) if several else None,
            p_seeds=paired_t(means, "two-sided") if several else math.nan,
        )
    ]


def _correct(found: Sequence[PairedTest]) -> list[PairedTest]:
    corrected = holm([one.p for one in found]).tolist() if found else []
    return [replace(one, p_holm=p) for one, p in zip(found, corrected, strict=True)]
