"""Items about texts before and after methods changed them: one row per set and method.

The columns are those of ``benchmark=insertion``, ``text_overlap`` and ``entailment``. No model is
needed here: tables, tests and pages are made from the items alone.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np

from cfaug.core.errors import UserError
from cfaug.core.item_schema import ItemColumn, ItemSchema
from cfaug.core.rng import generator
from cfaug.core.types import CLUSTER
from cfaug.report.items import ModelItems
from cfaug.stats.effects import DropTest, paired_drop
from cfaug.stats.significance import SeedSummary, holm, paired_t, summarise

KEPT, CHANGED, UNKNOWN = "kept", "changed", "unknown"
"""Values of the column ``label_kept``: is the right answer still that of the original text?"""
ROW = "a set of a method"
PAIR_ITEMS = ItemSchema(
    ROW,
    (
        ItemColumn("item", "``<method>/<set>``", "text", always=True),
        ItemColumn("cluster", "the photo of the set", "text", always=True),
        ItemColumn("method", "the method that changed the text", "text", always=True),
        ItemColumn("key", "the set's key, by which methods are compared", "text", always=True),
        ItemColumn("source", "the folder or file, as given", "text", always=True),
        ItemColumn("kind", "the kind of the edit; null if nothing was changed", "text"),
        ItemColumn("label", "the label, if there is one: the right answer to the original", "text"),
        ItemColumn("text_before", "the original text", "text"),
        ItemColumn("text", "the changed text", "text"),
        ItemColumn(
            "label_kept", "whether the right answer is ``kept``, ``changed`` or ``unknown``", "text"
        ),
        ItemColumn("changed", "1 if the texts differ at all (Table 5, any)", always=True),
    ),
)
"""The items of every benchmark of texts before and after methods changed them."""
OVERLAP_ITEMS = PAIR_ITEMS.extend(
    ROW,
    ItemColumn("inserted_words", "the number of new words", always=True),
    ItemColumn("novel", "1 if there are any (Table 5, r/i)", always=True),
    ItemColumn("bleu", "BLEU-4 against the original", always=True),
    ItemColumn("meteor", "METEOR against the original"),
)
"""The items of ``benchmark=text_overlap``."""
INSERTION_ITEMS = OVERLAP_ITEMS.extend(
    ROW,
    ItemColumn("text_before", "the original text", "text", always=True),
    ItemColumn("text", "the changed text", "text", always=True),
    ItemColumn(
        "label_kept",
        "whether the right answer is ``kept``, ``changed`` or ``unknown``",
        "text",
        always=True,
    ),
    ItemColumn("image", "digest of the photo's bytes", "text", always=True),
    ItemColumn(
        "mrr_original",
        "reciprocal rank of its photo for the original text, among all, averaged over ties",
        always=True,
    ),
    ItemColumn("mrr", "the same for the changed text", always=True),
    ItemColumn("mrr_drop", "the first minus the second", always=True),
    ItemColumn(
        "rank_original", "1 + the photos that score higher for the original text", always=True
    ),
    ItemColumn("rank", "the same for the changed text", always=True),
    ItemColumn(
        "mrr_original_batches", "``mrr_original`` in shuffled batches; null for sets in no batch"
    ),
    ItemColumn("mrr_batches", "``mrr`` in these batches"),
    ItemColumn("mrr_drop_batches", "the first minus the second"),
    ItemColumn("similarity_text", "cosine of the two texts"),
    ItemColumn(
        "similarity_image_original", "cosine of the original text with the photo", always=True
    ),
    ItemColumn("similarity_image", "cosine of the changed text with the photo", always=True),
)
"""The items of ``benchmark=insertion``."""


class TextPairItems(ModelItems):
    """One model's answers to texts before and after methods changed them."""

    schema: ClassVar[ItemSchema] = PAIR_ITEMS
    BENCHMARK = "insertion"

    @cached_property
    def methods(self) -> tuple[str, ...]:
        """The methods, in the order of the items."""
        return tuple(dict.fromkeys(self.texts("method")))

    def sources(self, method: str) -> tuple[str, ...]:
        """Return the folders of a method's texts, as given."""
        folders = self.texts("source")
        return tuple(dict.fromkeys(folders[row] for row in self.rows(method)))

    def rows(self, method: str, kept_only: bool = False) -> np.ndarray:
        """Return the rows of a method, int64.

        Args:
            kept_only: whether only rows whose right answer is known to be that of the original text
                are returned.
        """
        if method not in self.methods:
            raise UserError(
                f"the items of {self.items.benchmark} ({self.model}) have no method {method!r}; "
                f"there are {', '.join(self.methods)}"
            )
        rows = np.flatnonzero(np.array(self.texts("method")) == method)
        return rows[np.array(self.label_kept)[rows] == KEPT] if kept_only else rows

    @cached_property
    def label_kept(self) -> list[str]:
        """``KEPT``, ``CHANGED`` or ``UNKNOWN`` of each row."""
        if "label_kept" not in self.items.columns:
            raise UserError(
                f"the items of {self.items.benchmark} lack label_kept: nothing says whether the "
                f"right answers were kept; {self.renew}"
            )
        checks = self.texts("label_kept")
        odd = sorted({*checks} - {KEPT, CHANGED, UNKNOWN})
        if odd:
            raise UserError(
                f"the items of {self.items.benchmark}: label_kept={odd[0]!r} is invalid: choose "
                f"from {KEPT}, {CHANGED}, {UNKNOWN}; {self.renew}"
            )
        return checks

    def judged(self, method: str) -> tuple[int, int]:
        """Count a method's changed texts whose right answer is known to be kept, and changed."""
        rows = self.rows(method)
        changed = rows[self.items.metric("changed")[rows] > 0].tolist()
        counter = Counter(self.label_kept[row] for row in changed)
        return counter[KEPT], counter[CHANGED]

    def by_key(self, metric: str, method: str, kept_only: bool = False) -> dict[str, float]:
        """Return {key: value} of a method, for rows with a value."""
        values, keys = self.items.metric(metric), self.texts("key")
        rows = [row for row in self.rows(method, kept_only).tolist() if not math.isnan(values[row])]
        scores = {keys[row]: float(values[row]) for row in rows}
        if len(scores) < len(rows):
            raise UserError(
                f"the items of {self.items.benchmark}: keys of {method} are duplicated; "
                f"{self.renew}"
            )
        return scores

    @cached_property
    def clusters(self) -> dict[str, str]:
        """The photo of each key."""
        return dict(zip(self.texts("key"), self.texts(CLUSTER), strict=True))


class InsertionItems(TextPairItems):
    """A model's retrieval of the photos of texts before and after, and the texts' similarity."""

    schema = INSERTION_ITEMS


class OverlapItems(TextPairItems):
    """The similarity of texts before and after, without a model."""

    schema = OVERLAP_ITEMS
    BENCHMARK = "text_overlap"


# Does a model answer worse after texts were changed? Paired tests over items and over seeds.

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
    """
    methods = checkpoints[0].methods if methods is None else methods
    compared = [((method, before), (method, after), "") for method in methods]
    return _compare(checkpoints, compared, kept_only=kept_only)


def compare_methods(
    checkpoints: Sequence[TextPairItems],
    metric: str,
    first: str,
    others: Sequence[str] | None = None,
) -> list[PairedTest]:
    """Compare one method with each other one on their common texts; Holm over the others.

    Args:
        checkpoints: answers of one model's checkpoints, at least one; each text's values are
            averaged over them.
        metric: column of the value of the changed text.
        others: ``None`` for all others.
    """
    if others is None:
        others = [method for method in checkpoints[0].methods if method != first]
    compared = [((first, metric), (other, metric), other) for other in others]
    return _compare(checkpoints, compared, kept_only=False)


def _compare(
    checkpoints: Sequence[TextPairItems],
    compared: Sequence[tuple[tuple[str, str], tuple[str, str], str]],
    *,
    kept_only: bool,
) -> list[PairedTest]:
    """Test pairs of (method, column), each with the name of the other method; Holm over them.

    There is no test if no text has both values.
    """
    clusters, several = checkpoints[0].clusters, len(checkpoints) > 1
    tests = []
    for (method, metric), (against, column), other in compared:
        pairs = [
            (
                checkpoint.by_key(metric, method, kept_only),
                checkpoint.by_key(column, against, kept_only),
            )
            for checkpoint in checkpoints
        ]
        known = [set(values) for pair in pairs for values in pair]
        shared = sorted(set.intersection(*known))
        if not shared:
            continue
        first, second = (
            [math.fsum(pair[side][key] for pair in pairs) / len(pairs) for key in shared]
            for side in (0, 1)
        )
        benchmark = checkpoints[0].items.benchmark
        rng = generator(0, "text_pairs", benchmark, method, other, column)
        means = [
            math.fsum(before[key] - after[key] for key in shared) / len(shared)
            for before, after in pairs
        ]
        tests.append(
            PairedTest(
                method=method,
                other=other,
                test=paired_drop(first, second, [clusters[key] for key in shared], rng),
                keys=len(shared),
                left_out=len(set.union(*known)) - len(shared),
                over_seeds=summarise(means) if several else None,
                p_seeds=paired_t(means, "two-sided") if several else math.nan,
            )
        )
    corrected = holm([test.p for test in tests]).tolist() if tests else []
    return [replace(test, p_holm=p) for test, p in zip(tests, corrected, strict=True)]
