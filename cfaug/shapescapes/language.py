"""The language of the world as parts of a caption editor, without a model or a download.

A vocabulary distinguishes nouns from adjectives and fills a blank with other words of the same
kind, so that the editor of real captions turns "a red ball on the beach" into "a red cat on the
beach".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cfaug.core.rng import generator
from cfaug.core.validation import Seed
from cfaug.editing.protocols import Blank, Fill
from cfaug.editing.sentence import split
from cfaug.shapescapes.vocabulary import COLOURS, FRAMES, PLACES, SUBJECTS

_KINDS: tuple[tuple[str, ...], ...] = (SUBJECTS, tuple(COLOURS))
_OTHERS = {
    word: tuple(other for other in kind if other != word) for kind in _KINDS for word in kind
}
_GRAMMAR = {
    **dict.fromkeys(("a", "an", "the", "this", "there"), "DT"),
    **dict.fromkeys(("on", "in", "of", "at"), "IN"),
    "is": "VBZ",
}
_TAGS = {
    **dict.fromkeys(
        (
            word
            for text in (*FRAMES, *PLACES.values())
            for word in split(text.replace("{}", "")).words
        ),
        "NN",
    ),
    **dict.fromkeys(SUBJECTS, "NN"),
    **dict.fromkeys(COLOURS, "JJ"),
    **_GRAMMAR,
}


class VocabularyTagger:
    """A tagger of the world's words; an unknown word is a noun, as in common taggers."""

    def tag(self, sentences: Sequence[Sequence[str]]) -> list[list[str]]:
        """Return NN for subjects and places, JJ for colours, DT, IN or VBZ for the rest."""
        return [[_TAGS.get(word.lower(), "NN") for word in words] for words in sentences]

    def describe(self) -> dict[str, str]:
        """Return a note that the vocabulary was used."""
        return {"tagger": "ShapeScapes vocabulary"}


class VocabularyFiller:
    """A filler of blanks with the other words of the same kind, with equal probabilities.

    Nouns that are not subjects ("photo", "beach") get no fills: the world cannot draw their edits.
    """

    def fill(self, blanks: Sequence[Blank], top_k: int) -> list[list[Fill]]:
        """Return up to ``top_k`` other subjects, or other colours, in the vocabulary's order."""
        others = [_OTHERS.get(blank.word.lower(), ()) for blank in blanks]
        return [[Fill(word, 1 / len(words)) for word in words[:top_k]] for words in others]

    def describe(self) -> dict[str, str]:
        """Return a note that the vocabulary was used."""
        return {"filler": "ShapeScapes vocabulary"}


@dataclass(frozen=True)
class AttributeFiller:
    """A language model of attributes before nouns, which is independent of images.

    An empty blank before a noun gets the world's colours, with probabilities that depend on the
    noun alone: in language a green tree is more usual than a purple one, whatever a photo shows.
    Each noun's probabilities are drawn from a uniform Dirichlet distribution. Any other blank gets
    the words of ``VocabularyFiller``.

    Args:
        seed: the seed of the probabilities.
    """

    seed: Seed = 0

    def fill(self, blanks: Sequence[Blank], top_k: int) -> list[list[Fill]]:
        """Return each blank's ``top_k`` most probable words."""
        return [self._fill(blank, top_k) for blank in blanks]

    def _fill(self, blank: Blank, top_k: int) -> list[Fill]:
        if blank.word.strip():
            return VocabularyFiller().fill([blank], top_k)[0]
        following = split(blank.text[blank.end :]).words
        noun = following[0].lower() if following else ""
        if _TAGS.get(noun) != "NN":
            return []
        shares = generator(self.seed, "attributes", noun).dirichlet(np.ones(len(COLOURS)))
        fills = [Fill(word, float(share)) for word, share in zip(COLOURS, shares, strict=True)]
        return sorted(fills, key=lambda one: -one.probability)[:top_k]

    def describe(self) -> dict[str, str]:
        """Return a note that the vocabulary was used."""
        return {"filler": f"ShapeScapes attributes, seed {self.seed}"}


class VocabularyEncoder:
    """Exact similarity of words: a text has cosine 1 with itself, and 0 with any other.

    It knows the words of the world and "brick wall"; an unknown text has cosine 0 with every text,
    even with itself.
    """

    def encode(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Return embeddings (texts, dim): of unit length, or 0 for an unknown text."""
        known = {word: column for column, word in enumerate([*_TAGS, "brick wall"])}
        found = np.zeros((len(texts), len(known)))
        for row, text in enumerate(texts):
            column = known.get(" ".join(text.lower().split()))
            if column is not None:
                found[row, column] = 1
        return found

    def describe(self) -> dict[str, str]:
        """Return a note that the vocabulary was used."""
        return {"encoder": "ShapeScapes vocabulary"}
