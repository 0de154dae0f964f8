"""Label frequency of classification benchmarks: how many counterfactual pairs alter a class.

COCO-Counterfactuals, section A.2, Table 6.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import cache, lru_cache
from math import nan
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from cfaug.core.atomic_files import to_json
from cfaug.core.outputs import write_output
from cfaug.core.rng import generator
from cfaug.core.validation import check
from cfaug.data.captions import altered_subjects
from cfaug.evaluation.benchmark import HasClasses
from cfaug.report.results import read_record

if TYPE_CHECKING:
    from cfaug.core.protocols import Benchmark
    from cfaug.data.index import Index


FILE = "label_frequency.json"
"""Number of the run's training pairs that alter a class, by classification benchmark."""
Compare = Literal["words", "lemmas"]


@lru_cache(maxsize=8)
def subjects_of_pairs(pairs: Index) -> tuple[tuple[str, str], ...]:
    """Return the altered subjects of every set of two captions; other sets are left out."""
    _, first, counts = np.unique(pairs.sets, return_index=True, return_counts=True)
    return tuple(
        altered_subjects(pairs.text(row), pairs.text(row + 1))
        for row in first[counts == 2].tolist()
    )


def label_frequencies(
    pairs: Index, benchmarks: Iterable[Benchmark], compare: Compare
) -> dict[str, int]:
    """Return how many pairs alter a class of each classification benchmark, by its name.

    Args:
        benchmarks: benchmarks of any kind; those without classes are left out.
        compare: ``words`` as they are, as the paper does, or ``lemmas``, which treats singular and
            plural as the same word and needs WordNet.
    """
    altered = subjects_of_pairs(pairs)
    return {
        benchmark.name: label_frequency(
            altered, benchmark.class_names, None if compare == "words" else _wordnet_base()
        )
        for benchmark in benchmarks
        if isinstance(benchmark, HasClasses)
    }


def write_label_frequencies(
    folder: Path, benchmarks: Iterable[Benchmark], pairs: Index, compare: str
) -> None:
    """Count the pairs that alter a class of each classification benchmark, beside the results.

    Args:
        benchmarks: the benchmarks of the run; those without classes are left out.
        pairs: the run's counterfactual source.
        compare: the comparison with class names, ``words`` or ``lemmas``.
    """
    check(compare, Compare | None, "label_frequency")
    frequencies = label_frequencies(pairs, benchmarks, "lemmas" if compare == "lemmas" else "words")
    if not frequencies or not subjects_of_pairs(pairs):
        return
    file = folder / FILE
    about = {"source": pairs.hash, "compare": compare, "pairs": len(subjects_of_pairs(pairs))}
    known = read_record(file) if file.exists() else {}
    same = all(known.get(name) == value for name, value in about.items())
    content = {**about, "frequency": {**(known["frequency"] if same else {}), **frequencies}}
    if content != known:
        write_output(file, to_json(content), FILE)


@lru_cache(maxsize=1)
def _wordnet_base() -> Callable[[str], str]:
    from cfaug.editing.wordnet import WordNet

    wordnet = WordNet()

    @cache
    def base(word: str) -> str:
        return wordnet.base(word)

    return base


# Do the classes altered by counterfactuals gain accuracy? Label frequency and its correlation.
#
# COCO-Counterfactuals, section A.2 and Table 6: a data set's label frequency is the number of
# counterfactual pairs with an altered subject among its class names. The paper correlates it with
# the 18 gains of 6 data sets under 3 mixtures and finds r = 0.522, p = 0.026. The 18 are not
# independent: each data set's frequency is used three times, so the units are 6 data sets.
# ``permutation_p`` permutes whole data sets; report that one.

EXACT_UP_TO = 8
"""Largest number of data sets with every permutation enumerated: 40,320 at 8."""
DRAWS = 10_000
"""Random permutations drawn for more data sets than that."""


def label_frequency(
    altered: Iterable[Collection[str]],
    class_names: Iterable[str],
    lemma: Callable[[str], str] | None = None,
) -> int:
    """Return the number of pairs with an altered subject that is a class name, ignoring case.

    Args:
        altered: the subjects of each pair, before and after the edit.
        lemma: function that maps a lower-case word, of subjects and class names, to the form that
            is compared, such as the singular (a variant); ``None`` compares words as they are, as
            in the paper.

    >>> label_frequency([("Dog", "cat"), ("man", "dogs")], ["dog", "bird"])
    1
    >>> label_frequency([("Dog", "cat"), ("man", "dogs")], ["dog"], lemma=lambda w: w.rstrip("s"))
    2
    """
    form = lemma or (lambda word: word)

    def forms(words: Iterable[str]) -> set[str]:
        return {form(word.strip().lower()) for word in words} - {""}

    names = forms(class_names)
    return sum(bool(forms(pair) & names) for pair in altered)


@dataclass(frozen=True)
class Association:
    """How gains correlate with frequency, over data sets and mixtures.

    Values are ``nan`` with fewer than three data sets, or without spread on either side.

    Attributes:
        r: Pearson's r over all gains.
        naive_p: two-sided p of ``r`` with every gain counted as independent, as in the paper; too
            small.
        permutation_p: two-sided p of ``r``, permuting the frequencies of whole data sets.
        spearman: Spearman's rank correlation over all gains.
        log_r: Pearson's r with the logarithm of frequency (of frequency + 1 if one is 0).
        log_permutation_p: two-sided p of ``log_r``, permuted in the same way.
        mean_r: Pearson's r with the mean gain of each data set.
        mean_p: two-sided p of ``mean_r``.
        by_mixture: Pearson's r and its p, (r, p), for each mixture alone.
    """

    r: float
    naive_p: float
    permutation_p: float
    spearman: float
    log_r: float
    log_permutation_p: float
    mean_r: float
    mean_p: float
    by_mixture: tuple[tuple[float, float], ...]
    datasets: int


def associate(frequency_D: np.ndarray, gain_DM: np.ndarray, seed: int = 0) -> Association:
    """Correlate label frequency with gains.

    Args:
        frequency_D: label frequency of each data set, 0 or more, (data sets,).
        gain_DM: change of accuracy of each data set under each mixture, (data sets, mixtures).
        seed: seed of the random permutations that are drawn for more than ``EXACT_UP_TO`` data
            sets.

    Raises:
        ValueError: if shapes do not fit or a value is not finite.
    """
    frequency, gain = np.asarray(frequency_D, np.float64), np.asarray(gain_DM, np.float64)
    if gain.ndim != 2 or frequency.shape != (len(gain),) or not gain.size:
        raise ValueError(f"frequencies {frequency.shape} and gains {gain.shape} do not fit")
    if not np.isfinite(frequency).all() or not np.isfinite(gain).all() or (frequency < 0).any():
        raise ValueError("a frequency or a gain is negative, NaN or infinite")
    mixtures = gain.shape[1]
    if len(gain) < 3:  # several gains of two data sets would give an r, of two independent points
        none = ((nan, nan),) * mixtures
        return Association(nan, nan, nan, nan, nan, nan, nan, nan, none, len(gain))
    r, p = _pearson(np.repeat(frequency, mixtures), gain.ravel())
    logarithm = np.log10(frequency + (1 if (frequency == 0).any() else 0))
    log_r, _ = _pearson(np.repeat(logarithm, mixtures), gain.ravel())
    mean_r, mean_p = _pearson(frequency, gain.mean(axis=1))
    return Association(
        r=r,
        naive_p=p,
        permutation_p=_permuted(frequency, gain, seed),
        spearman=_pearson(_ranks(np.repeat(frequency, mixtures)), _ranks(gain.ravel()))[0],
        log_r=log_r,
        log_permutation_p=_permuted(logarithm, gain, seed),
        mean_r=mean_r,
        mean_p=mean_p,
        by_mixture=tuple(_pearson(frequency, gain[:, m]) for m in range(mixtures)),
        datasets=len(gain),
    )


def _pearson(x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        return nan, nan
    from scipy.stats import pearsonr

    correlation = pearsonr(x, y)
    return float(correlation.statistic), float(correlation.pvalue)


def _ranks(values: np.ndarray) -> np.ndarray:
    from scipy.stats import rankdata

    ranks: np.ndarray = rankdata(values)
    return ranks


def _permuted(x_D: np.ndarray, gain_DM: np.ndarray, seed: int) -> float:
    """Return the share of permutations of data sets with a correlation at least as far from 0.

    Up to constants, Pearson's r over all gains is the product of the centred x with the data sets'
    mean gains; neither spread changes under a permutation.
    """
    if np.ptp(x_D) == 0 or np.ptp(gain_DM) == 0:
        return nan
    from scipy.stats import permutation_test

    x, y = x_D - x_D.mean(), gain_DM.mean(axis=1) - gain_DM.mean()
    scale = np.abs(x).sum() * np.abs(y).max() or 1.0

    def product(exchanged: np.ndarray, axis: int = -1) -> np.ndarray:
        # Equal products that differ in the last bit must count as equal.
        return np.abs(exchanged @ y / scale).round(12)

    test = permutation_test(
        (x,), product, permutation_type="pairings", vectorized=True, alternative="greater",
        n_resamples=np.inf if len(x) <= EXACT_UP_TO else DRAWS,
        rng=generator(seed, "dataset-permutation", len(x)),
    )  # fmt: skip
    return float(test.pvalue)
