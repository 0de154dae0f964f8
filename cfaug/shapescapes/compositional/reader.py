"""A text-only baseline: a bigram model of the training captions that compares two captions.

It counts pairs of adjacent words (bigrams) in the captions of ``shapescapes_compositional:train``,
so that it knows which shapes have which colours there. Its accuracy on a test shows how much
training captions alone reveal. It has no weights and is independent of any training.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from cfaug.shapescapes.compositional.parts import PARTS
from cfaug.shapescapes.compositional.pictures import words_of_pictures
from cfaug.shapescapes.settings import WorldSettings
from cfaug.shapescapes.world import World

END = "."
"""The mark of the beginning and the end of a text."""


@dataclass(frozen=True)
class CaptionReader:
    """A bigram language model of a world's training captions (additive smoothing).

    Args:
        world: the world, with a seed, that the training captions are drawn from.
        added: the number above 0 that is added to each count.
    """

    world: WorldSettings
    added: float = 0.1

    @cached_property
    def _counts(self) -> tuple[Counter[tuple[str, str]], Counter[str]]:
        """Counts of pairs of words, and of first words of pairs."""
        part, world = PARTS["train"], World(self.world)
        items = part.items(world)
        followed: Counter[tuple[str, str]] = Counter()
        for index in range(part.count(self.world)):
            followed.update(_pairs(items.draw(world, index).captions[0]))
        words: Counter[str] = Counter()
        for (word, _), count in followed.items():
            words[word] += count
        return followed, words

    def log_likelihood(
        self, texts: Sequence[str], contexts: Sequence[str] | None = None
    ) -> NDArray[np.float64]:
        """Return the natural log of the probability of each text, its end included: float64 (n,).

        Args:
            texts: n texts.
            contexts: ``None``; captions have no context.
        """
        assert contexts is None
        return np.array([self._score(text) for text in texts], np.float64)

    def _score(self, text: str) -> float:
        followed, words = self._counts
        choices = len(words_of_pictures()) + 1
        return sum(
            float(np.log((followed[pair] + self.added) / (words[pair[0]] + self.added * choices)))
            for pair in _pairs(text)
        )

    def perplexity(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Return exp of the mean negative log-likelihood per word, the end included: (n,)."""
        lengths = np.array([len(text.split()) + 1 for text in texts])
        return np.asarray(np.exp(-self.log_likelihood(texts) / lengths), np.float64)

    def identity(self) -> str:
        """Return the identity of the captions and of the smoothing."""
        return f"bigrams of {self.world.content_hash()}, {self.added}"


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    return pairwise([END, *text.split(), END])
