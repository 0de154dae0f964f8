"""The language of the world as parts of a caption editor: no model, no download.

A vocabulary tells nouns from adjectives and fills a blank with the other words of its kind, so that
the editor of real captions turns "a red ball on the beach" into "a red cat on the beach".
"""

from __future__ import annotations

from collections.abc import Sequence

from cfaug.shapescapes.vocabulary import COLOURS, FRAMES, PLACES, SUBJECTS
from cfaug.text.protocols import Blank, Fill
from cfaug.text.sentence import split

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
    """Tags the world's words; an unknown word is a noun, as taggers have it."""

    def tag(self, sentences: Sequence[Sequence[str]]) -> list[list[str]]:
        """Return NN for subjects and places, JJ for colours, DT, IN or VBZ for the rest."""
        return [[_TAGS.get(word.lower(), "NN") for word in words] for words in sentences]

    def describe(self) -> dict[str, str]:
        """Return that the vocabulary was asked."""
        return {"tagger": "ShapeScapes vocabulary"}


class VocabularyFiller:
    """Fills a blank with the other words of the kind that stands there, all as probable.

    Nouns that are no subjects ("photo", "beach") get nothing: the world cannot draw their edits.
    """

    def fill(self, blanks: Sequence[Blank], top_k: int) -> list[list[Fill]]:
        """Return up to ``top_k`` other subjects, or other colours, in the vocabulary's order."""
        others = [_OTHERS.get(blank.word.lower(), ()) for blank in blanks]
        return [[Fill(word, 1 / len(words)) for word in words[:top_k]] for words in others]

    def describe(self) -> dict[str, str]:
        """Return that the vocabulary was asked."""
        return {"filler": "ShapeScapes vocabulary"}
