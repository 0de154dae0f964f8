"""Real pairs whose caption a model reads word by word: ``recipe=select_real``.

A pair of a photo and its caption teaches composition only if the words of the caption matter to
how well it fits the photo. Counterfactual Phrase Intervention (Go et al., 2026, arXiv 2605.22651)
replaces them by nonce words, measures how much a CLIP's score of the pair falls, and trains on the
half of the pairs for which it falls most. Here every noun, adjective, verb and preposition is
replaced alone, and the mean fall ranks the pairs; the paper's parser of phrases and the weights of
its kinds are not reproduced, as its code is not released.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from annotated_types import Interval, MinLen

from cfaug.core.errors import UserError, say
from cfaug.core.rng import generator
from cfaug.core.types import Edited, Example, Proposal, Scores
from cfaug.core.validation import Seed, check_fields
from cfaug.data.shards.shards import read_scores
from cfaug.editing.protocols import Tagger
from cfaug.editing.sentence import Sentence, Slot, copy_case, normalise, replace_slot, split
from cfaug.editing.word_lists import NLTK_STOP_WORDS
from cfaug.imaging.clip import LazyClipScorer
from cfaug.imaging.select import BASE, cosine

if TYPE_CHECKING:
    from torch import Tensor

Kind = Literal["object", "attribute", "relation"]
"""The kinds of words that are replaced: nouns, adjectives, verbs and prepositions."""
TAGS: Mapping[str, tuple[str, ...]] = {
    "object": ("NN", "NNS"),
    "attribute": ("JJ", "JJR", "JJS"),
    "relation": ("VB", "VBD", "VBG", "VBN", "VBP", "VBZ", "IN"),
}
"""The Penn tags of each kind."""
NOT_BETWEEN = frozenset({"of", "as", "that", "than", "if", "while", "because", "like"})
"""Words tagged IN that say nothing of where a thing is."""
NONCE = ("blicket", "dax", "fep", "gazzer", "lorp", "modi", "tulver", "wug", "zav", "zorch")
"""Words without a meaning, most of them of studies of word learning; none begins with a vowel."""
PROBES = "probes"
"""The entry of a proposal's ``extra`` with its captions of a nonce word."""
SENSITIVITY = "sensitivity"
"""The score: how much a nonce word lowers the cosine of image and caption, on average."""


@dataclass(frozen=True)
class NonceWords:
    """An editor that keeps a caption and adds what it says with a nonce word in place of a word.

    A proposal has the caption alone, so that a photo and its caption stay a pair to train on;
    ``extra["probes"]`` has a caption for each of its words, with the ``kind`` of the word. A
    caption without such a word gives no proposal.
    """

    tagger: Tagger
    """the tagger of parts of speech"""
    kinds: Annotated[Sequence[Kind], MinLen(1)] = get_args(Kind)
    """the words to replace: nouns (object), adjectives (attribute), verbs and prepositions
    (relation)"""
    seed: Seed = 0
    """the seed of what is drawn"""

    def __post_init__(self) -> None:
        check_fields(self, "recipe.editor")

    def edit(self, examples: Sequence[Example]) -> list[Edited]:
        sentences = [split(normalise(example.text)) for example in examples]
        tagged = self.tagger.tag([sentence.words for sentence in sentences])
        edited = []
        for example, sentence, tags in zip(examples, sentences, tagged, strict=True):
            probes = self._probes(example.key, sentence, tags)
            kept = Proposal(example, (example.text,), (None,), {PROBES: probes})
            edited.append(Edited((kept,) if probes else (), {"words": len(probes)}))
        return edited

    def _probes(self, key: str, sentence: Sentence, tags: Sequence[str]) -> list[dict[str, str]]:
        probes = []
        for place, (word, tag) in enumerate(zip(sentence.words, tags, strict=True)):
            kind = next((kind for kind in self.kinds if tag in TAGS[kind]), None)
            plain = word.lower()
            unread = NOT_BETWEEN if tag == "IN" else NLTK_STOP_WORDS
            if kind is None or plain in unread or not plain.isalpha():
                continue
            nonce = NONCE[int(generator(self.seed, "nonce", key, place).integers(len(NONCE)))]
            text = replace_slot(
                sentence, Slot(place, place), copy_case(nonce, word), article=True
            ).text
            probes.append({"kind": kind, "word": word, "text": text})
        return probes

    def describe(self) -> dict[str, str]:
        """Return the tagger's description."""
        return self.tagger.describe()


@dataclass(frozen=True)
class NonceScorer(LazyClipScorer):
    """A scorer of how much a caption's words matter to its cosine with the image.

    ``sensitivity`` is the cosine of image and caption less the mean of those with the captions of
    ``NonceWords``; ``sim_0`` is the former.
    """

    @property
    def meanings(self) -> dict[str, str]:
        return {
            self.prefix + BASE: "image and its caption",
            self.prefix + SENSITIVITY: "image and caption: lost by a nonce word, on average",
        }

    def further_texts(self, proposal: Proposal) -> list[str]:
        return [probe["text"] for probe in proposal.extra[PROBES]]

    def compare(self, texts: Sequence[Tensor], images: Sequence[Tensor]) -> Scores:
        import torch

        probes = torch.stack(list(texts[1:]))
        right = cosine(images[0][None], texts[0][None])[0].tolist()[0]
        wrong = cosine(images[0].expand_as(probes), probes)[0].tolist()
        return {
            self.prefix + BASE: right,
            self.prefix + SENSITIVITY: right - sum(wrong) / len(wrong),
        }


@dataclass(frozen=True)
class BestShare:
    """A choice of the sets with the highest score, when all shards are made."""

    score: str = SENSITIVITY
    """the name of the score that ranks"""
    share: Annotated[float, Interval(gt=0, le=1)] = 0.5
    """the share of the sets that is kept, rounded down, at least one"""

    def __post_init__(self) -> None:
        check_fields(self, "recipe.choice")

    def choose(self, folder: Path) -> dict[str, Any]:
        """Return the keys of the best sets, and the lowest score among them.

        Args:
            folder: shards of which all are made.

        Raises:
            UserError: if nothing was made, or a set lacks the score.
        """
        of = read_scores(folder)
        lacking = next((key for key, scores in of.items() if self.score not in scores), None)
        if not of or lacking is not None:
            which = f"{lacking} of {folder} has none" if of else f"{folder} has no set"
            raise UserError(f"recipe.choice.score={self.score} ranks the sets, and {which}")
        ranked = sorted(of, key=lambda key: (-of[key][self.score], key))
        kept = ranked[: max(1, int(Fraction(str(self.share)) * len(ranked)))]
        least = of[kept[-1]][self.score]
        say(
            f"the best {len(kept):,} of {len(ranked):,} sets by {self.score} are chosen; the last "
            f"has {least:.4f}"
        )
        return {"keys": sorted(kept), "of": len(ranked), "score": self.score, "least": least}
