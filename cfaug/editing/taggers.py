"""Part-of-speech taggers: one that needs no download, and NLTK's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

from cfaug.core.errors import UserError

if TYPE_CHECKING:
    from nltk.tag.perceptron import PerceptronTagger

NLTK_DATA_HELP = (
    "Where there is a network: python -m nltk.downloader {name}. Elsewhere put the files into a "
    "folder and set NLTK_DATA to it"
)


@dataclass(frozen=True)
class TextBlobTagger:
    """TextBlob's lexicon and rules (pattern; De Smedt and Daelemans, 2012).

    On 3,000 MS-COCO captions it agrees with NLTK's perceptron for 94.8% of the words on whether
    they are nouns. Its lemmatiser and inflector are not used: they turn "bus" into "bu".
    """

    def tag(self, sentences: Sequence[Sequence[str]]) -> list[list[str]]:
        """Return a Penn tag for each word; names of persons and places are NNP."""
        return [[_tag(word, i == 0) for i, word in enumerate(words)] for words in sentences]

    def describe(self) -> dict[str, str]:
        """Return TextBlob's version."""
        from importlib.metadata import version

        return {"tagger": f"textblob {version('textblob')}"}


@lru_cache(maxsize=100_000)
def _tag(word: str, first: bool) -> str:
    """Return the tag of a word from the word and whether it begins its sentence.

    TextBlob does not apply pattern's context rules, so that words can be cached, which matters for
    a thousand edits of one caption.
    """
    from textblob.en import parser

    return str(parser.find_tags([word] if first else [".", word])[-1][1]).split("-")[0]


@dataclass(frozen=True)
class NltkTagger:
    """NLTK's averaged perceptron, the paper's tagger (B.1.1): its JSON data, never its pickle."""

    def tag(self, sentences: Sequence[Sequence[str]]) -> list[list[str]]:
        """Return a Penn tag for each word.

        Raises:
            UserError: if the tagger's data is not installed.
        """
        return [[tag for _, tag in self._tagger.tag(list(words))] for words in sentences]

    @cached_property
    def _tagger(self) -> PerceptronTagger:
        from nltk.tag.perceptron import PerceptronTagger

        try:
            return PerceptronTagger(lang="eng")
        except LookupError as error:
            name = "averaged_perceptron_tagger_eng"
            raise UserError(
                f"NLTK's tagger has no data (taggers/{name}, JSON files) on this machine. "
                f"{NLTK_DATA_HELP.format(name=name)}; or choose "
                "cfaug.editing.taggers.TextBlobTagger, which needs none"
            ) from error

    def describe(self) -> dict[str, str]:
        """Return NLTK's version."""
        from importlib.metadata import version

        return {"tagger": f"nltk {version('nltk')} averaged_perceptron_tagger_eng"}
