"""Filters of candidate edits, and rankers that choose among the remaining ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from cfaug.core.errors import UserError
from cfaug.core.protocols import LanguageModel
from cfaug.core.rng import generator
from cfaug.core.validation import Seed
from cfaug.editing.protocols import (
    TAGS,
    Candidate,
    SentenceEmbedder,
    Tagger,
    round_digits,
)
from cfaug.editing.sentence import normalise


def _new_tags(tagger: Tagger, candidates: Sequence[Candidate]) -> list[str]:
    """Return the tag of each new word, for which the whole edited caption is tagged again."""
    tags = tagger.tag([candidate.edited.words for candidate in candidates])
    return [its[c.slot.first] for c, its in zip(candidates, tags, strict=True)]


@dataclass(frozen=True)
class PartOfSpeech:
    """Keeps candidates whose new word has the replaced word's part of speech (section 3.1)."""

    tagger: Tagger
    name: ClassVar[str] = "part_of_speech"

    def keep(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Return the candidates whose new word has a tag of that part of speech."""
        tags = _new_tags(self.tagger, candidates)
        return [
            candidate
            for candidate, tag in zip(candidates, tags, strict=True)
            if tag.startswith(TAGS[candidate.part_of_speech])
        ]

    def describe(self) -> dict[str, str]:
        """Return the description of the tagger."""
        return self.tagger.describe()


@dataclass(frozen=True)
class SimilarityBand:
    """Keeps candidates whose caption is similar to the original, but not too similar (B.1.1).

    Args:
        encoder: a sentence encoder; all-MiniLM-L6-v2 in the paper.
        low: the lower bound of the cosine, exclusive.
        high: the upper bound of the cosine, exclusive.
    """

    encoder: SentenceEmbedder
    low: float = 0.8
    high: float = 0.91
    name: ClassVar[str] = "similarity"

    def __post_init__(self) -> None:
        if not -1 <= self.low < self.high <= 1:
            raise UserError(
                f"similarity band ({self.low}, {self.high}): give -1 <= low < high <= 1"
            )

    def keep(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Return the candidates within the band, with their ``similarity`` as a note."""
        texts = {c.original.text: None for c in candidates}
        texts |= {c.edited.text: None for c in candidates}
        rows = {text: i for i, text in enumerate(texts)}
        if not rows:
            return []
        vectors = self.encoder.encode(list(rows))
        originals = vectors[[rows[c.original.text] for c in candidates]]
        edited = vectors[[rows[c.edited.text] for c in candidates]]
        cosines = np.einsum("nd,nd->n", originals, edited, dtype=np.float64)
        noted = zip(candidates, (round_digits(float(cosine)) for cosine in cosines), strict=True)
        return [
            replace(candidate, notes={**candidate.notes, "similarity": cosine})
            for candidate, cosine in noted
            if self.low < cosine < self.high
        ]

    def describe(self) -> dict[str, str]:
        """Return the encoder's description."""
        return self.encoder.describe()


@dataclass(frozen=True)
class NotASibling:
    """Drops candidates that equal another caption of the same image.

    The other captions are ``example.extra["siblings"]``, a list of texts; without it no candidate
    is dropped. The paper does not have this filter.
    """

    name: ClassVar[str] = "sibling"

    def keep(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Return the candidates that differ from every sibling, ignoring case and white space."""
        siblings = {
            c.row: {normalise(str(text)).lower() for text in c.example.extra.get("siblings", ())}
            for c in candidates
        }
        return [c for c in candidates if c.edited.text.lower() not in siblings[c.row]]

    def describe(self) -> dict[str, str]:
        """Return an empty mapping: a plain rule."""
        return {}


@dataclass(frozen=True)
class LowestPerplexity:
    """Ranks candidates by the perplexity of a causal language model (gpt2-large in B.1.1).

    Ties go to the lower rank of the masked language model, then to the earlier noun.
    """

    model: LanguageModel

    def rank(self, groups: Sequence[Sequence[Candidate]]) -> list[list[Candidate]]:
        """Return each group by rising perplexity, with notes ``perplexity_0``, ``perplexity_1``."""
        texts = {c.original.text: None for group in groups for c in group}
        texts |= {c.edited.text: None for group in groups for c in group}
        values = self.model.perplexity(list(texts)) if texts else np.empty(0)
        known = {text: round_digits(float(v)) for text, v in zip(texts, values, strict=True)}

        def surprise(candidate: Candidate) -> tuple[float, int, int]:
            return known[candidate.edited.text], candidate.rank, candidate.position

        return [
            [
                replace(
                    c,
                    notes={
                        **c.notes,
                        "perplexity_0": known[c.original.text],
                        "perplexity_1": known[c.edited.text],
                    },
                )
                for c in sorted(group, key=surprise)
            ]
            for group in groups
        ]

    def describe(self) -> dict[str, str]:
        """Return the model's description."""
        return self.model.describe()


@dataclass(frozen=True)
class KeyedChoice:
    """Ranks candidates at random: for worlds in which no caption is surprising.

    Args:
        seed: the seed of the draw, together with the caption's key.
    """

    seed: Seed = 0

    def rank(self, groups: Sequence[Sequence[Candidate]]) -> list[list[Candidate]]:
        """Return each group in an order that depends only on the seed and the caption's key."""
        return [
            [group[i] for i in self._order(group[0].example.key, len(group))] for group in groups
        ]

    def _order(self, key: str, count: int) -> list[int]:
        return generator(self.seed, "edit", key).permutation(count).tolist()

    def describe(self) -> dict[str, str]:
        """Return an empty mapping: a plain rule."""
        return {}
