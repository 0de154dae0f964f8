"""How much of a text do methods preserve? ``benchmark=text_overlap``, which needs no model.

XMAI (Ramshetty et al., 2023), Tables 1, 2, 4 and 5: BLEU-4, METEOR and inserted words.
"""

from __future__ import annotations

import math
import string
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from cfaug.core.errors import UserError
from cfaug.core.item_schema import ItemSchema
from cfaug.core.protocols import NoModel
from cfaug.core.types import Evaluation
from cfaug.core.validation import Positive
from cfaug.data.sources.lists import LISTS
from cfaug.editing.wordnet import Synonyms
from cfaug.evaluation.text_pairs.text_pair_benchmark import Metric, TextPairBenchmark
from cfaug.evaluation.text_pairs.text_pair_items import OVERLAP_ITEMS
from cfaug.evaluation.text_pairs.text_pairs import (
    TextPairs,
    holds_edited_captions,
    read_caption_list,
    read_edited_captions,
)

if TYPE_CHECKING:
    from cfaug.evaluation.context import EvaluationContext


WORDNET = "wordnet"
"""Value of ``benchmark.synonyms`` for the package's WordNet."""
OVERLAP: Mapping[str, Metric] = {
    "bleu": Metric(),
    "meteor": Metric(),
    "inserted_words": Metric(unit="words"),
    "novel": Metric(),
    "changed": Metric(),
}


def overlap_columns(pairs: TextPairs, synonyms: str | None) -> dict[str, np.ndarray]:
    """Return the columns about texts of one method, float64 (sets,).

    Args:
        synonyms: the synonyms for METEOR: ``wordnet``, or a folder of WordNet; ``None`` leaves
            METEOR out.
    """
    known = None
    if synonyms is not None:
        known = Synonyms(None if synonyms == WORDNET else synonyms).single_words
        known("dog")  # so that a folder without WordNet is reported before a text needs a synonym
    return measure_overlap(pairs.originals, pairs.changed, known)


@dataclass
class TextOverlap(TextPairBenchmark):
    """BLEU-4, METEOR and inserted words of texts before and after methods changed them.

    Other arguments as for ``TextPairBenchmark``.

    Args:
        data: sets of two texts, captions that were only edited (``stage=captions``), or a list of
            modified captions (csv, tsv, json, jsonl); several, ``{METHOD: FOLDER}`` or a list, are
            compared on the captions that all of them have.
        synonyms: the synonyms for METEOR: ``wordnet``, or a folder of WordNet; ``None`` leaves
            METEOR out.
    """

    synonyms: str | None = WORDNET
    batch_size: Positive = field(default=256, init=False)

    kind: ClassVar[str] = "text_overlap"
    item_schema: ClassVar[ItemSchema] = OVERLAP_ITEMS
    needs: ClassVar[type] = NoModel

    def read(self, context: EvaluationContext, method: str, source: str) -> TextPairs:
        """Return the texts of a folder of sets, of edited captions, or of a list."""
        file = Path(source).expanduser()
        listed = file.suffix.lower() in LISTS and file.is_file()
        if not listed and not (file.is_dir() and holds_edited_captions(file)):
            return super().read(context, method, source)
        if self.without_leaks:
            raise UserError(
                f"benchmark.without_leaks=true would have no effect: {source} has texts without "
                "photos; leave it out"
            )
        return read_caption_list(method, file) if listed else read_edited_captions(method, file)

    def identifying_settings(self) -> list[Any]:
        return [self.synonyms]

    def run(self, model: NoModel) -> Evaluation:
        """Return the mean of each measure by method, and the spread of inserted words."""
        items = self.pair_columns()
        per_pair = [overlap_columns(pair, self.synonyms) for pair in self._pairs]
        items |= {
            name: np.concatenate([columns[name] for columns in per_pair]) for name in per_pair[0]
        }
        return Evaluation([*self.means(items, OVERLAP), *self.spreads(items)], items)


# Overlap of a text with its edited version: BLEU-4, METEOR and the inserted words.
#
# The defaults are those behind XMAI's tables (Ramshetty et al., 2023, Tables 1, 2, 4 and 5),
# inferred from the texts that its authors published: NLTK's Treebank words of the whole text, case
# kept for BLEU; smoothing 4 of Chen and Cherry (2014) with weights that suit texts below four
# words; METEOR of Lavie and Agarwal (2007) with Porter's stems and WordNet's synonyms. The original
# text is the reference.
#
# NLTK splits and stems the words; the tests compare the scores with its ``sentence_bleu`` and
# ``single_meteor_score``. These take 2 and 6 times as long; the first differs in the last bit in 3
# % of texts, the second needs NLTK's own WordNet.

SynonymsOf = Callable[[str], Collection[str]]
"""A function from a word to its synonyms, such as ``Synonyms.single_words``."""
ORDERS = 4
ALPHA, BETA, GAMMA = 0.9, 3.0, 0.5
"""METEOR's weight of recall against precision, the exponent of the share of chunks, and the weight
of the penalty for chunks."""
REMEMBERED = 2**17
"""Number of texts with cached words, and of words with cached stems: methods share originals."""
PUNCTUATION = str.maketrans("", "", string.punctuation)


def bleu4(original: str, changed: str) -> float:
    """Return BLEU with one to four words of a changed text against its original, in [0, 1].

    Papineni et al. (2002), for a single pair of texts.

    Returns:
        1 for equal texts, 0 if no word is shared or a text is empty.

    >>> bleu4("A dog sits on a red mat.", "A dog sits on a red mat.")
    1.0
    >>> round(bleu4("A dog sits on a mat.", "A small dog sits on a mat."), 4)
    0.7071
    """
    first, second = split_words(original), split_words(changed)
    if not first or not second:
        return 0.0
    if first == second:
        return 1.0
    length = len(second)
    orders = min(length, ORDERS)
    logs, misses = [], 0
    for order in range(1, orders + 1):
        runs, known = (
            Counter(zip(*(words[i:] for i in range(order)), strict=False))
            for words in (second, first)
        )
        count = float((runs & known).total())
        if not count:
            if order == 1:
                return 0.0
            misses += 1
            count = math.log(length) / (2**misses * 5)  # smoothing 4, with its constant K of 5
        logs.append(1 / orders * math.log(count / (length - order + 1)))
    brevity = 1.0 if length > len(first) else math.exp(1 - len(first) / length)
    return brevity * math.exp(math.fsum(logs))


def meteor(original: str, changed: str, synonyms: SynonymsOf | None = None) -> float:
    """Return METEOR of a changed text against its original, in [0, 1].

    Words are matched if they are equal, then by stems, then as synonyms of stems, each time from
    the end of the changed text to the last free word of the original, as NLTK does. Even equal
    texts score below 1, as they are one chunk: 1 - gamma / words^beta.

    Args:
        synonyms: function from a word to its synonyms; ``None`` matches only equal words and stems.

    Returns:
        0 if no word is matched.

    >>> round(meteor("A dog sits on a mat.", "A small dog sits on a mat."), 4)
    0.9744
    >>> known = {"hound": ["dog"]}
    >>> round(meteor("A dog sits", "A hound sits", lambda word: known.get(word, [])), 4)
    0.9815
    """
    first, second = ([word.lower() for word in split_words(text)] for text in (original, changed))
    matches = _align(first, second, synonyms)
    if not matches:
        return 0.0
    precision, recall = len(matches) / len(second), len(matches) / len(first)
    mean = precision * recall / (ALPHA * precision + (1 - ALPHA) * recall)
    pairs = sorted(matches.items())
    chunks = 1 + sum((i + 1, j + 1) != after for (i, j), after in pairwise(pairs))
    return float((1 - GAMMA * (chunks / len(pairs)) ** BETA) * mean)


def inserted_words(original: str, changed: str) -> list[str]:
    """Return the distinct words of a changed text that its original lacks, in their order.

    XMAI's rule for Tables 4 and 5: punctuation is deleted, words are separated by spaces, and case
    counts. A word that only moved or was repeated does not count.

    >>> inserted_words("A dog sits.", "A small Dog sits, small!")
    ['small', 'Dog']
    """
    known = set(original.translate(PUNCTUATION).split())
    words = dict.fromkeys(changed.translate(PUNCTUATION).split())
    return [word for word in words if word not in known]


def measure_overlap(
    originals: Sequence[str], changed: Sequence[str], synonyms: SynonymsOf | None = None
) -> dict[str, np.ndarray]:
    """Measure the overlap of many pairs of texts, row by row.

    Args:
        synonyms: function from a word to its synonyms; ``None`` omits METEOR.

    Returns:
        float64 (texts,) each: ``bleu``; ``meteor``; ``inserted_words``, the number of these words;
        ``novel``, 1 with an inserted word; ``changed``, 1 where the texts differ.

    Raises:
        ValueError: if the numbers of texts differ.

    >>> overlap = measure_overlap(["A dog", "A cat"], ["A dog", "A red cat"])
    >>> {name: values.tolist() for name, values in overlap.items() if name != "bleu"}
    {'inserted_words': [0.0, 1.0], 'novel': [0.0, 1.0], 'changed': [0.0, 1.0]}
    """
    pairs = list(zip(originals, changed, strict=True))
    columns: dict[str, Any] = {"bleu": [bleu4(*pair) for pair in pairs]}
    if synonyms is not None:
        known = cache(synonyms)  # each word is looked up once
        columns["meteor"] = [meteor(*pair, known) for pair in pairs]
    counts = [len(inserted_words(*pair)) for pair in pairs]
    columns |= {
        "inserted_words": counts,
        "novel": [count > 0 for count in counts],
        "changed": [before != after for before, after in pairs],
    }
    return {name: np.asarray(values, np.float64) for name, values in columns.items()}


def _align(
    first: Sequence[str], second: Sequence[str], synonyms: SynonymsOf | None
) -> dict[int, int]:
    """Return {place in the second text: place in the first} of matched words."""
    matched: dict[int, int] = {}
    left, right = dict(enumerate(first)), dict(enumerate(second))

    def match(same: SynonymsOf) -> None:
        """Match the remaining words from the end, each with the last free equal one."""
        places: dict[str, list[int]] = {}
        for at, word in left.items():
            places.setdefault(word, []).append(at)
        for at in sorted(right, reverse=True):
            free = [places[word] for word in same(right[at]) if places.get(word)]
            if free:
                matched[at] = max(free, key=lambda positions: positions[-1]).pop()
                del left[matched[at]], right[at]

    match(lambda word: (word,))
    if left and right:
        for words in (left, right):
            words.update({at: _stem(word) for at, word in words.items()})
        match(lambda word: (word,))
    if synonyms is not None and left and right:
        match(lambda word: {word, *synonyms(word)})
    return matched


@cache
def _nltk() -> tuple[Any, Any]:
    """Return NLTK's Treebank tokenizer, and Porter's stemmer."""
    from nltk.stem.porter import PorterStemmer
    from nltk.tokenize.destructive import NLTKWordTokenizer

    return NLTKWordTokenizer(), PorterStemmer()


@lru_cache(maxsize=REMEMBERED)
def split_words(text: str) -> tuple[str, ...]:
    """Return the words and punctuation signs of a text, as ``word_tokenize(preserve_line=True)``.

    >>> split_words("A man's dog. It sits.")
    ('A', 'man', "'s", 'dog.', 'It', 'sits', '.')
    """
    return tuple(_nltk()[0].tokenize(text))


@lru_cache(maxsize=REMEMBERED)
def _stem(word: str) -> str:
    return str(_nltk()[1].stem(word))
