"""TextAttack's constraint on long texts: the text around a change stays similar to the original."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from annotated_types import Interval

from cfaug.core.validation import Positive, check_fields
from cfaug.editing.baselines.clare_candidates import ClareCandidate
from cfaug.editing.baselines.words import Words
from cfaug.editing.protocols import SentenceEmbedder, round_digits


@dataclass(frozen=True)
class WindowSimilarity:
    """Drops candidates that differ too much from the original in the words around the change.

    TextAttack uses the Universal Sentence Encoder; here any sentence encoder can be used.

    Args:
        encoder: a sentence encoder.
        least: the least cosine of the two windows, inclusive.
        window: the number of words to compare; texts of fewer words pass.

    Raises:
        UserError: if a setting is invalid; it names the setting.
    """

    encoder: SentenceEmbedder
    least: Annotated[float, Interval(ge=-1, le=1)] = 0.7
    window: Positive = 15

    def __post_init__(self) -> None:
        check_fields(self, "recipe.editor.similarity")

    def keep(
        self, originals: Sequence[Words], found: Sequence[Mapping[str, ClareCandidate]]
    ) -> list[dict[str, ClareCandidate]]:
        """Return the candidates of each original that are similar to it, by their texts."""
        pairs: dict[tuple[int, str], tuple[str, str]] = {}
        for row, (original, candidates) in enumerate(zip(originals, found, strict=True)):
            for text, one in candidates.items():
                changed = Words.read(text)
                if len(changed.spans) >= self.window:
                    windows = (text_window(w, one.place, self.window) for w in (original, changed))
                    pairs[row, text] = (next(windows), next(windows))
        near = self._near(list(pairs.values()))
        far = {place for place, is_near in zip(pairs, near, strict=True) if not is_near}
        return [
            {text: one for text, one in candidates.items() if (row, text) not in far}
            for row, candidates in enumerate(found)
        ]

    def _near(self, pairs: Sequence[tuple[str, str]]) -> list[bool]:
        texts = list(dict.fromkeys(text for pair in pairs for text in pair))
        if not texts:
            return []
        rows = {text: i for i, text in enumerate(texts)}
        vectors = self.encoder.encode(texts)
        left, right = (vectors[[rows[pair[side]] for pair in pairs]] for side in (0, 1))
        cosines = np.einsum("nd,nd->n", left, right)
        return [round_digits(float(cosine)) >= self.least for cosine in cosines]

    def describe(self) -> dict[str, str]:
        """Return the description of the encoder."""
        return {f"similarity {name}": what for name, what in self.encoder.describe().items()}


def text_window(words: Words, index: int, size: int) -> str:
    """Return the text of ``size`` words around one word, as in TextAttack.

    >>> text_window(Words.read("one two three four five, six."), 3, 3)
    'three four five'
    >>> text_window(Words.read("one two three four five, six."), 5, 3)
    'four five, six'
    """
    count, half = len(words.spans), (size - 1) / 2
    if index - half < 0:
        first, last = 0, min(size, count) - 1
    elif index + half >= count:
        first, last = max(0, count - size), count - 1
    else:
        first, last = index - math.ceil(half), index + math.floor(half)
    return words.text[words.spans[first][0] : words.spans[last][1]]
