"""Cross-modal attribute insertions (XMAI; Ramshetty et al., 2023, section 3): the editor.

Before each mention of an object detected in the image, a language model's guesses are scored by
their probability, their similarity to the object's attributes, and the distance of the resulting
caption from the image; the best guess is inserted. All captions of a call go through each model in
batches: first at the first mention of each, then at the second, and so on.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from cfaug.core.errors import UserError
from cfaug.core.types import Edited, Example
from cfaug.core.validation import Positive, check_fields
from cfaug.editing.language_models import MaskedLM
from cfaug.editing.protocols import MaskFiller, SentenceEmbedder, Tagger
from cfaug.xmai.insertions.answer_cache import AnswerCache
from cfaug.xmai.insertions.block_list import BlockList
from cfaug.xmai.insertions.draft import (
    BROKEN_PHOTO,
    MASK_IN_TEXT,
    Draft,
    ImageTextDistance,
    ScoredGuess,
    propose,
    say_blocked,
)
from cfaug.xmai.insertions.guesses import Canvas, Context, Guess, Guesser
from cfaug.xmai.insertions.mentions import Fallback, MentionFinder, WordSimilarity
from cfaug.xmai.insertions.scores import Normalise, Weigher, Weights, score_candidates


@dataclass(frozen=True)
class AttributeInsertion:
    """Inserts words before the nouns of a caption that name objects of its image.

    Args:
        filler: the language model whose guesses are scored (bert-base-cased, section 4.4).
        word_encoder: the encoder of nouns and labels, whose similarity is the cosine
            (bert-base-nli-mean-tokens, section 4.4). ``None`` needs fallback=never.
        tagger: the part-of-speech tagger that finds the nouns to compare with the objects; ``None``
            needs fallback=never.
        attribute_encoder: the encoder of attributes and guesses (spaCy's en_core_web_md, section
            4.4); ``None`` is ``word_encoder``; without either, lambda_2 has to be 0.
        image_text: the distance of a caption from its image; ``None`` needs a lambda_3 of 0.
        weights: lambda_1 of the language model's probability, lambda_2 of the similarity to the
            object's attributes, lambda_3 of the distance from the image. Negative weights favour
            the opposite. Section 4.4: 1, 5 and 5.
        threshold: the least cosine at which a noun mentions an object: t (section 4.4).
        k: the number of candidates of a mention to score (section 4.4).
        guesses: the number of the language model's guesses, among which the first k candidates are
            taken; 20 in the released code.
        normalise: the method that makes the three scores of a mask's candidates comparable.
            ``min_max`` maps the least to 0 and the greatest to 1, as the released code does;
            ``sum`` divides by their sum (section 3), after which the distances of three captions
            that differ in one word are all about a third, so that lambda_3 has no effect.
        context: the language model's input to the left of a mask: ``sequential``, the words
            inserted there (section 3); or ``alone``, the caption without other insertions. Then
            choices are independent, and ablations over lambda, k and t share all answers of the
            models; it is an approximation of ours.
        fallback: the nouns to compare with the detected objects: every ``noun`` that is not a
            direct match; those of a ``text`` without any direct match (section 3); ``never`` any;
            or ``only`` nouns, without direct matches.
        block_list: the words not to insert; ``None`` allows every word.
        keep_unchanged: whether a caption without an insertion still gives a set, of the same text
            twice: the published tables also average over those.
        cache: the folder of cached answers of models, so that ablations over lambda, k and t repeat
            no question; ``None`` caches no answers.
        chunk: the number of captions that go through the models together; it bounds memory without
            changing results.

    Raises:
        UserError: if a setting is invalid or a part is missing; it names the culprit.
    """

    filler: MaskFiller
    word_encoder: SentenceEmbedder | None = None
    tagger: Tagger | None = None
    attribute_encoder: SentenceEmbedder | None = None
    image_text: ImageTextDistance | None = None
    weights: Sequence[float] = (1.0, 5.0, 5.0)
    threshold: float = 0.7
    k: Positive = 3
    guesses: Positive = 20
    normalise: Normalise = "min_max"
    context: Context = "sequential"
    fallback: Fallback = "noun"
    block_list: BlockList | None = field(default_factory=BlockList)
    keep_unchanged: bool = True
    cache: str | None = None
    chunk: Positive = 1000

    def __post_init__(self) -> None:
        check_fields(self, "recipe.editor")
        if self._weights[1] and self.word_encoder is None and self.attribute_encoder is None:
            raise UserError(
                f"lambda_2, {self._weights[1]:g} of recipe.editor.weights, weighs the similarity "
                "of words, and recipe.editor.word_encoder is missing: set lambda_2 to 0, as in "
                f"'recipe.editor.weights=[{self._weights[0]:g},0,{self._weights[2]:g}]', or choose "
                "a zoo that has one"
            )
        if self._weights[2] and self.image_text is None:
            raise UserError(
                f"lambda_3, {self._weights[2]:g} of recipe.editor.weights, weighs the distance of "
                "image and text, and recipe.editor.image_text is missing: set lambda_3 to 0, as in "
                f"{self._without_images}, or choose a zoo with a CLIP, such as zoo=shapescapes or "
                "zoo=paper"
            )
        if self.fallback != "never" and (self.word_encoder is None or self.tagger is None):
            raise UserError(
                f"recipe.editor.fallback={self.fallback} compares nouns with "
                "objects and needs recipe.editor.word_encoder and recipe.editor.tagger: without "
                "them set recipe.editor.fallback=never"
            )

    @cached_property
    def _weights(self) -> Weights:
        given = tuple(self.weights)
        numbers = [w for w in given if isinstance(w, int | float) and math.isfinite(w)]
        if len(given) != 3 or len(numbers) != 3:
            raise UserError(
                f"recipe.editor.weights={list(given)} should be three numbers: lambda_1, lambda_2 "
                "and lambda_3"
            )
        first, second, third = map(float, numbers)
        return first, second, third

    @property
    def _without_images(self) -> str:
        return f"'recipe.editor.weights=[{self._weights[0]:g},{self._weights[1]:g},0]'"

    def edit(self, examples: Sequence[Example]) -> list[Edited]:
        """Return one proposal of two texts, or none, for each example's first text, in order."""
        editeds = [edited for some in self._chunks(examples) for edited in self._edit(some)]
        for cache in self._caches:
            cache.write()
        self._weigher.forget()
        if len(examples) > 1:  # a single example has the words in its details
            say_blocked(editeds)
        return editeds

    def describe(self) -> dict[str, str]:
        """Return the parts, the weights and the choices, for the card."""
        described: dict[str, str] = {}
        parts = (self.filler, self.word_encoder, self.tagger, self.image_text, self.block_list)
        for part in parts:
            described |= {} if part is None else part.describe()
        if self.attribute_encoder is not None:
            of = self.attribute_encoder.describe()
            described |= {f"attributes {name}": said for name, said in of.items()}
        lambdas = ", ".join(f"{weight:g}" for weight in self._weights)
        choices = f"normalise={self.normalise}, context={self.context}, fallback={self.fallback}"
        return {**described, "insertion": f"lambda {lambdas}; {choices}"}

    def _chunks(self, examples: Sequence[Example]) -> Iterator[Sequence[Example]]:
        for start in range(0, len(examples), self.chunk):
            yield examples[start : start + self.chunk]

    def _edit(self, examples: Sequence[Example]) -> list[Edited]:
        drafts = self._prepare(examples)
        for step in range(max((len(draft.found) for draft in drafts), default=0)):
            self._fill([draft for draft in drafts if len(draft.found) > step], step)
        return [propose(draft, self.keep_unchanged) for draft in drafts]

    def _prepare(self, examples: Sequence[Example]) -> list[Draft]:
        """Find the mentions of every caption, and note the reason if a caption has none."""
        drafts = [Draft.of(example, self._guesser.mask) for example in examples]
        self._check_images(drafts)
        some = [draft for draft in drafts if not draft.reason]
        mentions = self._finder.find(
            [draft.text for draft in some], [draft.detections for draft in some]
        )
        for draft, its in zip(some, mentions, strict=True):
            draft.place(its)
        for draft in drafts:
            if draft.text and draft.reason != MASK_IN_TEXT:
                draft.canvas = Canvas(draft.text, draft.found, self.context, self._guesser.mask)
        return drafts

    def _check_images(self, drafts: Sequence[Draft]) -> None:
        """Refuse examples without an image if the distance from it counts."""
        if not self._weights[2]:
            return
        for draft in drafts:
            if draft.example.image is None:
                raise UserError(
                    f"example {draft.example.key!r} has no image, whose distance lambda_3, "
                    f"{self._weights[2]:g} of recipe.editor.weights, weighs: name a source with "
                    f"images, or set lambda_3 to 0, as in {self._without_images}"
                )

    def _fill(self, drafts: Sequence[Draft], i: int) -> None:
        """Fill mask ``i`` of captions that have such a mask."""
        live = [draft for draft in drafts if draft.reason != BROKEN_PHOTO]
        canvases = [draft.canvas for draft in live if draft.canvas is not None]
        asked = self._guesser.ask([canvas.surroundings(i) for canvas in canvases])
        candidates = [
            self._candidates(draft, canvas, i, guesses)
            for draft, canvas, guesses in zip(live, canvases, asked, strict=True)
        ]
        self._weigher.weigh(live, candidates, i)
        for draft, some in zip(live, candidates, strict=True):
            assert draft.canvas is not None
            best = self._best(some)
            draft.chosen[i] = best
            draft.canvas.fill(i, None if best is None else best.guess.word)

    def _candidates(
        self, draft: Draft, canvas: Canvas, i: int, guesses: Sequence[Guess]
    ) -> list[ScoredGuess]:
        """Return the first k guesses that may be inserted, and note those that are blocked."""
        mention = draft.found[i]
        nouns = draft.nouns(mention)
        kept: list[ScoredGuess] = []
        for guess in self._guesser.candidates(guesses, canvas.unwanted(i)):
            if len(kept) == self.k:
                break
            if self.block_list is not None and self.block_list.blocks(guess.word, nouns):
                draft.blocked.append((mention, guess.word, canvas.candidate(i, guess.word)))
            else:
                kept.append(ScoredGuess(guess))
        draft.guesses += len(guesses)
        draft.candidates += len(kept)
        return kept

    def _best(self, candidates: Sequence[ScoredGuess]) -> ScoredGuess | None:
        """Return the candidate with the highest score, or the first of equal ones, or ``None``."""
        scores = score_candidates(
            [candidate.guess.probability for candidate in candidates],
            [candidate.similarity for candidate in candidates if candidate.similarity is not None],
            [candidate.distance for candidate in candidates if candidate.distance is not None],
            self._weights,
            self.normalise,
        )
        if not scores:
            return None
        best = max(range(len(scores)), key=scores.__getitem__)
        return replace(candidates[best], score=scores[best])

    @cached_property
    def _finder(self) -> MentionFinder:
        return MentionFinder(self.fallback, self.tagger, self._similarity, self.threshold)

    @cached_property
    def _similarity(self) -> WordSimilarity | None:
        return (
            None if self.word_encoder is None else WordSimilarity(self.word_encoder, self._folder)
        )

    @cached_property
    def _weigher(self) -> Weigher:
        similarity = self._similarity
        if self.attribute_encoder is not None:
            similarity = WordSimilarity(self.attribute_encoder, self._folder)
        image_text = self.image_text if self._weights[2] else None
        return Weigher(similarity, image_text, self._folder)

    @cached_property
    def _caches(self) -> list[AnswerCache]:
        """The cache of each model's answers."""
        words = [one for one in (self._similarity, self._weigher.similarity) if one is not None]
        every = [self._guesser.cache, self._weigher.cache, *(word.cache for word in words)]
        return list({id(one): one for one in every}.values())

    @cached_property
    def _folder(self) -> Path | None:
        return None if self.cache is None else Path(self.cache).expanduser()

    @cached_property
    def _guesser(self) -> Guesser:
        # Only a model's answers are worth caching, and only a model describes everything that they
        # depend on.
        folder = self._folder if isinstance(self.filler, MaskedLM) else None
        described = f"{self.filler.describe()} {self.guesses}" if folder else ""
        return Guesser(self.filler, self.guesses, AnswerCache(folder, f"guesses {described}"))
