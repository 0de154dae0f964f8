"""Label frequency of classification benchmarks: how many counterfactual pairs alter a class.

COCO-Counterfactuals, section A.2, Table 6; see ``cfaug.coco_cf.label_frequency_metrics``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from cfaug.coco_cf.label_frequency_metrics import label_frequency
from cfaug.core import caption_difference
from cfaug.core.files import write_json
from cfaug.core.validation import check
from cfaug.evaluation.benchmark_protocols import HasClasses
from cfaug.report.results import read_record

if TYPE_CHECKING:
    from cfaug.core.protocols import Benchmark
    from cfaug.data.index import Index

FILE = "label_frequency.json"
"""Number of the run's training pairs that alter a class, by classification benchmark."""

Compare = Literal["words", "lemmas"]


@lru_cache(maxsize=8)
def altered_subjects(pairs: Index) -> tuple[tuple[str, str], ...]:
    """Return the altered subjects of every set of two captions; other sets are left out."""
    _, first, counts = np.unique(pairs.sets, return_index=True, return_counts=True)
    return tuple(
        caption_difference.altered_subjects(pairs.text(row), pairs.text(row + 1))
        for row in first[counts == 2].tolist()
    )


def label_frequencies(
    pairs: Index, benchmarks: Iterable[Benchmark], compare: Compare
) -> dict[str, int]:
    """Return how many pairs alter a class of each classification benchmark, by its name.

    Args:
        pairs: the counterfactual source.
        benchmarks: benchmarks of any kind; those without classes are left out.
        compare: ``words`` as they are, as the paper does, or ``lemmas``, which treats singular and
            plural as the same word and needs WordNet.

    Raises:
        UserError: if there is no WordNet for ``lemmas``.
    """
    altered = altered_subjects(pairs)
    return {
        benchmark.name: label_frequency(altered, benchmark.class_names, _lemma(compare))
        for benchmark in benchmarks
        if isinstance(benchmark, HasClasses)
    }


def write_label_frequencies(
    folder: Path, benchmarks: Iterable[Benchmark], pairs: Index, compare: str
) -> None:
    """Count the pairs that alter a class of each classification benchmark, beside the results.

    Args:
        folder: the folder of the run's results.
        benchmarks: the benchmarks of the run; those without classes are left out.
        pairs: the run's counterfactual source.
        compare: the comparison with class names, ``words`` or ``lemmas``.

    Raises:
        UserError: for an unknown ``compare``, or ``lemmas`` without a WordNet.
    """
    check(compare, Compare | None, "label_frequency")
    found = label_frequencies(pairs, benchmarks, "lemmas" if compare == "lemmas" else "words")
    if not found or not altered_subjects(pairs):
        return
    file = folder / FILE
    about = {"source": pairs.hash, "compare": compare, "pairs": len(altered_subjects(pairs))}
    known = read_record(file) if file.exists() else {}
    same = all(known.get(name) == value for name, value in about.items())
    content = {**about, "frequency": {**(known["frequency"] if same else {}), **found}}
    if content != known:
        write_json(file, content)


def _lemma(compare: Compare) -> Callable[[str], str] | None:
    if compare == "words":
        return None
    return _wordnet_base()


@lru_cache(maxsize=1)
def _wordnet_base() -> Callable[[str], str]:
    from cfaug.editing.wordnet import WordNet

    wordnet = WordNet()
    wordnet.base("word")  # report a missing WordNet at once, not halfway through

    @cache
    def base(word: str) -> str:
        return wordnet.base(word)

    return base
